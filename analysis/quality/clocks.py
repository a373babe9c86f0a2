"""The checks of clocks: not held, the same under two names, or contradicted by time and power.

A kernel that only computes takes a constant number of core cycles. The kernels that agree on this
along a line of settings show the clock at which each setting ran.

The cycles of any other kernel grow with the clock f: along a straight line if it computes and waits
for memory in turn, and as max(a, b f) if it does both at once. So at no clock do they lie above the
straight line between the two neighbouring clocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from analysis.measurements.observations import setting_text
from analysis.quality.finding import MAX_NAMED, Finding, first_named
from analysis.quality.noise import RELEVANT, MedianGrid, clock_lines, student_limit
from analysis.quality.rows import Rows
from dvfs.setting import Setting

HELD_CLOCK = 0.05
"""The relative deviation from the nominal clock beyond which a clock was not held."""
MIN_RESPONSE = 0.1
"""The least response: power or time changes by the clock ratio to this power or more."""
NAME_ONLY = 0.3
"""The share of the expected change below which, significantly, two clocks differ in name only."""
MAX_PAIRS = 40_000
MAX_COMPARED = 500_000
SAME_CYCLES = 0.015
"""The relative distance within which numbers of cycles count as the same."""
CONTRADICTS = 0.04
"""The relative distance beyond which an apparent clock contradicts the nominal one."""
MIN_CLOCKS = 3
MIN_KERNELS = 3
MOST = 0.6
"""The share of a line's clocks at which a kernel that only computes takes the same cycles."""
AGREE = 0.8
"""The share of the kernels that must agree on a clock."""
WITHIN = 0.4
"""Kernels agree if their deviations differ by at most this share. Kernels that start to wait for
memory as the core clock rises start at different clocks, and so do not agree."""
FOLLOWS, IGNORES = -0.6, -0.3
"""A kernel's time follows a clock if it changes at least by the first power of it, and ignores it
if at most by the second."""
SPAN = float(np.log(1.3))
"""The logarithm of the least clock ratio that shows whether time depends on the clock."""
FLAT = 0.02
"""The relative range over all settings below which times do not depend on the clocks."""
MIN_SETTINGS_OF_LOOP = 3


def off_nominal(rows: Rows) -> np.ndarray:
    """bool (rows,): whether a clock was not held, in a row without a power limit."""
    if not np.isfinite(rows.achieved_mhz).any():
        return np.zeros(len(rows.index), bool)
    nominal = rows.mhz[rows.setting]
    with np.errstate(invalid="ignore"):
        off = (np.abs(rows.achieved_mhz / nominal - 1.0) > HELD_CLOCK).any(1)
    return np.asarray(off & np.isnan(rows.limit_w))


def clocks_not_held(rows: Rows) -> Iterator[Finding]:
    """A finding of the rows whose clocks were not held."""
    off = np.flatnonzero(off_nominal(rows))
    if not len(off):
        return
    named = [
        f"{rows.where(rows.kernel[i], rows.setting[i])} ran at "
        f"{setting_text(Setting.of(*rows.achieved_mhz[i]))}"
        for i in off[:MAX_NAMED]
    ]
    yield Finding(
        "clocks",
        "warning",
        rows.index[off],
        f"in {len(off)} rows the achieved clock is more than {100 * HELD_CLOCK:.0f} % from "
        f"the nominal one ({first_named(named)}"
        + ("; and more" if len(off) > MAX_NAMED else "")
        + "); the energy model takes the achieved clocks, picks the settings",
    )


