"""The fault run, short: faults of every kind at the store's calls, and some of whole runs."""

from __future__ import annotations

import pytest

from tests.faults import commit_faults, local_faults

SHORT = (
    "SIGKILL driver",
    "SIGKILL worker",
    "system call in driver",
    "damaged file",
    "two drivers",
    "program: hang",
)


@pytest.mark.timeout(600)
def test_faults_at_the_stores_calls_lose_double_and_tear_nothing() -> None:
    outcomes = list(commit_faults.run(len(commit_faults.KINDS), seed=1, at_once=1))
    assert len({outcome.kind for outcome in outcomes}) == len(commit_faults.KINDS)
    assert not [outcome.line() for outcome in outcomes if not outcome.ok]


@pytest.mark.parametrize("name", SHORT)
def test_runs_that_were_harmed_go_on_to_the_same_measurements(name: str) -> None:
    kind = next(kind for kind in local_faults.KINDS if kind.name == name)
    outcome = local_faults.harm(kind, seed=1)
    assert outcome.ok, outcome.line()
