"""report: the HTML file that a person reads."""

from __future__ import annotations

import json
import math
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign.verbs.errors import CantDo
from campaign.verbs.modelling import kept_fit, setting_volts, site_facts
from campaign.verbs.show import say

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from analysis.energy.fit import Fit
    from analysis.measurements.observations import Observations
    from analysis.report.content import Measured, ReportContent, SiteReport
    from campaign.store.layout import Store

HOLDOUT_SETTINGS = 4
"""From how many settings on a holdout, which fits on half of them, says anything."""


def report(arguments: Namespace) -> int:
    """Write the report of a store; prints the file's path."""
    from analysis.report.page import render  # noqa: PLC0415
    from campaign.store.layout import open_store  # noqa: PLC0415

    store = open_store(Path(arguments.store))
    output = Path(arguments.output)
    page = render(report_content(store))
    try:
        output.write_text(page, encoding="utf-8")
    except OSError as error:
        raise CantDo(f"{output}: the report can't be written ({error.strerror})") from None
    say(f"report: {output}")
    return 0


def report_content(store: Store, only: str | None = None) -> ReportContent:
    """Everything that a store's report says: every site that was measured or planned.

    ``only``: one site's name, to leave out all others.
    """
    from dataclasses import replace  # noqa: PLC0415
    from datetime import datetime  # noqa: PLC0415

    from analysis.measurements.phase_energy import has_phases, phase_splits  # noqa: PLC0415
    from analysis.report.content import ReportContent  # noqa: PLC0415
    from campaign.store.dataset import (  # noqa: PLC0415
        as_dataset,
        current_tables,
        open_dataset,
    )
    from campaign.store.planned import planned_ids  # noqa: PLC0415

    tables, tail = current_tables(store)
    frame = tables.measurements
    dataset = as_dataset(frame, "measurement")
    plan = store.read_json("campaign.json") or {}
    planned: dict[str, list[str]] = {}
    for name, ids in planned_ids(store).items():
        planned.setdefault(name.rpartition("/")[0], []).extend(ids.astype(str).tolist())
    twins = {name for name, site in plan.get("sites", {}).items() if site.get("twin")}
    sites = []
    for site in sorted({*frame["site"], *planned}):
        if only not in (None, site):
            continue
        mine = frame[frame["site"] == site]
        simulated = bool(mine["simulated"].any()) or (not len(mine) and site in twins)
        sites.append(_site_report(store, site, mine, dataset, planned.get(site, []), simulated))
    # Traces are opened only where a kernel has marked its phases.
    if sites and has_phases(tables.traces["channel"].to_numpy()):
        traced = open_dataset(store)
        for i, each in enumerate(sites):
            splits, notes = phase_splits(traced, each.site)
            sites[i] = replace(each, phases=splits, notes=each.notes + notes)
    if tail.damage:
        note = f"{len(tail.damage)} records of this store are damaged and left out."
        for each in sites:
            each.notes.append(note)
    name = str((store.read_json("store.json") or {}).get("name") or store.root.name)
    created = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    return ReportContent(name, store.root.name, created, sites)


def _site_report(
    store: Store,
    site: str,
    frame: pd.DataFrame,
    dataset: xr.Dataset,
    planned: list[str],
    simulated: bool,
) -> SiteReport:
    from analysis.energy.fit import fit  # noqa: PLC0415
    from analysis.measurements.observations import CantFit, observations  # noqa: PLC0415
    from analysis.report.content import SiteReport  # noqa: PLC0415

    measured = _measured(frame, planned)
    classes = site_facts(store, site).get("classes")
    try:
        data = observations(dataset, site, classes)
    except CantFit as why:
        return SiteReport(
            site, simulated, measured, None, str(why), timing=_timing(dataset, site, classes)
        )
    notes = []
    found = _kept(store, site)
    try:
        if found is None:
            found = fit(data)
        elif found.n != len(data):
            notes.append(
                f"The fit that the store keeps is of {found.n} measurements; this report fits the "
                f"{len(data)} that there are now."
            )
            found = fit(data, *asked_form(found))
    except CantFit as why:
        return SiteReport(site, simulated, measured, data, str(why))
    return _fitted_site(store, found, data, measured, simulated, notes)


def _kept(store: Store, site: str) -> Fit | None:
    from campaign.verbs.errors import BadArgument  # noqa: PLC0415

    try:
        return kept_fit(store, site)
    except BadArgument:
        return None


