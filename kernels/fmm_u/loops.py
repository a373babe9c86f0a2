"""The compiled loops of the U phase, one set for each variant.

To the compiler a variant is a type (:mod:`kernels.host.static_type`): a function that takes a
variant is compiled once for each :meth:`kernels.fmm_u.variants.Variant.name`.

A job is a leaf's targets and a list of source leaves. Tiles of targets stay in registers, with
their sums, while a loop passes over the whole list (Choi & Vuduc 2012, algorithm 5.1). Points lie
in slots, and each leaf starts a new vector. The slots after a leaf's last point hold points without
charge outside the cube, so that loops may read them.
"""

# Numba's extension points have untyped arguments.
# mypy: disable-error-code="no-untyped-def,attr-defined,call-arg,misc,type-arg"

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from kernels.fmm.constants import BOTH_WAYS, ONE_WAY
from kernels.fmm_u.variants import STEPS, Root, Variant
from kernels.host.static_type import static
from kernels.host.vectors import INDEX, Vectors

static(Variant)


class PointReader:
    """Emits reads of points from a flat array of 4 numbers per slot, in one of the layouts."""

    def __init__(self, v: Vectors, layout: str, array_type: Any, array: Any) -> None:
        self.v, self.layout = v, layout
        self.data = v.data(array_type, array)
        struct = v.context.make_array(array_type)(v.context, v.builder, array)
        self.slots = v.builder.udiv(struct.nitems, ir.Constant(INDEX, 4))

    def vectors(self, at: Any) -> list[Any]:
        """x, y, z and charge of the vector of points that begins at a slot."""
        v, four = self.v, self.v.builder.mul(at, ir.Constant(INDEX, 4))
        match self.layout:
            case "soa":
                return [v.load(self.data, self._row(at, i)) for i in range(4)]
            case "blocked":
                return [v.load(self.data, offset(v, four, i * v.lanes)) for i in range(4)]
            case _:
                return self._sorted(
                    [v.load(self.data, offset(v, four, i * v.lanes)) for i in range(4)]
                )

    def point(self, at: Any) -> list[Any]:
        """x, y, z and charge of the point in a slot, each in every lane."""
        v, builder = self.v, self.v.builder
        match self.layout:
            case "soa":
                return [v.number(self.data, self._row(at, i)) for i in range(4)]
            case "blocked":
                lane = builder.and_(at, ir.Constant(INDEX, v.lanes - 1))
                first = builder.mul(builder.sub(at, lane), ir.Constant(INDEX, 4))
                first = builder.add(first, lane)
                return [v.number(self.data, offset(v, first, i * v.lanes)) for i in range(4)]
            case _:
                first = builder.mul(at, ir.Constant(INDEX, 4))
                return [v.number(self.data, offset(v, first, i)) for i in range(4)]

    def _row(self, at: Any, row: int) -> Any:
        builder = self.v.builder
        return builder.add(at, builder.mul(self.slots, ir.Constant(INDEX, row)))

    def _sorted(self, mixed: list[Any]) -> list[Any]:
        """Vectors of x, y, z and charges from the four vectors of successive points."""
        lanes = self.v.lanes

        def joined(a: Any, b: Any) -> Any:
            count = 2 * a.type.count
            return self.v.builder.shuffle_vector(a, b, _lanes(range(count)))

        every = joined(joined(*mixed[:2]), joined(*mixed[2:]))
        undefined = ir.Constant(every.type, ir.Undefined)
        return [
            self.v.builder.shuffle_vector(every, undefined, _lanes(range(i, 4 * lanes, 4)))
            for i in range(4)
        ]


def _lanes(numbers: Any) -> Any:
    chosen = list(numbers)
    return ir.Constant(ir.VectorType(ir.IntType(32), len(chosen)), chosen)


def offset(v: Vectors, at: Any, by: int) -> Any:
    """The index ``at + by``."""
    return v.builder.add(at, ir.Constant(INDEX, by))


