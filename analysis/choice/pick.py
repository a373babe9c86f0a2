"""The pick: the setting chosen for a kernel, what it saves and costs, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.choice.objectives import objective as objective_of
from analysis.energy.curves import at_voltage
from analysis.energy.fitted import Fit
from analysis.energy.terms.registry import design_matrix
from analysis.measurements.observations import CantFit, Observations, kernel_names
from analysis.time.class_roofline import fit_class_roofline
from analysis.time.kernel_roofline import TimeModel, fit_time

DRAWS = 1000
SEED = 20250101
SURE = 0.95
"""The probability from which a verdict is given."""

Volts = Mapping[tuple[float, float], tuple[float, float]]
"""(core MHz, memory MHz) -> (core V, memory V)."""


@dataclass(frozen=True, kw_only=True)
class Pick:
    """The chosen setting of a kernel; savings and slowdown are against its fastest setting.

    ``kernel``, ``params``, ``label``: as :class:`~analysis.measurements.kernels.KernelInstance`.
    ``measured``: whether this kernel was measured there (its time is then the measured one).
    ``saving_low_pct``, ``saving_high_pct``: the 95 % interval of the saving.
    ``saving_vs_highest_clocks_pct``: the saving against the highest clocks, at which most sites
    run by default; NaN where no candidate has them (:func:`highest_clocks`).
    ``best_probability``: that no other candidate is better by the objective;
    ``expected_loss_pct``: what the pick is expected to cost, by the objective, above the one that
    is. ``race_to_halt``: ``right`` where the fastest setting is the pick or, with 95 %
    probability, costs less energy; ``worse`` where it costs more with 95 % probability; else
    ``open``: neither is sure. All NaN, and the last ``unknown``, where the fit has no covariance.
    """

    kernel: str
    params: Mapping[str, Any]
    label: str
    core_mhz: float
    mem_mhz: float
    energy_j: float
    time_s: float
    saving_pct: float
    slowdown_pct: float
    measured: bool
    saving_vs_highest_clocks_pct: float = np.nan
    saving_low_pct: float = np.nan
    saving_high_pct: float = np.nan
    best_probability: float = np.nan
    expected_loss_pct: float = np.nan
    race_to_halt: str = "unknown"


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """A kernel at every setting that may be picked: arrays with one entry a setting.

    ``kernel``, ``params``, ``label``: as :class:`~analysis.measurements.kernels.KernelInstance`.
    ``energy_draws_j``, ``time_draws_s``: float64 (settings, draws), what energy and time may be,
    given how sure the coefficients, the surface and the times are; None without a covariance.
    """

    kernel: str
    params: Mapping[str, Any]
    label: str
    settings: list[tuple[float, float]]
    energy_j: np.ndarray
    time_s: np.ndarray
    measured: np.ndarray
    measured_j: np.ndarray
    """Mean measured energy; NaN where the kernel was not measured."""
    energy_draws_j: np.ndarray | None = None
    time_draws_s: np.ndarray | None = None


def candidates(
    fitted: Fit,
    data: Observations,
    kernel: str,
    volts: Volts | None = None,
    *,
    times: TimeModel | None = None,
    drawn: np.ndarray | None = None,
) -> Candidates:
    """A kernel's predicted energy, and its time, at every measured setting and those of ``volts``.

    ``volts``: further legal settings and their voltages. Time is the mean measured one where
    there is one, else that of ``times`` (by default the model fitted on ``data``). ``drawn``:
    :func:`coefficient_draws` of the fit, where they are at hand.
    """
    mine = data.take(data.kernel == kernel)
    if not len(mine):
        raise CantFit(
            f"no measurements of kernel {kernel!r}; known: {', '.join(kernel_names(data)[:12])}"
        )
    times = times or fit_time(data)
    known = {**(volts or {}), **_measured_volts(data)}
    settings = sorted(known)
    core_mhz, mem_mhz = np.array(settings).T
    time_s = times.time_s(kernel, core_mhz, mem_mhz)
    repeats = np.zeros(len(settings), int)
    measured_j = np.full(len(settings), np.nan)
    at = {data.settings[s]: s for s in np.unique(mine.setting)}
    for i, setting in enumerate(settings):
        if setting in at:
            rows = mine.setting == at[setting]
            repeats[i] = rows.sum()
            time_s[i] = mine.time_s[rows].mean()
            measured_j[i] = mine.energy_j[rows].mean()
    volt = np.array([known[s] for s in settings])
    there = replace(
        mine.take(np.zeros(len(settings), np.int64)),
        core_mhz=core_mhz,
        mem_mhz=mem_mhz,
        core_v=volt[:, 0],
        mem_v=volt[:, 1],
        time_s=time_s,
        setting=np.arange(len(settings)),
        settings=settings,
    )
    return _candidates_at(
        fitted, there, repeats > 0, measured_j, times.spread / np.sqrt(repeats.clip(1)), drawn
    )


def profile_candidates(
    fitted: Fit,
    data: Observations,
    kernel: str,
    *,
    counts: Mapping[str, float],
    measured_s: float,
    measured_at: tuple[float, float],
    volts: Volts | None = None,
) -> Candidates:
    """A kernel that only has counts and a time at one setting, at every setting of the site.

    Its time elsewhere is that of the class roofline of ``data``
    (:class:`~analysis.time.class_roofline.ClassRoofline`).

    Raises:
        CantFit: a class is counted that the fit has no coefficient of, or the times of the site
            cannot be predicted from counts.
    """
    classes = {term.of for term in fitted.terms if term.pays_for == "operation"}
    if not classes:
        raise CantFit(
            f"the fit of {fitted.site} has no operation classes, so energy cannot be predicted "
            f"from counts; measure kernels with counts"
        )
    if strange := sorted(set(counts) - classes):
        raise CantFit(
            f"the fit of {fitted.site} has no class {strange[0]!r}; it has "
            f"{', '.join(sorted(classes))}"
        )
    ceilings = fit_class_roofline(data)
    known = {**(volts or {}), **_measured_volts(data)}
    settings = sorted(known)
    core_mhz, mem_mhz = np.array(settings).T
    volt = np.array([known[s] for s in settings])
    n = len(settings)
    here = np.array([setting == measured_at for setting in settings])
    there = replace(
        data.take(np.zeros(n, np.int64)),
        kernel=np.full(n, kernel, object),
        instances={},
        core_mhz=core_mhz,
        mem_mhz=mem_mhz,
        core_v=volt[:, 0],
        mem_v=volt[:, 1],
        time_s=ceilings.time_s(counts, measured_s, measured_at, core_mhz, mem_mhz),
        counts={name: np.full(n, counts.get(name, 0.0)) for name in data.counts},
        setting=np.arange(n),
        settings=settings,
    )
    spread = np.where(here, 0.0, ceilings.spread)
    return _candidates_at(fitted, there, here, np.full(n, np.nan), spread, None)


def _candidates_at(
    fitted: Fit,
    there: Observations,
    measured: np.ndarray,
    measured_j: np.ndarray,
    time_spread: np.ndarray,
    drawn: np.ndarray | None,
) -> Candidates:
    among = Candidates(
        **there.instance(str(there.kernel[0])).as_dict(),
        settings=there.settings,
        energy_j=fitted.energy_j(there),
        time_s=there.time_s,
        measured=measured,
        measured_j=measured_j,
    )
    if not np.isfinite(fitted.covariance).all():
        return among
    drawn = coefficient_draws(fitted) if drawn is None else drawn
    energy_draws_j, slower = _draws(fitted, there, drawn, time_spread)
    return replace(
        among, energy_draws_j=energy_draws_j, time_draws_s=there.time_s[:, None] * slower
    )


def _measured_volts(data: Observations) -> dict[tuple[float, float], tuple[float, float]]:
    n = np.bincount(data.setting, minlength=len(data.settings))
    with np.errstate(invalid="ignore"):
        core_v, mem_v = (
            np.bincount(data.setting, volt, minlength=len(n)) / n
            for volt in (data.core_v, data.mem_v)
        )
    return {data.settings[s]: (float(core_v[s]), float(mem_v[s])) for s in np.flatnonzero(n)}


def coefficient_draws(fitted: Fit) -> np.ndarray:
    """What the coefficients may be: float64 (terms, DRAWS), always the same for the same fit.

    Student's t with the freedom of the measured settings about the values. Some may fall below 0:
    where terms cannot be separated, one is as much too low as the other is too high, and only
    their sum, the energy, is meant.
    """
    generator = np.random.default_rng(SEED)
    spread, axes = np.linalg.eigh(fitted.covariance)
    freedom = max(fitted.n_settings - 1, 1)
    normal = generator.normal(size=(len(spread), DRAWS))
    normal /= np.sqrt(generator.chisquare(freedom, DRAWS) / freedom)
    return np.asarray(fitted.value[:, None] + (axes * np.sqrt(np.maximum(spread, 0.0))) @ normal)


def _draws(
    fitted: Fit, there: Observations, drawn: np.ndarray, time_spread: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Joules (settings, draws), and the factors on time (settings, draws)."""
    generator = np.random.default_rng(SEED + 1)
    slower = 1.0 + time_spread[:, None] * generator.normal(size=(len(there), DRAWS))
    columns = design_matrix(at_voltage(there, fitted.voltage, fitted.curves), fitted.terms)
    by_time = np.array([term.pays_for == "time" for term in fitted.terms])
    energy_j = columns[:, ~by_time] @ drawn[~by_time]
    energy_j += (columns[:, by_time] @ drawn[by_time]) * slower
    if fitted.surface is not None:
        factor = 1.0 + fitted.surface.at(there)[:, None]
        for covariance in fitted.surface.spread(np.array(there.settings)):
            spread, axes = np.linalg.eigh(covariance)
            root = axes * np.sqrt(np.maximum(spread, 0.0))
            factor = factor + root @ generator.normal(size=(len(spread), DRAWS))
        energy_j = energy_j * factor
    return energy_j, slower


