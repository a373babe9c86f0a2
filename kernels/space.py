"""A space: a declaration of a kernel's variants, and all variants that pass its conditions.

A parameter takes the values of a list, of a range ``first : last : step`` (the last included) or
of one expression. Ranges and conditions may use the parameters declared above them, the parameters
that ``params`` gives, and the site's numbers ``device.NAME`` (:mod:`dvfs.expression`).

Parameters are bound in the order of their declaration. A condition is tested as soon as all its
names are bound, on all candidates at once. Candidates with equal values of all names in a range and
its first conditions have the same values of the range's parameter, which are tested once for all
these candidates: a range of a thousand values, of which a condition accepts the divisors of a
product, is not tested again for every candidate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dvfs.expression import DEVICE, Expression, ExpressionError, parse_expression

WHERE = "where"


class SpaceError(Exception):
    """An error in a space. ``key``: the parameter's name, or WHERE with ``condition``, the index
    of a condition; ``what``: the error; ``remedy``: its remedy."""

    def __init__(self, key: str, what: str, remedy: str, condition: int | None = None) -> None:
        super().__init__(f"{key}: {what}; {remedy}")
        self.key, self.what, self.remedy, self.condition = key, what, remedy, condition


@dataclass(frozen=True)
class Values:
    """The listed values of a parameter."""

    listed: tuple[Any, ...]
    column: np.ndarray
    names: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Range:
    """A parameter's values from ``first`` to ``last`` in steps of ``step``."""

    first: Expression
    last: Expression
    step: Expression

    @property
    def names(self) -> frozenset[str]:
        return self.first.names | self.last.names | self.step.names


@dataclass(frozen=True)
class Space:
    """A checked declaration. ``parameters``: name -> values; ``conditions``: both in the order of
    the declaration. ``ready``: for each condition, the number of parameters bound before it."""

    parameters: Mapping[str, Values | Range | Expression]
    conditions: tuple[Expression, ...] = ()
    ready: tuple[int, ...] = ()


def read_space(
    declaration: Mapping[str, Any], given: Sequence[str], device: Sequence[str]
) -> Space:
    """Check a declaration: a table of parameters and WHERE, a list of conditions.

    ``given``: the names of the parameters that ``params`` gives; ``device``: the names of the
    site's numbers.

    Raises:
        SpaceError: with the place and a remedy.
    """
    bound = [*given, *(f"{DEVICE}.{name}" for name in device)]
    first = len(bound)
    parameters: dict[str, Values | Range | Expression] = {}
    for name, values in declaration.items():
        if name == WHERE:
            continue
        if name in given:
            raise SpaceError(name, "is given in params, too", "give it once")
        parameters[name] = _parameter(name, values)
        _check_names(name, parameters[name].names, bound, declaration)
        bound.append(name)
    if not parameters:
        raise SpaceError("", "the space has no parameter", "add one: NAME = [VALUE, VALUE]")
    conditions, ready = [], []
    where = declaration.get(WHERE, [])
    if not isinstance(where, list) or not all(isinstance(text, str) for text in where):
        raise SpaceError(WHERE, f"found {where!r}", 'list conditions: where = ["a <= b"]')
    for i, text in enumerate(where):
        try:
            condition = parse_expression(text)
        except ExpressionError as error:
            raise SpaceError(WHERE, error.what, error.remedy, i) from None
        _check_names(WHERE, condition.names, bound, declaration, i)
        places = [bound.index(name) + 1 - first for name in condition.names]
        conditions.append(condition)
        ready.append(max([0, *places]))
    return Space(parameters, tuple(conditions), tuple(ready))


def _parameter(name: str, values: Any) -> Values | Range | Expression:
    """The values that a parameter's entry in the file declares."""
    if isinstance(values, bool | int | float):
        values = [values]
    try:
        if isinstance(values, str):
            parts = [parse_expression(part) for part in values.split(":")]
            if len(parts) == 1:
                return parts[0]
            if len(parts) in (2, 3):
                return Range(parts[0], parts[1], parts[2] if parts[2:] else parse_expression("1"))
            raise SpaceError(name, f"found {values!r}", "a range is 'first : last : step'")
    except ExpressionError as error:
        raise SpaceError(name, error.what, error.remedy) from None
    if not isinstance(values, list) or not values:
        raise SpaceError(
            name, f"found {values!r}", "give a list of values, or a range 'first : last : step'"
        )
    kinds = {str if isinstance(value, str) else type(value) for value in values}
    if kinds - {int, float, bool, str} or (str in kinds and len(kinds) > 1):
        raise SpaceError(name, f"found {values!r}", "list numbers only, or texts only")
    if len(set(values)) < len(values):
        twice = next(value for value in values if values.count(value) > 1)
        raise SpaceError(name, f"the value {twice!r} stands twice", "list each value once")
    if any(not isinstance(value, str) and not abs(value) < 1 << 62 for value in values):
        raise SpaceError(name, "a value of 2^62 or more", "use smaller numbers")
    return Values(tuple(values), np.array(values))


