"""The refined peak of the U phase: the performance of the host with the phase's instruction mix.

A peak for multiply-adds alone cannot be reached by a loop that also needs additions, products and
roots. Choi & Vuduc (2012, section 5.4) refine it: they derive a bound from the rates of the
instructions, and check it with a synthetic loop that executes independent copies of the mix. Both
are measured here, on one thread, in loops that keep everything in registers, load nothing, and
depend only on results that are long complete.

A rate is in vector instructions per second. An interaction is one target's q / r, so that a
distance that is used both ways counts as two.
"""

# Numba's intrinsics take a typing context and functions that it types itself.
# mypy: disable-error-code="no-untyped-def,attr-defined,call-arg"

from __future__ import annotations

import platform
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from kernels.fmm_u.loops import (
    inverse_root,
    square_root,
    squared_distance,
    stop_unrolling,
)
from kernels.fmm_u.variants import ITEM_BYTES, Precision, Root, Ways, instructions
from kernels.host.static_type import static
from kernels.host.vectors import HOST, Vectors

CHAINS = HOST.registers * 3 // 8
"""Independent chains of one instruction, enough to hide its latency."""
COPIES = 4
"""Copies of a loop's instructions in one pass, so that the loop's counter costs little."""
ROUNDS = 20
"""Runs of a loop."""
RUN_S = 0.002
"""Approximate seconds of one run."""
ROOTS = {"estimate", "sqrt", "division"}
"""Instructions that another unit executes than multiply-adds."""


