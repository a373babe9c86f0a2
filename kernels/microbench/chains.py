"""Chains of multiply-adds, for every number type.

Every accumulator alternates between x = p x + q and x = r x + s. Both factors have full mantissas,
as in real programs (a factor of 1 would cost less energy). Their product is just below 1, so that
the values neither grow nor shrink to denormals, and the result depends on every step. A loaded word
replaces q or s in one step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from kernels.host.caches import Level, memory_bytes, read_caches, working_set_bytes
from kernels.host.memory import paged_array
from kernels.host.prepared import PreparedParts, parts_on_node
from kernels.host.ranks import Team
from kernels.kernel import Counts, Kernel, ParameterError, Params, Prepared, ResultError
from kernels.microbench.compiled import compiled_loops

REGISTER_STEPS = 3 << 24
"""Multiply-adds of one iteration without loads: of one thread, all chains together."""

_LARGEST_VOLUME = 1 << 24
_SMALLEST_VOLUME = 1 << 12


class ChainParams(Params):
    """The level of the words, and the operations per word."""

    level: Literal["register", "l1", "l2", "l3", "dram"] = "register"
    """level that serves the loads; register: no loads"""
    ops_per_word: int | None = Field(default=None, ge=1)
    """multiply-adds per word loaded; required unless the level is register"""
    threads: int = Field(default=1, ge=1)
    """threads of one rank, each with its own data"""

    @model_validator(mode="after")
    def _words_have_ops(self) -> ChainParams:
        if self.level == "register" and self.ops_per_word is not None:
            raise ParameterError(
                "ops_per_word",
                f"found {self.ops_per_word}, and level 'register' loads no words",
                "leave it out, or choose another level",
            )
        if self.level != "register" and self.ops_per_word is None:
            raise ParameterError(
                "ops_per_word",
                f"missing, and level {self.level!r} needs it",
                "give the multiply-adds per word, 1 or more",
            )
        return self


def words_per_iteration(ops_per_word: int) -> int:
    """The number of words that one thread loads in one iteration: a power of two.

    2^24 with one multiply-add each; fewer with more, down to 2^12, so that an iteration has 2^24 to
    2^25 multiply-adds.
    """
    return max(_LARGEST_VOLUME >> (ops_per_word.bit_length() - 1), _SMALLEST_VOLUME)


def chain_counts(params: ChainParams, operation_class: str, word_bytes: int) -> dict[str, float]:
    """Operations and bytes of one iteration of one rank.

    A multiply-add is two operations. Address and loop instructions are not counted, nor are the
    loads and stores of a few hundred accumulators at the start and end of an iteration.
    """
    if params.level == "register" or params.ops_per_word is None:
        return {operation_class: 2.0 * REGISTER_STEPS * params.threads}
    words = words_per_iteration(params.ops_per_word) * params.threads
    return {
        operation_class: 2.0 * words * params.ops_per_word,
        params.level: float(words * word_bytes),
    }


@dataclass(frozen=True)
class Affine:
    """The map x -> factor x + term; with ``modulus``, of integers modulo it."""

    factor: Any
    term: Any
    modulus: int | None = None

    def then(self, after: Affine) -> Affine:
        """This map followed by ``after``."""
        factor, term = after.factor * self.factor, after.factor * self.term + after.term
        if self.modulus is not None:
            factor, term = factor % self.modulus, term % self.modulus
        return Affine(factor, term, self.modulus)

    def power(self, times: int) -> Affine:
        """This map applied ``times`` times, by repeated squaring."""
        result, square = Affine(self.factor * 0 + 1, self.factor * 0, self.modulus), self
        while times:
            if times & 1:
                result = result.then(square)
            square, times = square.then(square), times >> 1
        return result


@dataclass(frozen=True)
class Arithmetic:
    """A number type, the constants of its chains, and the accuracy of results.

    Attributes:
        dtype: the dtype of the words.
        constants: p, q, r, s.
        fill: writes random words into an array, the same for the same seed.
        exact_dtype: the dtype in which a check computes the result.
        tolerance: the largest difference from that result, relative to the largest value.
    """

    dtype: np.dtype[Any]
    constants: tuple[Any, Any, Any, Any]
    fill: Callable[[np.ndarray[Any, Any], int], None]
    exact_dtype: np.dtype[Any]
    tolerance: float

    def steps(self) -> tuple[Affine, Affine]:
        """The two steps as exact maps."""
        p, q, r, s = (c.item() for c in self.constants)
        modulus = None if self.dtype.kind == "f" else 1 << (8 * self.dtype.itemsize)
        return Affine(p, q, modulus), Affine(r, s, modulus)

    def compare(
        self, name: str, computed: np.ndarray[Any, Any], right: np.ndarray[Any, Any], fused: bool
    ) -> None:
        """Raise :class:`ResultError` unless all accumulators are right."""
        # Without a fused instruction the product is rounded too, always in the same direction.
        tolerance = self.tolerance if fused else 20 * self.tolerance
        if self.dtype.kind != "f":
            wrong = int((computed.view(self.exact_dtype) != right).sum())
            error = 0.0
        else:
            scale = float(np.abs(right).max())
            errors = np.abs(computed.astype(self.exact_dtype) - right) / scale
            error = float(errors.max())
            wrong = int((~(errors <= tolerance)).sum())
        if wrong:
            raise ResultError(
                f"{name}: {wrong} of {computed.size} accumulators are wrong "
                f"(largest error {error:.3g} of the largest value, allowed {tolerance:.3g})"
            )


class RegisterChains:
    """The chains of one thread, without loads."""

    def __init__(self, arithmetic: Arithmetic, seed: int) -> None:
        self._loops = compiled_loops()
        self._arithmetic = arithmetic
        lanes = self._loops.chain_lanes(arithmetic.dtype)
        self._steps = REGISTER_STEPS // lanes
        self.start = paged_array(lanes, arithmetic.dtype)
        self.end = paged_array(lanes, arithmetic.dtype)
        arithmetic.fill(self.start, seed)
        self.end[:] = 0

    def run(self, iterations: int) -> None:
        """Run every chain ``iterations`` times from its start."""
        self._loops.chain_registers(
            self.start, self.end, self._steps, *self._arithmetic.constants, iterations
        )

    def check(self) -> None:
        """Compare the results with the closed form of the affine maps."""
        first, second = self._arithmetic.steps()
        all_steps = first.then(second).power(self._steps // 2)
        exact = self._arithmetic.exact_dtype
        start = self.start.astype(exact)
        right = start * exact.type(all_steps.factor) + exact.type(all_steps.term)
        self._arithmetic.compare("chains in registers", self.end, right, self._loops.FUSED)


class StreamChains:
    """The chains of one thread, which load a word every ``steps`` multiply-adds."""

    def __init__(self, arithmetic: Arithmetic, size_bytes: int, steps: int, seed: int) -> None:
        self._loops = compiled_loops()
        self._arithmetic = arithmetic
        self._steps = steps
        self._words = words_per_iteration(steps)
        self._next = 0
        lanes = self._loops.stream_lanes(arithmetic.dtype)
        self.data = paged_array(size_bytes // arithmetic.dtype.itemsize, arithmetic.dtype)
        self.start = paged_array(lanes, arithmetic.dtype)
        self.end = paged_array(lanes, arithmetic.dtype)
        arithmetic.fill(self.data, seed)
        arithmetic.fill(self.start, seed + 1)
        self.end[:] = 0

    def run(self, iterations: int) -> None:
        """Run ``iterations`` times, from the word after the last one on."""
        loop = self._loops.chain_odd if self._steps % 2 else self._loops.chain_even
        self._next = loop(
            self.data, self._next, self._words, self.start, self.end, self._steps,
            *self._arithmetic.constants, iterations,
        )  # fmt: skip

    def check(self) -> None:
        """Compare the result of the last iteration with a weighted sum of its words.

        A pair of consecutive words and their steps is an affine map of the accumulator, linear in
        the words, so that the result is a geometric series over the pairs.
        """
        exact = self._arithmetic.exact_dtype
        a, b = self._arithmetic.steps()
        modulus = a.modulus
        if self._steps % 2:
            pairs = (self._steps - 1) // 2
            # The factor of a word's first step, and the map of its other steps.
            rests = (b.then(a).power(pairs), a.then(b).power(pairs))
            factors = (a.factor, b.factor)
        else:
            rest = b.then(a.then(b).power(self._steps // 2 - 1))
            rests, factors = (rest, rest), (a.factor, a.factor)
        rows = [
            Affine(f, f * 0, modulus).then(rest) for f, rest in zip(factors, rests, strict=True)
        ]
        both = rows[0].then(rows[1])
        weights = (rests[0].then(Affine(rows[1].factor, 0, modulus)).factor, rests[1].factor)

        lanes = self.start.size
        span = min(self._words, self.data.size)
        passes = self._words // span
        first = (self._next - self._words) % self.data.size
        words = self.data[first : first + span].reshape(-1, 2, lanes)
        count = len(words)
        powers = np.full(count, both.factor, dtype=exact)
        powers[0] = 1
        powers = np.multiply.accumulate(powers, dtype=exact)[::-1]
        one_pass = np.zeros(lanes, dtype=exact)
        # In slices, so that a large working set needs no second copy in another dtype.
        for low in range(0, count, 1 << 12):
            part = slice(low, min(low + (1 << 12), count))
            for row in range(2):
                here = powers[part] * exact.type(weights[row])
                one_pass += here @ words[part, row].astype(exact)
        again = Affine(both.power(count).factor, a.factor * 0 + 1, modulus).power(passes).term
        alone = both.power(count * passes)
        right = (
            one_pass * exact.type(again)
            + self.start.astype(exact) * exact.type(alone.factor)
            + exact.type(alone.term)
        )
        self._arithmetic.compare("chains over loaded words", self.end, right, self._loops.FUSED)


def prepare_chains(
    params: ChainParams, team: Team, arithmetic: Arithmetic, counts: Counts
) -> Prepared:
    """The chains of one rank, compiled and with their data in place.

    Raises:
        KernelError: the node lacks the level, or has too little memory.
    """
    seeds = [2 * (team.rank * params.threads + thread) for thread in range(params.threads)]
    if params.level == "register" or params.ops_per_word is None:
        return PreparedParts([partial(RegisterChains, arithmetic, seed) for seed in seeds], counts)
    level: Level = params.level
    size = working_set_bytes(
        level, read_caches(), memory_bytes(), parts_on_node(params.threads, team)
    )
    steps = params.ops_per_word
    return PreparedParts(
        [partial(StreamChains, arithmetic, size, steps, seed) for seed in seeds], counts
    )


def chain_kernel(
    name: str, arithmetic: Arithmetic, operation_class: str, summary: str, operations: str
) -> Kernel:
    """The kernel of the chains of a number type, which counts in ``operation_class``."""
    word_bytes = arithmetic.dtype.itemsize

    def counts(params: ChainParams) -> Counts:
        return chain_counts(params, operation_class, word_bytes)

    def prepare(params: ChainParams, team: Team) -> Prepared:
        return prepare_chains(params, team, arithmetic, counts(params))

    return Kernel(
        name=name,
        summary=f"{summary}, any number per word loaded from one level",
        counted=f"{operations}; {word_bytes} bytes a word at the serving level",
        classes=(operation_class, "l1", "l2", "l3", "dram"),
        params=ChainParams,
        counts=counts,
        prepare=prepare,
        imports=("kernels.microbench.loops",),
    )
