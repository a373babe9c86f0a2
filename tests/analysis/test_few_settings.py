"""Kernels measured at few settings: their times against known scaling, and who picks for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.choice.averaged import CAUTION
from analysis.choice.candidates import Candidates, all_candidates
from analysis.choice.crossval import cross_validate
from analysis.choice.few_crossval import few_cross_validate, few_folds, judge_holdout
from analysis.choice.few_trial import SHARES, FewTrial, few_trials
from analysis.choice.losses import SEED, kernel_numbers
from analysis.choice.objectives import objective
from analysis.choice.pick import pick, picks
from analysis.energy.fit import fit
from analysis.measurements.observations import CantFit, Observations
from analysis.time.few_settings import few_setting_times
from analysis.time.kernel_roofline import fit_time
from analysis.time.refits import allowed_log_s, refit_times
from analysis.time.shared_rooflines import few_times, fit_shared
from dvfs.setting import Setting
from tests.analysis.synthetic import grid_observations

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
        kernel=np.array([f"kernel-{i}" for i in k], object),
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
    return data.take((data.kernel != label) | np.isin(data.setting, settings))


def few_of(data: Observations, label: str):
    return few_setting_times(data, fit_time(data), [label], *MHZ.T)


def test_shares_and_exponent_are_found_again():
    shares = np.array([(16 - i, i, 0) for i in range(0, 17, 2)]) / 16
    model = fit_shared(scaled(shares, 3.0), *RATIOS)
    assert model.exponent == 3.0
    np.testing.assert_allclose(model.shares[model.membership.argmax(axis=1)], shares)
    assert model.variance == pytest.approx(1e-6)


def test_curves_are_the_stated_formula():
    model = fit_shared(scaled(np.eye(3)), *RATIOS)
    p = model.exponent
    worked = [c + ((2.0 * a) ** p + (1.5 * b) ** p) ** (1 / p) for a, b, c in model.shares]
    found = np.exp(model.curves(np.array([2.0]), np.array([1.5])))[:, 0]
    np.testing.assert_allclose(found, worked, rtol=1e-12)


@pytest.mark.parametrize("label", ["kernel-0", "kernel-1"])
@pytest.mark.parametrize("at", [[7], [0], [2], [7, 0]])
def test_a_new_kernel_scales_like_those_with_its_power(label, at):
    log_s, watts = two_kinds()
    data = measured(log_s, watts)
    predicted = few_of(without(data, label, at), label)[label].time_s
    np.testing.assert_allclose(predicted, np.exp(log_s[int(label[-1])]), rtol=0.03)


@pytest.mark.parametrize("label", ["kernel-0", "kernel-1"])
def test_the_root_of_the_errors_is_the_symmetric_one(label):
    """It is the only root that is: any other changes with the signs of axes."""
    log_s, watts = two_kinds(noise=0.05)
    root = few_of(without(measured(log_s, watts), label, [7, 0]), label)[label].root
    assert np.abs(root).max() > 0.01
    np.testing.assert_allclose(root, root.T, atol=1e-12)
    assert np.linalg.eigvalsh(root).min() > -1e-9


def test_its_own_times_overrule_a_misleading_power():
    log_s, watts = two_kinds()
    watts[0] = 40.0  # paced by the core, with the power of those that the memory paces
    data = without(measured(log_s, watts), "kernel-0", [7, 1])
    predicted = few_of(data, "kernel-0")["kernel-0"].time_s
    np.testing.assert_allclose(predicted, np.exp(log_s[0]), rtol=0.1)


def test_counts_tell_kernels_of_the_same_power_apart():
    log_s, watts = two_kinds()
    data = measured(log_s, np.full_like(watts, 60.0))
    of_core = kernel_numbers(data) % 2 == 0
    work = np.exp(log_s[:, 7])[kernel_numbers(data)] * 1e9
    counts = {"dp": np.where(of_core, work, work / 50), "dram": np.where(of_core, work / 50, work)}
    data = replace(data, counts=counts, domains={"dp": "core", "dram": "mem"})
    for label in ("kernel-0", "kernel-1"):
        predicted = few_of(without(data, label, [7]), label)[label].time_s
        np.testing.assert_allclose(predicted, np.exp(log_s[int(label[-1])]), rtol=0.05)


def test_what_no_roofline_can_do_is_learned_by_regression():
    rng = np.random.default_rng(9)
    size = rng.normal(size=(20, 1))
    pattern = np.array([0.3, -0.4, 0.2, 0.5, -0.1, -0.3, 0.4, 0.0])  # up and down with the clocks
    log_s = rng.normal(size=(20, 1)) + size * pattern
    data = without(measured(log_s, 60.0 * np.exp(size[:, 0])), "kernel-3", [7])
    predicted = few_of(data, "kernel-3")["kernel-3"].time_s
    np.testing.assert_allclose(predicted, np.exp(log_s[3]), rtol=0.05)


def test_the_common_distribution_sharpens_what_noisy_kernels_say():
    rng = np.random.default_rng(2)
    shares = np.repeat([[0.75, 0.125, 0.125], [0.125, 0.75, 0.125]], 20, axis=0)
    log_s = scaled(shares) + 0.15 * rng.normal(size=(40, 8))
    model = fit_shared(log_s, *RATIOS)
    away = log_s[:, None, :] - model.curves(*RATIOS)
    squares = ((away - away.mean(axis=2, keepdims=True)) ** 2).sum(axis=2)
    alone = np.exp(-squares / (2.0 * model.variance))
    alone /= alone.sum(axis=1, keepdims=True)
    distance = ((model.shares - shares[:, None, :]) ** 2).sum(axis=2)
    together_off, alone_off = (
        (membership * distance).sum(axis=1).mean() for membership in (model.membership, alone)
    )
    assert together_off < 0.7 * alone_off


def test_units_of_time_and_energy_do_not_matter():
    log_s, watts = two_kinds(noise=0.03)
    data = without(measured(log_s, watts), "kernel-3", [4])
    plain = few_of(data, "kernel-3")["kernel-3"]
    scaled_data = replace(data, time_s=data.time_s * 1e6, energy_j=data.energy_j * 1e3)
    other = few_of(scaled_data, "kernel-3")["kernel-3"]
    np.testing.assert_allclose(other.time_s, plain.time_s * 1e6, rtol=1e-6)
    np.testing.assert_allclose(
        (other.root**2).sum(axis=0), (plain.root**2).sum(axis=0), rtol=1e-3, atol=1e-9
    )


@pytest.mark.parametrize("at", [[7], [3], [7, 0], [6, 1, 2]])
def test_predicted_times_are_as_sure_as_they_say(at):
    inside = total = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        shares = rng.dirichlet([1.0, 1.0, 0.3], 30)
        log_s = scaled(shares) + 0.02 * rng.normal(size=(30, 8))
        data = measured(log_s, 60.0 * np.exp(0.2 * rng.normal(size=30)))
        for label in [f"kernel-{k}" for k in range(0, 30, 5)]:
            few = few_of(without(data, label, at), label)[label]
            std = np.sqrt((few.root**2).sum(axis=0))
            away = np.abs(np.log(few.time_s) - log_s[int(label[7:])])
            hidden = ~np.isin(np.arange(8), at)
            inside += int((away < 1.96 * std)[hidden].sum())
            total += int(hidden.sum())
    assert 0.85 <= inside / total <= 1.0


def test_a_site_without_a_memory_clock():
    rng = np.random.default_rng(3)
    shares = rng.dirichlet([3.0, 1e-3, 1.0], 10)
    core = 1000.0 / np.linspace(400.0, 1000.0, 8)
    log_s = np.log(shares[:, [2]] + shares[:, [0]] * core)
    data = without(measured(log_s, np.full(10, 50.0), mem=False), "kernel-4", [0, 7])
    mhz = data.mhz
    few = few_setting_times(data, fit_time(data), ["kernel-4"], *mhz.T)["kernel-4"]
    np.testing.assert_allclose(few.time_s, np.exp(log_s[4]), rtol=0.03)


def test_clocks_that_no_kernel_was_measured_at_are_predicted():
    log_s, watts = two_kinds()
    data = without(measured(log_s, watts), "kernel-0", [7])
    beyond = few_setting_times(
        data, fit_time(data), ["kernel-0"], np.array([700.0]), np.array([700.0])
    )
    a, b, c = 0.9 * 1000 / 700, 0.05 * 900 / 700, 0.05
    expected = (c + np.hypot(a, b)) / (c + np.hypot(0.9, 0.05)) * np.exp(log_s[0, 7])
    assert beyond["kernel-0"].time_s[0] == pytest.approx(expected, rel=0.05)


def test_clocks_beside_the_measured_ones_are_as_unsure_as_the_nearest_that_was_tried():
    log_s, watts = two_kinds(noise=0.05)
    data = without(measured(log_s, watts), "kernel-0", [7])
    few = few_setting_times(
        data, fit_time(data), ["kernel-0"], np.array([980.0, 800.0]), np.array([900.0, 900.0])
    )["kernel-0"]
    std = np.sqrt((few.root**2).sum(axis=0))
    assert std[0] == pytest.approx(std[1])
    assert std[0] > 0.02


@pytest.mark.parametrize("kernels", [2, 5, 6])
def test_too_few_others_leave_a_kernel_its_own_roofline(kernels):
    log_s, watts = two_kinds(kernels=kernels)
    data = without(measured(log_s, watts), "kernel-0", [7])
    assert (few_of(data, "kernel-0") != {}) == (kernels - 1 >= 5)


def test_kernels_that_were_measured_everywhere_are_left_alone():
    log_s, watts = two_kinds()
    assert few_of(measured(log_s, watts), "kernel-0") == {}


@given(
    seed=st.integers(0, 1000),
    missing=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=40),
)
def test_any_gaps_give_finite_positive_times(seed, missing):
    rng = np.random.default_rng(seed)
    log_s = scaled(rng.dirichlet([1.0, 1.0, 1.0], 8)) + 0.1 * rng.normal(size=(8, 8))
    data = measured(log_s, rng.uniform(20.0, 200.0, 8))
    gone = {8 * kernel + setting for kernel, setting in missing if setting != kernel}
    data = data.take(np.array([i not in gone for i in range(64)]))
    labels = sorted(set(data.kernel.tolist()))
    for few in few_setting_times(data, fit_time(data), labels, *MHZ.T).values():
        assert np.isfinite(few.time_s).all()
        assert (few.time_s > 0).all()
        assert np.isfinite(few.root).all()


def test_few_times_by_brute_force():
    rng = np.random.default_rng(8)
    model = fit_shared(scaled(rng.dirichlet([1.0, 1.0, 1.0], 9), 1.5), *RATIOS)
    prior = rng.dirichlet(np.ones(len(model.shares)), 2)
    log_s = rng.normal(size=(2, 2))
    at = RATIOS[0][[1, 6]], RATIOS[1][[1, 6]]
    few = few_times(model, prior, log_s, at, RATIOS)
    for k in range(2):
        weights, curves = [], []
        for g in range(len(model.shares)):
            here, there = model.curves(*at)[g], model.curves(*RATIOS)[g]
            level = np.mean(log_s[k] - here)
            squares = np.sum((log_s[k] - level - here) ** 2)
            weights.append(np.log(prior[k, g]) - squares / (2 * model.variance))
            curves.append(level + there)
        weight = np.exp(np.array(weights) - max(weights))
        np.testing.assert_allclose(few[k], weight / weight.sum() @ np.array(curves), atol=1e-6)


@given(
    seed=st.integers(0, 10_000),
    exponent=st.sampled_from([1.0, 1.5, 3.0, 16.0]),
    at=st.sets(st.integers(0, 7), min_size=1, max_size=4),
)
def test_every_roofline_is_within_what_the_clocks_allow(seed, exponent, at):
    shares = np.random.default_rng(seed).dirichlet([0.3, 0.3, 0.3], 1)
    log_s = scaled(shares, exponent) - 3.0
    mine = without(measured(log_s, np.array([50.0])), "kernel-0", sorted(at))
    low, high = allowed_log_s(mine, *MHZ.T)
    assert (low <= log_s[0] + 1e-9).all()
    assert (high >= log_s[0] - 1e-9).all()
    np.testing.assert_allclose(low[sorted(at)], log_s[0, sorted(at)])
    np.testing.assert_allclose(high[sorted(at)], log_s[0, sorted(at)])


def test_what_the_clocks_allow_by_hand():
    mine = without(measured(np.zeros((1, 8)), np.array([50.0])), "kernel-0", [0])  # 400/500 MHz
    low, high = allowed_log_s(
        mine, np.array([200.0, 800.0, 200.0]), np.array([1000.0, 1500.0, 500.0])
    )
    np.testing.assert_allclose(low, np.log([1 / 2, 1 / 3, 1.0]))
    np.testing.assert_allclose(high, np.log([2.0, 1.0, 2.0]))


@pytest.mark.parametrize("settings", [3, 4])
def test_few_settings_are_not_taken_for_no_knowledge(settings):
    """Times from few settings are unsure, but within bounds: so are the losses expected."""
    data = grid_observations(11, kernels=16, noise=0.02)
    made = few_cross_validate(data, settings, draws=4, model="choi", voltage="known")
    lost = made.choosers["model"].mean_lost_pct
    stated = made.as_dict()["expected_loss_pct"]
    assert lost / 4 - 1.0 < stated < 4 * lost + 3.0


def trial(
    predicted_j: list[list[float]],
    measured_j: list[list[float]],
    others_j: Sequence[list[list[float]]] | None = None,
) -> FewTrial:
    """By kernel: at three settings, with times that do not matter. The others predict what the
    model does, unless it is said."""
    predicted, seen = np.array(predicted_j, float).T, np.array(measured_j, float).T
    others = [predicted_j, predicted_j] if others_j is None else others_j
    return FewTrial(
        settings=[Setting(1.0), Setting(2.0), Setting(3.0)],
        hidden=np.array([False, True, True]),
        predicted_j=predicted,
        predicted_s=np.ones_like(predicted),
        others_j=np.stack([np.array(one, float).T for one in others]),
        measured_j=seen,
        measured_s=np.ones_like(seen),
        regressed_log_j={},
    )


BAD = trial([[9, 9, 1], [9, 9, 1], [9, 9, 1]], [[1, 2, 3], [1, 2, 3], [1.5, 1, 3]])
GOOD = trial([[1, 2, 9], [1, 2, 9], [2, 1, 9]], [[1, 2, 3], [1, 2, 3], [1.5, 1, 3]])


def test_a_trial_weighs_predictions_by_what_they_were_off():
    """At the second and third setting: the model is off by a factor of e, the process by sqrt(e),
    the regression by e^2, so that their mean squared errors are 1, 1/4 and 4."""
    measured_j = [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    e = float(np.e)
    by_process = [[1, e**0.5, e**-0.5], [1, e**0.5, e**0.5]]
    by_regression = [[1, e**-2, e**2], [1, e**2, e**2]]
    few = trial([[1, e, 1 / e], [1, e, e]], measured_j, [by_process, by_regression])
    assert few.weights == pytest.approx(np.array([1.0, 4.0, 0.25]) / 5.25)
    # The average is off by these weights of the signed errors.
    of_first = np.array([-(1.0 + 4.0 * 0.5 - 0.25 * 2.0), 1.0 + 4.0 * 0.5 - 0.25 * 2.0]) / 5.25
    of_second = np.array([-(1.0 + 4.0 * 0.5 + 0.25 * 2.0)] * 2) / 5.25
    squares = np.mean(np.concatenate([of_first, of_second]) ** 2)
    assert few.error_ratio == pytest.approx(max(squares**0.5, 0.5))
    assert few.errors is None, "two kernels are too few"


def kernels_that_err(seed: int, gain: float, kernels: int = 25) -> FewTrial:
    """``kernels`` at 12 settings, of which one was measured: of each setting's log energy a part
    ``gain`` is predicted. A kernel's errors are alike, beside some of each setting's own."""
    rng, shape = np.random.default_rng(seed), (12, kernels)
    predicted = 0.05 * rng.normal(size=shape)
    log_j = gain * predicted + 0.2 * rng.normal(size=kernels) + 0.02 * rng.normal(size=shape)
    log_j[0] = predicted[0] = 1.0
    hidden = np.arange(12) > 0
    return FewTrial(
        settings=[Setting(float(i)) for i in range(12)],
        hidden=hidden,
        predicted_j=np.exp(predicted),
        predicted_s=np.ones(shape),
        others_j=np.exp(np.stack([predicted, predicted])),
        measured_j=np.exp(log_j),
        measured_s=np.full(shape, 2.0),
        regressed_log_j={},
    )


def said_best(few: FewTrial, share: float) -> float:
    """How many of the picks are said to be the best: by draws of the errors of the other kernels,
    a share of which is each setting's own."""
    assert few.errors is not None
    errors = np.nan_to_num(few.errors.log_j)
    deviation = np.sqrt(np.mean(errors**2, axis=1))
    rng, said = np.random.default_rng(3), 0.0
    for k in range(errors.shape[1]):
        log_j = np.log(few.predicted_j[:, k])
        others = np.array([i for i in range(errors.shape[1]) if i != k])
        drawn = log_j + np.sqrt(1 - share**2) * errors[:, rng.choice(others, 4000)].T
        drawn += share * deviation * rng.normal(size=drawn.shape)
        said += np.mean(drawn.argmin(axis=1) == log_j.argmin())
    return said


