"""Four kinds of fault of a real Slurm, one of each; slurm_faults.py has the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.slurm_faults import disturb
from tests.slurm_cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(280)]


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("state-lost", 2),
        ("late-orphan", 3),
        ("no-interface", 5),
        ("refused", 3140410144),
    ],
)
def test_a_campaign_survives(
    tmp_path: Path, slurm_cluster: SlurmCluster, kind: str, seed: int
) -> None:
    outcome = disturb(slurm_cluster, kind, seed, tmp_path)
    assert outcome.ok, outcome.line()
