"""The numbers that tensor cores multiply, as bits and as float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
E4M3_BIAS, E4M3_LARGEST = 7, 448.0
SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


@dataclass(frozen=True, kw_only=True)
class TensorNumber:
    """A kind of number that tensor cores multiply.

    ``code``: the sources' ``NUMBER``; ``dtype``: of its bits, as :attr:`encode` makes them from
    float64 (the nearest number) and :attr:`decode` reads them back; ``sums``: the type of sums;
    ``counted_as``: its class; ``tolerance``: of sums, relative to the largest. The sums of 8-bit
    numbers keep about 14 bits in some tensor cores (DeepSeek-AI 2024).
    """

    code: int
    dtype: np.dtype[Any]
    encode: Callable[[Array], Array]
    decode: Callable[[Array], Array]
    counted_as: str
    tolerance: float
    sums: np.dtype[Any] = SINGLE


def bf16_from(values: Array) -> Array:
    """The nearest bf16 numbers, the upper half of a float32: uint16."""
    bits = values.astype(np.float32).view(np.uint32)
    half_up = 0x7FFF + ((bits >> np.uint32(16)) & np.uint32(1))
    return ((bits + half_up) >> np.uint32(16)).astype(np.uint16)


def bf16_values(bits: Array) -> Array:
    """What they stand for: float64."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


def e4m3_values(bits: Array) -> Array:
    """What 8-bit numbers of 4 bits exponent and 3 bits mantissa stand for: float64; NaN for 0x7f
    and 0xff (Micikevicius et al. 2022)."""
    exponent = ((bits >> 3) & 15).astype(np.int64)
    mantissa = (bits & 7) / 8.0
    scale = np.exp2(np.maximum(exponent, 1) - E4M3_BIAS)
    size = np.where(exponent > 0, 1.0 + mantissa, mantissa) * scale
    size = np.where((bits & 127) == 127, np.nan, size)
    return np.where(bits >> 7, -size, size)


def e4m3_from(values: Array) -> Array:
    """The nearest such numbers, at most 448: uint8."""
    size = np.minimum(np.abs(values), E4M3_LARGEST)
    lowest = 1 - E4M3_BIAS
    exponent = np.floor(np.log2(np.maximum(size, 2.0**lowest))).astype(np.int64)
    step = np.exp2(exponent - 3)
    eighths = np.rint(size / step).astype(np.int64)
    # 16 eighths are the next exponent's first; below 8 the number is subnormal.
    bits = np.where(eighths >= 8, (exponent - lowest) * 8 + eighths, eighths)
    return (bits | np.where(np.signbit(values), 128, 0)).astype(np.uint8)


def _half_from(values: Array) -> Array:
    return values.astype(np.float16).view(np.uint16)


def _half_values(bits: Array) -> Array:
    return bits.view(np.float16).astype(np.float64)


def _same(values: Array) -> Array:
    return values


TENSOR_NUMBERS = {
    "dp": TensorNumber(
        code=0,
        dtype=DOUBLE,
        encode=_same,
        decode=_same,
        counted_as="tc_dp",
        tolerance=1e-13,
        sums=DOUBLE,
    ),
    "half": TensorNumber(
        code=1,
        dtype=np.dtype(np.uint16),
        encode=_half_from,
        decode=_half_values,
        counted_as="tc_half",
        tolerance=1e-4,
    ),
    "bf16": TensorNumber(
        code=2,
        dtype=np.dtype(np.uint16),
        encode=bf16_from,
        decode=bf16_values,
        counted_as="tc_half",
        tolerance=1e-4,
    ),
    "fp8": TensorNumber(
        code=3,
        dtype=np.dtype(np.uint8),
        encode=e4m3_from,
        decode=e4m3_values,
        counted_as="tc_fp8",
        tolerance=0.01,
    ),
}