def test_picks_of_the_others_are_as_often_the_best_as_said():
    """The least of twelve predictions of which a fifth is real is said to be the best too often
    by errors that are alike at all settings. With predictions that are right but for noise, it is
    not."""
    for seed in range(4):
        few = kernels_that_err(seed, 0.2)
        assert few.errors is not None
        plain = np.log(few.measured_j / few.predicted_j)
        assert np.isnan(few.errors.log_j[0]).all() and np.isnan(few.errors.log_s[0]).all()
        np.testing.assert_allclose(few.errors.log_j[1:], plain[1:])
        np.testing.assert_allclose(few.errors.log_s[1:], np.log(2.0))
        share = few.errors.own_share
        assert 0.0 < share < 1.0
        best = (few.measured_j.argmin(axis=0) == few.predicted_j.argmin(axis=0)).sum()
        assert said_best(few, 0.0) > best + 2
        away = [abs(said_best(few, other) - best) for other in (share, *SHARES)]
        assert away[0] <= min(away) + 0.5
        assert max(away) > away[0] + 2.0
    right = [kernels_that_err(seed, 1.0).errors for seed in range(5)]
    assert np.median([errors.own_share for errors in right if errors is not None]) <= 0.1


def test_the_errors_of_twenty_other_kernels_are_enough():
    assert kernels_that_err(0, 0.2, 19).errors is None
    assert kernels_that_err(0, 0.2, 20).errors is not None


