"""The report of one site: fit, cross-validation and picks."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from analysis.choice.candidates import all_candidates, known_volts, of_posterior
from analysis.choice.crossval import cross_validate, fitted_elsewhere, with_equal_voltages
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
from dvfs.setting import LegalVolts, Setting, axis_values, distinct_settings

NODES_NAMED = 4
"""The most nodes of a meter that are named; more are counted."""
HOLDOUT_SETTINGS = 4
"""The fewest settings for a holdout, which fits on half of them."""


def site_report(
    columns: Columns,
    site: str,
    *,
    simulated: bool,
    planned: Collection[str],
    classes: dict[str, str],
    stored: StoredFit | None,
    legal: LegalVolts,
    slurm_flags: Callable[[Setting], str],
    listed: ListedOrder,
    train: Sequence[Setting] | None,
    setting: Setting | None,
    elsewhere: tuple[Observations, FormRequest] | None,
    tuned: Mapping[str, Collection[str]],
    predicted: Predicted,
) -> SiteReport:
    """The content of a report on one site, except the results of its traces.

    Args:
        columns: a store's measurements.
        site: the site's name.
        simulated: whether the site is a simulated machine, if it has no measurements.
        planned: the ids of the planned points.
        classes: class of operations -> ``core`` or ``mem``, where the site differs from the
            default.
        stored: the fit to show, if any; it is repeated if it is of other measurements.
        legal: the voltages of the site's legal settings.
        slurm_flags: from a setting to the srun options that request it.
        listed: the order of kernels and settings in figures.
        train: the settings that the holdout fits on; by default a random half.
        setting: of the figures at one setting; by default the fastest.
        elsewhere: measurements to fit instead of this site's, and the options of the fit.
        tuned: kernel -> the parameters that its space declares.
        predicted: from the variants of a problem to label -> predicted time and energy.

    Raises:
        FitError: ``train`` or ``setting`` has a setting that was not measured.
    """
    rows = columns["site"] == site
    simulated = bool(columns["simulated"][rows].any()) if rows.any() else simulated
    findings = check(columns, site)
    accepted = stored is not None and stored.fit.unproven_clocks
    remarks = of_measurements(columns, rows, findings, accepted)
    report = SiteReport(
        site=site,
        simulated=simulated,
        measured=measurement_counts(columns, rows, planned),
        remarks=worst_first(remarks),
        listed=listed,
        setting=setting,
        counters=kernel_counters(columns, site),
        variants=[
            study(variants, predicted(variants))
            for variants in studied_variants(columns, site, tuned)
        ],
    )
    try:
        data = observations(columns, site, classes, legal)
    except FitError as error:
        return replace(report, why_no_fit=str(error), timing=_timing(columns, site, classes))
    for pair in [*(train or []), *([setting] if setting else [])]:
        if pair not in data.settings:
            texts = ", ".join(map(setting_text, data.settings[:8]))
            raise FitError(f"{site} was not measured at {setting_text(pair)}; known: {texts} ...")
    notes = []
    form = stored.form if stored else FormRequest()
    training = None
    if elsewhere is not None:
        training, form = elsewhere
    try:
        if training is None:
            model, origin, stale = _fit_to_show(data, stored, findings)
        else:
            training, data = with_equal_voltages(training, data)
            model, origin, stale = fit(training, **vars(form)), "of other measurements", ""
        if not stale:
            data = _with_classes(data, model)
    except FitError as error:
        return replace(report, data=data, why_no_fit=str(error))
    n_settings = len(np.unique(data.setting))
    measured = measured_volts(data)
    posterior = site_posterior(data, measured)
    crossvals = []
    schemes = ["leave-one-setting-out", *["holdout"] * (n_settings >= HOLDOUT_SETTINGS)]
    for scheme in schemes if training is None else ["fitted-on"]:
        try:
            crossvals.append(
                cross_validate(data, scheme, **vars(form), train=train or None, posterior=posterior)
                if training is None
                else fitted_elsewhere(training, data, **vars(form))
            )
        except FitError as error:
            notes.append(f"No cross-validation by {scheme}: {error}.")
    applications, reason = energies_or_why(data, form.model, form.voltage)
    notes += [reason] if reason else []
    if n_settings == 1:
        notes.append("No picks: this site was measured at one setting, so there is no choice.")
    candidates = of_posterior(posterior, data, kernel_names(data))
    chosen = picks(data, among=candidates) if n_settings > 1 else []
    volts = known_volts(data, legal)
    return replace(
        report,
        data=data,
        fit=model,
        fit_origin=origin,
        remarks=worst_first([*remarks, *of_fit(model, stale), *of_picks(chosen)]),
        crossvals=crossvals,
        picks=chosen,
        candidates=candidates if volts == measured else all_candidates(data, volts=volts),
        slurm={p.label: slurm_flags(p.setting) for p in chosen},
        notes=notes,
        applications=applications,
    )


def _with_classes(data: Observations, model: Fit) -> Observations:
    """The rows with counts of 0 for the classes that only other kernels of the fit have."""
    missing = [term for term in model.terms if term.pays_for == "operation"]
    zeros = {term.of: np.zeros(len(data)) for term in missing}
    domains = {term.of: term.domain for term in missing}
    return replace(data, counts=zeros | data.counts, domains=domains | data.domains)


def _fit_to_show(
    data: Observations, stored: StoredFit | None, findings: Sequence[Finding]
) -> tuple[Fit, str, str]:
    """The fit, its description, and a warning if the stored one is of other measurements, else "".

    The fit is the stored one, or a new one if there is none or it is of other measurements."""
    if data.unproven_clocks and not (stored and stored.fit.unproven_clocks):
        raise FitError(
            f"nothing showed at which clocks some measurements of {data.site} ran; to use them as "
            f"they were asked for, run `campaign fit` with --accept-unproven"
        )
    name = f"{stored.name}, {stored.made}" if stored else ""
    if stored is not None:
        stale = stored.fit.n != len(data) if stored.stale is None else stored.stale
        if not stale:
            return stored.fit, name, ""
        if stored.keep:
            return stored.fit, name, "The fit is not of the measurements that the store has now"
    for finding in findings:
        if finding.severity == "refused" and finding.check != CLOCK_PROOF:
            raise FitError(finding.text.removesuffix("."))
    if stored is None:
        return fit(data), "made for this report; the store keeps none", ""
    return (
        fit(data, **vars(stored.form)),
        "made for this report",
        f"The stored fit ({name}) is not of the measurements that the store has now, so this "
        f"report has made a new one; campaign predict uses the stored one until campaign fit makes "
        f"it anew",
    )


def with_traces(report: SiteReport, columns: Columns) -> SiteReport:
    """The report with the results of the site's traces: energy by phase, and one trace of power."""
    splits, notes = phase_splits(columns, report.site)
    trace = power_trace(columns, report.site)
    return replace(report, phases=splits, trace=trace, notes=report.notes + notes)


