"""A store's measurements in the formats of other tools: Kernel Tuner's T4 and Extra-P's JSON lines.

Both take the table of :func:`campaign.table.exporting.export_table`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from campaign.table.formats.kernel_tuner import ERROR, OF_RESULT, OURS, TIMES
from dvfs.dataset import TIMED_OUT, WRONG_RESULT, is_complete
from dvfs.errors import ArgumentError
from dvfs.kernel_instance import KernelInstance
from dvfs.names import unknown_name
from dvfs.setting import AXES

INVALIDITIES = {
    "CompilationFailedConfig": "compile",
    "RuntimeFailedConfig": "runtime",
    "InvalidConfig": "constraints",
    **{name: name for name in ("timeout", "compile", "runtime", "correctness", "constraints")},
}
"""Why a variant failed, in a cache or a T4 file -> T4's word."""
OF_FILE = ("schema_version", "metadata", "objective")
"""What a file of Kernel Tuner says of all its results."""
BY_STATUS = {TIMED_OUT: "timeout", WRONG_RESULT: "correctness"}


def of_kernel(table: pd.DataFrame, kernel: str | None) -> pd.DataFrame:
    """The rows of one kernel: the named one, or the only one.

    Raises:
        ArgumentError: there is no such kernel, or there are several.
    """
    names = sorted(set(table["kernel"]))
    if kernel is None and len(names) > 1:
        raise ArgumentError(f"--kernel: name one of {', '.join(names)}: the file holds one kernel")
    if kernel is not None and kernel not in names:
        raise ArgumentError(f"--kernel: {unknown_name('kernel', kernel, names)}")
    return table if kernel is None else table[table["kernel"] == kernel]


def kernel_tuner_results(table: pd.DataFrame) -> str:
    """The rows of a kernel as Kernel Tuner's T4 file of results (schema 1.0.0), failures too.

    The clocks and the power limit are parameters (``nvml_gr_clock`` ...); times are in ms. What an
    import of Kernel Tuner's files kept as labels is a measurement again, as it was.
    """
    results = [_result(row) for row in table.to_dict("records")]
    return json.dumps(
        {
            "results": results,
            "schema_version": "1.0.0",
            "metadata": {"timeunit": "milliseconds"},
        }
    )


def _result(row: Mapping[Any, Any]) -> dict[str, Any]:
    provenance = json.loads(row["provenance"])
    kept = {name: _value(text) for name, text in provenance.get("labels", {}).items()}
    ok = bool(is_complete(row["status"]))
    clocks = {
        theirs: int(row[ours]) if row[ours].is_integer() else row[ours]
        for ours, theirs in ((name, OURS[name][0]) for name in AXES)
        if math.isfinite(row[ours])
    }
    elsewhere = {*TIMES.values(), *OF_RESULT, *OF_FILE}
    measured = {name: value for name, value in kept.items() if name not in elsewhere}
    if ok:
        made = {
            "time": row["time_s"] * 1e3,
            OURS["energy_j"][0]: row["energy_j"],
            OURS["power_w"][0]: provenance.get("power_w"),
            OURS["core_mhz_achieved"][0]: row["core_mhz_achieved"],
            OURS["mem_mhz_achieved"][0]: row["mem_mhz_achieved"],
        }
        with_power = any(made_of in measured for made_of in ("nvml_power", "nvml_energy"))
        for name, value in made.items():
            has_value = value is not None and math.isfinite(value)
            if has_value and not (with_power and name == OURS["energy_j"][0]):
                measured.setdefault(name, value)
    else:
        measured[ERROR] = ""
    times = {theirs: kept[ours] for theirs, ours in TIMES.items() if ours in kept}
    why = BY_STATUS.get(row["status"], "runtime")
    return {
        **{name: kept[name] for name in ("timestamp",) if name in kept},
        "configuration": json.loads(row["params"]) | clocks,
        "times": {"runtimes": []} | times,
        "invalidity": "correct" if ok else INVALIDITIES.get(row["text"], why),
        "correctness": kept.get("correctness", 1),
        "measurements": [
            {"name": name, "value": value, "unit": "ms" if name.startswith("time") else ""}
            for name, value in measured.items()
        ],
        "objectives": kept.get("objectives", ["time"]),
    }


def _value(text: str) -> Any:
    """A label as the number or list that it was written from; else its text."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float | list) else text


def extra_p_lines(table: pd.DataFrame, metric: str) -> str:
    """The complete rows as Extra-P's JSON lines: one metric, a call path a kernel.

    Parameters are the kernels' numbers, ``inverse_core_mhz``, ``inverse_mem_mhz`` (1/MHz) and
    ``inverse_power_limit_w`` (1/W), as far as they vary: Extra-P's default models grow with their
    parameters. Other parameters are
    part of the call path.

    Raises:
        ArgumentError: nothing varies, or kernels have other parameters.
    """
    rows = []
    for row in table[is_complete(table["status"])].to_dict("records"):
        power_w = row["energy_j"] / row["time_s"] if row["time_s"] > 0 else math.nan
        value = power_w if metric == "power_w" else row[metric]
        params = json.loads(row["params"])
        numbers = {n: v for n, v in params.items() if type(v) in (int, float)}
        numbers |= {f"inverse_{name}": 1.0 / row[name] for name in AXES if math.isfinite(row[name])}
        others = {n: v for n, v in params.items() if n not in numbers}
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
