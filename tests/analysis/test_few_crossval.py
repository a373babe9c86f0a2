"""Kernels measured at few settings: what is predicted of them, how picks are tried and who picks,
and cross-validation with few measurements."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.choice.candidates import SettingCandidates, all_candidates
from analysis.choice.crossval import cross_validate
from analysis.choice.few_crossval import FewTruth, few_cross_validate, few_folds, judge_holdout
from analysis.choice.objectives import objective
from analysis.choice.pick import pick, picks
from analysis.measurements.observations import (
    FitError,
    Observations,
    kernel_numbers,
    measured_volts,
)
from analysis.predict.site import SitePosterior, Trial, site_posterior
from dvfs.setting import Setting
from tests.analysis.synthetic import grid_observations, numbered

CORE, MEM = np.array([400.0, 600.0, 800.0, 1000.0]), np.array([500.0, 900.0])
MHZ = np.array([(core, mem) for core in CORE for mem in MEM])
RATIOS = 1000.0 / MHZ[:, 0], 900.0 / MHZ[:, 1]


def scaled(shares: np.ndarray, exponent: float = 2.0) -> np.ndarray:
    """Log times (K, 8) at the grid by their closed form, of shares (K, 3)."""
    a, b, c = np.asarray(shares, float).T[:, :, None]
    core, mem = RATIOS
    return np.log(c + ((a * core) ** exponent + (b * mem) ** exponent) ** (1.0 / exponent))


def measured(log_s: np.ndarray, watts: np.ndarray, mem: bool = True) -> Observations:
    """Kernels with these log times (K, 8), and power (K,) at the highest clocks that falls with
    the core's clock."""
    k, s = (part.ravel() for part in np.indices(log_s.shape))
    time_s = np.exp(log_s).ravel()
    ones = np.ones(len(k))
    mhz = MHZ if mem else np.column_stack([np.linspace(400.0, 1000.0, 8), np.full(8, np.nan)])
    return Observations(
        site="few",
        simulated=True,
        **numbered(f"kernel-{i}" for i in k),
        core_mhz=mhz[s, 0],
        mem_mhz=mhz[s, 1],
        core_v=ones,
        mem_v=ones,
        time_s=time_s,
        energy_j=time_s * watts[k] * (0.4 + 0.6 * mhz[s, 0] / 1000.0),
        counts={},
        domains={},
        voltage="unit",
        setting=s.astype(np.int64),
        settings=[Setting.of(c, m) for c, m in mhz],
    )


def two_kinds(seed: int = 5, kernels: int = 12, noise: float = 0.0) -> tuple[np.ndarray, ...]:
    """Log times and power of kernels that the core paces (even ones, 100 W) or the memory (odd
    ones, 40 W)."""
    rng = np.random.default_rng(seed)
    of_core = np.arange(kernels) % 2 == 0
    shares = np.where(of_core[:, None], [0.9, 0.05, 0.05], [0.05, 0.9, 0.05])
    log_s = scaled(shares) + rng.normal(size=(kernels, 1)) + noise * rng.normal(size=(kernels, 8))
    return log_s, np.where(of_core, 100.0, 40.0) * np.exp(0.05 * rng.normal(size=kernels))


def without(data: Observations, label: str, settings: list[int]) -> Observations:
    return data.take((data.labels != label) | np.isin(data.setting, settings))


def times_of(data: Observations, label: str, *more: Setting) -> np.ndarray:
    """A kernel's median times at the settings of the data, and at ``more``."""
    volts = dict.fromkeys([*data.settings, *more], (1.0, 1.0))
    found = site_posterior(data, volts)
    place = [found.settings.index(setting) for setting in [*data.settings, *more]]
    return found.time_s[found.labels.index(label)][place]


@pytest.mark.parametrize("label", ["kernel-0", "kernel-1"])
@pytest.mark.parametrize("at", [[7], [0], [2], [7, 0]])
def test_a_new_kernel_scales_like_those_with_its_power(label, at):
    log_s, watts = two_kinds()
    predicted = times_of(without(measured(log_s, watts), label, at), label)
    np.testing.assert_allclose(predicted, np.exp(log_s[int(label[-1])]), rtol=0.03)


