"""The compiled loops, in vectors of the host's width.

Each loop is emitted as LLVM vector operations, because LLVM's loop vectoriser prefers 256-bit
vectors on processors that have 512; so the executed operations are the counted ones. The same code
serves every processor: only the width of a vector and the number of accumulators depend on the
host, and LLVM splits vectors that are wider than the host's.

The loops are compiled on the node, for the node. Numba stores the machine code in this folder's
``__pycache__``; if that is not writable, in the user's cache directory; or in ``NUMBA_CACHE_DIR``
if that is set. Its index is keyed by the processor's name and features, so that different nodes can
share a file system.

All loops release the GIL.
"""

# Numba's intrinsics take a typing context, and functions that Numba types.
# mypy: disable-error-code="no-untyped-def,attr-defined,call-arg"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from kernels.host.processor import host_vectors
from kernels.host.vectors import broadcast, fence

_HOST = host_vectors()
VECTOR_BYTES, _REGISTERS, FUSED = _HOST.bytes, _HOST.registers, _HOST.fused
STREAM_VECTORS = _REGISTERS // 2
"""Accumulators of the loops that load: enough to hide the latency of a multiply-add (4 cycles of 2
or 4 pipes), and a power of two, to divide every working set."""
CHAIN_VECTORS = 3 * _REGISTERS // 4
"""Accumulators of the loop without loads; they and its four constants fit in the registers."""


def stream_lanes(dtype: np.dtype[Any]) -> int:
    """The number of one-word accumulators of :func:`chain_even`, :func:`chain_odd`,
    :func:`total`."""
    return STREAM_VECTORS * VECTOR_BYTES // dtype.itemsize


def chain_lanes(dtype: np.dtype[Any]) -> int:
    """The number of one-word accumulators of :func:`chain_registers`."""
    return CHAIN_VECTORS * VECTOR_BYTES // dtype.itemsize


class _Vectors:
    """Emits operations on a block of vector accumulators into a function being compiled."""

    def __init__(self, context: Any, builder: ir.IRBuilder, dtype: Any, count: int) -> None:
        self.context, self.builder = context, builder
        self.scalar = context.get_value_type(dtype)
        self.lanes = VECTOR_BYTES * 8 // dtype.bitwidth
        self.vector = ir.VectorType(self.scalar, self.lanes)
        self.count = count
        self.is_float = isinstance(dtype, types.Float)
        # Stack slots, which LLVM turns into registers, are simpler to emit than phi nodes.
        self.slots = [cgutils.alloca_once(builder, self.vector) for _ in range(count)]

    def pointer(self, array_type: types.Array, array: Any) -> Any:
        """The data of an array as a pointer to vectors."""
        data = self.context.make_array(array_type)(self.context, self.builder, array).data
        return self.builder.bitcast(data, self.vector.as_pointer())

    def load(self, pointer: Any, index: Any) -> Any:
        """The vector at an index (in vectors), which may be an int or an LLVM value."""
        return self.builder.load(self._at(pointer, index), align=VECTOR_BYTES)

    def start(self, pointer: Any) -> None:
        """Load every accumulator."""
        # The fence prevents the compiler from moving the loads out of the loop over iterations.
        fence(self.builder)
        for i, slot in enumerate(self.slots):
            self.builder.store(self.load(pointer, i), slot)

    def store(self, pointer: Any) -> None:
        """Store every accumulator."""
        for i, slot in enumerate(self.slots):
            self.builder.store(self.builder.load(slot), self._at(pointer, i), align=VECTOR_BYTES)

    def multiply_add(self, factor: Any, addends: Callable[[int], Any]) -> None:
        """One multiply-add of every accumulator: x[i] = factor x[i] + addends(i)."""
        for i, slot in enumerate(self.slots):
            x = self.builder.load(slot)
            if self.is_float:
                x = self.builder.call(self._fmuladd(), [factor, x, addends(i)])
            else:
                x = self.builder.add(self.builder.mul(factor, x), addends(i))
            self.builder.store(x, slot)

    def add(self, addends: Callable[[int], Any]) -> None:
        """One integer addition to every accumulator: x[i] = x[i] + addends(i)."""
        for i, slot in enumerate(self.slots):
            self.builder.store(self.builder.add(self.builder.load(slot), addends(i)), slot)

    def _at(self, pointer: Any, index: Any) -> Any:
        if isinstance(index, int):
            index = ir.Constant(ir.IntType(64), index)
        return self.builder.gep(pointer, [index])

    def _fmuladd(self) -> Any:
        # fmuladd is fused if the host has the instruction, and never a library call.
        signature = ir.FunctionType(self.vector, [self.vector] * 3)
        name = f"llvm.fmuladd.v{self.lanes}{self.scalar.intrinsic_name}"
        return cgutils.get_or_insert_function(self.builder.module, signature, name)