@dataclass(frozen=True)
class Mix:
    """Instructions to be timed: one by its name, or those of the phase's pairs (``pairs``)."""

    what: str
    precision: Precision
    root: Root
    ways: Ways
    vector_bits: int

    def name(self) -> str:
        """Everything that the compiled loop depends on."""
        return f"{self.what}-{self.precision}-{self.root}-{self.ways}-{self.vector_bits}"

    @property
    def width(self) -> int:
        """Numbers in a vector."""
        return self.vector_bits // 8 // ITEM_BYTES[self.precision]

    @property
    def held(self) -> int:
        """Targets held in registers, in loops over pairs."""
        return max(1, HOST.registers // 8 - (self.ways == "both"))

    def executed(self) -> int:
        """Instructions, or vectors of pairs, of one pass."""
        return COPIES * (self.held if self.what == "pairs" else CHAINS)


static(Mix)


@dataclass(frozen=True)
class Peak:
    """Upper bounds on interactions per second, one thread.

    ``rates_per_s``: of the mix's instructions, by name. ``serial_per_s``: if no root overlaps with
    the other instructions; ``overlap_per_s``: if roots and other instructions overlap completely,
    so that no loop can be faster. ``mix_per_s``: measured with the mix in registers, the refined
    peak.
    """

    rates_per_s: dict[str, float]
    serial_per_s: float
    overlap_per_s: float
    mix_per_s: float


class PeakMeter:
    """Measures instruction rates, and derives the peaks of mixes.

    The fastest run of each loop over all rounds counts: other work on the host slows loops down,
    and with rounds spread over a benchmark every loop runs undisturbed at least once.
    """

    def __init__(self, mixes: Iterable[tuple[Precision, Root, Ways]], vector_bits: int) -> None:
        """Compile the loops of ``mixes``, the mixes whose peaks can be computed."""
        self._bits = vector_bits
        self._best: dict[Mix, float] = {}
        self._passes: dict[Mix, int] = {}
        self._numbers: dict[Mix, np.ndarray] = {}
        for precision, root, ways in mixes:
            names = instructions(root, ways)
            for loop in [self._pairs(precision, root, ways)] + [
                self._single(name, precision) for name in names
            ]:
                self._best.setdefault(loop, 0.0)
        for loop in self._best:
            dtype = np.float32 if loop.precision == "single" else np.float64
            rng = np.random.default_rng(0)
            self._numbers[loop] = rng.uniform(0.5, 1.5, 64 * loop.width).astype(dtype)
            _run(loop, self._numbers[loop], 1)
            self._passes[loop] = 64
            while self._seconds(loop) < RUN_S / 2:
                self._passes[loop] *= 2

    def measure(self, rounds: int = ROUNDS) -> None:
        """Run every loop ``rounds`` times, interleaved."""
        for _ in range(rounds):
            for loop, best in self._best.items():
                rate = self._passes[loop] * loop.executed() / self._seconds(loop)
                self._best[loop] = max(best, rate)

    def peak(self, precision: Precision, root: Root, ways: Ways) -> Peak:
        """The peaks of a mix, from all runs so far."""
        pairs = self._pairs(precision, root, ways)
        mix = instructions(root, ways)
        rates = {name: self._best[self._single(name, precision)] for name in mix}
        seconds = {name: count / rates[name] for name, count in mix.items()}
        roots = sum(seconds[name] for name in mix if name in ROOTS)
        rest = sum(seconds.values()) - roots
        interactions = pairs.width * (1 if ways == "one" else 2)
        return Peak(
            rates,
            interactions / (roots + rest),
            interactions / max(roots, rest),
            interactions * self._best[pairs],
        )

    def _pairs(self, precision: Precision, root: Root, ways: Ways) -> Mix:
        return Mix("pairs", precision, root, ways, self._bits)

    def _single(self, name: str, precision: Precision) -> Mix:
        # The loop of one instruction is the same for every mix.
        return Mix(name, precision, "sqrt", "one", self._bits)

    def _seconds(self, loop: Mix) -> float:
        """Processor seconds of one run, so that other work on the host is not counted."""
        began = time.thread_time()
        _run(loop, self._numbers[loop], self._passes[loop])
        return time.thread_time() - began


def _hidden(v: Vectors, value: Any) -> Any:
    """The same vector, hidden from the compiler's optimiser; emits no instruction."""
    register = "w" if platform.machine() in {"aarch64", "arm64"} else "v"
    kind = ir.FunctionType(v.vector, [v.vector])
    return v.builder.asm(kind, "", f"={register},0", [value], side_effect=True)


def _one(v: Vectors, what: str, x: Any, y: Any, z: Any) -> Any:
    match what:
        case "add":
            return v.add(x, y)
        case "mul":
            return v.mul(x, y)
        case "fma":
            return v.fma(x, y, z)
        case "estimate":
            return v.rsqrt_estimate(x)
        case "sqrt":
            return square_root(v, x)
        case _:
            return v.builder.fdiv(y, x)


@intrinsic
def _chains(typing, mix, numbers, passes):
    """One instruction, in chains that do not depend on each other."""

    def emit(context, builder, signature, arguments):
        v = Vectors(context, builder, signature.args[1].dtype.bitwidth, mix.value.width)
        data = v.data(signature.args[1], arguments[1])
        places = [ir.Constant(ir.IntType(64), i * v.lanes) for i in range(CHAINS + 2)]
        slots = [v.slot(v.load(data, place)) for place in places[2:]]
        # Near 1, so that products neither grow nor shrink.
        y, z = _hidden(v, v.constant(1.0)), _hidden(v, v.constant(1e-9))
        with cgutils.for_range(builder, arguments[2]):
            stop_unrolling(v)
            for _ in range(COPIES):
                for slot in slots:
                    builder.store(_one(v, mix.value.what, builder.load(slot), y, z), slot)
        for place, slot in zip(places[2:], slots, strict=True):
            v.store(builder.load(slot), data, place)
        return context.get_dummy_value()

    return types.void(mix, numbers, passes), emit


@intrinsic
def _pairs(typing, mix, numbers, passes):
    """The phase's mix: targets in registers, and new sources each time."""

    def emit(context, builder, signature, arguments):
        v = Vectors(context, builder, signature.args[1].dtype.bitwidth, mix.value.width)
        data = v.data(signature.args[1], arguments[1])

        def number(i: int) -> Any:
            return v.load(data, ir.Constant(ir.IntType(64), i * v.lanes))

        both, size = mix.value.ways == "both", mix.value.held
        held = [[number(4 * i + j) for j in range(4)] for i in range(size)]
        # Far from the targets, so that no distance is 0.
        source = [v.slot(v.add(number(4 * size + j), v.constant(4.0))) for j in range(4)]
        totals = [v.slot(v.constant(0.0)) for _ in range(size)]
        with cgutils.for_range(builder, arguments[2]):
            stop_unrolling(v)
            for _ in range(COPIES):
                for slot in source:
                    builder.store(_hidden(v, builder.load(slot)), slot)
                here = [builder.load(slot) for slot in source]
                back = _hidden(v, v.constant(0.0)) if both else None
                for target, total in zip(held, totals, strict=True):
                    value = inverse_root(v, mix.value.root, squared_distance(v, target, here))
                    builder.store(v.fma(value, here[3], builder.load(total)), total)
                    if both:
                        back = v.fma(value, target[3], back)
                if both:
                    _hidden(v, back)
        for i, total in enumerate(totals):
            v.store(builder.load(total), data, ir.Constant(ir.IntType(64), (24 + i) * v.lanes))
        return context.get_dummy_value()

    return types.void(mix, numbers, passes), emit


@njit(nogil=True, cache=True)
def _run_chains(mix, numbers, passes):
    _chains(mix, numbers, passes)


@njit(nogil=True, cache=True)
def _run_pairs(mix, numbers, passes):
    _pairs(mix, numbers, passes)


def _run(mix: Mix, numbers: np.ndarray, passes: int) -> None:
    (_run_pairs if mix.what == "pairs" else _run_chains)(mix, numbers, passes)
