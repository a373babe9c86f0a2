"""The checks of clocks: held or not, different in name only, and what time and power show of them.

The time of a kernel that only computes is a constant number of core cycles. What the others
of a line of settings agree on gives the clock at which each setting ran.

Of any other kernel the cycles grow with the clock, along a straight line where it computes and
waits for memory in turn, and along max(a, b f) where it does both at once. So at no clock f do they
lie above the straight line between the clocks beside it.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from analysis.measurements.observations import setting_text
from analysis.quality.finding import MAX_NAMED, Finding, first_named
from analysis.quality.noise import RELEVANT, MedianGrid, clock_lines, log_mhz, student_limit
from analysis.quality.rows import Rows
from dvfs.setting import Setting

HELD_CLOCK = 0.05
"""Relative: an achieved clock further than this from the nominal one was not held."""
MIN_RESPONSE = 0.1
"""Any kernel's power or time changes with a clock at least by the clock ratio to this power."""
NAME_ONLY = 0.3
"""A step is in name only where significantly less than this share of the expected change is
seen."""
MAX_PAIRS = 40_000
MAX_COMPARED = 500_000
SAME_CYCLES = 0.015
"""Relative: within this, a kernel takes the same number of cycles at a setting."""
CONTRADICTS = 0.04
"""Relative: an apparent clock further than this from the nominal one."""
MIN_CLOCKS = 3
MIN_KERNELS = 3
MOST = 0.6
"""Share of a line's clocks at which a kernel that computes takes the same number of cycles."""
AGREE = 0.8
"""Share of the kernels that must agree on a clock."""
WITHIN = 0.4
"""They agree where their deviations differ by no more than this share of them. Kernels that come
to wait for memory as the core clock rises do so each at a clock of its own."""
FOLLOWS, IGNORES = -0.6, -0.3
"""A kernel's time follows a clock where it changes by this power of it, or hardly does."""
SPAN = float(np.log(1.3))
"""Clocks nearer together than this say nothing."""
FLAT = 0.02
"""Relative: times that differ by less over all settings do not depend on the clocks."""
MIN_SETTINGS_OF_LOOP = 3


def off_nominal(rows: Rows) -> np.ndarray:
    """bool, a row each: whether an achieved clock is not the nominal one, without a power limit."""
    if not np.isfinite(rows.achieved_mhz).any():
        return np.zeros(len(rows.index), bool)
    nominal = rows.mhz[rows.setting]
    with np.errstate(invalid="ignore"):
        off = (np.abs(rows.achieved_mhz / nominal - 1.0) > HELD_CLOCK).any(1)
    return np.asarray(off & np.isnan(rows.limit_w))


def clocks_not_held(rows: Rows) -> list[Finding]:
    """Rows whose achieved clocks are not the nominal ones."""
    off = np.flatnonzero(off_nominal(rows))
    if not len(off):
        return []
    named = []
    for i in off[:MAX_NAMED]:
        reached = setting_text(Setting.of(*rows.achieved_mhz[i]))
        named.append(f"{rows.where(rows.kernel[i], rows.setting[i])} ran at {reached}")
    return [
        Finding(
            "clocks",
            "warning",
            rows.index[off],
            f"in {len(off)} rows the achieved clock is more than {100 * HELD_CLOCK:.0f} % from "
            f"the nominal one ({first_named(named)}"
            + ("; and more" if len(off) > MAX_NAMED else "")
            + "); the energy model takes the achieved clocks, picks the settings",
        )
    ]


