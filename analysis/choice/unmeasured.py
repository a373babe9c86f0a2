"""Energies of variants that were never measured, from their counts, times and a site's fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from analysis.energy.fitted import Fit
from analysis.measurements.observations import FitError, Observations
from dvfs.setting import Setting, clock_columns


def energies_j(
    fitted: Fit,
    data: Observations,
    counts: Mapping[str, np.ndarray],
    time_s: np.ndarray,
    setting: Setting,
    volts: tuple[float, float],
) -> np.ndarray:
    """The energy (n,) of variants at one setting (Choi & Vuduc 2016, eq. 9), in J.

    ``data``: the measurements of the fit; ``counts``: the site's classes -> operations (n,);
    ``time_s``: (n,); ``volts``: core and memory voltage at the setting.

    Raises:
        FitError: a class is counted that the fit has no coefficient of.
    """
    classes = {term.of for term in fitted.terms if term.pays_for == "operation"}
    left_out = {entry["name"].removeprefix("c0_") for entry in fitted.dropped}
    for name, values in counts.items():
        if values.any() and name not in classes | left_out:
            raise FitError(
                f"the fit of {fitted.site} has no class {name!r}; it has "
                f"{', '.join(sorted(classes)) or 'none'}: measure a kernel that counts it, and fit "
                f"again"
            )
    n = len(time_s)
    zero = np.zeros(n)
    (mhz,) = clock_columns([setting])
    rows = replace(
        data.take(np.zeros(n, np.int64)),
        kernel=np.full(n, "", object),
        instances={},
        core_mhz=np.full(n, mhz[0]),
        mem_mhz=np.full(n, mhz[1]),
        core_v=np.full(n, volts[0]),
        mem_v=np.full(n, volts[1]),
        time_s=time_s,
        counts={name: counts.get(name, zero) for name in data.counts},
        setting=np.zeros(n, np.int64),
        settings=[setting],
    )
    return fitted.energy_j(rows)
