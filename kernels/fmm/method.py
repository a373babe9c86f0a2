"""The method: prepared once for its points, then evaluated for charges.

The phases in order (Choi & Vuduc 2016, section III; Ying, Biros & Zorin 2004, section 3.4):
UP: P2M and M2M. X: P2L. V: M2L. DOWN: L2L and L2P. W: M2P. U: P2P.

M2M, L2L and the solutions for densities are matrix products in this module; the loops of the other
steps are in :mod:`kernels.fmm.phases`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from threadpoolctl import ThreadpoolController

from kernels.fmm.constants import CHILDREN, COARSEST, EXACT_STEPS, FAR_STEPS
from kernels.fmm.operators.interaction_kernels import INTERACTIONS, Rule, unit_of
from kernels.fmm.operators.surfaces import INNER, OUTER, surface_grid, surface_points, surface_size
from kernels.fmm.operators.translation_matrices import Operators, build_operators
from kernels.fmm.phases import v_fourier, v_m2l
from kernels.fmm.phases.p2m_p2l_m2p_l2p import (
    from_surfaces,
    gradients_from_surfaces,
    to_surfaces,
)
from kernels.fmm.phases.u_p2p import act_on_pairs, gradients_on_pairs
from kernels.fmm.phases.u_schedule import share_pairs
from kernels.fmm.phases.v_slabs import plane_frequencies, slabs
from kernels.fmm.setup import Setup, TreePart
from kernels.fmm.tree.layout import BEYOND, LeafPoints, lay_out, sources_of, targets_of
from kernels.fmm.tree.lists import build_lists
from kernels.fmm.tree.octree import Octree, build_octree
from kernels.fmm.tree.v_list import build_v_list
from kernels.host.vectors import lanes_of
from kernels.host.worker_threads import WorkerThreads

MOST_EXPONENT = 60
"""If the largest charge is within 2^-60 to 2^60, charges are not scaled."""


def prepare_method(sources: np.ndarray, targets: np.ndarray | None, setup: Setup) -> Fmm:
    """A method for sources and targets, float64 (n, 3); ``targets`` None: the sources."""
    began = time.perf_counter()
    tree = build_octree(sources, targets, setup.q)
    took_s = time.perf_counter() - began
    of_targets = None if targets is None else targets_of(tree, targets)
    method = Fmm(tree, sources_of(tree, sources), of_targets, setup)
    method.seconds["tree"] = took_s
    return method


class Fmm:
    """A fast multipole method that is prepared for its points."""

    def __init__(
        self,
        tree: Octree,
        sources: LeafPoints,
        targets: LeafPoints | None,
        setup: Setup,
        part: TreePart | None = None,
    ) -> None:
        """Build lists and operators.

        ``targets``: None where they are the sources; ``part``: the part of the tree whose
        potentials are computed, by default the whole tree. With a part, ``sources`` include the
        sources of other parts that act on it directly.
        """
        self.seconds: dict[str, float] = {}
        began = time.perf_counter()
        self.setup, self.tree = setup, tree
        self.dtype = np.dtype(setup.dtype)
        self.order, self.threads = setup.order, setup.threads
        interaction = setup.interaction
        self.surface = surface_size(self.order)
        self.lists = build_lists(tree, self.surface)
        everything = np.ones(len(tree), bool)
        self.part = part or TreePart(tree.first_child < 0, everything)
        self.v_list = build_v_list(
            tree,
            self.lists.colleagues,
            not INTERACTIONS[interaction].homogeneous,
            part.active if part else None,
        )
        self.near = share_pairs(
            tree, self.lists.near, targets is None, self.threads, part.own if part else None
        )
        began = self._took("lists", began)
        self.rule = Rule(interaction, setup.steps)
        self.far_rule = Rule(interaction, FAR_STEPS[8 * self.dtype.itemsize])
        self.exact_rule = Rule(interaction, EXACT_STEPS)
        # Lengths are in this unit: see kernels.fmm.tree.layout.
        self.unit = 2.0 ** math.ceil(math.log2(tree.size))
        self.parameter = setup.parameter * self.unit
        self.centres = tree.centres() / self.unit
        self.half = tree.size / self.unit * 0.5 ** (tree.level + 1.0)
        self.nearest = 2 * self.half * setup.nearest
        self.sources = lay_out(sources, self.dtype, self.centres, self.unit)
        self.targets = self.sources
        if targets is not None:
            self.targets = lay_out(targets, self.dtype, self.centres, self.unit)
        began = self._took("points", began)
        self.operators = self._operators(interaction)
        self._place_surfaces()
        self._took("operators", began)
        self._workers = WorkerThreads(self.threads)
        self._blas = ThreadpoolController()

    @property
    def n_sources(self) -> int:
        """The number of charges of an evaluation."""
        return len(self.sources.slot)

    def _took(self, what: str, since: float) -> float:
        now = time.perf_counter()
        self.seconds[what] = now - since
        return now

    def _operators(self, interaction: str) -> list[Operators]:
        """The operators of each level."""
        levels = self.tree.levels[:-1]
        if INTERACTIONS[interaction].homogeneous:
            return [build_operators(interaction, self.order, self.dtype)] * len(levels)
        return [
            build_operators(interaction, self.order, self.dtype, self.half[first], self.parameter)
            for first in levels
        ]

    def _place_surfaces(self) -> None:
        tree, p = self.tree, self.order
        lanes = lanes_of(self.dtype.itemsize)
        columns = -(-self.surface // lanes) * lanes
        size = self.half[tree.levels[:-1]]
        self.rings = {}
        for name, radius in (("inner", INNER), ("outer", OUTER)):
            ring = np.full((len(size), 4, columns), BEYOND, self.dtype)
            ring[:, :3, : self.surface] = size[:, None, None] * surface_points(p, radius).T
            self.rings[name] = ring
        x, y, z = surface_grid(p).T
        self.grid = (z * p + y) * p + x
        self.waves = v_fourier.waves(p, self.dtype)
        self.offsets = v_m2l.offset_index()
        octant = tree.octants()
        active = self.part.active
        self.by_level = [a + np.flatnonzero(active[a:b]) for a, b in pairwise(tree.levels.tolist())]
        self.by_octant = [
            [nodes[octant[nodes] == o] for o in range(CHILDREN)] for nodes in self.by_level
        ]
        leaves = np.flatnonzero(self.part.own & (tree.level >= COARSEST))
        leaves = leaves[np.argsort(tree.begin[leaves], kind="stable")]
        self.own_leaves = np.column_stack([leaves, leaves]).astype(np.int32)
        far = self.lists.far
        self.w_pairs = _sorted_by(far[self.part.own[far[:, 0]]], 0)
        self.x_pairs = _sorted_by(far[active[far[:, 1]]], 1)

    def evaluate(self, charges: np.ndarray) -> np.ndarray:
        """The potentials at the targets, including 1 / (4 pi): float64 (targets,), in their order.

        ``charges``: float (sources,). Also sets ``seconds``: phase -> time in s.
        """
        sums = np.zeros(self.targets.place.shape[1], self.dtype)
        unit = self._phases(charges, sums)
        scale = unit / (4 * math.pi * self.unit * unit_of(self.rule))
        return np.asarray(np.multiply(sums[self.targets.slot], scale, dtype=np.float64))

    def gradients(self, charges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The potentials, float64 (targets,), and their gradients, float64 (targets, 3)."""
        sums = np.zeros((4, self.targets.place.shape[1]), self.dtype)
        unit = self._phases(charges, sums)
        scale = unit / (4 * math.pi * self.unit)
        scaled = np.multiply(sums[:, self.targets.slot], scale, dtype=np.float64)
        return scaled[0], np.ascontiguousarray(scaled[1:].T) / self.unit

    def _exchange(self, density: np.ndarray) -> None:
        """Add the upward densities of other ranks; a single process adds none."""

    def _largest(self, charges: np.ndarray) -> float:
        """The largest magnitude of a charge."""
        return float(np.abs(charges).max(initial=0.0))

    def _phases(self, charges: np.ndarray, sums: np.ndarray) -> float:
        """Run all phases and return the unit of the charges: 1, or a power of two where they or
        values computed from them would leave the range of single precision.

        ``sums``: potentials times the rule's unit, (slots,), or with gradients, (4, slots).
        """
        exponent = math.frexp(self._largest(charges))[1]
        unit = 1.0 if abs(exponent) <= MOST_EXPONENT else 2.0 ** (exponent - 1)
        # A BLAS's threads keep spinning after a product, on the cores that the loops need.
        with self._blas.limit(limits=1, user_api="blas"), self._workers.awake():
            at = time.perf_counter()
            self.sources.local[3, self.sources.slot] = charges if unit == 1.0 else charges / unit
            up = self._up()
            self._exchange(up)
            at = self._took("up", at)
            check = self._x()
            at = self._took("x", at)
            self._v(up, check)
            at = self._took("v", at)
            self._down(check, sums)
            at = self._took("down", at)
            self._w(up, sums)
            if sums.ndim == 1:
                sums *= self.dtype.type(unit_of(self.rule) / unit_of(self.far_rule))
            at = self._took("w", at)
            if sums.ndim == 1:
                self._u(sums)
            else:
                self._u_with_gradient(sums)
            self._took("u", at)
        return unit

    def _to_surfaces(self, pairs: np.ndarray, ring: str, check: np.ndarray) -> None:
        sources = self.sources
        parameter = self.dtype.type(self.parameter)

        def work(first: int, last: int) -> None:
            to_surfaces(
                self.far_rule, pairs, first, last, sources.place, sources.local,
                sources.begin, sources.end,
                self.centres, self.tree.level, self.rings[ring], check, sources.most, parameter,
            )  # fmt: skip

        self._workers.share_groups(pairs[:, 1], work)
        # Convert potentials from the unit of lengths to half sides of the cell.
        check *= (self.half / unit_of(self.far_rule))[:, None].astype(self.dtype)

    def _from_surfaces(
        self, pairs: np.ndarray, ring: str, density: np.ndarray, sums: np.ndarray
    ) -> None:
        targets = self.targets
        parameter = self.dtype.type(self.parameter)
        loop = from_surfaces if sums.ndim == 1 else gradients_from_surfaces

        def work(first: int, last: int) -> None:
            loop(
                self.far_rule, pairs, first, last, targets.place, targets.local,
                targets.begin, targets.end,
                self.centres, self.tree.level, self.rings[ring], density, self.surface, sums,
                targets.most, parameter,
            )  # fmt: skip

        self._workers.share_groups(pairs[:, 0], work)

    def _empty(self) -> np.ndarray:
        return np.zeros((len(self.tree), self.rings["inner"].shape[2]), self.dtype)

    def _up(self) -> np.ndarray:
        """The upward equivalent densities of all nodes, (nodes, columns), by P2M and M2M."""
        check, density = self._empty(), self._empty()
        self._to_surfaces(self.own_leaves, "outer", check)
        tree, n = self.tree, self.surface
        for level in range(len(tree.levels) - 2, COARSEST - 1, -1):
            self._solve(level, self.operators[level].up_solve, check, density)
            if level > COARSEST:
                octants, m2m = self.by_octant[level], self.operators[level - 1].m2m
                added = self._by_octant(lambda o: density[octants[o], :n] @ m2m[o])  # noqa: B023
                for nodes, more in zip(octants, added, strict=True):
                    check[tree.parent[nodes], :n] += more
        return density

    def _solve(
        self,
        level: int,
        operators: tuple[np.ndarray, np.ndarray],
        check: np.ndarray,
        density: np.ndarray,
    ) -> None:
        """Compute the densities of a level's nodes from their check potentials."""
        here, n = self.by_level[level], self.surface
        first, second = operators

        def solve(a: int, b: int) -> None:
            density[here[a:b], :n] = (check[here[a:b], :n] @ first) @ second

        self._workers.share(len(here), solve)

    def _by_octant(self, work: Callable[[int], np.ndarray]) -> list[np.ndarray]:
        """The result of ``work(octant)`` for each octant, computed by all threads."""
        products: dict[int, np.ndarray] = {}
        self._workers.share(
            CHILDREN, lambda a, b: products.update({o: work(o) for o in range(a, b)})
        )
        return [products[o] for o in range(CHILDREN)]

    def _x(self) -> np.ndarray:
        """The downward check potentials of P2L, (nodes, columns)."""
        check = self._empty()
        if len(self.x_pairs):
            self._to_surfaces(self.x_pairs, "inner", check)
        return check

    def _v(self, density: np.ndarray, check: np.ndarray) -> None:
        """Add the potentials of M2L to the downward check potentials."""
        parents = self.v_list
        if not parents.levels:
            return
        cuts = slabs(self.order, len(parents), self.dtype.itemsize)
        plane = plane_frequencies(self.order)
        shape = (
            plane * max(b - a for a, b in cuts), len(parents) + 1, 2, CHILDREN
        )  # fmt: skip
        x, y = np.empty(shape, self.dtype), np.empty(shape, self.dtype)
        x[:, -1] = 0
        for kz0, kz1 in cuts:
            y[:] = 0
            self._v_slab(density, check, kz0, kz1, x, y)

    def _v_slab(
        self, density: np.ndarray, check: np.ndarray, kz0: int, kz1: int, x: np.ndarray,
        y: np.ndarray,
    ) -> None:  # fmt: skip
        """Add the frequencies ``kz0`` to ``kz1``; ``x``, ``y``: memory for their spectra."""
        parents = self.v_list
        cosine, sine = self.waves.cosine, self.waves.sine
        cos_z, sin_z = v_fourier.last_axis(self.waves, kz0, kz1)
        plane = plane_frequencies(self.order)

        def scratch() -> np.ndarray:
            return np.empty(v_fourier.work_size(self.order), self.dtype)

        def forward(first: int, last: int) -> None:
            v_fourier.forward(
                density, parents.children, self.grid, cosine, sine, kz0, kz1, first, last, x,
                scratch(),
            )  # fmt: skip

        def backward(first: int, last: int) -> None:
            v_fourier.backward(
                y, parents.children, self.grid, cosine, sine, cos_z, sin_z, first, last, check,
                scratch(),
            )  # fmt: skip

        self._workers.share(len(parents), forward)
        for level, pairs, starts in zip(parents.levels, parents.pairs, parents.starts, strict=True):
            table = self.operators[level].table[plane * kz0 : plane * kz1]

            def multiply(
                first: int,
                last: int,
                table: np.ndarray = table,
                pairs: np.ndarray = pairs,
                starts: np.ndarray = starts,
            ) -> None:
                v_m2l.multiply(table, self.offsets, pairs, starts, x, y, first, last)

            self._workers.share(plane * (kz1 - kz0), multiply)
        self._workers.share(parents.acted_on, backward)

    def _down(self, check: np.ndarray, sums: np.ndarray) -> None:
        """Compute the downward densities (L2L), and add their potentials at the targets (L2P)."""
        tree, n = self.tree, self.surface
        density = self._empty()
        for level in range(COARSEST, len(tree.levels) - 1):
            if level > COARSEST:
                octants, l2l = self.by_octant[level], self.operators[level - 1].l2l
                parents = [tree.parent[nodes] for nodes in octants]
                added = self._by_octant(lambda o: density[parents[o], :n] @ l2l[o])  # noqa: B023
                for nodes, more in zip(octants, added, strict=True):
                    check[nodes, :n] += more
            self._solve(level, self.operators[level].down_solve, check, density)
        self._from_surfaces(self.own_leaves, "outer", density, sums)

    def _w(self, density: np.ndarray, sums: np.ndarray) -> None:
        """Add the potentials of M2P to ``sums``."""
        if len(self.w_pairs):
            self._from_surfaces(self.w_pairs, "inner", density, sums)

    def _u(self, sums: np.ndarray) -> None:
        """Add the potentials of P2P to ``sums``."""
        s, t = self.sources, self.targets
        units = unit_of(self.rule), unit_of(self.exact_rule)

        def p2p(first: int, last: int) -> None:
            for pairs in self.near[first:last]:
                act_on_pairs(
                    self.rule, self.exact_rule, pairs, self.centres, self.nearest, *units,
                    s.place, s.local, s.begin, s.end, sums,
                    t.place, t.local, t.begin, t.end, sums,
                    max(s.most, t.most), self.dtype.type(self.parameter), self.parameter,
                )  # fmt: skip

        self._workers.share(len(self.near), p2p, parts=1)

    def _u_with_gradient(self, sums: np.ndarray) -> None:
        """Add the potentials and gradients of P2P to ``sums``."""
        s, t = self.sources, self.targets

        def p2p(first: int, last: int) -> None:
            for pairs in self.near[first:last]:
                gradients_on_pairs(
                    self.rule, self.exact_rule, pairs, self.centres, self.nearest,
                    s.place, s.local, s.begin, s.end, t.place, t.begin, t.end, sums,
                    max(s.most, t.most), self.dtype.type(self.parameter), self.parameter,
                )  # fmt: skip

        self._workers.share(len(self.near), p2p, parts=1)


def _sorted_by(pairs: np.ndarray, column: int) -> np.ndarray:
    return pairs[np.argsort(pairs[:, column], kind="stable")]
