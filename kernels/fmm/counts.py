"""What one evaluation executes, by phase and by class: exact flops, modelled integers and bytes.

Of potentials without gradients, by one rank. A function of the tree, the lists and the accuracy
alone: nothing is evaluated. Imports no Numba.

Flops (``sp``, ``dp``) are exact: what the loops execute, lanes that only fill a vector included.
A fused multiply-add is 2, the processor's estimate of 1 / sqrt(x) is 1, a root with a division
is 2, a product of (m, k) and (k, n) matrices 2 m k n. Minima, comparisons, selections and
conversions are no flops. Not foreseen are pairs of leaves that are taken again in double
precision because two points all but coincide, but for points that all coincide.

Integers (``int``) by a model: :data:`LOOP_OPS` for each pass of an innermost loop,
:data:`INDEXED_OPS` for each number or group whose place is looked up in an array, 1 for each
lane of a minimum, a comparison or a selection. Addresses at a constant distance are free, as
x86 and Arm compute them in the load. Python's own work between the loops is left out.

Bytes (``l1``, ``l2``, ``dram``, ...) by a model: every byte that an instruction loads or stores is
counted once, at the level that serves it. A byte that is touched again is served by the smallest
level that holds what was touched in between, the window:

- inner loops: the sources that pass by the targets in registers;
- U: a leaf comes again within the surroundings of its neighbours, :data:`NEIGHBOURHOOD` leaves;
- V: a pair of parents' spectra come again at the next direction, after all spectra of one
  frequency; the transforms' scratch after itself; a spectrum lies on one line of the cache more
  than it fills, which it shares with the next parent's;
- matrix products: blocked as a BLAS does, so that :data:`BLAS_LOADS` numbers are loaded for every
  :data:`BLAS_TILE` multiply-adds, and each operand comes once from where all three lie;
- the first touch of points or spectra in a phase: all that an evaluation passes over, for the
  phases evict each other's; of densities and check potentials: these alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels.fmm.accuracy import accuracy, leaf_points, newton_steps
from kernels.fmm.distributions import points
from kernels.fmm.operators.surfaces import INNER, OUTER, surface_points, surface_size
from kernels.fmm.phases.v_slabs import CHILDREN, plane_frequencies, slabs
from kernels.kernel import Counts

if TYPE_CHECKING:
    from kernels.fmm.method import Fmm
    from kernels.fmm.tree.octree import Octree
    from kernels.fmm.tree.v_list import VList

PHASES = ("up", "x", "v", "down", "w", "u")
LOOP_OPS = 3
"""Integer operations of one pass of a loop: advance, compare, jump."""
INDEXED_OPS = 2
"""Of one look-up: scale the index, add it to the address."""
BLAS_TILE, BLAS_LOADS = 128, 24
"""Results that a BLAS keeps in registers (16 x 8), and what it loads to update them."""
NEIGHBOURHOOD = 64
"""Leaves that pass by before a leaf of the U phase comes again."""
COARSEST = 2
FAR_STEPS = {32: 1, 64: 2}
EXACT_STEPS = 2
ONE_WAY, BOTH_WAYS, ITSELF = 0, 1, 2
DISTANCE_FLOPS = 8
"""Three differences and the sum of their squares."""
MASK_OPS = 5
"""Lane by lane, of a pair that may coincide: a comparison, three selections, a minimum."""
WIDE_BYTES = 8
LINE_BYTES = 64
INDEX_BYTES = 4
OFFSETS = 344
"""Columns of the table of translations: 7 x 7 x 7 and one of zeros."""


@dataclass(frozen=True)
class MachineModel:
    """What the counts take from a machine.

    ``vector_bytes``: of a vector; ``registers``: how many, which tiles depend on;
    ``estimate_bits``: of the estimate of 1 / sqrt(x) in single and in double precision, 23 and 52
    where there is none; ``caches``: (class, bytes) of each cache that one thread has, the
    smallest first. The defaults are AVX-512 and the private caches of a server's core.
    """

    vector_bytes: int = 64
    registers: int = 32
    estimate_bits: tuple[int, int] = (14, 14)
    caches: tuple[tuple[str, int], ...] = (("l1", 32 << 10), ("l2", 1 << 20))

    def estimate_flops(self, bits: int) -> int:
        """Flops of 1 / sqrt(x) before any Newton step."""
        return 1 if self.estimate_bits[bits == 64] < 23 else 2


@dataclass(frozen=True)
class Work:
    """What is evaluated: the shape of a method, without its points.

    ``tree``, ``far`` and ``v_list``: as :class:`kernels.fmm.method.Fmm` has them; ``near``:
    int32 (n, 3), all threads' pairs of leaves; ``same``: whether the targets are the sources.
    ``bits``: 32 or 64, of the loops; ``steps``: Newton steps of near pairs; ``ranks``: for each
    level the singular values that the upward and the downward solution keep. ``coincident``:
    all points lie at one place.
    """

    tree: Octree
    far: np.ndarray
    near: np.ndarray
    v_list: VList
    order: int
    bits: int
    steps: int
    ranks: list[tuple[int, int]]
    same: bool = True
    interaction: str = "laplace"
    coincident: bool = False


def work_of(method: Fmm) -> Work:
    """What a method that is ready evaluates."""
    return Work(
        method.tree,
        method.lists.far,
        np.concatenate(method.near),
        method.v_list,
        method.order,
        method.dtype.itemsize * 8,
        method.rule.steps,
        [(o.up_solve[0].shape[1], o.down_solve[0].shape[1]) for o in method.operators],
        method.targets is method.sources,
        method.rule.interaction,
    )


def planned_work(
    places: np.ndarray, q: int, order: int, bits: int, steps: int, threads: int
) -> Work:
    """What :class:`kernels.fmm.method.Fmm` will evaluate of points: float64 (n, 3)."""
    # A plan imports this module, and must not import Numba before it has to count.
    from kernels.fmm.phases.u_schedule import share_pairs  # noqa: PLC0415
    from kernels.fmm.tree.lists import build_lists  # noqa: PLC0415
    from kernels.fmm.tree.octree import build_octree  # noqa: PLC0415
    from kernels.fmm.tree.v_list import build_v_list  # noqa: PLC0415

    tree = build_octree(places, None, q)
    lists = build_lists(tree, surface_size(order))
    return Work(
        tree,
        lists.far,
        np.concatenate(share_pairs(tree, lists.near, True, threads)),
        build_v_list(tree, lists.colleagues, False),
        order,
        bits,
        steps,
        [solution_ranks(order, bits)] * (len(tree.levels) - 1),
        coincident=bool((places == places[0]).all()) and len(places) > 1,
    )


@lru_cache(maxsize=64)
def solution_ranks(order: int, bits: int) -> tuple[int, int]:
    """Singular values that Laplace's upward and downward solutions keep (see ``operators``)."""
    inner, outer = surface_points(order, INNER), surface_points(order, OUTER)
    distance = np.linalg.norm(outer[:, None, :] - inner[None, :, :], axis=2)
    size = np.linalg.svd(1.0 / distance, compute_uv=False)
    rank = int((size > (1e-7 if bits == 32 else 1e-12) * size[0]).sum())
    return rank, rank