def square_root(v: Vectors, x: Any) -> Any:
    """sqrt(x)."""
    kind = ir.FunctionType(v.vector, [v.vector])
    name = f"llvm.sqrt.v{v.lanes}{v.scalar.intrinsic_name}"
    return v.builder.call(cgutils.get_or_insert_function(v.builder.module, kind, name), [x])


def inverse_root(v: Vectors, root: Root, r2: Any) -> Any:
    """1 / r from r^2, times the variant's unit."""
    if root == "sqrt":
        return v.builder.fdiv(v.constant(1.0), square_root(v, r2))
    y = v.rsqrt_estimate(r2)
    for step in range(STEPS[root]):
        factor = v.nfma(r2, v.mul(y, y), v.constant(3.0))
        y = v.mul(y if step == STEPS[root] - 1 else v.mul(v.constant(0.5), y), factor)
    return y


def squared_distance(v: Vectors, held: Any, source: Any) -> Any:
    """r^2 of two vectors of points, whose first items are x, y and z."""
    dx, dy, dz = (v.sub(a, b) for a, b in zip(held[:3], source[:3], strict=True))
    return v.fma(dx, dx, v.fma(dy, dy, v.mul(dz, dz)))


class _Job:
    """Emits one job: all tiles of a leaf's targets, with a list of source leaves."""

    def __init__(
        self, v: Vectors, variant: Variant, points: PointReader, sums: Any, spans: Any
    ) -> None:
        self.v, self.variant, self.points, self.sums, self.spans = v, variant, points, sums, spans
        self.in_targets = variant.lanes == "targets"

    def emit(self, ends: list[Any], both: bool, masked: bool) -> None:
        """``ends``: first slot and end of the targets, first row and end of the list."""
        begin, end, first, last = ends
        builder = self.v.builder
        step = self.v.lanes if self.in_targets else 1
        left = self._count(builder.sub(end, begin), self.in_targets)
        at = begin
        for size in self.variant.tiles():
            amount = ir.Constant(INDEX, size)
            tiles = builder.udiv(left, amount)
            whole = ir.Constant(INDEX, size * step)
            with cgutils.for_range(builder, tiles) as loop:
                here = builder.add(at, builder.mul(loop.index, whole))
                self._tile(size, here, first, last, both, masked)
            at = builder.add(at, builder.mul(tiles, whole))
            left = builder.urem(left, amount)

    def _count(self, points: Any, in_vectors: bool) -> Any:
        """The number of vectors, or of points, that hold ``points`` points."""
        if not in_vectors:
            return points
        lanes = self.v.lanes
        more = offset(self.v, points, lanes - 1)
        return self.v.builder.udiv(more, ir.Constant(INDEX, lanes))

    def _tile(self, size: int, at: Any, first: Any, last: Any, both: bool, masked: bool) -> None:
        v, builder = self.v, self.v.builder
        places = [offset(v, at, i * (v.lanes if self.in_targets else 1)) for i in range(size)]
        read = self.points.vectors if self.in_targets else self.points.point
        held = [read(place) for place in places]
        zero = v.constant(0.0)
        totals = [v.slot(v.load(self.sums, place) if self.in_targets else zero) for place in places]
        with cgutils.for_range_slice(builder, first, last, ir.Constant(INDEX, 1)) as (row, _):
            self._source_leaf(row, held, totals, both, masked)
        for place, total in zip(places, totals, strict=True):
            if self.in_targets:
                v.store(builder.load(total), self.sums, place)
            else:
                self._add_to(place, v.total(builder.load(total)))

    def _add_to(self, place: Any, value: Any) -> None:
        builder = self.v.builder
        to = builder.gep(self.sums, [place])
        builder.store(builder.fadd(builder.load(to), value), to)

    def _source_leaf(
        self, row: Any, held: list[Any], totals: list[Any], both: bool, masked: bool
    ) -> None:
        v, builder = self.v, self.v.builder
        two = builder.mul(row, ir.Constant(INDEX, 2))
        begin = builder.load(builder.gep(self.spans, [two]))
        end = builder.load(builder.gep(self.spans, [offset(v, two, 1)]))
        left = self._count(builder.sub(end, begin), not self.in_targets)
        step = 1 if self.in_targets else v.lanes
        at = begin
        for unroll in dict.fromkeys([1 if masked else self.variant.unroll, 1]):
            amount = ir.Constant(INDEX, unroll)
            passes = builder.udiv(left, amount)
            whole = ir.Constant(INDEX, unroll * step)
            with cgutils.for_range(builder, passes) as loop:
                v.stop_unrolling()
                here = builder.add(at, builder.mul(loop.index, whole))
                places = [offset(v, here, i * step) for i in range(unroll)]
                read = self.points.point if self.in_targets else self.points.vectors
                sources = [read(place) for place in places]
                for place, source in zip(places, sources, strict=True):
                    self._source(place, source, held, totals, both, masked)
            at = builder.add(at, builder.mul(passes, whole))
            left = builder.urem(left, amount)

    def _source(
        self,
        place: Any,
        source: list[Any],
        held: list[Any],
        totals: list[Any],
        both: bool,
        masked: bool,
    ) -> None:
        """Emit one source, or vector of sources, and all held targets."""
        v, builder = self.v, self.v.builder
        back = None
        if both and not self.in_targets:
            back = v.load(self.sums, place)
        for target, total in zip(held, totals, strict=True):
            r2 = squared_distance(v, target, source)
            value = inverse_root(v, self.variant.root, r2)
            if masked:
                value = v.where_positive(r2, value)
            builder.store(v.fma(value, source[3], builder.load(total)), total)
            if both:
                back = v.mul(value, target[3]) if back is None else v.fma(value, target[3], back)
        if both and self.in_targets:
            self._add_to(place, v.total(back))
        elif both:
            v.store(back, self.sums, place)


