"""The result of a check of the measurements, and its text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from analysis.measurements.observations import setting_text
from dvfs.dataset import Columns
from dvfs.kernel_instance import KernelInstance
from dvfs.setting import AXES, Setting

MAX_NAMED = 3
SEPARATE = 3
"""The most findings of one check that a report shows singly; of more it shows the first and the
number."""

Severity = Literal["refused", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("refused", "warning", "note")
"""The worst first."""


@dataclass(frozen=True)
class Finding:
    """A problem of a site's measurements.

    ``check``: the check's short name. ``severity``: ``refused`` (a fit cannot use the rows),
    ``warning`` or ``note``. ``rows``: int64, sorted indices into the store's
    measurements. ``text``: the problem, its place and its remedy. ``kernels``: those of the rows,
    by label.
    """

    check: str
    severity: Severity
    rows: np.ndarray
    text: str
    kernels: tuple[KernelInstance, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The finding as in ``campaign fit --json``."""
        return {
            "check": self.check,
            "severity": self.severity,
            "text": self.text,
            "kernels": [kernel.as_dict() for kernel in self.kernels],
        }


def describe(rows: np.ndarray, columns: Columns, limit: int) -> list[str]:
    """The first ``limit`` of ``rows`` (:attr:`Finding.rows`), a line each: kernel, setting, repeat,
    node, point id."""
    lines = []
    kernels = columns.kernels_by_pair
    for row in rows[:limit]:
        values = {
            name: columns[name][row]
            for name in ("kernel", "params", *AXES, "repeat", "node", "point_id")
        }
        kernel = kernels[str(values["kernel"]), str(values["params"])]
        node = f", node {values['node']}" if values["node"] else ""
        lines.append(
            f"{kernel.label} at {setting_text(Setting.of_row(values))}, repeat "
            f"{int(values['repeat'])}{node} ({values['point_id']})"
        )
    if len(rows) > limit:
        lines.append(f"and {len(rows) - limit} further rows")
    return lines


def first_named(items: list[str]) -> str:
    """The first items of a list for a message, and how many more there are."""
    more = len(items) - MAX_NAMED
    return "; ".join(items[:MAX_NAMED]) + (f"; and {more} more" if more > 0 else "")
