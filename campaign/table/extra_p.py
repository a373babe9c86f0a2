"""A store's measurements as Extra-P's JSON lines."""

from __future__ import annotations

import json
import math

import pandas as pd

from dvfs.dataset import is_complete
from dvfs.errors import ArgumentError
from dvfs.kernel_instance import KernelInstance
from dvfs.setting import NUMBERS


def extra_p_lines(table: pd.DataFrame, metric: str) -> str:
    """The complete rows as Extra-P's JSON lines: one metric, a call path a kernel.

    Parameters are the kernels' numbers, and ``inverse_core_mhz`` (1/MHz) and the like of each
    number of a setting, as far as they vary: Extra-P's default models grow with their parameters.
    Other parameters and the profile are part of the call path.

    Raises:
        ArgumentError: nothing varies, or kernels have other parameters.
    """
    rows = []
    for row in table[is_complete(table["status"])].to_dict("records"):
        power_w = row["energy_j"] / row["time_s"] if row["time_s"] > 0 else math.nan
        value = power_w if metric == "power_w" else row[metric]
        params = json.loads(row["params"])
        numbers = {n: v for n, v in params.items() if type(v) in (int, float)}
        numbers |= {
            f"inverse_{name}": 1.0 / row[name] for name in NUMBERS if math.isfinite(row[name])
        }
        numbers.setdefault("inverse_power_limit_w", 0.0)  # no limit is the highest
        others = {n: v for n, v in params.items() if n not in numbers}
        others |= {"profile": row["profile"]} if row["profile"] else {}
        if math.isfinite(value):
            rows.append((KernelInstance(row["kernel"], others).label, numbers, value))
    names = dict.fromkeys(name for _, numbers, _ in rows for name in numbers)
    varying = [n for n in names if len({numbers.get(n) for _, numbers, _ in rows}) > 1]
    if not varying:
        raise ArgumentError("--extra-p: no parameter or clock varies, so there is nothing to model")
    for label, numbers, _ in rows:
        if missing := [n for n in varying if n not in numbers]:
            raise ArgumentError(
                f"--extra-p: {label} has no parameter {missing[0]!r}, as others have: name one "
                "kernel by --kernel"
            )
    lines = (
        {
            "params": {name: numbers[name] for name in varying},
            "callpath": label,
            "metric": metric,
            "value": value,
        }
        for label, numbers, value in rows
    )
    return "".join(json.dumps(line) + "\n" for line in lines)
