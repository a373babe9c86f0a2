"""The classes of operations that the kernels here count, each with its meaning.

``dvfs.dataset`` has the unit of each class. A command may count classes of its own.
"""

from __future__ import annotations

CLASSES = {
    "sp": "single-precision floating-point operations; a multiply-add is two",
    "dp": "double-precision floating-point operations; a multiply-add is two",
    "half": "half-precision floating-point operations; a multiply-add is two",
    "sfu": "special functions of a GPU, such as reciprocal square roots",
    "tc_dp": "double-precision floating-point operations of tensor cores; a multiply-add is two",
    "tc_half": "half-precision floating-point operations of tensor cores, bf16 among them; a "
    "multiply-add is two",
    "tc_fp8": "floating-point operations of tensor cores on 8-bit numbers; a multiply-add is two",
    "int": "integer operations",
    "sp_add": "single-precision additions and subtractions, where they are counted apart",
    "sp_mul": "single-precision multiplications, where they are counted apart",
    "dp_add": "double-precision additions and subtractions, where they are counted apart",
    "dp_mul": "double-precision multiplications, where they are counted apart",
    "int_add": "integer additions, where they are counted apart",
    "int_max": "maxima of two integers",
    "shared": "bytes served by the shared memory of a GPU",
    "l1": "bytes served by the first-level cache",
    "l2": "bytes served by the second-level cache",
    "l3": "bytes served by the third-level cache",
    "dram": "bytes served by the main memory",
    "stall": "cycles in which a processor of a GPU waits, added over its processors",
    "barrier": "waits until all of a tile's previous row is computed",
    "launch": "starts of tiles that do not depend on each other",
}
"""Class -> meaning. A byte is counted once, at the level that served it."""
