"""Times of rows that a fold holds out, where the model is not given the measured ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analysis.measurements.observations import Observations, kernel_names
from analysis.rooflines.roofline import fastest_setting
from analysis.time.class_roofline import fit_class_roofline
from analysis.time.few_settings import few_setting_times
from analysis.time.kernel_roofline import fit_time


def with_predicted_time(training: Observations, held_out: Observations) -> Observations:
    """The times of each held-out kernel by the time model of the training rows."""
    times = fit_time(training)
    time_s = np.empty(len(held_out))
    kernels, settings = kernel_names(held_out), np.unique(held_out.setting)
    mhz = held_out.mhz[settings]
    few = few_setting_times(training, times, kernels, *mhz.T)
    for kernel in kernels:
        mine = held_out.kernel == kernel
        if kernel in few:
            time_s[mine] = few[kernel].time_s[np.searchsorted(settings, held_out.setting[mine])]
        else:
            core_mhz, mem_mhz = held_out.core_mhz[mine], held_out.mem_mhz[mine]
            time_s[mine] = times.time_s(kernel, core_mhz, mem_mhz)
    return replace(held_out, time_s=time_s)


def with_profile_time(
    data: Observations, training: Observations, held_out: Observations
) -> Observations:
    """The times of each held-out kernel by the class roofline, from its counts and its time at the
    fastest setting.

    That one time is the kernel's profile: it alone is taken from the rows held out.
    """
    ceilings = fit_class_roofline(training)
    base = fastest_setting(training)
    time_s = np.full(len(held_out), np.nan)
    for kernel in kernel_names(held_out):
        profile = data.take((data.kernel == kernel) & (data.setting == base))
        if not len(profile):
            continue
        mine = held_out.kernel == kernel
        time_s[mine] = ceilings.time_s(
            {name: float(values[0]) for name, values in profile.counts.items()},
            float(profile.time_s.mean()),
            data.settings[base],
            held_out.core_mhz[mine],
            held_out.mem_mhz[mine],
        )
    return replace(held_out, time_s=time_s)