def test_its_own_times_overrule_a_misleading_power():
    log_s, watts = two_kinds()
    watts[0] = 40.0  # paced by the core, with the power of those that the memory paces
    predicted = times_of(without(measured(log_s, watts), "kernel-0", [7, 1]), "kernel-0")
    np.testing.assert_allclose(predicted, np.exp(log_s[0]), rtol=0.1)


def test_counts_tell_kernels_of_the_same_power_apart():
    log_s, watts = two_kinds()
    data = measured(log_s, np.full_like(watts, 60.0))
    number = np.array([int(label[7:]) for label in data.labels])
    of_core, work = number % 2 == 0, np.exp(log_s[number, 7]) * 1e9
    counts = {"dp": np.where(of_core, work, work / 50), "dram": np.where(of_core, work / 50, work)}
    data = replace(data, counts=counts, domains={"dp": "core", "dram": "mem"})
    for label in ("kernel-0", "kernel-1"):
        predicted = times_of(without(data, label, [7]), label)
        np.testing.assert_allclose(predicted, np.exp(log_s[int(label[-1])]), rtol=0.05)


def test_what_no_roofline_can_do_is_learned_from_the_others():
    rng = np.random.default_rng(9)
    size = rng.normal(size=(20, 1))
    pattern = np.array([0.3, -0.4, 0.2, 0.5, -0.1, -0.3, 0.4, 0.0])  # up and down with the clocks
    log_s = rng.normal(size=(20, 1)) + size * pattern
    data = without(measured(log_s, 60.0 * np.exp(size[:, 0])), "kernel-3", [7])
    np.testing.assert_allclose(times_of(data, "kernel-3"), np.exp(log_s[3]), rtol=0.05)


def draws_of(found: SitePosterior, label: str) -> tuple[np.ndarray, np.ndarray]:
    """A kernel's draws of energies and of times, (S, draws)."""
    return next((energy_j, time_s) for one, energy_j, time_s in found.draws() if one == label)


def test_units_of_time_and_energy_do_not_matter():
    log_s, watts = two_kinds(noise=0.03)
    data = without(measured(log_s, watts), "kernel-3", [4])
    in_us = replace(data, time_s=data.time_s * 1e6, energy_j=data.energy_j * 1e3)
    plain, other = (
        draws_of(site_posterior(one, measured_volts(data)), "kernel-3") for one in (data, in_us)
    )
    for of_plain, of_other, unit in zip(plain, other, (1e3, 1e6), strict=True):
        np.testing.assert_allclose(
            np.median(of_other, axis=1), np.median(of_plain, axis=1) * unit, rtol=1e-3
        )
        np.testing.assert_allclose(
            np.log(of_other).std(axis=1), np.log(of_plain).std(axis=1), rtol=1e-2, atol=1e-6
        )


@pytest.mark.parametrize("at", [[7], [3], [7, 0], [6, 1, 2]])
def test_predicted_times_are_as_sure_as_they_say(at):
    inside = total = 0
    hidden = ~np.isin(np.arange(8), at)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        shares = rng.dirichlet([1.0, 1.0, 0.3], 30)
        log_s = scaled(shares) + 0.02 * rng.normal(size=(30, 8))
        data = measured(log_s, 60.0 * np.exp(0.2 * rng.normal(size=30)))
        new = [f"kernel-{k}" for k in range(0, 30, 5)]
        for label in new:
            data = without(data, label, at)
        for label, _, time_s in site_posterior(data, measured_volts(data)).draws():
            if label in new:
                low, high = np.percentile(time_s, [2.5, 97.5], axis=1)
                true = np.exp(log_s[int(label[7:])])
                inside += int(((low <= true) & (true <= high))[hidden].sum())
                total += int(hidden.sum())
    assert 0.85 <= inside / total <= 1.0


