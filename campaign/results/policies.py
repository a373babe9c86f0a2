"""A policy file from picks: the picks that are worth applying, and the changes they promise."""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from analysis.choice.candidates import SettingCandidates
from analysis.choice.losses import highest_clocks
from analysis.choice.objectives import objective as objective_of
from analysis.choice.pick import PromisedChange, promised_change, within_limits
from analysis.ties import highest
from campaign.policy.policy_file import (
    Entry,
    Match,
    Origin,
    Policy,
    PolicySetting,
    Promise,
)
from campaign.results.fits import FitSource
from campaign.results.tables import Predictions
from dvfs.errors import ArgumentError
from dvfs.kernel_instance import KernelInstance, short_labels
from dvfs.setting import Setting

VALID_DAYS = 182
"""Days for which a policy holds by default: machines, programs and drivers change."""
LONGEST_NAME = 60


@dataclass(frozen=True)
class PolicyDraft:
    """A policy, a line for each pick that has no entry, and the fit that the picks are from."""

    policy: Policy
    left_out: tuple[str, ...]
    fit: FitSource


def draft_policy(
    predictions: Predictions,
    *,
    against: Setting | None = None,
    until: datetime.date | None = None,
    control_pct: float = 10.0,
    seed: int = 1,
    cluster: str | None = None,
    with_default: bool = False,
    unsure: bool = False,
) -> PolicyDraft:
    """The policy of a site's picks.

    Args:
        predictions: the picks.
        against: the setting of jobs without the policy; by default the highest clocks, or where no
            setting has both, each kernel's fastest setting.
        until: the last day on which the policy holds (default: half a year from now).
        control_pct: the share of jobs that stay at the cluster's defaults, in %.
        seed: selects these jobs.
        cluster: the ClusterName of the Slurm that may apply the policy.
        with_default: add an entry for all other jobs: the best single setting of all kernels.
            Each kernel without an entry then gets one with the setting of jobs without the policy.
        unsure: also write entries whose saving is not above 0 with 97.5 % probability.

    Raises:
        ArgumentError: the policy has no entry, or ``against`` is no setting of the site.
    """
    by_kernel = predictions.candidates
    settings = next(iter(by_kernel.values())).settings
    if any((setting.power_limit_w, setting.profile) != (None, None) for setting in settings):
        raise ArgumentError(
            f"{predictions.site}: its settings have power limits or profiles, and a policy sets "
            f"clocks alone; set those of a pick on the node, or measure without"
        )
    if against is not None and against not in settings:
        raise ArgumentError(
            f"--against: {against}: no such setting of {predictions.site}; "
            f"known: {'; '.join(setting.option_text for setting in settings[:8])}"
        )
    top = highest_clocks(settings)
    base = against if against is not None else None if top is None else settings[top]
    entries: list[Entry] = []
    left_out: list[str] = []
    unchanged: list[Entry] = []
    picks = [entry.pick for entry in predictions.predictions]
    shown = short_labels(KernelInstance(pick.kernel, pick.params, pick.label) for pick in picks)
    names = _names([shown[pick.label] for pick in picks])
    for pick, name in zip(picks, names, strict=True):
        candidates = by_kernel[pick.label]
        result = _entry(name, pick.setting, [candidates], base or _fastest(candidates), unsure)
        jobs = Match(job_name=name)
        if isinstance(result, str):
            left_out.append(f"{pick.label}: {result}")
            if base is not None:
                setting = _written(base)
                unchanged.append(Entry(name=name, match=jobs, kernel=pick.label, setting=setting))
        else:
            entries.append(result.model_copy(update={"match": jobs, "kernel": pick.label}))
    default = None
    if with_default:
        single = _best_single(predictions)
        result = (
            "the kernels have no setting in common within the limits"
            if single is None or base is None
            else _entry("default", single, list(by_kernel.values()), base, unsure)
        )
        if isinstance(result, str):
            left_out.append(f"default: {result}")
        else:
            default = result
            entries += unchanged  # the default entry is not for them
    if not entries and default is None:
        raise ArgumentError(
            f"no entry: {left_out[0]}; measure more (campaign next), or add --unsure"
        )
    return PolicyDraft(
        Policy(
            site=predictions.site,
            cluster=cluster,
            device=predictions.device,
            against=None if base is None else _written(base),
            until=until or datetime.date.today() + datetime.timedelta(VALID_DAYS),
            seed=seed,
            control_pct=control_pct,
            objective=predictions.objective,
            max_slowdown=predictions.max_slowdown,
            max_power_w=predictions.max_power_w,
            origin=Origin(
                store=str(Path(predictions.fit.store).resolve()),
                data_id=predictions.data_id,
                fit=f"{predictions.fit.name} ({predictions.fit.model})",
                simulated=predictions.simulated,
                unproven_clocks=predictions.fit.unproven_clocks or predictions.clock_unproven > 0,
                created=datetime.datetime.now(datetime.UTC).replace(microsecond=0),
                version=version("dvfs-campaign"),
            ),
            default=default,
            entries=entries,
        ),
        tuple(left_out),
        predictions.fit,
    )


