"""From a store's Dataset to the report of one site: fit, cross-validation and picks."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.choice.candidates import all_candidates, known_volts, of_posterior
from analysis.choice.crossval import cross_validate, fitted_elsewhere
from analysis.choice.pick import picks
from analysis.choice.variants import Predicted, study
from analysis.energy.applications import energies_or_why
from analysis.energy.fit import fit
from analysis.energy.fitted import Fit
from analysis.energy.models import FormRequest
from analysis.measurements.hardware_counters import kernel_counters
from analysis.measurements.observations import (
    FitError,
    Observations,
    kernel_names,
    measured_volts,
    observations,
    setting_text,
)
from analysis.measurements.phase_energy import phase_splits
from analysis.measurements.power_trace import power_trace
from analysis.measurements.variants import studied_variants
from analysis.predict.site import site_posterior
from analysis.quality import check
from analysis.quality.finding import Finding
from analysis.quality.origins import CLOCK_PROOF
from analysis.report.content import ListedOrder, MeasurementCounts, SiteReport, StoredFit
from analysis.report.trust import of_fit, of_measurements, of_picks, worst_first
from dvfs.dataset import CLOCK_UNPROVEN, Columns, is_complete
from dvfs.kernel_instance import kernels_of_rows
from dvfs.setting import LegalVolts, Setting, axis_values, distinct_settings

if TYPE_CHECKING:
    import xarray as xr

NODES_NAMED = 4
"""So many nodes of a meter are named; more are counted."""
HOLDOUT_SETTINGS = 4
"""The fewest settings for a holdout, which fits on half of them."""


def site_report(
    dataset: xr.Dataset | Columns,
    site: str,
    *,
    simulated: bool = False,
    planned: Collection[str] = (),
    classes: dict[str, str] | None = None,
    stored: StoredFit | None = None,
    legal: LegalVolts | None = None,
    slurm_flags: Callable[[Setting], str] | None = None,
    listed: ListedOrder | None = None,
    train: Sequence[Setting] | None = None,
    setting: Setting | None = None,
    elsewhere: Observations | None = None,
    tuned: Mapping[str, Collection[str]] | None = None,
    predicted: Predicted | None = None,
) -> SiteReport:
    """Everything that a report shows of one site, except what its traces show.

    Args:
        dataset: a store's measurements.
        site: the site's name.
        simulated: whether the site is a simulated machine, where no measurement says so.
        planned: the ids of the planned points.
        classes: class of operations -> ``core`` or ``mem``, where the site differs from the
            default.
        stored: the fit to show; made anew where it is of other measurements.
        legal: the voltages of its legal settings.
        slurm_flags: from a setting to the srun options that request it.
        listed: the order of kernels and settings in figures.
        train: the settings that the holdout fits on; by default a random half.
        setting: that of the figures that are of one; by default the fastest.
        elsewhere: the measurements that the fit is of, in place of this site's.
        tuned: kernel -> the parameters that its space declares.
        predicted: from the variants of a problem to label -> predicted time and energy.

    Raises:
        FitError: ``train`` or ``setting`` has a setting that was not measured.
    """
    rows = np.asarray(dataset["site"]) == site if "site" in dataset else np.zeros(0, bool)
    simulated = bool(np.asarray(dataset["simulated"])[rows].any()) if rows.any() else simulated
    findings = check(dataset, site) if rows.any() else []
    accepted = stored is not None and stored.fit.unproven_clocks
    remarks = of_measurements(dataset, rows, findings, accepted)
    report = SiteReport(
        site=site,
        simulated=simulated,
        measured=measurement_counts(dataset, rows, planned),
        remarks=worst_first(remarks),
        listed=listed or ListedOrder(),
        setting=setting,
        counters=kernel_counters(dataset, site) if rows.any() else [],
        variants=[
            study(variants, predicted(variants) if predicted else None)
            for variants in studied_variants(dataset, site, tuned or {})
        ]
        if rows.any()
        else [],
    )
    try:
        data = observations(dataset, site, classes, legal)
    except FitError as error:
        return replace(report, why_no_fit=str(error), timing=_timing(dataset, site, classes))
    for pair in [*(train or []), *([setting] if setting else [])]:
        if pair not in data.settings:
            known = ", ".join(setting_text(known) for known in data.settings[:8])
            raise FitError(f"{site} was not measured at {setting_text(pair)}; known: {known} ...")
    notes = []
    form = stored.form if stored else FormRequest()
    try:
        if elsewhere is None:
            model, origin, stale = _fit_to_show(data, stored, findings)
        else:
            model, origin, stale = fit(elsewhere, **vars(form)), "of other measurements", ""
        if not stale:
            data = _with_classes(data, model)
    except FitError as error:
        return replace(report, data=data, why_no_fit=str(error))
    n_settings = len(np.unique(data.setting))
    measured = measured_volts(data)
    posterior = site_posterior(data, measured)
    crossvals = []
    schemes = ["leave-one-setting-out", *["holdout"] * (n_settings >= HOLDOUT_SETTINGS)]
    for scheme in schemes if elsewhere is None else ["fitted-on"]:
        try:
            if elsewhere is not None:
                crossvals.append(fitted_elsewhere(elsewhere, data, **vars(form)))
                continue
            trained = (train or None) if scheme == "holdout" else None
            crossvals.append(
                cross_validate(data, scheme, **vars(form), train=trained, posterior=posterior)
            )
        except FitError as error:
            notes.append(f"No cross-validation by {scheme}: {error}.")
    applications, why_none = energies_or_why(data, form.model, form.voltage)
    notes += [why_none] if why_none else []
    if n_settings == 1:
        notes.append("No picks: this site was measured at one setting, so there is no choice.")
    among = of_posterior(posterior, data, kernel_names(data))
    chosen = picks(data, among=among) if n_settings > 1 else []
    volts = known_volts(data, legal or {})
    flags = {p.label: slurm_flags(p.setting) for p in chosen} if slurm_flags else {}
    return replace(
        report,
        data=data,
        fit=model,
        fit_origin=origin,
        remarks=worst_first([*remarks, *of_fit(model, stale), *of_picks(chosen)]),
        crossvals=crossvals,
        picks=chosen,
        candidates=among if volts == measured else all_candidates(data, volts=volts),
        slurm=flags,
        notes=notes,
        applications=applications,
    )


def _with_classes(data: Observations, model: Fit) -> Observations:
    """The rows with a count of 0 for the classes that a fit of other kernels as well has."""
    lacking = [term for term in model.terms if term.pays_for == "operation"]
    none = {term.of: np.zeros(len(data)) for term in lacking}
    domains = {term.of: term.domain for term in lacking}
    return replace(data, counts=none | data.counts, domains=domains | data.domains)


def _fit_to_show(
    data: Observations, stored: StoredFit | None, findings: Sequence[Finding]
) -> tuple[Fit, str, str]:
    """The stored fit, or a new one where there is none or it is of other measurements; which it
    is; and, where there is a stored one that is of other measurements, that it is."""
    if data.unproven_clocks and not (stored and stored.fit.unproven_clocks):
        raise FitError(
            f"nothing showed at which clocks some measurements of {data.site} ran; to use them as "
            f"they were asked for, run `campaign fit` with --accept-unproven"
        )
    which = f"{stored.name}, {stored.made}" if stored else ""
    if stored is not None:
        stale = stored.fit.n != len(data) if stored.stale is None else stored.stale
        if not stale:
            return stored.fit, which, ""
        if stored.keep:
            return stored.fit, which, "The fit is not of the measurements that the store has now"
    for finding in findings:
        if finding.severity == "refused" and finding.check != CLOCK_PROOF:
            raise FitError(finding.text.removesuffix("."))
    if stored is None:
        return fit(data), "made for this report; the store keeps none", ""
    return (
        fit(data, **vars(stored.form)),
        "made for this report",
        f"The stored fit ({which}) is not of the measurements that the store has now, so this "
        f"report has made a new one; campaign predict uses the stored one until campaign fit makes "
        f"it anew",
    )


def with_traces(report: SiteReport, dataset: xr.Dataset | Columns) -> SiteReport:
    """The report with what the site's traces show: energy by phase, and one trace of power."""
    splits, notes = phase_splits(dataset, report.site)
    trace = power_trace(dataset, report.site)
    return replace(report, phases=splits, trace=trace, notes=report.notes + notes)