def test_a_trial_picks_by_the_average_and_by_how_far_the_predictions_are_apart():
    """Of two kernels, the model and the regression predict half of what the third setting costs,
    the process the truth there and half of the second: a pick by either alone would lose."""
    model_j, process_j = [[1, 2, 0.5], [1, 2, 0.5]], [[1, 0.5, 3], [1, 0.5, 3]]
    few = trial(model_j, [[1, 2, 3], [1, 2, 3]], [process_j, model_j])
    # Errors log 6 of the model and of the regression, log 4 of the process.
    squares = np.array([np.log(6.0), np.log(4.0), np.log(6.0)]) ** 2
    assert few.weights == pytest.approx(1 / squares / (1 / squares).sum())
    weight = few.weights[1]
    second, third = (
        np.log(by_model) + weight * np.log(by_process / by_model)
        + CAUTION * np.sqrt(weight * (1 - weight)) * abs(np.log(by_process / by_model))
        for by_model, by_process in ((2.0, 0.5), (0.5, 3.0))
    )  # fmt: skip
    least = int(np.argmin([0.0, second, third]))
    assert few.lost_pct(objective("energy"))[0] == pytest.approx([0.0, 100.0, 200.0][least])
    assert least == 0


def candidates_with(few: FewTrial) -> Candidates:
    return Candidates(
        kernel="k",
        params={},
        label="k",
        settings=few.settings,
        energy_j=np.array([2.0, 1.0, 3.0]),
        time_s=np.array([3.0, 2.0, 1.0]),
        measured=np.array([False, True, False]),
        measured_j=np.array([np.nan, 1.0, np.nan]),
        few=few,
    )