def name_only(rows: Rows, grids: dict[str, MedianGrid]) -> list[Finding]:
    """Settings side by side between which no kernel's time or power changes, though others do.

    The change that a kernel shows between the ends of the line, in proportion to the step, is
    what a real step would show. A step is in name only when the share of that change which is
    seen, over all kernels and both quantities, is significantly below :data:`NAME_ONLY`, and no
    kernel alone shows a change.
    """
    x = log_mhz(rows)
    same_clocks: dict[tuple[int, tuple[float, ...]], list[np.ndarray]] = {}
    lines = clock_lines(rows)
    for domain in (0, 1):
        of_domain = [line for of, line in lines if of == domain]
        # A clock in name only is that at every clock of the other domain; or it is capped at some.
        steps: dict[tuple[float, float], list[tuple[np.ndarray, int]]] = {}
        for line in of_domain:
            for i, pair in enumerate(pairwise(rows.mhz[line, domain].tolist())):
                steps.setdefault(pair, []).append((line, i))
        everywhere = {pair for pair, of in steps.items() if _flat(grids, of, x[:, domain])}
        for line in of_domain:
            clocks = rows.mhz[line, domain].tolist()
            flat = [
                pair in everywhere or _flat(grids, [(line, i)], x[:, domain])
                for i, pair in enumerate(pairwise(clocks))
            ]
            for group in np.split(line, np.flatnonzero(~np.array(flat)) + 1):
                if len(group) > 1:
                    same = tuple(rows.mhz[group, domain].tolist())
                    same_clocks.setdefault((domain, same), []).append(group)
    findings = []
    for (domain, clocks), settings in same_clocks.items():
        members = np.flatnonzero(np.isin(rows.setting, np.concatenate(settings)))
        other = sorted({float(rows.mhz[line[0], 1 - domain]) for line in settings})
        at = (
            f" at {('core', 'memory')[1 - domain]} {', '.join(f'{mhz:g}' for mhz in other)} MHz"
            if np.isfinite(other).all()
            else ""
        )
        findings.append(
            Finding(
                "clocks",
                "warning",
                rows.index[members],
                f"{('core', 'memory')[domain]} clocks {', '.join(f'{c:g}' for c in clocks)} MHz"
                f"{at} seem to be the same clock: time and power of every kernel agree there; "
                f"import the achieved clocks, or keep one of these settings",
            )
        )
    return findings