def _check_names(
    key: str,
    names: frozenset[str],
    bound: Sequence[str],
    declaration: Mapping[str, Any],
    condition: int | None = None,
) -> None:
    """Refuse a name that is not bound where it is used."""
    for name in sorted(names.difference(bound)):
        if name in declaration and name != WHERE:
            raise SpaceError(
                key, f"{name!r} is used before it is declared", f"declare {name} above {key}"
            )
        known = ", ".join(bound) or "none"
        if name.startswith(f"{DEVICE}."):
            what, remedy = (
                f"the site has no number {name}",
                "add it to the site file's [device], or name a site that has it",
            )
        else:
            what, remedy = f"unknown name {name!r}", f"known here: {known}"
        raise SpaceError(key, what, remedy, condition)


MAX_VALUES = 1_000_000
"""The most values of one parameter."""
CHUNK = 1 << 19
"""The candidates held in memory at once; more where a single parameter has more values."""


@dataclass(frozen=True)
class PartialVariants:
    """Values of the parameters bound so far: ``columns`` as in
    :class:`kernels.space.Variants`, ``size`` rows."""

    size: int
    columns: dict[str, np.ndarray]

    def take(self, rows: np.ndarray) -> PartialVariants:
        return PartialVariants(
            len(rows), {name: column[rows] for name, column in self.columns.items()}
        )


@dataclass(frozen=True)
class Bound:
    """Candidates with one more parameter, ``name``: row i has the parameters of the row ``rows[i]``
    of ``parents``, and ``column[i]``. The parents' columns are copied only where they are used."""

    parents: PartialVariants
    rows: np.ndarray
    name: str
    column: np.ndarray

    def keep(self, passed: np.ndarray) -> Bound:
        """The candidates that passed. ``passed``: indices into ``rows``."""
        return Bound(self.parents, self.rows[passed], self.name, self.column[passed])

    def candidates(self) -> PartialVariants:
        taken = self.parents.take(self.rows)
        return PartialVariants(taken.size, taken.columns | {self.name: self.column})


@dataclass(frozen=True)
class Series:
    """The values of a parameter for each candidate (N,): ``counts`` values, from ``first`` in steps
    of ``step``. With ``of``, they are indices into it."""

    counts: np.ndarray
    first: np.ndarray
    step: np.ndarray
    of: np.ndarray | None = None

    def bound(self, name: str, parents: PartialVariants) -> Iterator[Bound]:
        """The candidates with each of their values, in order, in chunks."""
        ends = np.cumsum(self.counts)
        total = int(ends[-1])
        starts = np.searchsorted(ends, np.arange(0, total, CHUNK), side="right").tolist()
        for a, b in zip(starts, [*starts[1:], parents.size], strict=True):
            counts, first, step = self.counts[a:b], self.first[a:b], self.step[a:b]
            rows = np.repeat(np.arange(a, b), counts)
            before = np.cumsum(counts) - counts
            if first.dtype.kind == step.dtype.kind == "i" and np.all(step == step[0]):
                column = np.repeat(first - before * step, counts) + np.arange(len(rows)) * step[0]
            else:
                within = np.arange(len(rows)) - np.repeat(before, counts)
                column = self.first[rows] + within * self.step[rows]
            yield Bound(parents, rows, name, column if self.of is None else self.of[column])


def range_counts(name: str, first: np.ndarray, last: np.ndarray, step: np.ndarray) -> np.ndarray:
    """The number of values of each range (N,); 0 where its last value lies before its first."""
    if any(part.dtype.kind not in "bif" for part in (first, last, step)):
        raise SpaceError(name, "a range of texts", "give numbers")
    if np.any(step == 0):
        raise SpaceError(name, "a range with step 0", "give a step that is not 0")
    steps = np.floor((last.astype(float) - first) / step * (1 + 1e-12) + 1e-12)
    counts: np.ndarray = np.maximum(steps + 1, 0)
    if counts.max(initial=0) > MAX_VALUES:
        raise SpaceError(
            name,
            f"a range of {counts.max():,.0f} values",
            f"give a larger step: a parameter may have {MAX_VALUES:,} values",
        )
    return counts.astype(np.int64)


