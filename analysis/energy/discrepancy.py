"""What a model lacks: how far measured energies are from it at settings left out of the fit.

The logarithm of a kernel's measured energy at a setting, less the model's, is

    kernel effect + discrepancy + noise / sqrt(repeats).

The discrepancy (Kennedy & O'Hagan 2001) is what a smooth model cannot do away with by averaging. A
share of its variance, ``rough``, is each setting's own; the rest has neighbouring settings in
common: a Gaussian process over the logarithms of both clocks, of Matérn's correlation
(:func:`analysis.energy.surface.matern`). Such a process is sure between settings that were
measured, and the less so the farther a setting lies beyond them. The kernel effect is the same at
all settings of a kernel and cancels in savings.

- The variances come from predictions out of fold by joint refits (coefficients, voltage curve and
  surface), each without a random half of the settings: as many as a campaign often leaves out.
  That is more than a setting left out alone shows, whose neighbours are all there.
- Some kernels are farther from the model than others. Each has a factor on its own part of the
  variance, drawn towards 1 as far as so few settings leave room for chance.
- Noise is what repeats of one kernel at one setting differ by. Without repeats it cannot be
  separated from the discrepancy: see :mod:`analysis.choice.posterior`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from scipy import special

from analysis.energy.models import NOT_KNOWN

LEAST_SHARE = 0.005
"""The discrepancy is at least this share of the residuals' variance out of fold."""
HALVINGS = 40


@dataclass(frozen=True, kw_only=True)
class Discrepancy:
    """Variances of log energy about the model, out of fold.

    ``kernel``: of the kernel effect; ``setting``, ``own``: of the discrepancy, what all kernels
    have in common and each kernel's own; ``rough``: the share of both that neighbouring settings
    do not have in common, 1 in fits of earlier versions; ``reach``: how far the rest reaches, in
    units of the measured range of each log clock; ``scale``: kernel -> factor on ``own``, 1 for
    others; ``noise``: kernel -> variance of one measurement about its cell's mean, empty without
    repeats; ``freedom``: of Student's t for intervals, from how many settings and kernels the
    variances were estimated. Of a fit of several nodes, ``node_noise`` and ``node_setting``: the
    variances on one node of a measurement, and of what all kernels have in common at a setting
    (:mod:`analysis.energy.node_differences`); None and 0 otherwise.
    """

    kernel: float
    setting: float
    own: float
    freedom: float
    scale: dict[str, float] = field(default_factory=dict)
    noise: dict[str, float] = field(default_factory=dict)
    rough: float = 1.0
    reach: float = 1.0
    node_noise: float | None = None
    node_setting: float = 0.0

    def on_another_node(self) -> Discrepancy:
        """What the measurements of one node that the fit has not seen are away from a model with
        that node's own coefficients: in ``noise``, nodes do not differ by these."""
        if self.node_noise is None:
            return self
        noise = dict.fromkeys(self.noise or self.scale, self.node_noise)
        setting = self.setting + self.node_setting
        return replace(self, setting=setting, noise=noise, node_noise=None, node_setting=0.0)

    @property
    def widening(self) -> float:
        """Student's 97.5 % point over the normal one: what normal deviations are multiplied by."""
        return widening(self.freedom)


def widening(freedom: float) -> float:
    """Student's 97.5 % point over the normal one."""
    return float(special.stdtrit(max(freedom, 1.0), 0.975) / special.ndtri(0.975))


def beyond_measured(mhz: np.ndarray, measured: np.ndarray, voltage: str) -> np.ndarray:
    """How far settings lie beyond the *other* measured ones: float64 (4, M), in log clock.

    ``mhz``: float64 (M, 2), core and memory; ``measured``: bool (M,); ``voltage``: of the fit. The
    rows: core clocks below the lowest and above the highest, then memory clocks. 0 where voltages
    are known, where the site does not have the clock, and where fewer than two are measured.

    Beyond the measured clocks nothing shows the voltage. Between one that stays and one in
    proportion to the clock, V^2 grows by the clock to the power of 0 to 2: an error of log energy
    of one standard deviation for one of log clock, as far as the domain pays for the energy.
    """
    far = np.zeros((4, len(mhz)))
    if voltage not in NOT_KNOWN or measured.sum() < 2:
        return far
    for domain in range(2):
        logs = np.log(mhz[:, domain])
        if not np.isfinite(logs).all():
            continue
        for row, side in ((2 * domain, -logs), (2 * domain + 1, logs)):
            second, highest = np.sort(side[measured])[-2:]
            others = np.where(measured & (side == highest), second, highest)
            far[row] = np.maximum(side - others, 0.0)
    return far


def shrunk(square: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Factors (K,) of variances relative to their mean, from mean squares of ``n`` numbers each.

    A mean square of n normal numbers has a relative variance of 2 / n by chance; what the K
    differ by beyond that is taken as real, and each is drawn towards the mean accordingly.
    """
    if len(square) < 2 or not square.mean() > 0:
        return np.ones(len(square))
    relative = square / square.mean()
    by_chance = 2.0 / np.maximum(n, 1)
    real = max(float(relative.var(ddof=1) - by_chance.mean()), 0.0)
    weight = real / (real + by_chance)
    return np.asarray(weight * relative + (1.0 - weight))


def share_beside(square: np.ndarray, known: np.ndarray, variance: np.ndarray) -> float:
    """The share of ``variance`` at which squares over (known + share variance) have a mean of 1."""
    if not square.size or not variance.max() > 0:
        return 1.0
    low, high = LEAST_SHARE, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if np.mean(square / np.maximum(known + middle * variance, 1e-300)) > 1.0:
            low = middle
        else:
            high = middle
    return high
