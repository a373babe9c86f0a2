"""Picks of a site's kernels, or of an application from its profile."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from analysis.choice.candidates import (
    SettingCandidates,
    all_candidates,
    profile_candidates,
)
from analysis.choice.losses import best_single_setting
from analysis.choice.objectives import objective as objective_of
from analysis.choice.pick import LimitsError, Pick, not_too_slow, pick
from analysis.figures.labels import unit_name
from analysis.measurements.observations import (
    Observations,
    kernel_names,
    setting_text,
)
from campaign.results.tables import Prediction
from dvfs.dataset import CLOCK_UNPROVEN, Columns
from dvfs.errors import ArgumentError, did_you_mean, known_names
from dvfs.input_files import raise_all
from dvfs.kernel_instance import KernelInstance, short_labels
from dvfs.setting import Setting, Volts
from sites.clocks.slurm import slurm_cannot_set, slurm_flags

if TYPE_CHECKING:
    from analysis.energy.models import FormRequest
    from campaign.plan.profile_file import Profile

LEFT_OUT = "\N{HORIZONTAL ELLIPSIS}"
MOST_SLOWDOWN = 1.0
"""A larger fraction was probably meant as percent."""
ROOF_MARGIN = 0.05
"""The fraction by which a rate may exceed the best measured one without a warning: times vary."""


def asked_candidates(
    data: Observations,
    kernel: str | None,
    profile: str | Path | None,
    volts: Volts | None,
    like_site: tuple[Observations, Volts] | None,
    form: FormRequest,
) -> tuple[list[SettingCandidates], list[str]]:
    """The candidates of a profile's application, or without a profile those of the kernels of the
    name, label or short name ``kernel`` (default: all); and what is doubtful about the profile, a
    line each. ``like_site``: the measurements and voltages of the site that the fit started from;
    ``form``: the options of the fit, by which an application's energies are predicted.
    """
    if profile is None:
        labels = kernel_names(data) if kernel is None else _labels_of(kernel, data)
        return list(all_candidates(data, labels, volts, like_site).values()), []
    application, warnings = application_candidates(Path(profile), data, volts, form)
    return [application], warnings


def _labels_of(kernel: str, data: Observations) -> list[str]:
    """The labels of the kernels that ``kernel`` names: by name, by label, or by short name in a
    table of all kernels, of the kernels of one name, or of one kernel."""
    instances = [data.instance(label) for label in kernel_names(data)]
    families: dict[str, list[KernelInstance]] = {}
    for instance in instances:
        families.setdefault(instance.name, []).append(instance)
    if kernel in families:
        return [instance.label for instance in families[kernel]]
    short = [
        (name, label)
        for group in (instances, *families.values(), *([instance] for instance in instances))
        for label, name in short_labels(group).items()
    ]
    labels = {label for name, label in short if kernel == label or _is_called(name, kernel)}
    if labels:
        return sorted(labels)
    names = dict.fromkeys([*families, *(name for name, _ in short)])
    hint = did_you_mean(kernel, names)
    raise ArgumentError(
        f"--kernel: {data.site} has no kernel {kernel!r}; {hint}it has {', '.join(families)}"
    )


def _is_called(name: str, text: str) -> bool:
    """Whether ``text`` is the name, or the name as a table shows it without its middle."""
    head, left_out, tail = text.partition(LEFT_OUT)
    return name == text or bool(left_out and name.startswith(head) and name.endswith(tail))


def _nearest(profile: Profile, settings: Iterable[Setting]) -> Setting:
    """The setting whose clocks are nearest to a profile's, by their ratios."""
    profile_mhz = (profile.core_mhz, profile.mem_mhz)

    def distance(setting: Setting) -> float:
        clocks = zip(profile_mhz, setting.clocks, strict=True)
        return sum(abs(math.log(mhz / near_mhz)) for mhz, near_mhz in clocks if mhz and near_mhz)

    return min(settings, key=distance)


def _wrong_clock(profile: Profile, settings: Iterable[Setting], site: str) -> tuple[str, str]:
    """The key of the profile's clock that fits no setting of a site, and the problem with it. The
    key is ``mem_mhz`` where the core clock is one of the site's."""
    clocks = {"core_mhz": profile.core_mhz, "mem_mhz": profile.mem_mhz}
    keys = sorted(clocks, reverse=profile.core_mhz in [setting.core_mhz for setting in settings])
    mhz, other_mhz = (clocks[key] for key in keys)
    if mhz is None:
        return keys[0], "missing"
    other_clock = "" if other_mhz is None else f" with {keys[1]} {other_mhz:g}"
    return keys[0], f"found {mhz:g}{other_clock}, which is not a setting of {site}"


