"""Some faults of a real Slurm, one of each kind; the fault run has hundreds (slurm_faults.py)."""

from __future__ import annotations

import pytest

from tests.faults.slurm_faults import disturb

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(280)]


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("state-lost", 2),
        ("late-orphan", 3),
        ("no-interface", 5),
        ("refused", 6),
    ],
)
def test_a_campaign_survives(tmp_path, slurm_cluster, kind: str, seed: int):
    outcome = disturb(slurm_cluster, kind, seed, tmp_path)
    assert outcome.ok, outcome.line()
