"""A space: a declaration of the variants of a kernel. :mod:`kernels.space_variants` lists them.

A parameter takes the values of a list, of a range ``first : last : step`` (the last included) or
of one expression. Ranges and conditions may use the parameters declared above them, those that the
kernel is given beside the space, and the site's numbers ``device.NAME``
(:mod:`kernels.expression`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.expression import DEVICE, BadExpression, Expression, parse_expression

WHERE = "where"


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
            what, remedy = (
                f"the site has no number {name}",
                "add it to the site file's [device], or name a site that has it",
            )
        else:
            what, remedy = f"unknown name {name!r}", f"known here: {known}"
        raise BadSpace(key, what, remedy, condition)