def test_what_a_trial_lost_by_hand():
    energy = objective("energy")
    # The model picks the third setting. Without the first kernel the others have, over the two,
    # 50 % and 0 + 100 %, so the first setting is the best single one; so it is for the third.
    assert BAD.lost_pct(energy) == pytest.approx((200.0, 50.0 / 3))
    assert GOOD.lost_pct(energy) == pytest.approx((0.0, 50.0 / 3))
    assert BAD.best_single(energy) == Setting(1.0)


def test_the_best_single_setting_of_a_kernel_is_that_of_the_others():
    apart = trial([[1, 2, 9], [2, 1, 9]], [[1, 2, 3], [2, 1, 3]])
    assert apart.lost_pct(objective("energy")) == pytest.approx((0.0, 100.0))


def test_the_best_single_setting_within_limits_that_leave_out_others():
    few = trial([[9, 9, 1], [9, 9, 1]], [[2, 1, 3], [2, 1, 3]])
    among = candidates_with(few)
    assert pick(among).core_mhz == 2.0
    assert pick(among, max_slowdown=1.0).core_mhz == 2.0  # leaves out the first setting


@pytest.mark.parametrize(
    ("few", "chosen_by", "core_mhz"), [(BAD, "best_single", 1.0), (GOOD, "model", 2.0)]
)
def test_the_one_that_loses_less_chooses(few, chosen_by, core_mhz):
    among = candidates_with(few)
    chosen = pick(among)
    assert (chosen.chosen_by, chosen.core_mhz) == (chosen_by, core_mhz)
    assert chosen.best_single_lost_pct == pytest.approx(50.0 / 3)
    assert chosen.model_lost_pct == pytest.approx(few.lost_pct(objective("energy"))[0])
    # Where the limits leave out the best single setting, the model chooses among the rest.
    limited = pick(among, max_slowdown=1.0)
    assert (limited.chosen_by, limited.core_mhz) == ("model", 2.0)
    assert pick(replace(among, few=None)).chosen_by == "model"


