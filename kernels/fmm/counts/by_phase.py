"""The operations of each phase: in its loops, products and passes over arrays."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise

import numpy as np

from kernels.fmm.accuracy import accuracy, leaf_points, newton_steps
from kernels.fmm.constants import (
    BOTH_WAYS,
    CHILDREN,
    COARSEST,
    DOUBLE_BYTES,
    EXACT_STEPS,
    FAR_STEPS,
    ITSELF,
    ONE_WAY,
    PHASES,
    V_OFFSETS,
    interleaves_complex,
)
from kernels.fmm.counts.loops import Sizes, count_product, count_two_products, padded
from kernels.fmm.counts.machine import DEFAULT_MACHINE, MachineModel
from kernels.fmm.counts.tally import INDEXED_OPS, LOOP_OPS, Tally
from kernels.fmm.counts.work import Work, planned_work
from kernels.fmm.distributions import points
from kernels.kernel import Counts

NEIGHBOURHOOD = 64
"""Leaves that the U phase processes before it uses a leaf again."""
LINE_BYTES = 64
INDEX_BYTES = 4


@lru_cache(maxsize=64)
def evaluation_counts(
    n: int,
    q: int | None,
    digits: int,
    precision: str,
    distribution: str,
    threads: int,
    machine: MachineModel = DEFAULT_MACHINE,
) -> Mapping[str, Counts]:
    """Counts by phase for the points of :func:`kernels.fmm.distributions.points` with seed 0.

    ``q``: None for the default of :func:`kernels.fmm.prepare`. The counts depend on the host only
    if ``machine`` is the host's.

    Raises:
        kernels.fmm.FmmInputError: the digits are outside the precision's range.
    """
    asked = accuracy(digits, precision)
    if q is None:
        q = leaf_points(asked)
    steps = newton_steps(asked, machine.estimate_bits[asked.bits == 64])
    places, _ = points(distribution, n, 0)
    return phase_counts(planned_work(places, q, asked.order, asked.bits, steps, threads), machine)


def total_counts(phases: Mapping[str, Counts]) -> Counts:
    """The sums of all phases' counts."""
    total: dict[str, float] = {}
    for counts in phases.values():
        for name, value in counts.items():
            total[name] = total.get(name, 0.0) + value
    return total


def phase_counts(
    work: Work, machine: MachineModel = DEFAULT_MACHINE
) -> dict[str, dict[str, float]]:
    """Phase -> class -> operations of one evaluation by one process with all its threads."""
    tallies = {phase: Tally(work.bits, machine.caches) for phase in PHASES}
    shape = Sizes(work, machine)
    _up(tallies["up"], shape)
    _x(tallies["x"], shape)
    _v(tallies["v"], shape)
    _down(tallies["down"], shape)
    _w(tallies["w"], shape)
    _u(tallies["u"], shape)
    return {phase: tally.counts() for phase, tally in tallies.items()}


def _points_to_surfaces(tally: Tally, s: Sizes, leaf: np.ndarray, node: np.ndarray) -> None:
    """Count P2M or P2L: the sources of leaves act on the check surfaces of nodes."""
    n = s.sources[leaf]
    window = 4 * n * s.size
    s.one_way(tally, n, np.full(len(n), s.columns), FAR_STEPS[s.work.bits], window)
    other = leaf != node
    s.seen_from(tally, n[other], window[other], s.all_bytes)
    tally.moved(4 * n[~other] * s.size, s.all_bytes)
    _check_rows(tally, s, len(n))
    tally.flops(s.nodes * s.columns)
    tally.flops(s.nodes, wide=True)
    tally.ints(LOOP_OPS * s.nodes * s.columns / s.lanes)
    tally.moved(s.rows_bytes, s.rows_bytes)


