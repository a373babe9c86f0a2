"""A space: a declaration of the variants of a kernel, and all that its conditions let through.

A parameter takes the values of a list, of a range ``first : last : step`` (the last included) or
of one expression. Ranges and conditions may use the parameters declared above them, those that the
kernel is given beside the space, and the site's numbers ``device.NAME``
(:mod:`kernels.expression`). Parameters are bound in the order in which they are declared, and a
condition is tested as soon as all its names are bound, on all candidates at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.expression import DEVICE, BadExpression, Expression, parse_expression

WHERE = "where"
MAX_VARIANTS = 20_000_000
MAX_VALUES = 1_000_000
"""The most values of one parameter."""
MAX_CANDIDATES = 1_000_000_000
"""The most candidates that are tested before a space counts as too large."""
CHUNK = 1 << 19
"""Candidates that are held at once, where a parameter has no more values."""


class BadSpace(Exception):
    """What is wrong in a space: ``key`` is the parameter's name, or WHERE with ``condition``, the
    index of a condition; ``what`` was found, and the ``remedy``."""

    def __init__(self, key: str, what: str, remedy: str, condition: int | None = None) -> None:
        super().__init__(f"{key}: {what}; {remedy}")
        self.key, self.what, self.remedy, self.condition = key, what, remedy, condition


@dataclass(frozen=True)
class Values:
    """The values of a parameter as they were listed."""

    listed: tuple[Any, ...]
    column: np.ndarray
    names: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Range:
    """A parameter's values from ``first`` to ``last``; ``step`` None: only the first."""

    first: Expression
    last: Expression
    step: Expression

    @property
    def names(self) -> frozenset[str]:
        return self.first.names | self.last.names | self.step.names


@dataclass(frozen=True)
class Space:
    """A checked declaration. ``parameters``: name -> its values, in the order of the declaration;
    ``conditions``: in that order; ``ready``: for each, how many parameters must be bound."""

    parameters: Mapping[str, Values | Range | Expression]
    conditions: tuple[Expression, ...] = ()
    ready: tuple[int, ...] = ()


@dataclass(frozen=True)
class Variants:
    """The variants of a space, in the order of its declaration: the last parameter changes first.

    ``columns``: parameter -> its values (N,), or the indices (N,) into ``listed`` of a parameter
    whose values were listed. ``refused``: for each condition, how many candidates it refused.
    """

    size: int
    columns: Mapping[str, np.ndarray]
    listed: Mapping[str, tuple[Any, ...]]
    refused: tuple[int, ...]

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Every variant: parameter -> value, with the type that it was declared with."""
        columns = [
            [self.listed[name][i] for i in column.tolist()]
            if name in self.listed
            else column.tolist()
            for name, column in self.columns.items()
        ]
        for row in zip(*columns, strict=True):
            yield dict(zip(self.columns, row, strict=True))


def read_space(
    declaration: Mapping[str, Any], given: Sequence[str], device: Sequence[str]
) -> Space:
    """Check a declaration: a table of parameters and WHERE, a list of conditions.

    ``given``: the parameters that the kernel is given beside the space; ``device``: the names of
    the site's numbers.

    Raises:
        BadSpace: with the place and a remedy.
    """
    bound = [*given, *(f"{DEVICE}.{name}" for name in device)]
    first = len(bound)
    parameters: dict[str, Values | Range | Expression] = {}
    for name, values in declaration.items():
        if name == WHERE:
            continue
        if name in given:
            raise BadSpace(name, "is given in params, too", "give it once")
        parameters[name] = _parameter(name, values)
        _check_names(name, parameters[name].names, bound, declaration)
        bound.append(name)
    if not parameters:
        raise BadSpace("", "the space has no parameter", "add one: NAME = [VALUE, VALUE]")
    conditions, ready = [], []
    where = declaration.get(WHERE, [])
    if not isinstance(where, list) or not all(isinstance(text, str) for text in where):
        raise BadSpace(WHERE, f"found {where!r}", 'list conditions: where = ["a <= b"]')
    for i, text in enumerate(where):
        try:
            condition = parse_expression(text)
        except BadExpression as error:
            raise BadSpace(WHERE, error.what, error.remedy, i) from None
        _check_names(WHERE, condition.names, bound, declaration, i)
        places = [bound.index(name) + 1 - first for name in condition.names]
        conditions.append(condition)
        ready.append(max([0, *places]))
    return Space(parameters, tuple(conditions), tuple(ready))


def _parameter(name: str, values: Any) -> Values | Range | Expression:
    """What a parameter's value in the file says."""
    if isinstance(values, bool | int | float):
        values = [values]
    try:
        if isinstance(values, str):
            parts = [parse_expression(part) for part in values.split(":")]
            if len(parts) == 1:
                return parts[0]
            if len(parts) in (2, 3):
                return Range(parts[0], parts[1], parts[2] if parts[2:] else parse_expression("1"))
            raise BadSpace(name, f"found {values!r}", "a range is 'first : last : step'")
    except BadExpression as error:
        raise BadSpace(name, error.what, error.remedy) from None
    if not isinstance(values, list) or not values:
        raise BadSpace(
            name, f"found {values!r}", "give a list of values, or a range 'first : last : step'"
        )
    kinds = {str if isinstance(value, str) else type(value) for value in values}
    if kinds - {int, float, bool, str} or (str in kinds and len(kinds) > 1):
        raise BadSpace(name, f"found {values!r}", "list numbers only, or texts only")
    if len(set(values)) < len(values):
        twice = next(value for value in values if values.count(value) > 1)
        raise BadSpace(name, f"the value {twice!r} stands twice", "list each value once")
    if any(not isinstance(value, str) and not abs(value) < 1 << 62 for value in values):
        raise BadSpace(name, "a value of 2^62 or more", "use smaller numbers")
    return Values(tuple(values), np.array(values))