@intrinsic
def _registers(typing, start, end, pairs, p, q, r, s):
    """Emit ``pairs`` times x = p x + q, x = r x + s, from ``start`` to ``end``."""

    def emit(context, builder, signature, arguments):
        arrays, (pairs, *constants) = arguments[:2], arguments[2:]
        block = _Vectors(context, builder, signature.args[0].dtype, CHAIN_VECTORS)
        p, q, r, s = (broadcast(builder, c, block.vector) for c in constants)
        first, last = (block.pointer(t, a) for t, a in zip(signature.args[:2], arrays, strict=True))
        block.start(first)
        with cgutils.for_range(builder, pairs):
            block.multiply_add(p, lambda _: q)
            block.multiply_add(r, lambda _: s)
        block.store(last)
        return context.get_dummy_value()

    return types.void(start, end, pairs, p, q, r, s), emit


def _stream_of_chains(odd: bool) -> Callable[..., Any]:
    """The loop that loads words; each replaces q or s in its step of a chain.

    Steps alternate between factors p and r, also across words. After a word with an odd number of
    steps the next word starts with the other factor, so the loop body has two rows of words.
    """

    @intrinsic
    def stream(typing, data, first, blocks, passes, start, end, half, p, q, r, s):
        def emit(context, builder, signature, arguments):
            data, first, blocks, passes, start, end, half, *constants = arguments
            block = _Vectors(context, builder, signature.args[0].dtype, STREAM_VECTORS)
            p, q, r, s = (broadcast(builder, c, block.vector) for c in constants)
            base = builder.gep(block.pointer(signature.args[0], data), [first])
            block.start(block.pointer(signature.args[4], start))

            def row(words: Any, offset: int, steps: list[tuple[Any, Any]]) -> None:
                """Emit one word into each chain, then the other steps of the word."""
                here, other = steps
                block.multiply_add(here[0], lambda i: block.load(words, offset + i))
                with cgutils.for_range(builder, half):
                    block.multiply_add(other[0], lambda _: other[1])
                    block.multiply_add(here[0], lambda _: here[1])
                if not odd:
                    block.multiply_add(other[0], lambda _: other[1])

            width = ir.Constant(ir.IntType(64), 2 * STREAM_VECTORS)
            steps = [(p, q), (r, s)]
            with cgutils.for_range(builder, passes), cgutils.for_range(builder, blocks) as loop:
                words = builder.gep(base, [builder.mul(loop.index, width)])
                row(words, 0, steps)
                row(words, STREAM_VECTORS, steps[::-1] if odd else steps)
            block.store(block.pointer(signature.args[5], end))
            return context.get_dummy_value()

        parameters = (data, first, blocks, passes, start, end, half, p, q, r, s)
        return types.void(*parameters), emit

    return stream


_stream_even = _stream_of_chains(odd=False)
_stream_odd = _stream_of_chains(odd=True)