def application_candidates(
    path: Path, data: Observations, volts: Volts | None, form: FormRequest
) -> tuple[SettingCandidates, list[str]]:
    """The candidates of an application from its profile at one setting, by fits with the options
    ``form``; and what is doubtful about the profile, a line each."""
    from campaign.plan.profile_file import read_profile  # noqa: PLC0415

    profile, source = read_profile(path)
    settings = dict.fromkeys([*data.settings, *(volts or {})])
    profile_setting = Setting(profile.core_mhz, profile.mem_mhz)
    measured_at = next((s for s in settings if s.two_clocks == profile_setting), profile_setting)
    if measured_at not in settings:
        key, problem = _wrong_clock(profile, settings, data.site)
        shown = ", ".join(setting_text(pair) for pair in data.settings[:6])
        more = " ..." if len(data.settings) > 6 else ""
        nearest = setting_text(_nearest(profile, settings))
        raise source.error(
            (key,),
            problem,
            f"give the clocks of the run: the nearest setting is {nearest}; known: {shown}{more}",
        )
    if classes := list(data.counts):
        raise_all(
            [
                source.error(
                    ("counts", name),
                    f"the kernels of {data.site} count no {name!r}",
                    known_names(name, sorted(classes)),
                )
                for name in profile.counts
                if name not in classes
            ]
        )
    candidates = profile_candidates(
        data,
        profile.kernel,
        counts=profile.counts,
        measured_s=profile.time_s,
        measured_at=measured_at,
        volts=volts,
        form=form,
    )
    return candidates, faster_than_measured(profile, data, measured_at)


def faster_than_measured(profile: Profile, data: Observations, setting: Setting) -> list[str]:
    """A line for each class whose rate in a profile exceeds the highest rate measured at the
    setting, the roof of a roofline in time (Choi & Vuduc 2012, eq. 3), by more than
    :data:`ROOF_MARGIN`."""
    if setting not in data.settings:
        return []
    rows = data.setting == data.settings.index(setting)
    lines = []
    for name, count in profile.counts.items():
        rates = data.counts[name][rows] / data.time_s[rows]
        best = float(np.nanmax(rates, initial=0.0))
        rate = count / profile.time_s
        if rate > best * (1.0 + ROOF_MARGIN):
            lines.append(
                f"{profile.kernel}: {rate / 1e9:.3g} G{unit_name(name)}/s of {name} at "
                f"{setting_text(setting)} is above the roofline: the best rate measured there is "
                f"{best / 1e9:.3g}; check its counts and its time"
            )
    return lines


def clock_unproven(columns: Columns, site: str) -> int:
    """The number of a site's measurements that have no proof of their clocks."""
    statuses: list[str] = columns["status"][columns["site"] == site].tolist()
    return statuses.count(CLOCK_UNPROVEN)


def check_limits(max_slowdown: float | None, max_power_w: float | None) -> None:
    """Refuse limits that no setting can keep."""
    if max_slowdown is not None and not max_slowdown >= 0:
        raise ArgumentError(
            f"--max-slowdown: found {max_slowdown:g}; must be 0 or more, such as 0.05 for 5 %"
        )
    if max_slowdown is not None and max_slowdown > MOST_SLOWDOWN:
        raise ArgumentError(
            f"--max-slowdown: found {max_slowdown:g}, which allows {1 + max_slowdown:g} times the "
            f"time; it is a fraction: {max_slowdown / 100:g} for {max_slowdown:g} %, and at most "
            f"{MOST_SLOWDOWN:g}; without it there is no limit"
        )
    if max_power_w is not None and not max_power_w > 0:
        raise ArgumentError(
            f"--max-power-w: found {max_power_w:g}; must be more than 0, such as 150 for 150 W"
        )


def picks_within_limits(
    candidates: Sequence[SettingCandidates],
    objective: str,
    max_slowdown: float | None,
    max_power_w: float | None,
    data: Observations,
) -> tuple[list[Pick], list[str]]:
    """The picks of the kernels, compared with the best single setting of ``data``; and a line for
    each kernel that has no setting within the limits.

    Raises:
        ArgumentError: no kernel has one.
    """
    picks: list[Pick] = []
    errors: list[LimitsError] = []
    single = best_single_setting(data, objective_of(objective))
    for kernel_candidates in candidates:
        try:
            picks.append(
                pick(
                    kernel_candidates,
                    objective,
                    max_slowdown=max_slowdown,
                    max_power_w=max_power_w,
                    best_single=single,
                )
            )
        except LimitsError as error:
            errors.append(error)
    if errors and not picks:
        least = min(errors, key=lambda error: error.least_w)
        raise ArgumentError(
            f"--max-power-w: found {max_power_w:g}, and no kernel has a setting"
            f"{not_too_slow(max_slowdown)} with so little mean power; the least is "
            f"{least.least_text}, of {least.label}; give at least that, or leave the limit out"
        )
    return picks, [str(error) for error in errors]


def with_flags(picks: Sequence[Pick], simulated: bool, device: str) -> tuple[Prediction, ...]:
    """The picks with the Slurm flags that request their settings."""
    return tuple(
        Prediction(
            entry,
            simulated,
            slurm_flags(entry.setting, device),
            slurm_cannot_set(entry.setting, device),
        )
        for entry in picks
    )
