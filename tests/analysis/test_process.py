"""Energies by Gaussian processes over the clocks, beside plain loops and known curves."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.energy.process import fit_process, left_out_log_j

MHZ = np.array([(core, mem) for core in (400.0, 550.0, 700.0, 1000.0) for mem in (500.0, 900.0)])


def curve(mhz: np.ndarray) -> np.ndarray:
    """A smooth curve with its least between the clocks."""
    return (np.log(mhz[:, 0] / 620.0)) ** 2 + 0.2 * np.log(mhz[:, 1] / 900.0)


def energies(kernels: int, own: float = 0.0, seed: int = 1) -> np.ndarray:
    """Log energies (kernels, 8): a level of each kernel, the curve, and as much of a slope of its
    own."""
    rng = np.random.default_rng(seed)
    level, slope = rng.normal(size=(2, kernels, 1))
    return level + curve(MHZ) + own * slope * np.log(MHZ[:, 0] / 620.0)


def gaussian_process(at, values, wanted, shape, range_mhz=None):
    """The textbook's posterior mean, number by number; distances in the range of log clocks."""
    reach, noise = shape
    logs, new = np.log(at), np.log(wanted)
    ends = logs if range_mhz is None else np.log(range_mhz)
    span = ends.max(axis=0) - ends.min(axis=0)
    span[span == 0] = 1.0

    def near(one, other):
        return np.exp(-0.5 * (((one - other) / span) ** 2).sum() / reach**2)

    held = np.array([[near(a, b) for b in logs] for a in logs]) + noise * np.eye(len(logs))
    inverse = np.linalg.inv(held)
    return np.array([np.array([near(a, b) for b in logs]) @ inverse @ values for a in new])


@pytest.mark.parametrize("range_mhz", [None, MHZ * [1.0, 2.0], np.sqrt(MHZ)])
def test_predictions_are_those_of_the_textbook(range_mhz):
    log_j = energies(5, own=0.1)
    seen = [0, 2, 3, 5, 6]
    process = fit_process(MHZ[seen], log_j[:, seen], range_mhz)
    level = log_j[:, seen].mean(axis=1)
    shared = (log_j[:, seen] - level[:, None]).mean(axis=0)
    found = process.log_j(MHZ)
    for kernel in range(5):
        own = log_j[kernel, seen] - level[kernel] - shared
        expected = (
            level[kernel]
            + gaussian_process(MHZ[seen], shared, MHZ, process.shape, range_mhz)
            + gaussian_process(MHZ[seen], own, MHZ, process.own_shape, range_mhz)
        )
        np.testing.assert_allclose(found[kernel], expected, rtol=1e-9, atol=1e-9)


def test_a_smooth_curve_is_found_between_the_settings():
    """With seven clocks; what a straight line between the neighbours would be off is much more."""
    mhz = np.column_stack([np.geomspace(400.0, 1000.0, 7), np.full(7, np.nan)])
    log_j = np.array([[0.3], [-1.0]]) + 4.0 * np.log(mhz[:, 0] / 620.0) ** 2
    seen = np.delete(np.arange(7), 3)
    found = fit_process(mhz[seen], log_j[:, seen]).log_j(mhz)[:, 3]
    straight = (log_j[:, 2] + log_j[:, 4]) / 2
    assert np.abs(straight - log_j[:, 3]).min() > 0.08
    assert np.abs(found - log_j[:, 3]).max() < 0.02


def test_far_from_the_settings_a_kernel_goes_back_to_its_level():
    log_j = energies(4)
    far = fit_process(MHZ, log_j).log_j(np.array([[1e6, 1e6]]))[:, 0]
    np.testing.assert_allclose(far, log_j.mean(axis=1), atol=1e-6)


def test_a_kernel_with_one_setting_has_the_curve_of_the_others():
    log_j = energies(6)
    known = log_j.copy()
    known[5, 1:] = np.nan
    found = fit_process(MHZ, known).log_j(MHZ)
    np.testing.assert_allclose(found[5], log_j[5], atol=0.03)


def test_a_kernel_without_clocks_of_memory():
    mhz = np.column_stack([MHZ[::2, 0], np.full(4, np.nan)])
    log_j = energies(3)[:, ::2]
    np.testing.assert_allclose(fit_process(mhz, log_j).log_j(mhz), log_j, atol=0.02)


@pytest.mark.parametrize("missing", [False, True])
def test_left_out_settings_are_predicted_by_the_others(missing):
    log_j = energies(5, own=0.2)
    if missing:
        log_j[2, 3:] = np.nan
    process = fit_process(MHZ, log_j)
    found = left_out_log_j(process)
    for s in range(8):
        rest = np.delete(np.arange(8), s)
        other = fit_process(MHZ[rest], log_j[:, rest])
        if (other.shape, other.own_shape) == (process.shape, process.own_shape):
            np.testing.assert_allclose(found[:, s], other.log_j(MHZ[[s]])[:, 0], rtol=1e-9)
    changed = log_j.copy()
    changed[:, 0] += 100.0
    shaped = type(process)(
        process.mhz, process.level, process.shared, changed - process.level[:, None]
        - process.shared, process.shape, process.own_shape,
    )  # fmt: skip
    np.testing.assert_allclose(left_out_log_j(shaped)[:, 0], found[:, 0], rtol=1e-9)


def test_a_kernel_that_has_no_other_setting_is_not_predicted():
    log_j = energies(3)
    log_j[1, 1:] = np.nan
    left_out = left_out_log_j(fit_process(MHZ, log_j))
    assert np.isnan(left_out[1, 0])
    assert np.isfinite(left_out[[0, 2]]).all()
