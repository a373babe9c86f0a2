"""The kernels of a known site at settings of another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from analysis.choice.candidates import Volts, all_candidates, at_settings, measured_volts
from analysis.energy.fitted import Fit
from analysis.measurements.observations import Observations


def at_each_setting(
    fitted: Fit, data: Observations, volts: Volts, kernels: Sequence[str] | None = None
) -> Observations:
    """A row for each of ``kernels`` (all by default) at each setting that was measured or is one
    of ``volts``: a kernel's settings together, sorted.

    Times and energies are the measured means where there are, else those of the time model and of
    the fit.
    """
    among = all_candidates(fitted, data, kernels, volts)
    settings = next(iter(among.values())).settings
    first = {label: row for row, label in reversed(list(enumerate(data.kernel.tolist())))}
    rows = data.take(np.repeat([first[label] for label in among], len(settings)))
    time_s = np.array([one.time_s for one in among.values()])
    there = at_settings(rows, settings, {**volts, **measured_volts(data)}, time_s)
    energy_j = np.array([one.energy_j for one in among.values()])
    measured_j = np.array([one.measured_j for one in among.values()])
    return replace(there, energy_j=np.where(np.isnan(measured_j), energy_j, measured_j).ravel())