def _check_names(
    key: str,
    names: frozenset[str],
    bound: Sequence[str],
    declaration: Mapping[str, Any],
    condition: int | None = None,
) -> None:
    """Refuse a name that is not bound where it stands."""
    for name in sorted(names.difference(bound)):
        if name in declaration and name != WHERE:
            raise BadSpace(
                key, f"{name!r} is used before it is declared", f"declare {name} above {key}"
            )
        known = ", ".join(bound) or "none"
        if name.startswith(f"{DEVICE}."):
            what, remedy = f"the site has no number {name}", "add it to the site file's [device]"
        else:
            what, remedy = f"unknown name {name!r}", f"known here: {known}"
        raise BadSpace(key, what, remedy, condition)


def variants(space: Space, given: Mapping[str, Any], device: Mapping[str, float]) -> Variants:
    """All variants of a space.

    ``given``: the parameters given beside it, and ``device`` the site's numbers, both by name.

    Raises:
        BadSpace: no variant, too many, a step of 0, or arithmetic without a result.
    """
    fixed = {
        name: value for name, value in given.items() if isinstance(value, bool | int | float | str)
    }
    fixed |= {f"{DEVICE}.{name}": value for name, value in device.items()}
    walk = _Walk(space, {name: np.array([value]) for name, value in fixed.items()})
    parts = list(walk.below(0, _Candidates(1, {}, {})))
    size = sum(part.size for part in parts)
    if not size:
        raise _empty(space, walk)
    columns = {
        name: np.concatenate([part.columns[name] for part in parts]) for name in space.parameters
    }
    listed = {n: v.listed for n, v in space.parameters.items() if isinstance(v, Values)}
    return Variants(size, columns, listed, tuple(walk.refused))


@dataclass(frozen=True)
class _Candidates:
    """Values of the parameters bound so far: ``columns`` as in :class:`Variants`, and the same as
    ``values`` for expressions; ``size`` rows."""

    size: int
    columns: dict[str, np.ndarray]
    values: dict[str, np.ndarray]

    def take(self, rows: np.ndarray) -> _Candidates:
        return _Candidates(
            len(rows),
            {name: column[rows] for name, column in self.columns.items()},
            {name: values[rows] for name, values in self.values.items()},
        )