def _timing(dataset: xr.Dataset, site: str, classes: dict[str, str] | None) -> Observations | None:
    """The rows of a site that has times and no energies; None where it has no time either."""
    from dataclasses import replace  # noqa: PLC0415

    import numpy as np  # noqa: PLC0415

    from analysis.measurements.observations import CantFit, observations  # noqa: PLC0415

    # observations() keeps rows with an energy; these have none, so any number lets them pass,
    # and it is taken out again at once.
    passing = dataset.assign(energy_j=("measurement", np.ones(dataset.sizes["measurement"])))
    try:
        data = observations(passing, site, classes)
    except CantFit:
        return None
    return replace(data, energy_j=np.full(len(data), math.nan))


def _fitted_site(
    store: Store,
    found: Fit,
    data: Observations,
    measured: Measured,
    simulated: bool,
    notes: list[str],
) -> SiteReport:
    import numpy as np  # noqa: PLC0415

    from analysis.choice.crossval import cross_validate  # noqa: PLC0415
    from analysis.choice.pick import all_candidates, picks  # noqa: PLC0415
    from analysis.measurements.observations import CantFit  # noqa: PLC0415
    from analysis.report.content import SiteReport  # noqa: PLC0415
    from sites.clocks.slurm import step_flags  # noqa: PLC0415
    from sites.setting import Setting  # noqa: PLC0415

    n_settings = len(np.unique(data.setting))
    schemes = ["leave-one-setting-out"] + ["holdout"] * (n_settings >= HOLDOUT_SETTINGS)
    crossvals = []
    model, voltage = asked_form(found)
    for scheme in schemes:
        try:
            crossvals.append(cross_validate(data, scheme, model, voltage=voltage))
        except CantFit as why:
            notes.append(f"No cross-validation by {scheme}: {why}.")
    volts = setting_volts(store, found.site, data)
    chosen = picks(found, data) if n_settings > 1 else []
    among = all_candidates(found, data, volts=volts)
    if n_settings == 1:
        notes.append("No picks: this site was measured at one setting, so there is no choice.")
    device = site_facts(store, found.site).get("device", "cpu")
    slurm = {
        each.label: " ".join(
            step_flags(Setting(_known(each.core_mhz), _known(each.mem_mhz)), device)
        )
        for each in chosen
    }
    return SiteReport(
        found.site,
        simulated,
        measured,
        data,
        "",
        found,
        crossvals,
        chosen,
        among,
        slurm,
        None,
        notes,
    )


def asked_form(found: Fit) -> tuple[str, str]:
    """The model and the voltage that a fit was asked for: auto where it chose them itself."""
    from analysis.energy.models import ESTIMATED  # noqa: PLC0415

    if found.tried:
        return "auto", "auto"
    return found.model, found.voltage if found.voltage in ("unit", *ESTIMATED) else "known"


def _known(mhz: float) -> float | None:
    return None if math.isnan(mhz) else mhz


def _measured(frame: pd.DataFrame, planned: list[str]) -> Measured:
    from analysis.report.content import Measured  # noqa: PLC0415

    ok = frame[frame["status"] == "ok"]
    failed = frame[frame["status"] != "ok"]["status"].value_counts().sort_index()
    held = set(frame["point_id"])
    return Measured(
        ok=len(ok),
        failed={str(name): int(n) for name, n in failed.items()},
        left=sum(point not in held for point in planned),
        without_energy=int((~(ok["energy_j"] > 0)).sum()),
        kernels=len(ok[["kernel", "params"]].drop_duplicates()),
        settings=len(ok[["core_mhz", "mem_mhz"]].drop_duplicates()),
        nodes=sorted(set(ok["node"]) - {""}),
        meters=_meters(ok),
    )


def _meters(ok: pd.DataFrame) -> list[str]:
    """Each channel that was read, with its domain and the period of its readings."""
    found: dict[str, str] = {}
    for text in ok["meters"].drop_duplicates():
        for channel, known in json.loads(text or "{}").items():
            found.setdefault(str(channel), _meter_text(str(channel), known))
    return [found[channel] for channel in sorted(found)]


def _meter_text(channel: str, known: Any) -> str:
    parts = [str(known[name]) for name in ("domain", "kind") if known.get(name)]
    if known.get("period_s"):
        parts.append(f"every {known['period_s'] * 1e3:.3g} ms")
    return f"{channel} ({', '.join(parts)})" if parts else channel