def test_trials_hide_what_was_not_measured_and_keep_what_was():
    data = grid_observations(4, kernels=9, noise=0.02)
    data = without(data, "kernel-2", [0, 5])
    fitted = fit(data, "choi", "known", intervals=False)
    trials = few_trials(fitted, data, sorted(set(data.kernel.tolist())))
    assert list(trials) == ["kernel-2"]
    one = trials["kernel-2"]
    assert one.measured_j.shape == (8, 8)  # settings, kernels that were measured everywhere
    few = np.isin(np.arange(8), [0, 5])
    np.testing.assert_array_equal(one.predicted_j[few], one.measured_j[few])
    assert (one.predicted_j[~few] != one.measured_j[~few]).all()
    np.testing.assert_allclose(one.predicted_j, one.measured_j, rtol=0.5)
    # What is hidden of a kernel says nothing of its own predictions.
    strange = (data.kernel == "kernel-4") & ~np.isin(data.setting, [0, 5])
    changed = replace(data, energy_j=np.where(strange, 2.0, 1.0) * data.energy_j)
    other = few_trials(fitted, changed, ["kernel-2"])["kernel-2"]
    whole = [label for label in sorted(set(data.kernel.tolist())) if label != "kernel-2"]
    own = whole.index("kernel-4")
    np.testing.assert_allclose(other.predicted_j[~few, own], one.predicted_j[~few, own])
    assert (other.predicted_j[~few] != one.predicted_j[~few]).any()


