"""The V phase: translations on a grid, as products of spectra (M2L by FFT; Ying et al. 2004, 3.3).

Equivalent and check surfaces of one level are parts of p x p x p grids of one spacing, so the
sum over a source cell's equivalent points is a convolution, and 2p - 1 points a side are enough
to hold it. All children of two neighbouring parents act on each other by 8 x 8 products at every
frequency (Malhotra and Biros, Commun. Comput. Phys. 18, 2015, section 3.3), here with the spectra
kept frequency first: a frequency's matrices stay in the first cache while all pairs of parents
pass by.

The discrete Fourier transforms are of few points, of which most are zero, and always eight at
a time: products with small matrices of cosines and sines, one axis after the other.
"""

# mypy: disable-error-code="no-untyped-def,attr-defined,call-arg"

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from kernels.fmm.vectors import HOST, INDEX, Vectors

CHILDREN = 8
REACH = 7
"""Offsets between the centres of cells that are in each other's V, -3 to 3 cell sides an axis."""
GROUP = 4 if HOST.registers >= 32 else 2
"""Pairs of parents that share the loads of a matrix."""


@dataclass(frozen=True)
class Waves:
    """The transform's cosines and sines for order p, with n = 2p - 1 points a side.

    ``cosine``, ``sine``: (p, p), of k j 2 pi / n for frequencies 0 to p - 1 and points 0 to
    p - 1. The other frequencies are the conjugates' (k and n - k).
    """

    cosine: np.ndarray
    sine: np.ndarray

    @property
    def order(self) -> int:
        """p."""
        return len(self.cosine)


def waves(order: int, dtype: Any) -> Waves:
    """The cosines and sines for an order."""
    angle = 2 * np.pi / (2 * order - 1) * np.outer(np.arange(order), np.arange(order))
    return Waves(np.cos(angle).astype(dtype), np.sin(angle).astype(dtype))


def frequencies(order: int) -> int:
    """How many frequencies a spectrum has: (2p - 1)^2 p, for the input is real."""
    return (2 * order - 1) ** 2 * order