def pick(
    among: Candidates,
    objective: str = "energy",
    *,
    max_slowdown: float | None = None,
    max_power_w: float | None = None,
) -> Pick:
    """The best candidate by an objective, within limits.

    ``objective``: of :mod:`analysis.choice.objectives`. ``max_slowdown``: a fraction;
    ``max_power_w``: of mean power.

    Raises:
        CantFit: an unknown objective, or limits that no candidate keeps.
    """
    score_of = objective_of(objective).score
    energy_j, time_s = among.energy_j, among.time_s
    fastest = int(np.argmin(time_s))
    allowed = np.ones(len(time_s), bool)
    if max_slowdown is not None:
        allowed &= time_s <= time_s[fastest] * (1.0 + max_slowdown)
    if max_power_w is not None:
        allowed &= energy_j / time_s <= max_power_w
    if not allowed.any():
        least_w = float((energy_j / time_s).min())
        raise CantFit(
            f"{among.label}: no setting is within these limits; its least power is {least_w:.4g} W"
        )
    score = np.where(allowed, score_of(energy_j, time_s), np.inf)
    best = int(np.argmin(score))
    core_mhz, mem_mhz = among.settings[best]
    best_pick = Pick(
        kernel=among.kernel,
        params=among.params,
        label=among.label,
        core_mhz=core_mhz,
        mem_mhz=mem_mhz,
        energy_j=float(energy_j[best]),
        time_s=float(time_s[best]),
        saving_pct=float((1.0 - energy_j[best] / energy_j[fastest]) * 100.0),
        slowdown_pct=float((time_s[best] / time_s[fastest] - 1.0) * 100.0),
        measured=bool(among.measured[best]),
        saving_vs_highest_clocks_pct=_saving_vs_highest_pct(among, best),
    )
    if among.energy_draws_j is None or among.time_draws_s is None:
        return best_pick
    drawn_j = among.energy_draws_j
    scores = score_of(drawn_j[allowed], among.time_draws_s[allowed])
    mine = scores[int(allowed[:best].sum())]
    saving_pct = (1.0 - drawn_j[best] / drawn_j[fastest]) * 100.0
    low, high = np.percentile(saving_pct, [2.5, 97.5])
    return replace(
        best_pick,
        saving_low_pct=float(low),
        saving_high_pct=float(high),
        best_probability=float(np.mean(mine <= scores.min(axis=0))),
        expected_loss_pct=float(np.mean(mine / scores.min(axis=0) - 1.0) * 100.0),
        race_to_halt=_verdict(best == fastest, float(np.mean(saving_pct > 0.0))),
    )


