"""The FMM on MPI ranks agrees with direct summation, and each rank counts what it does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.fmm.constants import BOTH_WAYS, FAR_STEPS, ITSELF, PHASES, SPARE_VECTORS, blocking
from kernels.fmm.counts.by_phase import evaluation_counts, phase_counts, total_counts
from kernels.fmm.counts.machine import MachineModel, host_machine
from kernels.fmm.counts.work import Work, planned_work
from kernels.fmm.interface import setup_for
from kernels.fmm.kernel import fmm
from kernels.fmm.operators.surfaces import surface_size
from kernels.fmm.phases.v_slabs import slabs
from kernels.host.vectors import HOST
from tests.kernels.test_fmm import direct, error, points

ROOT = Path(__file__).parents[2]
MPIEXEC = Path(sys.executable).parent / "mpiexec"
N, Q = 2500, 40
KINDS = ("sp", "dp")


@dataclass
class Run:
    """What the ranks computed and counted, and what one process would evaluate."""

    digits: int
    sources: np.ndarray
    charges: np.ndarray
    computed: np.ndarray
    ranks: list[dict[str, Any]]
    work: Work

    @property
    def machine(self) -> MachineModel:
        """Vectors of one number, which are never padded."""
        return MachineModel(vector_bytes=self.work.bits // 8, registers=16)


@pytest.fixture(
    scope="module",
    params=[(1, "plummer", 6), (2, "plummer", 6), (3, "line", 4), (4, "plummer", 6)],
    ids=str,
)
def run(request, tmp_path_factory) -> Run:
    ranks, name, digits = request.param
    folder = tmp_path_factory.mktemp("ranks")
    sources, charges = points(name, N, 11), np.random.default_rng(11).uniform(-1, 1, N)
    if digits == 4:  # in single precision: too small for it, and the largest is on one rank
        charges *= 1e-42
        charges[0] *= 100
    np.savez(folder / "given.npz", points=sources, charges=charges, digits=digits, q=Q)
    done = subprocess.run(
        [
            str(MPIEXEC), "-n", str(ranks), sys.executable, "-m", "tests.kernels.fmm_rank",
            str(folder / "given.npz"), str(folder),
        ],
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    setup = setup_for(digits, q=Q, threads=1)
    bits = 8 * setup.dtype.itemsize
    return Run(
        digits=digits,
        sources=sources,
        charges=charges,
        computed=np.load(folder / "computed.npy"),
        ranks=[json.loads((folder / f"rank{r}.json").read_text()) for r in range(ranks)],
        work=planned_work(sources, Q, setup.order, bits, setup.steps, 1),
    )


def test_ranks_agree_with_direct_sums(run):
    potential, gradient = direct(run.sources, run.charges, run.sources)
    assert error(run.computed[0], potential) <= 10.0**-run.digits
    assert error(run.computed[1], potential) <= 10.0**-run.digits
    assert error(run.computed[2:].T, gradient) <= 2 * 10.0**-run.digits


def flops(counts: dict[str, float]) -> float:
    return sum(counts.get(kind, 0) for kind in KINDS)


def pair_flops(work: Work) -> int:
    """Distance, estimate of 1 / r and its Newton steps, the last half left out."""
    return 8 + max(1, 5 * work.steps)


class Walked:
    """The flops of each rank, from one process's lists, walked node by node and pair by pair."""

    def __init__(self, work: Work, own: list[set[int]]) -> None:
        self.work, self.own, self.tree = work, own, work.tree
        tree, bits = self.tree, work.bits
        self.size = (tree.end - tree.begin).tolist()
        self.level, self.parent = tree.level.tolist(), tree.parent.tolist()
        self.surface = surface_size(work.order)
        self.with_surface = self.surface * (8 + 1 + 5 * FAR_STEPS[bits] - 1 + 2)
        self.above = [{m for leaf in leaves for m in self.line(leaf)} for leaves in own]
        at = {
            (d, *a): m
            for m, (d, a) in enumerate(zip(self.level, tree.anchor.tolist(), strict=True))
        }
        steps = [(x, y, z) for x in (-1, 0, 1) for y in (-1, 0, 1) for z in (-1, 0, 1)]
        steps.remove((0, 0, 0))
        # The parents beside each parent, by direction.
        self.beside: dict[int, dict[tuple[int, int, int], int]] = {}
        parents = {m for m in self.parent if m > 0}
        for (d, x, y, z), m in at.items():
            if m in parents:
                others = {s: at.get((d, x + s[0], y + s[1], z + s[2])) for s in steps}
                self.beside[m] = {s: o for s, o in others.items() if o in parents}
        self.children: dict[int, list[int]] = {}
        for m, mother in enumerate(self.parent):
            self.children.setdefault(mother, []).append(m)

    def line(self, node: int) -> list[int]:
        """A node and all nodes above it."""
        return [node] if node == 0 else [node, *self.line(self.parent[node])]

    def sources(self, rank: int) -> set[int]:
        """The nodes whose upward densities a rank uses."""
        used = {node for leaf, node in self.work.w_pairs.tolist() if leaf in self.own[rank]}
        for parent in self.above[rank] & set(self.beside):
            for other in self.beside[parent].values():
                used.update(self.children[other])
        return {m for m in used if self.level[m] >= 2}

    def ghosts(self, rank: int) -> set[int]:
        """Other ranks' leaves whose points act directly on a rank's points or nodes."""
        own = self.own[rank]
        pairs = self.work.near[:, :2].tolist()
        acting = {s for t, s in pairs if t in own} | {t for t, s in pairs if s in own}
        acting |= {leaf for leaf, node in self.work.x_pairs.tolist() if node in self.above[rank]}
        return acting - own

    def rows(self, giver: int, taker: int) -> int:
        """Nodes whose densities one rank sends to another."""
        return 0 if giver == taker else len(self.above[giver] & self.sources(taker))

    def points(self, leaves: set[int]) -> int:
        return sum(self.size[leaf] for leaf in leaves)

    def phases(self, rank: int) -> dict[str, int]:
        """Phase -> flops."""
        n, own, above = self.surface, self.own[rank], self.above[rank]
        kept_up, kept_down = self.work.ranks[0]
        deep = sum(self.level[m] >= 2 for m in above)
        shifts = sum(self.level[m] >= 3 for m in above) * (2 * n * n + n)
        at_leaves = sum(self.size[m] * self.with_surface for m in own if self.level[m] >= 2)
        scaled = len(self.tree) * (n + 1)
        received = sum(self.rows(r, rank) for r in range(len(self.own)))
        held = self.points(own | self.ghosts(rank))
        far = self.work.x_pairs.tolist()
        x = sum(self.size[a] * (self.with_surface + 3) for a, b in far if b in above)
        w = sum(self.size[a] * (self.with_surface + 3) for a, _ in far if a in own)
        return {
            "up": at_leaves + shifts + 4 * deep * n * kept_up + scaled + received * n,
            "x": x + (scaled if x else 0),
            "v": self.v(above),
            "down": at_leaves + shifts + 4 * deep * n * kept_down,
            "w": w + held + SPARE_VECTORS,
            "u": self.u(own) + held,
        }

    def u(self, own: set[int]) -> int:
        value = pair_flops(self.work)
        total = 0
        for target, source, what in self.work.near.tolist():
            ns, nt = self.size[source], self.size[target]
            if what == ITSELF:
                if target in own:
                    total += ns * (value + 3) + ns * (ns - 1) // 2 * (value + 4) + ns - 1 + ns
                continue
            assert what == BOTH_WAYS
            if target in own and source in own:
                total += ns * nt * (value + 4) + nt + 3 * nt + nt + ns
            else:  # each rank computes the potentials at its own leaf
                total += (target in own) * (ns * nt * (value + 3) + 3 * nt + nt)
                total += (source in own) * (ns * nt * (value + 3) + 3 * ns + ns)
        return total

    def v(self, above: set[int]) -> int:
        p, n = self.work.order, 2 * self.work.order - 1
        acted_on = above & set(self.beside)
        pairs = [(s, o) for m in acted_on for s, o in self.beside[m].items()]
        parents = acted_on | {o for _, o in pairs}
        if not acted_on:
            return 0
        group = blocking(HOST.registers).group
        by_direction: dict[Any, int] = {}
        for s, _ in pairs:
            by_direction[s] = by_direction.get(s, 0) + 1
        padded = sum(-(-count // group) * group for count in by_direction.values())
        matrix = 8 * p * p  # multiply-adds with (p, p), 8 children, one line
        halves = 8 * p * p * (2 + 4 * (p - 1)) + 8 * p * n * (2 + 4 * (p - 1))
        forward = 2 * matrix * (2 * p * p + 4 * p * p + 4 * p * n) + halves
        # Four rows at a time share a sign's product.
        cuts = slabs(p, len(parents), self.work.bits // 8)
        signs = 8 * p * (p // 4 + p % 4)
        folds = 8 * p * n * 4 * (p - 1) + 8 * p * p * 4 * (p - 1)
        backward = (4 * matrix + signs) * (2 * p * n + 2 * p * p + p * p) + folds
        results = 2 * len(cuts) * self.surface * sum(len(self.children[m]) for m in acted_on)
        products = 8 * 64 * padded * n * n * p
        return len(parents) * forward + len(acted_on) * backward + products + results


def test_the_flops_of_each_rank_are_those_of_its_own_pairs_and_nodes(run):
    own = [set(of["own"]) for of in run.ranks]
    assert sorted(leaf for leaves in own for leaf in leaves) == run.work.tree.leaves.tolist()
    walked = Walked(run.work, own)
    for rank, of in enumerate(run.ranks):
        assert {phase: flops(of["phases"][phase]) for phase in PHASES} == walked.phases(rank)
    one = phase_counts(run.work, run.machine)
    for phase in PHASES:
        total = sum(flops(of["phases"][phase]) for of in run.ranks)
        assert total == flops(one[phase]) if len(own) == 1 else total >= flops(one[phase])


def test_near_pairs_are_divided_and_only_those_across_ranks_cost_more(run):
    """Of two ranks' leaves each rank computes the distances: one way, not both ways at once."""
    owner = {leaf: rank for rank, of in enumerate(run.ranks) for leaf in of["own"]}
    size = run.work.tree.end - run.work.tree.begin
    value, more = pair_flops(run.work), 0
    for a, b, _ in run.work.near.tolist():
        if owner[a] != owner[b]:
            ns, nt = int(size[b]), int(size[a])
            more += 2 * ns * nt * (value + 3) + 3 * ns - (ns * nt * (value + 4) + nt)
    walked = Walked(run.work, [set(of["own"]) for of in run.ranks])
    held = sum(walked.points(walked.ghosts(rank)) for rank in range(len(run.ranks)))
    total = sum(flops(of["phases"]["u"]) for of in run.ranks)
    assert total == flops(phase_counts(run.work, run.machine)["u"]) + more + held
    assert (more > 0) == (len(run.ranks) > 1)


def test_a_rank_exchanges_what_its_lists_need(run):
    ranks = range(len(run.ranks))
    walked = Walked(run.work, [set(of["own"]) for of in run.ranks])
    for rank, of in enumerate(run.ranks):
        given = N if len(ranks) == 1 else len(range(rank - 1, N, len(ranks) - 1)) * (rank > 0)
        own = walked.own[rank]
        assert of["messages"] == {
            "given": given,
            "owned": walked.points(own),
            "sent": sum(walked.points(walked.ghosts(r) & own) for r in ranks),
            "received": walked.points(walked.ghosts(rank)),
            "rows_sent": sum(walked.rows(rank, r) for r in ranks),
            "rows_received": sum(walked.rows(r, rank) for r in ranks),
        }


def test_a_single_rank_counts_as_one_process_does(run):
    """All classes of the phases without messages; several ranks do at least as much together."""
    one = phase_counts(run.work, run.machine)
    for phase in ("x", "v", "down", "w"):
        assert len(run.ranks) > 1 or run.ranks[0]["phases"][phase] == one[phase]
    for phase in PHASES:
        for name in ("int", "moved"):
            total = sum(of_class(of["phases"][phase], name) for of in run.ranks)
            assert total >= of_class(one[phase], name)


def of_class(counts: dict[str, float], name: str) -> float:
    if name == "moved":
        return sum(counts.get(level, 0) for level in ("l1", "l2", "dram"))
    return counts.get(name, 0)


def test_the_kernels_ranks_have_counts_of_their_own(run):
    one = total_counts(
        evaluation_counts(1500, 60, 4, "double", "uniform", 1, machine=host_machine())
    )
    total: dict[str, float] = {}
    for of in run.ranks:
        assert set(of["kernel"]) == set(one) <= set(fmm.classes)
        for name, value in of["kernel"].items():
            total[name] = total.get(name, 0) + value
            assert 0 < value <= one[name]
        assert len(run.ranks) == 1 or flops(of["kernel"]) < flops(one)
    assert all(of["all_ranks"] == total for of in run.ranks)
    assert flops(total) == flops(one) if len(run.ranks) == 1 else flops(total) > flops(one)
