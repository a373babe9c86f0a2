"""The evaluation of a fast multipole method on a GPU as a sequence of steps.

The method (Ying, Biros & Zorin 2004), the tree, the lists, the surfaces and the operators come from
:mod:`kernels.fmm.method`, in double precision. Here they become steps of three kinds:

- sums of q / r, pair by pair: P2M, P2L, M2P, L2P and P2P differ only in their targets, sources and
  lists. A surface's points lie in slots like a leaf's points; a density is a charge;
- products of rows with matrices: M2M, L2L, the solutions for densities, and the transforms of M2L
  (:mod:`kernels.cuda.fmm.spectra`);
- products of spectra, which are M2L between the transforms.

Check potentials are in the plan's unit of length; the scales of products convert them to half sides
of cells, the unit of the operators. In single precision coordinates are relative to the centres of
nodes, and the unit of length is the root cube's side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from kernels.cuda.fmm.direct import DirectVariant, count_direct
from kernels.cuda.fmm.direct_jobs import DirectJobs, Places, make_jobs
from kernels.cuda.fmm.hadamard import count_hadamard
from kernels.cuda.fmm.product import SIDE, Product, count_product, make_product
from kernels.cuda.fmm.spectra import Slabs, cut, far_offsets
from kernels.cuda.fmm.tiles import Tiles, make_tiles
from kernels.cuda.processor import WARP
from kernels.fmm.accuracy import accuracy
from kernels.fmm.constants import CHILDREN, COARSEST, V_REACH
from kernels.fmm.distributions import points
from kernels.fmm.operators.surfaces import surface_size

Phase = Literal["up", "x", "v", "down", "w", "u"]
POINTS = ("leaves", "inner", "outer")
"""Arrays of points and charges: of the leaves, and of the surfaces at 1.05 and 2.95 half sides; the
charges of these surfaces are the upward and the downward densities."""
ROWS = ("up_check", "down_check", "middle")
"""Arrays of potentials, one row per node: on the surfaces, and between the two factors of a
solution. ``sums`` has the potentials at the points of the leaves."""
SPECTRA = ("density_spectra", "potential_spectra")
"""Arrays of the spectra of a slab, one row per node: of upward densities, and of downward check
potentials."""
SEED = 0
PLACES_ALONG = 1 << 24
"""In single precision, coordinates are integer multiples of the root cube's side divided by this.
Their differences are too, and are therefore exact."""


@dataclass(frozen=True, kw_only=True)
class DirectStep:
    """Sums over ``sources`` at ``targets``, two of :data:`POINTS`, into the array ``out``; ``add``:
    whether to add to its values."""

    phase: Phase
    targets: str
    sources: str
    out: str
    jobs: DirectJobs
    add: bool = False


@dataclass(frozen=True, kw_only=True)
class ProductStep:
    """Rows of the array ``source`` times ``matrices``, into ``out``. Densities also form rows."""

    phase: Phase
    source: str
    matrices: str
    out: str
    product: Product
    add: bool = False


@dataclass(frozen=True, kw_only=True)
class SpectraStep:
    """Rows of the array ``source`` times spectra of ``operators``, counted from
    ``first_operator`` on, into ``out``."""

    phase: Phase
    source: str
    operators: str
    first_operator: int
    out: str
    tiles: Tiles


Step = DirectStep | ProductStep | SpectraStep


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The points, their tree, and the steps in order.

    ``places``: float64 (n, 3), the coordinates; ``charges``: float64 (n,). ``slot``: int64 (n,),
    the slot of each point, of the ``slots`` of the leaves; ``leaf``: int64 (n,), its leaf.
    ``order``: points along an edge of a surface; ``columns``: numbers in a row of densities or
    potentials, the surface's points padded to a multiple of 32; ``slabs``: the division of the
    frequencies of M2L. ``unit``: of length, in units of ``places``; ``variant``: of direct sums;
    all arrays have its dtype. An array of rows has one row per node, and a last row of zeros.
    """

    places: np.ndarray
    charges: np.ndarray
    tree: Any
    slot: np.ndarray
    leaf: np.ndarray
    slots: int
    unit: float
    variant: DirectVariant
    order: int
    columns: int
    slabs: Slabs
    steps: tuple[Step, ...]

    @property
    def rows(self) -> int:
        """The number of rows of an array of rows."""
        return len(self.tree) + 1

    def width(self, name: str) -> int:
        """The length of a row of an array."""
        return self.slabs.columns if name in SPECTRA else self.columns

    def potentials(self, sums: np.ndarray) -> np.ndarray:
        """The potentials in the order of the points: float64 (n,); ``sums``: of all slots."""
        return np.asarray(
            sums[self.slot].astype(float) / (4 * np.pi * self.unit * self.variant.unit)
        )