def name_only(rows: Rows, grids: dict[str, MedianGrid]) -> Iterator[Finding]:
    """A finding of each group of neighbouring clocks between which no time or power changes.

    The expected change of a kernel is its change between the ends of the line, in proportion to the
    step. Two clocks differ in name only if the measured share of the expected change, over all
    kernels and both quantities, is significantly below :data:`NAME_ONLY`, and no single kernel
    changes significantly.
    """
    x = rows.log_mhz
    same_clocks: dict[tuple[int, tuple[float, ...]], list[np.ndarray]] = {}
    lines = clock_lines(rows)
    for domain in (0, 1):
        domain_lines = [line for line_domain, line in lines if line_domain == domain]
        # Two clocks are the same at all clocks of the other domain, or at some, where it is capped.
        steps: dict[tuple[float, float], list[tuple[np.ndarray, int]]] = {}
        for line in domain_lines:
            for k, pair in enumerate(pairwise(rows.mhz[line, domain].tolist())):
                steps.setdefault(pair, []).append((line, k))
        flat_pairs = {pair for pair, places in steps.items() if _flat(grids, places, x[:, domain])}
        for line in domain_lines:
            clocks = rows.mhz[line, domain].tolist()
            flat = [
                pair in flat_pairs or _flat(grids, [(line, k)], x[:, domain])
                for k, pair in enumerate(pairwise(clocks))
            ]
            for group in np.split(line, np.flatnonzero(~np.array(flat)) + 1):
                if len(group) > 1:
                    mhz = tuple(rows.mhz[group, domain].tolist())
                    same_clocks.setdefault((domain, mhz), []).append(group)
    for (domain, clocks), settings in same_clocks.items():
        members = np.flatnonzero(np.isin(rows.setting, np.concatenate(settings)))
        other_mhz = sorted({float(rows.mhz[line[0], 1 - domain]) for line in settings})
        place = (
            f" at {('core', 'memory')[1 - domain]} {', '.join(f'{mhz:g}' for mhz in other_mhz)} MHz"
            if np.isfinite(other_mhz).all()
            else ""
        )
        yield Finding(
            "clocks",
            "warning",
            rows.index[members],
            f"{('core', 'memory')[domain]} clocks {', '.join(f'{c:g}' for c in clocks)} MHz"
            f"{place} seem to be the same clock: time and power of every kernel agree there; "
            f"import the achieved clocks, or keep one of these settings",
        )


def _flat(grids: dict[str, MedianGrid], steps: list[tuple[np.ndarray, int]], x: np.ndarray) -> bool:
    """Whether no quantity changes from the i-th setting of a line to the next, on all lines.

    ``steps``: (line, i), all between the same clocks. ``x``: the logarithm of each setting's clock.
    """
    line, i = steps[0]
    width = float(x[line[i + 1]] - x[line[i]])
    if width < RELEVANT:
        return False
    changes, expected, variances, expected_variances = [], [], [], []
    unchanged, response = [], []
    for grid in grids.values():
        first, last, low, high = (
            np.array([line[k] for line, k in positions])
            for positions in (
                [(line, 0) for line, _ in steps],
                [(line, -1) for line, _ in steps],
                steps,
                [(line, i + 1) for line, i in steps],
            )
        )
        share = width / (x[last] - x[first])
        change = grid.y[:, high] - grid.y[:, low]
        end_change = grid.y[:, last] - grid.y[:, first]
        valid = np.isfinite(change) & np.isfinite(end_change)
        if not valid.any():
            return False
        variance = (grid.variance[:, high] + grid.variance[:, low])[valid]
        end_variance = grid.variance[:, last] + grid.variance[:, first]
        limit = student_limit(len(variance) * len(line), grid.df)
        if (np.abs(change[valid]) > limit * np.sqrt(variance)).any():
            return False
        changes.append(change[valid])
        expected.append((end_change * share)[valid])
        variances.append(variance)
        expected_variances.append((end_variance * share**2)[valid])
        unchanged.append((np.abs(end_change[valid]) <= limit * np.sqrt(end_variance[valid])).all())
        total = np.sum(1.0 / variance)
        response.append(abs(np.sum(change[valid] / variance) / total) + limit / np.sqrt(total))
    if all(unchanged):  # no change on the whole line: would the least response be significant?
        return bool(sum(response) < MIN_RESPONSE * width)
    lists = (changes, expected, variances, expected_variances)
    o, e, var_o, var_e = map(np.concatenate, lists)
    information = float(np.sum((e**2 - var_e) / var_o))
    if information <= 0:
        return False
    seen_share = float(np.sum(e * o / var_o)) / information
    return bool(abs(seen_share) + 2.0 / np.sqrt(information) < NAME_ONLY)


