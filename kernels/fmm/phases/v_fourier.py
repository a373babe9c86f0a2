"""The discrete Fourier transforms of the V phase, for the eight children of a parent at a time.

A surface's p x p x p grid of densities, padded with zeros to 2p - 1 points a side, is transformed
axis by axis by products with small matrices of cosines and sines. Frequencies k and 2p - 1 - k
share the products: one is their sums, the other their differences.

A slab of kz (:mod:`kernels.fmm.phases.v_slabs`) uses some rows of the matrix of z, the first axis
of the forward transform. In the backward transform z is the last axis, and each slab adds its part
of the sum to the potentials.
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

from kernels.fmm.constants import CHILDREN, TRANSFORM_ROWS
from kernels.host.vectors import INDEX, Vectors


@dataclass(frozen=True)
class Waves:
    """The transform's cosines and sines for order p, with n = 2p - 1 points a side.

    ``cosine``, ``sine``: (p, p), of k j 2 pi / n for frequencies 0 to p - 1 and points 0 to
    p - 1. The other frequencies are complex conjugates (k and n - k).
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


def _rows_times(count: int) -> Any:
    """``count`` rows of a matrix times a block of 8 columns: c[i, :] = sum over j m[i, j] b[j, :].

    ``m`` (rows, inner) from row ``i0`` on; ``b`` from ``b0`` on and ``c`` from ``c0`` on, with rows
    at a distance of ``width``; in both 8 columns from ``column`` on.
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


_several_rows, _one_row = _rows_times(TRANSFORM_ROWS), _rows_times(1)


@njit(nogil=True, cache=True)
def _times(m, b, b0, c, c0, width):
    """c = m b: m (rows, inner), b (inner, width) from ``b0`` on, c (rows, width) from ``c0`` on."""
    rows, inner = m.shape
    for column in range(0, width, CHILDREN):
        i = 0
        while i + TRANSFORM_ROWS <= rows:
            _several_rows(m, i, inner, b, b0, c, c0, width, column)
            i += TRANSFORM_ROWS
        while i < rows:
            _one_row(m, i, inner, b, b0, c, c0, width, column)
            i += 1


@njit(nogil=True, cache=True)
def forward(density, rows, grid, cosine, sine, kz0, kz1, first, last, spectra, scratch):
    """Compute the spectra of the children of parents ``first`` to ``last`` for ``kz0`` to ``kz1``.

    Args:
        density: (nodes, surface), equivalent densities.
        rows: int64 (parents, 8), each parent's children, -1 where there is none.
        grid: int64 (surface,), the index of each surface point in a (z, y, x) grid.
        cosine, sine: of :class:`Waves`.
        kz0, kz1: the slab.
        spectra: (frequencies, parents + 1, 2, 8), written; the slab's frequencies by kz, ky, kx.
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
        _times(cosine[kz0:kz1], scratch, 0, scratch, cos_z, plane)
        _times(sine[kz0:kz1], scratch, 0, scratch, sin_z, plane)
        for kz in range(kz1 - kz0):
            # f(z) e^(-ikz) has the real part f cos and the imaginary part -f sin.
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
    """Combine the products with cosines and sines along y into the complex values at every ky.

    At ``at``: Cr = cos re, Sr = sin re, Ci = cos im', Si = sin im', each (p, line), with
    im' = -im. Written to ``mixed``: (n, 2, line), real and imaginary parts.
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


def last_axis(of: Waves, kz0: int, kz1: int) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines, (p, kz1 - kz0), for the backward transform of a slab's last axis.

    The input was real, so that a frequency kz > 0 also represents -kz: a factor of 2.
    """
    times = np.where(np.arange(kz0, kz1) > 0, 2, 1).astype(of.cosine.dtype)
    return of.cosine[:, kz0:kz1] * times, of.sine[:, kz0:kz1] * times


def work_size(order: int) -> int:
    """The scratch memory of an order's transforms, in numbers."""
    p, n = order, 2 * order - 1
    plane, line = p * p * CHILDREN, p * CHILDREN
    return 3 * p * plane + 4 * p * line + 2 * n * line + 4 * p * CHILDREN + 2 * n * CHILDREN


def _two_products(count: int) -> Any:
    """``count`` rows of c = m1 b1 + sign m2 b2, like :func:`_rows_times`."""

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


_several_sums, _one_sum = _two_products(TRANSFORM_ROWS), _two_products(1)