def offset_index() -> np.ndarray:
    """For each direction to a colleague and pair of children, the offset between their centres.

    int32 (27, 8, 8): direction, source child, target child -> index into the 7 x 7 x 7 offsets
    (z slowest), 343 where the two touch. The direction is from target parent to source parent.
    """
    found = np.full((27, CHILDREN, CHILDREN), REACH**3, np.int32)
    for d in range(27):
        side = np.array([d % 3, d // 3 % 3, d // 9]) - 1
        for b in range(CHILDREN):
            for a in range(CHILDREN):
                bits = [np.array([o & 1, o >> 1 & 1, o >> 2]) for o in (b, a)]
                x, y, z = bits[1] - (2 * side + bits[0])
                if max(abs(x), abs(y), abs(z)) > 1:
                    found[d, b, a] = ((z + 3) * REACH + y + 3) * REACH + x + 3
    return found


def _rows_times(count: int) -> Any:
    """``count`` rows of a small matrix times a tall block: c[i, :] = sum over j of m[i, j] b[j, :].

    ``m`` (rows, inner) from row ``i0`` on; ``b`` from ``b0`` on, rows ``width`` apart; ``c`` from
    ``c0`` on, likewise; of both 8 columns from ``column`` on.
    """

    @intrinsic
    def rows_times(typing, m, i0, inner, b, b0, c, c0, width, column):
        def emit(context, builder, signature, arguments):
            kinds = signature.args
            m, i0, inner, b, b0, c, c0, width, column = arguments
            v = Vectors(context, builder, kinds[0].dtype.bitwidth, CHILDREN)
            pm, pb, pc = (v.data(kinds[k], a) for k, a in ((0, m), (3, b), (5, c)))
            sums = [v.slot(v.constant(0.0)) for _ in range(count)]
            rows = [builder.add(i0, ir.Constant(INDEX, i)) for i in range(count)]
            with cgutils.for_range(builder, inner) as loop:
                at = builder.add(builder.add(b0, column), builder.mul(loop.index, width))
                x = v.load(pb, at)
                for row, slot in zip(rows, sums, strict=True):
                    factor = v.number(pm, builder.add(builder.mul(row, inner), loop.index))
                    builder.store(v.fma(factor, x, builder.load(slot)), slot)
            for row, slot in zip(rows, sums, strict=True):
                at = builder.add(builder.add(c0, column), builder.mul(row, width))
                v.store(builder.load(slot), pc, at)
            return context.get_dummy_value()

        return types.void(m, i0, inner, b, b0, c, c0, width, column), emit

    return rows_times


_four_rows, _one_row = _rows_times(4), _rows_times(1)


@njit(nogil=True, cache=True)
def _times(m, b, b0, c, c0, width):
    """c = m b: m (rows, inner), b (inner, width) from ``b0`` on, c (rows, width) from ``c0`` on."""
    rows, inner = m.shape
    for column in range(0, width, CHILDREN):
        i = 0
        while i + 4 <= rows:
            _four_rows(m, i, inner, b, b0, c, c0, width, column)
            i += 4
        while i < rows:
            _one_row(m, i, inner, b, b0, c, c0, width, column)
            i += 1


@njit(nogil=True, cache=True)
def forward(density, rows, grid, cosine, sine, first, last, spectra, scratch):
    """The spectra of the children of parents ``first`` to ``last``.

    Args:
        density: (nodes, surface), equivalent densities.
        rows: int64 (parents, 8), each parent's children, -1 where there is none.
        grid: int64 (surface,), the place of each surface point in a (z, y, x) grid.
        cosine, sine: of :class:`Waves`.
        spectra: (frequencies, parents + 1, 2, 8), written; the frequencies by kz, ky, kx.
        scratch: (work_size(p),).
    """
    p = len(cosine)
    n = 2 * p - 1
    plane = p * p * CHILDREN
    line = p * CHILDREN
    one = scratch[: p * plane]
    cos_z = p * plane
    sin_z = cos_z + p * plane
    cos_y = sin_z + p * plane
    mixed = cos_y + 4 * p * line
    half = mixed + 2 * n * line
    for parent in range(first, last):
        one[:] = 0
        for child in range(CHILDREN):
            node = rows[parent, child]
            if node >= 0:
                for i in range(len(grid)):
                    one[grid[i] * CHILDREN + child] = density[node, i]
        _times(cosine, scratch, 0, scratch, cos_z, plane)
        _times(sine, scratch, 0, scratch, sin_z, plane)
        for kz in range(p):
            # f(z) e^(-ikz) has the real part cos, the imaginary part -sin.
            _times(cosine, scratch, cos_z + kz * plane, scratch, cos_y, line)
            _times(sine, scratch, cos_z + kz * plane, scratch, cos_y + p * line, line)
            _times(cosine, scratch, sin_z + kz * plane, scratch, cos_y + 2 * p * line, line)
            _times(sine, scratch, sin_z + kz * plane, scratch, cos_y + 3 * p * line, line)
            _combine_forward(scratch, cos_y, line, p, mixed)
            for ky in range(n):
                real = mixed + 2 * ky * line
                imaginary = real + line
                _times(cosine, scratch, real, scratch, half, CHILDREN)
                _times(sine, scratch, real, scratch, half + p * CHILDREN, CHILDREN)
                _times(cosine, scratch, imaginary, scratch, half + 2 * p * CHILDREN, CHILDREN)
                _times(sine, scratch, imaginary, scratch, half + 3 * p * CHILDREN, CHILDREN)
                base = (kz * n + ky) * n
                for kx in range(p):
                    for lane in range(CHILDREN):
                        a = scratch[half + kx * CHILDREN + lane]
                        b = scratch[half + (p + kx) * CHILDREN + lane]
                        c = scratch[half + (2 * p + kx) * CHILDREN + lane]
                        d = scratch[half + (3 * p + kx) * CHILDREN + lane]
                        spectra[base + kx, parent, 0, lane] = a + d
                        spectra[base + kx, parent, 1, lane] = c - b
                        if kx:
                            spectra[base + n - kx, parent, 0, lane] = a - d
                            spectra[base + n - kx, parent, 1, lane] = c + b


@njit(nogil=True, cache=True)
def _combine_forward(scratch, at, line, p, mixed):
    """From the products with cosines and sines along y the complex values at every ky.

    At ``at``: Cr = cos re, Sr = sin re, Ci = cos im', Si = sin im', each (p, line), with
    im' = -im. Written to ``mixed``: (n, 2, line), real and imaginary.
    """
    size = p * line
    n = 2 * p - 1
    for k in range(p):
        for i in range(line):
            j = at + k * line + i
            cr, sr = scratch[j], scratch[j + size]
            ci, si = scratch[j + 2 * size], scratch[j + 3 * size]
            # (re - i im')(cos - i sin) = re cos - im' sin - i (re sin + im' cos)
            to = mixed + 2 * k * line + i
            scratch[to] = cr - si
            scratch[to + line] = -sr - ci
            if k:
                to = mixed + 2 * (n - k) * line + i
                scratch[to] = cr + si
                scratch[to + line] = sr - ci


def work_size(order: int) -> int:
    """Numbers of scratch that a transform of an order takes."""
    p, n = order, 2 * order - 1
    plane, line = p * p * CHILDREN, p * CHILDREN
    return 3 * p * plane + 4 * p * line + 2 * n * line + 4 * p * CHILDREN + 2 * n * CHILDREN


@njit(nogil=True, cache=True)
def backward(spectra, rows, grid, cosine, sine, first, last, potential, scratch):
    """Add the check potentials of the children of parents ``first`` to ``last``.

    Args: as for :func:`forward`; ``potential`` (nodes, surface) is added to. The points are the
    convolution's first p an axis.
    """
    p = len(cosine)
    n = 2 * p - 1
    plane = p * p * CHILDREN
    line = p * CHILDREN
    # By kz: the real and the imaginary part of what is left to transform along z.
    real_z = 0
    imaginary_z = p * plane
    pairs = 2 * p * plane
    mixed = pairs + 4 * p * line
    half = mixed + 2 * n * line
    count = len(grid)
    scale = cosine.dtype.type(1.0 / n**3)
    for parent in range(first, last):
        for kz in range(p):
            for ky in range(n):
                base = (kz * n + ky) * n
                # sum over kx of F e^(ikx): with F(k) and F(n - k) as sum and difference.
                for kx in range(p):
                    for lane in range(CHILDREN):
                        re, im = spectra[base + kx, parent, 0, lane], spectra[base + kx, parent, 1, lane]
                        at = half + kx * CHILDREN + lane
                        if kx:
                            re2 = spectra[base + n - kx, parent, 0, lane]
                            im2 = spectra[base + n - kx, parent, 1, lane]
                            scratch[at] = re + re2
                            scratch[at + p * CHILDREN] = im + im2
                            scratch[at + 2 * p * CHILDREN] = re - re2
                            scratch[at + 3 * p * CHILDREN] = im - im2
                        else:
                            scratch[at], scratch[at + p * CHILDREN] = re, im
                            scratch[at + 2 * p * CHILDREN] = 0
                            scratch[at + 3 * p * CHILDREN] = 0
                real = mixed + 2 * ky * line
                _times_both(cosine, sine, scratch, half, half + 3 * p * CHILDREN, real, p, CHILDREN, -1)
                _times_both(
                    cosine, sine, scratch, half + p * CHILDREN, half + 2 * p * CHILDREN,
                    real + line, p, CHILDREN, 1,
                )  # fmt: skip
            for ky in range(p):
                for i in range(line):
                    re, im = scratch[mixed + 2 * ky * line + i], scratch[mixed + (2 * ky + 1) * line + i]
                    at = pairs + ky * line + i
                    if ky:
                        re2 = scratch[mixed + 2 * (n - ky) * line + i]
                        im2 = scratch[mixed + (2 * (n - ky) + 1) * line + i]
                        scratch[at] = re + re2
                        scratch[at + p * line] = im + im2
                        scratch[at + 2 * p * line] = re - re2
                        scratch[at + 3 * p * line] = im - im2
                    else:
                        scratch[at], scratch[at + p * line] = re, im
                        scratch[at + 2 * p * line] = 0
                        scratch[at + 3 * p * line] = 0
            _times_both(
                cosine, sine, scratch, pairs, pairs + 3 * p * line, real_z + kz * plane, p, line, -1
            )
            _times_both(
                cosine, sine, scratch, pairs + p * line, pairs + 2 * p * line,
                imaginary_z + kz * plane, p, line, 1,
            )  # fmt: skip
        # The input was real: frequency kz stands for -kz as well.
        for i in range(plane, p * plane):
            scratch[real_z + i] *= 2
            scratch[imaginary_z + i] *= 2
        _times_both(cosine, sine, scratch, real_z, imaginary_z, pairs, p, plane, -1)
        for child in range(CHILDREN):
            node = rows[parent, child]
            if node >= 0:
                for i in range(count):
                    potential[node, i] += scratch[pairs + grid[i] * CHILDREN + child] * scale


def _two_products(count: int) -> Any:
    """``count`` rows of c = m1 b1 + sign m2 b2, as :func:`_rows_times`."""

    @intrinsic
    def two_products(typing, m1, m2, i0, inner, b, b1, b2, c0, width, column, sign):
        def emit(context, builder, signature, arguments):
            kinds = signature.args
            m1, m2, i0, inner, b, b1, b2, c0, width, column, sign = arguments
            v = Vectors(context, builder, kinds[0].dtype.bitwidth, CHILDREN)
            p1, p2, pb = (v.data(kinds[k], a) for k, a in ((0, m1), (1, m2), (4, b)))
            sums = [v.slot(v.constant(0.0)) for _ in range(count)]
            signed = v.spread(sign)
            rows = [builder.add(i0, ir.Constant(INDEX, i)) for i in range(count)]
            with cgutils.for_range(builder, inner) as loop:
                down = builder.add(builder.mul(loop.index, width), column)
                x = v.load(pb, builder.add(b1, down))
                y = v.mul(signed, v.load(pb, builder.add(b2, down)))
                for row, slot in zip(rows, sums, strict=True):
                    at = builder.add(builder.mul(row, inner), loop.index)
                    total = v.fma(v.number(p1, at), x, builder.load(slot))
                    builder.store(v.fma(v.number(p2, at), y, total), slot)
            for row, slot in zip(rows, sums, strict=True):
                at = builder.add(builder.add(c0, column), builder.mul(row, width))
                v.store(builder.load(slot), pb, at)
            return context.get_dummy_value()

        return types.void(m1, m2, i0, inner, b, b1, b2, c0, width, column, sign), emit

    return two_products


_four_sums, _one_sum = _two_products(4), _two_products(1)


@njit(nogil=True, cache=True)
def _times_both(m1, m2, b, b1, b2, c0, rows, width, sign):
    """c = m1 b1 + sign m2 b2, all parts of ``b``; the matrices are symmetric."""
    signed = m1.dtype.type(sign)
    for column in range(0, width, CHILDREN):
        i = 0
        while i + 4 <= rows:
            _four_sums(m1, m2, i, rows, b, b1, b2, c0, width, column, signed)
            i += 4
        while i < rows:
            _one_sum(m1, m2, i, rows, b, b1, b2, c0, width, column, signed)
            i += 1


def _pairs_of_parents(count: int) -> Any:
    """``count`` pairs: y[target] += M x[source], complex 8 x 8, at one frequency.

    ``m``: (27, 8, 2, 8), by direction and source child, the column's real and imaginary part
    over target children, from number ``m0`` on. ``x``, ``y``: (frequencies, parents + 1, 2, 8),
    from number ``x0`` on. ``pairs``: int32 (2, n), sources and targets, from ``i0`` on.
    """

    @intrinsic
    def pairs_of_parents(typing, m, m0, x, y, x0, pairs, n, i0):
        def emit(context, builder, signature, arguments):
            kinds = signature.args
            m, m0, x, y, x0, pairs, n, i0 = arguments
            v = Vectors(context, builder, kinds[0].dtype.bitwidth, CHILDREN)
            pm, px, py = (v.data(kinds[k], a) for k, a in ((0, m), (2, x), (3, y)))
            places = v.data(kinds[5], pairs)
            size = ir.Constant(INDEX, 2 * CHILDREN)

            def place(offset: Any, i: int) -> Any:
                at = builder.add(offset, builder.add(i0, ir.Constant(INDEX, i)))
                number = builder.sext(builder.load(builder.gep(places, [at])), INDEX)
                return builder.add(x0, builder.mul(number, size))

            sources = [place(ir.Constant(INDEX, 0), i) for i in range(count)]
            targets = [place(n, i) for i in range(count)]
            if v.bits == 32 and HOST.bytes >= 64:
                _single(v, pm, m0, px, py, sources, targets)
            else:
                _split_parts(v, pm, m0, px, py, sources, targets)
            return context.get_dummy_value()

        return types.void(m, m0, x, y, x0, pairs, n, i0), emit

    return pairs_of_parents


def _split_parts(v, pm, m0, px, py, sources, targets):
    """Real and imaginary parts in vectors of their own, 8 numbers each."""
    builder = v.builder
    eight = ir.Constant(INDEX, CHILDREN)
    real = [v.load(py, t) for t in targets]
    imaginary = [v.load(py, builder.add(t, eight)) for t in targets]
    for j in range(CHILDREN):
        at = builder.add(m0, ir.Constant(INDEX, 2 * CHILDREN * j))
        mr, mi = v.load(pm, at), v.load(pm, builder.add(at, eight))
        for k, source in enumerate(sources):
            here = builder.add(source, ir.Constant(INDEX, j))
            xr, xi = v.number(px, here), v.number(px, builder.add(here, eight))
            real[k] = v.nfma(mi, xi, v.fma(mr, xr, real[k]))
            imaginary[k] = v.fma(mi, xr, v.fma(mr, xi, imaginary[k]))
        v.fence()
    for t, r, i in zip(targets, real, imaginary, strict=True):
        v.store(r, py, t)
        v.store(i, py, builder.add(t, eight))


def _single(narrow, pm, m0, px, py, sources, targets):
    """Real and imaginary parts side by side in one vector of 16 numbers."""
    builder = narrow.builder
    v = Vectors(narrow.context, builder, 32, 2 * CHILDREN)
    i32 = ir.IntType(32)
    swap = ir.Constant(
        ir.VectorType(i32, 2 * CHILDREN), [*range(CHILDREN, 2 * CHILDREN), *range(CHILDREN)]
    )
    signs = ir.Constant(v.vector, [-1.0] * CHILDREN + [1.0] * CHILDREN)
    undefined = ir.Constant(v.vector, ir.Undefined)
    eight = ir.Constant(INDEX, CHILDREN)
    sums = [v.load(py, t) for t in targets]
    for j in range(CHILDREN):
        column = v.load(pm, builder.add(m0, ir.Constant(INDEX, 2 * CHILDREN * j)))
        # i times the column: (re, im) becomes (-im, re).
        turned = v.mul(builder.shuffle_vector(column, undefined, swap), signs)
        for k, source in enumerate(sources):
            here = builder.add(source, ir.Constant(INDEX, j))
            xr, xi = v.number(px, here), v.number(px, builder.add(here, eight))
            sums[k] = v.fma(turned, xi, v.fma(column, xr, sums[k]))
        v.fence()
    for t, total in zip(targets, sums, strict=True):
        v.store(total, py, t)


_group = _pairs_of_parents(GROUP)


@njit(nogil=True, cache=True)
def multiply(table, offsets, pairs, starts, x, y, first, last):
    """y += M x at frequencies ``first`` to ``last``, over all pairs of parents.

    Args:
        table: (frequencies, 2, 344), the translations' spectra by offset; the last is 0.
        offsets: int32 (27, 8, 8), of :func:`offset_index`.
        pairs: int32 (2, n), source and target parents, by direction; padded to whole groups
            with the parent behind the last, which has no children.
        starts: int64 (28,), where each direction's pairs begin.
        x, y: (frequencies, parents + 1, 2, 8), spectra.
    """
    n = pairs.shape[1]
    size = x.shape[1] * 2 * CHILDREN
    matrices = np.zeros((27, CHILDREN, 2, CHILDREN), table.dtype)
    for f in range(first, last):
        for d in range(27):
            if starts[d] == starts[d + 1]:
                continue
            for b in range(CHILDREN):
                for a in range(CHILDREN):
                    at = offsets[d, b, a]
                    matrices[d, b, 0, a] = table[f, 0, at]
                    matrices[d, b, 1, a] = table[f, 1, at]
            for i in range(starts[d], starts[d + 1], GROUP):
                _group(matrices, d * 128, x, y, f * size, pairs, n, i)
