"""The FMM's counts against its loops, walked pair by pair, and its phases against their work."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from kernels.fmm.constants import BOTH_WAYS, ITSELF, PHASES, SPARE_VECTORS
from kernels.fmm.counts.by_phase import phase_counts
from kernels.fmm.counts.machine import MachineModel
from kernels.fmm.counts.work import Messages, Work, planned_work
from kernels.fmm.distributions import points
from kernels.fmm.kernel import fmm
from kernels.host.ranks import Team

PASS, LOOK_UP, MASK = 3, 2, 5
"""Integer operations, as :mod:`kernels.fmm.counts` has them: advance, compare and jump; scale and
add; compare, three selections, a minimum."""
TILE = 2
"""Targets in registers at once, where there are 16."""
NUMBER = 4
CACHES = (("l1", 100), ("l2", 220), ("l3", 40_000))


def work_of(distribution: str, bits: int = 32, n: int = 600) -> Work:
    places, _ = points(distribution, n, 1)
    return planned_work(places, 12, 4, bits, 1 if bits == 32 else 2, 1)


def passes(sources: int, targets: int) -> int:
    """Passes of the loop over vectors of one source, for tiles of targets and single ones."""
    n, at = 0, 0
    while at + TILE <= targets:
        n, at = n + sources, at + TILE
    while at < targets:
        n, at = n + sources, at + 1
    return n


def walked_u(work: Work) -> tuple[int, Counter[str]]:
    """Integer operations and bytes by level of the U phase, one number a vector."""
    tree = work.tree
    size = (tree.end - tree.begin).tolist()
    ints = 0
    moved: Counter[str] = Counter()
    near = work.near.tolist()
    slot = 3 * 8 + 5 * NUMBER
    around = 64 * np.mean([size[target] for target, _, _ in near]) * slot

    def move(count: float, window: float) -> None:
        level = next((name for name, capacity in CACHES if window <= capacity), "dram")
        moved[level] += count

    for target, source, what in near:
        ns, nt = size[source], size[target]
        window = 5 * ns * NUMBER
        if what == ITSELF:
            for i in range(ns):  # on itself, masked, then both ways with all that follow
                ints += PASS + MASK
                after = ns - i - 1
                ints += PASS * after + after
                move(5 * after * NUMBER, window)
                move(after * NUMBER + 6 * NUMBER * (after > 0), 0)
            move(4 * ns * NUMBER + 5 * NUMBER, window)
            summed = nt
        else:
            assert what == BOTH_WAYS
            ints += PASS * passes(ns, nt) + ns * nt
            move(5 * passes(ns, nt) * NUMBER, window)
            move(passes(ns, nt) * NUMBER + 6 * nt * NUMBER, 0)
            ints += PASS * 4 * nt  # the targets are copied relative to the other leaf's centre
            move(nt * (3 * 8 + NUMBER), around)
            move(4 * nt * NUMBER, window)
            summed = nt + ns
        ints += PASS * 2 * summed
        move(4 * summed * NUMBER, window)
        move(4 * ns * NUMBER + summed * NUMBER, around)
    n_points = len(work.tree.leaves) and int(sum(size[leaf] for leaf in tree.leaves))
    ints += LOOK_UP * n_points
    slots = n_points + SPARE_VECTORS
    move(slots * slot, 1e12)
    move(n_points * (2 * 8 + NUMBER), 1e12)
    return ints, moved


@pytest.mark.parametrize("distribution", ["uniform", "plummer"])
def test_integer_operations_and_bytes_of_u_are_those_of_its_loops(distribution):
    work = work_of(distribution)
    machine = MachineModel(vector_bytes=NUMBER, registers=16, caches=CACHES)
    counts = phase_counts(work, machine)["u"]
    ints, moved = walked_u(work)
    assert counts["int"] == ints
    assert len(moved) == len(CACHES) + 1, "every level serves some"
    assert {name: counts[name] for name in moved} == pytest.approx(dict(moved), rel=1e-12)


def test_each_pair_of_x_and_w_is_counted_once():
    """56 points of a surface with every point of the leaf; 20 flops a pair in double precision."""
    work = work_of("plummer", 64)
    counts = phase_counts(work, MachineModel(vector_bytes=8))
    size = work.tree.end - work.tree.begin
    pairs = {(leaf, node) for leaf, node in work.w_pairs.tolist()}
    assert len(pairs) == len(work.w_pairs) > 0
    assert {(leaf, node) for leaf, node in work.x_pairs.tolist()} == pairs
    at_surfaces = sum(int(size[leaf]) * (56 * 20 + 3) for leaf, _ in pairs)
    nodes = len(work.tree)
    assert counts["x"]["dp"] == at_surfaces + nodes * 56 + nodes
    slots = int(size[work.tree.leaves].sum()) + SPARE_VECTORS
    assert counts["w"]["dp"] == at_surfaces + slots


def test_a_ranks_messages_are_gathered_and_added():
    """Charges of 8 bytes through indices of 8 bytes; rows of a surface's 56 densities."""
    work = work_of("plummer", 64)
    machine = MachineModel(vector_bytes=8, caches=())
    alone = phase_counts(work, machine)
    messages = Messages(given=7, owned=50, sent=300, received=2000, rows_sent=11, rows_received=13)
    counts = phase_counts(replace(work, messages=messages), machine)
    more = {
        phase: {name: counts[phase].get(name, 0) - n for name, n in alone[phase].items()}
        for phase in PHASES
    }
    assert more["up"] == {
        "dp": 13 * 56,
        "int": (7 + 300) * LOOK_UP + 2050 * PASS + (11 + 13) * (LOOK_UP + 56 * PASS),
        "dram": (7 + 300) * 24 + 2050 * 16 + (2 * 11 + 3 * 13) * 56 * 8,
    }
    assert more["u"] == {"dp": 0, "int": 7 * LOOK_UP, "dram": 7 * 24}
    assert all(not any(more[phase].values()) for phase in ("x", "v", "down", "w"))


@pytest.mark.parametrize(
    ("q", "longest"),
    [(3000, "u"), (15, "v")],
    ids=["one leaf: everything is U", "small leaves: V, and hardly any U"],
)
def test_the_marks_are_as_long_as_the_phases(q, longest):
    run = fmm.prepare(fmm.params(n=3000, q=q, digits=6, precision="double"), Team())
    run.run(1)
    run.run(5)
    all_marks = run.marks()
    assert len(all_marks) == 5 * len(PHASES)
    evaluations = [
        {mark.phase: (mark.end_ns - mark.begin_ns) * 1e-9 for mark in marks}
        for marks in np.array_split(all_marks, 5)
    ]
    # Other work on the machine makes a phase longer now and then.
    least_s = {phase: min(own[phase] for own in evaluations) for phase in PHASES}
    assert max(least_s, key=lambda phase: least_s[phase]) == longest
    for phase in PHASES[:-1]:
        assert evaluations[-1][phase] == pytest.approx(run.method.seconds[phase], abs=1e-7)
    run.close()