def _surfaces_to_points(tally: Tally, s: Sizes, leaf: np.ndarray, node: np.ndarray) -> None:
    """Count L2P or M2P: the densities of nodes act on the targets of leaves."""
    n = s.targets[leaf]
    room = padded(n, s.lanes)
    window = np.full(len(n), 4 * s.columns * s.size)
    s.one_way(tally, np.full(len(n), s.surface), n, FAR_STEPS[s.work.bits], window)
    other = leaf != node
    s.seen_from(tally, n[other], window[other], s.all_bytes)
    tally.moved(4 * room[~other] * s.size, s.all_bytes)
    _check_rows(tally, s, len(n))
    # The surface's points and densities are copied into one array.
    tally.ints(LOOP_OPS * len(n) * 4 * s.columns / s.lanes)
    tally.moved(len(n) * 7.0 * s.row_bytes, 4 * s.row_bytes)


def _check_rows(tally: Tally, s: Sizes, calls: int) -> None:
    tally.moved(calls * s.row_bytes, s.rows_bytes)


def _solve(tally: Tally, s: Sizes, which: int) -> None:
    for level in range(COARSEST, len(s.level_sizes)):
        rank = s.work.ranks[level][which]
        tally.product(s.level_sizes[level], s.surface, rank)
        tally.product(s.level_sizes[level], rank, s.surface)
        tally.moved(2 * s.level_sizes[level] * s.row_bytes, s.rows_bytes)


def _between_levels(tally: Tally, s: Sizes) -> None:
    """Count M2M or L2L: one product for each octant and level, and adding its rows."""
    tree, active = s.work.tree, s.work.active
    octant = tree.octants()
    for level, (a, b) in enumerate(pairwise(tree.levels)):
        nodes = s.level_sizes[level]
        if level <= COARSEST or not nodes:
            continue
        rows = np.bincount(octant[a:b][active[a:b]], minlength=CHILDREN)
        tally.product(rows, s.surface, s.surface)
        numbers = nodes * s.surface
        tally.flops(numbers)
        tally.ints(LOOP_OPS * numbers / s.lanes + INDEXED_OPS * nodes)
        # A gather, and an addition to gathered rows.
        tally.moved(3 * numbers * s.size, numbers * s.size)
        tally.moved(2 * numbers * s.size, s.rows_bytes)
        # The octants' operators are used again at the next level.
        tally.moved(CHILDREN * s.surface**2 * s.size, CHILDREN * s.surface**2 * s.size)


def _up(tally: Tally, s: Sizes) -> None:
    """Count P2M, M2M, the solution, and before them copying the charges into their slots.

    Ranks exchange charges before these steps, and densities after them.
    """
    messages = s.work.messages
    if messages is not None:
        _look_up(tally, s, messages.given + messages.sent)
        copied = messages.owned + messages.received
        tally.ints(LOOP_OPS * copied * DOUBLE_BYTES / s.machine.vector_bytes)
        tally.moved(copied * 2 * DOUBLE_BYTES, s.all_bytes)
    n = s.sources[s.work.leaves].sum()
    tally.ints(INDEXED_OPS * n)
    tally.moved(n * (2 * DOUBLE_BYTES + s.size), s.all_bytes)
    tally.moved(s.slots * s.size, s.all_bytes)
    tally.moved(s.rows_bytes, s.rows_bytes)
    _points_to_surfaces(tally, s, s.own_leaves, s.own_leaves)
    _between_levels(tally, s)
    _solve(tally, s, 0)
    if messages is not None:
        # Rows are gathered for sending; received rows are added to their nodes' rows.
        rows = messages.rows_sent + messages.rows_received
        tally.ints(rows * (INDEXED_OPS + LOOP_OPS * s.columns / s.lanes))
        tally.moved((rows + messages.rows_received) * s.row_bytes, s.rows_bytes)
        tally.moved(rows * s.row_bytes, rows * s.row_bytes)
        tally.flops(messages.rows_received * s.columns)


def _look_up(tally: Tally, s: Sizes, count: int) -> None:
    """Count gathering or scattering double-precision numbers by 64-bit indices."""
    tally.ints(INDEXED_OPS * count)
    tally.moved(count * 3 * DOUBLE_BYTES, s.all_bytes)


def _x(tally: Tally, s: Sizes) -> None:
    """Count P2L, and before it setting the check potentials to 0."""
    tally.moved(s.nodes * s.row_bytes, s.rows_bytes)
    if len(s.work.x_pairs):
        _points_to_surfaces(tally, s, *s.work.x_pairs.T)


