"""Energies of variants that were never measured are those of rows with the same counts and time."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.choice.unmeasured import energies_j
from analysis.energy.fit import fit
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
