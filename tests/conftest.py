"""What every test may use."""

from __future__ import annotations

import os

# Before NumPy is loaded: threads over small matrices only take the other core from other tests.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.slurm_fixtures"]

settings.register_profile(
    "campaign", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("campaign")
