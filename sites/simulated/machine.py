"""The simulated machine: the time and power of a kernel's operation counts at a setting.

Energy follows eq. 9 of Choi & Vuduc 2016 with the site file's constants; time is a roofline with
imperfect overlap, and the classes that the site file adds to it. Noise is drawn from a given seed
(a point's id), so that measuring a point twice gives the same measurement, bit for bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dvfs.setting import Setting
from sites.meters.shared.meter import Channel
from sites.site_file import Site

BISECTIONS = 40
"""Steps of the search for the core clock under a power limit."""
WAITS_FOR_CORE = 1.0 / 3.0
"""The share of the waits of ``attained`` that are core cycles, at the highest clocks."""


class SimulationError(Exception):
    """The kernel counts an operation class that the simulated machine does not have."""


@dataclass(frozen=True)
class SimulatedRun:
    """One measured window on the simulated machine, which ran at the clocks ``achieved``.

    ``time_ns`` int64, ``power_w`` float64: samples from the window's start to its end, both
    included, at the meter's period (the last step may be shorter). ``part_s``: float64 (parts,),
    the time of each part of an iteration.
    """

    duration_s: float
    time_ns: np.ndarray
    power_w: np.ndarray
    part_s: np.ndarray
    achieved: Setting


def board_channel(site: Site) -> Channel:
    """The simulated machine's one meter channel: the supply of the whole board."""
    assert site.simulated is not None  # noqa: S101
    period_s = 1.0 / site.simulated.meter_hz
    return Channel(
        name="board", domain="node", kind="power", resolution=0.0, period_s=period_s, stamped=True
    )


def iteration_s(site: Site, counts: Mapping[str, float], setting: Setting) -> float:
    """Noise-free seconds of one iteration: (sum_k t_k^p)^(1/p) + sum_a t_a + launch, with
    t = n / (r f_dom). The classes a are those of ``added`` in the site file.

    ``counts``: the site's classes -> operations.
    """
    machine = site.simulated
    assert machine is not None  # noqa: S101
    times = []
    added_s = 0.0
    for name, n in counts.items():
        if name not in machine.rate_per_cycle:
            raise SimulationError(
                f"{site.name} has no class {name!r}; it has {', '.join(machine.rate_per_cycle)}"
            )
        domain = site.classes[name].domain
        mhz = setting.core_mhz if domain == "core" else setting.mem_mhz
        assert mhz is not None  # noqa: S101
        time_s = n / (machine.rate_per_cycle[name] * mhz * 1e6)
        if name in machine.added:
            added_s += time_s
        else:
            times.append(time_s)
    longest = max(times, default=0.0)
    if longest == 0.0:
        return added_s + machine.launch_s
    p = machine.overlap
    overlapped_s: float = longest * sum((t / longest) ** p for t in times) ** (1.0 / p)
    return overlapped_s + added_s + machine.launch_s


def phases_s(site: Site, phases: Mapping[str, Mapping[str, float]], setting: Setting) -> np.ndarray:
    """Noise-free seconds of each phase of an iteration, which is launched once: float64 (phases,).
    Includes the waits of ``attained`` in the site file."""
    machine = site.simulated
    assert machine is not None  # noqa: S101
    phase_s = []
    for name, counts in phases.items():
        time_s = iteration_s(site, counts, setting) - machine.launch_s
        if name in machine.attained:
            top = max(site.settings)
            fastest_s = iteration_s(site, counts, top) - machine.launch_s
            core, memory = (
                1.0 if mhz is None or highest is None else highest / mhz
                for highest, mhz in zip(top.clocks, setting.clocks, strict=True)
            )
            waits_s = (1.0 / machine.attained[name] - 1.0) * fastest_s
            time_s += waits_s * (WAITS_FOR_CORE * core + (1.0 - WAITS_FOR_CORE) * memory)
        phase_s.append(time_s)
    phase_s[0] += machine.launch_s
    return np.array(phase_s)


def volts(site: Site, setting: Setting) -> tuple[float, float]:
    """The core and memory voltage at a setting, in V; the core's interpolated linearly."""
    core, mem = site.domains.core, site.domains.mem
    assert core is not None and mem is not None  # noqa: S101
    assert setting.core_mhz is not None and setting.mem_mhz is not None  # noqa: S101
    clocks = sorted(core.volts)
    core_v = np.interp(setting.core_mhz, clocks, [core.volts[mhz] for mhz in clocks])
    return float(core_v), mem.volts[setting.mem_mhz]


def mean_w(site: Site, phases: Mapping[str, Mapping[str, float]], setting: Setting) -> float:
    """Noise-free mean power of an iteration of consecutive phases, in W."""
    dynamic_j = sum(_dynamic_j(site, counts, setting) for counts in phases.values())
    return dynamic_j / float(phases_s(site, phases, setting).sum()) + constant_w(site, setting)


