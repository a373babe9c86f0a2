"""What a check of the measurements reports, and its text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from analysis.measurements.observations import setting_text
from dvfs.kernel_instance import KernelInstance, dataset_kernels
from dvfs.setting import AXES, Setting

if TYPE_CHECKING:
    import xarray as xr

    from dvfs.dataset import Columns

MAX_NAMED = 3
SEPARATE = 3
"""Findings of one check that people read one by one; of more, the first and the number."""

Severity = Literal["refused", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """What a check reports of a site's measurements.

    ``check``: its short name. ``severity``: ``refused`` (cannot be used for a fit), ``warning`` or
    ``note``. ``rows``: int64, sorted indices into the Dataset's measurement dimension.
    ``text``: what was found, where, and what to do about it. ``kernels``: those that the rows
    are of, by label.
    """

    check: str
    severity: Severity
    rows: np.ndarray
    text: str
    kernels: tuple[KernelInstance, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """A finding of ``campaign fit --json``."""
        return {
            "check": self.check,
            "severity": self.severity,
            "text": self.text,
            "kernels": [kernel.as_dict() for kernel in self.kernels],
        }


def describe(finding: Finding, dataset: xr.Dataset | Columns, limit: int = 5) -> list[str]:
    """The first ``limit`` rows of a finding, a line each: kernel, setting, repeat, point id."""
    lines = []
    known = dataset_kernels(dataset)
    for row in finding.rows[:limit]:
        one = {
            name: np.asarray(dataset[name])[row]
            for name in ("kernel", "params", *AXES, "repeat", "node", "point_id")
            if name in dataset
        }
        kernel = known[str(one["kernel"]), str(one.get("params", ""))]
        text = f"{kernel.label} at {setting_text(Setting.of_row(one))}"
        text += f", repeat {int(one['repeat'])}" if "repeat" in one else ""
        text += f", node {one['node']}" if one.get("node") else ""
        lines.append(text + (f" ({one['point_id']})" if "point_id" in one else ""))
    if len(finding.rows) > limit:
        lines.append(f"and {len(finding.rows) - limit} further rows")
    return lines


def first_named(items: list[str]) -> str:
    """The first items of a list for a message, and how many more there are."""
    more = len(items) - MAX_NAMED
    return "; ".join(items[:MAX_NAMED]) + (f"; and {more} more" if more > 0 else "")