def test_a_site_without_a_memory_clock():
    rng = np.random.default_rng(3)
    shares = rng.dirichlet([3.0, 1e-3, 1.0], 10)
    core = 1000.0 / np.linspace(400.0, 1000.0, 8)
    log_s = np.log(shares[:, [2]] + shares[:, [0]] * core)
    data = without(measured(log_s, np.full(10, 50.0), mem=False), "kernel-4", [0, 7])
    np.testing.assert_allclose(times_of(data, "kernel-4"), np.exp(log_s[4]), rtol=0.03)


def test_clocks_that_no_kernel_was_measured_at_are_predicted():
    log_s, watts = two_kinds()
    data = without(measured(log_s, watts), "kernel-0", [7])
    beyond_s = times_of(data, "kernel-0", Setting(700.0, 700.0))[-1]
    a, b, c = 0.9 * 1000 / 700, 0.05 * 900 / 700, 0.05
    expected = (c + np.hypot(a, b)) / (c + np.hypot(0.9, 0.05)) * np.exp(log_s[0, 7])
    assert beyond_s == pytest.approx(expected, rel=0.05)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 1000),
    missing=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=40),
)
def test_any_gaps_give_finite_positive_energies_and_times(seed, missing):
    rng = np.random.default_rng(seed)
    log_s = scaled(rng.dirichlet([1.0, 1.0, 1.0], 8)) + 0.1 * rng.normal(size=(8, 8))
    data = measured(log_s, rng.uniform(20.0, 200.0, 8))
    gone = {8 * kernel + setting for kernel, setting in missing if setting != kernel}
    data = data.take(np.array([i not in gone for i in range(64)]))
    for among in all_candidates(data).values():
        assert 0.0 <= pick(among).best_probability <= 1.0
        for drawn in (among.energy_draws_j, among.time_draws_s):
            assert np.isfinite(drawn).all()
            assert (drawn > 0).all()


def test_a_pick_for_a_kernel_with_one_setting_knows_how_little_it_knows():
    data = grid_observations(6, kernels=14, counted=0.0, noise=0.02)
    unsure = all_candidates(without(data, "kernel-3", [0]))["kernel-3"]
    sure = all_candidates(data)["kernel-3"]
    hidden = ~unsure.measured
    spread = [np.log(c.time_draws_s[hidden]).std(axis=1) for c in (unsure, sure)]
    assert (spread[0] > 5 * spread[1]).all()
    assert unsure.trial is not None
    assert sure.trial is None


def random_trial(seed: int) -> Trial:
    """Five kernels at six settings, three of which are closed in one try or another; some cells
    were not measured."""
    rng = np.random.default_rng(seed)
    known = rng.random((5, 6)) < 0.8
    known[:, 0] = True
    closed = np.zeros((3, 6), bool)
    closed[[0, 1, 1], [2, 3, 4]] = True
    log_j, log_s = rng.normal(size=(2, 3, 5, 6))
    measured_log_j, measured_log_s = np.where(known, rng.normal(size=(2, 5, 6)), np.nan)
    return Trial(
        settings=[Setting(float(c), float(m)) for c in (1, 2, 3) for m in (1, 2)],
        log_j=np.where(known, log_j, np.nan),
        log_s=np.where(known, log_s, np.nan),
        measured_log_j=measured_log_j,
        measured_log_s=measured_log_s,
        closed=closed,
    )


def compared(there: list[set[int]]) -> tuple[list[int], list[int]]:
    """The kernels measured at all settings of n kernels or more, and these settings, with the n
    that leaves most: further settings times kernels; of equals the largest n."""
    blocks = []
    for n in range(len(there), 0, -1):
        among = [s for s in range(6) if sum(s in of for of in there) >= n]
        blocks.append(([k for k, of in enumerate(there) if of >= set(among)], among))
    return max(blocks, key=lambda block: len(block[0]) * (len(block[1]) - 1))


