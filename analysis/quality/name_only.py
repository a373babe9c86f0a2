"""The check for clocks that differ in name only."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from analysis.quality.finding import Finding
from analysis.quality.grid import Grid, clock_lines, log_mhz
from analysis.quality.rows import Rows
from analysis.quality.significance import RELEVANT, student_limit

MIN_RESPONSE = 0.1
"""Any kernel's power or time answers to a clock at least by its ratio to this power."""
NAME_ONLY = 0.3
"""A step is in name only where surely less than this share of the change to expect is seen."""


def name_only(rows: Rows, grids: dict[str, Grid]) -> list[Finding]:
    """Settings side by side between which no kernel's time or power changes, though others do.

    The change that a kernel shows between the ends of the line, in proportion to the step, is
    what a real step would show. A step is in name only when the share of that change which is
    seen, over all kernels and both quantities, is surely below :data:`NAME_ONLY`, and no kernel
    alone shows a change.
    """
    x = log_mhz(rows)
    ones: dict[tuple[int, tuple[float, ...]], list[np.ndarray]] = {}
    lines = clock_lines(rows)
    for domain in (0, 1):
        mine = [line for of, line in lines if of == domain]
        # A clock in name only is that at every clock of the other domain; or it is capped at some.
        steps: dict[tuple[float, float], list[tuple[np.ndarray, int]]] = {}
        for line in mine:
            for i, pair in enumerate(pairwise(rows.mhz[line, domain].tolist())):
                steps.setdefault(pair, []).append((line, i))
        everywhere = {pair for pair, of in steps.items() if _flat(grids, of, x[:, domain])}
        for line in mine:
            clocks = rows.mhz[line, domain].tolist()
            flat = [
                pair in everywhere or _flat(grids, [(line, i)], x[:, domain])
                for i, pair in enumerate(pairwise(clocks))
            ]
            for group in np.split(line, np.flatnonzero(~np.array(flat)) + 1):
                if len(group) > 1:
                    same = tuple(rows.mhz[group, domain].tolist())
                    ones.setdefault((domain, same), []).append(group)
    found = []
    for (domain, clocks), settings in ones.items():
        members = np.flatnonzero(np.isin(rows.setting, np.concatenate(settings)))
        other = sorted({float(rows.mhz[line[0], 1 - domain]) for line in settings})
        at = (
            f" at {('core', 'memory')[1 - domain]} {', '.join(f'{mhz:g}' for mhz in other)} MHz"
            if np.isfinite(other).all()
            else ""
        )
        found.append(
            Finding(
                "clocks",
                "warning",
                rows.index[members],
                f"{('core', 'memory')[domain]} clocks {', '.join(f'{c:g}' for c in clocks)} MHz"
                f"{at} are one: time and power of every kernel agree there; import the achieved "
                f"clocks, or keep one of these settings",
            )
        )
    return found


def _flat(grids: dict[str, Grid], steps: list[tuple[np.ndarray, int]], x: np.ndarray) -> bool:
    """Whether the step from the i-th setting of a line to the next changes nothing, on any of
    the lines. ``x``: the logarithm of the clock by setting."""
    line, i = steps[0]
    width = float(x[line[i + 1]] - x[line[i]])
    if width < RELEVANT:
        return False
    seen, expected, of_seen, of_expected = [], [], [], []
    nothing, response = [], []
    for grid in grids.values():
        first, last, low, high = (
            np.array([line[k] for line, k in each])
            for each in (
                [(line, 0) for line, _ in steps],
                [(line, -1) for line, _ in steps],
                steps,
                [(line, i + 1) for line, i in steps],
            )
        )
        share = width / (x[last] - x[first])
        change = grid.y[:, high] - grid.y[:, low]
        whole = grid.y[:, last] - grid.y[:, first]
        known = np.isfinite(change) & np.isfinite(whole)
        if not known.any():
            return False
        of_change = (grid.variance[:, high] + grid.variance[:, low])[known]
        of_whole = grid.variance[:, last] + grid.variance[:, first]
        limit = student_limit(len(of_change) * len(line), grid.df)
        if (np.abs(change[known]) > limit * np.sqrt(of_change)).any():
            return False
        seen.append(change[known])
        expected.append((whole * share)[known])
        of_seen.append(of_change)
        of_expected.append((of_whole * share**2)[known])
        nothing.append((np.abs(whole[known]) <= limit * np.sqrt(of_whole[known])).all())
        total = np.sum(1.0 / of_change)
        response.append(abs(np.sum(change[known] / of_change) / total) + limit / np.sqrt(total))
    if all(nothing):  # nothing on the whole line: would the least answer have been seen?
        return bool(sum(response) < MIN_RESPONSE * width)
    o, e, of_o, of_e = (np.concatenate(each) for each in (seen, expected, of_seen, of_expected))
    information = float(np.sum((e**2 - of_e) / of_o))
    if information <= 0:
        return False
    share_seen = float(np.sum(e * o / of_o)) / information
    return abs(share_seen) + 2.0 / np.sqrt(information) < NAME_ONLY