@lru_cache(maxsize=2)
def make_plan(
    n: int,
    q: int,
    digits: int,
    distribution: str,
    variant: DirectVariant,
    cells: int,
    few: int | None = None,
) -> Plan:
    """The plan of an evaluation. ``cells``: rows of a tile in products of spectra; ``few``: see
    :func:`kernels.fmm.tree.lists.build_lists`; by default the points of a surface."""
    # Listing the kernels must not import Numba.
    from kernels.fmm.tree.lists import build_lists  # noqa: PLC0415
    from kernels.fmm.tree.octree import build_octree  # noqa: PLC0415

    places, charges = points(distribution, n, SEED)
    order = accuracy(digits, variant.precision).order
    tree = build_octree(places, None, q)
    unit = 1.0
    if variant.precision == "single":
        unit = tree.size
        steps_along = np.rint((places - tree.corner) / unit * PLACES_ALONG)
        places = tree.corner + steps_along / PLACES_ALONG * unit
    lists = build_lists(tree, surface_size(order) if few is None else few)
    steps = _Steps(tree, lists, order, variant, cells)
    sorted_leaves = tree.leaves[np.argsort(tree.begin[tree.leaves], kind="stable")]
    sizes = (tree.end - tree.begin)[sorted_leaves]
    within = np.arange(n) - np.repeat(tree.begin[sorted_leaves], sizes)
    slot, leaf = np.empty(n, np.int64), np.empty(n, np.int64)
    leaf[tree.order] = np.repeat(sorted_leaves, sizes)
    slot[tree.order] = np.repeat(steps.leaves.first[sorted_leaves], sizes) + within
    return Plan(
        places=places,
        charges=charges,
        tree=tree,
        slot=slot,
        leaf=leaf,
        slots=(steps.leaves.empty + 1) * WARP,
        unit=unit,
        variant=variant,
        order=order,
        columns=steps.columns,
        slabs=steps.slabs,
        steps=tuple(steps.all()),
    )


