"""The variants of the U phase: a declared space of some hundreds.

As Choi and Vuduc did, who measured about 390 implementations of this one loop (A roofline model
of energy, GT-CSE-2012-01, section 5.3): they differ in how data lie, what is held in registers
and how far loops are unrolled. Every variant computes the same sums, to its own accuracy.

Imports no Numba, so that a plan can list the space.
"""

from __future__ import annotations

from itertools import product
from typing import Any, Literal, get_args

from pydantic import Field, model_validator

from kernels.kernel import Params

Layout = Literal["soa", "aos", "blocked"]
Side = Literal["targets", "sources"]
Ways = Literal["one", "both"]
Precision = Literal["single", "double"]
Root = Literal["sqrt", "estimate", "newton1", "newton2"]
VectorBits = Literal[256, 512]
Tile = Literal[1, 2, 4]
Unroll = Literal[1, 2, 4]

REGISTERS = 32
"""Vector registers that a variant may need: those of AVX-512 and of aarch64. Where there are
16, the compiler keeps the rest on the stack."""
ITEM_BYTES = {"single": 4, "double": 8}
STEPS = {"estimate": 0, "newton1": 1, "newton2": 2}
"""Newton steps after the processor's estimate of 1 / sqrt(x)."""
ESTIMATE_ERROR = {256: 1.5 * 2.0**-12, 512: 2.0**-14}
"""Largest relative error of the estimate by the vector's bits: of vrsqrtps and vrsqrt14ps."""
_WORKED_WITH = 6
"""Registers for one pair's differences, squares and root."""
_CONSTANTS = {"sqrt": 1, "estimate": 0, "newton1": 1, "newton2": 2}
_ROUNDING = {"single": 2.0**-24, "double": 2.0**-53}


class Variant(Params):
    """One way to write the loops of the U phase.

    Attributes:
        layout: of the points' numbers. ``soa``: rows of x, of y, of z and of charges;
            ``aos``: x, y, z and charge of each point side by side; ``blocked``: a vector of x,
            of y, of z and of charges in turn.
        lanes: which points lie in the lanes of vectors. ``targets``: a tile is vectors of
            targets, sources come one by one, in all lanes; ``sources``: a tile is targets, each
            in all lanes, and sources come in vectors.
        tile: vectors of targets, or targets, that are held in registers together with their
            sums while all sources of the U list pass.
        unroll: sources, or vectors of sources, that one pass of the inner loop takes.
        ways: ``one``: a distance is computed for each of the two points' sums; ``both``: once
            for both (Newton's third law).
        precision: of coordinates, charges and sums.
        root: of 1 / r: by square root and division, or by the processor's estimate and Newton
            steps.
        vector_bits: of one vector.
        threads: of one rank; they share the leaves.
    """

    layout: Layout = "soa"
    lanes: Side = "targets"
    tile: Tile = 4
    unroll: Unroll = 1
    ways: Ways = "one"
    precision: Precision = "single"
    root: Root = "newton1"
    vector_bits: VectorBits = 512
    threads: int = Field(default=1, ge=1, le=4096)

    @model_validator(mode="after")
    def _can_be_built(self) -> Variant:
        if self.precision == "double" and self.root == "estimate":
            raise ValueError(
                "root 'estimate' has at most 14 of double precision's 53 bits: take 'newton1', "
                "'newton2' or 'sqrt', or single precision"
            )
        if self.precision == "single" and self.root == "newton2":
            raise ValueError(
                "root 'newton2' computes more bits than single precision's 24: take 'newton1'"
            )
        if (needed := registers(self)) > REGISTERS:
            raise ValueError(
                f"tile {self.tile} and unroll {self.unroll} with lanes {self.lanes!r}, ways "
                f"{self.ways!r}, layout {self.layout!r} and root {self.root!r} need {needed} "
                f"vector registers of {REGISTERS}: make tile or unroll smaller"
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
        """What the loops' sums are times the sums of q / r: a Newton step's 1 / 2 is left out."""
        return 2.0 if STEPS.get(self.root) else 1.0

    def tiles(self) -> tuple[int, ...]:
        """The sizes of tiles, largest first: what is left of a leaf goes into smaller ones."""
        return tuple(size for size in (4, 2, 1) if size <= self.tile)

    def name(self) -> str:
        """All that the compiled loops depend on, in one word."""
        return (
            f"{self.layout}-{self.lanes}{self.tile}x{self.unroll}-{self.ways}-"
            f"{self.precision}-{self.root}-{self.vector_bits}"
        )


def registers(variant: Variant) -> int:
    """Vector registers that a loop needs, by a model.

    A held vector or target has x, y, z and a sum, and its charge where it acts too. A source has
    four numbers, and a sum where sums of sources are vectors. To these come one pair's
    intermediate values, the constants of the root, and the four vectors from which vectors of
    sources are sorted where x, y, z and charge lie side by side.
    """
    both = variant.ways == "both"
    held = (5 if both else 4) * variant.tile
    in_vectors = variant.lanes == "sources"
    passing = (5 if both and in_vectors else 4) * variant.unroll
    sorting = 4 if variant.layout == "aos" and in_vectors else 0
    return held + passing + sorting + _WORKED_WITH + _CONSTANTS[variant.root]


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
    found = []
    for values in product(*choices.values()):
        given = dict(zip(choices, values, strict=True))
        try:
            variant = Variant.model_validate(
                {**given, "vector_bits": vector_bits, "threads": threads}
            )
        except ValueError:
            continue
        found.append(variant)
    return found


def instructions(root: Root, ways: Ways) -> dict[str, int]:
    """Vector instructions of one vector of pairs, by name: the phase's mix.

    Differences, their squares' sum, 1 / r, and one multiply-add for each sum. Eleven flops with
    ``estimate`` and ``one`` (Choi and Vuduc, as above, section 5.4).
    """
    mix = {"add": 3, "mul": 1, "fma": 3 if ways == "one" else 4}
    if root == "sqrt":
        return {**mix, "sqrt": 1, "division": 1}
    steps = STEPS[root]
    # A step is y (3 - x y^2) / 2; the last one's 1 / 2 is left out.
    mix["mul"] += 2 * steps + max(steps - 1, 0)
    mix["fma"] += steps
    return {**mix, "estimate": 1}


def flops(mix: dict[str, int]) -> int:
    """Operations of a mix in one lane: two of a multiply-add, one of everything else."""
    return sum(count * (2 if name == "fma" else 1) for name, count in mix.items())


def tolerance(variant: Variant, terms: int) -> float:
    """The largest error that a sum of so many terms q / r may have, of the sum of \\|q\\| / r.

    The root's error, that of a few roundings in each term, and that of the additions, which
    grows as a random walk.
    """
    error = 0.0
    if variant.root != "sqrt":
        error = ESTIMATE_ERROR[variant.vector_bits]
        for _ in range(STEPS[variant.root]):
            error = 1.5 * error**2
    return error + (8 + 2 * max(terms, 1) ** 0.5) * _ROUNDING[variant.precision]
