"""The checks of nominal clocks against what the time of kernels shows.

The time of a kernel that only computes is a constant number of core cycles. What the others
of a line of settings agree on gives the clock at which each setting ran.

Of any other kernel the cycles grow with the clock, along a straight line where it computes and
waits for memory in turn, and along max(a, b f) where it does both at once. So at no clock f do they
lie above the straight line between the clocks beside it.
"""

from __future__ import annotations

import numpy as np

from analysis.quality.finding import MAX_NAMED, Finding, first_named
from analysis.quality.noise import MedianGrid, clock_lines, log_mhz
from analysis.quality.rows import Rows

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


FOLLOWS, IGNORES = -0.6, -0.3
"""A kernel's time follows a clock where it changes by this power of it, or hardly does."""


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
        mine = np.flatnonzero(pattern.reshape(-1) == i)
        design = np.column_stack([np.ones(known.sum()), x[known]])
        if known.sum() >= 4 and np.linalg.matrix_rank(design) == 3:
            of_mine = y[np.ix_(mine, np.flatnonzero(known))]
            powers[mine] = np.linalg.lstsq(design, of_mine.T, rcond=None)[0][1:].T
    return powers
