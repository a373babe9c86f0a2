"""What fits, picks, rooflines, comparisons and searches give on small made measurements.

The tests beside say why each number is right, against closed forms, brute force and papers. Here
every number of a whole result stays what it is until someone means to change it, where the
measurements determine it. Coefficients that they do not separate, with their covariances, are not
kept: sums of them are.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

from analysis.choice.candidates import all_candidates, profile_candidates
from analysis.choice.crossval import cross_validate, fitted_elsewhere, leave_one_site_out
from analysis.choice.few_crossval import few_cross_validate
from analysis.choice.fronts import pareto_front
from analysis.choice.objectives import OBJECTIVES, objective
from analysis.choice.pick import pick, picks
from analysis.choice.variants import correlation
from analysis.comparison.changes import Change
from analysis.costs.codesign import (
    Energies,
    StencilWork,
    best_tiles,
    by_weight,
    designs_of,
    scores,
    totals,
)
from analysis.costs.linear_cost import LEAST_ABSOLUTE, LEAST_SQUARES, at_clocks, fit_linear_cost
from analysis.costs.stencil_time import Constants, overhead_s, stencil_time, tile_bytes
from analysis.costs.tile_energy import NEEDED, stencil_energy_j
from analysis.energy.applications import application_energies
from analysis.energy.breakdown import class_parts, kind_parts
from analysis.energy.fit import fit
from analysis.energy.fitted import Fit, costs_at
from analysis.measurements.observations import Observations, observations
from analysis.measurements.provenance import shown_by_timing
from analysis.rooflines.at_setting import line_as_dict, rooflines_at
from analysis.rooflines.greenup import bounds, case, greenup, speedup, work_advice, work_limits
from analysis.rooflines.platforms import PLATFORMS, platform_rooflines, platform_summaries
from analysis.rooflines.power_cap import CappedRoofline
from analysis.rooflines.regression import cache_energies, modelled_energy_j, regress
from analysis.rooflines.roofline import roof_fractions, verdict
from analysis.search.candidates import Measured
from analysis.search.play import play
from analysis.search.strategies import STRATEGIES, next_batch
from dvfs.setting import Setting
from tests.analysis.compared_data import Campaigns, changes_of
from tests.analysis.platforms import FERMI, from_peaks
from tests.analysis.platforms import PLATFORMS as PRINTED
from tests.analysis.simulated_tk1 import simulated_columns
from tests.analysis.synthetic import grid_observations, numbered
from tests.analysis.test_applications import machine
from tests.analysis.test_few_crossval import measured, two_kinds, without
from tests.analysis.test_search import TILES, tile_cost, tiled_sum
from tests.analysis.test_stencil_costs import machine_of
from tests.frames import as_columns
from tests.kept import check_kept

CORE = (400.0, 520.0, 640.0, 760.0, 880.0, 1000.0)
GOALS = (*OBJECTIVES, "weighted:0.3")
EXTRA = {
    Setting(1100.0, 900.0): (1.05, 1.0),
    Setting(700.0, 500.0): (0.87, 0.9),
    Setting(300.0, 900.0): (0.8, 1.0),
}
"""Legal settings that were not measured, and their voltages. With two memory clocks, a memory's
power at a third is not determined."""


@cache
def board() -> Observations:
    """Six kernels at twelve settings, some of them twice, with noise of rows and settings."""
    data = grid_observations(5, 6, repeats=2, noise=0.03, core_mhz=CORE, setting_noise=0.01)
    return data.take(np.arange(len(data)) % 5 != 3)


@cache
def unknown_volts() -> Observations:
    """Eight kernels without known voltages, of which some have no counts."""
    return grid_observations(8, 8, 0.75, noise=0.01, core_mhz=CORE, known_voltage=False)


@cache
def on_nodes() -> Observations:
    """Three nodes, and uncertainties of their own for most rows."""
    data = grid_observations(2, 6, repeats=3, noise=0.02)
    node = np.array(["n1", "n2", "n3"], object)[np.arange(len(data)) % 3]
    gain = np.array([1.0, 1.02, 0.97])[np.arange(len(data)) % 3]
    std = np.where(np.arange(len(data)) % 7 == 0, np.nan, 0.01 + 0.02 * (np.arange(len(data)) % 4))
    energy_j = data.energy_j * gain
    return replace(data, node=node, energy_j=energy_j, energy_std_j=std * energy_j)


@cache
def jetson() -> Observations:
    return observations(simulated_columns("default", per_family=2), "tk1")


@cache
def fitted(name: str) -> Fit:
    return {
        "board": lambda: fit(board()),
        "choi": lambda: fit(board(), "choi", "known"),
        "robust": lambda: fit(with_outliers(), "choi+clock", "known", robust=True),
        "unknown": lambda: fit(unknown_volts()),
        "floor": lambda: fit(unknown_volts(), "choi", "floor"),
        "nodes": lambda: fit(on_nodes(), "choi"),
        "jetson": lambda: fit(jetson(), "choi"),
    }[name]()


def with_outliers() -> Observations:
    data = board()
    energy_j = data.energy_j * np.where(np.arange(len(data)) % 23 == 5, 1.4, 1.0)
    return replace(data, energy_j=energy_j)


def kept_fit(name: str, data: Observations) -> dict[str, object]:
    """The form of a fit, what it says of the measurements, and what it predicts."""
    one = fitted(name)
    return {
        "form": [one.model, one.voltage, [term.name for term in one.terms]],
        "dropped": one.dropped,
        "confounded": one.confounded,
        "outliers": one.outliers,
        "tried": one.tried,
        "energy_j": one.energy_j(data),
        "costs": [costs_at(one, setting, *volts) for setting, volts in EXTRA.items()],
    }


def energies(name: str, data: Observations) -> dict[str, object]:
    one = fitted(name)
    return {
        name: {"energy_j": parts.energy_j, "share": parts.share}
        for name, parts in (("class", class_parts(one, data)), ("kind", kind_parts(one, data)))
    }


def gaps(data: Observations) -> Observations:
    """The first kernel at three of the settings, and the second at all but one."""
    names = sorted(set(data.labels.tolist()))
    few = (data.labels == names[0]) & ~np.isin(data.setting, [1, 4, 6])
    return data.take(~few & ~((data.labels == names[1]) & (data.setting == 2)))


def chosen(data: Observations) -> dict[str, object]:
    """Candidates and picks, by every objective and within limits."""
    every = all_candidates(data, None, EXTRA)
    found = {goal: [pick(one, goal) for one in every.values()] for goal in GOALS}
    found["slower by 10 %"] = [pick(one, max_slowdown=0.1) for one in every.values()]
    least_w = 1.4 * float((data.energy_j / data.time_s).min())
    found["within a power"] = [pick(one, max_power_w=least_w) for one in every.values()]
    shown = {goal: of[:2] for goal, of in found.items()}
    return {"candidates": list(every.values())[:2], "picks": shown}


def validated(scheme: str, data: Observations, **more: object) -> object:
    return cross_validate(data, scheme, "choi", **more).as_dict()  # type: ignore[arg-type]


def few_trial() -> dict[str, object]:
    """A kernel at two settings among eleven at eight, and how picks for it do when tried."""
    log_s, watts = two_kinds(seed=4, noise=0.05)
    data = without(measured(log_s, watts), "kernel-3", [7, 1])
    trial = all_candidates(data, ["kernel-3"])["kernel-3"].trial
    goals = [objective(name) for name in GOALS]
    return {
        "trial": trial,
        "lost": [trial.lost_pct(goal) for goal in goals],
        "single": [trial.best_single(goal) for goal in goals],
        "picks": picks(data, ["kernel-3", "kernel-1"]),
    }


def from_counts() -> dict[str, object]:
    profile = profile_candidates(
        jetson(), "new", counts={"sp": 2e9, "int": 3e8, "dram": 5e7},
        measured_s=0.02, measured_at=Setting(852.0, 924.0),
        volts={Setting(852.0, 792.0): (1.03, 1.0)},
    )  # fmt: skip
    return {"profile": profile, "roofs": roof_fractions(jetson())}


def lines() -> dict[str, object]:
    """Printed machines: balances, bounds of speedup and greenup, caps."""
    result: dict[str, object] = {}
    shown = {key: PRINTED[key] for key in (("GTX 580", "sp"),)}
    for name, numbers in {**shown, ("Fermi", "dp"): FERMI}.items():
        line = from_peaks(*numbers)
        grid = np.geomspace(0.2, 60, 5)[:, None, None], np.array([1.0, 1.5, 4.0])[:, None], \
            np.array([1.0, 1.3, 2.0, 8.0])  # fmt: skip
        of: dict[str, object] = {
            "line": line_as_dict(line, line.power_limits_w[0] * 1.2 if line.constant_w else None),
            "verdict": verdict(line),
            "limits": [one.as_dict() for one in work_limits(line)],
            "advice": work_advice(line),
            "speedup": speedup(line, *grid),
            "greenup": greenup(line, *grid),
            "case": case(line, *grid),
            "bounds": bounds(line, *grid),
        }
        if line.constant_w:
            capped = CappedRoofline(line, line.constant_w + 0.4 * line.op_power_w)
            at = np.geomspace(0.05, 300, 12)
            names = ("speed_ops_s", "efficiency_ops_j", "power_w", "slowdown", "op_total_energy_j")
            of["capped"] = {one: getattr(capped, one)(at) for one in names}
            of["edges"] = capped.capped_intensities
        result[" ".join(name)] = of
    return result


def platforms() -> dict[str, object]:
    every = list(PLATFORMS.values())
    return {
        "summaries": platform_summaries()[:4],
        **{one.name: platform_rooflines(one, one.constant_w * 1.5) for one in every[:1]},
    }


def regressed() -> dict[str, object]:
    data = jetson()
    setting = data.settings.index(Setting(852.0, 924.0))
    found = regress(data, setting)
    caches = cache_energies(data, setting, found)
    return {
        "regression": found,
        "caches": caches,
        "modelled": modelled_energy_j(data.take(data.setting == setting), found, caches),
        "lines": rooflines_at(data, setting, fitted("jetson"), cap_w=9.0),
    }


def changes(campaigns: Campaigns, seed: int) -> list[dict[str, object]]:
    """Every third change of a pair of campaigns of which some kernels got faster."""
    factor = 1.0 - 0.02 * (np.arange(campaigns.kernels) % 3)
    found: list[Change] = changes_of(campaigns, seed, factor)
    return [one.as_dict() for one in found[::3]]


def stencils() -> dict[str, object]:
    gpu = machine_of("GTX980")
    joules = dict.fromkeys({name for names in NEEDED.values() for name in names}, 0.0)
    joules = {name: (2.0 + i) * 1e-11 for i, name in enumerate(sorted(joules))}
    sizes, tiles = np.array([4096.0, 1024.0, 96.0]), np.array([[8.0, 32.0, 4.0], [16.0, 64.0, 8.0]])
    of_time = {
        f"{form} {axes}": [
            stencil_time(gpu, 3e-8, sizes[:axes], 100, tiles[:, :axes], [8, 12], [1, 3], form),
            overhead_s(gpu, 3e-8, sizes[:axes], 100, tiles[:, :axes], [8, 12], form)
            if axes == 2 else None,
            tile_bytes(tiles[:, :axes], [8, 12]),
        ]
        for form in ("corrected", "printed")
        for axes in (1, 2, 3)
    }  # fmt: skip
    of_energy = {
        name: stencil_energy_j(name, joules, 30.0, 0.5, sizes[:2], 100, tiles[:, :2], [8, 12], 4)
        for name in NEEDED
    }
    return {"time": of_time, "energy": of_energy}


def chips() -> dict[str, object]:
    """Every design with every tile, for two stencils."""
    shape = np.array([(p, v, m) for p in (8, 16, 24) for v in (64, 128) for m in (24, 48, 96)]).T
    designs = designs_of(*shape)
    constants = Constants(seconds_per_word=2e-11, barrier_s=1e-9, launch_s=1e-6,
        block_bytes=49152.0, blocks=8)  # fmt: skip
    tiles = {name: of.ravel() for name, of in zip(
        ("tile_t", "tile_1", "tile_2"),
        np.meshgrid([4, 8, 16], [2, 8, 16], [32, 64, 96]), strict=True)}  # fmt: skip
    power = Energies(constant_w=5.0, constant_w_per_mm2=0.1, word_j=4e-10)
    result: dict[str, object] = {"designs": vars(designs)}
    for goal in ("time", "energy", "edp"):
        costs = []
        for axes, flops in ((1, 3.0), (2, 5.0)):
            work = StencilWork(
                name=f"s{axes}", axes=axes, iteration_s=3e-9, flops=flops, weight=1.0,
                sizes=np.array([512, 4096]), steps=np.array([64, 100]), often=np.array([0.3, 0.7]),
                iteration_j=2e-11,
            )  # fmt: skip
            found = best_tiles(designs, work, tiles, constants, objective=goal, energies=power)
            result[f"{goal} {axes}"] = found
            costs.append(scores(*totals(found, work), goal))
        cost = np.stack(costs, axis=1)
        result[f"{goal} chosen"] = [
            pareto_front(designs.area_mm2, cost.sum(axis=1)),
            by_weight(cost, [1.0, 2.0], 20),
        ]
    return result


def prices() -> dict[str, object]:
    rng = np.random.default_rng(7)
    columns = {name: rng.uniform(1e6, 1e9, 40) for name in ("flop", "byte", "launch")}
    columns["flop again"] = columns["flop"] * 2.0
    clocks = {
        "flop": rng.choice([600.0, 800.0, 1000.0], 40),
        "byte": rng.choice([500.0, 900.0], 40),
    }
    costs = columns["flop"] * 2e-11 + columns["byte"] * 3e-10 + columns["launch"] * 1e-12
    costs *= np.exp(0.1 * rng.standard_t(3, 40))
    two = {name: columns[name] for name in ("flop", "byte")}
    return {
        **{way: fit_linear_cost(columns, costs, way) for way in (LEAST_SQUARES, LEAST_ABSOLUTE)},
        "by clock": at_clocks(two, clocks, (-1, 0), {"flop": 1000.0, "byte": 900.0}),
        "correlation": [correlation(columns["byte"][:n], costs[:n]) for n in (3, 4, 10, 40)],
    }


def searched() -> dict[str, object]:
    cost = tile_cost(TILES)
    both = np.column_stack([cost, 1.0 / cost])
    both[::11] = np.nan
    rows = np.random.default_rng(1).choice(len(TILES), 60, replace=False)
    seen = Measured.of(dict(zip(rows.tolist(), cost[rows].tolist(), strict=True)))
    result: dict[str, object] = {}
    for name in STRATEGIES:
        result[name] = {
            "next": next_batch(name, TILES, seen, 6, 3).tolist(),
            "first": next_batch(name, TILES, Measured.of({}), 5, 3).tolist(),
            "played": play(
                TILES, both, OBJECTIVES["edp"], name, budget=40, batch=10, seed=2
            ).tolist(),
        }
    candidates, costs = tiled_sum(noise=0.02, seed=1)
    costs = np.asarray(costs)
    one = costs[:, 0] if costs.ndim > 1 else costs
    seen = Measured.of(dict(zip(range(0, len(candidates), 9), one[::9].tolist(), strict=False)))
    result["with terms"] = next_batch("model", candidates, seen, 6, 0).tolist()
    return result


def clocks_by_timing() -> dict[str, object]:
    rng = np.random.default_rng(6)
    asked = np.repeat([500.0, 800.0, 1100.0, 1400.0], 6)
    ran = asked * np.where(asked > 1200, 0.9, 1.0) * (1 + 0.004 * rng.normal(size=24))
    node = np.tile(np.array(["a", "b"], object), 12)
    ran[3] = np.nan
    return {
        f"{pct:g}": shown_by_timing(node, asked, ran, pct).tolist() for pct in (0.5, 2.0, 5.0, 12.0)
    }


def few_validated(settings: int | None, new: int | None, goal: str) -> object:
    log_s, watts = two_kinds(seed=6, kernels=8, noise=0.03)
    data = measured(log_s, watts)
    found = few_cross_validate(data, settings, new, draws=1, objective=goal)
    return {**found.as_dict(), "cases": found.cases[::5]}


def elsewhere() -> object:
    other = grid_observations(9, 5, noise=0.02)
    other = replace(other, **numbered(f"other {k}" for k in other.labels))
    return fitted_elsewhere(on_nodes(), other, "choi").as_dict()


def by_site() -> object:
    sites = [
        replace(grid_observations(seed, 5, noise=0.02), site=name)
        for seed, name in ((1, "a"), (2, "b"), (3, "c"))
    ]
    return leave_one_site_out(sites, "choi").as_dict()


def as_observations() -> object:
    """A table with what a store may lack: counts, clocks, voltages, repeats."""
    frame = pd.DataFrame(dict(simulated_columns("off", per_family=2)))
    frame = frame[frame["core_mhz"] > 500].reset_index(drop=True)
    frame.loc[frame["kernel"] == "sp-1", [c for c in frame if c.startswith("n_")]] = np.nan
    frame.loc[4, "status"] = "timed out"
    frame.loc[5, "energy_j"] = np.nan
    frame["params"] = [json.dumps({"i": i % 2}) for i in range(len(frame))]
    return observations(as_columns(frame), "tk1")


RESULTS: dict[str, Callable[[], object]] = {
    **{f"fit: {name}": lambda name=name, data=data: kept_fit(name, data())
       for name, data in (("board", board), ("choi", board), ("robust", board),
                          ("unknown", unknown_volts), ("floor", unknown_volts),
                          ("nodes", on_nodes))},
    "energies: board": lambda: energies("board", board()),
    "energies: unknown voltages": lambda: energies("unknown", unknown_volts()),
    "applications": lambda: application_energies(machine(), "choi", "unit"),
    "picks: board": lambda: chosen(gaps(board())),
    "picks: unknown voltages": lambda: chosen(gaps(unknown_volts())),
    "validation: settings": lambda: validated("leave-one-setting-out", board()),
    "validation: predicted times": lambda: validated(
        "leave-one-setting-out", board(), time="predicted", objective="edp"),
    "validation: kernels": lambda: validated("leave-one-kernel-out", board()),
    "validation: core clocks": lambda: validated("leave-one-core-clock-out", board()),
    "validation: memory clocks": lambda: validated("leave-one-memory-clock-out", board()),
    "validation: nodes": lambda: validated("leave-one-node-out", on_nodes()),
    "validation: half": lambda: validated("holdout", board()),
    "validation: profiles": lambda: validated("leave-one-kernel-out", jetson(), time="profile"),
    "validation: sites": by_site,
    "validation: elsewhere": elsewhere,
    "validation: few": lambda: few_validated(3, None, "energy"),
    "validation: new": lambda: few_validated(None, 2, "edp"),
    "picks: few": few_trial,
    "picks: from counts": from_counts,
    "rooflines": lines,
    "rooflines: platforms": platforms,
    "rooflines: regression": regressed,
    "changes": lambda: changes(Campaigns(kernels=6, settings=3), 4),
    "changes: nodes apart": lambda: changes(
        Campaigns(kernels=5, settings=3, repeats=2, nodes=((0, 1, 2), (1, 3))), 9),
    "stencils": stencils,
    "chips": chips,
    "prices": prices,
    "searches": searched,
    "clocks by timing": clocks_by_timing,
    "observations": as_observations,
}  # fmt: skip


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_stays_what_it_is(name):
    """A new version gives the same numbers for the same measurements, to six digits."""
    check_kept("results", name, RESULTS[name]())
