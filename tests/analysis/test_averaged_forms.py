"""Energies averaged over forms: against loops over all forms, and devices."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from analysis.energy import averaged_forms
from analysis.energy.averaged_forms import (
    DEVIATIONS,
    EXPONENTS,
    KNEES,
    LOWEST_VOLTS,
    MEMORY_SHARES,
    ONE_VOLTAGE,
    SHARES_OF_TWO,
    STEEPEST,
    TIME_SHARES,
    average_forms,
    varying_domains,
)

MHZ = np.array([[1200.0], [1500.0], [1800.0], [2400.0], [2700.0], [3000.0]])
TWO_MHZ = np.array(list(itertools.product([500.0, 700.0, 900.0], [400.0, 1000.0])))
NAN = np.nan
UNKNOWN, TWO_UNKNOWN = np.full((6, 1), NAN), np.full((6, 2), NAN)
"""Voltages."""


def curves_of(mhz):
    """Relative voltages of one domain at its clocks, a list for each curve."""
    low, top = min(mhz), max(mhz)
    curves = [[1.0] * len(mhz)]
    for knee, volt in itertools.product(KNEES, LOWEST_VOLTS):
        start = low + knee * (top - low)
        # Half of the voltage for a fifth of the clock is what no device has.
        if (1 - volt) / (1 - start / top) < STEEPEST + 1e-9:
            curves.append([volt + (1 - volt) * max(f - start, 0) / (top - start) for f in mhz])
    return curves


def energies(mhz, slower):
    """(curve, share) -> energies at all settings relative to the highest clocks, by every form,
    and (curve) -> how likely the curve is before anything is measured."""
    if mhz.shape[1] == 1:
        curves = list(itertools.product(curves_of(mhz[:, 0]), EXPONENTS))
        return {
            (c, share): [share * t + (1 - share) * v**p for t, v in zip(slower, volts, strict=True)]
            for c, (volts, p) in enumerate(curves)
            for share in TIME_SHARES
        }, dict.fromkeys(range(len(curves)), 1.0)
    result = {}
    curves = list(itertools.product(curves_of(mhz[:, 0]), curves_of(mhz[:, 1]), EXPONENTS))
    for c, (core_v, mem_v, p) in enumerate(curves):
        for constant, core_tree, mem_tree in itertools.product(*SHARES_OF_TWO):
            left = 1 - constant - core_tree - mem_tree
            if left < 0.01:
                continue
            for of_memory in MEMORY_SHARES:
                result[c, (constant, core_tree, mem_tree, of_memory)] = [
                    slower[m]
                    * (
                        constant
                        + core_tree * core_v[m] ** 2 * mhz[m, 0] / max(mhz[:, 0])
                        + mem_tree * mem_v[m] ** 2 * mhz[m, 1] / max(mhz[:, 1])
                    )
                    + left * ((1 - of_memory) * core_v[m] ** p + of_memory * mem_v[m] ** p)
                    for m in range(len(mhz))
                ]
    flat = [min(mem_v) == max(mem_v) for _, mem_v, _ in curves]
    prior = [
        ONE_VOLTAGE / sum(flat) if one else (1 - ONE_VOLTAGE) / (len(flat) - sum(flat))
        for one in flat
    ]
    return result, dict(enumerate(prior))


def by_loops(mhz, log_j, time_s, left_out=None, left_out_s=None):
    """The same, form by form: log energies (K, M); with ``left_out``, a setting that is not looked
    at and whose time is ``left_out_s``."""
    at_top = list(mhz.sum(axis=1)).index(max(mhz.sum(axis=1)))
    kernels = range(len(log_j))
    likelihood, predicted = {}, {}
    for k in kernels:
        slower = [t / time_s[k][at_top] for t in time_s[k]]
        if left_out is not None:
            slower[left_out] = left_out_s[k][left_out] / time_s[k][at_top]
        forms, prior = energies(mhz, slower)
        seen = [m for m in range(len(mhz)) if math.isfinite(log_j[k][m]) and m != left_out]
        for (c, share), form in forms.items():
            away = [log_j[k][m] - math.log(form[m]) for m in seen]
            level = sum(away) / len(away)
            predicted[k, c, share] = [value * math.exp(level) for value in form]
            for deviation in DEVIATIONS:
                product = 1.0
                for value in away:
                    product *= math.exp(-((value - level) ** 2) / (2 * deviation**2)) / deviation
                likelihood[k, c, share, deviation] = product * deviation
    curves = sorted({c for c, _ in forms})
    shares = [share for c, share in forms if c == 0]
    result = np.zeros((len(log_j), len(mhz)))
    for k in kernels:
        total = 0.0
        for c, deviation in itertools.product(curves, DEVIATIONS):
            others = prior[c] * math.prod(
                sum(likelihood[j, c, share, deviation] for share in shares)
                for j in kernels
                if j != k
            )
            for share in shares:
                weight = others * likelihood[k, c, share, deviation]
                total += weight
                result[k] += weight * np.array(predicted[k, c, share])
        result[k] = np.log(result[k] / total)
    return result


def case():
    """Three kernels that lack settings, one with a single one, and times of no form."""
    rng = np.random.default_rng(7)
    log_j = rng.normal(0.0, 0.05, (3, 6)) + np.log(MHZ[:, 0] / 3000.0)
    log_j[0, [1, 4]] = NAN
    log_j[1, [2, 3, 5]] = NAN
    log_j[2, 1:] = NAN
    mhz = MHZ[:, 0]
    time_s = np.stack([3000.0 / mhz, 0.5 + 1500.0 / mhz, 3000.0 / mhz])
    time_s *= rng.uniform(0.98, 1.02, (3, 6))
    return log_j, time_s, time_s * rng.uniform(0.9, 1.1, (3, 6))


def two_clocks():
    """The same over two clocks, times of a roofline that is not quite one."""
    rng = np.random.default_rng(8)
    core, mem = (TWO_MHZ / TWO_MHZ.max(axis=0)).T
    log_j = rng.normal(0.0, 0.05, (3, 6)) + 0.3 * np.log(core) - 0.2 * np.log(mem)
    log_j[0, [1, 4]] = NAN
    log_j[1, [2, 3, 5]] = NAN
    log_j[2, 1:] = NAN
    time_s = np.stack([1.0 / core, 0.3 / core + 0.7 / mem, 1.0 / mem])
    time_s *= rng.uniform(0.98, 1.02, (3, 6))
    return log_j, time_s, time_s * rng.uniform(0.9, 1.1, (3, 6))


@pytest.fixture(params=["one clock", "two clocks"])
def sites(request, monkeypatch):
    """Clocks, unknown voltages, and a case; over two clocks few enough curves that all count."""
    if request.param == "one clock":
        return MHZ, UNKNOWN, *case()
    for name, values in (("LOWEST_VOLTS", (0.7, 0.9)), ("KNEES", (0.0, 0.6))):
        monkeypatch.setattr(averaged_forms, name, values)
        monkeypatch.setitem(globals(), name, values)
    return TWO_MHZ, TWO_UNKNOWN, *two_clocks()


def test_all_forms_count_by_how_likely_they_make_the_measured_energies(sites):
    mhz, volts, log_j, time_s, left_out_s = sites
    found = average_forms(mhz, volts, log_j, time_s, left_out_s)
    np.testing.assert_allclose(found.log_j, by_loops(mhz, log_j, time_s), rtol=1e-9)
    for setting in range(6):
        others = [k for k in range(3) if k < 2 or setting != 0]
        without = by_loops(mhz, log_j[others], time_s[others], setting, left_out_s[others])
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
    mhz = MHZ[:, 0]
    volts = rising(mhz, volt, knee)
    time_s = 3000.0 / mhz
    exact = np.log(np.array([[0.25], [0.6]]) * time_s + np.array([[0.75], [0.4]]) * volts**exponent)
    log_j = np.full(exact.shape, NAN)
    log_j[:, [0, 2, 3, 5]] = exact[:, [0, 2, 3, 5]]
    time_s = np.tile(time_s, (2, 1))
    found = average_forms(MHZ, UNKNOWN, log_j, time_s, time_s)
    np.testing.assert_allclose(found.log_j, exact, atol=0.04)


def board(kernels=40):
    """Log energies and times (K, 25) of kernels on a board whose core voltage has a knee and whose
    memory has one voltage."""
    rng = np.random.default_rng(5)
    mhz = np.array(
        list(itertools.product(np.linspace(400, 1000, 5), [300.0, 500.0, 800.0, 1000.0, 1200.0]))
    )
    core, mem = (mhz / mhz.max(axis=0)).T
    of_core = rng.uniform(0.1, 1.0, (kernels, 1))
    time_s = of_core / core + (1.0 - of_core) / mem
    constant, tree = rng.uniform(0.1, 0.4, (2, kernels, 1))
    volts = rising(mhz[:, 0], 0.75, 0.3)
    energy = time_s * (constant + tree * volts**2 * core) + (1.0 - constant - tree) * volts**2
    return mhz, np.log(energy), time_s


def test_a_board_of_two_clocks_is_predicted_from_seven_settings():
    """Forty kernels at the same seven of 25 settings: within 3 % on average, the highest energies
    of memory-bound kernels within 10 %."""
    mhz, exact, time_s = board()
    log_j = np.full(exact.shape, NAN)
    few = [0, 4, 7, 11, 18, 20, 24]
    log_j[:, few] = exact[:, few]
    found = average_forms(mhz, np.full(mhz.shape, NAN), log_j, time_s, time_s)
    error = np.abs(found.log_j - exact)
    assert error.mean() < 0.03
    assert error.max() < 0.1
    assert np.abs(found.left_out_log_j - exact)[:, few].mean() < 0.06


def test_curves_that_are_unlikely_need_not_be_kept(monkeypatch):
    """Of 1,000 curves those that are e^-12 as likely as others, and eight kernels in forty."""
    mhz, exact, time_s = board()
    log_j = np.full(exact.shape, NAN)
    few = [0, 4, 7, 11, 18, 20, 24]
    log_j[:, few] = exact[:, few] + np.random.default_rng(1).normal(0.0, 0.02, (40, 7))
    arguments = mhz, np.full(mhz.shape, NAN), log_j, time_s, time_s
    some_judge = average_forms(*arguments)
    monkeypatch.setattr(averaged_forms, "JUDGES", 40)
    without_unlikely = average_forms(*arguments)
    monkeypatch.setattr(averaged_forms, "MANY_CURVES", 10**6)
    whole = average_forms(*arguments)
    np.testing.assert_allclose(without_unlikely.log_j, whole.log_j, atol=1e-4)
    away = np.abs(some_judge.log_j - whole.log_j)
    assert 0.0 < away.mean() < 0.005


def rising(mhz, volt, knee):
    """One voltage up to a knee, then a straight rise to 1."""
    start = mhz.min() + knee * (mhz.max() - mhz.min())
    return volt + (1 - volt) * np.maximum(mhz - start, 0) / (mhz.max() - start)


def test_units_do_not_matter(sites):
    mhz, volts, log_j, time_s, left_out_s = sites
    found = average_forms(mhz, volts, log_j, time_s, left_out_s)
    other = average_forms(mhz * 1e6, volts, log_j + 20.0, time_s * 1e12, left_out_s * 1e12)
    np.testing.assert_allclose(other.log_j - 20.0, found.log_j, rtol=1e-9)
    np.testing.assert_allclose(other.left_out_log_j - 20.0, found.left_out_log_j, rtol=1e-9)


def test_the_domains_whose_clocks_vary():
    mhz = MHZ[:, 0]
    one = np.column_stack([mhz, np.full(6, NAN)])
    assert varying_domains(one) == (0,)
    assert varying_domains(one[:, ::-1]) == (1,)
    assert varying_domains(np.column_stack([mhz, np.full(6, 800.0)])) == (0,)
    assert varying_domains(np.column_stack([mhz, mhz])) == (0, 1)
    assert varying_domains(np.full((6, 2), 800.0)) == ()
    one[2, 0] = NAN
    assert varying_domains(one) == ()


def test_known_voltages_are_the_curve():
    """From three settings all others are exact, but for the shares that are tried."""
    volts = np.array([0.8, 0.8, 0.83, 0.95, 1.0, 1.15])
    time_s = 3000.0 / MHZ[:, 0]
    exact = np.log(0.3 * time_s + 0.7 * (volts / 1.15) ** 2)
    log_j = exact.copy()
    log_j[[1, 2, 4]] = NAN
    found = average_forms(MHZ, volts[:, None], log_j[None], time_s[None], time_s[None])
    np.testing.assert_allclose(found.log_j[0], exact, atol=0.01)
    unknown = average_forms(MHZ, UNKNOWN, log_j[None], time_s[None], time_s[None])
    assert np.abs(unknown.log_j[0] - exact).max() > 0.02