def _timing(
    dataset: xr.Dataset | Columns, site: str, classes: dict[str, str] | None
) -> Observations | None:
    """The rows of a site that has times and no energies; None where it has no time either."""
    # observations() keeps only rows with an energy. These have none, so any number will do, and
    # it is removed again at once.
    some_j = {"energy_j": np.ones(len(dataset["status"]))}
    arrays = {str(name): np.asarray(dataset[str(name)]) for name in dataset}
    filled = Columns(arrays | some_j, dataset.attrs)
    try:
        data = observations(filled, site, classes)
    except FitError:
        return None
    return replace(data, energy_j=np.full(len(data), math.nan))


def measurement_counts(
    dataset: xr.Dataset | Columns, rows: np.ndarray, planned: Collection[str] = ()
) -> MeasurementCounts:
    """How much has been measured; ``rows``: bool (measurement,), those of the site."""

    def column(name: str, mask: np.ndarray) -> list[Any]:
        return np.asarray(dataset[name])[mask].tolist() if mask.any() else []

    ok = rows & is_complete(np.asarray(dataset["status"])) if len(rows) else rows
    failures = sorted(map(str, column("status", rows & ~ok)))
    stored = set(column("point_id", rows)) if planned else set()
    energy_j = np.asarray(dataset["energy_j"])[ok] if ok.any() else np.zeros(0)
    return MeasurementCounts(
        ok=int(ok.sum()),
        failed={name: failures.count(name) for name in dict.fromkeys(failures)},
        left=sum(point not in stored for point in planned),
        clock_unproven=column("status", ok).count(CLOCK_UNPROVEN),
        without_energy=int((~(energy_j > 0)).sum()),
        kernels=len(np.unique(kernels_of_rows(dataset)[1][ok])) if ok.any() else 0,
        settings=len(distinct_settings(*axis_values(dataset, np.flatnonzero(ok)))[0]),
        nodes=sorted(set(column("node", ok)) - {""}),
        meters=_meters(set(zip(column("node", ok), column("meters", ok), strict=True)))
        if "meters" in dataset
        else [],
        energy_j=float(np.nansum(energy_j * np.asarray(dataset["iterations"])[ok]))
        if ok.any() and "iterations" in dataset
        else math.nan,
    )