def under_limit(site: Site, phases: Mapping[str, Mapping[str, float]], setting: Setting) -> Setting:
    """The clocks at which a kernel runs at a setting. Under a power limit the core clock is the
    highest one, up to the requested one, that keeps the mean power within the limit; the lowest
    legal clock where none does."""
    requested, limit_w = setting.two_clocks, setting.power_limit_w
    assert site.domains.core is not None and requested.core_mhz is not None  # noqa: S101
    if limit_w is None or mean_w(site, phases, requested) <= limit_w:
        return requested
    low, high = min(site.domains.core.frequencies_mhz), requested.core_mhz
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        within = mean_w(site, phases, Setting(middle, requested.mem_mhz)) <= limit_w
        low, high = (middle, high) if within else (low, middle)
    return Setting(low, requested.mem_mhz)


def constant_w(site: Site, setting: Setting, leakage_gain: float = 1.0) -> float:
    """Constant power: c1p V_p + c1m V_m + P_misc (Choi & Vuduc 2016, eq. 8), in W.

    ``leakage_gain``: the factor of the two leakage terms.
    """
    machine = site.simulated
    assert machine is not None  # noqa: S101
    core_v, mem_v = volts(site, setting)
    leakage_w = machine.leakage_core_w_per_v * core_v + machine.leakage_mem_w_per_v * mem_v
    return leakage_gain * leakage_w + machine.misc_w


def run(
    site: Site,
    counts: Mapping[str, float],
    setting: Setting,
    iterations: int,
    seed: str,
    phases: Mapping[str, Mapping[str, float]] | None = None,
    leakage_gain: float = 1.0,
) -> SimulatedRun:
    """Simulate ``iterations`` of a kernel at a setting, as the simulated meter shows it.

    ``phases``: phase -> its counts, if an iteration consists of consecutive phases with separate
    times and powers; they add up to ``counts``. ``leakage_gain``: the factor of the leakage during
    the whole window, for a warm node.
    """
    machine = site.simulated
    assert machine is not None  # noqa: S101
    parts = phases or {"": counts}
    shared = _generator("setting", f"{site.name} {setting.hash_text}")
    setting = under_limit(site, parts, setting)
    part_s = phases_s(site, parts, setting)
    dynamic_j = np.array([_dynamic_j(site, part, setting) for part in parts.values()])
    noisy = machine.noise == "default"
    random = _generator("run", seed)
    gain = 1.0
    if noisy:
        part_s *= 1.0 + random.normal(0.0, machine.time_pct / 100.0)
        gain += shared.normal(0.0, machine.setting_gain_pct / 100.0)
        gain += random.normal(0.0, machine.run_gain_pct / 100.0)
    one_s = float(part_s.sum())
    if machine.warming_pct_per_w:
        cold_w = float(dynamic_j.sum()) / one_s + constant_w(site, setting, leakage_gain)
        warm = 1.0 + machine.warming_pct_per_w / 100.0 * cold_w
        dynamic_j *= warm**2
        leakage_gain *= warm
    duration_s = one_s * iterations

    end_ns = max(round(duration_s * 1e9), 1)
    step_ns = max(round(1e9 / machine.meter_hz), 1)
    time_ns = np.arange(0, end_ns, step_ns, dtype=np.int64)
    time_ns = np.append(time_ns, end_ns)
    if phases:
        part_j = (dynamic_j + constant_w(site, setting, leakage_gain) * part_s) * gain
        power_w = _mean_power_w(time_ns, step_ns, part_s, part_j)
    else:
        mean_w = (float(dynamic_j[0]) / one_s + constant_w(site, setting, leakage_gain)) * gain
        power_w = np.full(time_ns.size, mean_w)
    if noisy:
        power_w += random.normal(0.0, machine.sample_w, time_ns.size)
    return SimulatedRun(duration_s, time_ns, power_w, part_s, setting)


def _dynamic_j(site: Site, counts: Mapping[str, float], setting: Setting) -> float:
    """The energy of operations, in J."""
    machine = site.simulated
    assert machine is not None  # noqa: S101
    core_v, mem_v = volts(site, setting)
    volts_of = {"core": core_v, "mem": mem_v}
    return sum(
        n * machine.energy_pj_per_v2[name] * 1e-12 * volts_of[site.classes[name].domain] ** 2
        for name, n in counts.items()
    )


def _mean_power_w(
    time_ns: np.ndarray, step_ns: int, part_s: np.ndarray, part_j: np.ndarray
) -> np.ndarray:
    """The samples of a meter that averages over its period: float64 (samples,).

    The period is centred on each of ``time_ns``. ``part_s``, ``part_j``: seconds and joules of each
    part of an iteration.
    """
    edge_s, edge_j = (np.concatenate([[0.0], np.cumsum(part)]) for part in (part_s, part_j))
    end_s = time_ns[-1] / 1e9
    low_s, high_s = (np.clip(time_ns / 1e9 + side * step_ns / 2e9, 0.0, end_s) for side in (-1, 1))

    def until_j(at_s: np.ndarray) -> np.ndarray:
        whole, rest_s = np.divmod(at_s, edge_s[-1])
        return np.asarray(whole * edge_j[-1] + np.interp(rest_s, edge_s, edge_j))

    return np.asarray((until_j(high_s) - until_j(low_s)) / np.maximum(high_s - low_s, 1e-12))


def _generator(purpose: str, seed: str) -> np.random.Generator:
    digest = hashlib.sha256(f"{purpose} {seed}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "big")))