def _act(both: bool, masked: bool) -> Any:
    """A job's loop; ``both``: with the sources' sums; ``masked``: without pairs at r = 0."""

    @intrinsic
    def act(typing, variant, points, sums, spans, begin, end, first, last):
        def emit(context, builder, signature, arguments):
            if both and variant.value.ways == "one":
                return context.get_dummy_value()
            _, points, sums, spans, *ends = arguments
            kinds = signature.args
            v = Vectors(context, builder, kinds[1].dtype.bitwidth, variant.value.width)
            places = PointReader(v, variant.value.layout, kinds[1], points)
            numbers, rows = v.data(kinds[2], sums), v.data(kinds[3], spans)
            _Job(v, variant.value, places, numbers, rows).emit(ends, both, masked)
            return context.get_dummy_value()

        return types.void(variant, points, sums, spans, begin, end, first, last), emit

    return act


_act_one_way, _act_both_ways, _act_on_itself = (
    _act(False, False),
    _act(True, False),
    _act(False, True),
)


@njit(nogil=True, cache=True)
def u_phase(variant, points, sums, begin, end, jobs, spans, iterations):
    """Compute one thread's jobs ``iterations`` times.

    Args:
        variant: a :class:`kernels.fmm_u.variants.Variant`.
        points: (4 slots,), in the variant's layout and precision.
        sums: (slots,), of the same type. Slots ``begin`` to ``end`` become the variant's unit times
            the sums of q / r over the U lists without pairs at r = 0; other slots are not
            written.
        jobs: int64 (n, 5): first slot and end of the targets, first row and end of their
            sources in ``spans``, and their interaction.
        spans: int64 (rows, 2): first slot and end of a leaf's sources.
    """
    for _ in range(iterations):
        for i in range(begin, end):
            sums[i] = 0
        for i in range(len(jobs)):
            t0, t1, first, last, what = jobs[i]
            if what == ONE_WAY:
                _act_one_way(variant, points, sums, spans, t0, t1, first, last)
            elif what == BOTH_WAYS:
                _act_both_ways(variant, points, sums, spans, t0, t1, first, last)
            else:
                _act_on_itself(variant, points, sums, spans, t0, t1, first, last)