@pytest.mark.parametrize("name", ["energy", "edp"])
@pytest.mark.parametrize("seed", range(4))
def test_what_a_trial_lost_by_brute_force(name, seed):
    trial = random_trial(seed)

    def score(log_j, log_s) -> float:
        return np.exp(log_j + (log_s if name == "edp" else 0.0))

    cost = score(trial.measured_log_j, trial.measured_log_s)
    there = [[s for s in range(6) if np.isfinite(cost[k, s])] for k in range(5)]
    above = [[cost[k, s] / min(cost[k, there[k]]) - 1.0 for s in range(6)] for k in range(5)]
    by_model, by_single = [], []
    for g in range(3):
        for k in range(5):
            predicted = {s: score(trial.log_j[g, k, s], trial.log_s[g, k, s]) for s in there[k]}
            by_model.append(above[k][min(predicted, key=predicted.get)])
            kernels, among = compared(
                [set(of) - set(np.flatnonzero(trial.closed[g])) for of in there]
            )
            single = {
                s: np.mean([above[j][s] for j in kernels if j != k]) for s in among if s in there[k]
            }
            by_single.append(above[k][min(single, key=single.get)] if single else np.nan)
    lost = trial.lost_pct(objective(name))
    assert lost["model"] == pytest.approx(100.0 * np.mean(by_model))
    assert lost["best_single"] == pytest.approx(100.0 * np.mean(by_single), nan_ok=True)
    at_top = [above[k][5] for k in range(5)]  # unknown where some kernel was not measured there
    assert lost["highest_clocks"] == pytest.approx(100.0 * np.mean(at_top), nan_ok=True)
    kernels, among = compared(list(map(set, there)))
    mean = {s: np.mean([above[k][s] for k in kernels]) for s in among}
    assert trial.best_single(objective(name)) == trial.settings[min(mean, key=mean.get)]


def tried(predicted_j: list[list[float]], measured_j: list[list[float]]) -> Trial:
    """By kernel: at three settings, with times that do not matter."""
    predicted, seen = np.log(predicted_j), np.log(measured_j)
    return Trial(
        settings=[Setting(1.0), Setting(2.0), Setting(3.0)],
        log_j=predicted[None],
        log_s=np.zeros_like(predicted[None]),
        measured_log_j=seen,
        measured_log_s=np.zeros_like(seen),
        closed=np.zeros((1, 3), bool),
    )


SEEN = [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [1.5, 1.0, 3.0]]
BAD = tried([[9, 9, 1], [9, 9, 1], [9, 9, 1]], SEEN)
GOOD = tried([[1, 2, 9], [1, 2, 9], [2, 1, 9]], SEEN)
FAST = tried([[1, 9, 9], [1, 9, 9]], [[3.0, 2.0, 1.0], [2.0, 4.0, 1.0]])
"""The highest clocks are best for all, which is then the best single setting too."""
TOP = tried([[9, 1, 9]] * 3, [[1.0, 9.0, 1.3], [1.0, 9.0, 1.3], [1.2, 9.0, 1.0]])
"""The model loses most, then the highest clocks, and the first setting least."""


def candidates_with(trial: Trial | None) -> SettingCandidates:
    """The second setting is best by the model, and the third the fastest."""
    energy_j, time_s = np.array([2.0, 1.0, 3.0]), np.array([3.0, 2.0, 1.0])
    return SettingCandidates(
        kernel="k",
        params={},
        label="k",
        settings=[Setting(1.0), Setting(2.0), Setting(3.0)],
        energy_j=energy_j,
        time_s=time_s,
        measured=np.array([False, True, False]),
        measured_j=np.array([np.nan, 1.0, np.nan]),
        energy_draws_j=np.tile(energy_j[:, None], 4),
        time_draws_s=np.tile(time_s[:, None], 4),
        time_error_s=np.zeros(3),
        trial=trial,
    )


def test_what_a_trial_lost_by_hand():
    # The model picks the third setting. Without the first kernel the others have, over the two,
    # 50 % and 0 + 100 %, so the first setting is the best single one; so it is for the third.
    lost = {"best_single": 50.0 / 3, "highest_clocks": 200.0}
    assert BAD.lost_pct(objective("energy")) == pytest.approx(lost | {"model": 200.0})
    assert GOOD.lost_pct(objective("energy")) == pytest.approx(lost | {"model": 0.0})
    assert BAD.best_single(objective("energy")) == Setting(1.0)
    # The best single setting of a kernel is that of the others.
    apart = tried([[1, 2, 9], [2, 1, 9]], [[1, 2, 3], [2, 1, 3]])
    assert apart.lost_pct(objective("energy"))["best_single"] == pytest.approx(100.0)