MAX_VARIANTS = 20_000_000
MAX_CANDIDATES = 1_000_000_000
"""The most candidates that are tested; a space with more is refused."""
LONG_RANGE = 16
"""The least average number of values of a candidate for which grouping candidates pays."""


@dataclass(frozen=True)
class Variants:
    """The variants of a space, in the order of its declaration: the last parameter changes first.

    ``columns``: parameter -> its values (N,), or for a parameter with listed values the indices
    (N,) into ``listed``. ``refused``: the number of candidates that each condition refused.
    """

    size: int
    columns: Mapping[str, np.ndarray]
    listed: Mapping[str, tuple[Any, ...]]
    refused: tuple[int, ...]

    def __len__(self) -> int:
        return self.size

    def values(self) -> dict[str, np.ndarray]:
        """Parameter -> its values (N,)."""
        return {
            name: np.array(self.listed[name])[column] if name in self.listed else column
            for name, column in self.columns.items()
        }

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Every variant: parameter -> value, with its declared type."""
        columns = [
            [self.listed[name][i] for i in column.tolist()]
            if name in self.listed
            else column.tolist()
            for name, column in self.columns.items()
        ]
        for row in zip(*columns, strict=True):
            yield dict(zip(self.columns, row, strict=True))


def variants(space: Space, given: Mapping[str, Any], device: Mapping[str, float]) -> Variants:
    """All variants of a space.

    ``given``: name -> value of the parameters that ``params`` gives; ``device``: name -> number of
    the site.

    Raises:
        SpaceError: no variant, too many, a step of 0, or arithmetic without a result.
    """
    fixed = {
        name: value for name, value in given.items() if isinstance(value, bool | int | float | str)
    }
    fixed |= {f"{DEVICE}.{name}": value for name, value in device.items()}
    walk = _Walk(space, {name: np.array([value]) for name, value in fixed.items()})
    parts = list(walk.all())
    size = sum(part.size for part in parts)
    if not size:
        raise _empty(space, walk)
    columns = {
        name: np.concatenate([part.columns[name] for part in parts]) for name in space.parameters
    }
    listed = {n: v.listed for n, v in space.parameters.items() if isinstance(v, Values)}
    return Variants(size, columns, listed, tuple(walk.refused))


@dataclass(frozen=True)
class _Groups:
    """Groups of candidates for which ``conditions`` have the same results. ``group`` (N,): the
    group of each candidate. For each group (G,), ``of_group``: one candidate; ``weights``: the
    number of candidates."""

    conditions: Sequence[int]
    group: np.ndarray
    of_group: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True)
class _EmptyRange:
    """A range without a value for one candidate. ``depth``: the index of its parameter;
    ``values``: of the names in the range."""

    depth: int
    declared: Range
    first: float
    last: float
    step: float
    values: Mapping[str, Any]

    def error(self, name: str) -> SpaceError:
        """The error for the range of the parameter ``name``."""
        parts = (self.declared.first, self.declared.last, self.declared.step)
        text = " : ".join(part.text.strip() for part in parts).removesuffix(" : 1")
        given = ", ".join(f"{key} = {value}" for key, value in self.values.items())
        side, limit, other = ("below", "more", "negative")
        if self.step < 0:
            side, limit, other = ("above", "less", "positive")
        return SpaceError(
            name,
            f"the range '{text}' has no value{f' with {given}' if given else ''}: its last, "
            f"{self.last:g}, is {side} its first, {self.first:g}, and its step is {self.step:g}",
            f"give a last value of {self.first:g} or {limit}, or a {other} step",
        )


class _Walk:
    """Binds the parameters in turn, a chunk of candidates at a time."""

    def __init__(self, space: Space, fixed: dict[str, np.ndarray]) -> None:
        self.space, self.fixed = space, fixed
        self.names = list(space.parameters)
        self.refused = [0] * len(space.conditions)
        self.tested = self.kept = 0
        self.empty_range: _EmptyRange | None = None
        """The range without a value for some candidate that is declared last."""
        self.ready = [
            [i for i, ready in enumerate(space.ready) if ready == depth]
            for depth in range(len(self.names) + 1)
        ]
        # The number of candidates that follow from one by the next lists without conditions: with
        # it, a space that is too large is refused before it is listed.
        self.following = [1] * (len(self.names) + 1)
        for depth in range(len(self.names) - 1, -1, -1):
            values = self.space.parameters[self.names[depth]]
            free = isinstance(values, Values) and not self.ready[depth + 1]
            count = len(values.listed) if isinstance(values, Values) else 1
            self.following[depth] = count * self.following[depth + 1] if free else 1

    def all(self) -> Iterator[PartialVariants]:
        """All variants."""
        nothing = PartialVariants(1, {})
        start = Bound(nothing, np.arange(1), "", np.zeros(1))
        if self._passed(start, self.ready[0]).rows.size:
            yield from self._below(0, nothing)

    def _below(self, depth: int, candidates: PartialVariants) -> Iterator[PartialVariants]:
        """The variants that begin with these candidates: the first ``depth`` parameters are bound
        and have passed their conditions."""
        if not candidates.size:
            return
        if self.kept + candidates.size * self.following[depth] > MAX_VARIANTS:
            raise SpaceError(
                "",
                f"more than {MAX_VARIANTS:,} variants",
                "add conditions under where, or list fewer values",
            )
        if depth == len(self.names):
            self.kept += candidates.size
            yield candidates
            return
        declared = self.space.parameters[self.names[depth]]
        most = max(1, CHUNK // (len(declared.listed) if isinstance(declared, Values) else 64))
        for start in range(0, candidates.size, most):
            rows = np.arange(start, min(start + most, candidates.size))
            part = candidates if len(rows) == candidates.size else candidates.take(rows)
            for expanded in self._expanded(depth, part):
                yield from self._below(depth + 1, expanded)

    def _expanded(self, depth: int, parents: PartialVariants) -> Iterator[PartialVariants]:
        """The candidates with each value of their next parameter that passes its conditions."""
        name, conditions = self.names[depth], self.ready[depth + 1]
        declared = self.space.parameters[name]
        if isinstance(declared, Expression):
            column = self._evaluated(name, (declared,), parents)[0]
            self._count(parents.size)
            parts = iter([Bound(parents, np.arange(parents.size), name, column)])
        else:
            series = self._series(name, declared, parents)
            if isinstance(declared, Range) and not series.counts.all():
                self._note_empty(depth, declared, series, parents)
            if not series.counts.any():
                return
            groups = self._groups(name, series, parents, conditions)
            if groups is not None:
                series = self._tested_once(name, series, parents, groups)
                conditions = conditions[len(groups.conditions) :]
                if not series.counts.any():
                    return
            parts = series.bound(name, parents)
            if groups is None:
                parts = self._counted(parts)
        for part in parts:
            yield self._passed(part, conditions).candidates()

    def _series(self, name: str, declared: Values | Range, parents: PartialVariants) -> Series:
        """The values of a parameter before any condition; for a list, indices into it."""
        if isinstance(declared, Values):
            zeros = np.zeros(parents.size, dtype=np.int64)
            return Series(zeros + len(declared.listed), zeros, zeros + 1)
        first, last, step = self._evaluated(
            name, (declared.first, declared.last, declared.step), parents
        )
        return Series(range_counts(name, first, last, step), first, step)

    def _evaluated(
        self, name: str, expressions: Sequence[Expression], parents: PartialVariants
    ) -> list[np.ndarray]:
        names = {name for expression in expressions for name in expression.names}
        columns = self._fixed(names, parents.size) | self._columns(names, parents)
        try:
            return [expression.values(columns, parents.size) for expression in expressions]
        except ExpressionError as error:
            raise SpaceError(name, error.what, error.remedy) from None

    def _note_empty(
        self, depth: int, declared: Range, series: Series, parents: PartialVariants
    ) -> None:
        """Record a range without a value for some of these candidates, with the first of them."""
        if self.empty_range is not None and self.empty_range.depth >= depth:
            return
        one = parents.take(np.flatnonzero(series.counts == 0)[:1])
        ends = self._evaluated(
            self.names[depth], (declared.first, declared.last, declared.step), one
        )
        used = self._fixed(declared.names, 1) | self._columns(declared.names, one)
        first, last, step = (end.item() for end in ends)
        values = {name: column.item() for name, column in sorted(used.items())}
        self.empty_range = _EmptyRange(depth, declared, first, last, step, values)

    def _groups(
        self, name: str, series: Series, parents: PartialVariants, conditions: Sequence[int]
    ) -> _Groups | None:
        """Groups of candidates with the same values of the parameter and the same results of its
        first conditions, of the most conditions possible; None where groups do not pay."""
        total = int(series.counts.sum())
        if not conditions or total < LONG_RANGE * parents.size:
            return None
        declared = self.space.parameters[name]
        used = set(declared.names)
        group = _numbered(np.zeros(parents.size, dtype=np.int64), used, parents)
        groups = None
        for i, condition in enumerate(conditions):
            more = self.space.conditions[condition].names - used - {name}
            group = _numbered(group, more, parents)
            used |= more
            _, of_group, weights = np.unique(group, return_index=True, return_counts=True)
            if int(series.counts[of_group].sum()) > min(total // 2, 4 * CHUNK):
                break
            groups = _Groups(conditions[: i + 1], group, of_group, weights)
        return groups

    def _tested_once(
        self, name: str, series: Series, parents: PartialVariants, groups: _Groups
    ) -> Series:
        """The values that pass the groups' conditions, tested once for each group."""
        self._count(int(series.counts.sum()))
        of_group = groups.of_group
        one_each = Series(series.counts[of_group], series.first[of_group], series.step[of_group])
        firsts = parents.take(of_group)
        left = [
            self._passed(part, groups.conditions, groups.weights)
            for part in one_each.bound(name, firsts)
        ]
        rows = np.concatenate([part.rows for part in left])
        counts = np.bincount(rows, minlength=firsts.size)
        starts = np.cumsum(counts) - counts
        ones = np.ones(parents.size, dtype=np.int64)
        column = np.concatenate([part.column for part in left])
        return Series(counts[groups.group], starts[groups.group], ones, column)

    def _counted(self, parts: Iterator[Bound]) -> Iterator[Bound]:
        for part in parts:
            self._count(len(part.rows))
            yield part

    def _count(self, candidates: int) -> None:
        self.tested += candidates
        if self.tested > MAX_CANDIDATES:
            raise SpaceError(
                "",
                f"more than {MAX_CANDIDATES:,} candidates were tested, of which {self.kept:,} "
                f"are variants",
                "declare the parameters that conditions use first, or list fewer values",
            )

    def _passed(
        self, candidates: Bound, conditions: Sequence[int], weights: np.ndarray | None = None
    ) -> Bound:
        """The candidates that pass these conditions. ``weights`` (parents,): the number of
        candidates that each parent represents."""
        for i in conditions:
            condition, size = self.space.conditions[i], len(candidates.rows)
            if not size:
                break
            names, own = condition.names, candidates.name
            columns = {
                n: column[candidates.rows]
                for n, column in self._columns(names - {own}, candidates.parents).items()
            }
            columns |= self._columns(names & {own}, PartialVariants(size, {own: candidates.column}))
            columns |= {
                n: np.broadcast_to(self.fixed[n], (size,)) for n in names & self.fixed.keys()
            }
            try:
                truth = condition.values(columns, size)
            except ExpressionError as error:
                raise SpaceError(WHERE, error.what, error.remedy, i) from None
            passed = np.flatnonzero(truth)
            if len(passed) == size:
                continue
            if weights is None:
                self.refused[i] += size - len(passed)
            else:
                weight = weights[candidates.rows]
                self.refused[i] += int(weight.sum() - weight[passed].sum())
            candidates = candidates.keep(passed)
        return candidates

    def _fixed(self, names: Iterable[str], size: int) -> dict[str, np.ndarray]:
        """Name -> values (size,), for the names whose value is the same for all candidates."""
        return {n: np.broadcast_to(self.fixed[n], (size,)) for n in self.fixed.keys() & names}

    def _columns(self, names: Iterable[str], candidates: PartialVariants) -> dict[str, np.ndarray]:
        """Name -> values (N,), for the names that are parameters of the candidates."""
        columns = {}
        for name in candidates.columns.keys() & names:
            column, declared = candidates.columns[name], self.space.parameters[name]
            columns[name] = declared.column[column] if isinstance(declared, Values) else column
        return columns


def _numbered(group: np.ndarray, names: Iterable[str], candidates: PartialVariants) -> np.ndarray:
    """The groups (N,), each divided by the values of these parameters."""
    for name in sorted(candidates.columns.keys() & names):
        values, place = np.unique(candidates.columns[name], return_inverse=True)
        group = np.unique(group * len(values) + place, return_inverse=True)[1]
    return group


def _empty(space: Space, walk: _Walk) -> SpaceError:
    """The error of a space without variants: the last range or condition that refused some."""
    refused, empty = np.array(walk.refused), walk.empty_range
    ready = np.array(space.ready)
    deepest = int(ready[refused > 0].max(initial=0))
    if empty is not None and empty.depth >= deepest:
        return empty.error(walk.names[empty.depth])
    i = int(np.argmax(refused * (ready == deepest)))
    return SpaceError(
        WHERE,
        f"no variant is left: {space.conditions[i].text!r} refused the last {refused[i]:,} "
        f"candidates",
        "relax this condition, or list more values",
        i,
    )
