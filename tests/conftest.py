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


# What takes long, the longest first: files, and tests that need no fixture of their file. It starts
# first, so that no process still works on it when the others have nothing left, and `make check`
# leaves it out.
SLOW = (
    "slurm",
    "tests/faults/test_local_faults.py::test_runs_that_were_harmed",
    "tests/faults/test_local_faults.py::test_faults_at_the_stores_calls",
    "tests/campaign/test_run_local.py",
    "tests/kernels/test_fmm",
    "tests/campaign/test_command_line.py",
    "tests/campaign/test_damage.py",
    "tests/faults/test_fuzz.py::test_no_damaged_file",
    "tests/sites/test_clock_contract.py",
    "tests/campaign/test_measure.py",
    "tests/test_report_in_browser.py",
    "tests/faults/test_checker.py",
    "tests/campaign/test_protocol.py",
    "tests/security/",
    "tests/campaign/test_store.py::test_a_compaction_killed",
    "tests/faults/test_durability.py",
    "tests/kernels/test_microbench.py::test_every_kernel",
    "tests/campaign/test_table.py::test_other_peoples_format",
    "tests/analysis/test_drift.py",
    "tests/campaign/test_import.py::test_an_import_killed",
    "tests/analysis/test_figures.py",
    "tests/kernels/test_registry.py",
    "tests/campaign/test_timers.py",
    "tests/campaign/test_certificates.py",
    "tests/analysis/test_trace_energy.py::test_every_trace",
)
EARLY = (*SLOW, "tests/test_code.py")


def group_of(item: pytest.Item) -> str:
    """The tests that run in one process, after one another: those of a file, whose fixtures they
    share; all of Slurm's, whose clusters would otherwise share the host's memory segments and
    ports; all of the FMM's, which compile the same loops."""
    fixtures = getattr(item, "fixturenames", ())
    if "slurm" in item.path.name or "slurm_cluster" in fixtures:
        return "slurm"
    file = item.nodeid.partition("::")[0]
    return next((name for name in EARLY if item.nodeid.startswith(name)), file)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups for ``--dist loadgroup --no-loadscope-reorder``, and the mark ``slow``."""
    places = {name: place for place, name in enumerate(EARLY)}
    for item in items:
        group = group_of(item)
        item.add_marker(pytest.mark.xdist_group(group))
        if group in SLOW:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: places.get(group_of(item), len(EARLY)))
