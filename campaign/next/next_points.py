"""``campaign next``: the points to measure next, what they cost, and a campaign file of them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isnan
from pathlib import Path
from typing import Any

from analysis.choice.next_measurements import measurements_like, next_measurements
from analysis.choice.objectives import objective as objective_of
from campaign.next.offered import (
    all_legal,
    given_params,
    of_kernels,
    offered,
    posterior_of,
    site_data,
)
from campaign.plan.campaign_file import Campaign
from campaign.plan.plan import Plan, make_plan
from campaign.plan.planned_points import Input, PartitionPoints
from campaign.results import Results
from campaign.results.fits import Request, check_like
from campaign.store.states import point_states
from dvfs.errors import ArgumentError, known_names
from dvfs.setting import AXES, NUMBERS, Setting
from sites.site_reading import built_in_sites, find_site, read_site

MORE_H = 1.0
"""The additional node-hours whose benefit ``next`` reports."""


def next_file(
    campaign: Campaign,
    file: Path,
    part: PartitionPoints,
    cells: Mapping[tuple[int, int], int],
    beside: Path,
) -> str:
    """The text of a campaign file with the cells of a partition: (kernel, setting) -> repeats.

    ``campaign``, ``file``: the source of the points; the text keeps its name, seed, repeats,
    protocol and retries, so that the points have the same ids. ``beside``: the folder of the new
    file.
    """
    import tomlkit  # noqa: PLC0415

    paths = {entry.site: find_site(entry.site, file.parent) for entry in campaign.sites}
    site = next(name for name, path in paths.items() if read_site(path).name == part.site)
    if site not in built_in_sites():
        site = _relative(paths[site], beside)
    fields = campaign.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    content: dict[str, Any] = {
        "name": campaign.name,
        "seed": campaign.seed,
        "repeats": campaign.repeats,
        "part_of": _relative(file, beside),
        "sites": [{"site": site, "partitions": [part.partition]}],
        **{name: fields[name] for name in ("protocol", "retries") if name in fields},
        "kernels": _kernels(part, cells, campaign.repeats),
    }
    return tomlkit.dumps(content)


def _relative(path: Path, folder: Path) -> str:
    path, folder = path.resolve(), folder.resolve()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _kernels(
    part: PartitionPoints, cells: Mapping[tuple[int, int], int], usual: int
) -> list[dict[str, Any]]:
    """The [[kernels]] tables, each of the inputs with equal settings (:func:`_shared`), repeats
    and names of parameters. ``usual``: the campaign's repeats."""
    settings: dict[tuple[int, int, tuple[str, float]], list[int]] = defaultdict(list)
    for (kernel, setting), repeats in cells.items():
        settings[kernel, repeats, _shared(part.settings[setting])].append(setting)
    grouped: dict[tuple[str, str, int, tuple[str, ...], int, tuple[int, ...]], list[Input]]
    grouped = defaultdict(list)
    for kernel, repeats, together in sorted(settings):
        entry = part.inputs[kernel]
        names = tuple(given_params(entry))
        codes = tuple(sorted(settings[kernel, repeats, together]))
        grouped[entry.kernel, entry.label, entry.ranks, names, repeats, codes].append(entry)
    tables = []
    for (kernel_name, label, ranks, names, repeats, codes), inputs in grouped.items():
        table: dict[str, Any] = {"kernel": kernel_name}
        if label != kernel_name:
            table["label"] = label
        if ranks > 1:
            table["ranks"] = ranks
        if repeats != usual:
            table["repeats"] = repeats
        values = [given_params(entry) for entry in inputs]
        # A value that is a list becomes the only item of a list, as one value of the sweep.
        constant = {name: values[0][name] for name in names if _all_same(values, name)}
        if constant:
            table["params"] = {
                name: [v] if isinstance(v, list) else v for name, v in constant.items()
            }
        varied = [name for name in names if name not in constant]
        if varied:
            table["zip"] = [{name: [params[name] for params in values] for name in varied}]
        table["settings"] = _listed([part.settings[s] for s in codes])
        tables.append(table)
    return tables


def _all_same(values: Sequence[dict[str, Any]], name: str) -> bool:
    return len({json.dumps(params[name], sort_keys=True) for params in values}) == 1


