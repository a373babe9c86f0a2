"""What may be picked: kernels at every setting, legal ones too, with what energies and times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.measurements.observations import (
    FitError,
    Observations,
    kernel_names,
    measured_volts,
    moved_rows,
)
from analysis.predict.site import SitePosterior, Trial, cells_of, site_posterior
from analysis.ties import equally_fast, time_noise
from dvfs.setting import LegalVolts, Setting, Volts


def known_volts(data: Observations, legal: LegalVolts) -> dict[Setting, tuple[float, float]]:
    """The core and memory voltage of every setting that was measured or is legal, where they are
    known.

    ``legal``: those of the legal settings, None where there is no such clock or the voltage is not
    known. Where the measurements carry no voltage, every one is 1. A setting whose clock no row ran
    at has the legal one, if that is known.
    """
    volts: dict[Setting, tuple[float, float]] = {}
    for setting, (core_v, mem_v) in legal.items():
        if data.voltage == "unit":
            volts[setting] = (1.0, 1.0)
        elif core_v is not None:
            volts[setting] = (core_v, 1.0 if mem_v is None else mem_v)
    ran_at = {data.settings[s] for s in np.unique(data.setting[~moved_rows(data)])}
    measured = measured_volts(data)
    return volts | {one: measured[one] for one in measured if one in ran_at or one not in volts}


@dataclass(frozen=True, kw_only=True)
class SettingCandidates:
    """A kernel at every setting that may be picked: arrays with one entry a setting.

    ``kernel``, ``params``, ``label``: as :class:`~dvfs.kernel_instance.KernelInstance`.
    ``energy_j``: medians of the posterior; ``time_s``: means where measured, else medians.
    ``energy_draws_j``, ``time_draws_s``: float64 (settings, draws), what energy and time may be.
    ``time_error_s``: float64 (settings,), the standard error of the times by the noise of repeats
    (:mod:`analysis.ties`), where not measured that of one measurement.
    ``trial``: how picks for a kernel like it do, where that could be tried.
    """

    kernel: str
    params: Mapping[str, Any]
    label: str
    settings: list[Setting]
    energy_j: np.ndarray
    time_s: np.ndarray
    measured: np.ndarray
    measured_j: np.ndarray
    """Mean measured energy; NaN where the kernel was not measured."""
    energy_draws_j: np.ndarray
    time_draws_s: np.ndarray
    time_error_s: np.ndarray
    trial: Trial | None = None

    @property
    def equally_fast(self) -> np.ndarray:
        """bool (settings,): those whose times are tied with the least one."""
        return equally_fast(self.time_s, self.time_error_s)


def candidates(data: Observations, kernel: str, volts: Volts | None = None) -> SettingCandidates:
    """A kernel's candidates: :func:`all_candidates` of it alone."""
    return all_candidates(data, [kernel], volts)[kernel]


def all_candidates(
    data: Observations,
    kernels: Sequence[str] | None = None,
    volts: Volts | None = None,
    like: tuple[Observations, Volts] | None = None,
) -> dict[str, SettingCandidates]:
    """Label -> a kernel (all by default, named by label) at every setting that may be picked.

    These are the measured ones, and those of ``volts``, further legal settings and their voltages.
    ``like``: measurements of a site of the same chip or family, and its settings' voltages.

    Raises:
        FitError: a kernel was not measured.
    """
    known = kernel_names(data)
    labels = list(kernels or known)
    if missing := sorted(set(labels) - set(known)):
        raise FitError(f"no measurements of kernel {missing[0]!r}; known: {', '.join(known[:12])}")
    found = site_posterior(data, {**(volts or {}), **measured_volts(data)}, like)
    return of_posterior(found, data, labels)


def of_posterior(
    found: SitePosterior, data: Observations, labels: Sequence[str]
) -> dict[str, SettingCandidates]:
    """The candidates of some kernels of a site's posterior."""
    kernel, setting = cells_of(data, found.labels, found.settings)
    at = kernel * len(found.settings) + setting
    n = np.bincount(at, minlength=found.repeats.size)
    with np.errstate(invalid="ignore"):
        measured_j, measured_s = (
            (np.bincount(at, values, len(n)) / n).reshape(found.repeats.shape)
            for values in (data.energy_j, data.time_s)
        )
    measured = found.repeats > 0
    energy_j = found.energy_j
    time_s = np.where(measured, measured_s, found.time_s)
    noise = time_noise(data, found.rough_time)
    wanted = set(labels)
    made = {}
    for label, energy_draws_j, time_draws_s in found.draws():
        if label not in wanted:
            continue
        k = found.labels.index(label)
        error_s = noise[label] * time_s[k] / np.sqrt(np.maximum(found.repeats[k], 1))
        made[label] = SettingCandidates(
            **data.instance(label).as_dict(),
            settings=found.settings,
            energy_j=energy_j[k],
            time_s=time_s[k],
            measured=measured[k],
            measured_j=measured_j[k],
            energy_draws_j=energy_draws_j,
            time_draws_s=time_draws_s,
            time_error_s=error_s,
            trial=found.trials.get(label),
        )
    return {label: made[label] for label in labels}


def profile_candidates(
    data: Observations,
    kernel: str,
    *,
    counts: Mapping[str, float],
    measured_s: float,
    measured_at: Setting,
    volts: Volts | None = None,
) -> SettingCandidates:
    """A kernel that only has counts and a time at one setting, at every setting of the site.

    By the class roofline and the physics fit (:mod:`analysis.predict.profile`).

    Raises:
        FitError: too few kernels of ``data`` have counts, or none has one of these.
    """
    from analysis.predict.profile import profiled  # noqa: PLC0415 (slow)

    if not data.counts:
        raise FitError(
            f"the kernels of {data.site} have no counts, so nothing can be predicted from counts; "
            f"measure kernels with counts"
        )
    if strange := sorted(set(counts) - set(data.counts)):
        raise FitError(
            f"the kernels of {data.site} count no {strange[0]!r}; they count "
            f"{', '.join(sorted(data.counts))}"
        )
    known = {**(volts or {}), **measured_volts(data)}
    if any((setting.power_limit_w, setting.profile) != (None, None) for setting in known):
        raise FitError(
            f"--profile: {data.site} was measured under power limits or profiles, and a profiled "
            f"kernel is predicted by clocks alone; measure it there"
        )
    found = profiled(data, counts, measured_s, measured_at, known)
    settings = sorted(known)
    return SettingCandidates(
        kernel=kernel,
        params={},
        label=kernel,
        settings=settings,
        **vars(found),
        measured=np.array([setting == measured_at for setting in settings]),
        measured_j=np.full(len(settings), np.nan),
        time_error_s=np.zeros(len(settings)),
    )
