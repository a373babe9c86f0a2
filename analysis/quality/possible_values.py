"""The checks of values against the limits of any device, and against one another."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from analysis.measurements.observations import clocks_run_at
from analysis.quality.finding import MAX_NAMED, Finding, first_named
from analysis.quality.noise import RELEVANT
from analysis.quality.rows import Rows
from dvfs.dataset import POSSIBLE
from dvfs.groups import Groups

NODE_W = (0.005, 2e4)
"""The range of a kernel's mean power: from one small core of a phone, without its idle power (8 mW
in freqbench's data), to a node of eight large GPUs (14 kW)."""
FAST_MHZ, FAST_W = 1500.0, 0.06
"""The least power at a fast core clock: one small core of a phone draws 67 mW at 1600 MHz,
without its idle power (freqbench's data)."""
GPU_J_PER_CYCLE = (3e-10, 2e-5)
"""The range of the energy of one core cycle of a device with a memory clock. The GPU of a small
board draws some 0.5 W at 900 MHz, a GTX 980 at least 34 nJ a cycle, eight large GPUs some 7 uJ."""
GPU_BEST_PJ = 1e4
"""The most energy of one counted operation in a GPU's best row: 40 pJ on the Jetson TK1 (Choi &
Vuduc 2016), 27 pJ on a GTX 980, at most 1 nJ over all platforms of Choi et al. 2014."""
BEST_PER_CYCLE = 0.02
"""The fewest counted operations in a core cycle in the best row: even a chain of cache misses, each
of some 300 cycles and 8 bytes, has 0.03."""
FALLS = 0.02
"""The relative fall from one clock to the next that no measured voltage under load reaches."""
REVERSED = 0.05
"""The relative fall from the lowest to the highest clock that no voltage table reaches."""
VARIES = float(np.log(1.2))
"""The logarithm of the ratio that counters of the same work do not reach, in the class that varies
least."""
ONE_VARIES = float(np.log(1.5))
"""The same of any class, if most counts of the site are equal at all settings."""
SAME = 1e-6


def possible_clocks_and_volts(rows: Rows) -> Iterator[Finding]:
    """Findings of clocks and voltages outside :data:`dvfs.dataset.POSSIBLE`."""
    columns = {
        "core_mhz": (rows.mhz[rows.setting, 0], "clocks"),
        "mem_mhz": (rows.mhz[rows.setting, 1], "clocks"),
        "core_v": (rows.volts[:, 0], "voltages"),
        "mem_v": (rows.volts[:, 1], "voltages"),
    }
    for name, (values, quantity) in columns.items():
        low, high, unit = POSSIBLE[name]
        bad = np.flatnonzero((values < low) | (values > high))
        if not len(bad):
            continue
        firsts = np.sort(np.unique(values[bad], return_index=True)[1])
        named = [f"{name} {values[i]:g} of {rows.kernels[rows.kernel[i]]}" for i in bad[firsts]]
        yield Finding(
            "units",
            "refused",
            rows.index[bad],
            f"in {len(bad)} rows {name} is not between {low:g} and {high:,g} {unit}, as "
            f"{quantity} of devices are ({first_named(named)}); "
            f"{_factor_advice(values[bad], low, high, unit)}",
        )


def _factor_advice(values: np.ndarray, low: float, high: float, unit: str) -> str:
    """Advice that names the power of ten that makes all values possible."""
    for exponent in (-3, 3, -6):
        scaled = values * 10.0**exponent
        if ((scaled >= low) & (scaled <= high)).all():
            return f"import the column with the factor 1e{exponent:d}, if that makes it {unit}"
    return f"correct the table, or give the column the factor that makes it {unit}"


def possible_power(rows: Rows) -> Iterator[Finding]:
    """A finding of cells whose energy over time is not plausible for a node or a GPU."""
    power_w = np.exp(rows.values["power"])
    low, high = NODE_W
    slow = rows.mhz[rows.setting, 0] < FAST_MHZ
    beyond_node = (power_w < np.where(slow, low, FAST_W)) | (power_w > high)
    mem_mhz = rows.mhz[rows.setting, 1]
    per_cycle_j = power_w / (rows.mhz[rows.setting, 0] * 1e6)
    with np.errstate(invalid="ignore"):
        small, large = per_cycle_j < GPU_J_PER_CYCLE[0], per_cycle_j > GPU_J_PER_CYCLE[1]
        beyond_gpu = np.isfinite(mem_mhz) & (small | large)
    bad = np.flatnonzero(beyond_node | beyond_gpu)
    if not len(bad):
        return
    cells = rows.in_cells(np.unique(rows.cell[bad]))
    usual_w = float(np.exp(np.median(rows.values["power"][bad])))
    named = [
        f"{rows.where(rows.kernel[i], rows.setting[i])}: {power_w[i]:.3g} W"
        for i in bad[np.unique(rows.cell[bad], return_index=True)[1]]
    ]
    device = "a node" if beyond_node[bad].any() else "a GPU at its clocks"
    yield Finding(
        "units",
        "warning",
        rows.index[cells],
        f"in {len(bad)} of {len(power_w)} rows energy over time is not plausible for {device}, "
        f"{usual_w:.3g} W in the median of these rows ({first_named(named)}); "
        f"check the units of energy_j and time_s (mJ? ms?) and import with their factors",
    )


