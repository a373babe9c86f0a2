"""The check of counts that vary with the setting: then each setting did other work."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.quality.finding import Finding, first_named
from analysis.quality.rows import Rows

VARIES = float(np.log(1.2))
"""Of the work: counters of the same work differ by less, in the class that differs least."""
ONE_VARIES = float(np.log(1.5))
"""Of one class alone, where most counts of the site are the same at all settings."""
SAME = 1e-6


def counts_by_setting(rows: Rows) -> list[Finding]:
    """Kernels whose operation counts are not the same at all settings.

    A counter may well follow the clock or the scheduler (cycles that wait for memory, cache
    lines refilled), but not all of a kernel's; and none where counts are computed, not read.
    """
    by_kernel = [_kernels(rows, n) for n in rows.counts.values()]
    table = pd.DataFrame([one for of_class in by_kernel for one in of_class])
    if table.empty:
        return []
    computed = bool((table["ratio"] < SAME).mean() > 0.5)
    of_kernel = table.groupby("kernel")["ratio"]
    varies = of_kernel.min() > VARIES
    if computed:
        varies |= of_kernel.max() > ONE_VARIES
    kernels = varies.index[varies].to_numpy()
    if not len(kernels):
        return []
    members = np.flatnonzero(np.isin(rows.kernel, kernels))
    worst_first = table[table["kernel"].isin(kernels)].sort_values("ratio", ascending=False)
    worst_first = worst_first.drop_duplicates("kernel")
    named = [
        f"{rows.kernels[k]}: {np.exp(ratio):.3g} times the operations at "
        f"{rows.setting_text(most)} as at {rows.setting_text(least)}"
        for k, ratio, least, most in zip(
            *(worst_first[name].tolist() for name in ("kernel", "ratio", "least", "most")),
            strict=True,
        )
    ]
    return [
        Finding(
            "counts",
            "warning",
            rows.index[members],
            f"in {len(members)} rows of {len(kernels)} of {len(rows.kernels)} kernels the counts "
            f"vary with the setting ({first_named(named)}): picks would compare different work; "
            f"import time, energy and counts of one iteration",
        )
    ]


def _kernels(rows: Rows, n: np.ndarray) -> list[dict[str, float]]:
    """The kernels that have a class: the logarithm of the ratio of its largest count to its
    least, over the settings, and the indices of these two settings."""
    known = n > 0
    kernels = []
    by_cell = pd.Series(np.log(n[known])).groupby(rows.cell[known]).median()
    kernel, setting = np.divmod(by_cell.index.to_numpy(dtype=np.int64), len(rows.mhz))
    starts = np.flatnonzero(np.diff(kernel, prepend=-1))
    for log_n, settings, k in zip(
        np.split(by_cell.to_numpy(), starts[1:]),
        np.split(setting, starts[1:]),
        kernel[starts],
        strict=True,
    ):
        if len(log_n):
            least, most = settings[np.argmin(log_n)], settings[np.argmax(log_n)]
            ratio = float(np.ptp(log_n))
            kernels.append({"kernel": k, "ratio": ratio, "least": least, "most": most})
    return kernels