def _v(tally: Tally, s: Sizes) -> None:
    """Count M2L: forward transforms, products at every frequency, backward transforms."""
    parents = s.work.v_list
    if not parents.levels:
        return
    p, count, acted_on = s.work.order, float(len(parents)), float(parents.acted_on)
    n, line, plane = 2 * p - 1, p * CHILDREN, p * p * CHILDREN
    frequencies = n * n * p
    spectrum = 2 * CHILDREN * s.size
    spectra = frequencies * (len(parents) + 1) * spectrum
    children = int((parents.children >= 0).sum())

    # Forward: 2 products along z, 4 along y for each kz, 4 along x for each kz and ky.
    scratch = 3 * p * plane * s.size
    for first, last in s.slabs:
        count_product(tally, s, 2 * count, (last - first, p), plane, scratch)
    count_product(tally, s, 4 * count * p, (p, p), line, 4 * p * line * s.size)
    count_product(tally, s, 4 * count * p * n, (p, p), CHILDREN, 4 * line * s.size)
    sums = p * line * (2 + 4 * (p - 1)) + p * n * CHILDREN * (2 + 4 * (p - 1))
    tally.flops(count * sums)
    zeroed = len(s.slabs) * p * plane
    tally.ints(count * LOOP_OPS * (sums / CHILDREN + zeroed / s.lanes))
    tally.moved(count * (2 * sums + zeroed) * s.size, scratch)
    tally.moved(count * frequencies * spectrum, s.slab_bytes)
    tally.moved(count * frequencies * LINE_BYTES, scratch + frequencies * (spectrum + LINE_BYTES))
    _grids(tally, s, children, scratch)

    # Products: 8 source children x 8 target children, complex, at every frequency.
    tally.moved(spectra, s.slab_bytes)
    pairs = sum(of_level.shape[1] for of_level in parents.pairs)
    groups = pairs / s.group
    directions = sum(int((np.diff(starts) > 0).sum()) for starts in parents.starts)
    tally.flops(8.0 * CHILDREN * CHILDREN * pairs * frequencies)
    if interleaves_complex(s.work.bits, s.machine.vector_bytes):
        # i times a column, once per group.
        tally.flops(2.0 * CHILDREN * CHILDREN * groups * frequencies)
    matrix = 2 * CHILDREN * CHILDREN
    filled = float(frequencies * directions * matrix)
    tally.ints(
        frequencies * groups * LOOP_OPS + 2 * INDEXED_OPS * pairs * frequencies
        + filled / 2 * (LOOP_OPS + INDEXED_OPS)
    )  # fmt: skip
    table = 2.0 * frequencies * V_OFFSETS * s.size * len(parents.levels)
    tally.moved(table, s.all_bytes)
    # At every frequency the matrices are filled by offset, and all pairs are processed.
    both = (len(parents) + 1 + parents.acted_on + 1) * spectrum
    once = directions * (matrix * s.size + INDEX_BYTES * matrix / 2) + 2.0 * INDEX_BYTES * pairs
    tally.moved(frequencies * once, once + 2 * V_OFFSETS * s.size + both)
    tally.moved(filled * s.size + frequencies * groups * matrix * s.size, matrix * s.size)
    # The sources and targets of a group: three spectra; their first use is from a larger level.
    first_use = float(frequencies * both)
    tally.moved(first_use, s.slab_bytes)
    again = frequencies * pairs * 3.0 * spectrum - first_use
    tally.moved(max(again, 0.0), both)

    # Backward: 2 products along x for each kz and ky, 2 along y for each kz, 1 along z.
    children = int((parents.children[: parents.acted_on] >= 0).sum())
    scratch = work = (2 * p * plane + 4 * p * line) * s.size
    count_two_products(tally, s, 2 * acted_on * p * n, (p, p), CHILDREN, 4 * line * s.size)
    count_two_products(tally, s, 2 * acted_on * p, (p, p), line, 4 * p * line * s.size)
    for first, last in s.slabs:
        count_two_products(tally, s, acted_on, (p, last - first), plane, work)
    sums = p * n * CHILDREN * 4 * (p - 1) + p * line * 4 * (p - 1)
    tally.flops(acted_on * sums)
    tally.ints(acted_on * LOOP_OPS * sums / CHILDREN)
    tally.moved(acted_on * 2 * sums * s.size, scratch)
    tally.moved(acted_on * frequencies * spectrum, s.slab_bytes)
    lines = acted_on * frequencies * LINE_BYTES
    tally.moved(lines, scratch + frequencies * (spectrum + LINE_BYTES))
    tally.flops(2.0 * len(s.slabs) * children * s.surface)
    _grids(tally, s, children, scratch)


