"""Metrics of variants: what is known of each beside its time and energy."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dvfs.dataset import COUNTERS, METRICS, class_unit, moves_data
from dvfs.kernel_instance import KernelInstance

LABELS = "labels"
"""The key of a measurement's provenance that has the further columns of an imported table."""


@dataclass(frozen=True)
class Metric:
    """A number of each variant: ``values``, float64 (variants,), NaN where it is not known.

    ``kind``: parameter, count, kernel, counter or label, which is where it is from.
    """

    name: str
    unit: str
    kind: str
    values: np.ndarray


def variant_metrics(
    instances: Sequence[KernelInstance],
    variant: np.ndarray,
    provenance: Sequence[str],
    counts: Mapping[str, np.ndarray],
    time_s: np.ndarray,
) -> list[Metric]:
    """Every metric that is known of two variants or more and differs between them.

    In this order: the parameters that are numbers; operations a second of each class, and flops a
    byte; what the kernel states of itself, such as ``occupancy`` or ``registers``; what hardware
    counters counted, a second, and instructions per cycle; the columns of an imported table that
    are numbers. Of two with the same name the first.

    ``variant``: int64 (rows,), each row's; ``provenance``: its JSON. ``counts`` and ``time_s``:
    float64 (variants,).
    """
    metrics = [
        *_parameters(instances),
        *_counted(counts, time_s),
        *_of_provenance(variant, provenance, time_s),
    ]
    by_name = {metric.name: metric for metric in reversed(metrics)}
    return [m for m in metrics if by_name[m.name] is m and _differs(m.values)]


def _differs(values: np.ndarray) -> bool:
    known = values[np.isfinite(values)]
    return len(known) > 1 and float(np.ptp(known)) > 0


def _parameters(instances: Sequence[KernelInstance]) -> list[Metric]:
    names = dict.fromkeys(name for instance in instances for name in instance.params)
    columns = {name: [instance.params.get(name) for instance in instances] for name in names}
    return [
        Metric(name, "", "parameter", np.array([_number(v) for v in values]))
        for name, values in columns.items()
        if all(value is None or isinstance(value, int | float) for value in values)
    ]


def _counted(counts: Mapping[str, np.ndarray], time_s: np.ndarray) -> list[Metric]:
    units = {name: "B" if moves_data(name) else class_unit(name) for name in counts}
    flops = [np.nan_to_num(values) for name, values in counts.items() if units[name] == "flop"]
    metrics = [
        Metric(f"{name}_per_s", f"{units[name]}/s", "count", values / time_s)
        for name, values in counts.items()
    ]
    for name, values in counts.items():
        if flops and units[name] == "B":
            known = np.where(values > 0, values, np.nan)
            metrics.append(Metric(f"intensity_{name}", "flop/B", "count", sum(flops) / known))
    return metrics


def _of_provenance(
    variant: np.ndarray, provenance: Sequence[str], time_s: np.ndarray
) -> list[Metric]:
    """What the kernel states, counters and labels, each the mean over a variant's rows with it."""
    stated: dict[str, dict[int, float]] = {}
    events: dict[str, dict[int, float]] = {}
    labels: dict[str, dict[int, float]] = {}
    for row, text in enumerate(provenance):
        if any(f'"{key}"' in text for key in (METRICS, COUNTERS, LABELS)):
            facts = json.loads(text)
            for into, own in (
                (stated, facts.get(METRICS)),
                (events, (facts.get(COUNTERS) or {}).get("events")),
                (labels, facts.get(LABELS)),
            ):
                for name, value in (own or {}).items():
                    into.setdefault(name, {})[row] = _number(value)

    def mean(values: Mapping[int, float]) -> np.ndarray:
        own = variant[list(values)]
        with np.errstate(invalid="ignore"):
            total = np.bincount(own, list(values.values()), len(time_s))
            return np.asarray(total / np.bincount(own, minlength=len(time_s)))

    metrics = [Metric(name, "", "kernel", mean(values)) for name, values in stated.items()]
    if {"cycles", "instructions"} <= events.keys():
        cycles, instructions = mean(events["cycles"]), mean(events["instructions"])
        known = np.where(cycles > 0, cycles, np.nan)
        metrics.append(Metric("instructions_per_cycle", "", "counter", instructions / known))
    for name, values in sorted(events.items()):
        metrics.append(Metric(f"{name}_per_s", "1/s", "counter", mean(values) / time_s))
    for name, values in labels.items():
        if all(map(math.isfinite, values.values())):
            metrics.append(Metric(name, "", "label", mean(values)))
    return metrics


def _number(value: Any) -> float:
    """A finite number, or NaN."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan
