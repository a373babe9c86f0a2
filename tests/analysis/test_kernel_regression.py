"""Regression over kernels: against a fit for each kernel that is left out; energies learned so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.choice.candidates import all_candidates
from analysis.choice.few_energies import regressed_log_j
from analysis.choice.few_trial import few_trials
from analysis.energy.fit import fit
from analysis.energy.process import fit_process
from analysis.measurements.cells import cell_means
from analysis.time.kernel_regression import (
    PENALTIES,
    by_regression,
    log_rates,
    standardised,
)
from tests.analysis.synthetic import grid_observations

NOBODY = np.full(3, -1)


@pytest.fixture
def curves() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features (15, 2), what is wanted (15, 6), and the features of three new kernels."""
    rng = np.random.default_rng(4)
    x = standardised(rng.normal(size=(18, 2)), np.arange(15))
    slope = rng.normal(size=(2, 6))
    y = x @ slope + 0.4 * rng.normal(size=(18, 6)) + 3.0
    return x[:15], y[:15], x[15:]


def ridge(x: np.ndarray, y: np.ndarray, at: np.ndarray, penalty: float) -> np.ndarray:
    """Ridge regression by its normal equations, with a level of its own."""
    n = len(x)
    columns = np.column_stack([np.ones(n), x])
    normal = columns.T @ columns + np.diag([0.0] + [penalty * n] * x.shape[1])
    return np.column_stack([np.ones(len(at)), at]) @ np.linalg.solve(normal, columns.T @ y)


def test_new_kernels_are_predicted_by_the_penalty_that_predicts_the_others_best(curves):
    x, y, new = curves
    n, left_out = len(x), {}
    for penalty in PENALTIES:
        made = np.array(
            [
                # As many times the penalty as there are rows, with one of them left out.
                ridge(np.delete(x, i, 0), np.delete(y, i, 0), x[[i]], penalty * n / (n - 1))[0]
                for i in range(n)
            ]
        )
        left_out[penalty] = float(((made - y) ** 2).mean())
        if left_out[penalty] == min(left_out.values()):
            expected, without = ridge(x, y, new, penalty), made
    np.testing.assert_allclose(by_regression(x, y, new, NOBODY), expected, rtol=1e-9)
    itself = np.array([2, -1, 0])
    both = by_regression(x, y, np.vstack([x[2], new[1], x[0]]), itself)
    np.testing.assert_allclose(both, [without[2], expected[1], without[0]], rtol=1e-9)


def test_rates_are_relative_to_the_highest_of_the_others():
    counts = np.array([[10.0, 0.0], [40.0, 0.0], [400.0, 5.0]])
    rates = log_rates(counts, np.array([1.0, 2.0, 1.0]), np.array([0, 1]))
    np.testing.assert_allclose(rates[:, 0], np.log1p(20.0 * np.array([0.5, 1.0, 20.0])))
    assert (rates[:, 1] == 0.0).all(), "none of the others has such operations"


@pytest.fixture
def bent():
    """Kernels whose energies follow no term: each has some of one curve, as its power says."""
    data = grid_observations(6, kernels=24)
    rng = np.random.default_rng(2)
    names = sorted(set(data.kernel.tolist()))
    share = dict(zip(names, rng.uniform(0.0, 1.0, len(names)), strict=True))
    own = np.array([share[name] for name in data.kernel.tolist()])
    pattern = np.array([0.0, 0.5, -0.4, 0.3, 0.2, -0.5, 0.4, 0.0])[data.setting]
    top_s = {name: data.time_s[(data.kernel == name) & (data.setting == 7)][0] for name in names}
    time_s = np.array([top_s[name] for name in data.kernel.tolist()]) * (1.5 - 0.07 * data.setting)
    joules = time_s * 50.0 * np.exp(own * (1.0 + pattern))
    return replace(data, time_s=time_s, energy_j=joules), names


def lacking(data, label: str, few: list[int]):
    """Without a kernel's measurements at other settings than the few."""
    return data.take((data.kernel != label) | np.isin(data.setting, few))


def test_energies_that_no_term_describes_are_learned_from_the_other_kernels(bent):
    data, names = bent
    known = lacking(data, "kernel-3", [7])
    whole = [name for name in names if name != "kernel-3"]
    log_j = regressed_log_j(known, [7], whole, ["kernel-3"])
    true = cell_means(data, [*whole, "kernel-3"], np.log(data.energy_j))
    # Relative energies are linear in log power there.
    relative = true - true[:, [7]]
    away = log_j - log_j[:, [7]] - relative
    assert np.abs(away).mean() < 0.1 * np.abs(relative - relative.mean(axis=0)).mean()
    np.testing.assert_allclose(log_j[:, 7], true[:, 7])
    # What is hidden of a kernel says nothing of its own prediction.
    mine = (known.kernel == "kernel-5") & (known.setting == 2)
    other = replace(known, energy_j=np.where(mine, 3.0, 1.0) * known.energy_j)
    changed = regressed_log_j(other, [7], whole, ["kernel-3"])
    five = whole.index("kernel-5")
    np.testing.assert_allclose(changed[five, 2], log_j[five, 2], rtol=0.02)
    assert abs(changed[-1, 2] - log_j[-1, 2]) > 1e-4


def test_a_kernel_with_few_settings_has_the_average_that_its_trial_says(bent):
    data, _ = bent
    few = [0, 7]
    known = lacking(data, "kernel-3", few)
    fitted = fit(known, "choi", "known")
    trial = few_trials(fitted, known, ["kernel-3"])["kernel-3"]
    assert trial.weights[2] == trial.weights.max(), "no term describes these energies"
    hidden = ~np.isin(np.arange(8), few)
    alone = all_candidates(fitted, known, ["kernel-3"], averaged=False)["kernel-3"]
    among = all_candidates(fitted, known, ["kernel-3"])["kernel-3"]
    assert among.settings == trial.settings
    regressed = trial.regressed_log_j["kernel-3"]
    names = sorted(set(known.kernel.tolist()))
    measured = cell_means(known, names, np.log(known.energy_j))
    mhz = known.mhz
    process = fit_process(mhz, measured).log_j(mhz)[names.index("kernel-3")]
    log_j = np.log(among.energy_j)
    average = trial.weights @ np.stack([np.log(alone.energy_j), process, regressed])
    np.testing.assert_allclose(log_j[hidden], average[hidden])
    true = cell_means(data, ["kernel-3"], np.log(data.energy_j))[0]
    errors = [np.abs(one - true)[hidden].mean() for one in (np.log(alone.energy_j), log_j)]
    assert errors[1] < 0.7 * errors[0]
