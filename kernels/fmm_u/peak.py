"""The refined peak of the U phase, and an upper bound of its loops from port pressure.

A loop that also needs additions, products and roots cannot reach the peak of multiply-adds. Choi &
Vuduc (2012, section 5.4) refine it: they derive a bound from the rates of the instructions, and
check it with a synthetic loop that executes independent copies of the mix. Both are measured here,
on one thread, in loops that keep all data in registers.

Processors differ in the instructions that share a port of the core: some add and multiply on the
same two ports, others have separate adders, and an estimate of 1 / sqrt(x) may use the multiplier's
port too. So no map of ports is assumed. The pressure of a group of instructions is measured: the
least time of its instructions, in the numbers of the mix, when no instruction waits for another.
Additions, products and multiply-adds are one group, roots another, the whole mix a third; each
single instruction and the loads are groups too. Executing fewer instructions never takes longer, so
that a loop takes at least the time of its group with the greatest pressure.

A rate is in vector instructions per second. An interaction is one target's q / r, so that a
distance that is used both ways counts as two.
"""

# Numba's intrinsics take a typing context, and Numba types their arguments.
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
)
from kernels.fmm_u.variants import (
    ITEM_BYTES,
    Precision,
    Root,
    Variant,
    Ways,
    inner_loads,
    instructions,
)
from kernels.host.memory import paged_array
from kernels.host.static_type import static
from kernels.host.vectors import HOST, Vectors

CHAINS = HOST.registers * 3 // 4
"""The number of independent chains of instructions, enough to hide their latency."""
COPIES = 4
"""Copies of a loop's instructions in one pass, so that the loop's counter costs little."""
ROUNDS = 20
"""The number of runs of a loop."""
RUN_S = 0.002
"""The approximate time of one run in s."""
ROOTS = ("estimate", "sqrt", "division")
GROUPS = ("arithmetic", "roots", "mix", "mix in turn")
"""Loops of several instructions; the last two differ in the order of instructions."""


