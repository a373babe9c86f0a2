"""The variants of the U phase: a declared space of several hundred.

Choi & Vuduc (2012, section 5.3) measured about 390 implementations of this loop. The variants
differ in the layout of the data, in the data held in registers and in the unrolling of loops.
All variants compute the same sums, to different accuracies.

Imports no Numba, so that a plan can list the space.
"""

from __future__ import annotations

from itertools import product
from typing import Any, Literal, get_args

from pydantic import Field, model_validator

from kernels.kernel import ParameterError, Params

Layout = Literal["soa", "aos", "blocked"]
Side = Literal["targets", "sources"]
Ways = Literal["one", "both"]
Precision = Literal["single", "double"]
Root = Literal["sqrt", "estimate", "newton1", "newton2"]
VectorBits = Literal[256, 512]
Tile = Literal[1, 2, 4]
Unroll = Literal[1, 2, 4]

REGISTERS = 32
"""The most vector registers of a variant: AVX-512 and aarch64 have as many. On processors with 16,
the compiler keeps the other values on the stack."""
ITEM_BYTES = {"single": 4, "double": 8}
STEPS = {"estimate": 0, "newton1": 1, "newton2": 2}
"""Newton steps after the processor's estimate of 1 / sqrt(x)."""
ESTIMATE_ERROR = {256: 1.5 * 2.0**-12, 512: 2.0**-14}
"""Bits of a vector -> largest relative error of the estimate, by vrsqrtps and vrsqrt14ps."""
_TEMPORARIES = 6
"""Registers for a pair's differences, squares and root."""
_CONSTANTS = {"sqrt": 1, "estimate": 0, "newton1": 1, "newton2": 2}
_ROUNDING = {"single": 2.0**-24, "double": 2.0**-53}


class Variant(Params):
    """A variant of the loops of the U phase."""

    layout: Layout = "soa"
    """soa: rows of x, y, z and charges; aos: x, y, z and charge of each point together; blocked: a
    vector each of x, y, z and charges, repeated"""
    lanes: Side = "targets"
    """which points fill the SIMD lanes; the others are broadcast"""
    tile: Tile = 4
    """targets, or vectors of them, in registers while all sources pass"""
    unroll: Unroll = 1
    """sources, or vectors of them, in one pass of the inner loop"""
    ways: Ways = "one"
    """whether a distance is computed for each point's sum, or once for both (Newton's third law)"""
    precision: Precision = "single"
    """of coordinates, charges and sums"""
    root: Root = "newton1"
    """1 / r by square root and division, or by the processor's estimate and 0, 1 or 2 Newton
    steps"""
    vector_bits: VectorBits = 512
    """bits of a vector"""
    threads: int = Field(default=1, ge=1, le=4096)
    """threads of one rank, which share the leaves"""

    @model_validator(mode="after")
    def _can_be_built(self) -> Variant:
        if self.precision == "double" and self.root == "estimate":
            raise ParameterError(
                "root",
                "found 'estimate', which has at most 14 of double precision's 53 bits",
                "use 'newton1', 'newton2' or 'sqrt', or single precision",
            )
        if self.precision == "single" and self.root == "newton2":
            raise ParameterError(
                "root",
                "found 'newton2', which computes more bits than single precision's 24",
                "use 'newton1'",
            )
        if (needed := registers(self)) > REGISTERS:
            raise ParameterError(
                "tile",
                f"tile {self.tile} and unroll {self.unroll} with lanes {self.lanes!r}, ways "
                f"{self.ways!r}, layout {self.layout!r} and root {self.root!r} need {needed} "
                f"vector registers of {REGISTERS}",
                "make tile or unroll smaller",
            )
        return self

    @property
    def item_bytes(self) -> int:
        """Bytes of a number."""
        return ITEM_BYTES[self.precision]

    @property
    def width(self) -> int:
        """Numbers in a vector."""
        return self.vector_bits // 8 // self.item_bytes

    @property
    def unit(self) -> float:
        """The factor of the loops' sums: 2 where the last Newton step omits the 1 / 2."""
        return 2.0 if STEPS.get(self.root) else 1.0

    def tiles(self) -> tuple[int, ...]:
        """The sizes of tiles, largest first: the remainder of a leaf goes into smaller tiles."""
        return tuple(size for size in (4, 2, 1) if size <= self.tile)

    def name(self) -> str:
        """Everything that the compiled loops depend on, as one word."""
        return (
            f"{self.layout}-{self.lanes}{self.tile}x{self.unroll}-{self.ways}-"
            f"{self.precision}-{self.root}-{self.vector_bits}"
        )


