"""Drift: the plan's random order keeps a node's warming out of the coefficients; a sweep does not.

Two simulated nodes warm up for about an hour, each on its own course and with a small gain of
its own, while they take a campaign's points from one queue. What is measured is the same in both
orders: the plan's own, blocks by repeat in a seeded random order, and a sweep from low settings to
high ones. The truth are the site file's dynamic energies, and its leakage at the campaign's mean
temperature.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.energy.fit import fit
from analysis.energy.fitted import Fit, costs_at
from analysis.measurements.observations import Observations, observations
from campaign.plan.plan import Plan, make_plan
from campaign.plan.point import Point
from dvfs.setting import Setting
from kernels.registry import find_kernel
from sites.simulated.machine import constant_w, iteration_s, run
from sites.site_file import Site
from tests.analysis.simulated_tk1 import TABLE_I, simulated_tk1
from tests.analysis.warming import Warming, leakage_gain, temperature_c
from tests.frames import as_columns

NODES = {"simulated-1": Warming(35.0, 20.0, 900.0), "simulated-2": Warming(40.0, 12.0, 1500.0)}
"""Node -> how it warms up: 20 % and 12 % more leakage in the end."""
NODE_GAIN = {"simulated-1": 1.01, "simulated-2": 0.99}
"""Node -> what all that its meter shows is multiplied with; 1 on the mean of the nodes."""
BETWEEN_S = 2.5
"""From one window to the next on a node: a process, its clocks, its warm-up."""
METER_HZ = 16.0
"""Slower than the site's own, for time: a window's energy is its mean power all the same."""
SITE = "jetson-tk1"
CONSTANT = "constant power "
RANDOMISED, ORDERED = "randomised", "ordered"

CAMPAIGN = f"""
name = "an-hour"
seed = {{seed}}
repeats = 3
protocol = {{{{ min_duration_s = 5.0 }}}}
settings = {{{{ choose = "pairs", pairs = {[list(pair) for pair in TABLE_I]} }}}}
[[sites]]
site = "{SITE}"
[[kernels]]
kernel = "sp_fma"
label = "single"
params = {{{{ level = "dram", ops_per_word = [2, 8, 32, 128] }}}}
[[kernels]]
kernel = "dp_fma"
label = "double"
params = {{{{ level = "dram", ops_per_word = [1, 4, 16, 64] }}}}
[[kernels]]
kernel = "int_mad"
label = "integer"
params = {{{{ level = "dram", ops_per_word = [2, 8, 32, 128] }}}}
[[kernels]]
kernel = "sp_fma"
label = "shared"
params = {{{{ level = "l1", ops_per_word = [1, 4, 16, 64] }}}}
[[kernels]]
kernel = "sp_fma"
label = "l2"
params = {{{{ level = "l2", ops_per_word = [1, 4, 16, 64] }}}}
"""


@dataclass(frozen=True)
class Drifting:
    """A simulated campaign: its rows, its truth and how long it took.

    ``truth``: coefficient -> value in the fit's units; ``leakage_gain``: at the mean temperature
    of the campaign.
    """

    data: Observations
    truth: dict[str, float]
    leakage_gain: float
    took_s: float


def plan_of(folder: Path, seed: int) -> Plan:
    """The plan that ``campaign plan`` makes of the campaign file with this seed."""
    path = folder / f"drift-{seed}.toml"
    path.write_text(CAMPAIGN.format(seed=seed), encoding="utf-8")
    return make_plan(path)


def sweep(points: Sequence[Point]) -> list[Point]:
    """The same points as an ordered sweep: settings from low to high, each one's kernels in turn,
    a kernel's repeats one after the other."""

    def place(point: Point) -> tuple[float, float, str, str, int]:
        core_mhz, mem_mhz = point.setting.core_mhz, point.setting.mem_mhz
        assert core_mhz is not None and mem_mhz is not None
        return core_mhz, mem_mhz, point.label, point.params, point.repeat

    return sorted(points, key=place)