@pytest.mark.parametrize("max_slowdown", [None, 1.0, 0.5])
@pytest.mark.parametrize("trial", [BAD, GOOD, FAST, TOP])
def test_the_rule_that_loses_least_within_the_limits_chooses(trial, max_slowdown):
    """At most twice as slow leaves out the first setting, at most 1.5 times all but the third."""
    among = candidates_with(trial)
    allowed = [s for s in range(3) if max_slowdown is None or among.time_s[s] <= 1 + max_slowdown]
    lost = trial.lost_pct(objective("energy"))
    at = {
        "model": min(allowed, key=lambda s: among.energy_j[s]),
        "best_single": among.settings.index(trial.best_single(objective("energy"))),
        "highest_clocks": 2,
    }
    least = min((lost[name], i) for i, name in enumerate(at) if at[name] in allowed)
    chosen = pick(among, max_slowdown=max_slowdown)
    assert chosen.setting == among.settings[list(at.values())[least[1]]]
    assert lost[chosen.chosen_by] == least[0]
    assert chosen.model_lost_pct == lost["model"]
    assert chosen.best_single_lost_pct == lost["best_single"]
    assert chosen.highest_clocks_lost_pct == lost["highest_clocks"]
    untried = pick(replace(among, trial=None), max_slowdown=max_slowdown)
    assert (untried.chosen_by, untried.setting) == ("model", among.settings[at["model"]])


def log_expected(found: SitePosterior, left_out: np.ndarray, k: int) -> tuple[np.ndarray, ...]:
    """The logarithms of a kernel's expected energies and times without the cells ``left_out``,
    (K, S), by conditioning on the others."""
    more = found.posterior.z.shape[1] - 2 * left_out.shape[1]
    out = np.hstack([left_out, left_out, np.zeros((len(left_out), more), bool)])
    for i, *logs in found.posterior.without(out).draws():
        if i == k:
            return tuple(np.log(np.exp(log).mean(axis=1)) for log in logs)
    raise AssertionError


@pytest.mark.parametrize("at", [[5], [0, 5]])
def test_a_trial_hides_what_was_not_measured_and_keeps_what_was(at):
    """What is hidden of each other kernel is predicted as if it had not been measured: half of the
    cells nearly so, as another mixture may be the best without a kernel."""
    data = without(grid_observations(4, kernels=24, counted=0.0, noise=0.02), "kernel-2", at)
    found = site_posterior(data, measured_volts(data))
    trial = found.trials["kernel-2"]
    assert trial.log_j.shape == (1, 23, 8)
    hidden = np.array([setting not in [data.settings[s] for s in at] for setting in trial.settings])
    others = [label for label in found.labels if label != "kernel-2"]
    off, expected = [], []
    for i, label in enumerate(others):
        k = found.labels.index(label)
        measured_j = [data.energy_j[(data.labels == label) & (data.setting == s)] for s in range(8)]
        place = [trial.settings.index(setting) for setting in data.settings]
        np.testing.assert_allclose(trial.measured_log_j[i, place], np.log(measured_j)[:, 0])
        left_out = np.zeros((24, 8), bool)
        left_out[k] = hidden
        own = log_expected(found, left_out, k)
        for tries, seen, log in zip(
            (trial.log_j, trial.log_s), (trial.measured_log_j, trial.measured_log_s), own,
            strict=True,
        ):  # fmt: skip
            np.testing.assert_array_equal(tries[0, i, ~hidden], seen[i, ~hidden])
            off.append((tries[0, i] - log)[hidden])
            expected.append((seen[i] - log)[hidden])
    assert np.median(np.abs(off)) < 0.15 * np.median(np.abs(expected))


