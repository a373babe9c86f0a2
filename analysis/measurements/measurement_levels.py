"""The levels of power measurement of the EE HPC WG (2015) that a site's measurements reach.

The methodology has four aspects, some in parts, with three levels each (its table 3.1). A window is
the core phase of a run; a program from its start to its end is the full run. A site reaches a level
if the store and the site file show it for all measurements; unknown facts count as not reached.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.measurements.campaign_energy import node_counts
from analysis.measurements.provenance import estimated_energies
from dvfs.dataset import RECORDED_PREFIX, Columns, complete_rows

LEAST_CORE_PHASE_S = 60.0
LONGEST_SAMPLE_S = 1.02
"""A second and a period of 50 Hz (section 3.1.2)."""
FEWEST_READINGS = 10
"""The fewest readings in a core phase, so that its tenth is the longest interval."""
INTEGRATION_HZ = {True: 5000.0, False: 120.0}
"""Whether the meter is upstream of the power conversion (AC) -> the least sampling rate of an
energy counter at level 3."""
ACCURACY_PCT = (5.0, 2.0, 1.0)
"""The greatest error of the meter, by level."""
FEWEST_NODES = 15
FRACTIONS = (1 / 10, 1 / 8)
LEAST_W = (2e3, 10e3)
"""Levels 1 and 2 need this many nodes, this fraction of the compute nodes and this power, or the
whole machine ..."""
ENOUGH_W = 40e3
"""... or, for level 1 only, this power."""
CONVERSION = {
    "loss by manufacturer": 1,
    "loss of one supply": 2,
    "loss measured": 3,
    "upstream": 3,
}
"""The power conversion by the site file -> the level."""
PROGRAM = "argv"
"""A parameter of the kernel ``command``, whose iteration is a program's run from start to end."""
WHOLE_NODE = "node"
"""The domain of everything that a node's power supply feeds."""
LEVELS = (1, 2, 3)


@dataclass(frozen=True, kw_only=True)
class Metered:
    """How the energies of a site's complete measurements were measured.

    ``unmetered``: the number, of ``n``, whose energy is an estimate, a replay, or of an unknown
    meter. The other fields are the worst values of the metered ones. ``window_s``: the length of a
    window, s. ``reading_s``: the time between two readings, s, NaN if unknown for one.
    ``counters``: whether all channels that count toward the energy are energy counters; their
    ``domains``. ``idle``: whether each has an idle power. ``whole_programs``: whether each window
    is a program's run from start to end. ``nodes``: the number measured at once, NaN if unknown
    for one. ``power_w``: the mean power.
    """

    n: int
    unmetered: int
    window_s: float = math.nan
    reading_s: float = math.nan
    counters: bool = False
    domains: frozenset[str] = frozenset()
    idle: bool = False
    whole_programs: bool = False
    nodes: float = math.nan
    power_w: float = math.nan


@dataclass(frozen=True)
class AspectLevel:
    """The level that an aspect, or a part of it, reaches; 0 is none. ``known``: the facts;
    ``missing``: the needs of the next level; both are text for people."""

    aspect: str
    level: int
    known: str
    missing: str


Need = tuple[int, bool, str]
"""A condition: the lowest level that needs it, whether it holds, and its description."""


def metered(columns: Columns, site: str) -> Metered | None:
    """How a site was measured; None if it has no complete measurement or is simulated.
    ``columns``: a store's."""
    rows = np.flatnonzero(complete_rows(columns, site))
    if not len(rows) or columns["simulated"][rows].any():
        return None
    meters, params, node = (columns.texts(name)[rows] for name in ("meters", "params", "node"))
    counting = [_counting_channels(text) for text in meters.values]
    time_s, energy_j, iterations = (
        columns[name][rows].astype(float) for name in ("time_s", "energy_j", "iterations")
    )
    is_counted = meters.array(bool, [bool(channels) for channels in counting])
    is_metered = is_counted & (energy_j > 0) & (estimated_energies(columns, rows) == "")
    metered_rows = np.flatnonzero(is_metered)
    if not len(metered_rows):
        return Metered(n=len(rows), unmetered=len(rows))
    texts = columns["provenance"][rows[metered_rows]].tolist()
    records = [json.loads(text or "{}") for text in texts]
    codes = meters[metered_rows].codes
    row_channels = [counting[i] for i in codes.tolist()]
    channels = [channel for i in np.unique(codes) for channel in counting[i].values()]
    windows = np.array([record.get("protocol", {}).get("windows", 1) for record in records])
    time_s, energy_j = time_s[metered_rows], energy_j[metered_rows]
    return Metered(
        n=len(rows),
        unmetered=len(rows) - len(metered_rows),
        window_s=float(np.min(time_s * iterations[metered_rows] / windows)),
        reading_s=float(
            np.max(
                [
                    _reading_s(name, channel, record.get("sampling", {}))
                    for by_name, record in zip(row_channels, records, strict=True)
                    for name, channel in by_name.items()
                ]
            )
        ),
        counters=all(channel.get("kind") == "energy" for channel in channels),
        domains=frozenset(str(channel.get("domain") or "unknown") for channel in channels),
        idle=all("idle_w" in record.get("protocol", {}) for record in records),
        whole_programs=all(PROGRAM in json.loads(text) for text in params[metered_rows].present()),
        nodes=float(np.min(node_counts(node[metered_rows]))),
        power_w=float(np.min(energy_j / time_s)),
    )


