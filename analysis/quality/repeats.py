"""The checks of repeats against one another: outliers, and levels that change during measuring."""

from __future__ import annotations

import numpy as np
from scipy import special

from analysis.quality.finding import Finding, first_named
from analysis.quality.noise import FALSE_ALARM, RELEVANT, student_limit
from analysis.quality.rows import Rows


def outliers(
    rows: Rows, residual: dict[str, np.ndarray], sigma: dict[str, np.ndarray], df: float
) -> list[Finding]:
    """Rows whose energy is far from that of the other repeats of their point."""
    size = np.bincount(rows.cell)[rows.cell]
    judged = size > 1
    if not judged.any() or not df:
        return []
    away = residual["energy"]
    # A row is far from a median also because more than half of the others are off the other way.
    # Of two repeats each is half of their distance from it, and neither is the right one.
    spread = np.where(size == 2, np.sqrt(0.5), np.sqrt(1.0 + 1.0 / ((size + 1) // 2)))
    limit = student_limit(int(judged.sum()), df) * sigma["energy"][rows.kernel] * spread
    bad = np.flatnonzero(judged & (np.abs(away) > np.maximum(limit, RELEVANT)))
    if not len(bad):
        return []
    worst = bad[np.argsort(-np.abs(away[bad]))]
    named = [
        f"{rows.where(rows.kernel[i], rows.setting[i])}, repeat {rows.repeat[i]} "
        f"({100 * np.expm1(away[i]):+.0f} %)"
        for i in worst
    ]
    return [
        Finding(
            "outliers",
            "warning",
            rows.index[bad],
            f"the energy of {len(bad)} rows is far from that of their repeats: "
            f"{first_named(named)}; measure these points again, or leave the rows out",
        )
    ]


def level_changes(
    rows: Rows, residual: dict[str, np.ndarray], sigma: dict[str, np.ndarray]
) -> list[Finding]:
    """A level that changes in the order of measuring, by node: the running sum of deviations grows.

    For repeats in random order the running sum is a Brownian bridge; where its maximum lies,
    the level changed.
    """
    findings = []
    repeated = (np.bincount(rows.cell)[rows.cell] > 1) & (rows.start_unix_s > 0)
    nodes = np.unique(rows.node[repeated])
    for name in ("time", "power"):
        for node in nodes:
            mine = np.flatnonzero(repeated & (rows.node == node))
            if len(mine) < 10:
                continue
            mine = mine[np.argsort(rows.start_unix_s[mine], kind="stable")]
            scale = sigma[name][rows.kernel[mine]]
            # One outlier is not a change of level.
            away = np.clip(residual[name][mine] / scale, -3.0, 3.0)
            away = away - away.mean()
            run = np.abs(np.cumsum(away)) / np.sqrt(len(mine))
            at = int(np.argmax(run[:-1])) + 1
            if run[at - 1] <= special.kolmogi(FALSE_ALARM / (2 * len(nodes))):
                continue
            before, after = residual[name][mine[:at]], residual[name][mine[at:]]
            step = float(np.median(after) - np.median(before))
            if abs(step) < RELEVANT:
                continue
            shorter = mine[at:] if 2 * at >= len(mine) else mine[:at]
            i = int(mine[at])
            findings.append(
                Finding(
                    "order",
                    "warning",
                    np.sort(rows.index[shorter]),
                    f"{name} changes by about {100 * np.expm1(step):+.1f} % while "
                    f"measuring on one node, from {rows.where(rows.kernel[i], rows.setting[i])}, "
                    f"repeat {rows.repeat[i]} on; look for heat or other jobs there, and measure "
                    f"the {len(shorter)} rows on the shorter side of the change again",
                )
            )
    return findings