def possible_operations(rows: Rows) -> Iterator[Finding]:
    """A finding of a site whose best row needs an implausible energy, or cycles, per operation."""
    counted = sum((np.nan_to_num(n) for n in rows.counts.values()), np.zeros(len(rows.index)))
    counted_rows = counted > 0
    if not counted_rows.any():
        return
    n = counted[counted_rows]
    pj = np.exp(rows.values["energy"][counted_rows]) / n * 1e12
    cycles = (
        np.exp(rows.values["time"][counted_rows]) * rows.mhz[rows.setting[counted_rows], 0] * 1e6
    )
    gpu = bool(np.isfinite(rows.mhz[:, 1]).any())
    per_cycle = n / cycles
    limits = []
    if gpu and pj.min() > GPU_BEST_PJ:
        limits.append(f"at least {pj.min():.3g} pJ an operation")
    if np.isfinite(per_cycle).any() and np.nanmax(per_cycle) < BEST_PER_CYCLE:
        limits.append(f"at most {np.nanmax(per_cycle):.2g} operations in a core cycle")
    if not limits:
        return
    yield Finding(
        "units",
        "warning",
        rows.index[counted_rows],
        f"in all {int(counted_rows.sum())} rows with counts there are {' and '.join(limits)}, "
        f"which is not plausible for a device; check the units of energy_j, time_s and the "
        f"counts (mJ? ms? billions?) and import with their factors",
    )


def falling_voltages(rows: Rows) -> Iterator[Finding]:
    """Findings of voltages (the median at each clock of a domain) that are lower at a higher clock.
    Core voltages of rows that ran at another core clock, as under a power limit, are excluded."""
    requested_mhz = rows.mhz[rows.setting, 0]
    held = clocks_run_at(requested_mhz, rows.achieved_mhz[:, 0], rows.limit_w) == requested_mhz
    for domain, name in ((0, "core"), (1, "mem")):
        clocks, clock_of_setting = np.unique(rows.mhz[:, domain], return_inverse=True)
        clock, volts = clock_of_setting[rows.setting], rows.volts[:, domain]
        usable = np.isfinite(volts) & np.isfinite(clocks)[clock] & (held | (name == "mem"))
        groups = Groups(clock[usable])
        clocks, median_v = clocks[groups.codes], groups.medians(volts[usable])
        falls = [
            f"{low_v:g} V at {low:g} MHz, {high_v:g} V at {high:g} MHz"
            for (low, low_v), (high, high_v) in pairwise(zip(clocks, median_v, strict=True))
            if high_v < low_v * (1 - FALLS)
        ]
        if not falls:
            continue
        reversed_table = median_v[-1] < median_v[0] * (1 - REVERSED)
        yield Finding(
            "voltages",
            "refused" if reversed_table else "warning",
            rows.index[usable],
            f"in {int(usable.sum())} rows {name}_v falls as {name}_mhz rises "
            f"({first_named(falls)}); "
            + (
                "the voltages may be in reverse order or of another column: correct them, or "
                "leave them out"
                if reversed_table
                else "check the voltage of these clocks"
            ),
        )


def energy_against_power(rows: Rows, power_w: np.ndarray) -> Iterator[Finding]:
    """A finding of rows whose energy is not the power (W) in their provenance times the time."""
    compared = np.flatnonzero(power_w > 0)
    ratio = np.exp(rows.values["power"][compared]) / power_w[compared]
    wrong = np.abs(np.log(ratio)) > RELEVANT
    if not wrong.any():
        return
    bad = compared[wrong]
    factor = float(np.median(ratio[wrong]))
    one_factor = len(bad) > 2 and np.abs(np.log(ratio[wrong] / factor)).max() < RELEVANT
    named = [
        f"{rows.where(rows.kernel[i], rows.setting[i])}: {np.exp(rows.values['energy'][i]):.4g} J, "
        f"but {power_w[i] * np.exp(rows.values['time'][i]):.4g} J by power times time"
        for i in bad[:MAX_NAMED]
    ]
    cause = (
        f"always by a factor of {factor:.4g}: one of the units is wrong, import it with a factor"
        if one_factor
        else "find out which of the two was measured, and leave the other out"
    )
    yield Finding(
        "energy",
        "warning",
        rows.index[bad],
        f"in {len(bad)} rows energy is not power times time ({first_named(named)}); {cause}",
    )


def clocks_missing(rows: Rows) -> Iterator[Finding]:
    """Findings of rows without a clock of a domain, where others have one: they count as settings
    without such a clock, in which a fit has no power of its clock tree. Under a power limit or a
    profile a row may have none."""
    is_free = np.array([(s.power_limit_w, s.profile) == (None, None) for s in rows.settings])
    for domain, name in ((0, "core_mhz"), (1, "mem_mhz")):
        has_clock = np.isfinite(rows.mhz[:, domain])
        lacking = np.flatnonzero((is_free & ~has_clock)[rows.setting])
        if has_clock.any() and len(lacking):
            examples = [rows.setting_text(s) for s in np.unique(rows.setting[lacking]).tolist()]
            yield Finding(
                "clocks",
                "warning",
                rows.index[lacking],
                f"{len(lacking)} of {len(rows.index)} rows have no {name}, and others have one: "
                f"they count as settings without this clock ({first_named(examples)}); give the "
                f"clock at which they ran",
            )


