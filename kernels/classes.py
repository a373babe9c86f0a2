"""The classes of operations that the kernels here count, each with its meaning.

``dvfs.dataset`` has the unit of each class. A command may count other classes.
"""

from __future__ import annotations

CLASSES = {
    "sp": "single-precision floating-point operations; a multiply-add is two",
    "dp": "double-precision floating-point operations; a multiply-add is two",
    "half": "half-precision floating-point operations; a multiply-add is two",
    "sfu": "special functions of a GPU, such as reciprocal square roots",
    "tc_dp": "double-precision floating-point operations of tensor cores",
    "tc_half": "half-precision and bf16 floating-point operations of tensor cores",
    "tc_fp8": "floating-point operations of tensor cores on 8-bit numbers",
    "int": "integer operations",
    "sp_add": "single-precision additions, where counted separately",
    "sp_mul": "single-precision multiplications, where counted separately",
    "dp_add": "double-precision additions, where counted separately",
    "dp_mul": "double-precision multiplications, where counted separately",
    "int_add": "integer additions, where counted separately",
    "int_max": "maxima of two integers",
    "shared": "bytes of a GPU's shared memory",
    "l1": "bytes of the first-level cache",
    "l2": "bytes of the second-level cache",
    "l3": "bytes of the third-level cache",
    "dram": "bytes of main memory",
    "stall": "cycles in which a GPU's processors wait, added up",
    "barrier": "waits until all of a tile's previous row is computed",
    "launch": "starts of tiles that do not depend on each other",
}
"""Class -> meaning. A byte is counted once, at the level that served it."""