def _shared(setting: Setting) -> tuple[str, float]:
    """The values that the settings of one table share: the profile; and, if a clock is missing, the
    power limit, since no list of pairs can then state it."""
    limit_w = setting.power_limit_w if None in setting.clocks else None
    return setting.profile or "", limit_w or 0.0


def _listed(settings: Sequence[Setting]) -> dict[str, Any]:
    """The table of a campaign file that chooses these settings (:func:`_shared`)."""
    profile = settings[0].profile
    chosen: dict[str, Any] = {} if profile is None else {"profile": [profile]}
    if any(None in setting.clocks for setting in settings):
        values = {name: [getattr(setting, name) for setting in settings] for name in NUMBERS}
        distinct = {
            name: list(dict.fromkeys(v for v in numbers if v is not None))
            for name, numbers in values.items()
        }
        return chosen | {name: numbers for name, numbers in distinct.items() if numbers}
    pairs = [(*setting.clocks, setting.power_limit_w) for setting in settings]
    listed = [[float(value) for value in pair if value is not None] for pair in pairs]
    return chosen | {"choose": "pairs", "pairs": listed}


@dataclass(frozen=True, kw_only=True)
class NextPoint:
    """A kernel at a setting. ``node_hours``: with all its repeats. ``why`` it was chosen:
    ``spread``, to have distant settings; ``pick``, to improve picks; ``repeat``, the same with a
    cell that was measured before; ``anchor``, to show a drift since it was measured; or ``like``,
    to show how the site differs from a known one."""

    kernel: str
    params: dict[str, Any]
    core_mhz: float | None
    mem_mhz: float | None
    uncore_mhz: float | None
    power_limit_w: float | None
    profile: str | None
    node_hours: float
    why: str


@dataclass(frozen=True, kw_only=True)
class NextPoints:
    """The points to measure next, in the order of choice.

    ``kernels``, ``settings``: their numbers; ``planned``, ``measured``: the numbers of all points
    (repeats not counted), and of measured ones.
    ``expected_loss_pct``: the expected mean loss of picks now; ``then_``: after these points;
    ``more_``: after one node-hour more; None if nothing is known yet. ``ended``: the reason for no
    further points: ``budget``, ``enough`` (the loss is small), ``settled`` (nothing would change a
    pick), ``spread`` (these come first) or ``like`` (these show how the site differs from the known
    site ``like``). ``error_ratio``: for ``like``, the expected error of a fit from these points
    over that of a fit from all. ``campaign``: the text of a campaign file.
    """

    site: str
    partition: str
    simulated: bool
    objective: str
    kernels: int
    settings: int
    planned: int
    measured: int
    points: list[NextPoint]
    node_hours: float
    expected_loss_pct: float | None
    then_loss_pct: float | None
    more_loss_pct: float | None
    ended: str
    campaign: str
    like: str | None = None
    error_ratio: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """``campaign next --json``."""
        return asdict(self)