@dataclass(frozen=True)
class Mix:
    """The instructions of a timed loop: an instruction, one of the groups, or ``pairs``."""

    what: str
    precision: Precision
    root: Root
    ways: Ways
    vector_bits: int

    def name(self) -> str:
        """Everything that the compiled loop depends on."""
        what = self.what.replace(" ", "_")
        return f"{what}-{self.precision}-{self.root}-{self.ways}-{self.vector_bits}"

    @property
    def width(self) -> int:
        """Numbers in a vector."""
        return self.vector_bits // 8 // ITEM_BYTES[self.precision]

    @property
    def held(self) -> int:
        """The targets held in registers in loops over pairs."""
        return max(1, HOST.registers // 8 - (self.ways == "both"))

    def sequence(self) -> list[str]:
        """The instructions that the loop executes for one vector of pairs, in order."""
        if self.what not in GROUPS:
            return [self.what]
        mix = instructions(self.root, self.ways)
        if self.what != GROUPS[3]:
            kept = {"arithmetic": False, "roots": True}.get(self.what)
            return [
                name
                for name, count in mix.items()
                for _ in range(count)
                if kept is None or kept == (name in ROOTS)
            ]
        # Each instruction at regular intervals.
        places = [((i + 0.5) / n, name) for name, n in mix.items() for i in range(n)]
        return [name for _, name in sorted(places)]

    def executed(self) -> int:
        """The number of instructions, sequences or vectors of pairs in one pass."""
        if self.what == "pairs":
            return COPIES * self.held
        return COPIES * (CHAINS if self.what not in GROUPS else self.held)


static(Mix)


@dataclass(frozen=True)
class Peak:
    """The bounds of a mix's interactions per second on one thread.

    ``rates_per_s``: instruction of the mix or ``load`` -> its rate in a loop of it alone.
    ``pressure_s``: group -> least seconds of its instructions for one vector of pairs.
    ``interactions``: of one vector of pairs. ``mix_per_s``: interactions per second, measured with
    the phase's mix in registers: the refined peak, which dependences between instructions lower.
    """

    rates_per_s: dict[str, float]
    pressure_s: dict[str, float]
    interactions: int
    mix_per_s: float

    @property
    def bound_per_s(self) -> float:
        """The upper bound of interactions per second of loops of this mix, without loads."""
        return self.interactions / max(self.pressure_s.values())

    def variant_bound_per_s(self, variant: Variant) -> float:
        """The upper bound of a variant, with the loads of its inner loop."""
        loads_s = inner_loads(variant) / self.rates_per_s["load"]
        return self.interactions / max(*self.pressure_s.values(), loads_s)


class PeakMeter:
    """Measures instruction rates, and derives the peaks of mixes.

    The fastest run of each loop in all rounds counts: other work on the host slows loops down, and
    with rounds spread over a benchmark every loop runs undisturbed at least once.
    """

    def __init__(self, mixes: Iterable[tuple[Precision, Root, Ways]], vector_bits: int) -> None:
        """Compile the loops of ``mixes``, the mixes for which :meth:`peak` can be called."""
        self._bits = vector_bits
        self._best: dict[Mix, float] = {}
        self._passes: dict[Mix, int] = {}
        self._numbers: dict[Mix, np.ndarray] = {}
        for precision, root, ways in mixes:
            for loop in self._loops(precision, root, ways):
                self._best.setdefault(loop, 0.0)
        for loop in self._best:
            dtype = np.float32 if loop.precision == "single" else np.float64
            rng = np.random.default_rng(0)
            # At a page's boundary: a load that crosses cache lines takes twice as long.
            numbers = paged_array(64 * loop.width, np.dtype(dtype))
            numbers[:] = rng.uniform(0.5, 1.5, len(numbers))
            self._numbers[loop] = numbers
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
        mix = instructions(root, ways)
        pairs = Mix("pairs", precision, root, ways, self._bits)
        rate = {loop.what: self._best[loop] for loop in self._loops(precision, root, ways)}
        # The time of each loop of the whole mix suffices for the mix and for each part of it.
        mix_s = 1.0 / max(rate[name] for name in ("mix", "mix in turn", "pairs"))
        pressure_s = {name: count / rate[name] for name, count in mix.items()}
        pressure_s |= {name: 1.0 / rate[name] for name in GROUPS[:2] if name in rate}
        interactions = pairs.width * (1 if ways == "one" else 2)
        return Peak(
            {name: rate[name] for name in (*mix, "load")},
            {name: min(seconds, mix_s) for name, seconds in pressure_s.items()} | {"mix": mix_s},
            interactions,
            interactions * rate["pairs"],
        )

    def _loops(self, precision: Precision, root: Root, ways: Ways) -> list[Mix]:
        """The loops from which a mix's peaks are derived."""
        mix = instructions(root, ways)
        several = [name for name in GROUPS if name != "roots" or root == "sqrt"]
        return [
            *(Mix(name, precision, root, ways, self._bits) for name in ("pairs", *several)),
            # The loop of one instruction is the same for every mix.
            *(Mix(name, precision, "sqrt", "one", self._bits) for name in (*mix, "load")),
        ]

    def _seconds(self, loop: Mix) -> float:
        """The processor time of one run in s, which excludes other work on the host."""
        began = time.thread_time()
        _run(loop, self._numbers[loop], self._passes[loop])
        return time.thread_time() - began


def _hidden(v: Vectors, value: Any) -> Any:
    """The vector, hidden from the compiler's optimiser; emits no instruction."""
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
    """A loop of instructions in independent chains."""

    def emit(context, builder, signature, arguments):
        v = Vectors(context, builder, signature.args[1].dtype.bitwidth, mix.value.width)
        data = v.data(signature.args[1], arguments[1])
        places = [ir.Constant(ir.IntType(64), i * v.lanes) for i in range(CHAINS)]
        slots = [v.slot(v.load(data, place)) for place in places]
        sequence = mix.value.sequence()
        executed = mix.value.executed() * len(sequence)
        # Factors of 1, so that products neither grow nor shrink.
        y, z = _hidden(v, v.constant(1.0)), _hidden(v, v.constant(1e-9))
        with cgutils.for_range(builder, arguments[2]):
            v.stop_unrolling()
            for i in range(executed):
                what, slot = sequence[i % len(sequence)], slots[i % CHAINS]
                if what == "load":
                    _hidden(v, v.load(data, places[i % CHAINS]))
                else:
                    builder.store(_one(v, what, builder.load(slot), y, z), slot)
        for place, slot in zip(places, slots, strict=True):
            v.store(builder.load(slot), data, place)
        return context.get_dummy_value()

    return types.void(mix, numbers, passes), emit


@intrinsic
def _pairs(typing, mix, numbers, passes):
    """A loop of the phase's mix: targets in registers, and new sources in each copy."""

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
            v.stop_unrolling()
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
