"""Reports and figure files of a store, and the gathering of their content for
``analysis.report``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from analysis.choice.candidates import known_volts
from analysis.measurements.campaign_energy import EnergyFactor, campaign_energy
from analysis.measurements.measurement_levels import levels, metered
from analysis.measurements.observations import FitError, Observations, observations, site_names
from analysis.report.content import ListedOrder, ReportContent, StoredFit
from analysis.report.site_report import site_report, with_traces
from campaign.plan.campaign_file import Campaign
from campaign.plan.plan import listed_inputs
from campaign.results.fits import (
    DEFAULT,
    NoKeptFitError,
    fit_source,
    kept_fits,
    kept_form,
    read_fit,
    read_summary,
)
from campaign.store.hours import Spent, spent_by_partition, total
from campaign.store.layout import DamagedStoreError, Store
from campaign.store.planned import planned_ids
from campaign.store.setups import read_setup
from campaign.store.site_record import read_site_record, site_file_name
from campaign.store.tables import read_columns, read_traces
from campaign.variants.models import Energies, predicted_costs
from campaign.variants.study import tuned_parameters
from dvfs.dataset import Columns
from dvfs.errors import ArgumentError, unknown_name
from dvfs.extras import explain_missing
from dvfs.files import write_output
from dvfs.setting import Setting
from sites.clocks.slurm import slurm_cannot_set, slurm_flags

if TYPE_CHECKING:
    from analysis.figures.figure import Figure
    from analysis.report.tables import Sheet

FORMATS = ("svg", "pdf", "png")
LEFT_OUT = ""
"""The site name of excluded measurements. They keep their rows, by which traces refer to them."""


def report_content(
    store: Store,
    only: str | None = None,
    fit_name: str = DEFAULT,
    *,
    train: Sequence[Setting] | None = None,
    setting: Setting | None = None,
    kernels: Sequence[str] = (),
    fitted_on: Store | None = None,
) -> ReportContent:
    """The content of a store's report: every site that was measured or planned.

    ``only``: the name of the only site to include. ``fit_name``: the kept fits to show. ``train``:
    the settings that the holdout fits on; ``setting``: the setting of the figures that show a
    single one. ``kernels``: the names of the kernels to show (default: all); the kept fit is still
    that of all kernels. ``fitted_on``: instead fit that store's measurements, without ``kernels``,
    with the options of its default fit; where ``fit_name`` is another, with those of that fit.

    Raises:
        ArgumentError: no kernel has one of these names.
        FitError: ``train`` or ``setting`` has a setting that a site was not measured at.
        NoKeptFitError: no site has a fit named ``fit_name``, and that is not ``default``.
    """
    notes = []
    all_columns = read_columns(store)
    columns = _select_kernels(all_columns, kernels)
    traces = None
    if store.traces.is_dir():
        try:
            traces = _select_kernels(read_traces(store), kernels)
        except DamagedStoreError as error:  # the measurements are still whole
            notes.append(f"The traces of this store cannot be read: {error}.")
    damaged = int(columns.attrs["damaged_records"])
    if damaged:
        notes.append(f"{damaged} records of this store are damaged and left out.")
    if fit_name != DEFAULT and fit_name not in [name for _, name in kept_fits(store)]:
        raise NoKeptFitError(
            f"{store.root}: has no fit {fit_name!r}",
            f"list them: campaign coefficients {store.root}",
        )
    plan = store.read_json("campaign.json") or {}
    spent, _ = spent_by_partition(store)
    ids_by_partition = planned_ids(store)
    spent = dict.fromkeys(ids_by_partition, Spent()) | spent
    planned: dict[str, list[str]] = {}
    for name, ids in ids_by_partition.items():
        planned.setdefault(name.rpartition("/")[0], []).extend(ids.astype(str).tolist())
    simulated = {
        name
        for name, site in plan.get("sites", {}).items()
        if site.get("simulated") or site.get("twin")
    }
    reports = []
    for site in sorted({*site_names(columns), *planned} - {LEFT_OUT}):
        if only not in (None, site):
            continue
        record = read_site_record(store, site)
        stored = _stored_fit(store, site, fit_name, columns)
        if stored is not None and kernels:
            stored = replace(stored, stale=False)  # it is of all kernels, not of these alone
        report = site_report(
            columns,
            site,
            simulated=site in simulated,
            planned=planned.get(site, []),
            classes=record.classes,
            stored=stored,
            legal=record.legal,
            slurm_flags=partial(_srun_options, device=record.device),
            listed=_listed(plan, columns),
            train=train,
            setting=setting,
            elsewhere=None
            if fitted_on is None
            else (
                _training_data(fitted_on, site, kernels),
                # The options are those of the fit that was named, in this store.
                stored.form if stored and stored.keep else kept_form(fitted_on, site),
            ),
            tuned=tuned_parameters(store),
            predicted=partial(
                predicted_costs, store, columns, energies=partial(_energies, store, columns, site)
            ),
        )
        if kernels:
            with suppress(FitError):  # without energies the roofs are of the shown kernels
                every = observations(all_columns, site, record.classes, record.legal)
                report = replace(report, all_kernels=every)
        if traces is not None:
            try:
                report = with_traces(report, traces)
            except DamagedStoreError as error:
                report.notes.append(f"The traces of this site cannot be read: {error}.")
        report.notes.extend(notes)
        site_hours = [hours for label, hours in spent.items() if label.rpartition("/")[0] == site]
        if site_hours:
            counts = replace(report.measured, node_hours=total(site_hours).number)
            report = replace(report, measured=counts)
        site_file = plan.get("sites", {}).get(site) or _last_site_file(store, columns, site)
        metering = metered(columns, site)
        reports.append(
            replace(
                report,
                energy=campaign_energy(columns, site),
                factors=_factors(site_file.get("energy") or {}),
                levels=[]
                if metering is None
                else levels(metering, site_file.get("metering") or {}),
            )
        )
    title = str((store.read_json("store.json") or {}).get("name") or store.root.name)
    created = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    return ReportContent(title, store.root.name, created, reports)


def _select_kernels(columns: Columns, kernels: Sequence[str], excluded: bool = False) -> Columns:
    """The measurements of the kernels of these names; with ``excluded``, of all other kernels. All
    measurements where ``kernels`` is empty."""
    if not kernels:
        return columns
    names = sorted(columns.texts("kernel").values)
    for name in kernels:
        if name not in names and not excluded:
            raise ArgumentError(f"--kernel: {unknown_name('kernel', name, names)}")
    shown = columns.texts("kernel").mapped(lambda name: (name in kernels) != excluded).array(bool)
    return columns.replaced({"site": np.where(shown, columns["site"], LEFT_OUT)})


def _training_data(store: Store, site: str, kernels: Sequence[str]) -> Observations:
    """A site's measurements in ``store``, without those of ``kernels``."""
    record = read_site_record(store, site)
    try:
        return observations(
            _select_kernels(read_columns(store), kernels, excluded=True),
            site,
            record.classes,
            record.legal,
        )
    except FitError as error:
        raise ArgumentError(f"--fitted-on: {store.root}: {error}") from None