class _Walk:
    """Goes down the parameters, a chunk of candidates at a time."""

    def __init__(self, space: Space, fixed: dict[str, np.ndarray]) -> None:
        self.space, self.fixed = space, fixed
        self.names = list(space.parameters)
        self.refused = [0] * len(space.conditions)
        self.tested = self.kept = 0
        # How many candidates follow from one that has passed all conditions, before a range that
        # depends on others: so that a space without conditions is refused before it is listed.
        self.following = [1] * (len(self.names) + 1)
        for depth in range(len(self.names) - 1, -1, -1):
            values = self.space.parameters[self.names[depth]]
            free = isinstance(values, Values) and depth + 1 not in self.space.ready
            count = len(values.listed) if isinstance(values, Values) else 1
            self.following[depth] = count * self.following[depth + 1] if free else 1

    def below(self, depth: int, candidates: _Candidates) -> Iterator[_Candidates]:
        """The variants that begin with these candidates, ``depth`` of whose parameters are
        bound."""
        candidates = self._passed(depth, candidates)
        if not candidates.size:
            return
        if self.kept + candidates.size * self.following[depth] > MAX_VARIANTS:
            raise BadSpace(
                "",
                f"more than {MAX_VARIANTS:,} variants",
                "add conditions under where, or list fewer values",
            )
        if depth == len(self.names):
            self.kept += candidates.size
            yield candidates
            return
        name = self.names[depth]
        most = max(1, CHUNK // self._values_of_one(name))
        for start in range(0, candidates.size, most):
            rows = np.arange(start, min(start + most, candidates.size))
            for expanded in self._expanded(name, candidates.take(rows)):
                yield from self.below(depth + 1, expanded)

    def _passed(self, depth: int, candidates: _Candidates) -> _Candidates:
        """The candidates that pass the conditions whose names are all bound at this depth."""
        self.tested += candidates.size
        if self.tested > MAX_CANDIDATES:
            raise BadSpace(
                "",
                f"more than {MAX_CANDIDATES:,} candidates were tested, of which {self.kept:,} "
                f"are variants",
                "declare the parameters that conditions use first, or list fewer values",
            )
        for i, condition in enumerate(self.space.conditions):
            if self.space.ready[i] == depth and candidates.size:
                try:
                    truth = condition.values(self._bound(candidates), candidates.size)
                except BadExpression as error:
                    raise BadSpace(WHERE, error.what, error.remedy, i) from None
                rows = np.flatnonzero(truth)
                self.refused[i] += candidates.size - len(rows)
                candidates = candidates if len(rows) == candidates.size else candidates.take(rows)
        return candidates

    def _bound(self, candidates: _Candidates) -> dict[str, np.ndarray]:
        fixed = {n: np.broadcast_to(v, (candidates.size,)) for n, v in self.fixed.items()}
        return fixed | candidates.values

    def _values_of_one(self, name: str) -> int:
        values = self.space.parameters[name]
        return len(values.listed) if isinstance(values, Values) else 64

    def _expanded(self, name: str, candidates: _Candidates) -> Iterator[_Candidates]:
        """The candidates with each value of the parameter ``name``."""
        declared = self.space.parameters[name]
        size = candidates.size
        if isinstance(declared, Values):
            count = len(declared.listed)
            index = np.tile(np.arange(count, dtype=np.int32), size)
            yield _with(
                candidates, np.repeat(np.arange(size), count), name, index, declared.column[index]
            )
            return
        try:
            if isinstance(declared, Expression):
                values = declared.values(self._bound(candidates), size)
                yield _with(candidates, np.arange(size), name, values, values)
                return
            bound = self._bound(candidates)
            first, last, step = (
                part.values(bound, size) for part in (declared.first, declared.last, declared.step)
            )
            counts = _counts(name, first, last, step)
        except BadExpression as error:
            raise BadSpace(name, error.what, error.remedy) from None
        if not counts.any():
            return
        ends = np.cumsum(counts)
        starts = np.searchsorted(ends, np.arange(0, int(ends[-1]), CHUNK), side="right")
        for a, b in zip(starts, [*starts[1:], size], strict=True):
            part = counts[a:b]
            rows = np.repeat(np.arange(a, b), part)
            within = np.arange(part.sum()) - np.repeat(np.cumsum(part) - part, part)
            values = first[rows] + within * step[rows]
            yield _with(candidates, rows, name, values, values)


def _with(
    candidates: _Candidates, rows: np.ndarray, name: str, column: np.ndarray, values: np.ndarray
) -> _Candidates:
    """The given rows of the candidates, with another parameter."""
    taken = candidates.take(rows)
    return _Candidates(len(rows), taken.columns | {name: column}, taken.values | {name: values})


def _counts(name: str, first: np.ndarray, last: np.ndarray, step: np.ndarray) -> np.ndarray:
    """How many values each range (N,) has; none where its last lies before its first."""
    if any(part.dtype.kind not in "bif" for part in (first, last, step)):
        raise BadSpace(name, "a range of texts", "give numbers")
    if np.any(step == 0):
        raise BadSpace(name, "a range with step 0", "give a step that is not 0")
    steps = np.floor((last.astype(float) - first) / step * (1 + 1e-12) + 1e-12)
    counts = np.maximum(steps + 1, 0)
    if counts.max(initial=0) > MAX_VALUES:
        raise BadSpace(
            name,
            f"a range of {counts.max():,.0f} values",
            f"give a larger step: a parameter may have {MAX_VALUES:,} values",
        )
    return counts.astype(np.int64)


def _empty(space: Space, walk: _Walk) -> BadSpace:
    """Why no variant is left."""
    refused = walk.refused
    if any(refused):
        i = int(np.argmax(np.array(refused) * (np.array(space.ready) == _deepest(walk))))
        i = i if refused[i] else int(np.argmax(refused))
        return BadSpace(
            WHERE,
            f"no variant is left: this condition refused the last {refused[i]:,} candidates",
            "relax it, or list more values",
            i,
        )
    return BadSpace(
        "", "the space is empty: a range has no value", "let its last be above its first"
    )


def _deepest(walk: _Walk) -> int:
    """The most parameters that were bound when a condition refused a candidate."""
    ready = [r for r, n in zip(walk.space.ready, walk.refused, strict=True) if n]
    return max(ready)
