"""The study of a kernel's variants by Anzt et al. 2015, section 3.

The rate of a variant is the work of the problem over its time; its efficiency is the work over its
energy. The work is the same for all variants of a problem, whatever each of them counts.

Table II of the paper lists the corners of the convex hull of (rate, efficiency), counter-clockwise
from the fastest variant (its caption says from the most efficient one). Such a corner need not
minimise alpha t + (1 - alpha) e (eq. 2) for any alpha. The lower left corners of the hull of (time,
energy) do; Table II has two of these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from analysis.choice.fronts import (
    convex_hull,
    least_across,
    least_of_weighted_sums,
    pareto_front,
)
from analysis.measurements.variants import KernelVariants, Metric
from dvfs.kernel_instance import KernelInstance, short_labels
from dvfs.setting import Setting

CONFIDENCE = 0.95
FEWEST = 4
"""With fewer points a correlation has no interval."""
ROUNDING = 1e-12
UPPER, LOWER = "upper", "lower"
Predicted = Callable[[KernelVariants], Mapping[str, tuple[float, float]]]
"""Function of a problem's variants that returns label -> predicted time (s) and energy (J)."""


@dataclass(frozen=True)
class Correlation:
    """Pearson's coefficient with its 95 % interval; NaN where not known."""

    r: float
    low: float
    high: float


def correlation(x: np.ndarray, y: np.ndarray) -> Correlation:
    """Return the correlation of two float64 arrays of one length; NaN where one is constant.

    The interval is Fisher's, in z = artanh r. Its standard error is the larger of Fisher's,
    1 / sqrt(n - 3), which holds for normal data, and one from the data's fourth moments, which
    holds for any data (the delta method on r): metrics of variants often have few discrete values,
    or spread over decades. Its quantile is Student's, with n - 3 degrees of freedom.
    """
    n = len(x)
    if n < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return Correlation(math.nan, math.nan, math.nan)
    u, v = ((values - values.mean()) / values.std() for values in (x, y))
    r = float(np.mean(u * v))
    if 1.0 - abs(r) < ROUNDING:
        r = math.copysign(1.0, r)
    if n < FEWEST:
        return Correlation(r, math.nan, math.nan)
    if abs(r) == 1.0:
        return Correlation(r, r, r)
    influence = u * v - r * (u**2 + v**2) / 2.0
    by_moments = math.sqrt(float(np.mean(influence**2))) / (1.0 - r**2)
    half = max(1.0, by_moments) / math.sqrt(n - 3)
    half *= float(stdtrit(n - 3, (1.0 + CONFIDENCE) / 2.0))
    z = math.atanh(r)
    return Correlation(r, math.tanh(z - half), math.tanh(z + half))


@dataclass(frozen=True, kw_only=True)
class VariantCosts:
    """The costs of one iteration of a variant, means of ``repeats`` measurements.

    ``name``: the parameters in which the variant differs from the others. ``rate_per_s``,
    ``efficiency_per_j``: in the work's unit.
    """

    instance: KernelInstance
    name: str
    setting: Setting
    repeats: int
    time_s: float
    energy_j: float
    rate_per_s: float
    efficiency_per_j: float
    simulated: bool
    predicted_s: float = math.nan
    """The time predicted from the other variants; NaN where not known."""
    predicted_j: float = math.nan
    """The energy predicted by the stored fit from that time."""

    def as_dict(self) -> dict[str, Any]:
        """``kernel``, ``params``, ``label`` and the numbers."""
        numbers = {
            name: None if name.startswith("predicted") and math.isnan(value) else value
            for name, value in vars(self).items()
            if name not in ("instance", "name", "setting")
        }
        return self.instance.as_dict() | self.setting.as_dict() | numbers


@dataclass(frozen=True)
class MeanOf:
    """Mean rate and efficiency of ``n`` variants; NaN without variants."""

    n: int
    rate_per_s: float
    efficiency_per_j: float

    @classmethod
    def of(cls, rate: np.ndarray, efficiency: np.ndarray) -> MeanOf:
        """Return the means of arrays, float64 (variants,)."""
        if not len(rate):
            return cls(0, math.nan, math.nan)
        return cls(len(rate), float(rate.mean()), float(efficiency.mean()))


@dataclass(frozen=True, kw_only=True)
class MetricStudy:
    """Correlations of a metric with rate, efficiency and their product, over the variants that have
    the metric.

    ``above``: means over the variants above the metric's mean; ``below``: over all others.
    """

    metric: Metric
    n: int
    mean: float
    rate: Correlation
    efficiency: Correlation
    product: Correlation
    above: MeanOf
    below: MeanOf

    def as_dict(self) -> dict[str, Any]:
        """Return a metric of ``campaign variants --json``."""
        about = {"name": self.metric.name, "unit": self.metric.unit, "kind": self.metric.kind}
        correlations = {"rate": self.rate, "efficiency": self.efficiency, "product": self.product}
        return about | {
            "n": self.n,
            "mean": self.mean,
            "correlation": {name: asdict(value) for name, value in correlations.items()},
            "above_mean": asdict(self.above),
            "below_mean": asdict(self.below),
        }


