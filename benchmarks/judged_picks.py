"""Picks, their intervals and P(best) compared with a truth: shared by the benchmarks of picks.

The interval of a pick's saving is judged for each pick that is not the fastest setting; "any" are
the intervals of all settings, relative to the fastest. A pick hits if it is the setting with the
least true energy, to 1e-7. P(best) and the loss refer to what the truth contains. If the truth is
measured, settings that the fit saw count with their measurement, whatever its noise, and only
kept-back settings are drawn; kept-back repeats are drawn with their noise. Deciles of P(best) with
30 cases or more are judged. The cases of one half or campaign share its errors, so the standard
error of a decile (``+-``) comes from resampling halves or campaigns, not cases. "By chance": the
number of deciles that would be off if every probability were right, with these standard errors.
The Brier score is the mean squared difference of probabilities and hits (Brier 1950): less is
better.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import norm

from dvfs.setting import Setting

DECILES = 10
FEWEST = 30
"""The smallest number of cases with which a decile is judged."""
NEAR = 0.07
"""P(best) and the share of hits may differ by this in a decile."""
RESAMPLES = 400
TIE_PCT = 1e-5
"""A setting within this of the least energy ties with the best."""


def true_energies(data) -> dict[str, dict[Setting, float]]:
    """Return kernel -> setting -> mean joules, in the order of the settings."""
    total = defaultdict(lambda: defaultdict(list))
    for i in np.argsort(data.setting, kind="stable"):
        total[data.kernels[data.kernel[i]]][data.settings[data.setting[i]]].append(
            float(data.energy_j[i])
        )
    return {
        kernel: {setting: float(np.mean(joules)) for setting, joules in by_setting.items()}
        for kernel, by_setting in total.items()
    }


@dataclass
class Picks:
    """Picks compared with the truth. ``cases``: (P(best), hit, expected loss, real loss, number of
    the half or campaign) of each; ``held``, ``any_held``: (held, width in %) of intervals;
    ``bare``: whether intervals hold without the noise of kept-back repeats; ``verdicts``: whether a
    verdict ``worse`` or ``right`` is true."""

    cases: list[tuple[float, float, float, float, int]] = field(default_factory=list)
    held: list[tuple[bool, float]] = field(default_factory=list)
    any_held: list[tuple[bool, float]] = field(default_factory=list)
    bare: list[bool] = field(default_factory=list)
    verdicts: list[bool] = field(default_factory=list)

    def add(
        self,
        among,
        truth: Mapping[Setting, float],
        part: int,
        *,
        noise: float | None = None,
        as_measured: bool = False,
    ) -> None:
        """Judge a kernel of the half or campaign ``part``. ``noise``: variance of the kept-back log
        energies; ``as_measured``: the truth has the measurements that the fit saw."""
        from analysis.choice.pick import pick

        chosen = pick(among)
        true_j = np.array([truth.get(setting, np.nan) for setting in among.settings])
        best = among.settings.index(chosen.setting)
        fastest = int(np.argmin(among.time_s))
        draws = among.energy_draws_j
        saving = (1 - true_j / true_j[fastest]) * 100
        if noise is not None:
            if best != fastest:
                self.bare.append(chosen.saving_low_pct <= saving[best] <= chosen.saving_high_pct)
            noise_draws = np.random.default_rng(0).normal(size=draws.shape) * np.sqrt(noise)
            draws = draws * np.exp(noise_draws)
        low, high = np.percentile((1 - draws / draws[fastest]) * 100, [2.5, 97.5], axis=1)
        held = (low <= saving) & (saving <= high)
        known_saving = np.isfinite(saving) & (np.arange(len(saving)) != fastest)
        self.any_held += zip(held[known_saving], (high - low)[known_saving], strict=True)
        if known_saving[best]:
            self.held.append((bool(held[best]), float(high[best] - low[best])))
        if np.isfinite(true_j[best]):
            if as_measured:
                draws = np.where(among.measured[:, None], among.measured_j[:, None], draws)
            above = (draws[best] / draws[np.isfinite(true_j)].min(axis=0) - 1) * 100
            lost = float(true_j[best] / np.nanmin(true_j) - 1) * 100
            probability, expected_loss = np.mean(above <= TIE_PCT), above.mean()
            self.cases.append((probability, lost <= TIE_PCT, expected_loss, lost, part))
        if chosen.race_to_halt in ("worse", "right") and np.isfinite(true_j[fastest]):
            least = int(np.nanargmin(true_j))
            right = least == fastest if chosen.race_to_halt == "right" else least != fastest
            self.verdicts.append(right)

    def show(self, name: str) -> None:
        """Print a line, and the deciles of the probability with enough cases."""
        if not self.cases:
            print(f"{name:<34} no intervals: fewer than three settings", flush=True)
            return
        probability, hit, expected_loss, lost, part = np.array(self.cases, float).T
        held, wide = np.array(self.held, float).reshape(-1, 2).T
        any_held, any_wide = np.array(self.any_held, float).T
        without = f" ({np.mean(self.bare) * 100:.1f} bare)" if self.bare else ""
        print(
            f"{name:<34}{len(probability):>6}{np.mean(held) * 100 if held.size else 100:>7.1f}"
            f"{np.median(wide) if wide.size else 0:>8.2f}{any_held.mean() * 100:>7.1f}"
            f"{np.median(any_wide):>8.2f}{probability.mean():>8.3f}{hit.mean():>7.3f}"
            f"{expected_loss.mean():>8.3f}{lost.mean():>8.3f}"
            f"{np.mean(self.verdicts) * 100 if self.verdicts else 100:>7.1f}{without}"
        )
        decile = np.minimum((probability * DECILES).astype(int), DECILES - 1)
        judged = [k for k in range(DECILES) if (decile == k).sum() >= FEWEST]
        if judged:
            off = [probability[decile == k].mean() - hit[decile == k].mean() for k in judged]
            std = [resampled(probability - hit, part, decile == k) for k in judged]
            texts = [
                f"{probability[decile == k].mean():.2f} {hit[decile == k].mean():.2f}"
                f" +-{deviation:.2f} ({(decile == k).sum()})"
                for k, deviation in zip(judged, std, strict=True)
            ]
            print(f"    P(best) said, hit (cases): {', '.join(texts)}")
            is_off = np.abs(off) > NEAR
            sure = is_off & (np.abs(off) > 2 * np.array(std))
            chance = sum(2 * norm.sf(NEAR / max(deviation, 1e-9)) for deviation in std)
            print(
                f"    {len(judged)} deciles, {is_off.sum()} off by more than {NEAR:.2f} "
                f"({chance:.1f} by chance), {sure.sum()} of these by more than two standard "
                f"errors; Brier score {np.mean((probability - hit) ** 2):.4f}",
                flush=True,
            )


def resampled(values: np.ndarray, part: np.ndarray, among: np.ndarray) -> float:
    """Return the standard error of the mean of the ``values`` in the mask ``among``, by resampling
    whole parts (Efron & Tibshirani 1993, section 8.6)."""
    parts, number = np.unique(part, return_inverse=True)
    total = np.bincount(number, np.where(among, values, 0.0), len(parts))
    count = np.bincount(number, among.astype(float), len(parts))
    drawn = np.random.default_rng(0).integers(len(parts), size=(RESAMPLES, len(parts)))
    with np.errstate(invalid="ignore"):
        return float(np.nanstd(total[drawn].sum(axis=1) / count[drawn].sum(axis=1)))


HEADER = (
    f"{'truth':<34}{'picks':>6}{'held %':>7}{'width':>8}{'any %':>7}{'width':>8}"
    f"{'P(best)':>8}{'hit':>7}{'lost %':>8}{'real':>8}{'race':>7}"
)
