"""Where the energy goes: parts that sum to the prediction, against eq. 9 written out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.energy.breakdown import Parts, class_parts, kind_parts, phase_parts
from analysis.energy.fit import fit
from analysis.measurements.observations import observations
from tests.analysis.simulated_tk1 import simulated_columns


@pytest.fixture(scope="module")
def data():
    return observations(simulated_columns("default", per_family=4), "tk1")


@pytest.fixture(scope="module")
def fitted(data):
    return fit(data, "choi")


def value(fitted, name):
    return float(fitted.value[[term.name for term in fitted.terms].index(name)])


def part(parts: Parts, *names: str) -> np.ndarray:
    """The joules of some parts together, of each row."""
    return sum(parts.energy_j[:, parts.names.index(name)] for name in names)


@pytest.mark.parametrize("model", ["choi", "choi+clock"])
@pytest.mark.parametrize("split", [class_parts, kind_parts])
def test_parts_sum_to_the_prediction(data, model, split):
    with_clock = fit(data, model)
    parts = split(with_clock, data)
    np.testing.assert_allclose(parts.energy_j.sum(axis=1), with_clock.energy_j(data), rtol=1e-14)
    np.testing.assert_allclose(parts.share.sum(axis=1), 1.0, rtol=1e-14)
    assert (parts.energy_j >= 0).all()


def test_each_class_is_its_count_times_its_cost(data, fitted):
    parts = class_parts(fitted, data)
    assert set(parts.names) == {*data.counts, "constant"}
    for name, counts in data.counts.items():
        volts = data.mem_v if name == "dram" else data.core_v
        expected = np.nan_to_num(counts) * value(fitted, f"c0_{name}") * 1e-12 * volts**2
        np.testing.assert_allclose(part(parts, name), expected, rtol=1e-12)
    power = (
        value(fitted, "c1_core") * data.core_v
        + value(fitted, "c1_mem") * data.mem_v
        + value(fitted, "p_misc")
    )
    np.testing.assert_allclose(part(parts, "constant"), power * data.time_s, rtol=1e-12)


def test_kinds_are_sums_of_classes(data, fitted):
    classes, kinds = class_parts(fitted, data), kind_parts(fitted, data)
    moved = part(classes, "dram", "shared", "l2")
    np.testing.assert_allclose(part(kinds, "data"), moved, rtol=1e-12)
    computed = part(classes, "sp", "dp", "int")
    np.testing.assert_allclose(part(kinds, "computation"), computed, rtol=1e-12)
    np.testing.assert_allclose(part(kinds, "constant"), part(classes, "constant"), rtol=1e-12)


def test_the_clock_trees_are_named(data):
    with_clock = fit(data, "choi+clock")
    parts = class_parts(with_clock, data)
    assert parts.names[-2:] == ["clock", "constant"]
    expected = (
        value(with_clock, "g_core") * data.core_v**2 * data.core_mhz
        + value(with_clock, "g_mem") * data.mem_v**2 * data.mem_mhz
    ) * data.time_s
    np.testing.assert_allclose(part(parts, "clock"), expected, rtol=1e-12, atol=1e-15)


def test_kernels_without_counts_are_split_by_domain(data):
    blind = replace(data, counts={}, domains={})
    lumped = fit(blind, "choi")
    parts = class_parts(lumped, blind)
    assert set(parts.names) == {"core", "memory", "constant"}
    np.testing.assert_allclose(parts.energy_j.sum(axis=1), lumped.energy_j(blind), rtol=1e-14)
    np.testing.assert_allclose(part(kind_parts(lumped, blind), "data"), part(parts, "memory"))


def test_phases_are_sums_of_their_rows(data, fitted):
    phase = np.where(data.labels == "sp-1", "near", np.where(data.counts["dp"] > 0, "far", "rest"))
    phases, parts = phase_parts(fitted, data, phase)
    assert sorted(phases) == ["far", "near", "rest"]
    predicted = fitted.energy_j(data)
    for name, joules in zip(phases, parts.energy_j, strict=True):
        assert joules.sum() == pytest.approx(predicted[phase == name].sum(), rel=1e-12)
