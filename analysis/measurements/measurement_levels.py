"""The levels of power measurement of the EE HPC WG (2015) that a site's measurements reach.

The methodology has four aspects, some in parts, and for each three levels (its table 3.1). The core
phase of a run is here a window, the full run that of a program from its start to its end. A level
is given where all measurements reach it, by what the store has and the site file states; what
neither has counts as not reached.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.measurements.campaign_energy import node_counts
from analysis.measurements.provenance import estimated_energies
from dvfs.dataset import RECORDED_PREFIX, Columns, complete_rows, texts_of

if TYPE_CHECKING:
    import xarray as xr

LEAST_CORE_PHASE_S = 60.0
LONGEST_SAMPLE_S = 1.02
"""A second, and a sine wave of 50 Hz more (section 3.1.2)."""
FEWEST_READINGS = 10
"""In a core phase; so readings are at most a tenth of it apart."""
INTEGRATION_HZ = {True: 5000.0, False: 120.0}
"""Whether the meter is upstream of the power conversion (AC) -> how often a counter of energy must
sample at level 3."""
ACCURACY_PCT = (5.0, 2.0, 1.0)
"""Of the meter, by level."""
FEWEST_NODES = 15
FRACTIONS = (1 / 10, 1 / 8)
LEAST_W = (2e3, 10e3)
"""The nodes, the fraction of the compute nodes and the power that levels 1 and 2 ask for; all of
them, or the whole machine ..."""
ENOUGH_W = 40e3
"""... or for level 1 so much power."""
CONVERSION = {
    "loss by manufacturer": 1,
    "loss of one supply": 2,
    "loss measured": 3,
    "upstream": 3,
}
"""What the site file states of the power conversion -> the level."""
PROGRAM = "argv"
"""The parameter of the kernel that runs a program, from its start to its end, as an iteration."""
WHOLE_NODE = "node"
"""The domain that is all that a node's power supply feeds."""
LEVELS = (1, 2, 3)


@dataclass(frozen=True, kw_only=True)
class Metered:
    """How the energies of a site's complete measurements were measured.

    ``unmetered``: those of ``n`` whose energy is estimated, replayed, or of no meter that the store
    knows; all else is of the others, and of all of them the least favourable. ``window_s``: the
    length of a window, s. ``reading_s``: the time between two readings, s, NaN where it is not
    known for one. ``counters``: whether all channels that count are counters of energy.
    ``domains``: those of these channels. ``idle``: whether idle power was measured with each.
    ``whole_programs``: whether each window is a program's run, from its start to its end.
    ``nodes``: how many were measured at once, NaN where one names no node. ``power_w``: mean power.
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
    """The level that an aspect, or a part of one, reaches; 0: none. ``known``: what is known;
    ``missing``: what the next level needs; both for people."""

    aspect: str
    level: int
    known: str
    missing: str


Need = tuple[int, bool, str]
"""The lowest level that needs it, whether it is there, and what it is."""


def metered(dataset: xr.Dataset | Columns, site: str) -> Metered | None:
    """How a site was measured; None where it has no complete measurement, or is simulated.
    ``dataset``: a store's."""
    if "site" not in dataset:
        return None
    rows = np.flatnonzero(complete_rows(dataset, site))
    if not len(rows) or np.asarray(dataset["simulated"])[rows].any():
        return None
    meters, params, node = (texts_of(dataset, name)[rows] for name in ("meters", "params", "node"))
    counting = [_counting_channels(text) for text in meters.values]
    time_s, energy_j, iterations = (
        np.asarray(dataset[name])[rows].astype(float)
        for name in ("time_s", "energy_j", "iterations")
    )
    is_counted = meters.array(bool, [bool(channels) for channels in counting])
    kept = np.flatnonzero(is_counted & (energy_j > 0) & (estimated_energies(dataset, rows) == ""))
    if not len(kept):
        return Metered(n=len(rows), unmetered=len(rows))
    texts = np.asarray(dataset["provenance"])[rows[kept]].tolist()
    known = [json.loads(text or "{}") for text in texts]
    of_row = [counting[i] for i in meters[kept].codes.tolist()]
    channels = [channel for i in np.unique(meters[kept].codes) for channel in counting[i].values()]
    windows = np.array([record.get("protocol", {}).get("windows", 1) for record in known])
    return Metered(
        n=len(rows),
        unmetered=len(rows) - len(kept),
        window_s=float(np.min(time_s[kept] * iterations[kept] / windows)),
        reading_s=float(
            np.max(
                [
                    _reading_s(name, channel, record.get("sampling", {}))
                    for channels_of_row, record in zip(of_row, known, strict=True)
                    for name, channel in channels_of_row.items()
                ]
            )
        ),
        counters=all(channel.get("kind") == "energy" for channel in channels),
        domains=frozenset(str(channel.get("domain") or "unknown") for channel in channels),
        idle=all("idle_w" in record.get("protocol", {}) for record in known),
        whole_programs=all(PROGRAM in json.loads(text) for text in params[kept].present()),
        nodes=float(np.min(node_counts(node[kept]))),
        power_w=float(np.min(energy_j[kept] / time_s[kept])),
    )


