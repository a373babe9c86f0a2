"""The hardware counters of each kernel, compared with its exact counts.

The provenance of a measurement holds its counters::

    "counters": {"events": {"cycles": ..., "instructions": ...}, "derived": {"dp": ...},
                 "share": {"dp_256": 0.5}}

all of one iteration; ``share`` holds the events that were counted for a part of the time only.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.measurements.provenance import mention
from dvfs.dataset import COUNT_PREFIX, COUNTERS, complete_rows

if TYPE_CHECKING:
    from dvfs.dataset import Columns


@dataclass(frozen=True, kw_only=True)
class KernelCounters:
    """A kernel's counters, medians over its measurements.

    ``instructions_per_cycle``: NaN if no measurement counted both. ``counted``: class ->
    operations or bytes of one iteration, derived from counters. ``counted_over_exact``: their ratio
    to the kernel's exact counts, for classes that it has. ``least_share``: the least share of the
    time in which an event was counted; below 1, counts are estimates (multiplexing).
    """

    label: str
    rows: int
    instructions_per_cycle: float
    counted: Mapping[str, float]
    counted_over_exact: Mapping[str, float]
    least_share: float


def kernel_counters(columns: Columns, site: str) -> list[KernelCounters]:
    """The counters of every kernel of a site that has any, by label."""
    kernels, kernel_of = columns.kernels
    complete = complete_rows(columns, site)
    by_label: dict[str, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
    texts = columns["provenance"]
    for row in np.flatnonzero(complete & mention(texts, f'"{COUNTERS}"')).tolist():
        counters = json.loads(texts[row]).get(COUNTERS)
        if counters:
            by_label[kernels[kernel_of[row]].label].append((row, counters))
    return [_summary(columns, label, rows) for label, rows in sorted(by_label.items())]


def _summary(
    columns: Columns, label: str, rows: list[tuple[int, dict[str, Any]]]
) -> KernelCounters:
    per_cycle, counted, ratios = [], defaultdict(list), defaultdict(list)
    least_share = 1.0
    for row, counters in rows:
        events = counters.get("events", {})
        if events.get("cycles") and "instructions" in events:
            per_cycle.append(events["instructions"] / events["cycles"])
        least_share = min([least_share, *counters.get("share", {}).values()])
        for name, value in counters.get("derived", {}).items():
            counted[name].append(value)
            column = f"{COUNT_PREFIX}{name}"
            exact = float(columns[column][row]) if column in columns else math.nan
            if exact > 0:
                ratios[name].append(value / exact)
    return KernelCounters(
        label=label,
        rows=len(rows),
        instructions_per_cycle=float(np.median(per_cycle)) if per_cycle else math.nan,
        counted={name: float(np.median(values)) for name, values in counted.items()},
        counted_over_exact={name: float(np.median(values)) for name, values in ratios.items()},
        least_share=least_share,
    )