def simulate(points: Sequence[Point], min_duration_s: float, seed: int) -> Drifting:
    """Measure points in this order: each node takes the next one when it is free."""
    site = simulated_tk1("default")
    assert site.simulated is not None
    # What the runs of a setting share is drawn by the site's name: another campaign, another one.
    site = site.model_copy(
        update={
            "name": f"{site.name}-{seed}",
            "simulated": site.simulated.model_copy(update={"meter_hz": METER_HZ}),
        }
    )
    assert site.simulated is not None
    counts = {(p.kernel, p.params): site_counts(site, p) for p in points}
    free = [(0.0, node) for node in NODES]
    rows, gains = [], []
    for point in points:
        begins_s, node = heapq.heappop(free)
        mine = counts[point.kernel, point.params]
        iterations = max(1, round(min_duration_s / iteration_s(site, mine, point.setting)))
        middle_s = begins_s + BETWEEN_S + min_duration_s / 2
        gains.append(leakage_gain(NODES[node], middle_s))
        window = run(
            site, mine, point.setting, iterations, f"{seed} {point.id}", leakage_gain=gains[-1]
        )
        energy_j = np.trapezoid(window.power_w, window.time_ns / 1e9) * NODE_GAIN[node]
        rows.append(row(site, point, node, mine, iterations, window.duration_s, energy_j))
        heapq.heappush(free, (begins_s + BETWEEN_S + window.duration_s, node))
    mean = float(np.mean(gains))
    truth = {f"c0_{name}": pj for name, pj in site.simulated.energy_pj_per_v2.items()}
    truth["c1_core"] = site.simulated.leakage_core_w_per_v * mean
    truth["c1_mem"] = site.simulated.leakage_mem_w_per_v * mean
    truth["p_misc"] = site.simulated.misc_w
    for pair in TABLE_I:
        setting = Setting(*map(float, pair))
        truth[constant_name(setting)] = constant_w(site, setting, mean)
    data = observations(as_columns(pd.DataFrame(rows)), SITE)
    return Drifting(data, truth, mean, max(at_s for at_s, _ in free))


def site_counts(site: Site, point: Point) -> dict[str, float]:
    """The site's classes -> operations of one iteration of a point's kernel."""
    kernel = find_kernel(point.kernel)
    counts: dict[str, float] = defaultdict(float)
    for name, n in (kernel.counts(kernel.params.model_validate_json(point.params)) or {}).items():
        counts[site.class_of(name)] += n
    return dict(counts)


def row(
    site: Site,
    point: Point,
    node: str,
    counts: dict[str, float],
    iterations: int,
    duration_s: float,
    energy_j: float,
) -> dict[str, object]:
    """A row of the measurements table."""
    core_v, mem_v = site.volts(point.setting)
    return {
        "point_id": point.id,
        "site": SITE,
        "kernel": point.label,
        "params": point.params,
        "status": "ok",
        "core_mhz": point.setting.core_mhz,
        "mem_mhz": point.setting.mem_mhz,
        "core_v": core_v,
        "mem_v": mem_v,
        "voltage_origin": "table",
        "simulated": True,
        "time_s": duration_s / iterations,
        "energy_j": energy_j / iterations,
        "repeat": point.repeat,
        "node": node,
    } | {f"n_{name}": n for name, n in counts.items()}


def constant_name(setting: Setting) -> str:
    """What the constant power at a setting is called among the truths."""
    return f"{CONSTANT}{setting.core_mhz:g}/{setting.mem_mhz:g}"


def intervals(fitted: Fit, data: Observations) -> dict[str, tuple[float, float, float]]:
    """(value, low, high) of each coefficient, and of the constant power at each setting."""
    interval_of = {
        term.name: (float(fitted.value[i]), float(fitted.low[i]), float(fitted.high[i]))
        for i, term in enumerate(fitted.terms)
    }
    for s, setting in enumerate(data.settings):
        first = int(np.flatnonzero(data.setting == s)[0])
        volts = float(data.core_v[first]), float(data.mem_v[first])
        interval_of[constant_name(setting)] = costs_at(fitted, setting, *volts).constant_w
    return interval_of


