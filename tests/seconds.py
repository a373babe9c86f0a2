"""The processor seconds of each test function, and what ``make check`` runs by them.

    python -m tests.seconds [PYTEST_ARGUMENT ...]

Runs the tests in one process and keeps what they take, with all processes that they start. What
fixtures of a file or session take is shared among the functions that use them.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import psutil
import pytest

KEPT = Path(__file__).parent / "data" / "seconds.txt"
QUICK_S = 0.5
"""``make check`` runs so much of a function; what takes less is not kept."""
ALWAYS = "tests/test_code.py"
"""Runs in any case: mypy takes long only until it has a cache."""
NEVER = (
    "tests/campaign/test_long_tables.py",
    "tests/campaign/test_run_local.py",
    "tests/docs/test_commands.py",
    "tests/docs/test_extending.py::test_an_example",
    "tests/docs/test_papers.py",
    "tests/docs/test_site.py::test_the_site_is_built",
    "tests/faults/test_fuzz.py::test_no_damaged_file",
    "tests/faults/test_local_faults.py::test_faults_at_the_stores_calls",
    "tests/faults/test_local_faults.py::test_runs_that_were_harmed",
    "tests/test_accounting_cluster.py",
    "tests/test_installed_package.py",
)
"""Whole runs, pages and packages, and much random damage: left out, whatever they take."""


def function_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0].partition("@")[0]


def kept() -> dict[str, float]:
    """Test function -> what all its cases take in processor seconds."""
    lines = (line.split() for line in KEPT.read_text(encoding="utf-8").splitlines())
    return {name: float(seconds) for seconds, name in lines}


def slow(items: Iterable[pytest.Item], seconds: dict[str, float]) -> list[pytest.Item]:
    """What ``make check`` leaves out: of a function that takes longer than ``QUICK_S``, the cases
    after the first ones that take so long together; and NEVER."""
    items = list(items)
    cases = Counter(map(function_of, items))
    place: Counter[str] = Counter()
    found = []
    for item in items:
        name = function_of(item)
        place[name] += 1
        is_long = seconds.get(name, 0.0) * place[name] > QUICK_S * cases[name]
        if name.startswith(NEVER) or (is_long and not name.startswith(ALWAYS)):
            found.append(item)
    return found


def used_s() -> float:
    """Processor seconds used until now by this process, those that it started, and theirs."""
    own = psutil.Process()
    seconds = 0.0
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            seconds += sum(process.cpu_times()[:4])
    return seconds


class Stopwatch:
    """A plugin of pytest that measures and writes."""

    def __init__(self) -> None:
        self.functions: defaultdict[str, float] = defaultdict(float)
        self.fixtures: defaultdict[pytest.FixtureDef[Any], float] = defaultdict(float)
        self.in_fixtures = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        before = used_s() + self.in_fixtures
        result = yield
        if fixturedef.scope != "function":
            taken = used_s() + self.in_fixtures - before
            self.fixtures[fixturedef] += taken
            self.in_fixtures -= taken
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        before = used_s() + self.in_fixtures
        result = yield
        self.functions[function_of(item)] += used_s() + self.in_fixtures - before
        return result

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        for definition, seconds in self.fixtures.items():
            users = {
                function_of(item)
                for item in session.items
                if definition.argname in getattr(item, "fixturenames", ())
                and item.nodeid.startswith(definition.baseid)
            }
            for name in users:
                self.functions[name] += seconds / len(users)
        seconds = {**kept(), **self.functions}
        lines = [
            f"{taken:.1f} {name}"
            for name, taken in sorted(seconds.items(), key=lambda entry: (-entry[1], entry[0]))
            if taken > QUICK_S
        ]
        KEPT.write_text("\n".join([*lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(pytest.main(["-n", "0", *sys.argv[1:]], plugins=[Stopwatch()]))
