"""Where the energy goes: parts that sum to the prediction, against eq. 9 written out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.energy.breakdown import by_class, by_domain, by_kind, by_phase, term_energy_j
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


@pytest.mark.parametrize("model", ["choi", "choi+clock"])
@pytest.mark.parametrize("split", [term_energy_j, by_class, by_domain, by_kind])
def test_parts_sum_to_the_prediction(data, model, split):
    with_clock = fit(data, model)
    parts = split(with_clock, data)
    assert parts["energy_j"].dims[0] == "row"
    np.testing.assert_allclose(
        parts["energy_j"].values.sum(axis=1), with_clock.energy_j(data), rtol=1e-14
    )
    np.testing.assert_allclose(parts["share"].values.sum(axis=1), 1.0, rtol=1e-14)
    assert (parts["energy_j"].values >= 0).all()


def test_each_class_is_its_count_times_its_cost(data, fitted):
    parts = by_class(fitted, data)["energy_j"]
    assert set(parts["part"].values) == {*data.counts, "constant"}
    for name, counts in data.counts.items():
        volts = data.mem_v if name == "dram" else data.core_v
        expected = np.nan_to_num(counts) * value(fitted, f"c0_{name}") * 1e-12 * volts**2
        np.testing.assert_allclose(parts.sel(part=name), expected, rtol=1e-12)
    power = (
        value(fitted, "c1_core") * data.core_v
        + value(fitted, "c1_mem") * data.mem_v
        + value(fitted, "p_misc")
    )
    np.testing.assert_allclose(parts.sel(part="constant"), power * data.time_s, rtol=1e-12)


def test_domains_and_kinds_are_sums_of_classes(data, fitted):
    classes = by_class(fitted, data)["energy_j"]
    domains, kinds = by_domain(fitted, data)["energy_j"], by_kind(fitted, data)["energy_j"]
    core = classes.sel(part=["sp", "dp", "int", "shared", "l2"]).sum("part")
    np.testing.assert_allclose(domains.sel(domain="core"), core, rtol=1e-12)
    np.testing.assert_allclose(domains.sel(domain="memory"), classes.sel(part="dram"), rtol=1e-12)
    moved = classes.sel(part=["dram", "shared", "l2"]).sum("part")
    np.testing.assert_allclose(kinds.sel(kind="data"), moved, rtol=1e-12)
    computed = classes.sel(part=["sp", "dp", "int"]).sum("part")
    np.testing.assert_allclose(kinds.sel(kind="computation"), computed, rtol=1e-12)
    for constant in (domains.sel(domain="constant"), kinds.sel(kind="constant")):
        np.testing.assert_allclose(constant, classes.sel(part="constant"), rtol=1e-12)


def test_the_clock_trees_are_named(data):
    with_clock = fit(data, "choi+clock")
    parts = by_class(with_clock, data)["energy_j"]
    assert list(parts["part"].values)[-2:] == ["clock", "constant"]
    expected = (
        value(with_clock, "g_core") * data.core_v**2 * data.core_mhz
        + value(with_clock, "g_mem") * data.mem_v**2 * data.mem_mhz
    ) * data.time_s
    np.testing.assert_allclose(parts.sel(part="clock"), expected, rtol=1e-12, atol=1e-15)


def test_kernels_without_counts_are_split_by_domain(data):
    blind = replace(data, counts={}, domains={})
    lumped = fit(blind, "choi")
    parts = by_class(lumped, blind)
    assert set(parts["part"].values) == {"core", "memory", "constant"}
    np.testing.assert_allclose(
        parts["energy_j"].values.sum(axis=1), lumped.energy_j(blind), rtol=1e-14
    )
    kinds = by_kind(lumped, blind)["energy_j"]
    np.testing.assert_allclose(kinds.sel(kind="data"), parts["energy_j"].sel(part="memory"))


def test_phases_are_sums_of_their_rows(data, fitted):
    phase = np.where(data.labels == "sp-1", "near", np.where(data.counts["dp"] > 0, "far", "rest"))
    split = by_phase(fitted, data, phase)
    predicted = fitted.energy_j(data)
    for name in ("near", "far", "rest"):
        assert float(split["energy_j"].sel(phase=name).sum()) == pytest.approx(
            predicted[phase == name].sum(), rel=1e-12
        )
    assert float(split["share"].sum()) == pytest.approx(1.0, rel=1e-12)
    with pytest.raises(ValueError, match="one label a row"):
        by_phase(fitted, data, phase[:-1])


def test_units_and_rows_are_labelled(data, fitted):
    split = by_class(fitted, data)
    assert split["energy_j"].attrs["units"] == "J"
    assert split["share"].attrs["units"] == "1"
    assert split["core_mhz"].attrs["units"] == "MHz"
    assert split.attrs == {"site": "tk1", "simulated": True}
    np.testing.assert_array_equal(split["kernel"].values, data.labels)
