"""Fits that a store keeps: read as they were written, and nothing else is taken for one."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import random

import numpy as np
import pytest

from analysis.energy.fit import fit
from analysis.energy.fit_file import NoFitError, as_kept, fit_of
from analysis.energy.fitted import Fit, costs_at
from analysis.measurements.observations import FitError
from dvfs.setting import Setting
from tests.analysis.synthetic import grid_observations
from tests.faults.fuzz.damage import as_json, change_json

FIVE_CLOCKS = (400.0, 500.0, 600.0, 800.0, 1000.0)


@pytest.fixture(scope="module")
def data():
    return grid_observations(3, noise=0.05, known_voltage=False, core_mhz=FIVE_CLOCKS)


@pytest.fixture(scope="module")
def fitted(data):
    """A fit with estimated voltages."""
    return fit(data, "choi+clock", "free")


def through_json(value: Fit) -> Fit:
    return fit_of(json.loads(json.dumps(as_kept(value))))


@pytest.mark.parametrize("voltage", ["floor", "free"])
@pytest.mark.parametrize("counted", [1.0, 0.5])
def test_a_fit_comes_back_as_it_was(voltage, counted):
    data = grid_observations(
        3, counted=counted, noise=0.05, known_voltage=False, core_mhz=FIVE_CLOCKS
    )
    fitted = fit(data.take(data.setting != 4), "choi+clock", voltage)
    assert len(fitted.curves.core.mhz) > 1
    again = through_json(fitted)
    for name in ("value", "low", "high", "deviations", "deviations_with_choice"):
        np.testing.assert_array_equal(getattr(again, name), getattr(fitted, name))
    np.testing.assert_array_equal(again.energy_j(data), fitted.energy_j(data))
    # Products of the same deviations: their last digit depends on where the arrays lie in memory.
    costs, before = (costs_at(one, Setting(700.0, 600.0), 1.0, 1.0) for one in (again, fitted))
    assert list(costs.operation_pj) == list(before.operation_pj)
    for name, found in costs.operation_pj.items():
        assert found == pytest.approx(before.operation_pj[name], rel=1e-12)
    assert costs.constant_w == pytest.approx(before.constant_w, rel=1e-12)
    assert again.as_dict() | {"tried": 0} == fitted.as_dict() | {"tried": 0}


def test_a_fit_of_an_earlier_version_is_read(fitted, data):
    """Its file may have covariances, and a surface, refits and a discrepancy, which energies by
    the coefficients do not need; and another record of a site that it started from."""
    kept = json.loads(json.dumps(as_kept(fitted)))
    older = {name: value for name, value in kept.items() if not name.startswith("deviations")}
    for name in ("covariance", "covariance_with_choice"):
        older[name] = getattr(fitted, name).tolist()
    older |= {"model": "choi+clock+surface", "surface": {"mhz": []}, "refits": None}
    apart = {"spread_pct": 5.0, "most_spread_pct": 9.0, "error_pct": 2.0}
    apart |= {"as_it_is_error_pct": 4.0, "alone_error_pct": None, "helps": True}
    older |= {"discrepancy": {"kernel": 0.1}, "like": {"site": "known"} | apart}
    again = fit_of(older)
    largest = fitted.covariance_with_choice.max()
    for name in ("covariance", "covariance_with_choice"):
        before, read = getattr(fitted, name), getattr(again, name)
        np.testing.assert_allclose(read, before, rtol=1e-9, atol=1e-12 * largest)
    np.testing.assert_array_equal(again.energy_j(data), fitted.energy_j(data))
    assert again.model == "choi+clock"
    assert (again.like.site, again.like.as_it_is_error_pct) == ("known", 4.0)
    assert (again.like.spread_pct, again.like.helps) == (5.0, True)
    with pytest.raises(NoFitError, match="a row and a column for each term"):
        fit_of(older | {"covariance": [[1.0]]})


def test_a_fit_without_intervals_comes_back(data):
    one = fit(data.take(data.setting == 0))
    again = through_json(one)
    assert np.isnan(again.low).all()
    np.testing.assert_array_equal(again.value, one.value)


def test_whatever_a_file_says_it_is_a_fit_that_can_be_used_or_none(fitted, data):
    kept = as_kept(fitted)
    rng = random.Random(1)
    taken = 0
    for _ in range(400):
        value = copy.deepcopy(kept)
        try:
            for _ in range(rng.choice([1, 1, 3])):
                value = change_json(rng, value)
            changed = json.loads(as_json(value))
        except (RecursionError, ValueError):  # no JSON
            continue
        try:
            read = fit_of(changed)
        except NoFitError:
            continue
        taken += 1
        json.dumps(read.as_dict())
        with np.errstate(all="ignore"), contextlib.suppress(FitError):
            costs_at(read, Setting(700.0, 600.0), 1.0, 1.0)
            assert read.parts_j(data).shape == (len(data), len(read.terms))
    assert 20 < taken < 380


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (["terms", 0, "kind"], "watts", "terms: 0: kind"),
        (["terms", 0, "domain"], "", "terms: 0: a term of kind"),
        (["deviations"], [[1.0]], "a column for each term"),
        (["deviations_with_choice"], None, "either deviations or a covariance"),
        (["coefficients", 0, "value"], math.nan, "coefficients: 0: value"),
        (["coefficients", 0, "name"], "other", "the terms must be those"),
        (["curves", "core"], [[1.0, 2.0], [1.0]], "as many volts as MHz"),
        (["curves", "core"], [[2.0, 1.0], [1.0, 1.0]], "must rise"),
        (["n_settings"], 10**400, "n_settings"),
        (["simulated"], "no", "simulated"),
    ],
)
def test_what_is_wrong_in_a_fit_is_named(fitted, path, value, said):
    kept = copy.deepcopy(as_kept(fitted))
    inner = kept
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    with pytest.raises(NoFitError, match=said):
        fit_of(kept)