def _flat(grids: dict[str, MedianGrid], steps: list[tuple[np.ndarray, int]], x: np.ndarray) -> bool:
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
            np.array([line[k] for line, k in places])
            for places in (
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
    o, e, of_o, of_e = (np.concatenate(parts) for parts in (seen, expected, of_seen, of_expected))
    information = float(np.sum((e**2 - of_e) / of_o))
    if information <= 0:
        return False
    share_seen = float(np.sum(e * o / of_o)) / information
    return bool(abs(share_seen) + 2.0 / np.sqrt(information) < NAME_ONLY)


def _dominating(rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of settings (lower, higher): no clock of the second is lower; and the logarithm of
    the largest clock ratio. Of very many pairs, the closest."""
    x = log_mhz(rows)
    none = np.isnan(x)
    n = len(x)
    lower, higher, ratio = [], [], []
    nearest = max(MAX_PAIRS // n, 2)
    for i in range(n):
        # A clock that one of the two leaves as found says nothing about the other.
        above = np.flatnonzero(((x >= x[i]) | (none & none[i])).all(1) & (np.arange(n) != i))
        most = np.where(none[i], 0.0, x[above] - x[i]).max(1, initial=0.0)
        if len(above) > nearest:
            close = np.argsort(most, kind="stable")[:nearest]
            above, most = above[close], most[close]
        lower.append(np.full(len(above), i))
        higher.append(above)
        ratio.append(most)
    return np.concatenate(lower), np.concatenate(higher), np.concatenate(ratio)


def against_the_clocks(rows: Rows, grids: dict[str, MedianGrid]) -> list[Finding]:
    """Cells whose power is lower, or time longer, than at lower clocks; or time shorter than
    the clocks' ratio permits.

    Of two cells that contradict each other, the one that contradicts more others is reported,
    then the one without which the curve of the rest is smoother. A cell that agrees with its
    neighbours all the same is not a bad row but a property of the machine: those are reported
    together.
    """
    lower, higher, ratio = _dominating(rows)
    findings = []
    for name, grid in grids.items():
        least = -ratio if name == "time" else np.zeros(len(ratio))
        most = np.zeros(len(ratio)) if name == "time" else np.full(len(ratio), np.inf)
        compared = int(np.isfinite(grid.y).sum()) * max(len(lower) // len(rows.mhz), 1)
        limit = student_limit(compared, grid.df)
        bad: list[tuple[int, int, int]] = []
        smooth: list[tuple[int, int]] = []
        block = max(MAX_COMPARED // max(len(lower), 1), 1)
        for k in range(0, len(grid.y), block):
            y, variance = grid.y[k : k + block], grid.variance[k : k + block]
            rise = y[:, higher] - y[:, lower]
            slack = np.maximum(limit * np.sqrt(variance[:, higher] + variance[:, lower]), RELEVANT)
            at_odds = np.fmax(least - rise, rise - most) > slack
            for i in np.flatnonzero(at_odds.any(1)):
                left = y[i].copy()
                low, high = lower[at_odds[i]], higher[at_odds[i]]
                excess = np.fmax(least - rise[i], rise[i] - most)[at_odds[i]]
                for setting in _fewest(rows, left, low, high):
                    if _off_line(rows, left, variance[i], setting, limit):
                        left[setting] = np.nan  # it says nothing about its neighbours
                        worst = np.argmax(np.where((low == setting) | (high == setting), excess, 0))
                        bad.append((k + int(i), setting, int(low[worst] + high[worst] - setting)))
                    else:
                        smooth.append((k + int(i), setting))
        if bad:
            findings.append(_bad_cells(rows, grid, name, sorted(bad)))
        if smooth:
            findings.append(_smooth_cells(rows, name, sorted(smooth)))
    return findings


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
    """Whether a cell is far from what its two nearest neighbours predict, on every such line."""
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
    """int64: the rows of the cells (kernel, setting)."""
    return rows.in_cells(np.array([k * len(rows.mhz) + s for k, s in cells]))


def _smooth_cells(rows: Rows, name: str, cells: list[tuple[int, int]]) -> Finding:
    members = _members(rows, cells)
    kernels = sorted({rows.kernels[k] for k, _ in cells})
    what = {
        "power": "power falls as the clocks rise, over several settings: a power cap or heat may "
        "have throttled the clocks; check the achieved clocks",
        "time": "time does not follow the clocks as a roofline does (it falls by more than their "
        "ratio, or rises with them), over several settings; predicted times will have this error",
    }[name]
    return Finding(
        name,
        "warning" if name == "power" else "note",
        rows.index[members],
        f"in {len(kernels)} of {len(rows.kernels)} kernels ({first_named(kernels)}) {what}",
    )


def _bad_cells(
    rows: Rows, grid: MedianGrid, name: str, cells: list[tuple[int, int, int]]
) -> Finding:
    """``cells``: kernel, setting, and the setting that it contradicts most."""
    members = _members(rows, [(k, s) for k, s, _ in cells])
    unit = {"time": "s", "power": "W"}[name]
    named = [
        f"{rows.where(k, s)} ({np.exp(grid.y[k, s]):.4g} {unit}; {np.exp(grid.y[k, other]):.4g} "
        f"{unit} at {rows.setting_text(other)})"
        for k, s, other in cells[:MAX_NAMED]
    ]
    what = {
        "power": "power falls though the clocks rise",
        "time": "time rises with the clocks, or falls by more than their ratio",
    }[name]
    more = f"; and {len(cells) - MAX_NAMED} more" if len(cells) > MAX_NAMED else ""
    n_kernels = len({k for k, _, _ in cells})
    return Finding(
        name,
        "warning",
        rows.index[members],
        f"{what}: {len(members)} rows of {n_kernels} of {len(rows.kernels)} kernels contradict "
        f"others: {'; '.join(named)}{more}; measure them again, or leave them out",
    )


def apparent_clocks(
    rows: Rows, grids: dict[str, MedianGrid], named_already: np.ndarray
) -> list[Finding]:
    """Settings at which all kernels that only compute ran at another core clock.

    ``named_already``: the rows of the Dataset whose clocks have a finding already.
    """
    y, x = grids["time"].y, log_mhz(rows)[:, 0]
    known = set(rows.setting[np.isin(rows.index, named_already)].tolist())
    named, members, n_kernels = [], [], 0
    for domain, line in clock_lines(rows):
        if domain or len(line) < MIN_CLOCKS:
            continue
        cycles = y[:, line] + x[line]
        measured = np.isfinite(cycles).all(1)
        usual = np.median(np.where(measured[:, None], cycles, 0.0), axis=1)
        away = cycles - usual[:, None]
        same = np.abs(away) < SAME_CYCLES
        computing = measured & (same.sum(1) >= np.ceil(MOST * len(line)))
        if computing.sum() < MIN_KERNELS:
            continue
        of = away[computing]
        middle = np.median(of, axis=0)
        band = np.maximum(SAME_CYCLES, WITHIN * np.abs(middle))
        agree = (np.abs(of - middle) < band).mean(0) >= AGREE
        for i in np.flatnonzero(agree & (np.abs(middle) > CONTRADICTS)):
            if int(line[i]) in known:
                continue
            nominal = rows.mhz[line[i], 0]
            named.append(
                f"{rows.where(int(np.flatnonzero(computing)[0]), line[i])} runs as at "
                f"{nominal * np.exp(-middle[i]):.0f} MHz core"
            )
            members.append(np.flatnonzero(rows.setting == line[i]))
            n_kernels = max(n_kernels, int(computing.sum()))
    return _contradicted(
        rows,
        members,
        f"the nominal core clock is not the one that the time of the {n_kernels} kernels that only "
        f"compute shows ({first_named(named)})",
    )


def too_many_cycles(
    rows: Rows, grids: dict[str, MedianGrid], named_already: np.ndarray
) -> list[Finding]:
    """Settings at which kernels take more core cycles than those at the clocks beside allow.

    ``named_already``: as in :func:`apparent_clocks`.
    """
    y, mhz = grids["time"].y, rows.mhz[:, 0]
    known = set(rows.setting[np.isin(rows.index, named_already)].tolist())
    named, members = [], []
    for domain, line in clock_lines(rows):
        if domain or known.intersection(line.tolist()):
            continue
        cycles = np.exp(y[:, line]) * mhz[line]
        below, at, above = mhz[line[:-2]], mhz[line[1:-1]], mhz[line[2:]]
        share = (at - below) / (above - below)
        allowed = (1.0 - share) * cycles[:, :-2] + share * cycles[:, 2:]
        more = np.log(cycles[:, 1:-1] / allowed)
        for i, setting in enumerate(line[1:-1]):
            of = more[np.isfinite(more[:, i]), i]
            middle = float(np.median(of)) if len(of) >= MIN_KERNELS else 0.0
            if middle > CONTRADICTS and (of > SAME_CYCLES).mean() >= AGREE:
                named.append(f"{rows.setting_text(setting)}: {100.0 * np.expm1(middle):.0f} %")
                members.append(np.flatnonzero(rows.setting == setting))
    return _contradicted(
        rows,
        members,
        f"kernels take more core cycles than their times at the clocks beside allow "
        f"({first_named(named)}): the nominal core clock is too high there, or one beside it too "
        f"low",
    )


def _contradicted(rows: Rows, members: list[np.ndarray], what: str) -> list[Finding]:
    """``members``: the rows of each setting that is contradicted; ``what`` contradicts it."""
    if not members:
        return []
    rows_of = np.unique(np.concatenate(members))
    return [
        Finding(
            "clocks",
            "warning",
            rows.index[rows_of],
            f"in {len(rows_of)} rows at {len(members)} setting{'s' * (len(members) > 1)} {what}; "
            f"import the achieved clocks as core_mhz, or leave these settings out",
        )
    ]


def swapped_clocks(rows: Rows, grids: dict[str, MedianGrid]) -> list[Finding]:
    """Core and memory columns that are swapped: kernels that compute follow the memory clock.

    Kernels are put in order by their operations per byte of memory. Of a third with the most,
    time must follow the core clock, and of a third with the fewest the memory clock.
    """
    x = log_mhz(rows)
    memory, other = rows.kernel_bytes_and_operations()
    judged = np.flatnonzero(memory + other > 0)
    if len(judged) < 4 or not np.isfinite(x).all():
        return []
    powers = _powers(x, grids["time"].y[judged])
    clear = np.isfinite(powers).all(1)
    judged, powers = judged[clear], powers[clear]
    if len(judged) < 4:
        return []
    share = other[judged] / (other[judged] + memory[judged])
    order = np.argsort(share, kind="stable")
    third = max(len(order) // 3, 1)
    moving, computing = powers[order[:third]], powers[order[-third:]]
    if share[order[third - 1]] >= share[order[-third]]:
        return []
    computing_follows = np.median(computing, axis=0)
    moving_follows = np.median(moving, axis=0)
    swapped = (
        computing_follows[1] < FOLLOWS
        and computing_follows[0] > IGNORES
        and moving_follows[0] < FOLLOWS
        and moving_follows[1] > IGNORES
    )
    if not swapped:
        return []
    named = [rows.kernels[judged[i]] for i in order[-third:]][:MAX_NAMED]
    return [
        Finding(
            "clocks",
            "warning",
            rows.index,
            f"core_mhz and mem_mhz seem to be swapped, in all {len(rows.index)} rows: the time of "
            f"kernels that compute ({first_named(named)}) follows mem_mhz, and that of kernels "
            f"that move data follows core_mhz; swap the two columns in the map file",
        )
    ]


def _powers(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The powers of core and memory clock that the time of each kernel, a row of ``y``, follows:
    float64 (kernels, 2), NaN where not clear."""
    powers = np.full((len(y), 2), np.nan)
    patterns, pattern = np.unique(np.isfinite(y), axis=0, return_inverse=True)
    for i, known in enumerate(patterns):
        alike = np.flatnonzero(pattern.reshape(-1) == i)
        design = np.column_stack([np.ones(known.sum()), x[known]])
        if known.sum() >= 4 and np.linalg.matrix_rank(design) == 3:
            of_mine = y[np.ix_(alike, np.flatnonzero(known))]
            powers[alike] = np.linalg.lstsq(design, of_mine.T, rcond=None)[0][1:].T
    return powers


def fixed_duration(rows: Rows, grids: dict[str, MedianGrid]) -> list[Finding]:
    """Times that depend on no clock.

    A kernel that waits for memory does not follow the core clock alone; no kernel that computes
    or moves data is independent of both clocks. Where all kernels take the same time at all
    settings, each was run for a fixed time: its energies are not those of the same work.
    """
    y = grids["time"].y
    known = np.isfinite(y)
    spans = np.array([_clock_span(rows.mhz[of]) for of in known])  # (kernels, 2)
    swept = (known.sum(1) >= MIN_SETTINGS_OF_LOOP) & (spans > SPAN).any(1)
    spread = np.nanmax(np.where(known, y, -np.inf), 1) - np.nanmin(np.where(known, y, np.inf), 1)
    flat = swept & (spread < FLAT)
    if not flat.any():
        return []
    kernels = np.flatnonzero(flat)
    members = np.flatnonzero(np.isin(rows.kernel, kernels))
    level = np.array([float(np.nanmedian(y[k])) for k in kernels])
    all_flat = bool(flat[swept].all())
    alike = len(kernels) >= MIN_SETTINGS_OF_LOOP and float(np.ptp(level)) < FLAT
    named = first_named(
        [f"{rows.kernels[k]}: {np.exp(of):.4g} s" for k, of in zip(kernels, level, strict=True)]
    )
    where = f"in {len(members)} rows of {len(kernels)} of {len(rows.kernels)} kernels ({named})"
    remedy = (
        "import the time and the energy of the same work at each setting: divide both by the "
        "iterations that were done"
    )
    if all_flat and alike:
        return [
            Finding(
                "time",
                "refused",
                rows.index[members],
                f"{where} the time is the same at all settings and for all kernels: these loops "
                f"ran for a fixed time, so their energies are not those of the same work; {remedy}",
            )
        ]
    # With the core clock alone swept, kernels that wait for memory are flat.
    if not all_flat or len(kernels) < MIN_SETTINGS_OF_LOOP:
        both = (spans > SPAN).all(1)
        kernels = np.flatnonzero(flat & both)
        if not len(kernels):
            return []
        members = np.flatnonzero(np.isin(rows.kernel, kernels))
        named = first_named([rows.kernels[k] for k in kernels])
        where = f"in {len(members)} rows of {len(kernels)} of {len(rows.kernels)} kernels ({named})"
    return [
        Finding(
            "time",
            "warning",
            rows.index[members],
            f"{where} the time depends on no clock; if these loops ran for a fixed time, {remedy}; "
            f"if the clocks were not set, no fit can use them",
        )
    ]


def _clock_span(mhz: np.ndarray) -> tuple[float, float]:
    """The logarithm of the largest clock ratio, of core and memory; 0 where it is not known."""
    core, mem = (column[np.isfinite(column)] for column in mhz.T)
    return tuple(float(np.ptp(np.log(c))) if len(c) else 0.0 for c in (core, mem))  # type: ignore[return-value]
