"""Energies over one clock: the average over curves against loops over all forms, and devices."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from analysis.energy.one_clock import (
    DEVIATIONS,
    EXPONENTS,
    KNEES,
    LOWEST_VOLTS,
    TIME_SHARES,
    energies_over_one_clock,
    varying_domain,
)

MHZ = np.array([1200.0, 1500.0, 1800.0, 2400.0, 2700.0, 3000.0])
NAN = np.nan
UNKNOWN = np.full(6, NAN)
"""Voltages."""


def by_loops(mhz, log_j, time_s, left_out=None, left_out_s=None):
    """The same, form by form: log energies (K, M); with ``left_out``, a setting that is not looked
    at and whose time is ``left_out_s``."""
    low, top = min(mhz), max(mhz)
    at_top = list(mhz).index(top)
    curves = [[1.0] * len(mhz)]
    for knee, volt, exponent in itertools.product(KNEES, LOWEST_VOLTS, EXPONENTS):
        start = low + knee * (top - low)
        curves.append(
            [(volt + (1 - volt) * max(f - start, 0) / (top - start)) ** exponent for f in mhz]
        )
    kernels = range(len(log_j))
    likelihood, predicted = {}, {}
    for k, (c, curve), share in itertools.product(kernels, enumerate(curves), TIME_SHARES):
        slower = [t / time_s[k][at_top] for t in time_s[k]]
        if left_out is not None:
            slower[left_out] = left_out_s[k][left_out] / time_s[k][at_top]
        form = [math.log(share * t + (1 - share) * u) for t, u in zip(slower, curve, strict=True)]
        seen = [m for m in range(len(mhz)) if math.isfinite(log_j[k][m]) and m != left_out]
        away = [log_j[k][m] - form[m] for m in seen]
        level = sum(away) / len(away)
        predicted[k, c, share] = [value + level for value in form]
        for deviation in DEVIATIONS:
            product = 1.0
            for value in away:
                product *= math.exp(-((value - level) ** 2) / (2 * deviation**2)) / deviation
            likelihood[k, c, share, deviation] = product * deviation
    result = np.zeros((len(log_j), len(mhz)))
    for k in kernels:
        total = 0.0
        for c, deviation in itertools.product(range(len(curves)), DEVIATIONS):
            others = math.prod(
                sum(likelihood[j, c, share, deviation] for share in TIME_SHARES)
                for j in kernels
                if j != k
            )
            for share in TIME_SHARES:
                weight = others * likelihood[k, c, share, deviation]
                total += weight
                result[k] += weight * np.array(predicted[k, c, share])
        result[k] /= total
    return result


def case():
    """Three kernels that lack settings, one with a single one, and times of no form."""
    rng = np.random.default_rng(7)
    log_j = rng.normal(0.0, 0.05, (3, 6)) + np.log(MHZ / 3000.0)
    log_j[0, [1, 4]] = NAN
    log_j[1, [2, 3, 5]] = NAN
    log_j[2, 1:] = NAN
    time_s = np.stack([3000.0 / MHZ, 0.5 + 1500.0 / MHZ, 3000.0 / MHZ])
    time_s *= rng.uniform(0.98, 1.02, (3, 6))
    return log_j, time_s, time_s * rng.uniform(0.9, 1.1, (3, 6))


def test_all_forms_count_by_how_likely_they_make_the_measured_energies():
    log_j, time_s, left_out_s = case()
    found = energies_over_one_clock(MHZ, UNKNOWN, log_j, time_s, left_out_s)
    np.testing.assert_allclose(found.log_j, by_loops(MHZ, log_j, time_s), rtol=1e-9)
    for setting in range(6):
        others = [k for k in range(3) if k < 2 or setting != 0]
        without = by_loops(MHZ, log_j[others], time_s[others], setting, left_out_s[others])
        for kernel in range(3):
            if np.isfinite(log_j[kernel, setting]) and kernel < 2:
                assert found.left_out_log_j[kernel, setting] == pytest.approx(
                    without[kernel, setting], rel=1e-9
                )
            else:
                assert np.isnan(found.left_out_log_j[kernel, setting])


@pytest.mark.parametrize(
    ("volt", "knee", "exponent"), [(0.6, 0.4, 2), (0.75, 0.1, 3), (1.0, 0.0, 2)]
)
def test_a_device_is_predicted_from_four_settings(volt, knee, exponent):
    """Within 4 %, also by curves between those that are tried."""
    start = MHZ[0] + knee * (MHZ[-1] - MHZ[0])
    volts = volt + (1 - volt) * np.maximum(MHZ - start, 0) / (MHZ[-1] - start)
    time_s = 3000.0 / MHZ
    exact = np.log(np.array([[0.25], [0.6]]) * time_s + np.array([[0.75], [0.4]]) * volts**exponent)
    log_j = np.full(exact.shape, NAN)
    log_j[:, [0, 2, 3, 5]] = exact[:, [0, 2, 3, 5]]
    time_s = np.tile(time_s, (2, 1))
    found = energies_over_one_clock(MHZ, UNKNOWN, log_j, time_s, time_s)
    np.testing.assert_allclose(found.log_j, exact, atol=0.04)


def test_units_do_not_matter():
    log_j, time_s, left_out_s = case()
    found = energies_over_one_clock(MHZ, UNKNOWN, log_j, time_s, left_out_s)
    other = energies_over_one_clock(
        MHZ * 1e6, UNKNOWN, log_j + 20.0, time_s * 1e12, left_out_s * 1e12
    )
    np.testing.assert_allclose(other.log_j - 20.0, found.log_j, rtol=1e-9)
    np.testing.assert_allclose(other.left_out_log_j - 20.0, found.left_out_log_j, rtol=1e-9)


def test_the_domain_whose_clock_varies():
    one = np.column_stack([MHZ, np.full(6, NAN)])
    assert varying_domain(one) == 0
    assert varying_domain(one[:, ::-1]) == 1
    assert varying_domain(np.column_stack([MHZ, np.full(6, 800.0)])) == 0
    assert varying_domain(np.column_stack([MHZ, MHZ])) is None
    assert varying_domain(np.full((6, 2), 800.0)) is None
    one[2, 0] = NAN
    assert varying_domain(one) is None


def test_known_voltages_are_the_curve():
    """From three settings all others are exact, but for the shares that are tried."""
    volts = np.array([0.8, 0.8, 0.83, 0.95, 1.0, 1.15])
    time_s = 3000.0 / MHZ
    exact = np.log(0.3 * time_s + 0.7 * (volts / 1.15) ** 2)
    log_j = exact.copy()
    log_j[[1, 2, 4]] = NAN
    found = energies_over_one_clock(MHZ, volts, log_j[None], time_s[None], time_s[None])
    np.testing.assert_allclose(found.log_j[0], exact, atol=0.01)
    unknown = energies_over_one_clock(MHZ, UNKNOWN, log_j[None], time_s[None], time_s[None])
    assert np.abs(unknown.log_j[0] - exact).max() > 0.02