@pytest.mark.parametrize("others", [19, 24])
def test_a_kernel_with_few_settings_errs_as_the_others_did_when_they_were_tried(others):
    """A draw has the errors of one of them, of energy and of time, at all settings together, and
    in energy errors of each setting's own; with fewer than 20 of them it has neither."""
    data = without(grid_observations(6, kernels=others + 1, noise=0.05), "kernel-3", [0, 5])
    among = all_candidates(fit(data, "choi", "known"), data)["kernel-3"]
    few, draws_j, draws_s = among.few, among.energy_draws_j, among.time_draws_s
    assert few is not None and draws_j is not None and draws_s is not None
    hidden = np.array([setting not in (0, 5) for setting in range(8)])
    place = [among.settings.index(setting) for setting in few.settings]
    of_time = np.log(draws_s / among.time_s[:, None])[place][hidden]
    if others < 20:
        assert few.errors is None
        assert len(np.unique(of_time.round(9), axis=1).T) > 900
        return
    assert few.errors is not None
    log_j, log_s, share = few.errors.log_j[hidden], few.errors.log_s[hidden], few.errors.own_share
    of_each = np.arange(1000) % others
    np.testing.assert_allclose(of_time, log_s[:, of_each], atol=1e-12)
    deviation = np.sqrt(np.mean(log_j**2, axis=1))
    of_energy = np.log(draws_j / among.energy_j[:, None])[place][hidden]
    own = of_energy - np.sqrt(1 - share**2) * log_j[:, of_each]
    np.testing.assert_allclose(own.std(axis=1), share * deviation, rtol=0.1)
    np.testing.assert_allclose(np.sqrt(np.mean(of_energy**2, axis=1)), deviation, rtol=0.15)
    if share:
        between = np.corrcoef(own)[~np.eye(len(own), dtype=bool)]
        assert np.abs(between).max() < 0.15
    # At the few the draws are of what their measurements leave open.
    assert len(np.unique(draws_j[place[0]].round(9))) > 400