def _entry(
    name: str,
    setting: Setting,
    candidates: Sequence[SettingCandidates],
    against: Setting,
    unsure: bool,
) -> Entry | str:
    """An entry, or the reason why there is none."""
    if setting == against:
        return f"{setting.short_text} MHz is what jobs run at without a policy"
    change = promised_change(candidates, setting, against)
    if change is None:
        return f"no energies at {against.short_text} MHz to compare with"
    if not (change.is_sure or unsure):
        low, high = change.saving_pct_95
        return f"{setting.short_text} MHz saves {low:.1f} to {high:.1f} %: not surely above 0"
    return Entry(name=name, setting=_written(setting), promise=_promise(change))


def _promise(change: PromisedChange) -> Promise:
    """The promise of an entry, rounded so that a person can read and edit it."""
    saving, slowdown = change.saving_pct_95, change.slowdown_pct_95
    return Promise(
        saving_pct=_rounded(change.saving_pct),
        saving_pct_95=(_rounded(saving[0]), _rounded(saving[1])),
        slowdown_pct=_rounded(change.slowdown_pct),
        slowdown_pct_95=(_rounded(slowdown[0]), _rounded(slowdown[1])),
    )


def _rounded(pct: float) -> float:
    return round(pct, 2) + 0.0


def _written(setting: Setting) -> PolicySetting:
    return PolicySetting(**dict(zip(("core_mhz", "mem_mhz"), setting.clocks, strict=True)))


def _best_single(predictions: Predictions) -> Setting | None:
    """The setting with the least mean expected cost over the kernels, relative to each kernel's
    least cost, among the settings that keep the limits for every kernel."""
    if predictions.without_pick:
        return None
    limits = (predictions.max_slowdown, predictions.max_power_w)
    score = objective_of(predictions.objective).score
    kernels = list(predictions.candidates.values())
    common = [s for s in kernels[0].settings if all(s in kernel.settings for kernel in kernels)]
    costs, allowed = np.zeros(len(common)), np.ones(len(common), bool)
    for kernel in kernels:
        scores = score(kernel.energy_j, kernel.time_s)
        indices = [kernel.settings.index(setting) for setting in common]
        costs += scores[indices] / scores[indices].min()
        allowed &= within_limits(
            kernel.label, kernel.settings, kernel.energy_j, kernel.time_s, *limits
        )[indices]
    return common[int(np.argmin(np.where(allowed, costs, np.inf)))] if allowed.any() else None


def _fastest(kernel: SettingCandidates) -> Setting:
    return kernel.settings[highest(kernel.settings, kernel.equally_fast, kernel.time_s)]


def _names(labels: Iterable[str]) -> list[str]:
    """A valid and unique entry name for each label."""
    names: list[str] = []
    for label in labels:
        name = re.sub("[^A-Za-z0-9_.=+-]+", "_", label)[:LONGEST_NAME].strip("_.=+-") or "kernel"
        unique = name
        for number in itertools.count(2):
            if unique not in names:
                break
            end = f"+{number}"
            unique = f"{name[: LONGEST_NAME - len(end)]}{end}"
        names.append(unique)
    return names