def _counting_channels(meters: str) -> dict[str, Any]:
    """The channels that count toward the energy, without the channels of a recording."""
    return {
        name: channel
        for name, channel in json.loads(meters or "{}").items()
        if channel.get("counts") and RECORDED_PREFIX not in name
    }


def _reading_s(name: str, channel: Mapping[str, Any], sampling: Mapping[str, Any]) -> float:
    """The time between two readings of a channel, s: the longer of its update period and the
    sampling period; NaN if one is unknown. ``name``: METER:CHANNEL, or NODE/METER:CHANNEL."""
    meter = name.partition(":")[0].rpartition("/")[2]
    update_s, read_s = channel.get("period_s"), sampling.get(meter, {}).get("period_s")
    return max(update_s, read_s) if update_s and read_s else math.nan


def levels(measured: Metered, stated: Mapping[str, Any]) -> list[AspectLevel]:
    """The level of each aspect, and the level of all as the last one. ``stated``: the table
    ``metering`` of the site file; keys that it does not state are absent or None."""
    sampling_hz, conversion = stated.get("sampling_hz"), stated.get("power_conversion")
    sample_s = measured.reading_s if sampling_hz is None else 1.0 / sampling_hz
    integrated_hz = INTEGRATION_HZ[conversion == "upstream"]
    full_run = "power of the full run; the windows alone are measured"
    readings = measured.window_s / measured.reading_s
    kind = "energy" if measured.counters else "power"
    aspects = [
        _aspect(
            "1a: granularity",
            measured,
            f"meters of {kind}; time between readings: {_found(measured.reading_s, 's')}; "
            f"internal sampling: {_stated(sampling_hz, 'Hz')}",
            [
                (1, sample_s <= LONGEST_SAMPLE_S, "a sample of power a second"),
                (3, measured.counters, "counters of energy"),
                (
                    3,
                    sampling_hz is not None and sampling_hz >= integrated_hz,
                    f"sampling_hz of {integrated_hz:g} or more",
                ),
            ],
        ),
        _aspect(
            "1b: timing",
            measured,
            f"shortest window: {_found(measured.window_s, 's')}",
            [
                (1, measured.window_s >= LEAST_CORE_PHASE_S, "windows of a minute or more"),
                (2, measured.whole_programs, full_run),
            ],
        ),
        _aspect(
            "1c: measurements",
            measured,
            f"readings in a window: {_found(readings)}; "
            f"idle power: {'measured' if measured.idle else 'not measured'}",
            [
                (1, readings >= FEWEST_READINGS, f"{FEWEST_READINGS} readings in each window"),
                (2, measured.whole_programs, full_run),
                (2, measured.idle, "idle power (protocol.idle_s)"),
                (3, measured.counters, "counters of energy"),
            ],
        ),
        _fraction(measured, stated),
        _subsystems(measured, stated),
        _location(measured, conversion),
        _aspect(
            "4b: accuracy of the meters",
            measured,
            _stated(stated.get("accuracy_pct"), "%"),
            [
                (
                    level,
                    (stated.get("accuracy_pct") or math.inf) <= pct,
                    f"accuracy_pct of {pct:g} or less",
                )
                for level, pct in zip(LEVELS, ACCURACY_PCT, strict=True)
            ],
        ),
    ]
    lowest = min(aspect.level for aspect in aspects)
    short = [aspect.aspect.partition(":")[0] for aspect in aspects if aspect.level == lowest]
    missing = "" if lowest == max(LEVELS) else f"aspects {', '.join(short)}"
    return [*aspects, AspectLevel("all", lowest, "the lowest of the aspects", missing)]


