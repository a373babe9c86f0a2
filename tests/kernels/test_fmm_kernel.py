"""The fast multipole method as a kernel: counts, result checks, and Table IV as a campaign."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from analysis.measurements.observations import FitError
from analysis.measurements.phase_energy import phase_energy
from campaign.measure.energy import node_energy
from campaign.measure.point_life import PartitionSetup, measure
from campaign.measure.simulated_window import simulate_window
from campaign.measure.window import phase_traces
from campaign.plan.plan import make_plan
from campaign.store.tables import read_traces
from dvfs.dataset import CLASS_UNITS
from dvfs.input_files import FileError
from dvfs.setting import Setting
from kernels.fmm.constants import BOTH_WAYS, ITSELF, ONE_WAY, PHASES
from kernels.fmm.counts.by_phase import evaluation_counts, phase_counts, total_counts
from kernels.fmm.counts.loops import Sizes
from kernels.fmm.counts.machine import MachineModel, host_machine
from kernels.fmm.counts.work import Work, planned_work, solution_ranks, work_of
from kernels.fmm.distributions import DISTRIBUTIONS, points
from kernels.fmm.interface import prepare
from kernels.fmm.kernel import CHECKED, FmmParams, count_evaluation, direct_sums, fmm
from kernels.fmm.phases import pair_loops, v_m2l
from kernels.host.ranks import Team
from kernels.host.vectors import estimate_bits, lanes_of
from kernels.kernel import Mark, Marked, ResultError
from sites.simulated.machine import constant_w, iteration_s, phases_s
from sites.site_reading import find_site, read_site
from tests.frames import trace_columns
from tests.stores import stored

TABLE_IV = Path(__file__).parents[2] / "examples/tk1-fmm.toml"
N = 700


def small_work(distribution: str, q: int = 8, threads: int = 1, n: int = N) -> Work:
    places, _ = points(distribution, n, 1)
    return planned_work(places, q, 4, 32, 1, threads)


# Counts


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("distribution", ["uniform", "plummer", "line"])
def test_every_pair_of_points_is_taken_exactly_once(distribution: str, threads: int) -> None:
    """Directly, or through one pair of V, W or X: counted pair by pair."""
    work = small_work(distribution, threads=threads)
    tree, n = work.tree, N
    taken = np.zeros((n, n), int)  # (target, source)

    def nodes(node: int) -> slice:
        return slice(tree.begin[node], tree.end[node])

    for target, source, what in work.near.tolist():
        taken[nodes(target), nodes(source)] += 1
        if what == BOTH_WAYS:
            taken[nodes(source), nodes(target)] += 1
        assert (target == source) == (what == ITSELF)
    for leaf, node in work.w_pairs.tolist():
        taken[nodes(leaf), nodes(node)] += 1
    for leaf, node in work.x_pairs.tolist():
        taken[nodes(node), nodes(leaf)] += 1
    for pairs in work.v_list.pairs:
        for source, target in pairs.T.tolist():
            if source == len(work.v_list):
                continue  # fills a group
            for b in work.v_list.children[source]:
                for a in work.v_list.children[target]:
                    apart = np.abs(tree.anchor[a] - tree.anchor[b]).max() > 1
                    if a >= 0 and b >= 0 and apart:
                        taken[nodes(a), nodes(b)] += 1
    assert (taken == 1).all()
    assert threads > 1 or not (work.near[:, 2] == ONE_WAY).any()


def test_flops_of_u_are_those_of_its_pairs() -> None:
    """Vectors of one number are never padded: the flops follow from the pairs alone."""
    work = small_work("uniform")
    tree = work.tree
    scalar = MachineModel(vector_bytes=4, registers=16)
    flops = phase_counts(work, scalar)["u"]["sp"]
    size = tree.end - tree.begin
    target, source, what = work.near.T
    ns, nt = size[source], size[target]
    value = 1 + 4  # the estimate and one Newton step, its half left out
    both = what == BOTH_WAYS
    expected = (ns * nt)[both].sum() * (8 + value + 4) + nt[both].sum()
    one = ns[what == ITSELF]
    expected += one.sum() * (8 + value + 3)
    expected += (one * (one - 1) // 2).sum() * (8 + value + 4) + (one - 1).sum()
    expected += (nt + np.where(both, ns, 0)).sum()
    assert flops == expected


def test_the_counts_assume_the_blocks_of_the_compiled_loops() -> None:
    sizes = Sizes(small_work("uniform"), host_machine())
    assert sizes.tile == pair_loops.TILE
    assert sizes.block == pair_loops.BLOCK
    assert sizes.group == v_m2l.GROUP
    assert sizes.lanes == lanes_of(sizes.size)


def test_flops_of_surfaces_and_products_by_hand() -> None:
    """A tree of one level of V: 64 cells, a surface of 56 points, order 4."""
    grid = (np.indices((4, 4, 4)).reshape(3, -1).T + 0.5) / 4
    places = np.concatenate([grid, [[0, 0, 0], [1, 1, 1]]])
    work = planned_work(places, 2, 4, 64, 2, 1)
    assert np.diff(work.tree.levels).tolist()[:3] == [1, 8, 64]
    counts = phase_counts(work, MachineModel(vector_bytes=8))
    n, rank = 56, solution_ranks(4, 64)[0]
    to_points = 66 * n * (8 + 1 + 5 + 4 + 2)
    solve = 2 * 2 * 64 * n * rank
    rows = 73
    assert counts["up"]["dp"] == to_points + solve + rows * n + rows
    assert counts["down"]["dp"] == to_points + solve
    pairs = work.v_list.pairs[0].shape[1]
    assert pairs >= 56, "each of 8 parents has 7 colleagues"
    assert counts["v"]["dp"] > 8 * 64 * pairs * 7 * 7 * 4
    assert "dp" not in counts["x"]


@pytest.mark.parametrize(
    ("distribution", "precision", "digits"),
    [*((distribution, "single", 3) for distribution in DISTRIBUTIONS), ("plummer", "double", 6)],
)
def test_counts_need_no_evaluation(distribution: str, precision: Any, digits: int) -> None:
    """Planned counts equal those of the method prepared afterwards, on any AVX-512 host."""
    planned = evaluation_counts(2000, 40, digits, precision, distribution, 1)
    places, _ = points(distribution, 2000, 0)
    method = prepare(places, digits=digits, precision=precision, q=40, threads=1)
    work = replace(work_of(method), coincident=distribution == "equal")
    if estimate_bits(32) == estimate_bits(64) == 14:  # as many Newton steps
        assert phase_counts(work) == planned
    assert tuple(planned) == PHASES
    total = total_counts(planned)
    assert set(total) <= set(CLASS_UNITS)
    assert all(value >= 0 for value in total.values())
    kind = "sp" if precision == "single" else "dp"
    assert planned["u"][kind] > 0


def test_bytes_follow_the_caches() -> None:
    """Every byte is counted once: the total is constant, the level depends on the caches."""
    work = small_work("uniform", q=60, n=4000)
    totals = []
    for caches in ((("l1", 1 << 10),), (("l1", 32 << 10), ("l2", 1 << 20)), (("l1", 1 << 40),)):
        total = total_counts(phase_counts(work, MachineModel(caches=caches)))
        totals.append(sum(total.get(name, 0.0) for name in ("l1", "l2", "dram")))
        assert total.get("dram", 0.0) > 0 or caches[0][1] == 1 << 40
    assert totals == pytest.approx([totals[0]] * 3, rel=1e-12)


def test_the_v_phase_moves_more_bytes_a_flop_than_the_u_phase() -> None:
    """Choi & Vuduc 2016, section III: U is bound by computation, V by memory."""
    counts = evaluation_counts(65_536, 128, 6, "double", "uniform", 1)
    u, v = (counts[phase]["dp"] / counts[phase]["dram"] for phase in "uv")
    assert u > 10 * v


def test_larger_leaves_move_work_from_v_to_u() -> None:
    small, large = (evaluation_counts(20_000, q, 6, "double", "uniform", 1) for q in (50, 400))
    assert large["u"]["dp"] > small["u"]["dp"]
    assert large["v"]["dp"] < small["v"]["dp"]


def test_counting_is_pure() -> None:
    assert fmm.counts(FmmParams(n=3000)) == total_counts(evaluation_counts.__wrapped__(
        3000, None, 6, "double", "uniform", 1
    ))  # fmt: skip


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_points_lie_in_the_unit_cube(distribution: str) -> None:
    places, charges = points(distribution, 1000, 3)
    assert places.shape == (1000, 3)
    assert places.dtype == np.float64
    assert 0 <= places.min() <= places.max() <= 1
    assert np.isfinite(places).all()
    assert charges.shape == (1000,)
    assert np.abs(charges).max() <= 1
    again, _ = points(distribution, 1000, 3)
    assert (places == again).all()


# The run


def prepared(**given: Any) -> Any:
    return fmm.prepare(fmm.params(**given), Team())


@pytest.mark.parametrize(
    "given",
    [
        {"n": 1, "digits": 3},
        {"n": 3000, "q": 60},
        {"n": 3000, "q": 60, "digits": 3, "threads": 2, "distribution": "plummer"},
        {"n": 3000, "q": 60, "precision": "single", "digits": 3, "distribution": "sphere"},
        {"n": 500, "q": 40, "digits": 4, "distribution": "equal"},
    ],
)
def test_prepare_run_check_close(given: Any) -> None:
    run = prepared(**given)
    before_ns = time.monotonic_ns()
    run.run(2)
    after_ns = time.monotonic_ns()
    run.check()
    assert run.counts()
    assert set(run.counts()) <= set(CLASS_UNITS)
    assert isinstance(run, Marked)
    marks = run.marks()
    assert [m.phase for m in marks] == [*PHASES, *PHASES]
    edges = [edge for m in marks for edge in (m.begin_ns, m.end_ns)]
    assert edges == sorted(edges)
    assert before_ns <= edges[0] <= edges[-1] <= after_ns
    run.close()
    run.close()


def test_a_wrong_result_is_detected() -> None:
    run = prepared(n=2000, q=60, digits=4)
    some = np.random.default_rng(0).permutation(2000)[:CHECKED]
    run.potentials[some[0]] += 1e-2 * np.linalg.norm(run.potentials[some])
    with pytest.raises(ResultError, match="4 digits were requested"):
        run.check()
    run.run(1)
    run.check()
    run.potentials[some[0]] = np.nan
    with pytest.raises(ResultError):
        run.check()
    run.close()


def test_direct_summation_leaves_out_the_point_itself() -> None:
    places = np.array([[0.0, 0, 0], [0.5, 0, 0]])
    assert direct_sums(places, np.array([1.0, 3.0]), places) == pytest.approx(
        np.array([6.0, 2.0]) / (4 * np.pi)
    )


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"n": 0}, "n"),
        ({"n": 10, "q": 0}, "q"),
        ({"n": 10, "digits": 11}, "digits"),
        ({"n": 10, "digits": 7, "precision": "single"}, "3 to 5 can"),
        ({"n": 10, "distribution": "ball"}, "distribution"),
        ({"n": 10, "threads": 0}, "threads"),
        ({"n": 10, "order": 4}, "order"),
    ],
)
def test_bad_parameters_are_refused(given: Any, what: str) -> None:
    with pytest.raises(ValidationError, match=what):
        FmmParams(**given)


# Table IV


def test_table_iv_plans_every_input_at_every_setting() -> None:
    plan = make_plan(TABLE_IV)
    assert len(plan.points) == 64
    assert len({p.params for p in plan.points}) == 8
    assert len({p.setting for p in plan.points}) == 8
    assert {p.kernel for p in plan.points} == {"fmm"}


def renamed(counts: Any) -> dict[str, float]:
    """Counts as the Jetson TK1 calls them."""
    return {"shared" if name == "l1" else name: value for name, value in counts.items()}


def test_phases_follow_one_another_on_a_simulated_machine() -> None:
    """Counts, time and energy of a simulated window add up over the marked phases."""
    quiet = read_site(find_site("jetson-tk1", TABLE_IV.parent))
    assert quiet.simulated is not None
    quiet = quiet.model_copy(
        update={"simulated": quiet.simulated.model_copy(update={"noise": "none", "attained": {}})}
    )
    setting = quiet.settings[-1]
    params = FmmParams(n=20_000, q=100)
    assert fmm.phases is not None
    phases = {k: renamed(v) for k, v in fmm.phases(params).items()}
    counts = renamed(count_evaluation(params))
    window = simulate_window(quiet, counts, setting, 1.0, "a seed", phases)
    one_s = window.end_ns / 1e9 / window.iterations
    launch_s = quiet.simulated.launch_s
    alone_s = sum(iteration_s(quiet, c, setting) - launch_s for c in phases.values())
    assert one_s == pytest.approx(alone_s + launch_s, rel=1e-6)
    assert [t.channel for t in window.marks] == [f"phase:{name}" for name in PHASES]
    assert all(t.time_ns.size == 2 * window.iterations for t in window.marks)
    energy = node_energy(window.traces, 0, window.end_ns).total.energy_j / window.iterations
    core_v, mem_v = quiet.volts(setting)
    assert core_v is not None
    assert mem_v is not None
    dynamic_j = sum(
        n * quiet.simulated.energy_pj_per_v2[k] * 1e-12 * (mem_v if k == "dram" else core_v) ** 2
        for k, n in counts.items()
    )
    assert energy == pytest.approx(dynamic_j + constant_w(quiet, setting) * one_s, rel=2e-3)


@pytest.mark.parametrize(
    ("setting", "slower"), [((852, 924), 1.0), ((180, 924), 2.244444), ((852, 204), 3.352941)]
)
def test_a_phase_waits_as_long_as_it_does_not_attain_the_rates(
    setting: tuple[float, float], slower: float
) -> None:
    """At the highest clocks 1 / attained of the time; elsewhere a third of the wait is longer by
    the ratio of the core clocks, two thirds by that of the memory clocks."""
    site = read_site(find_site("jetson-tk1", TABLE_IV.parent))
    assert site.simulated is not None
    launch_s = site.simulated.launch_s
    site = site.model_copy(
        update={"simulated": site.simulated.model_copy(update={"attained": {"u": 0.25}})}
    )
    phases = {"v": {"dram": 1e8}, "u": {"dp": 1e9}}
    v_s, u_s = phases_s(site, phases, Setting(*setting))
    assert v_s == pytest.approx(1e8 / (14.4 * setting[1] * 1e6) + launch_s)
    wait_s = 3 * 1e9 / (14.4 * 852e6) * slower
    assert u_s == pytest.approx(1e9 / (14.4 * setting[0] * 1e6) + wait_s, rel=1e-6)


def test_marks_become_traces() -> None:
    marks = [Mark("up", 10, 20), Mark("u", 20, 50), Mark("up", 60, 70)]
    up, u = phase_traces(marks, 10)
    assert (up.channel, u.channel) == ("phase:up", "phase:u")
    assert up.time_ns.tolist() == [0, 10, 50, 60]
    assert up.value.tolist() == [1, 0, 1, 0]
    assert u.time_ns.tolist() == [10, 40]


def test_the_energy_of_each_phase_is_computed_from_a_store(tmp_path: Path) -> None:
    """From a simulated measurement through journal and Zarr to joules by phase."""
    plan = make_plan(TABLE_IV)
    point = next(p for p in plan.points if '"n":65536,' in p.params)
    job = PartitionSetup(plan.sites[point.site], plan.campaign.protocol, ("fmm",))
    measured = measure(job, point, 0)
    assert measured is not None
    assert measured.status == "ok", measured.text
    store = stored(tmp_path / "store", measured, compacted=True)
    split = phase_energy(read_traces(store), 0)
    assert split.phases == list(PHASES)
    (energy_j,) = split.energy_j.values()
    assert energy_j.sum() == pytest.approx(measured.energy_j * measured.iterations, rel=1e-6)
    assert split.time_s.sum() == pytest.approx(measured.time_s * measured.iterations, rel=1e-6)
    power_w = energy_j / split.time_s
    by_name = dict(zip(PHASES, power_w, strict=True))
    assert by_name["u"] != pytest.approx(by_name["v"], rel=0.02)


def test_a_counter_and_a_power_meter_give_the_same_energy_by_phase() -> None:
    time_ns = np.arange(0, 11) * 10**9
    watts = np.where(np.arange(11) < 6, 10.0, 30.0)
    joules = np.concatenate([[0], np.cumsum((watts[1:] + watts[:-1]) / 2)])
    traces = [(0, "m:p", "W", time_ns, watts), (0, "m:e", "J", time_ns, joules)]
    marks = {"a": [0, 4, 6, 8], "b": [4, 6, 8, 10]}
    traces += [
        (0, f"phase:{k}", "1", np.array(v) * 10**9, [1.0, 0.0] * 2) for k, v in marks.items()
    ]
    dataset = trace_columns(traces)
    split = phase_energy(dataset, 0)
    for channel in ("m:p", "m:e"):
        assert split.energy_j[channel].tolist() == pytest.approx([40.0 + 60, 10.0 + 20 + 60])
    assert split.time_s.tolist() == [6, 4]
    with pytest.raises(FitError, match="measurement 1: no phases are marked"):
        phase_energy(dataset, 1)


def test_a_plan_says_where_counting_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no locator available")

    monkeypatch.setattr("kernels.fmm.kernel.evaluation_counts", fails)
    with pytest.raises(FileError, match=r"tk1-fmm\.toml.*NUMBA_CACHE_DIR"):
        make_plan(TABLE_IV)