@intrinsic
def _sum(typing, data, first, blocks, passes, start, end):
    """Add the words of ``passes`` passes over ``blocks`` blocks from vector ``first`` on."""

    def emit(context, builder, signature, arguments):
        data, first, blocks, passes, start, end = arguments
        block = _Vectors(context, builder, signature.args[0].dtype, STREAM_VECTORS)
        base = builder.gep(block.pointer(signature.args[0], data), [first])
        block.start(block.pointer(signature.args[4], start))
        width = ir.Constant(ir.IntType(64), 2 * STREAM_VECTORS)
        with cgutils.for_range(builder, passes), cgutils.for_range(builder, blocks) as loop:
            words = builder.gep(base, [builder.mul(loop.index, width)])
            block.add(lambda i: block.load(words, i))
            block.add(lambda i: block.load(words, STREAM_VECTORS + i))
        block.store(block.pointer(signature.args[5], end))
        return context.get_dummy_value()

    return types.void(data, first, blocks, passes, start, end), emit


@intrinsic
def _follow(typing, address):
    """The 64-bit word at an address."""

    def emit(context, builder, signature, arguments):
        word = ir.IntType(64)
        return builder.load(builder.inttoptr(arguments[0], word.as_pointer()), align=8)

    return types.int64(types.int64), emit


@njit(nogil=True, cache=True)
def chain_registers(start, end, steps, p, q, r, s, iterations):
    """Run ``iterations`` times ``steps`` multiply-adds of every accumulator, without loads.

    Args:
        start, end: accumulators before and after, :func:`chain_lanes` words, aligned to a
            vector.
        steps: multiply-adds of one accumulator in one iteration, even: x = p x + q and
            x = r x + s alternately.
        p, q, r, s: the constants, scalars of the arrays' type.
    """
    for _ in range(iterations):
        _registers(start, end, steps // 2, p, q, r, s)


@njit(nogil=True, cache=True)
def chain_even(data, first, words, start, end, steps, p, q, r, s, iterations):
    """Run ``iterations`` times, for each of ``words`` words, ``steps`` multiply-adds (even).

    Word i of the data is the addend of the first step of accumulator i modulo
    :func:`stream_lanes`; the other steps have q (factor p) and s (factor r).

    Args:
        data: the working set, a power of two of words, aligned to a vector.
        first: index of the first word; an iteration starts at the end of the previous one.
        words: words of one iteration, a power of two.
        start, end: accumulators before and after an iteration, :func:`stream_lanes` words.
        steps: multiply-adds per word.
        p, q, r, s: the constants, scalars of the data's type.

    Returns:
        The index of the first word of the next iteration.
    """
    vector = start.size // STREAM_VECTORS
    span = min(words, data.size)
    for _ in range(iterations):
        _stream_even(
            data, first // vector, span // (2 * start.size), words // span,
            start, end, (steps - 1) // 2, p, q, r, s,
        )  # fmt: skip
        first = (first + words) % data.size
    return first


@njit(nogil=True, cache=True)
def chain_odd(data, first, words, start, end, steps, p, q, r, s, iterations):
    """:func:`chain_even` for an odd number of steps per word: factors alternate across words."""
    vector = start.size // STREAM_VECTORS
    span = min(words, data.size)
    for _ in range(iterations):
        _stream_odd(
            data, first // vector, span // (2 * start.size), words // span,
            start, end, (steps - 1) // 2, p, q, r, s,
        )  # fmt: skip
        first = (first + words) % data.size
    return first


@njit(nogil=True, cache=True)
def total(data, first, words, start, end, iterations):
    """Add ``iterations`` times ``words`` integers to the accumulators, one addition per word.

    Arguments and result as in :func:`chain_even`. Integers, because floating-point additions of
    512-bit vectors lower the clock of many processors, and with it the bandwidth of the caches.
    """
    vector = start.size // STREAM_VECTORS
    span = min(words, data.size)
    for _ in range(iterations):
        _sum(
            data, first // vector, span // (2 * start.size), words // span, start, end,
        )  # fmt: skip
        first = (first + words) % data.size
    return first


@njit(nogil=True, cache=True)
def chase(address, hops, iterations):
    """Run ``iterations`` times ``hops`` dependent loads, starting at an address (bytes).

    Returns:
        The address after the last hop.
    """
    for _ in range(iterations):
        for _ in range(hops):
            address = _follow(address)
    return address
