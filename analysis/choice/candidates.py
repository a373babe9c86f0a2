"""The candidates of a pick: a kernel's energy and time at every measured or legal setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.energy.models import FormRequest
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
    """Return the core and memory voltage of every measured or legal setting with known voltages.

    ``legal``: the voltages of the legal settings, None without such a clock or voltage. All are 1
    where the measurements have no voltages, as are the memory's where they have none of it. A
    setting that no row ran at has its legal voltages where these are known; a memory voltage that
    is not is that of the measured settings at its clock.
    """
    volts: dict[Setting, tuple[float, float]] = {}
    measured = measured_volts(data)
    mem_volts = {setting.clocks[1]: mem_v for setting, (_, mem_v) in measured.items()}
    unknown_v = None if data.mem_volts_known else 1.0
    for setting, (core_v, legal_v) in legal.items():
        mem_v = mem_volts.get(setting.clocks[1], unknown_v) if legal_v is None else legal_v
        if data.voltage == "unit":
            volts[setting] = (1.0, 1.0)
        elif core_v is not None and mem_v is not None:
            volts[setting] = (core_v, mem_v)
    ran_at = {data.settings[s] for s in np.unique(data.setting[~moved_rows(data)])}
    return volts | {
        setting: measured[setting]
        for setting in measured
        if setting in ran_at or setting not in volts
    }


@dataclass(frozen=True, kw_only=True)
class SettingCandidates:
    """A kernel at every setting that may be picked. Arrays have one entry for each setting.

    ``kernel``, ``params``, ``label``: as :class:`~dvfs.kernel_instance.KernelInstance`.
    ``energy_j``: medians of the posterior; ``time_s``: means where measured, else medians.
    ``energy_draws_j``, ``time_draws_s``: float64 (settings, draws), draws of the posterior.
    ``time_error_s``: float64 (settings,), the standard error of the times by the noise of repeats
    (:mod:`analysis.ties`); where not measured, the error of one measurement.
    ``trial``: what picks for such a kernel lose, None where that could not be tried.
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
    def shown_j(self) -> np.ndarray:
        """Energies for figures, J, float64 (settings,): measured, else predicted."""
        return np.where(self.measured, self.measured_j, self.energy_j)

    @property
    def equally_fast(self) -> np.ndarray:
        """bool (settings,): whether the time is tied with the least one."""
        return equally_fast(self.time_s, self.time_error_s)


def all_candidates(
    data: Observations,
    kernels: Sequence[str] | None = None,
    volts: Volts | None = None,
    like: tuple[Observations, Volts] | None = None,
) -> dict[str, SettingCandidates]:
    """Return label -> candidates of the kernels with these labels, by default of all kernels.

    ``volts``: further legal settings with their voltages, candidates beside the measured settings.
    ``like``: measurements of a site of the same chip or family, and its settings' voltages.

    Raises:
        FitError: a kernel was not measured.
    """
    names = kernel_names(data)
    labels = list(kernels or names)
    if missing := sorted(set(labels) - set(names)):
        raise FitError(f"no measurements of kernel {missing[0]!r}; known: {', '.join(names[:12])}")
    posterior = site_posterior(data, {**(volts or {}), **measured_volts(data)}, like)
    return of_posterior(posterior, data, labels)


def of_posterior(
    posterior: SitePosterior, data: Observations, labels: Sequence[str]
) -> dict[str, SettingCandidates]:
    """Return label -> candidates of some kernels of a site's posterior."""
    kernel, setting = cells_of(data, posterior.labels, posterior.settings)
    cell = kernel * len(posterior.settings) + setting
    n = np.bincount(cell, minlength=posterior.repeats.size)
    with np.errstate(invalid="ignore"):
        measured_j, measured_s = (
            (np.bincount(cell, values, len(n)) / n).reshape(posterior.repeats.shape)
            for values in (data.energy_j, data.time_s)
        )
    measured = posterior.repeats > 0
    energy_j = posterior.energy_j
    time_s = np.where(measured, measured_s, posterior.time_s)
    noise = time_noise(data, posterior.rough_time)
    requested = set(labels)
    by_label = {}
    for label, energy_draws_j, time_draws_s in posterior.draws():
        if label not in requested:
            continue
        k = posterior.labels.index(label)
        error_s = noise[label] * time_s[k] / np.sqrt(np.maximum(posterior.repeats[k], 1))
        by_label[label] = SettingCandidates(
            **data.instance(label).as_dict(),
            settings=posterior.settings,
            energy_j=energy_j[k],
            time_s=time_s[k],
            measured=measured[k],
            measured_j=measured_j[k],
            energy_draws_j=energy_draws_j,
            time_draws_s=time_draws_s,
            time_error_s=error_s,
            trial=posterior.trials.get(label),
        )
    return {label: by_label[label] for label in labels}


def profile_candidates(
    data: Observations,
    kernel: str,
    *,
    counts: Mapping[str, float],
    measured_s: float,
    measured_at: Setting,
    volts: Volts | None = None,
    form: FormRequest | None = None,
) -> SettingCandidates:
    """Return the candidates of a kernel that has only counts and a time at one setting.

    They come from the class roofline and the physics fit (:mod:`analysis.predict.profile`).
    ``form``: the options of the fit (default: cross-validation chooses its form).

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
    voltages = {**(volts or {}), **measured_volts(data)}
    if any((setting.power_limit_w, setting.profile) != (None, None) for setting in voltages):
        raise FitError(
            f"--profile: {data.site} was measured under power limits or profiles, and a profiled "
            f"kernel is predicted by clocks alone; measure it there"
        )
    prediction = profiled(data, counts, measured_s, measured_at, voltages, form or FormRequest())
    settings = sorted(voltages)
    return SettingCandidates(
        kernel=kernel,
        params={},
        label=kernel,
        settings=settings,
        **vars(prediction),
        measured=np.array([setting == measured_at for setting in settings]),
        measured_j=np.full(len(settings), np.nan),
        time_error_s=np.zeros(len(settings)),
    )