@njit(nogil=True, cache=True)
def _times_both(m1, m2, b, b1, b2, c0, width, sign):
    """c = m1 b1 + sign m2 b2; b1, b2, c: parts of ``b``; m1, m2: (rows, inner)."""
    rows, inner = m1.shape
    signed = m1.dtype.type(sign)
    for column in range(0, width, CHILDREN):
        i = 0
        while i + TRANSFORM_ROWS <= rows:
            _several_sums(m1, m2, i, inner, b, b1, b2, c0, width, column, signed)
            i += TRANSFORM_ROWS
        while i < rows:
            _one_sum(m1, m2, i, inner, b, b1, b2, c0, width, column, signed)
            i += 1


@njit(nogil=True, cache=True)
def backward(spectra, rows, grid, cosine, sine, cos_z, sin_z, first, last, potential, scratch):
    """Add a slab's part of the check potentials of the children of parents ``first`` to ``last``.

    Args: as for :func:`forward`; ``cos_z``, ``sin_z``: the slab's :func:`last_axis`; ``potential``:
    (nodes, surface), added to. The points are the first p of the convolution along each axis.
    """
    p = len(cosine)
    n = 2 * p - 1
    line = p * CHILDREN
    plane = p * line
    # By kz: the real and imaginary parts of the values before the transform along z.
    real_z, imaginary_z, folded = 0, p * plane, 2 * p * plane
    mixed = folded + 4 * plane
    half = mixed + 2 * n * line
    scale = cosine.dtype.type(1.0 / n**3)
    for parent in range(first, last):
        for kz in range(cos_z.shape[1]):
            for ky in range(n):
                _fold_spectrum(spectra, (kz * n + ky) * n, parent, p, scratch, half)
                to = mixed + 2 * ky * line
                _unfold(cosine, sine, scratch, half, line, to, to + line, CHILDREN)
            _fold_lines(scratch, mixed, line, p, folded)
            at = kz * plane
            _unfold(cosine, sine, scratch, folded, plane, real_z + at, imaginary_z + at, line)
        _times_both(cos_z, sin_z, scratch, real_z, imaginary_z, folded, plane, -1)
        for child in range(CHILDREN):
            node = rows[parent, child]
            if node >= 0:
                for i in range(len(grid)):
                    potential[node, i] += scratch[folded + grid[i] * CHILDREN + child] * scale


@njit(nogil=True, cache=True)
def _fold_spectrum(spectra, base, parent, p, scratch, to):
    """Write F(k) + F(n - k), F(k) - F(n - k) along x to ``to``, real and imaginary, each (p, 8)."""
    n, size = 2 * p - 1, p * CHILDREN
    for k in range(p):
        for lane in range(CHILDREN):
            re, im = spectra[base + k, parent, 0, lane], spectra[base + k, parent, 1, lane]
            at = to + k * CHILDREN + lane
            if k:
                re2 = spectra[base + n - k, parent, 0, lane]
                im2 = spectra[base + n - k, parent, 1, lane]
                scratch[at], scratch[at + size] = re + re2, im + im2
                scratch[at + 2 * size], scratch[at + 3 * size] = re - re2, im - im2
            else:
                scratch[at], scratch[at + size] = re, im
                scratch[at + 2 * size], scratch[at + 3 * size] = 0, 0


@njit(nogil=True, cache=True)
def _fold_lines(scratch, mixed, line, p, to):
    """Write the same along y, of the lines at ``mixed``, (n, 2, line); each part (p, line)."""
    n, size = 2 * p - 1, p * line
    for k in range(p):
        for i in range(line):
            here = mixed + 2 * k * line + i
            re, im = scratch[here], scratch[here + line]
            at = to + k * line + i
            if k:
                there = mixed + 2 * (n - k) * line + i
                re2, im2 = scratch[there], scratch[there + line]
                scratch[at], scratch[at + size] = re + re2, im + im2
                scratch[at + 2 * size], scratch[at + 3 * size] = re - re2, im - im2
            else:
                scratch[at], scratch[at + size] = re, im
                scratch[at + 2 * size], scratch[at + 3 * size] = 0, 0


@njit(nogil=True, cache=True)
def _unfold(cosine, sine, scratch, at, size, real, imaginary, width):
    """Write the sum over k of F(k) e^(ikx) at p points, from sums and differences at ``at``."""
    _times_both(cosine, sine, scratch, at, at + 3 * size, real, width, -1)
    _times_both(cosine, sine, scratch, at + size, at + 2 * size, imaginary, width, 1)