def _last_site_file(store: Store, columns: Columns, site: str) -> Mapping[str, Any]:
    """The site file in the set-up of a site's last measurement; empty without a set-up."""
    rows = np.flatnonzero((columns["site"] == site) & (columns["setup"] != ""))
    if not len(rows):
        return {}
    last = rows[np.argmax(columns["start_unix_s"][rows])]
    try:
        record = read_setup(store, str(columns["setup"][last]))
    except DamagedStoreError:
        return {}
    return {} if record is None else record["site"]


def _factors(energy_table: Mapping[str, Any]) -> list[EnergyFactor]:
    """What a kWh costs and emits, by the table ``energy`` of a site file."""
    named = (
        ("cost", "price_per_kwh", "price", energy_table.get("currency")),
        ("CO2e", "co2e_kg_per_kwh", "co2e", "kg CO2e"),
    )
    return [
        EnergyFactor(
            of=quantity,
            unit=str(unit),
            per_kwh=tuple(np.atleast_1d(energy_table[key]).tolist()),
            source=energy_table.get(f"{prefix}_source") or "",
            year=energy_table.get(f"{prefix}_year"),
            utc_offset_h=energy_table.get("utc_offset_h") or 0.0,
        )
        for quantity, key, prefix, unit in named
        if energy_table.get(key) is not None
    ]