def _grids(tally: Tally, s: Sizes, children: int, scratch: int) -> None:
    """Count scattering surfaces to grids, or gathering them, for each slab."""
    numbers = len(s.slabs) * children * s.surface
    tally.ints(numbers * (LOOP_OPS + INDEXED_OPS))
    tally.moved(numbers * (s.size + DOUBLE_BYTES), scratch)
    tally.moved(numbers * s.size, s.rows_bytes)


def _down(tally: Tally, s: Sizes) -> None:
    """Count L2L, the solution, and L2P."""
    tally.moved(s.nodes * s.row_bytes, s.rows_bytes)
    _between_levels(tally, s)
    _solve(tally, s, 1)
    _surfaces_to_points(tally, s, s.own_leaves, s.own_leaves)


def _w(tally: Tally, s: Sizes) -> None:
    """Count M2P, and converting the sums to the U phase's unit."""
    if len(s.work.w_pairs):
        _surfaces_to_points(tally, s, *s.work.w_pairs.T)
    tally.flops(s.slots)
    tally.ints(LOOP_OPS * s.slots / s.lanes)
    tally.moved(2 * s.slots * s.size, s.slots * s.size)


def _u(tally: Tally, s: Sizes) -> None:
    """Count P2P, and copying the sums to the user's order, on ranks also to the messages' order."""
    near, work = s.work.near, s.work
    ns, nt = s.sources[near[:, 1]], s.targets[near[:, 0]]
    what = near[:, 2]
    window = 5 * padded(ns, s.lanes) * s.size
    vectors_s, vectors_t = -(-ns // s.lanes), -(-nt // s.lanes)
    both, one, itself = (what == k for k in (BOTH_WAYS, ONE_WAY, ITSELF))
    s.both_ways(tally, vectors_s[both], nt[both], window[both])
    s.masked(tally, ns[one], vectors_t[one], work.bits, work.steps, window[one])
    # A leaf on itself: each vector acts on itself, then both ways with all following vectors.
    n, v = ns[itself], vectors_s[itself]
    s.masked(tally, n, np.ones_like(n), work.bits, work.steps, window[itself])
    longest = int(v.max(initial=0))
    for k in range(longest - 1):
        rest = v[v > k + 1] - (k + 1)
        s.both_ways(tally, rest, np.full(len(rest), s.lanes), window[itself][v > k + 1])
    if work.coincident:
        again = np.concatenate([ns, nt[both]]), np.concatenate([nt, ns[both]])
        wide = s.machine.vector_bytes // DOUBLE_BYTES
        s.masked(tally, again[0], -(-again[1] // wide), 64, EXACT_STEPS, 96 * again[0])
        tally.flops(again[1], wide=True)
    # Copying the targets relative to the source leaf's centre; then adding both leaves' sums.
    apart = ~itself
    around = NEIGHBOURHOOD * float(padded(nt, s.lanes).mean()) * s.slot_bytes
    s.seen_from(tally, nt[apart], window[apart], around)
    sums = nt + np.where(both, ns, 0)
    tally.flops(sums)
    tally.ints(LOOP_OPS * 2 * sums / s.lanes)
    tally.moved(4 * sums * s.size, window)
    tally.moved(4.0 * ns.sum() * s.size + sums.sum() * s.size, around)
    tally.moved(s.slots * s.slot_bytes, s.all_bytes)
    targets = s.targets[work.leaves].sum()
    tally.flops(targets, wide=True)
    tally.ints(INDEXED_OPS * targets)
    tally.moved(targets * (2 * DOUBLE_BYTES + s.size), s.all_bytes)
    if work.messages is not None:
        _look_up(tally, s, work.messages.given)
