"""Energies of variants that were never measured are those of rows with the same counts and time."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.choice.variant_prices import energies_j
from analysis.energy.fit import fit
from analysis.measurements.observations import FitError
from tests.analysis.synthetic import grid_observations


@pytest.mark.parametrize("setting", [0, 3, 7])
def test_counts_and_a_time_cost_what_a_measured_row_with_them_would(setting):
    """With a clock tree, whose power follows both clocks."""
    data = grid_observations(4, 6, noise=0.01)
    model = fit(data, "choi+clock", "known", intervals=False)
    rows = data.take(data.setting == setting)
    volts = float(rows.core_v[0]), float(rows.mem_v[0])
    found = energies_j(model, data, rows.counts, rows.time_s, data.settings[setting], volts)
    np.testing.assert_allclose(found, model.energy_j(rows), rtol=1e-12)


def test_a_class_that_the_fit_does_not_know_is_named_with_those_that_it_has():
    data = grid_observations(4, 6, noise=0.01)
    model = fit(data, "choi", "known", intervals=False)
    one = {"sp": np.array([1e9]), "dp": np.array([0.0])}
    asked = (np.array([0.1]), data.settings[0], (1.0, 1.0))
    assert energies_j(model, data, one, *asked).shape == (1,)  # nothing of it was counted
    said = "the fit of synthetic has no class 'dp'; it has dram, int, sp: measure a kernel that"
    with pytest.raises(FitError, match=said):
        energies_j(model, data, one | {"dp": np.array([1e9])}, *asked)