def _dominating(rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of settings, as (lower, higher, the logarithm of the largest clock ratio): no clock of
    the higher one is lower. If there are very many pairs, the closest ones."""
    x = rows.log_mhz
    unset = np.isnan(x)
    n = len(x)
    lower, higher, log_ratios = [], [], []
    max_pairs = max(MAX_PAIRS // n, 2)
    for i in range(n):
        # A setting without a clock compares only with settings that lack that clock too.
        above = np.flatnonzero(((x >= x[i]) | (unset & unset[i])).all(1) & (np.arange(n) != i))
        log_ratio = np.where(unset[i], 0.0, x[above] - x[i]).max(1, initial=0.0)
        if len(above) > max_pairs:
            closest = np.argsort(log_ratio, kind="stable")[:max_pairs]
            above, log_ratio = above[closest], log_ratio[closest]
        lower.append(np.full(len(above), i))
        higher.append(above)
        log_ratios.append(log_ratio)
    return np.concatenate(lower), np.concatenate(higher), np.concatenate(log_ratios)


def against_the_clocks(rows: Rows, grids: dict[str, MedianGrid]) -> Iterator[Finding]:
    """Findings of cells whose power is lower or time longer than at lower clocks, or whose time is
    shorter than the clock ratio permits.

    Of two cells that contradict each other, the one that contradicts more others is reported; of
    equal ones, that without which the curve of the others is smoother. A cell that agrees with its
    neighbours is a property of the machine, not a bad row: such cells share one finding.
    """
    lower, higher, log_ratio = _dominating(rows)
    for name, grid in grids.items():
        min_rise = -log_ratio if name == "time" else np.zeros(len(log_ratio))
        max_rise = np.zeros(len(log_ratio)) if name == "time" else np.full(len(log_ratio), np.inf)
        n_compared = int(np.isfinite(grid.y).sum()) * max(len(lower) // len(rows.mhz), 1)
        limit = student_limit(n_compared, grid.df)
        bad: list[tuple[int, int, int]] = []
        smooth: list[tuple[int, int]] = []
        block = max(MAX_COMPARED // max(len(lower), 1), 1)
        for k0 in range(0, len(grid.y), block):
            y, variance = grid.y[k0 : k0 + block], grid.variance[k0 : k0 + block]
            rise = y[:, higher] - y[:, lower]
            margin = np.maximum(limit * np.sqrt(variance[:, higher] + variance[:, lower]), RELEVANT)
            contradicts = np.fmax(min_rise - rise, rise - max_rise) > margin
            for i in np.flatnonzero(contradicts.any(1)):
                remaining = y[i].copy()
                low, high = lower[contradicts[i]], higher[contradicts[i]]
                excess = np.fmax(min_rise - rise[i], rise[i] - max_rise)[contradicts[i]]
                for setting in _fewest(rows, remaining, low, high):
                    if _off_line(rows, remaining, variance[i], setting, limit):
                        remaining[setting] = np.nan  # no neighbour is judged by it
                        worst = np.argmax(np.where((low == setting) | (high == setting), excess, 0))
                        bad.append((k0 + int(i), setting, int(low[worst] + high[worst] - setting)))
                    else:
                        smooth.append((k0 + int(i), setting))
        if bad:
            yield _bad_cells(rows, grid, name, sorted(bad))
        if smooth:
            yield _smooth_cells(rows, name, sorted(smooth))


def _fewest(rows: Rows, y: np.ndarray, lower: np.ndarray, higher: np.ndarray) -> list[int]:
    """The settings without which no pair contradicts, the worst first: a greedy, small set."""
    removed: list[int] = []
    unresolved = np.ones(len(lower), bool)
    y = y.copy()
    while unresolved.any():
        ends = np.concatenate([lower[unresolved], higher[unresolved]])
        n_pairs = np.bincount(ends, minlength=len(y))
        candidates = np.flatnonzero(n_pairs == n_pairs.max())
        bends = [_roughness(rows, y, int(c)) for c in candidates] if len(candidates) > 1 else [0.0]
        worst = int(candidates[int(np.argmin(bends))])
        removed.append(worst)
        y[worst] = np.nan
        unresolved &= (lower != worst) & (higher != worst)
    return removed


def _off_line(rows: Rows, y: np.ndarray, variance: np.ndarray, setting: int, limit: float) -> bool:
    """Whether a cell is far from the straight line of its two nearest neighbours, on every line."""
    x = rows.log_mhz
    for domain, line in clock_lines(rows, np.isfinite(y)):
        if setting not in line or len(line) < 3:
            continue
        others = line[line != setting]
        position = int(np.searchsorted(x[others, domain], x[setting, domain]))
        first = min(max(position - 1, 0), len(others) - 2)
        a, b = others[first], others[first + 1]
        weight = (x[setting, domain] - x[a, domain]) / (x[b, domain] - x[a, domain])
        distance = abs(y[setting] - (1 - weight) * y[a] - weight * y[b])
        spread = variance[setting] + (1 - weight) ** 2 * variance[a] + weight**2 * variance[b]
        if distance <= max(limit * np.sqrt(spread), RELEVANT):
            return False
    return True


def _roughness(rows: Rows, y: np.ndarray, excluded: int) -> float:
    """The sum of the changes of slope along the lines through a setting, without that setting."""
    x = rows.log_mhz
    roughness = 0.0
    for domain in (0, 1):
        mhz = rows.mhz[:, 1 - domain]
        on_line = (mhz == mhz[excluded]) | (np.isnan(mhz) & np.isnan(mhz[excluded]))
        line = np.flatnonzero(on_line & np.isfinite(y) & np.isfinite(x[:, domain]))
        line = line[line != excluded]
        line = line[np.argsort(x[line, domain])]
        position = int(np.searchsorted(x[line, domain], x[excluded, domain]))
        line = line[max(position - 3, 0) : position + 3]
        if len(line) > 2:
            slopes = np.diff(y[line]) / np.diff(x[line, domain])
            roughness += float(np.abs(np.diff(slopes)).sum())
    return roughness


def _members(rows: Rows, cells: list[tuple[int, int]]) -> np.ndarray:
    """int64: the rows of the cells (kernel, setting)."""
    return rows.in_cells(np.array([k * len(rows.mhz) + s for k, s in cells]))


def _smooth_cells(rows: Rows, name: str, cells: list[tuple[int, int]]) -> Finding:
    """The finding of the cells (kernel, setting) that agree with their neighbours."""
    members = _members(rows, cells)
    kernels = sorted({rows.kernels[k] for k, _ in cells})
    problem = {
        "power": "power falls as the clocks rise, over several settings: a power cap or heat may "
        "have throttled the clocks; check the achieved clocks",
        "time": "time does not follow the clocks as a roofline does (it falls by more than their "
        "ratio, or rises with them), over several settings; predicted times will have this error",
    }[name]
    return Finding(
        name,
        "warning" if name == "power" else "note",
        rows.index[members],
        f"in {len(kernels)} of {len(rows.kernels)} kernels ({first_named(kernels)}) {problem}",
    )


def _bad_cells(
    rows: Rows, grid: MedianGrid, name: str, cells: list[tuple[int, int, int]]
) -> Finding:
    """The finding of ``cells``: kernel, setting, and the setting that contradicts it most."""
    members = _members(rows, [(k, s) for k, s, _ in cells])
    unit = {"time": "s", "power": "W"}[name]
    named = [
        f"{rows.where(k, s)} ({np.exp(grid.y[k, s]):.4g} {unit}; {np.exp(grid.y[k, contrary]):.4g} "
        f"{unit} at {rows.setting_text(contrary)})"
        for k, s, contrary in cells
    ]
    problem = {
        "power": "power falls though the clocks rise",
        "time": "time rises with the clocks, or falls by more than their ratio",
    }[name]
    n_kernels = len({k for k, _, _ in cells})
    return Finding(
        name,
        "warning",
        rows.index[members],
        f"{problem}: {len(members)} rows of {n_kernels} of {len(rows.kernels)} kernels contradict "
        f"others: {first_named(named)}; measure them again, or leave them out",
    )


def apparent_clocks(rows: Rows, time: MedianGrid, named_already: np.ndarray) -> Iterator[Finding]:
    """A finding of the settings at which all kernels that only compute ran at another core clock.

    ``named_already``: the measurements whose clocks already have a finding.
    """
    y, x = time.y, rows.log_mhz[:, 0]
    explained = set(rows.setting[np.isin(rows.index, named_already)].tolist())
    named, settings, n_kernels = [], [], 0
    for domain, line in clock_lines(rows):
        if domain or len(line) < MIN_CLOCKS:
            continue
        cycles = y[:, line] + x[line]
        complete = np.isfinite(cycles).all(1)
        usual = np.median(np.where(complete[:, None], cycles, 0.0), axis=1)
        deviation = cycles - usual[:, None]
        is_usual = np.abs(deviation) < SAME_CYCLES
        computing = complete & (is_usual.sum(1) >= np.ceil(MOST * len(line)))
        if computing.sum() < MIN_KERNELS:
            continue
        deviations = deviation[computing]
        median = np.median(deviations, axis=0)
        band = np.maximum(SAME_CYCLES, WITHIN * np.abs(median))
        agreed = (np.abs(deviations - median) < band).mean(0) >= AGREE
        for i in np.flatnonzero(agreed & (np.abs(median) > CONTRADICTS)):
            if int(line[i]) in explained:
                continue
            nominal = rows.mhz[line[i], 0]
            named.append(
                f"{rows.where(int(np.flatnonzero(computing)[0]), line[i])} runs as at "
                f"{nominal * np.exp(-median[i]):.0f} MHz core"
            )
            settings.append(int(line[i]))
            n_kernels = max(n_kernels, int(computing.sum()))
    return _contradicted(
        rows,
        settings,
        f"the nominal core clock is not the one that the time of the {n_kernels} kernels that only "
        f"compute shows ({first_named(named)})",
    )


def too_many_cycles(rows: Rows, time: MedianGrid, named_already: np.ndarray) -> Iterator[Finding]:
    """A finding of the settings at which kernels take more core cycles than at the neighbouring
    clocks is consistent with.

    ``named_already``: as in :func:`apparent_clocks`.
    """
    y, mhz = time.y, rows.mhz[:, 0]
    explained = set(rows.setting[np.isin(rows.index, named_already)].tolist())
    named, settings = [], []
    for domain, line in clock_lines(rows):
        if domain or explained.intersection(line.tolist()):
            continue
        cycles = np.exp(y[:, line]) * mhz[line]
        low_mhz, middle_mhz, high_mhz = mhz[line[:-2]], mhz[line[1:-1]], mhz[line[2:]]
        weight = (middle_mhz - low_mhz) / (high_mhz - low_mhz)
        allowed = (1.0 - weight) * cycles[:, :-2] + weight * cycles[:, 2:]
        excess = np.log(cycles[:, 1:-1] / allowed)
        for i, setting in enumerate(line[1:-1]):
            excesses = excess[np.isfinite(excess[:, i]), i]
            median = float(np.median(excesses)) if len(excesses) >= MIN_KERNELS else 0.0
            if median > CONTRADICTS and (excesses > SAME_CYCLES).mean() >= AGREE:
                named.append(f"{rows.setting_text(setting)}: {100.0 * np.expm1(median):.0f} %")
                settings.append(int(setting))
    return _contradicted(
        rows,
        settings,
        f"kernels take more core cycles than their times at the clocks beside allow "
        f"({first_named(named)}): the nominal core clock is too high there, or one beside it too "
        f"low",
    )


def _contradicted(rows: Rows, settings: list[int], reason: str) -> Iterator[Finding]:
    """The finding of the settings whose nominal clocks ``reason`` contradicts."""
    if not settings:
        return
    bad = np.flatnonzero(np.isin(rows.setting, settings))
    yield Finding(
        "clocks",
        "warning",
        rows.index[bad],
        f"in {len(bad)} rows at {len(settings)} setting{'s' * (len(settings) > 1)} {reason}; "
        f"import the achieved clocks as core_mhz, or leave these settings out",
    )


def swapped_clocks(rows: Rows, time: MedianGrid) -> Iterator[Finding]:
    """A finding of swapped core and memory columns: kernels that compute follow the memory clock.

    Kernels are sorted by their operations per byte of memory. The times of the third with the most
    must follow the core clock, and those of the third with the fewest the memory clock.
    """
    x = rows.log_mhz
    transferred, operations = rows.kernel_bytes_and_operations()
    judged = np.flatnonzero(transferred + operations > 0)
    if len(judged) < 4 or not np.isfinite(x).all():
        return
    powers = _powers(x, time.y[judged])
    determined = np.isfinite(powers).all(1)
    judged, powers = judged[determined], powers[determined]
    if len(judged) < 4:
        return
    operation_share = operations[judged] / (operations[judged] + transferred[judged])
    order = np.argsort(operation_share, kind="stable")
    third = max(len(order) // 3, 1)
    moving, computing = powers[order[:third]], powers[order[-third:]]
    if operation_share[order[third - 1]] >= operation_share[order[-third]]:
        return
    computing_power = np.median(computing, axis=0)
    moving_power = np.median(moving, axis=0)
    swapped = (
        computing_power[1] < FOLLOWS
        and computing_power[0] > IGNORES
        and moving_power[0] < FOLLOWS
        and moving_power[1] > IGNORES
    )
    if not swapped:
        return
    named = [rows.kernels[judged[i]] for i in order[-third:]][:MAX_NAMED]
    yield Finding(
        "clocks",
        "warning",
        rows.index,
        f"core_mhz and mem_mhz seem to be swapped, in all {len(rows.index)} rows: the time of "
        f"kernels that compute ({first_named(named)}) follows mem_mhz, and that of kernels "
        f"that move data follows core_mhz; swap the two columns in the map file",
    )


def _powers(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The powers of core and memory clock in each kernel's time, from the log times ``y`` (kernels,
    settings): float64 (kernels, 2), NaN if not determined."""
    powers = np.full((len(y), 2), np.nan)
    patterns, pattern = np.unique(np.isfinite(y), axis=0, return_inverse=True)
    for i, measured in enumerate(patterns):
        kernels = np.flatnonzero(pattern.reshape(-1) == i)
        design = np.column_stack([np.ones(measured.sum()), x[measured]])
        if measured.sum() >= 4 and np.linalg.matrix_rank(design) == 3:
            times = y[np.ix_(kernels, np.flatnonzero(measured))]
            powers[kernels] = np.linalg.lstsq(design, times.T, rcond=None)[0][1:].T
    return powers


def fixed_duration(rows: Rows, time: MedianGrid) -> Iterator[Finding]:
    """A finding of kernels whose times depend on no clock.

    A kernel that waits for memory may not follow the core clock, but no kernel that computes or
    moves data is independent of both clocks. If all kernels take the same time at all settings,
    each ran for a fixed time, and its energies are of different amounts of work.
    """
    y = time.y
    valid = np.isfinite(y)
    clocks = np.where(valid[:, :, None], rows.log_mhz, np.nan)
    spans = np.fmax.reduce(clocks, axis=1) - np.fmin.reduce(clocks, axis=1)  # (kernels, 2)
    swept = (valid.sum(1) >= MIN_SETTINGS_OF_LOOP) & (spans > SPAN).any(1)
    spread = np.fmax.reduce(y, axis=1) - np.fmin.reduce(y, axis=1)
    flat = swept & (spread < FLAT)
    if not flat.any():
        return
    kernels = np.flatnonzero(flat)
    members = np.flatnonzero(np.isin(rows.kernel, kernels))
    level = np.nanmedian(y[kernels], axis=1)
    all_flat = bool(flat[swept].all())
    same_time = len(kernels) >= MIN_SETTINGS_OF_LOOP and float(np.ptp(level)) < FLAT
    named = first_named(
        [f"{rows.kernels[k]}: {np.exp(t):.4g} s" for k, t in zip(kernels, level, strict=True)]
    )
    where = f"in {len(members)} rows of {len(kernels)} of {len(rows.kernels)} kernels ({named})"
    remedy = (
        "import the time and the energy of the same work at each setting: divide both by the "
        "iterations that were done"
    )
    if all_flat and same_time:
        yield Finding(
            "time",
            "refused",
            rows.index[members],
            f"{where} the time is the same at all settings and for all kernels: these loops "
            f"ran for a fixed time, so their energies are not those of the same work; {remedy}",
        )
        return
    # With the core clock alone swept, kernels that wait for memory are flat.
    if not all_flat or len(kernels) < MIN_SETTINGS_OF_LOOP:
        both_swept = (spans > SPAN).all(1)
        kernels = np.flatnonzero(flat & both_swept)
        if not len(kernels):
            return
        members = np.flatnonzero(np.isin(rows.kernel, kernels))
        named = first_named([rows.kernels[k] for k in kernels])
        where = f"in {len(members)} rows of {len(kernels)} of {len(rows.kernels)} kernels ({named})"
    yield Finding(
        "time",
        "warning",
        rows.index[members],
        f"{where} the time depends on no clock; if these loops ran for a fixed time, {remedy}; "
        f"if the clocks were not set, no fit can use them",
    )
