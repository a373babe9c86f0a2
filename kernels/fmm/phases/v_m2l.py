"""M2L, the translations of the V phase, as products of spectra (Ying, Biros & Zorin 2004, 3.3).

The equivalent and check surfaces of a level are parts of p x p x p grids with equal spacing. So the
sum over a source cell's equivalent points is a convolution, for which 2p - 1 points a side suffice.
The children of two neighbouring parents act on each other by 8 x 8 products at every frequency
(Malhotra & Biros 2015, section 3.3). The spectra are stored with the frequency as the first axis:
the matrices of a frequency stay in the first-level cache during the loop over pairs of parents.
"""

# mypy: disable-error-code="no-untyped-def,attr-defined,call-arg"

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from kernels.fmm.constants import CHILDREN, V_REACH, blocking, interleaves_complex
from kernels.host.vectors import HOST, INDEX, Vectors

GROUP = blocking(HOST.registers).group


def offset_index() -> np.ndarray:
    """The offset between the centres of each pair of children, for each direction of parents.

    int32 (27, 8, 8): direction, source child, target child -> index into the 7 x 7 x 7 offsets
    (z slowest), 343 where the two touch. The direction is from target parent to source parent.
    """
    index = np.full((27, CHILDREN, CHILDREN), V_REACH**3, np.int32)
    for d in range(27):
        side = np.array([d % 3, d // 3 % 3, d // 9]) - 1
        for b in range(CHILDREN):
            for a in range(CHILDREN):
                bits = [np.array([o & 1, o >> 1 & 1, o >> 2]) for o in (b, a)]
                x, y, z = bits[1] - (2 * side + bits[0])
                if max(abs(x), abs(y), abs(z)) > 1:
                    index[d, b, a] = ((z + 3) * V_REACH + y + 3) * V_REACH + x + 3
    return index


def _pairs_of_parents(count: int) -> Any:
    """``count`` pairs: y[target] += M x[source], complex 8 x 8, at one frequency.

    ``m``: (27, 8, 2, 8), by direction and source child, the real and imaginary parts of a column
    over target children, from index ``m0`` on. ``x``, ``y``: (frequencies, parents + 1, 2, 8), from
    index ``x0`` on. ``pairs``: int32 (2, n), sources and targets, from ``i0`` on.
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
            if interleaves_complex(v.bits, HOST.bytes):
                _single(v, pm, m0, px, py, sources, targets)
            else:
                _split_parts(v, pm, m0, px, py, sources, targets)
            return context.get_dummy_value()

        return types.void(m, m0, x, y, x0, pairs, n, i0), emit

    return pairs_of_parents


def _split_parts(
    v: Vectors, pm: Any, m0: Any, px: Any, py: Any, sources: list[Any], targets: list[Any]
) -> None:
    """Emit the products with real and imaginary parts in separate vectors of 8 numbers."""
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


def _single(
    narrow: Vectors, pm: Any, m0: Any, px: Any, py: Any, sources: list[Any], targets: list[Any]
) -> None:
    """Emit the products with real and imaginary parts in one vector of 16 numbers."""
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
    """Add M x to y at frequencies ``first`` to ``last``, for all pairs of parents.

    Args:
        table: (frequencies, 2, 344), the translations' spectra by offset; the last is 0.
        offsets: int32 (27, 8, 8), of :func:`offset_index`.
        pairs: int32 (2, n), source and target parents, by direction; padded to whole groups
            with the number of parents, an index whose spectra are 0.
        starts: int64 (28,), the first pair of each direction.
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
