"""A fixture that gives a test a real Slurm with accounting, energies and clocks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.accounting_cluster import AccountingCluster, why_no_accounting
from tests.requirement import lacking


def need_accounting() -> None:
    """Fail the test where a Slurm with accounting can't run."""
    reason = why_no_accounting()
    if reason is not None:
        lacking(f"no real Slurm with accounting: {reason}", "slurm")


@pytest.fixture(scope="module")
def accounting_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AccountingCluster]:
    """A real Slurm with accounting, energies and clocks: eight nodes, n1 to n8."""
    need_accounting()
    with AccountingCluster(tmp_path_factory.mktemp("acct"), "acct") as cluster:
        yield cluster
