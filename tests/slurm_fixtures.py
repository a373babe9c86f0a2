"""Fixtures that give a test a real Slurm, or say loudly why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.requirement import lacking
from tests.slurm_cluster import SlurmCluster, why_no_slurm

PARTITION = """\
[partitions.{name}]
scheduler = "slurm"
nodes = 2
cores = 2
memory = "500MB"
walltime = "00:10:00"
interface = "lo"
"""
"""A partition of two nodes in a site file."""


def need_slurm() -> None:
    """Fail the test where Slurm can't run."""
    reason = why_no_slurm()
    if reason is not None:
        lacking(f"no real Slurm: {reason}", "slurm")


@contextmanager
def _cluster(factory: pytest.TempPathFactory, name: str) -> Iterator[SlurmCluster]:
    need_slurm()
    with SlurmCluster(factory.mktemp(name), name, {"cpu-a": 2, "cpu-b": 2}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A real Slurm with two partitions (cpu-a: n1, n2; cpu-b: n3, n4)."""
    with _cluster(tmp_path_factory, "slurm_a") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def slurm_cluster_b(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A second real Slurm beside the first: another site."""
    with _cluster(tmp_path_factory, "slurm_b") as cluster:
        yield cluster