def test_settings_are_hidden_where_some_of_a_site_were_not_measured():
    """Each once, for all kernels, and predicted from the others."""
    data = grid_observations(4, kernels=6, noise=0.02)
    volts = measured_volts(data)
    found = site_posterior(data.take(data.setting < 7), volts)
    (trial,) = {id(one): one for one in found.trials.values()}.values()
    assert set(found.trials) == set(found.labels)
    assert trial.closed.sum(axis=0).tolist() == [1] * 7
    place = [found.settings.index(setting) for setting in trial.settings]
    assert trial.settings == data.settings[:7]
    for log_j, log_s, closed in zip(trial.log_j, trial.log_s, trial.closed, strict=True):
        out = np.zeros((6, 8), bool)
        out[:, place] = closed
        some = found.posterior.without(np.hstack([out, out]))
        np.testing.assert_allclose(log_j[:, closed], some.log_j[:, place][:, closed], atol=1e-6)
        np.testing.assert_allclose(log_s[:, closed], some.log_s[:, place][:, closed], atol=1e-6)
        np.testing.assert_array_equal(log_j[:, ~closed], trial.measured_log_j[:, ~closed])
    # With fewer settings than six, or where all were measured, picks are not tried.
    assert site_posterior(data.take(data.setting < 5), volts).trials == {}
    assert site_posterior(data, volts).trials == {}


def test_picks_say_who_chose():
    data = without(grid_observations(4, kernels=12, noise=0.02), "kernel-2", [0])
    tried_pick = {one.label: one for one in picks(data)}["kernel-2"]
    lost = {
        name: getattr(tried_pick, f"{name}_lost_pct")
        for name in ("model", "best_single", "highest_clocks")
    }
    assert lost[tried_pick.chosen_by] == min(lost.values())
    for one in picks(data.take(data.labels != "kernel-2")):
        assert one.chosen_by == "model"
        assert np.isnan(one.model_lost_pct)


def test_a_fold_sees_of_a_new_kernel_its_own_settings_alone():
    data = grid_observations(2, kernels=10)
    labels = sorted(set(data.labels.tolist()))
    judged = []
    for fold in few_folds(data, labels, 6, 2, 1):
        new = np.isin(data.labels.astype(str), fold.judged)
        assert len(fold.judged_settings) == 2
        assert set(data.setting[fold.training & new]) == set(fold.judged_settings)
        assert len(set(data.setting[fold.training & ~new])) == 6
        np.testing.assert_array_equal(fold.other_kernels, fold.training & ~new)
        judged += fold.judged
    assert sorted(judged) == labels


def test_few_measurements_by_brute_force():
    data = grid_observations(2, kernels=10, noise=0.02)
    made = few_cross_validate(data, None, 1, draws=1)
    assert len(made.cases) == 10
    energy = {
        label: [
            data.energy_j[(data.labels == label) & (data.setting == s)].mean() for s in range(8)
        ]
        for label in set(data.labels.tolist())
    }
    for case in made.cases:
        own = np.array(energy[case.label])
        above = (own / own.min() - 1) * 100
        others = [np.array(e) / min(e) for label, e in energy.items() if label != case.label]
        assert case.lost_pct["best_single"] == pytest.approx(
            above[np.argmin(np.sum(others, axis=0))]
        )
        assert case.lost_pct["random"] == pytest.approx(above.mean())
        assert case.random_max_lost_pct == pytest.approx(above.max())
        assert case.random_exact == pytest.approx(np.mean(above == above.min()))
        assert min(abs(above - case.lost_pct["picks"])) < 1e-9
        assert case.lost_pct["best_measured"] in above
        assert case.lost_pct["highest_clocks"] == pytest.approx(
            above[data.settings.index(Setting(1000.0, 900.0))]
        )
    choosers = made.choosers
    assert choosers["random"].mean_lost_pct == pytest.approx(
        np.mean([case.lost_pct["random"] for case in made.cases])
    )
    # A random one of eight settings: at most the worst, and one in eight times the best.
    worst = max((max(own) / min(own) - 1) * 100 for own in energy.values())
    assert choosers["random"].max_lost_pct == pytest.approx(worst)
    assert choosers["random"].exact == pytest.approx(10 / 8)