def _aspect(name: str, measured: Metered, known: str, needs: Sequence[Need]) -> AspectLevel:
    """The highest level of which every need holds, and every need of the lower levels."""
    metered_all = f"energies measured by meters ({measured.unmetered} of {measured.n} are not)"
    all_needs = [(1, measured.unmetered == 0, metered_all), *needs]
    level = min((least - 1 for least, holds, _ in all_needs if not holds), default=max(LEVELS))
    missing = [text for least, holds, text in all_needs if not holds and least == level + 1]
    return AspectLevel(name, level, known, "; ".join(missing))


def _fraction(measured: Metered, stated: Mapping[str, Any]) -> AspectLevel:
    machine, per_supply = stated.get("compute_nodes"), stated.get("nodes_per_supply")
    nodes, power_w = measured.nodes, measured.power_w
    whole = machine is not None and nodes >= machine
    large = [
        machine is not None
        and nodes >= max(FEWEST_NODES, fraction * machine)
        and power_w >= least_w
        for fraction, least_w in zip(FRACTIONS, LEAST_W, strict=True)
    ]
    whole_supplies = whole or (per_supply is not None and nodes % per_supply == 0)
    needed = [
        f"the whole machine, or {fraction:.3g} of its compute nodes, at least {FEWEST_NODES}, and "
        f"{least_w / 1e3:g} kW, at once"
        for fraction, least_w in zip(FRACTIONS, LEAST_W, strict=True)
    ]
    return _aspect(
        "2: machine fraction",
        measured,
        f"nodes at once: {_found(nodes)}; their power: {_found(power_w, 'W')}; compute nodes: "
        f"{_stated(machine)}; nodes that share power supplies: {_stated(per_supply)}",
        [
            (1, whole_supplies, "nodes_per_supply, and all nodes that share their supplies"),
            (1, whole or large[0] or power_w >= ENOUGH_W, f"{needed[0]}, or {ENOUGH_W / 1e3:g} kW"),
            (2, whole or large[1], needed[1]),
            (3, whole, "the whole machine at once"),
        ],
    )


def _subsystems(measured: Metered, stated: Mapping[str, Any]) -> AspectLevel:
    shown = {name: stated.get(name) for name in ("interconnect", "other_subsystems")}
    network, others = shown.values()
    all_measured = all(value in ("measured", "none") for value in shown.values())
    return _aspect(
        "3: subsystems",
        measured,
        f"domains of the meters: {', '.join(sorted(measured.domains)) or 'not known'}; "
        f"interconnect: {_stated(network)}; other subsystems: {_stated(others)}",
        [
            (1, measured.domains == {WHOLE_NODE}, "meters of whole nodes (domain node)"),
            (1, network is not None, "interconnect, measured or estimated"),
            (2, others is not None, "other_subsystems, measured or estimated"),
            (3, all_measured, "every subsystem measured"),
        ],
    )


def _location(measured: Metered, conversion: str | None) -> AspectLevel:
    inside = sorted(measured.domains - {WHOLE_NODE})
    contradicted = conversion == "upstream" and bool(inside)
    known = _stated(conversion)
    if contradicted:
        known += f"; but meters of {', '.join(inside)} are behind the node's power supply"
    level = 0 if contradicted or conversion is None else CONVERSION[conversion]
    needed = (
        "manufacturer's data",
        "a measurement of one supply",
        "a measurement at the same time",
    )
    return _aspect(
        "4a: location of the meters",
        measured,
        known,
        [
            (
                least,
                level >= least,
                f"meters upstream of the power conversion, or its loss by {how}",
            )
            for least, how in zip(LEVELS, needed, strict=True)
        ],
    )


def _stated(value: Any, unit: str = "") -> str:
    if value is None:
        return "not stated"
    text = value if isinstance(value, str) else f"{value:g}"
    return f"{text} {unit}".rstrip() + " (stated)"


def _found(value: float, unit: str = "") -> str:
    return "not known" if math.isnan(value) else f"{value:.3g} {unit}".rstrip()
