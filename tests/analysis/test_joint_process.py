"""Gaussian processes of cells that are each kernel's own, beside one matrix of all cells."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from analysis.energy.joint_process import (
    LEVEL_VARIANCE,
    SHARES,
    JointProcess,
    fit_joint_process,
    have_own_settings,
)
from analysis.energy.process import NOISES, REACHES, fit_process

MHZ = np.array([(core, mem) for core in (400.0, 550.0, 700.0, 1000.0) for mem in (500.0, 900.0)])
WANTED = np.array([(450.0, 500.0), (700.0, 900.0), (2000.0, 700.0)])


def cells(seed=3, kernels=5):
    """Log energies (kernels, 8) of smooth curves, each kernel at three to six settings of its own;
    two have the same ones, and each setting is someone's."""
    rng = np.random.default_rng(seed)
    level, slope = rng.normal(size=(2, kernels, 1))
    log_j = level + np.log(MHZ[:, 0] / 620.0) ** 2 + 0.1 * slope * np.log(MHZ[:, 1] / 700.0)
    log_j = log_j + rng.normal(0.0, 0.01, log_j.shape)
    for kernel in range(kernels):
        log_j[kernel, rng.choice(8, 2 + kernel % 4, replace=False)] = np.nan
    log_j[1, np.isnan(log_j[0])] = np.nan
    log_j[1, np.isfinite(log_j[0])] = level[1]
    return log_j


def covariances(process, wanted, kernel):
    """Of all cells (N, N), of a kernel's energy at the settings ``wanted`` with them (M, N), and
    before anything was measured (M,), number by number."""
    logs = np.log(process.range_mhz)
    span = np.ptp(logs, axis=0)

    def near(one, other):
        away = (np.log(one) - np.log(other)) / span
        return np.exp(-0.5 * (away @ away) / process.reach**2)

    def between(k, x, j, y):
        own = process.share * near(x, y) + LEVEL_VARIANCE if k == j else 0.0
        return near(x, y) + own

    places = [(k, MHZ[s]) for k, s in np.argwhere(np.isfinite(process.log_j))]
    held = np.array([[between(*one, *other) for other in places] for one in places])
    held += process.noise * np.eye(len(places))
    cross = np.array([[between(kernel, x, *other) for other in places] for x in wanted])
    return held, cross, np.array([between(kernel, x, kernel, x) for x in wanted])


def by_hand(process):
    """The measured log energies about each kernel's mean, and these means."""
    kernel = np.nonzero(np.isfinite(process.log_j))[0]
    middle = np.nanmean(process.log_j, axis=1)
    return process.log_j[np.isfinite(process.log_j)] - middle[kernel], middle


@pytest.mark.parametrize("noise", [1e-4, 0.1])
@pytest.mark.parametrize("share", [0.01, 1.0])
@pytest.mark.parametrize("range_mhz", [MHZ, np.sqrt(MHZ)])
def test_predictions_and_variances_are_those_of_all_cells(noise, share, range_mhz):
    process = JointProcess(
        range_mhz=range_mhz, mhz=MHZ, log_j=cells(), reach=0.6, share=share, noise=noise
    )
    away, middle = by_hand(process)
    found = process.at(WANTED)
    for kernel in range(5):
        held, cross, before = covariances(process, WANTED, kernel)
        inverse = np.linalg.inv(held)
        scale = away @ inverse @ away / len(away)
        np.testing.assert_allclose(
            found.log_j[kernel], middle[kernel] + cross @ inverse @ away, atol=1e-5
        )
        variance = scale * (before - np.sum((cross @ inverse) * cross, axis=1))
        np.testing.assert_allclose(found.variance[kernel], variance, rtol=2e-3)


def test_a_cell_left_out_is_predicted_from_all_others():
    """By the matrix without its row and column; the mean of its kernel, which sets the level only
    as far as one of ``LEVEL_VARIANCE`` can, stays that of all."""
    log_j = cells()
    process = JointProcess(range_mhz=MHZ, mhz=MHZ, log_j=log_j, reach=0.6, share=0.1, noise=1e-3)
    away, middle = by_hand(process)
    found = process.left_out()
    np.testing.assert_array_equal(np.isfinite(found.log_j), np.isfinite(log_j))
    held, _, _ = covariances(process, MHZ, 0)
    scale = away @ np.linalg.inv(held) @ away / len(away)
    for i, (kernel, setting) in enumerate(np.argwhere(np.isfinite(log_j))):
        rest = np.delete(np.arange(len(away)), i)
        weights = np.linalg.solve(held[np.ix_(rest, rest)], held[rest, i])
        expected = middle[kernel] + weights @ away[rest]
        assert found.log_j[kernel, setting] == pytest.approx(expected, abs=1e-5)
        variance = scale * (held[i, i] - weights @ held[rest, i])
        assert found.variance[kernel, setting] == pytest.approx(variance, rel=1e-3)


def test_the_likeliest_of_all_that_are_tried_is_taken():
    log_j = cells()
    found = fit_joint_process(MHZ, log_j)
    likely = {}
    for reach, share, noise in itertools.product(REACHES, SHARES, NOISES):
        one = JointProcess(
            range_mhz=MHZ, mhz=MHZ, log_j=log_j, reach=reach, share=share, noise=noise
        )
        away, _ = by_hand(one)
        held, _, _ = covariances(one, MHZ[:1], 0)
        scale = away @ np.linalg.inv(held) @ away / len(away)
        likely[reach, share, noise] = stats.multivariate_normal.logpdf(away, cov=scale * held)
    best = max(likely, key=likely.__getitem__)
    assert (found.reach, found.share, found.noise) == best


def test_the_choice_of_kernels_is_not_taken_for_the_curve():
    """Kernels of three slopes, the steep ones not measured at the highest clocks and the flat ones
    not at the lowest: means over whichever are at a setting are far off."""
    mhz = np.column_stack([np.geomspace(400.0, 1000.0, 8), np.full(8, np.nan)])
    slope = np.repeat([0.2, 0.6, 1.0], 4)[:, None]
    log_j = np.arange(12.0)[:, None] + slope * np.log(mhz[:, 0] / 400.0)
    seen = log_j.copy()
    seen[:4, :2] = np.nan
    seen[4:8, [0, 7]] = np.nan
    seen[8:, 6:] = np.nan
    hidden = np.isnan(seen)
    error = np.abs(fit_joint_process(mhz, seen).at(mhz).log_j - log_j)[hidden]
    by_means = np.abs(fit_process(mhz, seen).log_j(mhz) - log_j)[hidden]
    assert error.max() < 0.03
    assert by_means.max() > 0.1


def test_a_kernel_with_one_cell_is_predicted_by_the_shared_curve_and_not_left_out():
    log_j = cells()
    log_j[4] = np.nan
    log_j[4, 2] = 7.0
    process = fit_joint_process(MHZ, log_j)
    assert np.isnan(process.left_out().log_j[4]).all()
    assert process.at(MHZ).log_j[4, 2] == pytest.approx(7.0, abs=1e-3)
    assert np.isfinite(process.at(MHZ).log_j).all()


def test_half_of_the_kernels_decide():
    log_j = np.zeros((4, 3))
    assert not have_own_settings(log_j)
    log_j[0, 1] = np.nan
    assert not have_own_settings(log_j)
    log_j[1, 2] = np.nan
    assert have_own_settings(log_j)
