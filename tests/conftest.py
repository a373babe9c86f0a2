"""Settings of all tests: Hypothesis, groups for several processes, marks."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
from collections.abc import Iterator

# A shell's background jobs ignore SIGINT, and so would the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# MPI's ranks share memory: they would take what anybody sends to their sockets.
os.environ.setdefault("UCX_TLS", "sm,self")

# Before NumPy is loaded: threads for small matrices only slow other tests down.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

from tests.early import EARLY
from tests.numeric import NUMERIC
from tests.seconds import kept, slow
from tests.session_folder import session_folder, write_in_memory
from tests.slurm_cluster import use_loopback

pytest_plugins = ["tests.slurm_fixtures", "tests.accounting_fixtures"]

# Made here, before pytest starts its workers, which find it in their environment.
write_in_memory()
session_folder()
use_loopback()

settings.register_profile(
    "campaign", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("campaign")


PAGE = "tests/docs/test_commands.py::test_what_a_page_shows_is_what_happens"
GROUPS = {f"{PAGE}[fmm]": "tests/kernels/test_fmm", f"{PAGE}[papers]": "tests/docs/test_papers.py"}
"""Pages whose commands are also those of other tests."""


@pytest.fixture(scope="module", autouse=True)
def freed_memory_is_given_back() -> Iterator[None]:
    """A process that holds a gigabyte takes 75 ms to fork."""
    yield
    ctypes.CDLL(None).malloc_trim(0)


def group_of(item: pytest.Item) -> str:
    """The tests that run in one process, after one another: those of a file, whose fixtures they
    share; all of Slurm's, whose clusters would otherwise share the host's memory segments and
    ports; all of the FMM's, which compile the same loops, with the page that runs it; those of the
    papers, with the page whose commands they repeat."""
    fixtures = getattr(item, "fixturenames", ())
    if "slurm" in item.path.name or "slurm_cluster" in fixtures:
        return "slurm"
    if item.nodeid in GROUPS:
        return GROUPS[item.nodeid]
    file = item.nodeid.partition("::")[0]
    return next((name for name in EARLY if item.nodeid.startswith(name)), file)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups for ``--dist loadgroup --no-loadscope-reorder``, and the marks ``slow`` and
    ``numeric``."""
    places = {name: place for place, name in enumerate(EARLY)}
    for item in items:
        group = group_of(item)
        item.add_marker(pytest.mark.xdist_group(group))
        if item.nodeid.startswith(NUMERIC):
            item.add_marker(pytest.mark.numeric)
    for item in slow(items, kept()):
        item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: places.get(group_of(item), len(EARLY)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse to run where pytest-xdist's groups have no effect: every process would then make the
    clusters, stores and compiled loops that the tests of a group share."""
    grouped = getattr(session.config.option, "loadgroup", False)
    if grouped and session.items and "@" not in session.items[0].nodeid:
        raise pytest.UsageError(
            "this pytest ignores the groups of pytest-xdist; see constraints.txt"
        )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Give the memory of the tests' folders back, where none of them failed. Each keeps its folder
    until then: what the product remembers of a path would otherwise be found by another test."""
    if exitstatus == pytest.ExitCode.OK and not hasattr(session.config, "workerinput"):
        shutil.rmtree(session.config._tmp_path_factory.getbasetemp(), ignore_errors=True)