def _counting_channels(meters: str) -> dict[str, Any]:
    """The channels that count toward the energy, without those replayed from a recording."""
    return {
        name: channel
        for name, channel in json.loads(meters or "{}").items()
        if channel.get("counts") and RECORDED_PREFIX not in name
    }


def _reading_s(name: str, channel: Mapping[str, Any], sampling: Mapping[str, Any]) -> float:
    """The time between two readings of a channel: its update's, or the sampler's where that is
    longer; NaN where one is not known. ``name``: METER:CHANNEL, on several nodes NODE/METER:..."""
    meter = name.partition(":")[0].rpartition("/")[2]
    update_s, read_s = channel.get("period_s"), sampling.get(meter, {}).get("period_s")
    return max(update_s, read_s) if update_s and read_s else math.nan


def levels(measured: Metered, stated: Mapping[str, Any]) -> list[AspectLevel]:
    """The level of each aspect, and at last that of all. ``stated``: the table ``metering`` of the
    site file, without keys that are not stated, or with None for them."""
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
    """The highest level of which nothing is missing, nor of a lower one."""
    metered_all = f"energies measured by meters ({measured.unmetered} of {measured.n} are not)"
    every = [(1, measured.unmetered == 0, metered_all), *needs]
    level = min((least - 1 for least, there, _ in every if not there), default=max(LEVELS))
    missing = [what for least, there, what in every if not there and least == level + 1]
    return AspectLevel(name, level, known, "; ".join(missing))


def _fraction(measured: Metered, stated: Mapping[str, Any]) -> AspectLevel:
    machine, together = stated.get("compute_nodes"), stated.get("nodes_per_supply")
    nodes, power_w = measured.nodes, measured.power_w
    whole = machine is not None and nodes >= machine
    large = [
        machine is not None
        and nodes >= max(FEWEST_NODES, fraction * machine)
        and power_w >= least_w
        for fraction, least_w in zip(FRACTIONS, LEAST_W, strict=True)
    ]
    supplies = whole or (together is not None and nodes % together == 0)
    asked = [
        f"the whole machine, or {fraction:.3g} of its compute nodes, at least {FEWEST_NODES}, and "
        f"{least_w / 1e3:g} kW, at once"
        for fraction, least_w in zip(FRACTIONS, LEAST_W, strict=True)
    ]
    return _aspect(
        "2: machine fraction",
        measured,
        f"nodes at once: {_found(nodes)}; their power: {_found(power_w, 'W')}; compute nodes: "
        f"{_stated(machine)}; nodes that share power supplies: {_stated(together)}",
        [
            (1, supplies, "nodes_per_supply, and all nodes that share their supplies"),
            (1, whole or large[0] or power_w >= ENOUGH_W, f"{asked[0]}, or {ENOUGH_W / 1e3:g} kW"),
            (2, whole or large[1], asked[1]),
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