def host_machine() -> MachineModel:
    """The machine that Numba compiles for here, with its own caches.

    Raises:
        kernels.kernel.KernelFailed: its caches can't be read.
    """
    from kernels.host.caches import read_caches  # noqa: PLC0415
    from kernels.host.vectors import HOST, estimate_bits  # noqa: PLC0415

    caches = tuple(
        (f"l{cache.level}", cache.size_bytes) for cache in read_caches() if cache.level <= 3
    )
    return MachineModel(HOST.bytes, HOST.registers, (estimate_bits(32), estimate_bits(64)), caches)


@lru_cache(maxsize=64)
def evaluation_counts(
    n: int,
    q: int | None,
    digits: int,
    precision: str,
    distribution: str,
    threads: int,
    machine: MachineModel = MachineModel(),
) -> Mapping[str, Counts]:
    """Counts by phase of the points of :func:`kernels.fmm.distributions.points`, seed 0.

    ``q``: None for what :func:`kernels.fmm.prepare` takes. The same on every host, unless the
    machine is the host's.

    Raises:
        kernels.fmm.BadInput: digits that the precision has not.
    """
    asked = accuracy(digits, precision)
    if q is None:
        q = leaf_points(asked)
    steps = newton_steps(asked, machine.estimate_bits[asked.bits == 64])
    places, _ = points(distribution, n, 0)
    return phase_counts(planned_work(places, q, asked.order, asked.bits, steps, threads), machine)