def highest_clocks(settings: Sequence[tuple[float, float]]) -> int | None:
    """The index of the setting that has both the highest core and the highest memory clock.

    A clock that a site does not have (NaN) counts as its highest. None where no setting has both.
    """
    mhz = np.array(settings)
    tops = np.where(np.isfinite(mhz), mhz, -np.inf).max(axis=0)
    at = np.flatnonzero(((mhz == tops) | np.isneginf(tops)).all(axis=1))
    return int(at[0]) if len(at) else None


def _saving_vs_highest_pct(among: Candidates, best: int) -> float:
    highest = highest_clocks(among.settings)
    if highest is None:
        return np.nan
    return float((1.0 - among.energy_j[best] / among.energy_j[highest]) * 100.0)


def _verdict(is_fastest: bool, saves: float) -> str:
    if is_fastest or saves <= 1.0 - SURE:
        return "right"
    return "worse" if saves >= SURE else "open"


def picks(
    fitted: Fit,
    data: Observations,
    kernels: list[str] | None = None,
    *,
    objective: str = "energy",
    max_slowdown: float | None = None,
    max_power_w: float | None = None,
    volts: Volts | None = None,
) -> list[Pick]:
    """The pick of each kernel (all by default, named by their labels), by label."""
    among = all_candidates(fitted, data, kernels, volts)
    return [
        pick(kernel, objective, max_slowdown=max_slowdown, max_power_w=max_power_w)
        for kernel in among.values()
    ]


def all_candidates(
    fitted: Fit,
    data: Observations,
    kernels: list[str] | None = None,
    volts: Volts | None = None,
) -> dict[str, Candidates]:
    """Label -> the candidates of each kernel (all by default, named by their labels)."""
    times = fit_time(data)
    drawn = coefficient_draws(fitted) if np.isfinite(fitted.covariance).all() else None
    return {
        kernel: candidates(fitted, data, kernel, volts, times=times, drawn=drawn)
        for kernel in kernels or kernel_names(data)
    }