@dataclass(frozen=True)
class Judged:
    """A coefficient of a campaign: whether its interval holds the truth, and its value.

    ``value``, ``truth``: in the coefficient's unit.
    """

    holds: bool
    value: float
    truth: float


def judge(folder: Path, seeds: Sequence[int]) -> dict[str, dict[str, list[Judged]]]:
    """Order -> coefficient -> a verdict a seed; both orders fitted as ``campaign fit`` does."""
    by_order: dict[str, dict[str, list[Judged]]] = {RANDOMISED: {}, ORDERED: {}}
    for seed in seeds:
        plan = plan_of(folder, seed)
        orders = {RANDOMISED: plan.points, ORDERED: sweep(plan.points)}
        for order, points in orders.items():
            drifting = simulate(points, plan.campaign.protocol.min_duration_s, seed)
            for name, (value, low, high) in intervals(fit(drifting.data), drifting.data).items():
                true = drifting.truth.get(name, 0.0)
                verdict = Judged(low <= true <= high, value, true)
                by_order[order].setdefault(name, []).append(verdict)
    return by_order


SEEDS = 20
Verdicts = dict[str, list[Judged]]


def is_constant_power(name: str) -> bool:
    """Whether a name among the truths is that of a setting's constant power."""
    return name.startswith(CONSTANT)


def share_held(verdicts: Verdicts, names: Sequence[str]) -> float:
    """The share of the named coefficients, over all seeds, whose interval holds the truth."""
    return float(np.mean([verdict.holds for name in names for verdict in verdicts.get(name, [])]))


def bias_pct(verdicts: Sequence[Judged]) -> float:
    """The mean error of a coefficient over the seeds, % of the truth; NaN where that is 0."""
    if not all(verdict.truth for verdict in verdicts):
        return float("nan")
    return float(np.mean([verdict.value / verdict.truth - 1.0 for verdict in verdicts]) * 100.0)


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdicts]:
    return judge(tmp_path_factory.mktemp("drift"), range(SEEDS))


def test_in_the_plans_order_intervals_hold_the_coefficients(verdicts: dict[str, Verdicts]) -> None:
    """In 95 % of cases, within what 20 seeds can tell."""
    names = [name for name in verdicts[RANDOMISED] if not is_constant_power(name)]
    assert 0.92 <= share_held(verdicts[RANDOMISED], names) <= 0.99


def test_in_a_sweep_drift_is_taken_for_frequency(verdicts: dict[str, Verdicts]) -> None:
    """The coefficients are missed four times as often; leakage suffers most."""
    names = sorted({name for by_name in verdicts.values() for name in by_name})
    names = [name for name in names if not is_constant_power(name)]
    assert share_held(verdicts[ORDERED], names) < 0.85
    assert share_held(verdicts[ORDERED], ["c1_core"]) < 0.7
    assert abs(bias_pct(verdicts[RANDOMISED]["c1_core"])) < 20
    assert bias_pct(verdicts[ORDERED]["c1_core"]) < -50


def test_a_sweep_tilts_the_constant_power(verdicts: dict[str, Verdicts]) -> None:
    """Cold settings are measured first and come out too low, warm ones too high.

    In the plan's order there is no tilt. It is some 1 % low everywhere, so that its intervals hold
    it in 89 % of cases and not in 95 % (benchmarks/drift.py). That is the fit's own: rows are
    weighted by the energies that were measured, so that a row that drifted down counts for more
    than one that drifted up.
    """
    first, last = constant_name(Setting(*min(TABLE_I))), constant_name(Setting(*max(TABLE_I)))
    tilt_pct = {
        order: bias_pct(by_name[last]) - bias_pct(by_name[first])
        for order, by_name in verdicts.items()
    }
    assert tilt_pct[ORDERED] > 8
    assert abs(tilt_pct[RANDOMISED]) < 3
    constants = [constant_name(Setting(*pair)) for pair in TABLE_I]
    assert max(abs(bias_pct(verdicts[RANDOMISED][name])) for name in constants) < 3
    held = {order: share_held(by_name, constants) for order, by_name in verdicts.items()}
    assert held[RANDOMISED] > held[ORDERED] + 0.1