def total_counts(phases: Mapping[str, Counts]) -> Counts:
    """The counts of all phases together."""
    total: dict[str, float] = {}
    for counts in phases.values():
        for name, value in counts.items():
            total[name] = total.get(name, 0.0) + value
    return total


def phase_counts(work: Work, machine: MachineModel = MachineModel()) -> dict[str, dict[str, float]]:
    """Phase -> class -> operations of one evaluation, all threads together."""
    tallies = {phase: Tally(work.bits, machine.caches) for phase in PHASES}
    shape = _Shape(work, machine)
    _up(tallies["up"], shape)
    _x(tallies["x"], shape)
    _v(tallies["v"], shape)
    _down(tallies["down"], shape)
    _w(tallies["w"], shape)
    _u(tallies["u"], shape)
    return {phase: tally.counts() for phase, tally in tallies.items()}


@dataclass
class Tally:
    """Adds up one phase."""

    bits: int
    caches: tuple[tuple[str, int], ...]
    found: dict[str, float] = field(default_factory=dict)

    def flops(self, count: Any, wide: bool = False) -> None:
        """Of the loops' type, or of double precision where ``wide``."""
        self._add("dp" if wide or self.bits == 64 else "sp", count)

    def ints(self, count: Any) -> None:
        """Integer operations."""
        self._add("int", count)

    def moved(self, count: Any, window: Any) -> None:
        """Bytes that are served by the smallest level that holds ``window`` bytes."""
        amount, last = np.broadcast_arrays(np.asarray(count, np.float64), window)
        level = np.searchsorted([size for _, size in self.caches], last)
        for i, name in enumerate([*(name for name, _ in self.caches), "dram"]):
            self._add(name, amount[level == i])

    def product(self, m: Any, k: int, n: int) -> None:
        """A BLAS product of (m, k) and (k, n)."""
        size = self.bits // 8
        rows = np.asarray(m, np.float64)
        updates = rows * k * n
        self.flops(2 * updates)
        self.ints(LOOP_OPS * updates / BLAS_TILE)
        operands = (rows * k + k * n + rows * n) * size
        once = np.where(rows > 0, operands, 0)
        self.moved(np.maximum(updates * size * BLAS_LOADS / BLAS_TILE - once, 0), 0)
        self.moved(once, operands)

    def counts(self) -> dict[str, float]:
        """Class -> operations; classes of which there is nothing are left out."""
        return {name: value for name, value in self.found.items() if value}

    def _add(self, name: str, count: Any) -> None:
        self.found[name] = self.found.get(name, 0.0) + float(np.sum(count, dtype=np.float64))