def test_a_pick_for_a_kernel_with_one_setting_knows_how_little_it_knows():
    data = grid_observations(6, kernels=14, counted=0.0, noise=0.02)
    few = without(data, "kernel-3", [0])
    fitted = fit(few, "choi", "known")
    unsure = all_candidates(fitted, few)["kernel-3"]
    sure = all_candidates(fit(data, "choi", "known"), data)["kernel-3"]
    hidden = ~unsure.measured
    spread = [np.log(c.time_draws_s[hidden]).std(axis=1) for c in (unsure, sure)]
    assert (spread[0] > 5 * spread[1]).all()
    assert unsure.few is not None
    assert sure.few is None


def test_a_fold_sees_of_a_new_kernel_its_own_settings_alone():
    data = grid_observations(2, kernels=10)
    labels = sorted(set(data.kernel.tolist()))
    judged = []
    for fold in few_folds(data, labels, 6, 2, 1):
        new = np.isin(data.kernel.astype(str), fold.judged)
        assert len(fold.own) == 2
        assert set(data.setting[fold.seen & new]) == set(fold.own)
        assert len(set(data.setting[fold.seen & ~new])) == 6
        np.testing.assert_array_equal(fold.others, fold.seen & ~new)
        judged += fold.judged
    assert sorted(judged) == labels


def test_few_measurements_by_brute_force():
    data = grid_observations(2, kernels=10, noise=0.02)
    made = few_cross_validate(data, None, 1, draws=1, model="choi", voltage="known")
    assert len(made.cases) == 10
    energy = {
        label: [
            data.energy_j[(data.kernel == label) & (data.setting == s)].mean() for s in range(8)
        ]
        for label in set(data.kernel.tolist())
    }
    for case in made.cases:
        own = np.array(energy[case.label])
        above = (own / own.min() - 1) * 100
        others = [np.array(e) / min(e) for label, e in energy.items() if label != case.label]
        assert case.lost_pct["best_single"] == pytest.approx(
            above[np.argmin(np.sum(others, axis=0))]
        )
        assert case.lost_pct["random"] == pytest.approx(above.mean())
        assert min(abs(above - case.lost_pct["model"])) < 1e-9
        assert case.lost_pct["best_measured"] in above
    choosers = made.choosers
    assert choosers["random"].mean_lost_pct == pytest.approx(
        np.mean([case.lost_pct["random"] for case in made.cases])
    )