def test_both_orders_measure_the_same_for_an_hour_on_two_nodes(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, 3)
    in_plan, swept = (simulate(points, 5.0, 3) for points in (plan.points, sweep(plan.points)))
    assert sorted(p.id for p in plan.points) == sorted(p.id for p in sweep(plan.points))
    for campaign in (in_plan, swept):
        assert campaign.took_s == pytest.approx(3600, rel=0.02)
        _, rows = np.unique(campaign.data.node.astype(str), return_counts=True)
        assert rows == pytest.approx(len(plan.points) / 2, rel=0.01)
    assert in_plan.leakage_gain == pytest.approx(swept.leakage_gain, rel=1e-3)


def test_each_repeat_is_a_block_and_each_setting_in_all_of_it(tmp_path: Path) -> None:
    """What the order rests on: a setting's rows stand in the middle of the campaign on average."""
    points = plan_of(tmp_path, 3).points
    assert [p.repeat for p in points] == sorted(p.repeat for p in points)
    where: dict[Setting, list[float]] = defaultdict(list)
    for i, point in enumerate(points):
        where[point.setting].append(i / (len(points) - 1))
    assert max(abs(float(np.mean(positions)) - 0.5) for positions in where.values()) < 0.12
    for end in (sweep(points)[:60], sweep(points)[-60:]):
        assert len({p.setting for p in end}) == 1


def test_a_node_warms_up_towards_a_steady_state() -> None:
    """Against the differential equation dT/dt = (T_end - T) / tau, and its limits."""
    warming = Warming(30.0, 40.0, 600.0, 0.01)
    assert temperature_c(warming, 0.0) == 30.0
    assert temperature_c(warming, 1e6) == pytest.approx(70.0)
    for at_s in (1.0, 300.0, 2000.0):
        slope = (temperature_c(warming, at_s + 1e-3) - temperature_c(warming, at_s)) / 1e-3
        assert slope == pytest.approx((70.0 - temperature_c(warming, at_s)) / 600.0, rel=1e-4)
    assert leakage_gain(warming, 0.0) == 1.0
    assert leakage_gain(warming, 1e6) == pytest.approx(1.4)
    with pytest.raises(ValueError, match="must not be negative"):
        temperature_c(warming, -1.0)
    with pytest.raises(ValueError, match="above 0 s"):
        leakage_gain(Warming(30.0, 40.0, 0.0), 1.0)


@pytest.mark.parametrize("phased", [False, True])
def test_a_gain_of_leakage_adds_just_that(phased: bool) -> None:
    """Nothing changes at a gain of 1; else the mean power rises by what leaks more."""
    site = simulated_tk1("off")
    counts = {"sp": 1e9, "dram": 1e8}
    phases = {"near": {"sp": 1e9}, "far": {"dram": 1e8}} if phased else {}
    setting = Setting(852.0, 924.0)
    plain, one, warm = (
        run(site, counts, setting, 50, "a", phases, **gain)
        for gain in ({}, {"leakage_gain": 1.0}, {"leakage_gain": 1.25})
    )
    np.testing.assert_array_equal(plain.power_w, one.power_w)
    np.testing.assert_array_equal(plain.time_ns, warm.time_ns)
    more_w = constant_w(site, setting, 1.25) - constant_w(site, setting)
    assert more_w == pytest.approx(0.25 * constant_w(site, setting))  # its P_misc is 0
    np.testing.assert_allclose(warm.power_w - plain.power_w, more_w, rtol=1e-6)