def voltages_missing(rows: Rows) -> Iterator[Finding]:
    """Findings of clocks at which no row has a voltage of a domain, where others have: a fit then
    uses no memory voltage, or none at all."""
    for domain, name, unknown in (
        (0, "core", "all voltages are"),
        (1, "mem", "the memory voltages are"),
    ):
        clocks, clock_of_setting = np.unique(rows.mhz[:, domain], return_inverse=True)
        clock, known = clock_of_setting[rows.setting], np.isfinite(rows.volts[:, domain])
        has_volts = np.bincount(clock[known], minlength=len(clocks)) > 0
        lacking = np.flatnonzero(~has_volts[clock])
        if not known.any() or not len(lacking):
            continue
        texts = ["as found" if np.isnan(mhz) else f"{mhz:g} MHz" for mhz in clocks[~has_volts]]
        yield Finding(
            "voltages",
            "warning",
            rows.index[lacking],
            f"{len(lacking)} of {len(rows.index)} rows have no {name}_v, and no row at the same "
            f"{name}_mhz has one ({first_named(texts)}): {unknown} taken as unknown; give those of "
            f"these clocks",
        )


def counts_by_setting(rows: Rows) -> Iterator[Finding]:
    """A finding of kernels whose operation counts vary with the setting.

    A counter may follow the clock or the scheduler (cycles that wait for memory, cache lines
    refilled), but not all counters of a kernel do; and no count that is computed, not read.
    """
    variations = [entry for n in rows.counts.values() for entry in _varying_kernels(rows, n)]
    if not variations:
        return
    computed = sum(ratio < SAME for _, ratio, _, _ in variations) > len(variations) / 2
    least = np.full(len(rows.kernels), np.inf)
    most = np.zeros(len(rows.kernels))
    for k, ratio, _, _ in variations:
        least[k], most[k] = min(least[k], ratio), max(most[k], ratio)
    varies = np.isfinite(least) & (least > VARIES)
    if computed:
        varies |= most > ONE_VARIES
    kernels = np.flatnonzero(varies)
    if not len(kernels):
        return
    members = np.flatnonzero(np.isin(rows.kernel, kernels))
    worst: dict[int, str] = {}
    for k, ratio, low, high in sorted(variations, key=lambda entry: -entry[1]):
        if varies[k]:
            worst.setdefault(
                k,
                f"{rows.kernels[k]}: {np.exp(ratio):.3g} times the operations at "
                f"{rows.setting_text(high)} as at {rows.setting_text(low)}",
            )
    named = list(worst.values())
    yield Finding(
        "counts",
        "warning",
        rows.index[members],
        f"in {len(members)} rows of {len(kernels)} of {len(rows.kernels)} kernels the counts "
        f"vary with the setting ({first_named(named)}): picks would compare different work; "
        f"import time, energy and counts of one iteration",
    )


def counts_missing(rows: Rows) -> Iterator[Finding]:
    """A finding of kernels without a class's count in some of their rows."""
    lacks = np.zeros(len(rows.index), bool)
    named: dict[int, str] = {}
    for name, n in rows.counts.items():
        counted = np.bincount(rows.kernel[n > 0], minlength=len(rows.kernels)) > 0
        without = np.isnan(n) & counted[rows.kernel]
        lacks |= without
        for i in np.flatnonzero(without).tolist():
            where = rows.where(rows.kernel[i], rows.setting[i])
            named.setdefault(int(rows.kernel[i]), f"{where}: {name}")
    if not named:
        return
    yield Finding(
        "counts",
        "warning",
        rows.index[lacks],
        f"in {np.count_nonzero(lacks)} rows of {len(named)} of {len(rows.kernels)} kernels a "
        f"class has no count, and in others of the same kernel it has "
        f"({first_named(list(named.values()))}): a fit takes the mean of these; give each row "
        f"its count",
    )


def _varying_kernels(rows: Rows, n: np.ndarray) -> list[tuple[int, float, int, int]]:
    """Each kernel with counts ``n`` of a class: its index, the logarithm of the ratio of its
    largest to its least count over the settings, and the settings of the least and the largest."""
    counted = n > 0
    cells = rows.cells if counted.all() else Groups(rows.cell[counted])
    log_n = cells.medians(np.log(n[counted]))
    kernel, setting = np.divmod(cells.codes, len(rows.mhz))
    starts = np.flatnonzero(np.diff(kernel, prepend=-1))
    variations = []
    for first, end in pairwise([*starts.tolist(), len(kernel)]):
        log_counts, settings = log_n[first:end], setting[first:end]
        least, most = int(settings[np.argmin(log_counts)]), int(settings[np.argmax(log_counts)])
        variations.append((int(kernel[first]), float(np.ptp(log_counts)), least, most))
    return variations
