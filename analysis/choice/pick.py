"""The pick: the setting chosen for a kernel within limits, its saving, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.choice.candidates import SettingCandidates, all_candidates
from analysis.choice.losses import best_single_setting, better_than, highest_clocks
from analysis.choice.objectives import TIME, Objective
from analysis.choice.objectives import objective as objective_of
from analysis.measurements.observations import FitError, Observations, setting_text
from analysis.predict.site import Trial
from analysis.ties import TIE, first_least, highest
from dvfs.setting import Setting, Volts

ALIKE = 1e-5
"""Expected costs with a smaller relative difference count as equal; then the medians decide."""
SURE = 0.95
"""The probability from which a verdict is given."""


@dataclass(frozen=True, kw_only=True)
class Pick:
    """The chosen setting of a kernel. Savings and slowdown are against the kernel's fastest
    setting; of equally fast ones against that with the highest clocks (:mod:`analysis.ties`).

    ``equally_fast``: the number of settings as fast as that one, itself included. If the pick is
    one of these, its slowdown can be below 0, by less than the noise.

    ``kernel``, ``params``, ``label``: as :class:`~dvfs.kernel_instance.KernelInstance`.
    ``measured``: whether this kernel was measured there; its time is then the measured one.
    ``saving_low_pct``, ``saving_high_pct``: the 95 % interval of the saving.
    ``saving_vs_highest_clocks_pct``: the saving against the highest clocks, at which most sites
    run by default; NaN where no candidate has them (:func:`highest_clocks`).
    ``best_probability``: the probability that no other candidate is better by the objective;
    ``expected_loss_pct``: how much more, by the objective, the pick is expected to cost than the
    best candidate. ``race_to_halt``: ``right`` where the fastest setting is the pick or costs less
    energy with 95 % probability; ``worse`` where it costs more with 95 % probability; else
    ``open``. Of equally fast settings all must be right (the one of the most energy), or all worse
    (the one of the least).
    ``chosen_by``: ``model``, or ``best_single`` or ``highest_clocks`` where this rule loses less
    than the model's picks in a trial on measured kernels (:class:`~analysis.predict.site.Trial`).
    ``model_lost_pct``, ``best_single_lost_pct``, ``highest_clocks_lost_pct``: the losses in that
    trial; NaN without a trial.
    ``best_single``: the measured setting that is best on average over all kernels, None where not
    known. ``gain_over_best_single_pct``, ``better_than_best_single``: how much more it is expected
    to cost than the pick, and the probability that it costs more.
    ``gain_over_highest_clocks_pct``, ``better_than_highest_clocks``: the same for the highest
    clocks. ``gain_over_best_measured_pct``, ``better_than_best_measured``: the same for the
    kernel's best measured setting within the limits. 0 where the pick is the other setting, NaN
    where the other setting is not within the limits.
    """

    kernel: str
    params: Mapping[str, Any]
    label: str
    setting: Setting
    energy_j: float
    time_s: float
    saving_pct: float
    slowdown_pct: float
    measured: bool
    saving_low_pct: float
    saving_high_pct: float
    best_probability: float
    expected_loss_pct: float
    race_to_halt: str
    equally_fast: int = 1
    saving_vs_highest_clocks_pct: float = np.nan
    chosen_by: str = "model"
    model_lost_pct: float = np.nan
    best_single_lost_pct: float = np.nan
    highest_clocks_lost_pct: float = np.nan
    best_single: Setting | None = None
    gain_over_best_single_pct: float = np.nan
    better_than_best_single: float = np.nan
    gain_over_highest_clocks_pct: float = np.nan
    better_than_highest_clocks: float = np.nan
    gain_over_best_measured_pct: float = np.nan
    better_than_best_measured: float = np.nan

    @property
    def core_mhz(self) -> float | None:
        """The core clock of the setting, MHz."""
        return self.setting.core_mhz

    @property
    def mem_mhz(self) -> float | None:
        """The memory clock of the setting, MHz."""
        return self.setting.mem_mhz

    @property
    def fastest_j(self) -> float:
        """The energy of an iteration at the fastest setting, in J."""
        return self.energy_j / (1.0 - self.saving_pct / 100.0)

    @property
    def fastest_w(self) -> float:
        """The mean power at the fastest setting, in W, by its energy and time."""
        return self.fastest_j * (1.0 + self.slowdown_pct / 100.0) / self.time_s

    @property
    def saved_w(self) -> float:
        """The energy saved, over the time that the same work takes at the fastest setting, in W."""
        return self.fastest_w * self.saving_pct / 100.0


def pick(
    among: SettingCandidates,
    objective: str = "energy",
    *,
    max_slowdown: float | None = None,
    max_power_w: float | None = None,
    best_single: Setting | None = None,
) -> Pick:
    """Return the best of a kernel's candidates by an objective, within limits.

    ``objective``: of :mod:`analysis.choice.objectives`. ``max_slowdown``: a fraction;
    ``max_power_w``: of mean power. ``best_single``: the best setting for all kernels
    (:func:`~analysis.choice.losses.best_single_setting`), with which the pick is compared.

    Raises:
        FitError: an unknown objective.
        LimitsError: no candidate is within the limits.
    """
    goal = objective_of(objective)
    score_of = goal.score
    energy_j, time_s = among.energy_j, among.time_s
    tied, top = among.equally_fast, highest_clocks(among.settings)
    fastest = highest(among.settings, tied, time_s)
    allowed = within_limits(
        among.label, among.settings, energy_j, time_s, max_slowdown, max_power_w
    )
    drawn_j, drawn_s = among.energy_draws_j, among.time_draws_s
    scores = score_of(drawn_j, drawn_s)[allowed]  # relative ones to the least of all settings
    expected = (scores / scores.min(axis=0)).mean(axis=1)
    score = score_of(energy_j, time_s)[allowed]
    chosen = int(first_least(np.where(expected <= expected.min() * (1.0 + ALIKE), score, np.inf)))
    tried: dict[str, Any] = {}
    if among.trial is not None:
        tried, rule_setting = _tried(among.trial, among.settings, goal, allowed, top)
        chosen = chosen if rule_setting is None else int(np.count_nonzero(allowed[:rule_setting]))
    best = int(np.flatnonzero(allowed)[chosen])
    saving_pct = (1.0 - drawn_j[best] / drawn_j[fastest]) * 100.0
    low, high = np.percentile(saving_pct, [2.5, 97.5])
    least = scores.min(axis=0)
    best_probability = float(np.mean(scores[chosen] <= least * (1.0 + TIE)))

    def saves(rival: int) -> float:
        if objective == TIME.name:
            return 0.0
        if rival == best:  # then the question is whether another setting saves
            return 1.0 - best_probability
        return float(np.mean(drawn_j[best] < drawn_j[rival]))

    raced = np.flatnonzero(tied)
    raced = raced[np.argsort(energy_j[raced], kind="stable")]
    return Pick(
        kernel=among.kernel,
        params=among.params,
        label=among.label,
        setting=among.settings[best],
        energy_j=float(energy_j[best]),
        time_s=float(time_s[best]),
        saving_pct=float((1.0 - energy_j[best] / energy_j[fastest]) * 100.0),
        slowdown_pct=float((time_s[best] / time_s[fastest] - 1.0) * 100.0),
        measured=bool(among.measured[best]),
        equally_fast=int(tied.sum()),
        saving_vs_highest_clocks_pct=np.nan
        if top is None
        else float((1.0 - energy_j[best] / energy_j[top]) * 100.0),
        **tried,
        **_compared(among, goal, best, best_single, top, allowed),
        saving_low_pct=float(low),
        saving_high_pct=float(high),
        best_probability=best_probability,
        expected_loss_pct=float(np.mean(scores[chosen] / least - 1.0) * 100.0),
        race_to_halt=_verdict(best in raced, saves(int(raced[0])), saves(int(raced[-1]))),
    )


def picks(
    data: Observations,
    kernels: list[str] | None = None,
    *,
    objective: str = "energy",
    volts: Volts | None = None,
    among: Mapping[str, SettingCandidates] | None = None,
) -> list[Pick]:
    """Return the picks of the kernels with these labels, by default of all kernels.

    ``among``: label -> the kernel's candidates, where they exist already.
    """
    among = all_candidates(data, kernels, volts) if among is None else among
    single = best_single_setting(data, objective_of(objective))
    return [pick(kernel, objective, best_single=single) for kernel in among.values()]


class LimitsError(FitError):
    """No setting of the kernel ``label`` is within the limits. ``least_w``: the least mean power of
    the settings that are not too slow; ``setting`` has it."""

    def __init__(
        self,
        label: str,
        least_w: float,
        setting: Setting,
        max_slowdown: float | None,
        max_power_w: float,
    ) -> None:
        self.label, self.least_w, self.setting = label, least_w, setting
        super().__init__(
            f"{label}: no setting{not_too_slow(max_slowdown)} has a mean power of at most "
            f"{max_power_w:g} W; the least is {self.least_text}"
        )

    @property
    def least_text(self) -> str:
        """The least mean power and its setting."""
        return f"{rounded_up(self.least_w):g} W at {setting_text(self.setting)}"


def not_too_slow(max_slowdown: float | None) -> str:
    """Return in words which settings a limit on the slowdown leaves; empty without a limit."""
    if max_slowdown is None:
        return ""
    return f" at most {max_slowdown * 100:g} % slower than the fastest"


def rounded_up(watts: float) -> float:
    """Round a power up to four digits, so that it is within the rounded limit."""
    if not (math.isfinite(watts) and watts > 0):
        return watts
    digits = 3 - math.floor(math.log10(watts))
    return round(math.ceil(watts * 10.0**digits) / 10.0**digits, max(0, digits))


def within_limits(
    label: str,
    settings: Sequence[Setting],
    energy_j: np.ndarray,
    time_s: np.ndarray,
    max_slowdown: float | None,
    max_power_w: float | None,
) -> np.ndarray:
    """Return bool (settings,): whether each setting is within the limits, up to rounding.

    Raises:
        LimitsError: no setting is.
    """
    allowed = np.ones(len(time_s), bool)
    if max_slowdown is not None:
        allowed &= time_s <= time_s.min() * (1.0 + max_slowdown) * (1.0 + TIE)
    if max_power_w is None:
        return allowed
    power_w = energy_j / time_s
    within: np.ndarray = allowed & (power_w <= max_power_w * (1.0 + TIE))
    if not within.any():
        least = int(np.argmin(np.where(allowed, power_w, np.inf)))
        raise LimitsError(label, float(power_w[least]), settings[least], max_slowdown, max_power_w)
    return within


def _compared(
    among: SettingCandidates,
    goal: Objective,
    best: int,
    best_single: Setting | None,
    top: int | None,
    allowed: np.ndarray,
) -> dict[str, Any]:
    """Return a pick's fields that compare it with the best single setting, the best measured one
    and the highest clocks. ``allowed``: bool (settings,), the settings within the limits."""
    scores = goal.score(among.energy_draws_j, among.time_draws_s)
    fields: dict[str, Any] = {}
    rivals: dict[str, int | None] = {"highest_clocks": top}
    eligible = among.measured & allowed
    if eligible.any():
        measured = np.where(eligible, scores.mean(axis=1), np.inf)
        rivals["best_measured"] = int(first_least(measured))
    if best_single is not None and best_single in among.settings:
        fields["best_single"] = best_single
        rivals["best_single"] = among.settings.index(best_single)
    for name, rival in rivals.items():
        if rival is not None and allowed[rival]:
            gain, better = better_than(scores, best, rival)
            fields |= {f"gain_over_{name}_pct": gain, f"better_than_{name}": better}
    return fields


def _tried(
    trial: Trial,
    settings: Sequence[Setting],
    goal: Objective,
    allowed: np.ndarray,
    top: int | None,
) -> tuple[dict[str, Any], int | None]:
    """Return a pick's fields about the trial, and the index of the setting by a simple rule.

    The rule is the one that loses least, if it loses less than the model; None where no rule with
    an ``allowed`` setting, bool (settings,), does."""
    lost = trial.lost_pct(goal)
    fields: dict[str, Any] = {f"{name}_lost_pct": loss_pct for name, loss_pct in lost.items()}
    rules = {"best_single": settings.index(trial.best_single(goal))}
    if top is not None:
        rules["highest_clocks"] = top
    better = [
        name for name, setting in rules.items() if allowed[setting] and lost[name] < lost["model"]
    ]
    if not better:
        return fields, None
    best = min(better, key=lost.__getitem__)
    return fields | {"chosen_by": best}, rules[best]


def not_surely_better(picks: Sequence[Pick], than: str) -> tuple[list[Pick], int]:
    """Return the picks that differ from a rule's setting and are not better with 95 % probability,
    and the number of all picks that differ from it.

    ``than``: the rule, ``highest_clocks`` or ``best_single``.
    """
    different = [
        p
        for p in picks
        if np.isfinite(getattr(p, f"better_than_{than}")) and getattr(p, f"gain_over_{than}_pct")
    ]
    return [p for p in different if getattr(p, f"better_than_{than}") < SURE], len(different)


def _verdict(is_fastest: bool, saves_least: float, saves_most: float) -> str:
    """Return the verdict on race to halt.

    ``saves_least``, ``saves_most``: the probability that the pick (or another setting, where the
    pick is the fastest one) saves energy against the equally fast setting of least or most energy.
    """
    if saves_most <= 1.0 - SURE:
        return "right"
    return "worse" if saves_least >= SURE and not is_fastest else "open"


@dataclass(frozen=True)
class PromisedChange:
    """Energy saved and time added, in % of the other setting's: medians of the posterior, and its
    95 % intervals (low, high)."""

    saving_pct: float
    saving_pct_95: tuple[float, float]
    slowdown_pct: float
    slowdown_pct_95: tuple[float, float]

    @property
    def is_sure(self) -> bool:
        """Whether the saving is above 0 with 97.5 % probability."""
        return self.saving_pct_95[0] > 0.0


def promised_change(
    among: Sequence[SettingCandidates], setting: Setting, against: Setting
) -> PromisedChange | None:
    """Return what ``setting`` changes against ``against``, for one or several kernels.

    The draws of several kernels are pooled: the interval is for any one of them. None where a
    kernel has no energies at one of the two settings.
    """
    saving, slowdown = [], []
    for kernel in among:
        if setting not in kernel.settings or against not in kernel.settings:
            return None
        chosen, reference = kernel.settings.index(setting), kernel.settings.index(against)
        saving.append(1.0 - kernel.energy_draws_j[chosen] / kernel.energy_draws_j[reference])
        slowdown.append(kernel.time_draws_s[chosen] / kernel.time_draws_s[reference] - 1.0)
    low, middle, high = np.percentile(np.concatenate(saving) * 100.0, [2.5, 50.0, 97.5])
    fast, likely, slow = np.percentile(np.concatenate(slowdown) * 100.0, [2.5, 50.0, 97.5])
    return PromisedChange(
        float(middle), (float(low), float(high)), float(likely), (float(fast), float(slow))
    )
