"""The check of power and time against the clocks: what may rise with them, and how far."""

from __future__ import annotations

import numpy as np

from analysis.quality.finding import MAX_NAMED, Finding, first_named
from analysis.quality.grid import Grid, clock_lines, log_mhz
from analysis.quality.rows import Rows
from analysis.quality.significance import RELEVANT, student_limit

MAX_PAIRS = 40_000
MAX_COMPARED = 4_000_000


def _dominating(rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of settings (lower, higher): no clock of the second is lower; and the logarithm of
    the largest clock ratio. Of very many pairs, the closest."""
    x = np.nan_to_num(log_mhz(rows), nan=-np.inf)
    n = len(x)
    lower, higher, ratio = [], [], []
    nearest = max(MAX_PAIRS // n, 2)
    for i in range(n):
        above = np.flatnonzero((x >= x[i]).all(1) & (np.arange(n) != i))
        with np.errstate(invalid="ignore"):
            rise = np.nan_to_num(x[above] - x[i], nan=0.0)
        # A clock that one of the two leaves as found says nothing about the other.
        comparable = np.isfinite(rise).all(1)
        above, most = above[comparable], rise[comparable].max(1, initial=0.0)
        if len(above) > nearest:
            close = np.argsort(most, kind="stable")[:nearest]
            above, most = above[close], most[close]
        lower.append(np.full(len(above), i))
        higher.append(above)
        ratio.append(most)
    return np.concatenate(lower), np.concatenate(higher), np.concatenate(ratio)


def against_the_clock(rows: Rows, grids: dict[str, Grid]) -> list[Finding]:
    """Cells whose power is lower, or time longer, than at lower clocks; or time shorter than
    the clocks' ratio permits.

    Of two cells at odds, the one at odds with more others is named, and then the one without
    which the rest runs smoother. A cell that is in line with its neighbours all the same is not
    a bad row but the way of the machine: those are found together.
    """
    lower, higher, ratio = _dominating(rows)
    found = []
    for name, grid in grids.items():
        least = -ratio if name == "time" else np.zeros(len(ratio))
        most = np.zeros(len(ratio)) if name == "time" else np.full(len(ratio), np.inf)
        compared = int(np.isfinite(grid.y).sum()) * max(len(lower) // len(rows.mhz), 1)
        limit = student_limit(compared, grid.df)
        bad: list[tuple[int, int]] = []
        smooth: list[tuple[int, int]] = []
        block = max(MAX_COMPARED // max(len(lower), 1), 1)
        for k in range(0, len(grid.y), block):
            y, variance = grid.y[k : k + block], grid.variance[k : k + block]
            rise = y[:, higher] - y[:, lower]
            slack = np.maximum(limit * np.sqrt(variance[:, higher] + variance[:, lower]), RELEVANT)
            at_odds = np.fmax(least - rise, rise - most) > slack
            for i in np.flatnonzero(at_odds.any(1)):
                left = y[i].copy()
                for setting in _fewest(rows, left, lower[at_odds[i]], higher[at_odds[i]]):
                    spike = _off_line(rows, left, variance[i], setting, limit)
                    (bad if spike else smooth).append((k + int(i), setting))
                    if spike:  # it says nothing about its neighbours
                        left[setting] = np.nan
        if bad:
            found.append(_bad_cells(rows, grid, name, sorted(bad)))
        if smooth:
            found.append(_smooth_cells(rows, name, sorted(smooth)))
    return found


def _fewest(rows: Rows, y: np.ndarray, lower: np.ndarray, higher: np.ndarray) -> list[int]:
    """The settings without which no pair is at odds, the worst first: greedily, few."""
    named: list[int] = []
    left = np.ones(len(lower), bool)
    y = y.copy()
    while left.any():
        ends = np.concatenate([lower[left], higher[left]])
        count = np.bincount(ends, minlength=len(y))
        candidates = np.flatnonzero(count == count.max())
        rough = [_roughness(rows, y, int(c)) for c in candidates] if len(candidates) > 1 else [0.0]
        worst = int(candidates[int(np.argmin(rough))])
        named.append(worst)
        y[worst] = np.nan
        left &= (lower != worst) & (higher != worst)
    return named


def _off_line(rows: Rows, y: np.ndarray, variance: np.ndarray, setting: int, limit: float) -> bool:
    """Whether a cell is not what its two nearest neighbours say, on any line that has them."""
    x = log_mhz(rows)
    for domain, line in clock_lines(rows, np.isfinite(y)):
        if setting not in line or len(line) < 3:
            continue
        known = line[line != setting]
        at = int(np.searchsorted(x[known, domain], x[setting, domain]))
        first = min(max(at - 1, 0), len(known) - 2)
        a, b = known[first], known[first + 1]
        share = (x[setting, domain] - x[a, domain]) / (x[b, domain] - x[a, domain])
        away = abs(y[setting] - (1 - share) * y[a] - share * y[b])
        spread = variance[setting] + (1 - share) ** 2 * variance[a] + share**2 * variance[b]
        if away <= max(limit * np.sqrt(spread), RELEVANT):
            return False
    return True


def _roughness(rows: Rows, y: np.ndarray, without: int) -> float:
    """How bent the lines through a setting are when it is left out."""
    x = log_mhz(rows)
    bent = 0.0
    for domain in (0, 1):
        other = rows.mhz[:, 1 - domain]
        same = (other == other[without]) | (np.isnan(other) & np.isnan(other[without]))
        line = np.flatnonzero(same & np.isfinite(y) & np.isfinite(x[:, domain]))
        line = line[line != without]
        line = line[np.argsort(x[line, domain])]
        near = int(np.searchsorted(x[line, domain], x[without, domain]))
        line = line[max(near - 3, 0) : near + 3]
        if len(line) > 2:
            slopes = np.diff(y[line]) / np.diff(x[line, domain])
            bent += float(np.abs(np.diff(slopes)).sum())
    return bent


def _members(rows: Rows, cells: list[tuple[int, int]]) -> np.ndarray:
    return np.flatnonzero(np.isin(rows.cell, [k * len(rows.mhz) + s for k, s in cells]))


def _smooth_cells(rows: Rows, name: str, cells: list[tuple[int, int]]) -> Finding:
    members = _members(rows, cells)
    kernels = sorted({rows.kernels[k] for k, _ in cells})
    what = {
        "power": "power falls as the clocks rise, and not at one setting alone: a cap or heat may "
        "have throttled them; check the achieved clocks",
        "time": "time follows the clocks otherwise than a roofline can (faster than their ratio, "
        "or slower though they rise), and not at one setting alone; predicted times will be off "
        "by that",
    }[name]
    return Finding(
        name,
        "warning" if name == "power" else "note",
        rows.index[members],
        f"in {len(kernels)} of {len(rows.kernels)} kernels ({first_named(kernels)}) {what}",
    )


def _bad_cells(rows: Rows, grid: Grid, name: str, cells: list[tuple[int, int]]) -> Finding:
    members = _members(rows, cells)
    unit = {"time": "s", "power": "W"}[name]
    named = []
    for k, s in cells[:MAX_NAMED]:
        beside = _neighbours(rows, grid.y[k], s)
        values = " and ".join(f"{np.exp(grid.y[k, b]):.4g}" for b in beside)
        named.append(
            f"{rows.where(k, s)} ({np.exp(grid.y[k, s]):.4g} {unit}"
            + (f" beside {values} {unit})" if values else ")")
        )
    what = {
        "power": "power falls though the clocks rise",
        "time": "time is not between what it is at neighbouring clocks and that times the "
        "clocks' ratio",
    }[name]
    more = f"; and {len(cells) - MAX_NAMED} more" if len(cells) > MAX_NAMED else ""
    n_kernels = len({k for k, _ in cells})
    return Finding(
        name,
        "warning",
        rows.index[members],
        f"{what}: {len(members)} rows of {n_kernels} of {len(rows.kernels)} kernels are out of "
        f"line with their neighbours: {'; '.join(named)}{more}; measure them again, or leave "
        f"them out",
    )


def _neighbours(rows: Rows, y: np.ndarray, setting: int) -> list[int]:
    """The settings next to one, on a line where it has one on either side if there is any."""
    best: list[int] = []
    for _, line in clock_lines(rows, np.isfinite(y)):
        if setting in line:
            at = int(np.flatnonzero(line == setting)[0])
            beside = [*line[max(at - 1, 0) : at], *line[at + 1 : at + 2]]
            best = beside if len(beside) > len(best) else best
    return best