def next_points(
    results: Results,
    site: str,
    *,
    budget_h: float,
    most: int | None,
    partition: str | None,
    kernels: Sequence[str],
    objective: str,
    enough_pct: float,
    only_planned: bool,
    like: str | None,
    anchors: int,
    campaign_file: Path | None,
    beside: Path | None,
) -> NextPoints:
    """The points of a site to measure next.

    Args:
        results: the store.
        site: the site.
        budget_h: the most node-hours that they may take.
        most: the most points, repeats not counted.
        partition: the partition to measure on; None for the first of the campaign.
        kernels: only kernels of these names; none for all.
        objective: the quantity that picks minimise.
        enough_pct: the expected loss at which no further points are chosen.
        only_planned: choose among the settings of the campaign file, not all legal ones.
        like: a site of the same chip or family that has a fit: choose the points that best show how
            this site differs from it; ``fit`` then starts from its fit.
        anchors: the most measured points to measure again, to show a drift since then; they are at
            most a tenth of all.
        campaign_file: the source of kernels and protocol; None for the one that was run last.
        beside: the folder of the new campaign file; None for the current one.

    Raises:
        ArgumentError: no campaign file, or one without the site, the partition or the kernels.
        FileError: the campaign file is wrong.
        NoKeptFitError: there is no fit of the site ``like``.
        FitError: there is no such objective, or the site ``like`` does not help.
    """
    goal = objective_of(objective)
    file = _campaign_file(results, campaign_file)
    plan = make_plan(file)
    part = _part(plan, file, site, partition)
    if not only_planned:
        part = all_legal(plan, part.site, part.partition)
    if kernels:
        _check_kernels(part, kernels)
        part = of_kernels(part, kernels)
    states = point_states(results.store)
    if like is not None:
        check_like(site, Request(like=like))
        known_site = results.known_site(like)
        offer = offered(plan, part, states, known_site.data)
        chosen = measurements_like(
            known_site.data,
            known_site.fit,
            offer.cells,
            known_site.volts,
            budget_h=budget_h,
            most=most,
        )
    else:
        data = site_data(results, site)
        offer = offered(plan, part, states, data, again=True)
        chosen = next_measurements(
            data,
            posterior_of(results, site, data),
            offer.cells,
            goal,
            budget_h=budget_h,
            most=most,
            enough=enough_pct / 100.0,
            more_h=MORE_H,
            anchors=anchors,
        )
    cells = [*chosen.cells, *chosen.anchors]
    points = []
    for number, (cell, hours) in enumerate(zip(cells, chosen.node_hours, strict=True)):
        entry, setting = part.inputs[cell[0]], part.settings[cell[1]]
        why = "pick" if like is None else "like"
        if number < chosen.spread:
            why = "spread"
        elif number >= len(chosen.cells):
            why = "anchor"
        elif offer.cells.measured[cell]:
            why = "repeat"
        points.append(
            NextPoint(
                kernel=entry.label,
                params=json.loads(entry.params),
                **{name: getattr(setting, name) for name in AXES},
                node_hours=hours,
                why=why,
            )
        )
    losses = (chosen.lost_pct, chosen.then_lost_pct, chosen.more_lost_pct)
    now, then, more = (None if isnan(loss) else loss for loss in losses)
    text = ""
    if cells:
        repeats = {cell: int(offer.repeats[cell]) for cell in cells}
        text = next_file(plan.campaign, file, part, repeats, beside or Path.cwd())
    return NextPoints(
        site=site,
        partition=part.partition,
        simulated=plan.sites[site].is_simulated,
        objective=goal.name,
        kernels=sum(not kernels or entry.label in kernels for entry in part.inputs),
        settings=len(part.settings),
        planned=offer.planned,
        measured=offer.measured,
        points=points,
        node_hours=sum(chosen.node_hours),
        expected_loss_pct=now,
        then_loss_pct=then,
        more_loss_pct=more,
        ended=chosen.ended,
        campaign=text,
        like=like,
        error_ratio=None if isnan(chosen.error_ratio) else chosen.error_ratio,
    )


def _campaign_file(results: Results, named: Path | None) -> Path:
    """The campaign file to choose from.

    Raises:
        ArgumentError: none is named, and the store's own is not there.
    """
    if named is not None:
        return named
    recorded = (results.store.read_json("campaign.json") or {}).get("file")
    if recorded is None:
        raise ArgumentError(
            f"{results.path}: does not say which campaign file it was measured by; name one that "
            f"has these kernels: --campaign C.toml"
        )
    if not Path(recorded).is_file():
        raise ArgumentError(
            f"{results.path}: its campaign file {recorded} is not there; name it: --campaign C.toml"
        )
    return Path(recorded)


def _part(plan: Plan, file: Path, site: str, partition: str | None) -> PartitionPoints:
    if site not in plan.sites:
        raise ArgumentError(
            f"{file}: has no site {site!r}; {known_names(site, plan.sites, 'it has')}; for another "
            f"campaign file: --campaign C.toml"
        )
    partitions = [name for site_name, name in plan.partitions if site_name == site]
    if partition is not None and partition not in partitions:
        raise ArgumentError(
            f"--partition: {file} does not measure on partition {partition!r} of {site}; "
            f"{known_names(partition, partitions, 'it has')}"
        )
    return plan.of_partition(site, partition or partitions[0])


def _check_kernels(part: PartitionPoints, kernels: Sequence[str]) -> None:
    labels = list(dict.fromkeys(entry.label for entry in part.inputs))
    for name in kernels:
        if name not in labels:
            raise ArgumentError(
                f"--kernel: the campaign has no kernel {name!r}; "
                f"{known_names(name, labels, 'it has')}"
            )