class _Shape:
    """Sizes that several phases take from the work."""

    def __init__(self, work: Work, machine: MachineModel) -> None:
        self.work, self.machine = work, machine
        self.size = work.bits // 8
        self.lanes = machine.vector_bytes // self.size
        wide = machine.registers >= 32
        self.tile, self.block, self.group = (4, 4, 4) if wide else (2, 2, 2)
        self.surface = surface_size(work.order)
        self.columns = _padded(self.surface, self.lanes)
        tree = work.tree
        self.nodes = len(tree)
        self.sources = tree.end - tree.begin
        self.targets = tree.target_end - tree.target_begin
        self.own = tree.leaves[tree.level[tree.leaves] >= COARSEST]
        leaves = tree.leaves
        self.slots = int(_padded(self.targets[leaves], self.lanes).sum()) + 4 * self.lanes
        # A slot: its place, its place in its leaf with its charge, its sum.
        self.slot_bytes = 3 * WIDE_BYTES + 5 * self.size
        self.row_bytes = self.columns * self.size
        # Densities and check potentials, which are passed over in turns.
        self.rows_bytes = 2 * self.nodes * self.row_bytes
        self.level_sizes = np.diff(tree.levels)
        self.slabs = slabs(work.order, len(work.v_list), self.size)
        planes = max(b - a for a, b in self.slabs) / work.order
        frequencies = plane_frequencies(work.order) * work.order
        spectra = 2 * frequencies * (len(work.v_list) + 1) * 2 * CHILDREN * self.size
        tables = 2 * frequencies * OFFSETS * self.size * len(work.v_list.levels)
        self.slab_bytes = planes * (spectra + tables)
        points = self.slots * self.slot_bytes
        self.all_bytes = points + self.rows_bytes + planes * spectra + tables

    def value_flops(self, steps: int, bits: int) -> int:
        """Flops of G(r) from r^2: the estimate, its Newton steps, and what the kernel adds."""
        flops = self.machine.estimate_flops(bits)
        homogeneous = self.work.interaction == "laplace"
        # y (3 - r^2 y^2) / 2; the last step's half is left out where G is homogeneous.
        flops += 5 * steps - (1 if steps and homogeneous else 0)
        if self.work.interaction == "yukawa":
            # r, lambda r, the result, and exp: log2, two for ln 2, the series, the power.
            flops += 3 + 1 + 4 + 2 * (14 if bits == 64 else 8) + 1
        return flops

    def one_way(self, tally: Tally, n: Any, t1: Any, steps: int, window: Any) -> None:
        """``act_one_way``: n sources on t1 targets, arrays over calls."""
        vectors = -(-t1 // self.lanes)
        blocks = vectors // self.block + vectors % self.block
        pairs = vectors * self.lanes * n
        tally.flops(pairs * (DISTANCE_FLOPS + self.value_flops(steps, self.work.bits) + 2))
        tally.ints(LOOP_OPS * blocks * n)
        tally.moved((blocks * n * 4 + vectors * self.lanes * 5) * self.size, window)

    def masked(
        self, tally: Tally, n: Any, vectors: Any, bits: int, steps: int, window: Any
    ) -> None:
        """``act_one_way_masked``: n sources on so many vectors of targets."""
        size = bits // 8
        lanes = self.machine.vector_bytes // size
        blocks = vectors // self.block + vectors % self.block
        pairs = vectors * lanes * n
        each = DISTANCE_FLOPS + self.value_flops(steps, bits) + 2 + 1
        tally.flops(pairs * each, wide=bits == 64)
        tally.ints(LOOP_OPS * blocks * n + MASK_OPS * pairs)
        tally.moved((blocks * n * 4 + vectors * lanes * 5) * size, window)

    def both_ways(self, tally: Tally, vectors: Any, t: Any, window: Any) -> None:
        """``act_both_ways``: so many vectors of sources and t targets."""
        tiles = t // self.tile + t % self.tile
        each = DISTANCE_FLOPS + self.value_flops(self.work.steps, self.work.bits) + 4
        # Every target's sum is added up over the lanes, and to what is there.
        tally.flops(vectors * self.lanes * t * each + t * self.lanes)
        tally.ints(LOOP_OPS * tiles * vectors + vectors * self.lanes * t)
        vector = tiles * vectors * self.machine.vector_bytes
        tally.moved(5 * vector, window)
        # A vector of sums is stored where it was just loaded; targets stay in the first level.
        tally.moved(vector + 6 * t * self.size, 0)

    def seen_from(self, tally: Tally, n: Any, window: Any, first: Any) -> None:
        """Copies of n places, from another centre, with charges."""
        tally.flops(3 * n, wide=True)
        tally.ints(LOOP_OPS * 4 * np.ceil(n / self.lanes))
        tally.moved(n * (3 * WIDE_BYTES + self.size), first)
        tally.moved(4 * n * self.size, window)


def _padded(count: Any, lanes: int) -> Any:
    return -(-count // lanes) * lanes


def _streams(tally: Tally, count: Any, window: Any) -> None:
    """Whole arrays that a phase passes over, among others."""
    tally.moved(count, window)


def _points_to_surfaces(tally: Tally, s: _Shape, leaf: np.ndarray, node: np.ndarray) -> None:
    """P2M or P2L: leaves on the check surfaces of nodes."""
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
    _streams(tally, s.rows_bytes, s.rows_bytes)


def _surfaces_to_points(tally: Tally, s: _Shape, leaf: np.ndarray, node: np.ndarray) -> None:
    """L2P or M2P: the densities of nodes on the targets of leaves."""
    n = s.targets[leaf]
    room = _padded(n, s.lanes)
    window = np.full(len(n), 4 * s.columns * s.size)
    s.one_way(tally, np.full(len(n), s.surface), n, FAR_STEPS[s.work.bits], window)
    other = leaf != node
    s.seen_from(tally, n[other], window[other], s.all_bytes)
    tally.moved(4 * room[~other] * s.size, s.all_bytes)
    _check_rows(tally, s, len(n))
    # The surface's points and densities, put side by side.
    tally.ints(LOOP_OPS * len(n) * 4 * s.columns / s.lanes)
    tally.moved(len(n) * 7.0 * s.row_bytes, 4 * s.row_bytes)


def _check_rows(tally: Tally, s: _Shape, calls: int) -> None:
    tally.moved(calls * s.row_bytes, s.rows_bytes)


def _solve(tally: Tally, s: _Shape, which: int) -> None:
    for level in range(COARSEST, len(s.level_sizes)):
        rank = s.work.ranks[level][which]
        tally.product(s.level_sizes[level], s.surface, rank)
        tally.product(s.level_sizes[level], rank, s.surface)
        _streams(tally, 2 * s.level_sizes[level] * s.row_bytes, s.rows_bytes)


def _between_levels(tally: Tally, s: _Shape) -> None:
    """M2M or L2L: one product for each octant and level, and the addition of its rows."""
    tree = s.work.tree
    octant = tree.octants()
    for level, (a, b) in enumerate(pairwise(tree.levels)):
        if level <= COARSEST:
            continue
        rows = np.bincount(octant[a:b], minlength=CHILDREN)
        tally.product(rows, s.surface, s.surface)
        numbers = (b - a) * s.surface
        tally.flops(numbers)
        tally.ints(LOOP_OPS * numbers / s.lanes + INDEXED_OPS * (b - a))
        # A gather, and an addition to gathered rows.
        tally.moved(3 * numbers * s.size, numbers * s.size)
        tally.moved(2 * numbers * s.size, s.rows_bytes)
        # The octants' operators come again at the next level.
        tally.moved(CHILDREN * s.surface**2 * s.size, CHILDREN * s.surface**2 * s.size)


def _up(tally: Tally, s: _Shape) -> None:
    """P2M, M2M, the solution; before them the charges are put in place."""
    n = s.sources[s.work.tree.leaves].sum()
    tally.ints(INDEXED_OPS * n)
    tally.moved(n * (2 * WIDE_BYTES + s.size), s.all_bytes)
    _streams(tally, s.slots * s.size, s.all_bytes)
    _streams(tally, s.rows_bytes, s.rows_bytes)
    _points_to_surfaces(tally, s, s.own, s.own)
    _between_levels(tally, s)
    _solve(tally, s, 0)


def _x(tally: Tally, s: _Shape) -> None:
    """P2L, after the check potentials are set to 0."""
    _streams(tally, s.nodes * s.row_bytes, s.rows_bytes)
    if len(s.work.far):
        _points_to_surfaces(tally, s, s.work.far[:, 0], s.work.far[:, 1])


def _times(
    tally: Tally, s: _Shape, calls: float, shape: tuple[int, int], width: int, scratch: int
) -> None:
    """``_times``: matrices of a shape and blocks of ``width`` columns, 8 at a time."""
    rows, inner = shape
    blocks = rows // 4 + rows % 4
    tally.flops(calls * 2 * rows * inner * width)
    tally.ints(calls * LOOP_OPS * width / CHILDREN * blocks * inner)
    numbers = width / CHILDREN * inner * (blocks * CHILDREN + rows) + rows * width
    tally.moved(calls * numbers * s.size, scratch)


def _times_both(
    tally: Tally, s: _Shape, calls: float, shape: tuple[int, int], width: int, scratch: int
) -> None:
    """``_times_both``: two such products, the second with a sign."""
    rows, inner = shape
    blocks = rows // 4 + rows % 4
    tally.flops(calls * (4 * rows * inner * width + blocks * inner * width))
    tally.ints(calls * LOOP_OPS * width / CHILDREN * blocks * inner)
    numbers = width / CHILDREN * 2 * inner * (blocks * CHILDREN + rows) + rows * width
    tally.moved(calls * numbers * s.size, scratch)


def _v(tally: Tally, s: _Shape) -> None:
    """M2L: forward transforms, products at every frequency, backward transforms."""
    parents = s.work.v_list
    if not parents.levels:
        return
    p, count = s.work.order, float(len(parents))
    n, line, plane = 2 * p - 1, p * CHILDREN, p * p * CHILDREN
    frequencies = n * n * p
    spectrum = 2 * CHILDREN * s.size
    spectra = frequencies * (len(parents) + 1) * spectrum
    children = int((parents.children >= 0).sum())

    # Forward: 2 products along z, 4 along y for each kz, 4 along x for each kz and ky.
    scratch = 3 * p * plane * s.size
    for first, last in s.slabs:
        _times(tally, s, 2 * count, (last - first, p), plane, scratch)
    _times(tally, s, 4 * count * p, (p, p), line, 4 * p * line * s.size)
    _times(tally, s, 4 * count * p * n, (p, p), CHILDREN, 4 * line * s.size)
    sums = p * line * (2 + 4 * (p - 1)) + p * n * CHILDREN * (2 + 4 * (p - 1))
    tally.flops(count * sums)
    zeroed = len(s.slabs) * p * plane
    tally.ints(count * LOOP_OPS * (sums / CHILDREN + zeroed / s.lanes))
    tally.moved(count * (2 * sums + zeroed) * s.size, scratch)
    tally.moved(count * frequencies * spectrum, s.slab_bytes)
    tally.moved(count * frequencies * LINE_BYTES, scratch + frequencies * (spectrum + LINE_BYTES))
    _grids(tally, s, children, scratch)

    # Products: 8 source children x 8 target children, complex, at every frequency.
    _streams(tally, spectra, s.slab_bytes)
    pairs = sum(each.shape[1] for each in parents.pairs)
    groups = pairs / s.group
    directions = sum(int((np.diff(each) > 0).sum()) for each in parents.starts)
    tally.flops(8.0 * CHILDREN * CHILDREN * pairs * frequencies)
    if s.size == 4 and s.machine.vector_bytes >= 64:
        # i times a column, once a group.
        tally.flops(2.0 * CHILDREN * CHILDREN * groups * frequencies)
    matrix = 2 * CHILDREN * CHILDREN
    filled = float(frequencies * directions * matrix)
    tally.ints(
        frequencies * groups * LOOP_OPS + 2 * INDEXED_OPS * pairs * frequencies
        + filled / 2 * (LOOP_OPS + INDEXED_OPS)
    )  # fmt: skip
    table = 2.0 * frequencies * OFFSETS * s.size * len(parents.levels)
    tally.moved(table, s.all_bytes)
    # At every frequency the matrices are filled, by offset, and all pairs are passed over.
    both = 2 * (len(parents) + 1) * spectrum
    once = directions * (matrix * s.size + INDEX_BYTES * matrix / 2) + 2.0 * INDEX_BYTES * pairs
    tally.moved(frequencies * once, once + 2 * OFFSETS * s.size + both)
    tally.moved(filled * s.size + frequencies * groups * matrix * s.size, matrix * s.size)
    # Sources and targets of a group: three times a spectrum, the first time from afar.
    tally.moved(2.0 * spectra, s.slab_bytes)
    again = frequencies * pairs * 3.0 * spectrum - 2.0 * spectra
    tally.moved(max(again, 0.0), both)

    # Backward: 2 products along x for each kz and ky, 2 along y for each kz, 1 along z.
    scratch = work = (2 * p * plane + 4 * p * line) * s.size
    _times_both(tally, s, 2 * count * p * n, (p, p), CHILDREN, 4 * line * s.size)
    _times_both(tally, s, 2 * count * p, (p, p), line, 4 * p * line * s.size)
    for first, last in s.slabs:
        _times_both(tally, s, count, (p, last - first), plane, work)
    sums = p * n * CHILDREN * 4 * (p - 1) + p * line * 4 * (p - 1)
    tally.flops(count * sums)
    tally.ints(count * LOOP_OPS * sums / CHILDREN)
    tally.moved(count * 2 * sums * s.size, scratch)
    tally.moved(count * frequencies * spectrum, s.slab_bytes)
    tally.moved(count * frequencies * LINE_BYTES, scratch + frequencies * (spectrum + LINE_BYTES))
    tally.flops(2.0 * len(s.slabs) * children * s.surface)
    _grids(tally, s, children, scratch)


def _grids(tally: Tally, s: _Shape, children: int, scratch: int) -> None:
    """Surfaces scattered over grids, or gathered from them, for each slab."""
    numbers = len(s.slabs) * children * s.surface
    tally.ints(numbers * (LOOP_OPS + INDEXED_OPS))
    tally.moved(numbers * (s.size + WIDE_BYTES), scratch)
    tally.moved(numbers * s.size, s.rows_bytes)


def _down(tally: Tally, s: _Shape) -> None:
    """L2L, the solution, L2P."""
    _streams(tally, s.nodes * s.row_bytes, s.rows_bytes)
    _between_levels(tally, s)
    _solve(tally, s, 1)
    _surfaces_to_points(tally, s, s.own, s.own)


def _w(tally: Tally, s: _Shape) -> None:
    """M2P, and the sums from its unit to that of the U phase."""
    if len(s.work.far):
        _surfaces_to_points(tally, s, s.work.far[:, 0], s.work.far[:, 1])
    tally.flops(s.slots)
    tally.ints(LOOP_OPS * s.slots / s.lanes)
    _streams(tally, 2 * s.slots * s.size, s.slots * s.size)


def _u(tally: Tally, s: _Shape) -> None:
    """P2P, and the sums brought into the given order."""
    near, work = s.work.near, s.work
    ns, nt = s.sources[near[:, 1]], s.targets[near[:, 0]]
    what = near[:, 2]
    window = 5 * _padded(ns, s.lanes) * s.size
    vectors_s, vectors_t = -(-ns // s.lanes), -(-nt // s.lanes)
    both, one, itself = (what == k for k in (BOTH_WAYS, ONE_WAY, ITSELF))
    s.both_ways(tally, vectors_s[both], nt[both], window[both])
    s.masked(tally, ns[one], vectors_t[one], work.bits, work.steps, window[one])
    # A leaf on itself: each vector on itself, then both ways with all that follow.
    n, v = ns[itself], vectors_s[itself]
    s.masked(tally, n, np.ones_like(n), work.bits, work.steps, window[itself])
    longest = int(v.max(initial=0))
    for k in range(longest - 1):
        rest = v[v > k + 1] - (k + 1)
        s.both_ways(tally, rest, np.full(len(rest), s.lanes), window[itself][v > k + 1])
    if work.coincident:
        again = np.concatenate([ns, nt[both]]), np.concatenate([nt, ns[both]])
        wide = s.machine.vector_bytes // WIDE_BYTES
        s.masked(tally, again[0], -(-again[1] // wide), 64, EXACT_STEPS, 96 * again[0])
        tally.flops(3 * (again[0] + again[1]) + again[1], wide=True)
    # The targets seen from the source leaf's centre; what two leaves have of each other, added.
    apart = ~itself
    around = NEIGHBOURHOOD * float(_padded(nt, s.lanes).mean()) * s.slot_bytes
    s.seen_from(tally, nt[apart], window[apart], around)
    sums = nt + np.where(both, ns, 0)
    tally.flops(sums)
    tally.ints(LOOP_OPS * 2 * sums / s.lanes)
    tally.moved(4 * sums * s.size, window)
    tally.moved(4.0 * ns.sum() * s.size + sums.sum() * s.size, around)
    _streams(tally, s.slots * s.slot_bytes, s.all_bytes)
    targets = s.targets[work.tree.leaves].sum()
    tally.flops(targets, wide=True)
    tally.ints(INDEXED_OPS * targets)
    tally.moved(targets * (2 * WIDE_BYTES + s.size), s.all_bytes)