def _srun_options(setting: Setting, device: str) -> str:
    """The options of srun, with the clock that srun cannot set, if any."""
    left_out = slurm_cannot_set(setting, device)
    return slurm_flags(setting, device) + (f" (not {left_out})" if left_out else "")


def _listed(plan: dict[str, Any], columns: Columns) -> ListedOrder:
    """The order in the campaign file of the last plan; empty where it cannot be read."""
    try:
        campaign = Campaign.model_validate(plan.get("campaign"))
    except ValidationError:  # no plan, or that of another version
        return ListedOrder()
    instances = columns.kernels_by_pair
    labels = [instances[pair].label for pair in listed_inputs(campaign) if pair in instances]
    settings = [Setting(*pair) for pair in campaign.settings.pairs or []]
    return ListedOrder(labels, settings)


def _energies(store: Store, columns: Columns, site: str) -> Energies | None:
    """The inputs to predict energies of variants, by the default fit; None where none is kept."""
    try:
        fit = read_fit(store, site)
        record = read_site_record(store, site)
        data = observations(columns, site, record.classes, record.legal)
    except (NoKeptFitError, FitError):
        return None
    return Energies(name=DEFAULT, fit=fit, data=data, volts=known_volts(data, record.legal))


def _stored_fit(store: Store, site: str, name: str, columns: Columns) -> StoredFit | None:
    if (site, name) not in kept_fits(store):
        return None
    try:
        fit = read_fit(store, site, name)
        summary, _ = read_summary(store, site, name)
    except NoKeptFitError:
        if name == DEFAULT:
            return None
        raise
    source = fit_source(store, summary, name, lambda: columns)
    # An earlier version did not keep which measurements a fit is of: site_report compares n.
    return StoredFit(
        fit, kept_form(store, site, name), name, source.made, source.stale, keep=name != DEFAULT
    )


@dataclass(frozen=True)
class WrittenFile:
    """A written figure or table, and whether its numbers are simulated."""

    path: Path
    simulated: bool


def write_figures(
    content: ReportContent,
    folder: Path,
    cap_w: float | None = None,
    formats: Sequence[str] = FORMATS,
) -> Iterator[WrittenFile]:
    """Write every figure and table of a report as a file; yields each as it is written.

    Figures in ``formats``, tables as CSV and LaTeX. With several sites, each has its own folder.
    ``cap_w``: a cap on power in watts, drawn into the rooflines.

    Raises:
        FitError: a cap at or below the constant power.
        MissingExtraError, OSError: see :func:`write_drawn`.
    """
    from analysis.report.site_figures import site_figures, site_sheets  # noqa: PLC0415

    for site in content.sites:
        own = folder / Path(site_file_name(site.site)).stem if len(content.sites) > 1 else folder
        figures = [(figure, site.simulated) for figure in site_figures(site, cap_w).all]
        yield from write_drawn(own, figures, site_sheets(site), formats)


def write_drawn(
    folder: Path,
    figures: Iterable[tuple[Figure, bool]],
    sheets: Iterable[Sheet],
    formats: Sequence[str],
) -> Iterator[WrittenFile]:
    """Write figures in ``formats`` and tables as CSV and LaTeX; yields each file as it is written.
    ``figures``: each with whether its numbers are simulated.

    Raises:
        MissingExtraError: matplotlib, which draws the files, is not installed.
        OSError: a file cannot be written.
    """
    from analysis.figures.paper import figure_files  # noqa: PLC0415
    from analysis.report.tables import as_csv, as_tex  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    for figure, simulated in figures:
        with explain_missing():
            drawn = figure_files(figure, simulated, formats)
        for kind, image in drawn.items():
            path = folder / f"{figure.name}.{kind}"
            write_output(path, image)
            yield WrittenFile(path, simulated)
    for sheet in sheets:
        for kind, text in (("csv", as_csv(sheet)), ("tex", as_tex(sheet))):
            path = folder / f"{sheet.name}.{kind}"
            write_output(path, text)
            yield WrittenFile(path, sheet.simulated)
