"""What every test may use."""

from __future__ import annotations

import os

# Before NumPy is loaded: threads over small matrices only take the other core from other tests.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.slurm_fixtures"]

settings.register_profile(
    "campaign", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("campaign")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With ``-n 2 --dist loadgroup``: a file's tests in one process, and so all of Slurm's, whose
    clusters would otherwise share the host's memory segments and ports."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        slurm = "slurm" in item.path.name or "slurm_cluster" in fixtures
        item.add_marker(pytest.mark.xdist_group("slurm" if slurm else str(item.path)))