def test_a_cross_validation_with_predicted_times_learns_from_the_other_kernels():
    """Each fold's times, kernel by kernel; the folds leave gaps in some kernels."""
    log_s, watts = two_kinds(noise=0.02)
    data = measured(log_s, watts)
    made = cross_validate(data, "kfold:8", "choi", voltage="unit", time="predicted")
    fold = np.random.default_rng(SEED).permutation(len(data)) % 8
    expected, learned = np.full(len(data), np.nan), 0
    for number in range(8):
        training, model = data.take(fold != number), fit_time(data.take(fold != number))
        for row in np.flatnonzero(fold == number):
            label, mhz = data.kernel[row], (data.core_mhz[[row]], data.mem_mhz[[row]])
            few = few_setting_times(training, model, [label], *mhz)
            learned += label in few
            expected[row] = few[label].time_s[0] if few else model.time_s(label, *mhz)[0]
    assert learned > 20
    np.testing.assert_allclose(made.time_error_pct, np.abs(expected / data.time_s - 1.0) * 100.0)


def test_refits_go_no_further_than_the_clocks_allow():
    log_s, watts = two_kinds(noise=0.1)
    data = measured(log_s, watts)
    data = data.take(np.isin(data.setting, [0, 3, 6]))
    model = fit_time(data)
    refits = refit_times(data, model, ["kernel-0", "kernel-1"], *MHZ.T)
    capped = 0
    for label, deviation in refits.deviation.items():
        low, high = allowed_log_s(data.take(data.kernel == label), *MHZ.T)
        off = np.log(model.time_s(label, *MHZ.T)) - (low + high) / 2.0
        widest = np.sqrt(np.maximum(high - low, 0.0) ** 2 / 12.0 + off**2)
        std = np.sqrt((deviation**2).sum(axis=0))
        assert (std <= widest * (1 + 1e-9)).all()
        capped += int(np.isclose(std, widest).sum())
    assert 0 < capped < 16


def test_all_kernels_at_few_settings():
    data = grid_observations(2, kernels=8, noise=0.02)
    made = few_cross_validate(data, 3, draws=2, model="choi", voltage="known")
    assert (len(made.cases), made.settings, made.new) == (16, 3, None)
    assert {case.draw for case in made.cases} == {0, 1}
    # Nothing of the settings that were not drawn is looked at.
    more = few_cross_validate(data, 7, draws=2, model="choi", voltage="known")
    assert more.choosers["model"].mean_lost_pct <= made.choosers["model"].mean_lost_pct + 1.0


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
    with pytest.raises(CantFit) as caught:
        few_cross_validate(grid_observations(2), settings, new)
    assert str(caught.value) == said


def test_picks_say_who_chose():
    data = without(grid_observations(4, kernels=9, noise=0.02), "kernel-2", [0])
    by_label = {one.label: one for one in picks(fit(data, "choi", "known"), data)}
    assert np.isfinite(by_label["kernel-2"].model_lost_pct)
    assert np.isnan(by_label["kernel-0"].model_lost_pct)
    assert by_label["kernel-0"].chosen_by == "model"


def test_few_needs_two_settings_and_a_kernel_that_was_measured_at_all_of_them():
    data = grid_observations(2)
    with pytest.raises(CantFit, match="at two settings or more; synthetic has one"):
        few_cross_validate(data.take(data.setting == 3), 1)
    gaps = data.take(kernel_numbers(data) != data.setting)
    with pytest.raises(CantFit, match="at every setting; measure some at all of them"):
        few_cross_validate(gaps, 3)
    # A holdout then has nothing to judge, however little there is to fit.
    assert judge_holdout(gaps, gaps.setting < 1) == []