def registers(variant: Variant) -> int:
    """The number of vector registers that a loop needs, by a model.

    A held vector or target has x, y, z and a sum, and a charge where it also acts as a source. A
    source has four numbers, and a sum where sums of sources are vectors. In addition there are one
    pair's intermediate values, the constants of the root, and for vectors of sources in the layout
    aos four vectors of unsorted numbers.
    """
    both = variant.ways == "both"
    held = (5 if both else 4) * variant.tile
    in_vectors = variant.lanes == "sources"
    passing = (5 if both and in_vectors else 4) * variant.unroll
    sorting = 4 if variant.layout == "aos" and in_vectors else 0
    return held + passing + sorting + _TEMPORARIES + _CONSTANTS[variant.root]


def variants(vector_bits: int = 512, threads: int = 1) -> list[Variant]:
    """All variants that can be built, in a fixed order."""
    choices: dict[str, tuple[Any, ...]] = {
        "layout": get_args(Layout),
        "lanes": get_args(Side),
        "tile": get_args(Tile),
        "unroll": get_args(Unroll),
        "ways": get_args(Ways),
        "precision": get_args(Precision),
        "root": get_args(Root),
    }
    space = []
    for values in product(*choices.values()):
        given = dict(zip(choices, values, strict=True))
        try:
            variant = Variant.model_validate(
                {**given, "vector_bits": vector_bits, "threads": threads}
            )
        except ValueError:
            continue
        space.append(variant)
    return space


def instructions(root: Root, ways: Ways) -> dict[str, int]:
    """The phase's mix: instruction -> number of vector instructions for one vector of pairs.

    Differences, the sum of their squares, 1 / r, and one multiply-add for each sum. Eleven flops
    with ``estimate`` and ``one`` (Choi & Vuduc 2012, section 5.4).
    """
    mix = {"add": 3, "mul": 1, "fma": 3 if ways == "one" else 4}
    if root == "sqrt":
        return {**mix, "sqrt": 1, "division": 1}
    steps = STEPS[root]
    # A step is y (3 - x y^2) / 2; the last step omits the 1 / 2.
    mix["mul"] += 2 * steps + max(steps - 1, 0)
    mix["fma"] += steps
    return {**mix, "estimate": 1}


def inner_loads(variant: Variant) -> float:
    """The least loads of vectors or broadcast numbers in the inner loop for one vector of pairs.

    Four numbers of each source, and its sum where it is written too, serve a whole tile.
    """
    return (5 if variant.ways == "both" else 4) / variant.tile


def flops(mix: dict[str, int]) -> int:
    """The flops of a mix in one lane: two for a multiply-add, one for any other instruction."""
    return sum(count * (2 if name == "fma" else 1) for name, count in mix.items())


def tolerance(variant: Variant, terms: int) -> float:
    """The largest allowed error of a sum of ``terms`` q / r, relative to the sum of \\|q\\| / r.

    It is the root's error plus the rounding errors; see :func:`rounding`.
    """
    error = 0.0
    if variant.root != "sqrt":
        error = ESTIMATE_ERROR[variant.vector_bits]
        for _ in range(STEPS[variant.root]):
            error = 1.5 * error**2
    return error + rounding(variant.precision, terms)


def rounding(precision: Precision, terms: int) -> float:
    """The part of the tolerance for rounding: a few roundings of each term, and the roundings of
    the additions, which grow as a random walk."""
    walk: float = max(terms, 1) ** 0.5
    return (8 + 2 * walk) * _ROUNDING[precision]