class _Steps:
    """Makes the steps of a tree."""

    def __init__(
        self, tree: Any, lists: Any, order: int, variant: DirectVariant, cells: int
    ) -> None:
        self.tree, self.lists, self.variant, self.cells = tree, lists, variant, cells
        surface, nodes = surface_size(order), len(tree)
        self.columns = -(-surface // SIDE) * SIDE
        self.dtype = variant.dtype
        self.slabs = cut(order, nodes + 1, self.dtype.itemsize)
        single = variant.precision == "single"
        self.half = (1.0 if single else tree.size) * 0.5 ** (tree.level + 1.0)
        self.centres = (tree.anchor + 0.5) * 0.5 ** tree.level[:, None] if single else None
        self.octant = tree.octants()
        self.is_leaf = tree.first_child < 0
        self.levels = [
            np.flatnonzero(tree.level == level) for level in range(int(tree.level.max()) + 1)
        ]
        sizes = np.where(self.is_leaf, tree.end - tree.begin, 0)
        order_of = tree.leaves[np.argsort(tree.begin[tree.leaves], kind="stable")]
        room = -(-sizes[order_of] // WARP) * WARP
        first = np.zeros(nodes, np.int64)
        first[order_of] = np.cumsum(room) - room
        self.leaves = Places(first, sizes, int(room.sum()) // WARP)
        self.surfaces = Places(
            np.arange(nodes) * self.columns,
            np.where(tree.level >= COARSEST, surface, 0),
            nodes * self.columns // WARP,
        )
        far = np.flatnonzero(self.is_leaf & (tree.level >= COARSEST))
        self.own = np.column_stack([far, far])

    def all(self) -> Iterator[Step]:
        """The steps of all phases, in order, without empty ones."""
        for step in (*self._up(), *self._to_down(), *self._down(), *self._near()):
            if _blocks(step):
                yield step

    def _jobs(self, targets: Places, sources: Places, pairs: np.ndarray) -> DirectJobs:
        return make_jobs(
            targets,
            sources,
            pairs.astype(np.int64),
            self.variant.warps,
            self.variant.tile,
            self.centres,
        )

    def _product(
        self, rows: np.ndarray, kinds: np.ndarray, scale: np.ndarray, terms: list[np.ndarray]
    ) -> Product:
        scale = scale.astype(self.dtype)
        return make_product(rows, kinds, scale, np.column_stack(terms), len(self.tree))

    def _solve(self, phase: Phase, level: int) -> Iterator[Step]:
        """Both factors of the solutions of a level; the first scales potentials by half a side."""
        nodes = self.levels[level]
        none, at = np.zeros(len(nodes), np.int64), np.arange(len(nodes))
        check, density = ("up_check", "inner") if phase == "up" else ("down_check", "outer")
        for number, (source, out, scale) in enumerate(
            [
                (check, "middle", self.half[nodes] / self.variant.unit),
                ("middle", density, np.ones(len(nodes))),
            ]
        ):
            product = self._product(nodes, none, scale, [at, none, nodes])
            yield ProductStep(
                phase=phase, source=source, matrices=f"{phase}_{number}", out=out, product=product
            )

    def _up(self) -> Iterator[Step]:
        jobs = self._jobs(self.surfaces, self.leaves, self.own)
        yield DirectStep(phase="up", targets="outer", sources="leaves", out="up_check", jobs=jobs)
        for level in range(len(self.levels) - 1, COARSEST - 1, -1):
            yield from self._solve("up", level)
            if level == COARSEST:
                break
            children = self.levels[level]
            nodes, at = np.unique(self.tree.parent[children], return_inverse=True)
            product = self._product(
                nodes,
                np.zeros(len(nodes), np.int64),
                self.variant.unit / self.half[nodes],
                [at, self.octant[children], children],
            )
            yield ProductStep(
                phase="up",
                source="inner",
                matrices="m2m",
                out="up_check",
                product=product,
                add=True,
            )

    def _to_down(self) -> Iterator[Step]:
        """The steps of P2L, which also clears all rows, and of M2L."""
        jobs = self._jobs(self.surfaces, self.leaves, self.lists.far[:, ::-1])
        yield DirectStep(phase="x", targets="inner", sources="leaves", out="down_check", jobs=jobs)
        yield from self._far()

    def _far(self) -> Iterator[Step]:
        """The steps of M2L, slab by slab of frequencies."""
        nodes = np.flatnonzero(self.tree.level >= COARSEST)
        position, offset, source = self._far_terms(nodes)
        acting = np.unique(source)
        acted, at = np.unique(position, return_inverse=True)
        targets = nodes[acted]
        # Targets in the same octant of their parents have sources at the same offsets.
        tiles = make_tiles(
            targets,
            self.octant[targets],
            np.column_stack([at, offset, source]),
            len(self.tree),
            self.cells,
        )
        none, one = np.zeros(len(acting), np.int64), np.ones(len(acting))
        level, scale = (
            self.tree.level[targets].astype(np.int64),
            self.variant.unit / self.half[targets],
        )
        densities, potentials = SPECTRA
        for slab in range(self.slabs.count):
            terms = [np.arange(len(acting)), none + slab, acting]
            yield ProductStep(
                phase="v", source="inner", matrices="forward", out=densities,
                product=self._product(acting, none, one, terms),
            )  # fmt: skip
            yield SpectraStep(
                phase="v", source=densities, operators="m2l",
                first_operator=slab * len(far_offsets()), out=potentials, tiles=tiles,
            )  # fmt: skip
            terms = [np.arange(len(targets)), np.full(len(targets), slab), targets]
            yield ProductStep(
                phase="v", source=potentials, matrices="backward", out="down_check",
                product=self._product(targets, level, scale, terms), add=True,
            )  # fmt: skip

    def _far_terms(self, nodes: np.ndarray) -> list[np.ndarray]:
        """The V lists: positions in ``nodes``, indices of far offsets, and sources."""
        from kernels.fmm.phases.v_m2l import offset_index  # noqa: PLC0415

        tree = self.tree
        child = np.full((len(tree) + 1, CHILDREN), -1, np.int64)
        child[tree.parent[1:], self.octant[1:]] = np.arange(1, len(tree))
        number = np.full(V_REACH**3 + 1, -1, np.int64)
        number[far_offsets()] = np.arange(len(far_offsets()))
        of_pair = number[offset_index()]
        terms: list[list[np.ndarray]] = [[np.empty(0, np.int64)] * 3]
        for direction in range(of_pair.shape[0]):
            other = self.lists.colleagues[tree.parent[nodes], direction]
            for octant in range(CHILDREN):
                source = child[other, octant]
                matrix = of_pair[direction, octant, self.octant[nodes]]
                there = np.flatnonzero((source >= 0) & (matrix >= 0))
                terms.append([there, matrix[there], source[there]])
        return [np.concatenate(parts) for parts in zip(*terms, strict=True)]

    def _down(self) -> Iterator[Step]:
        for level in range(COARSEST, len(self.levels)):
            nodes = self.levels[level]
            if level > COARSEST:
                octant = self.octant[nodes]
                terms = [np.arange(len(nodes)), octant, self.tree.parent[nodes].astype(np.int64)]
                product = self._product(nodes, octant, self.variant.unit / self.half[nodes], terms)
                yield ProductStep(
                    phase="down", source="outer", matrices="l2l", out="down_check",
                    product=product, add=True,
                )  # fmt: skip
            yield from self._solve("down", level)
        jobs = self._jobs(self.leaves, self.surfaces, self.own)
        yield DirectStep(phase="down", targets="leaves", sources="outer", out="sums", jobs=jobs)

    def _near(self) -> Iterator[Step]:
        """The steps of M2P and P2P."""
        far, near = self.lists.far, self.lists.near
        sizes = np.zeros_like(self.leaves.sizes)
        sizes[far[:, 0]] = self.leaves.sizes[far[:, 0]]
        targets = Places(self.leaves.first, sizes, self.leaves.empty)
        yield DirectStep(
            phase="w", targets="leaves", sources="inner", out="sums",
            jobs=self._jobs(targets, self.surfaces, far), add=True,
        )  # fmt: skip
        both = np.concatenate([near, near[near[:, 0] != near[:, 1]][:, ::-1]])
        jobs = self._jobs(self.leaves, self.leaves, both)
        yield DirectStep(
            phase="u", targets="leaves", sources="leaves", out="sums", jobs=jobs, add=True
        )


def _blocks(step: Step) -> int:
    """The number of blocks of threads along the first axis."""
    if isinstance(step, DirectStep):
        return len(step.jobs.jobs)
    tiles = step.tiles if isinstance(step, SpectraStep) else step.product.tiles
    return len(tiles.rows_out)


def count_step(step: Step, plan: Plan) -> dict[str, float]:
    """The operations and bytes of a step that starts with a cold cache."""
    if isinstance(step, DirectStep):
        return count_direct(plan.variant, step.jobs, step.add)
    if isinstance(step, SpectraStep):
        return count_hadamard(step.tiles, plan.slabs.frequencies, plan.variant.dtype.itemsize)
    return count_product(step.product, plan.width(step.source), plan.width(step.out), step.add)
