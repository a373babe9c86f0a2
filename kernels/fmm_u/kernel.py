"""The U phase as a separate kernel: leaves that touch act on each other directly (P2P).

For every point t of every leaf B, the kernel computes the sum of q / |t - s| over the points s of
the leaves in U(B) except s = t (Ying, Biros & Zorin 2004, section 3.1; Choi & Vuduc 2012,
section 5.3). The sources are the targets. The variants of the loops are in
:mod:`kernels.fmm_u.variants`.

The counted operations, all for one iteration:

``sp``, ``dp``: executed flops in every lane of every vector, including lanes without a point. A
multiply-add is two; an estimate of 1 / sqrt(x), a square root and a division are one each. Where
points do not lie in lanes, adding the lanes of a sum is counted: for each target and job, or for
each source and tile.

``int``: in the loops over sources, two for each pass (counter and comparison), one for each number
or vector loaded or stored (its address), and one for each lane compared with r = 0 (a leaf acting
on itself). Permutations of lanes, and operations executed once per tile, are not counted.

Bytes, each at the level that served it. ``dram``: every slot's four numbers once, and its sum
loaded and stored once, as from a cold cache. ``l2``: a source leaf's numbers once for each other
leaf with it in its list (also its sums where they are written), and a target leaf's numbers once
for each of its jobs; none for a leaf acting on itself, whose first loads are counted in ``dram``.
``l1``: all other loads and stores that the loops execute.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np
from pydantic import Field

from kernels.fmm.constants import BOTH_WAYS, ITSELF, ONE_WAY
from kernels.fmm.distributions import points
from kernels.fmm_u.variants import Variant, flops, instructions, tolerance
from kernels.host.memory import paged_array
from kernels.host.prepared import PreparedParts
from kernels.host.ranks import Team
from kernels.kernel import Counts, Kernel, KernelError, Prepared, ResultError, not_compiled

CHECKED = 100
"""The number of targets whose sums are checked, over all threads."""
DTYPES = {"single": np.float32, "double": np.float64}
SEED = 20120101


class FmmUParams(Variant):
    """The points, and the variant."""

    n: int = Field(default=65_536, ge=1, le=1 << 26)
    """points, uniform in a cube"""
    q: int = Field(default=256, ge=1)
    """most points in a leaf of the octree"""
    distribution: Literal["uniform"] = "uniform"
    """where the points lie"""


@dataclass(frozen=True)
class Leaves:
    """Points, their octree and its U lists.

    ``points``: float64 (n, 3), rounded to the precision; ``charges``: float64 (n,), likewise.
    ``tree``: :class:`kernels.fmm.tree.octree.Octree`. ``near``: int32 (pairs, 2), leaves in each
    other's U list, each pair once, including a leaf with itself.
    """

    points: np.ndarray
    charges: np.ndarray
    tree: Any
    near: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """Points of each node: int64 (nodes,)."""
        return np.asarray(self.tree.end - self.tree.begin)

    def neighbours(self, leaf: int) -> np.ndarray:
        """The U list of a leaf: int32."""
        one, two = self.near.T
        return np.concatenate([two[one == leaf], one[(two == leaf) & (one != leaf)]])

    def interactions(self) -> int:
        """The number of pairs (target, source) of the U lists, without a point and itself."""
        one, two = self.near.T
        work = self.sizes[one] * self.sizes[two]
        return int(2 * work.sum() - work[one == two].sum() - len(self.points))

    def sum_at(self, leaf: int, target: int) -> tuple[float, float, int]:
        """At a point of a leaf, in double precision: the sum of q / r over the leaf's U list, the
        sum of \\|q\\| / r, and their number of terms."""
        tree = self.tree
        sources = np.concatenate(
            [tree.order[tree.begin[a] : tree.end[a]] for a in self.neighbours(leaf)]
        )
        r = np.linalg.norm(self.points[sources] - self.points[target], axis=1)
        terms = self.charges[sources[r > 0]] / r[r > 0]
        return float(terms.sum()), float(np.abs(terms).sum()), len(terms)


@lru_cache(maxsize=2)
def build_leaves(n: int, q: int, precision: str, distribution: str = "uniform") -> Leaves:
    """The points, which depend only on the arguments, and their U lists."""
    # Listing the kernels must not import Numba.
    from kernels.fmm.tree.lists import build_lists  # noqa: PLC0415
    from kernels.fmm.tree.octree import build_octree  # noqa: PLC0415

    places, charges = (
        given.astype(DTYPES[precision]).astype(np.float64)
        for given in points(distribution, n, SEED)
    )
    tree = build_octree(places, None, q)
    return Leaves(places, charges, tree, build_lists(tree, 0).near)


@dataclass(frozen=True)
class ThreadShare:
    """One thread's share of the work; see :func:`kernels.fmm_u.loops.u_phase`.

    ``leaves``: int64, the leaves that the thread owns, along the Z curve. ``pairs``: int64
    (rows, 2), target leaf and source leaf of each row of ``spans``. ``jobs``: int64 (n, 5);
    ``spans``: int64 (rows, 2); ``begin``, ``end``: the slots of its leaves.
    """

    leaves: np.ndarray
    pairs: np.ndarray
    jobs: np.ndarray
    spans: np.ndarray
    begin: int
    end: int


@dataclass(frozen=True)
class UPhaseSchedule:
    """The slots of the points, and the threads' shares of the pairs of leaves.

    ``first``: int64 (nodes,), each leaf's first slot; ``slot``: int64 (n,), each point's slot;
    ``slots``: the number of slots, including one vector after the last leaf.
    """

    leaves: Leaves
    first: np.ndarray
    slot: np.ndarray
    slots: int
    shares: list[ThreadShare]


@lru_cache(maxsize=4)
def make_schedule(
    n: int,
    q: int,
    precision: str,
    ways: str,
    width: int,
    threads: int,
    distribution: str = "uniform",
) -> UPhaseSchedule:
    """The slots for vectors of ``width`` numbers, and each thread's share.

    Each thread owns the leaves of one section of the Z curve and writes only to them. For a pair of
    leaves of two threads, each thread computes the sums at its leaf, one way.
    """
    from kernels.fmm.phases.u_schedule import share_pairs  # noqa: PLC0415

    leaves = build_leaves(n, q, precision, distribution)
    tree, sizes = leaves.tree, leaves.sizes
    order = tree.leaves[np.argsort(tree.begin[tree.leaves], kind="stable")]
    room = -(-sizes[order] // width) * width
    first = np.zeros(len(tree), np.int64)
    first[order] = np.cumsum(room) - room
    slot = np.empty(n, np.int64)
    within = np.arange(n) - np.repeat(tree.begin[order], sizes[order])
    slot[tree.order] = np.repeat(first[order], sizes[order]) + within
    shares = [
        _share(rows.astype(np.int64), first, sizes, width)
        for rows in share_pairs(tree, leaves.near, ways == "both", threads)
    ]
    return UPhaseSchedule(leaves, first, slot, int(room.sum()) + width, shares)


def _share(rows: np.ndarray, first: np.ndarray, sizes: np.ndarray, width: int) -> ThreadShare:
    """A thread's share; ``rows``: int64 (n, 3), target leaf, source leaf, and interaction."""
    rows[rows[:, 0] == rows[:, 1], 2] = ITSELF
    rows = rows[np.lexsort((rows[:, 1], rows[:, 2], first[rows[:, 0]]))]
    target, source, what = rows.T
    # A job: the rows of one target leaf with the same interaction.
    new = np.flatnonzero((np.diff(target, prepend=-1) != 0) | (np.diff(what, prepend=-1) != 0))
    spans = np.column_stack([first[source], first[source] + sizes[source]])
    of = target[new]
    jobs = np.column_stack(
        [
            first[of],
            first[of] + sizes[of],
            new,
            np.append(new[1:], len(rows))[: len(new)],
            what[new],
        ]
    )
    owned = target[what == ITSELF]
    begin, end = 0, 0
    if len(owned):
        begin = int(first[owned[0]])
        end = int(first[owned[-1]] - (-sizes[owned[-1]] // width) * width)
    return ThreadShare(owned, rows[:, :2], jobs, spans, begin, end)


def _schedule_of(params: FmmUParams) -> UPhaseSchedule:
    return make_schedule(
        params.n, params.q, params.precision, params.ways, params.width, params.threads
    )


def count_interactions(params: FmmUParams) -> int:
    """The useful work of the phase: the pairs (target, source) that contribute to a sum."""
    return build_leaves(params.n, params.q, params.precision).interactions()


@lru_cache(maxsize=64)
def count_operations(params: FmmUParams) -> Counts:
    """Operations and bytes of one iteration of one rank, as the module's docstring defines."""
    schedule = _schedule_of(params)
    flop = "sp" if params.precision == "single" else "dp"
    slots = schedule.slots - params.width
    total = {flop: 0.0, "int": 0.0, "l1": 0.0, "l2": 0.0}
    for share in schedule.shares:
        for name, count in _count_share(params, schedule.leaves.sizes, share).items():
            total[flop if name == "flops" else name] += count
    return {**total, "dram": 6.0 * slots * params.item_bytes}


def _count_share(params: FmmUParams, sizes: np.ndarray, share: ThreadShare) -> dict[str, float]:
    width, item, in_targets = params.width, params.item_bytes, params.lanes == "targets"
    vectors = -(-sizes // width)
    held, passing = (vectors, sizes) if in_targets else (sizes, vectors)
    # The points of one held item, and of one passing item.
    held_by, passing_by = (width, 1) if in_targets else (1, width)
    tiles, left = np.zeros_like(held), held
    for size in params.tiles():
        tiles, left = tiles + left // size, left % size
    done = np.repeat(share.jobs[:, 4], share.jobs[:, 3] - share.jobs[:, 2])
    total = dict.fromkeys(("flops", "int", "l1", "l2"), 0.0)
    for what in (ONE_WAY, BOTH_WAYS, ITSELF):
        both, itself = what == BOTH_WAYS, what == ITSELF
        target, source = share.pairs[done == what].T
        own = float(held[np.unique(target)].sum())
        lanes = float((held[target] * passing[source]).sum()) * width
        met = float((tiles[target] * passing[source]).sum())
        # Where targets are in the lanes and sources have sums, the additions of a source's lanes
        # equal those saved by its first product, which is not a multiply-add.
        total["flops"] += lanes * flops(instructions(params.root, "both" if both else "one"))
        total["flops"] += 0.0 if in_targets else own * width
        unroll = 1 if itself else params.unroll
        passes = (tiles[target] * (passing[source] // unroll + passing[source] % unroll)).sum()
        touched = 6 if both else 4
        total["int"] += 2.0 * float(passes) + touched * met + (lanes if itself else 0.0)
        total["l1"] += touched * met * passing_by * item + 2 * own * held_by * item
        if not itself:
            once = (5 if both else 4) * float(passing[source].sum()) * passing_by * item
            # x, y, z, and the charge where the target also acts or its aos vectors are sorted.
            read = 4 if both or (in_targets and params.layout == "aos") else 3
            total["l1"] -= once
            total["l2"] += once + read * own * held_by * item
    total["l1"] += float(share.end - share.begin) * item
    return total


class UPart:
    """One thread's share of the U phase."""

    def __init__(
        self, params: FmmUParams, schedule: UPhaseSchedule, arrays: Arrays, thread: int
    ) -> None:
        from kernels.fmm_u.loops import u_phase  # noqa: PLC0415

        self._phase = u_phase
        self._params, self._schedule, self._arrays = params, schedule, arrays
        self._share = schedule.shares[thread]
        self._variant = Variant(**{name: getattr(params, name) for name in Variant.model_fields})

    def run(self, iterations: int) -> None:
        """Compute the share ``iterations`` times."""
        share = self._share
        self._phase(
            self._variant, self._arrays.points, self._arrays.sums, share.begin, share.end,
            share.jobs, share.spans, iterations,
        )  # fmt: skip

    def check(self) -> None:
        """Compare some targets' sums with NumPy sums over their U lists in double precision.

        Errors are relative to the sum of |q| / r.
        """
        leaves, share, variant = self._schedule.leaves, self._share, self._variant
        tree = leaves.tree
        owned = leaves.sizes[share.leaves]
        count = min(-(-CHECKED // variant.threads), int(owned.sum()))
        # Evenly along the Z curve, so that leaves of all regions are included.
        chosen = np.linspace(0, max(int(owned.sum()) - 1, 0), count).astype(np.int64)
        until = np.cumsum(owned)
        for number in chosen:
            i = int(np.searchsorted(until, number, side="right"))
            leaf = share.leaves[i]
            target = tree.order[tree.begin[leaf] + number - (until[i] - owned[i])]
            right, scale, terms = leaves.sum_at(leaf, target)
            computed = float(self._arrays.sums[self._schedule.slot[target]]) / variant.unit
            allowed = tolerance(variant, terms) * scale
            if not abs(computed - right) <= allowed:
                raise ResultError(
                    f"{variant.name()}: the sum at point {target} is {computed:.17g}, not "
                    f"{right:.17g} (difference {abs(computed - right):.3g}, allowed {allowed:.3g})"
                )


@dataclass(frozen=True)
class Arrays:
    """The arrays that the loops read and write.

    ``points``: (4 slots,) of the precision, in the variant's layout; ``sums``: (slots,).
    """

    points: np.ndarray
    sums: np.ndarray


def lay_out(params: FmmUParams, schedule: UPhaseSchedule) -> Arrays:
    """The arrays with the points in their slots, in the variant's layout."""
    from kernels.fmm.tree.layout import BEYOND  # noqa: PLC0415

    dtype, slots, width = np.dtype(DTYPES[params.precision]), schedule.slots, params.width
    rows = np.full((4, slots), BEYOND, dtype)
    rows[3] = 0
    rows[:3, schedule.slot] = schedule.leaves.points.T
    rows[3, schedule.slot] = schedule.leaves.charges
    points, sums = paged_array(4 * slots, dtype), paged_array(slots, dtype)
    match params.layout:
        case "soa":
            points[:] = rows.ravel()
        case "aos":
            points[:] = rows.T.ravel()
        case _:
            points[:] = rows.reshape(4, -1, width).transpose(1, 0, 2).ravel()
    sums[:] = 0
    return Arrays(points, sums)


def _prepare(params: FmmUParams, team: Team) -> Prepared:
    """Prepare; raises :class:`kernels.kernel.KernelError` if the node cannot run the variant."""
    try:
        from kernels.host.vectors import HOST  # noqa: PLC0415
    except (ImportError, RuntimeError) as error:
        raise not_compiled(error) from error
    if params.root != "sqrt" and (8 * HOST.bytes < params.vector_bits or HOST.estimate == "neon"):
        raise KernelError(
            f"the node has no estimate of 1 / sqrt(x) for vectors of {params.vector_bits} bits "
            f"(its own vectors have {8 * HOST.bytes}): use root 'sqrt' or other vector_bits"
        )
    schedule = _schedule_of(params)
    arrays = lay_out(params, schedule)
    makers = [partial(UPart, params, schedule, arrays, i) for i in range(params.threads)]
    return PreparedParts(makers, count_operations(params))


fmm_u = Kernel(
    name="fmm_u",
    summary="the U phase (P2P) of a fast multipole method, in some 480 variants",
    counted="flops (sp or dp) and integer operations as executed; bytes at l1, l2 and dram",
    classes=("sp", "dp", "int", "l1", "l2", "dram"),
    params=FmmUParams,
    counts=count_operations,
    prepare=_prepare,
    imports=("kernels.fmm_u.loops", "kernels.fmm.tree.lists", "kernels.fmm.phases.u_schedule"),
)