@dataclass(frozen=True, kw_only=True)
class BestFor:
    """The variant that minimises eq. 2 for every alpha from ``low`` to ``high``."""

    variant: VariantCosts
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class VariantStudy:
    """The result of :func:`study`: ``variants`` has the costs of ``of``, in the same order.

    ``hull``: its corners, each with its arc, ``upper`` or ``lower``. ``pareto``: by rising time.
    ``relative``: the optima of eq. 2 with time and energy over their least; ``s_j``: in s and J;
    both by rising alpha, from the least energy to the fastest. ``faster``: how many variants are
    faster than the one of least energy; ``more_efficient``: how many need less energy than the
    fastest. ``same_energy_slower_pct``: how much slower than the fastest the hull is at the
    fastest's energy; ``same_time_more_energy_factor``: how many times the least energy the hull
    needs at the time of the variant of least energy.
    """

    of: KernelVariants
    variants: Sequence[VariantCosts]
    fastest: VariantCosts
    least_energy: VariantCosts
    hull: Sequence[tuple[str, VariantCosts]]
    pareto: Sequence[VariantCosts]
    relative: Sequence[BestFor]
    s_j: Sequence[BestFor]
    faster: int
    more_efficient: int
    same_energy_slower_pct: float
    same_time_more_energy_factor: float
    metrics: Sequence[MetricStudy]

    def as_dict(self) -> dict[str, Any]:
        """``campaign variants --json``."""
        return {
            "n": len(self.variants),
            "estimated_energies": self.of.estimated_energies,
            "fastest": self.fastest.as_dict(),
            "least_energy": self.least_energy.as_dict(),
            "hull": [{"arc": arc, **corner.as_dict()} for arc, corner in self.hull],
            "pareto": [variant.as_dict() for variant in self.pareto],
            "alpha": {
                name: [{"from": o.low, "to": o.high, **o.variant.as_dict()} for o in optima]
                for name, optima in (("relative", self.relative), ("s_j", self.s_j))
            },
            "same_energy_slower_pct": self.same_energy_slower_pct,
            "same_time_more_energy_factor": self.same_time_more_energy_factor,
            "metrics": [metric.as_dict() for metric in self.metrics],
        }


def study(
    variants: KernelVariants, predicted: Mapping[str, tuple[float, float]] | None = None
) -> VariantStudy:
    """Study one variant or more. ``predicted``: label -> predicted time and energy.

    Of variants equal in time and energy, hull and fronts have the first by label. The metrics are
    sorted by their correlation with the rate, the largest first.
    """
    time_s, energy_j = variants.time_s, variants.energy_j
    rate, efficiency = variants.work / time_s, variants.work / energy_j
    names = short_labels(variants.instances)
    unknown = (math.nan, math.nan)
    expected = [(predicted or {}).get(variant.label, unknown) for variant in variants.instances]
    costs = [
        VariantCosts(
            instance=instance,
            name=names[instance.label].removeprefix(variants.kernel).strip() or instance.label,
            setting=variants.setting,
            repeats=int(variants.repeats[i]),
            time_s=float(time_s[i]),
            energy_j=float(energy_j[i]),
            rate_per_s=float(rate[i]),
            efficiency_per_j=float(efficiency[i]),
            simulated=variants.simulated,
            predicted_s=expected[i][0],
            predicted_j=expected[i][1],
        )
        for i, instance in enumerate(variants.instances)
    ]
    fastest = int(np.lexsort((energy_j, time_s))[0])
    least = int(np.lexsort((time_s, energy_j))[0])
    corners, uppers = convex_hull(rate, efficiency)
    best = least_of_weighted_sums(time_s, energy_j)
    least_rate = least_across(rate[corners], efficiency[corners], float(efficiency[fastest]))
    least_efficiency = least_across(efficiency[corners], rate[corners], float(rate[least]))
    return VariantStudy(
        of=variants,
        variants=costs,
        fastest=costs[fastest],
        least_energy=costs[least],
        hull=[(UPPER if i < uppers else LOWER, costs[k]) for i, k in enumerate(corners)],
        pareto=[costs[k] for k in pareto_front(time_s, energy_j)],
        relative=_best_for(costs, time_s / time_s.min(), energy_j / energy_j.min(), best),
        s_j=_best_for(costs, time_s, energy_j, best),
        faster=int((time_s < time_s[least]).sum()),
        more_efficient=int((energy_j < energy_j[fastest]).sum()),
        same_energy_slower_pct=float((rate[fastest] / least_rate - 1.0) * 100.0),
        same_time_more_energy_factor=float(efficiency[least] / least_efficiency),
        metrics=sorted(
            (_metric_study(metric, rate, efficiency) for metric in variants.metrics),
            key=lambda metric: -metric.rate.r if math.isfinite(metric.rate.r) else math.inf,
        ),
    )


def _best_for(
    costs: Sequence[VariantCosts], time: np.ndarray, energy: np.ndarray, best: np.ndarray
) -> list[BestFor]:
    """Return the intervals of alpha: neighbours on the hull tie at alpha dt = (1 - alpha) de."""
    saved = np.diff(energy[best])  # by rising alpha: more energy, less time
    alphas = saved / (saved - np.diff(time[best]))
    ends = [0.0, *map(float, alphas), 1.0]
    return [BestFor(variant=costs[k], low=ends[i], high=ends[i + 1]) for i, k in enumerate(best)]


def _metric_study(metric: Metric, rate: np.ndarray, efficiency: np.ndarray) -> MetricStudy:
    finite = np.isfinite(metric.values)
    values, rate, efficiency = metric.values[finite], rate[finite], efficiency[finite]
    mean = float(values.mean())
    above = values > mean
    return MetricStudy(
        metric=metric,
        n=len(values),
        mean=mean,
        rate=correlation(values, rate),
        efficiency=correlation(values, efficiency),
        product=correlation(values, rate * efficiency),
        above=MeanOf.of(rate[above], efficiency[above]),
        below=MeanOf.of(rate[~above], efficiency[~above]),
    )
