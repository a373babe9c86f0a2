"""Problems and variants: which parameter sets of a kernel compute the same."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from analysis.measurements.observations import FitError
from dvfs.errors import unknown_name
from dvfs.kernel_instance import KernelInstance

SHOWN = 12
"""Values and problems that an error names."""


def problems(
    instances: Iterable[KernelInstance], tuned: Collection[str]
) -> dict[str, dict[str, Any]]:
    """The distinct problems among parameter sets, in the order of their parameters: each as JSON,
    and as it is.

    ``tuned``: the parameters that differ between variants of one problem; all others are its own.
    """
    rests = [
        {name: value for name, value in instance.params.items() if name not in tuned}
        for instance in instances
    ]
    distinct = {json.dumps(rest, sort_keys=True): rest for rest in rests}
    return dict(sorted(distinct.items(), key=lambda pair: _order(pair[1])))


def _order(params: Mapping[str, Any]) -> list[tuple[str, float, str]]:
    """Numbers by value, and everything else as text."""
    return [
        (name, value, "") if isinstance(value, int | float) else (name, math.inf, str(value))
        for name, value in sorted(params.items())
    ]


def of_problem(instances: Sequence[KernelInstance], problem: Mapping[str, str]) -> list[int]:
    """The places of the parameter sets that have these values, given as text.

    Raises:
        FitError: there are none.
    """
    kept = list(range(len(instances)))
    for name, value in problem.items():
        values = {
            value_text(instances[i].params[name]): None for i in kept if name in instances[i].params
        }
        if not values:
            known = sorted({key for i in kept for key in instances[i].params})
            raise FitError(f"--problem: {unknown_name('parameter', name, known)}")
        kept = [i for i in kept if _is_value(instances[i].params.get(name), value)]
        if not kept:
            shown = ", ".join(list(values)[:SHOWN]) + (" ..." if len(values) > SHOWN else "")
            raise FitError(f"--problem: found {name}={value}; {name} is one of {shown}")
    return kept


def check_one_problem(instances: Sequence[KernelInstance], tuned: Collection[str]) -> None:
    """Refuse parameter sets of several problems (FitError), and name these."""
    several = list(problems(instances, tuned).values())
    if len(several) < 2:
        return
    differ = [
        name
        for name in dict.fromkeys(key for params in several for key in params)
        if len({value_text(params.get(name)) for params in several}) > 1
    ]
    texts = [
        ",".join(f"{name}={value_text(params[name])}" for name in differ if name in params)
        for params in several
    ]
    shown = " or ".join(f"--problem {text}" for text in texts[:SHOWN])
    raise FitError(
        f"{instances[0].name} was measured for {len(several)} problems; name one: {shown}"
        f"{' ...' if len(texts) > SHOWN else ''}"
    )


def problem_names(several: Sequence[Mapping[str, Any]]) -> list[str]:
    """A short name for each of several problems: the values that differ between them, or of one
    its texts."""
    names = dict.fromkeys(name for params in several for name in params)
    kept = [
        name
        for name in names
        if len({value_text(params.get(name)) for params in several}) > 1
        or (len(several) == 1 and isinstance(several[0][name], str))
    ]
    return [
        " ".join(value_text(params[name]) for name in kept if name in params) for params in several
    ]


def value_text(value: Any) -> str:
    """A parameter's value as --problem takes it."""
    return value if isinstance(value, str) else json.dumps(value)


def _is_value(value: Any, text: str) -> bool:
    """Whether a parameter's value is what a text says; numbers by value."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(text) == value
        except ValueError:
            return False
    return value is not None and value_text(value) == text