def _meters(descriptions: Iterable[tuple[str, str]]) -> list[str]:
    """Each channel that was read, with its domain and the period of its readings; and which nodes
    have it, where there are several. ``descriptions``: a node, and the channels as JSON."""
    nodes_of: dict[str, set[str]] = {}
    for node, description in descriptions:
        for channel, known in json.loads(description or "{}").items():
            # Where ranks ran on several nodes, a channel is NODE/METER:NAME.
            meter, colon, name = str(channel).partition(":")
            prefix, _, kind = meter.rpartition("/")
            text = _meter_text(f"{kind}{colon}{name}", known)
            nodes_of.setdefault(text, set()).add(prefix or node)
    n_nodes = len(set().union(*nodes_of.values()))
    return [
        text + (f" on {_few(nodes)}" if n_nodes > 1 else "")
        for text, nodes in sorted(nodes_of.items())
    ]


def _few(nodes: set[str]) -> str:
    return ", ".join(sorted(nodes)) if len(nodes) <= NODES_NAMED else f"{len(nodes)} nodes"


def _meter_text(channel: str, known: Any) -> str:
    parts = [str(known[name]) for name in ("domain", "kind") if known.get(name)]
    if known.get("period_s"):
        parts.append(f"every {known['period_s'] * 1e3:.3g} ms")
    return f"{channel} ({', '.join(parts)})" if parts else channel
