"""Class rooflines for kernels of the site that are taken as if they had only been profiled.

A profiled kernel's time follows from the class roofline of all other kernels
(:mod:`analysis.time.class_roofline`). To know how good that is, each other kernel is predicted by
a class roofline that was fitted without it: the kernels are left out in :data:`PARTS` parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analysis.measurements.observations import Observations, kernel_names
from analysis.time.class_roofline import ClassRoofline, fit_class_roofline
from dvfs.setting import Setting

PARTS = 4
SEED = 20261124


@dataclass(frozen=True)
class ProfiledRun:
    """What is known of a kernel that was only profiled: the operations of its run by class, and
    the run's time at one setting."""

    counts: Mapping[str, float]
    time_s: float
    setting: Setting

    def log_s(
        self, roofline: ClassRoofline, core_mhz: np.ndarray, mem_mhz: np.ndarray
    ) -> np.ndarray:
        """Log times by a class roofline at settings (M,)."""
        time_s = roofline.time_s(self.counts, self.time_s, self.setting, core_mhz, mem_mhz)
        return np.log(time_s)


@dataclass(frozen=True)
class HeldOutRooflines:
    """``whole``: of all kernels; ``without``: by kernel, that of the others."""

    whole: ClassRoofline
    without: Mapping[str, ClassRoofline]


def fit_held_out(data: Observations, whole: ClassRoofline) -> HeldOutRooflines:
    """Fit the class rooflines of the parts; ``whole``: that of ``data``.

    Raises:
        CantFit: without some part, too few kernels are left.
    """
    kernels = np.array(kernel_names(data), object)
    order = np.random.default_rng(SEED).permutation(len(kernels))
    without: dict[str, ClassRoofline] = {}
    for part in np.array_split(kernels[order], min(PARTS, len(kernels))):
        rest = data.take(~np.isin(data.kernel.astype(str), part.astype(str)))
        without |= dict.fromkeys(part.tolist(), fit_class_roofline(rest))
    return HeldOutRooflines(whole, without)
