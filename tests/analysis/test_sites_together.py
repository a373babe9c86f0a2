"""leave-one-site-out, and the pooling that it rests on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analysis.choice.crossval import leave_one_site_out
from analysis.energy.fit import fit
from analysis.measurements.observations import FitError, pooled
from tests.analysis.synthetic import grid_observations


@pytest.fixture
def sites():
    one = replace(grid_observations(1), site="one")
    other = replace(grid_observations(2, core_mhz=(500.0, 700.0, 1000.0)), site="other")
    return [one, other]


def test_sites_of_the_same_machine_predict_each_other(sites):
    judged = leave_one_site_out(sites, "choi+clock", "known")
    assert judged.n_folds == 2
    assert judged.n == sum(map(len, sites))
    assert judged.as_dict()["mape_pct"] < 0.5


def test_each_site_is_predicted_by_the_fit_of_the_others(sites):
    judged = leave_one_site_out(sites, "choi+clock", "known")
    alone = fit(sites[1], "choi+clock", "known", intervals=False).energy_j(sites[0])
    np.testing.assert_allclose(judged.predicted_j[: len(sites[0])], alone, rtol=1e-9)


def test_uncertain_energies_count_less_in_the_fit_of_the_others(sites):
    """As in the fit of that site alone; the first site states no uncertainties."""
    other = sites[1]
    is_uncertain = np.arange(len(other)) % 3 == 0
    stated = replace(
        other,
        energy_j=np.where(is_uncertain, 1.2, 1.0) * other.energy_j,
        energy_std_j=np.where(is_uncertain, 0.2, 0.001) * other.energy_j,
    )
    judged = leave_one_site_out([sites[0], stated], "choi+clock", "known")
    alone = fit(stated, "choi+clock", "known", intervals=False).energy_j(sites[0])
    np.testing.assert_allclose(judged.predicted_j[: len(sites[0])], alone, rtol=1e-9)
    assert np.abs(alone / sites[0].energy_j - 1.0).mean() < 0.01


def test_a_site_with_other_coefficients_shows(sites):
    other = replace(sites[1], energy_j=sites[1].energy_j * 1.5)
    error = leave_one_site_out([sites[0], other], "choi+clock", "known").as_dict()["mape_pct"]
    assert error > 20


def test_sites_of_other_speeds_are_no_repeats_of_each_other(sites):
    """Repeats are equal here, so that of a kernel the fastest settings alone are equally fast."""
    one = sites[0].take(np.tile(np.arange(len(sites[0])), 2))
    slow = replace(one, site="slow", time_s=2.0 * one.time_s, energy_j=2.0 * one.energy_j)
    cases = leave_one_site_out([one, slow], "choi", "known").cases
    lost = {}
    for kernel in set(one.labels.tolist()):
        rows = one.labels == kernel
        fast = one.time_s[rows] <= one.time_s[rows].min() * (1 + 1e-9)
        least_j = one.energy_j[rows][fast].min()
        lost[kernel] = 100.0 * (least_j / one.energy_j[rows].min() - 1.0)
    assert len(cases) == 2 * len(lost) and max(lost.values()) > 1.0
    for case in cases:
        expected = lost[case.label.partition(": ")[2]]
        assert case.mean_pct("race_to_halt_best") == pytest.approx(expected, rel=1e-6)


def test_pooled_rows_keep_their_settings(sites):
    data, place = pooled(sites)
    for i, site in enumerate(sites):
        mine = data.take(place == i)
        for row in range(len(site)):
            assert data.settings[mine.setting[row]] == site.settings[site.setting[row]]
    assert len(set(data.settings)) == len(data.settings)


def test_one_site_or_mixed_voltages_are_refused(sites):
    with pytest.raises(FitError, match="two sites"):
        leave_one_site_out(sites[:1])
    mixed = [sites[0], replace(sites[1], voltage="unit")]
    with pytest.raises(FitError, match="different origins"):
        leave_one_site_out(mixed)


def test_sites_of_which_one_lacks_memory_voltages_have_none(sites):
    one, other = sites
    none = [replace(data, mem_v=np.ones(len(data)), mem_volts_known=False) for data in sites]
    expected = leave_one_site_out(none, "choi", "known").predicted_j
    for mixed in ([one, none[1]], [none[0], other]):
        found = leave_one_site_out(mixed, "choi", "known").predicted_j
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_sites_that_disagree_on_the_domain_of_a_class_are_refused(sites):
    name = sorted(sites[0].counts)[0]
    other = {"core": "mem", "mem": "core"}[sites[1].domains[name]]
    apart = replace(sites[1], domains=sites[1].domains | {name: other})
    with pytest.raises(FitError, match=f"class {name} belongs to the core domain in some"):
        leave_one_site_out([sites[0], apart])
