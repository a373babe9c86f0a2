"""What every test may use."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.slurm_fixtures"]

settings.register_profile(
    "campaign", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("campaign")