def _timing(columns: Columns, site: str, classes: dict[str, str]) -> Observations | None:
    """The rows of a site with times and no energies; None without times."""
    # observations() needs rows with an energy: these get any number, which is removed below.
    filled = columns.replaced({"energy_j": np.ones(len(columns["energy_j"]))})
    try:
        data = observations(filled, site, classes)
    except FitError:
        return None
    return replace(data, energy_j=np.full(len(data), math.nan))


def measurement_counts(
    columns: Columns, rows: np.ndarray, planned: Collection[str]
) -> MeasurementCounts:
    """The numbers of measurements; ``rows``: bool (measurement,), those of the site."""

    def texts(name: str, mask: np.ndarray) -> list[str]:
        return list(columns[name][mask])

    complete = rows & is_complete(columns["status"])
    stored = set(texts("point_id", rows)) if planned else set()
    energy_j = columns["energy_j"][complete]
    return MeasurementCounts(
        ok=int(complete.sum()),
        failed=Counter(sorted(texts("status", rows & ~complete))),
        left=sum(point not in stored for point in planned),
        clock_unproven=texts("status", complete).count(CLOCK_UNPROVEN),
        without_energy=int((~(energy_j > 0)).sum()),
        kernels=len(np.unique(columns.kernels[1][complete])),
        settings=len(distinct_settings(*axis_values(columns, np.flatnonzero(complete)))[0]),
        nodes=sorted(set(texts("node", complete)) - {""}),
        meters=_meters(set(zip(texts("node", complete), texts("meters", complete), strict=True))),
        energy_j=float(np.nansum(energy_j * columns["iterations"][complete])),
    )


def _meters(descriptions: Iterable[tuple[str, str]]) -> list[str]:
    """The text of each channel, with its domain and period, and its nodes if there are several.

    ``descriptions``: (node, its channels as JSON)."""
    nodes_of: dict[str, set[str]] = {}
    for node, description in descriptions:
        for channel, channel_info in json.loads(description or "{}").items():
            # Where ranks ran on several nodes, a channel is NODE/METER:NAME.
            meter, colon, name = str(channel).partition(":")
            prefix, _, kind = meter.rpartition("/")
            text = _meter_text(f"{kind}{colon}{name}", channel_info)
            nodes_of.setdefault(text, set()).add(prefix or node)
    n_nodes = len(set().union(*nodes_of.values()))
    return [
        text + (f" on {_nodes_text(nodes)}" if n_nodes > 1 else "")
        for text, nodes in sorted(nodes_of.items())
    ]


def _nodes_text(nodes: set[str]) -> str:
    return ", ".join(sorted(nodes)) if len(nodes) <= NODES_NAMED else f"{len(nodes)} nodes"


def _meter_text(channel: str, channel_info: Any) -> str:
    parts = [str(channel_info[name]) for name in ("domain", "kind") if channel_info.get(name)]
    if channel_info.get("period_s"):
        parts.append(f"every {channel_info['period_s'] * 1e3:.3g} ms")
    return f"{channel} ({', '.join(parts)})" if parts else channel
