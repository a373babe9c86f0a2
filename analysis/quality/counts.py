"""The check of counts that vary with the setting: then each setting did other work."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from analysis.quality.finding import Finding, first_named
from analysis.quality.rows import Rows
from dvfs.groups import Groups

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
    table = [one for n in rows.counts.values() for one in _kernels(rows, n)]
    if not table:
        return []
    computed = sum(ratio < SAME for _, ratio, _, _ in table) > len(table) / 2
    least = np.full(len(rows.kernels), np.inf)
    most = np.zeros(len(rows.kernels))
    for k, ratio, _, _ in table:
        least[k], most[k] = min(least[k], ratio), max(most[k], ratio)
    varies = np.isfinite(least) & (least > VARIES)
    if computed:
        varies |= most > ONE_VARIES
    kernels = np.flatnonzero(varies)
    if not len(kernels):
        return []
    members = np.flatnonzero(np.isin(rows.kernel, kernels))
    worst: dict[int, str] = {}
    for k, ratio, low, high in sorted(table, key=lambda one: -one[1]):
        if varies[k]:
            worst.setdefault(
                k,
                f"{rows.kernels[k]}: {np.exp(ratio):.3g} times the operations at "
                f"{rows.setting_text(high)} as at {rows.setting_text(low)}",
            )
    named = list(worst.values())
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


def _kernels(rows: Rows, n: np.ndarray) -> list[tuple[int, float, int, int]]:
    """The kernels that have a class: the kernel, the logarithm of the ratio of its largest count to
    its least, over the settings, and the indices of the settings of the least and the largest."""
    known = n > 0
    cells = rows.cells if known.all() else Groups(rows.cell[known])
    log_n = cells.medians(np.log(n[known]))
    kernel, setting = np.divmod(cells.codes, len(rows.mhz))
    starts = np.flatnonzero(np.diff(kernel, prepend=-1))
    kernels = []
    for first, end in pairwise([*starts.tolist(), len(kernel)]):
        own, settings = log_n[first:end], setting[first:end]
        least, most = int(settings[np.argmin(own)]), int(settings[np.argmax(own)])
        kernels.append((int(kernel[first]), float(np.ptp(own)), least, most))
    return kernels
