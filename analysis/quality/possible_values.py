"""The checks of values against what any device can have: clocks, voltages, power, operations."""

from __future__ import annotations

import numpy as np

from analysis.quality.finding import MAX_NAMED, Finding, first_named
from analysis.quality.rows import Rows
from dvfs.dataset import POSSIBLE

NODE_W = (0.005, 2e4)
"""The mean power of a kernel, from one small core of a phone with its idle power taken off (8 mW
in freqbench's data) to a node of eight large GPUs (14 kW)."""
FAST_MHZ, FAST_W = 1500.0, 0.06
"""The least power at a fast core clock: one small core of a phone draws 67 mW at 1600 MHz, with its
idle power taken off (freqbench's data)."""
GPU_J_PER_CYCLE = (3e-10, 2e-5)
"""The energy of one core cycle where there is a memory clock. The GPU of a small board draws some
0.5 W at 900 MHz, and a GTX 980 at least 34 nJ a cycle; a node of eight large GPUs some 7 uJ."""
GPU_BEST_PJ = 1e4
"""The energy of one counted operation in the best row of a GPU: 40 pJ on the Jetson TK1 (Choi &
Vuduc 2016), 27 pJ on a GTX 980, at most 1 nJ over all platforms of Choi et al. 2014."""
BEST_PER_CYCLE = 0.02
"""Counted operations in one core cycle, in the best row: even a chain of cache misses, each of some
300 cycles and 8 bytes, has 0.03."""


def possible_clocks_and_volts(rows: Rows) -> list[Finding]:
    """Clocks and voltages that no device has; see :data:`dvfs.dataset.POSSIBLE`."""
    columns = {
        "core_mhz": (rows.mhz[rows.setting, 0], "clocks"),
        "mem_mhz": (rows.mhz[rows.setting, 1], "clocks"),
        "core_v": (rows.volts[:, 0], "voltages"),
        "mem_v": (rows.volts[:, 1], "voltages"),
    }
    findings = []
    for name, (values, what) in columns.items():
        low, high, unit = POSSIBLE[name]
        bad = np.flatnonzero((values < low) | (values > high))
        if not len(bad):
            continue
        named = [
            f"{name} {values[i]:g} of {rows.kernels[rows.kernel[i]]}"
            for i in _first_of_each(values[bad], bad)
        ]
        findings.append(
            Finding(
                "units",
                "refused",
                rows.index[bad],
                f"in {len(bad)} rows {name} is not between {low:g} and {high:,g} {unit}, as "
                f"{what} of devices are ({first_named(named)}); "
                f"{_factor_advice(values[bad], low, high, unit)}",
            )
        )
    return findings


def _first_of_each(values: np.ndarray, rows: np.ndarray) -> list[int]:
    """The first row of each distinct value."""
    return [int(i) for i in rows[np.sort(np.unique(values, return_index=True)[1])]]


def _factor_advice(values: np.ndarray, low: float, high: float, unit: str) -> str:
    """The power of ten that makes all values possible, as advice."""
    for exponent in (-3, 3, -6):
        scaled = values * 10.0**exponent
        if ((scaled >= low) & (scaled <= high)).all():
            return f"import the column with the factor 1e{exponent:d}, if that makes it {unit}"
    return f"correct the table, or give the column the factor that makes it {unit}"


def possible_power(rows: Rows) -> list[Finding]:
    """Kernels and settings whose energy over time is not plausible for a node."""
    power_w = np.exp(rows.values["power"])
    low, high = NODE_W
    slow = rows.mhz[rows.setting, 0] < FAST_MHZ
    bad = (power_w < np.where(slow, low, FAST_W)) | (power_w > high)
    mem_mhz = rows.mhz[rows.setting, 1]
    per_cycle_j = power_w / (rows.mhz[rows.setting, 0] * 1e6)
    with np.errstate(invalid="ignore"):
        small, large = per_cycle_j < GPU_J_PER_CYCLE[0], per_cycle_j > GPU_J_PER_CYCLE[1]
        gpu = np.isfinite(mem_mhz) & (small | large)
    off = np.flatnonzero(bad | gpu)
    if not len(off):
        return []
    cells = rows.in_cells(np.unique(rows.cell[off]))
    usual_w = float(np.exp(np.median(rows.values["power"][off])))
    named = [
        f"{rows.where(rows.kernel[i], rows.setting[i])}: {power_w[i]:.3g} W"
        for i in off[np.unique(rows.cell[off], return_index=True)[1]][: MAX_NAMED + 1]
    ]
    n_cells = len(np.unique(rows.cell[off]))
    more = f"; and {n_cells - MAX_NAMED} more" if n_cells > MAX_NAMED else ""
    what = "a node" if bad[off].any() else "a GPU at its clocks"
    return [
        Finding(
            "units",
            "warning",
            rows.index[cells],
            f"in {len(off)} of {len(power_w)} rows energy over time is not plausible for {what}, "
            f"{usual_w:.3g} W in the median of these rows ({'; '.join(named[:MAX_NAMED])}{more}); "
            f"check the units of energy_j and time_s (mJ? ms?) and import with their factors",
        )
    ]


def possible_operations(rows: Rows) -> list[Finding]:
    """A site where even the best row needs more energy or more cycles an operation than any."""
    counted = sum((np.nan_to_num(n) for n in rows.counts.values()), np.zeros(len(rows.index)))
    having = counted > 0
    if not having.any():
        return []
    n = counted[having]
    pj = np.exp(rows.values["energy"][having]) / n * 1e12
    cycles = np.exp(rows.values["time"][having]) * rows.mhz[rows.setting[having], 0] * 1e6
    gpu = bool(np.isfinite(rows.mhz[:, 1]).any())
    per_cycle = n / cycles
    seen = []
    if gpu and pj.min() > GPU_BEST_PJ:
        seen.append(f"at least {pj.min():.3g} pJ an operation")
    if np.isfinite(per_cycle).any() and np.nanmax(per_cycle) < BEST_PER_CYCLE:
        seen.append(f"at most {np.nanmax(per_cycle):.2g} operations in a core cycle")
    if not seen:
        return []
    return [
        Finding(
            "units",
            "warning",
            rows.index[having],
            f"in all {int(having.sum())} rows with counts there are {' and '.join(seen)}, which "
            f"is not plausible for a device; check the units of energy_j, time_s and the counts "
            f"(mJ? ms? billions?) and import with their factors",
        )
    ]
