"""The time of a kernel that was only profiled, at any setting, and how far it may be off.

Its counts and its time at one setting give its times elsewhere by the class roofline
(:mod:`analysis.time.class_roofline`). Where enough other kernels with counts were measured at that
setting, this prediction is one of those that are put together as for kernels measured at few
settings (:mod:`analysis.time.few_settings`), with weights found on the other kernels.
"""

from __future__ import annotations

import numpy as np

from analysis.measurements.observations import CantFit, Observations
from analysis.time.class_roofline import fit_class_roofline
from analysis.time.few_settings import ProfileTimes, profile_stack
from analysis.time.held_out_rooflines import ProfiledRun, fit_held_out
from analysis.time.kernel_roofline import fit_time
from dvfs.setting import Setting


def profile_times(
    data: Observations, run: ProfiledRun, core_mhz: np.ndarray, mem_mhz: np.ndarray
) -> ProfileTimes:
    """The times of a profiled kernel at M settings, learned from the kernels of ``data``.

    Where too few of these can be tried, they are the class roofline's, as unsure as that is of the
    kernels that it was fitted to, and ``error_pct`` is NaN.

    Raises:
        CantFit: there are too few kernels with counts.
    """
    roofline = fit_class_roofline(data)
    counted = data.take(data.has_counts)
    try:
        rooflines = fit_held_out(counted, roofline)
    except CantFit:
        stacked = None
    else:
        model = fit_time(counted)
        stacked = profile_stack(counted, model, run, rooflines, core_mhz, mem_mhz)
    if stacked is not None:
        return stacked
    here = [setting == run.setting for setting in map(Setting.of, core_mhz, mem_mhz)]
    spread = np.where(here, 0.0, roofline.spread)
    return ProfileTimes(
        np.exp(run.log_s(roofline, core_mhz, mem_mhz)), np.diag(spread), float("nan")
    )