def test_kernels_with_gaps_are_not_judged():
    """And what is the best measured setting is looked for among the kernel's own."""
    data = grid_observations(2, kernels=4, noise=0.02)
    truth = FewTruth.of(without(data, "kernel-1", [0, 1, 2]), objective("energy"))
    assert list(truth.row) == ["kernel-0", "kernel-2", "kernel-3"]
    own = data.energy_j[data.labels == "kernel-2"]
    among = np.array([1, 4, 6])
    assert truth.least("kernel-2", among) == among[np.argmin(own[among])]
    np.testing.assert_allclose(truth.above_pct[1], (own / own.min() - 1.0) * 100.0)


def test_a_cross_validation_with_predicted_times_learns_from_the_other_kernels():
    """The folds leave gaps in kernels: their closed form is what the others have there."""
    log_s, watts = two_kinds(noise=0.02)
    made = cross_validate(measured(log_s, watts), "kfold:8", voltage="unit", time="predicted")
    assert len(made.time_error_pct) == log_s.size
    # A time has 2 % of noise, and what is predicted for it no more than that again.
    assert made.time_error_pct.mean() < 2.0 * np.sqrt(2) * np.sqrt(2 / np.pi) * 1.2


@pytest.mark.parametrize("settings", [3, 4])
def test_few_settings_are_not_taken_for_no_knowledge(settings):
    """Energies from few settings are unsure, but within bounds: so are the losses expected."""
    data = grid_observations(11, kernels=16, noise=0.02)
    made = few_cross_validate(data, settings, draws=4)
    lost = made.choosers["picks"].mean_lost_pct
    stated = made.as_dict()["expected_loss_pct"]
    assert lost / 4 - 1.0 < stated < 4 * lost + 3.0


def test_all_kernels_at_few_settings():
    data = grid_observations(2, kernels=8, noise=0.02)
    made = few_cross_validate(data, 3, draws=2)
    assert (len(made.cases), made.settings, made.new) == (16, 3, None)
    assert {case.draw for case in made.cases} == {0, 1}
    more = few_cross_validate(data, 7, draws=2)
    assert more.choosers["picks"].mean_lost_pct <= made.choosers["picks"].mean_lost_pct + 1.0


def test_nothing_of_the_settings_that_were_not_drawn_is_looked_at():
    """The picks stay where these are ruined, but for the best measured setting."""
    data = grid_observations(2, kernels=6, noise=0.02)
    (fold,) = few_folds(data, sorted(set(data.labels.tolist())), 4, None, 1)
    ruined = replace(data, energy_j=np.where(fold.training, 1.0, 3.0) * data.energy_j)
    one, other = (few_cross_validate(d, 4, draws=1).cases for d in (data, ruined))
    for mine, theirs in zip(one, other, strict=True):
        assert mine.expected_loss_pct == theirs.expected_loss_pct
        assert mine.best_probability == theirs.best_probability


@pytest.mark.parametrize(
    ("settings", "new", "said"),
    [
        *(
            (
                settings,
                None,
                f"found few:{settings or 0}; synthetic was measured at 8 settings: give a "
                "whole number M from 1 to 7, as it leaves some settings to predict",
            )
            for settings in (8, 9, 0)
        ),
        (
            9,
            1,
            "found few:9; synthetic was measured at 8 settings: give a whole number M from 1 to 8",
        ),
        (3, 4, "new kernels need 1 to 3 settings; found 4"),
        (3, 0, "new kernels need 1 to 3 settings; found 0"),
    ],
)
def test_what_few_cannot_be(settings, new, said):
    with pytest.raises(FitError) as caught:
        few_cross_validate(grid_observations(2), settings, new)
    assert str(caught.value) == said


def test_few_needs_two_settings_and_a_kernel_that_was_measured_at_all_of_them():
    data = grid_observations(2)
    with pytest.raises(FitError, match="at two settings or more; synthetic has one"):
        few_cross_validate(data.take(data.setting == 3), 1)
    gaps = data.take(kernel_numbers(data) != data.setting)
    with pytest.raises(FitError, match="at every setting; measure some at all of them"):
        few_cross_validate(gaps, 3)
    # A holdout then has nothing to judge, however little there is to fit.
    assert judge_holdout(gaps, gaps.setting < 1) == []
