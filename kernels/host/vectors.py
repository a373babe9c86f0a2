"""Vector operations, emitted as LLVM instructions into functions that Numba compiles.

The loops in which an FMM spends its time are written in vectors of the host's width, because the
loop vectoriser cannot use the processor's estimate of 1 / sqrt(x) and prefers 256-bit vectors on
processors with 512-bit vectors.
"""

# Numba's intrinsics take a typing context, and Numba types their arguments.
# mypy: disable-error-code="no-untyped-def,attr-defined,call-arg"

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from kernels.host.exp_series import EXP_TERMS
from kernels.host.processor import host_vectors

HOST = host_vectors()
INDEX = ir.IntType(64)
SECOND_CACHE, DATA = 2, 1  # arguments of llvm.prefetch


def lanes_of(itemsize: int) -> int:
    """The number of lanes of ``itemsize`` bytes in a vector of this host."""
    return HOST.bytes // itemsize


def estimate_bits(bits: int) -> int:
    """The correct bits of the host's estimate of 1 / sqrt(x), for numbers of ``bits`` bits."""
    match HOST.estimate:
        case "avx512":
            return 14
        case "avx" | "sse" if bits == 32 or HOST.bytes == 32:
            return 11
        case _:
            return 23 if bits == 32 else 52


def broadcast(builder: ir.IRBuilder, value: Any, vector: ir.VectorType) -> Any:
    """A vector with a scalar in every lane."""
    i32 = ir.IntType(32)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(i32, 0))
    mask = ir.Constant(ir.VectorType(i32, vector.count), [0] * vector.count)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), mask)


def fence(builder: ir.IRBuilder) -> None:
    """Keep the compiler from moving loads across this point."""
    clobber = ir.FunctionType(ir.VoidType(), [])
    builder.asm(clobber, "", "~{memory}", [], side_effect=True)


