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
"""The most values or problems in an error message."""


def problems(
    instances: Iterable[KernelInstance], tuned: Collection[str]
) -> dict[str, dict[str, Any]]:
    """JSON -> parameters of the distinct problems among parameter sets, in the order of their
    parameters.

    ``tuned``: the parameters that differ between the variants of a problem; all others define it.
    """
    of_instances = [
        {name: value for name, value in instance.params.items() if name not in tuned}
        for instance in instances
    ]
    distinct = {json.dumps(problem, sort_keys=True): problem for problem in of_instances}
    return dict(sorted(distinct.items(), key=lambda pair: _order(pair[1])))


def _order(params: Mapping[str, Any]) -> list[tuple[str, float, str]]:
    """The sort key of parameters: numbers by value, and everything else as text."""
    return [
        (name, value, "") if isinstance(value, int | float) else (name, math.inf, str(value))
        for name, value in sorted(params.items())
    ]


def of_problem(instances: Sequence[KernelInstance], problem: Mapping[str, str]) -> list[int]:
    """The indices of the parameter sets that have these values, given as text.

    Raises:
        FitError: there are none.
    """
    matches = list(range(len(instances)))
    for name, text in problem.items():
        params = [instances[i].params for i in matches]
        values = list(dict.fromkeys(value_text(p[name]) for p in params if name in p))
        if not values:
            names = sorted({key for p in params for key in p})
            raise FitError(f"--problem: {unknown_name('parameter', name, names)}")
        matches = [i for i in matches if _is_value(instances[i].params.get(name), text)]
        if not matches:
            shown = ", ".join(values[:SHOWN]) + (" ..." if len(values) > SHOWN else "")
            raise FitError(f"--problem: found {name}={text}; {name} is one of {shown}")
    return matches


def check_one_problem(instances: Sequence[KernelInstance], tuned: Collection[str]) -> None:
    """Raise FitError if the parameter sets belong to several problems; the message lists them."""
    distinct = list(problems(instances, tuned).values())
    if len(distinct) < 2:
        return
    differing = [
        name
        for name in dict.fromkeys(key for params in distinct for key in params)
        if len({value_text(params.get(name)) for params in distinct}) > 1
    ]
    texts = [
        ",".join(f"{name}={value_text(params[name])}" for name in differing if name in params)
        for params in distinct
    ]
    shown = " or ".join(f"--problem {text}" for text in texts[:SHOWN])
    raise FitError(
        f"{instances[0].name} was measured for {len(distinct)} problems; name one: {shown}"
        f"{' ...' if len(texts) > SHOWN else ''}"
    )


def problem_names(of_kernel: Sequence[Mapping[str, Any]]) -> list[str]:
    """A short name for each problem of a kernel: the values that differ between them, or the texts
    of a single one."""
    names = dict.fromkeys(name for params in of_kernel for name in params)
    shown = [
        name
        for name in names
        if len({value_text(params.get(name)) for params in of_kernel}) > 1
        or (len(of_kernel) == 1 and isinstance(of_kernel[0][name], str))
    ]
    return [
        " ".join(value_text(params[name]) for name in shown if name in params)
        for params in of_kernel
    ]


def value_text(value: Any) -> str:
    """The text of a parameter's value in ``--problem``."""
    return value if isinstance(value, str) else json.dumps(value)


def _is_value(value: Any, text: str) -> bool:
    """Whether a text states a parameter's value; numbers are compared by value."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(text) == value
        except ValueError:
            return False
    return value is not None and value_text(value) == text