class Vectors:
    """Emits operations on vectors of a floating-point type into the function being compiled."""

    def __init__(self, context: Any, builder: ir.IRBuilder, bits: int, lanes: int = 0) -> None:
        self.context, self.builder, self.bits = context, builder, bits
        self.scalar = ir.DoubleType() if bits == 64 else ir.FloatType()
        self.lanes = lanes or lanes_of(bits // 8)
        self.vector = ir.VectorType(self.scalar, self.lanes)

    def data(self, array_type: Any, array: Any) -> Any:
        """The pointer to an array's first number."""
        return self.context.make_array(array_type)(self.context, self.builder, array).data

    def rows(self, array_type: Any, array: Any, count: int) -> list[Any]:
        """The pointers to the first numbers of the first rows of a (rows, n) array."""
        struct = self.context.make_array(array_type)(self.context, self.builder, array)
        stride = self.builder.extract_value(struct.strides, 0)
        bytes_of = self.builder.bitcast(struct.data, ir.IntType(8).as_pointer())
        rows = []
        for i in range(count):
            at = self.builder.gep(bytes_of, [self.builder.mul(stride, ir.Constant(INDEX, i))])
            rows.append(self.builder.bitcast(at, self.scalar.as_pointer()))
        return rows

    def constant(self, value: float) -> Any:
        """A vector with a constant in every lane."""
        return ir.Constant(self.vector, [value] * self.lanes)

    def spread(self, value: Any) -> Any:
        """A vector with a scalar in every lane."""
        return broadcast(self.builder, value, self.vector)

    def number(self, pointer: Any, index: Any) -> Any:
        """The number at an index, in every lane."""
        return self.spread(self.builder.load(self.builder.gep(pointer, [index])))

    def load(self, pointer: Any, index: Any) -> Any:
        """The vector that begins with the number at an index."""
        return self.builder.load(self._at(pointer, index), align=self.bits // 8)

    def store(self, value: Any, pointer: Any, index: Any) -> None:
        """Store a vector at the numbers from an index on."""
        self.builder.store(value, self._at(pointer, index), align=self.bits // 8)

    def prefetch(self, pointer: Any, index: Any, *, write: bool = False) -> None:
        """Prefetch the number at an index into the second-level cache."""
        bytes_at, i32 = ir.IntType(8).as_pointer(), ir.IntType(32)
        at = self.builder.bitcast(self.builder.gep(pointer, [index]), bytes_at)
        flags = (int(write), SECOND_CACHE, DATA)
        arguments = [at, *(ir.Constant(i32, flag) for flag in flags)]
        self._named("llvm.prefetch.p0i8", ir.VoidType(), arguments)

    def fence(self) -> None:
        """Keep the compiler from moving loads across, which would lengthen short chains."""
        fence(self.builder)

    def stop_unrolling(self) -> None:
        """Keep the compiler from unrolling a loop: it does not unroll loops with calls."""
        self.builder.asm(ir.FunctionType(ir.VoidType(), []), "", "", [], side_effect=True)

    def slot(self, value: Any) -> Any:
        """A variable that persists across a loop: a stack slot that LLVM turns into a register."""
        slot = cgutils.alloca_once(self.builder, value.type)
        self.builder.store(value, slot)
        return slot

    def add(self, a: Any, b: Any) -> Any:
        """a + b."""
        return self.builder.fadd(a, b)

    def sub(self, a: Any, b: Any) -> Any:
        """a - b."""
        return self.builder.fsub(a, b)

    def mul(self, a: Any, b: Any) -> Any:
        """a b."""
        return self.builder.fmul(a, b)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """a b + c, fused where the host has the instruction."""
        return self._call("llvm.fmuladd", [a, b, c])

    def nfma(self, a: Any, b: Any, c: Any) -> Any:
        """c - a b."""
        return self.fma(self.builder.fneg(a), b, c)

    def min(self, a: Any, b: Any) -> Any:
        """The smaller, lane by lane; b where a is not a number."""
        return self.builder.select(self.builder.fcmp_ordered("<", a, b), a, b)

    def total(self, a: Any) -> Any:
        """The sum of the lanes, a scalar."""
        width = self.lanes
        while width > 1:
            width //= 2
            i32 = ir.IntType(32)
            undefined = ir.Constant(a.type, ir.Undefined)
            low, high = (
                self.builder.shuffle_vector(
                    a, undefined, ir.Constant(ir.VectorType(i32, width), list(lanes))
                )
                for lanes in (range(width), range(width, 2 * width))
            )
            a = self.builder.fadd(low, high)
        return self.builder.extract_element(a, ir.Constant(ir.IntType(32), 0))

    def where_positive(self, x: Any, value: Any, otherwise: float = 0.0) -> Any:
        """``value`` where x > 0, and ``otherwise`` elsewhere."""
        positive = self.builder.fcmp_ordered(">", x, self.constant(0.0))
        return self.builder.select(positive, value, self.constant(otherwise))

    def exp(self, x: Any) -> Any:
        """exp(x) for x <= 0, accurate to the last bits: 2^k times a Taylor series of the remainder.

        A result below the smallest normal number is replaced by about that number.
        """
        terms = EXP_TERMS[self.bits]
        lowest, mantissa, bias = (-708.0, 52, 1023) if self.bits == 64 else (-87.0, 23, 127)
        low = self.constant(lowest)
        x = self.builder.select(self.builder.fcmp_ordered(">", x, low), x, low)
        k = self._call("llvm.rint", [self.mul(x, self.constant(math.log2(math.e)))])
        # ln 2 in two parts; the first has few bits, so that its product with k is exact.
        f = self.fma(k, self.constant(-0.693359375), x)
        f = self.fma(k, self.constant(2.12194440054690583e-4), f)
        series = self.constant(1.0 / math.factorial(terms))
        for i in range(terms - 1, -1, -1):
            series = self.fma(series, f, self.constant(1.0 / math.factorial(i)))
        whole = ir.VectorType(ir.IntType(self.bits), self.lanes)
        power = self.builder.fptosi(k, whole)
        power = self.builder.add(power, ir.Constant(whole, [bias] * self.lanes))
        power = self.builder.shl(power, ir.Constant(whole, [mantissa] * self.lanes))
        return self.mul(series, self.builder.bitcast(power, self.vector))

    def rsqrt_estimate(self, x: Any) -> Any:
        """1 / sqrt(x), correct to :func:`estimate_bits` bits."""
        zero = self.constant(0.0)
        match HOST.estimate:
            case "avx512" if self.lanes * self.bits == 512:
                mask = ir.IntType(self.lanes)
                every = ir.Constant(mask, -1)
                kind = "ps" if self.bits == 32 else "pd"
                name = f"llvm.x86.avx512.rsqrt14.{kind}.512"
                return self._named(name, self.vector, [x, zero, every])
            case "avx" | "avx512" | "sse" if self.bits == 32 and self.lanes in {4, 8}:
                name = "avx.rsqrt.ps.256" if self.lanes == 8 else "sse.rsqrt.ps"
                return self._named(f"llvm.x86.{name}", self.vector, [x])
            case "avx" | "avx512" | "sse" if self.lanes == 4:
                single = Vectors(self.context, self.builder, 32, 4)
                narrow = self.builder.fptrunc(x, single.vector)
                return self.builder.fpext(single.rsqrt_estimate(narrow), self.vector)
            case _:
                root = self._call("llvm.sqrt", [x])
                return self.builder.fdiv(self.constant(1.0), root)

    def _at(self, pointer: Any, index: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(pointer, [index]), self.vector.as_pointer())

    def _call(self, name: str, arguments: list[Any]) -> Any:
        suffix = f"v{self.lanes}{self.scalar.intrinsic_name}"
        return self._named(f"{name}.{suffix}", self.vector, arguments)

    def _named(self, name: str, result: Any, arguments: list[Any]) -> Any:
        signature = ir.FunctionType(result, [argument.type for argument in arguments])
        function = cgutils.get_or_insert_function(self.builder.module, signature, name)
        return self.builder.call(function, arguments)
