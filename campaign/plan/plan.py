"""The plan: from a campaign file and its site files to points in a seeded random order.

Pure: the same files give the same points with the same ids in the same order on any machine.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from campaign.plan.campaign_file import Campaign, KernelEntry, Settings, read_campaign
from campaign.plan.estimate import holds_no_point
from campaign.plan.planned_points import (
    Input,
    PartitionPoints,
    PlannedPoints,
    ShowCount,
    partition_points,
)
from campaign.plan.point import canonical_json
from kernels.kernel import Kernel, KernelFailed
from kernels.registry import find_kernel
from sites.located_toml import (
    BadFile,
    KeyPath,
    NoSuchFile,
    Source,
    raise_all,
)
from sites.model_values import value_remedy
from sites.near_names import known_names
from sites.setting import Setting
from sites.site_file import Site
from sites.site_reading import find_site, read_site

MAX_POINTS = 20_000_000
T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """The points of a campaign, in the order in which they are measured."""

    campaign: Campaign
    sites: dict[str, Site]
    points: PlannedPoints

    def of_partition(self, site: str, partition: str) -> PartitionPoints:
        """The points of one partition, in order."""
        return next(p for p in self.points.parts if (p.site, p.partition) == (site, partition))

    @property
    def partitions(self) -> list[tuple[str, str]]:
        """(site, partition) of every partition that is measured on, in the files' order."""
        return [(part.site, part.partition) for part in self.points.parts]


def make_plan(path: Path, show: ShowCount = lambda planned: None) -> Plan:
    """Read a campaign file and its sites, and list the points. ``show`` is called with how many
    are planned, now and then.

    Raises:
        BadFile: something in the files is wrong; with the place and a remedy.
    """
    campaign, source = read_campaign(path)
    sweeps = [
        (i, entry, find_kernel(entry.kernel), _sweep(entry, i, source))
        for i, entry in enumerate(campaign.kernels)
    ]
    _check_labels(sweeps, source)
    inputs = [
        Input(entry.kernel, entry.label or entry.kernel, params, entry.ranks)
        for _, entry, _, sweep in sweeps
        for params in sweep
    ]
    sites: dict[str, Site] = {}
    parts: list[PartitionPoints] = []
    _check_unused(campaign.settings, source, ("settings",))
    for i, entry in enumerate(campaign.sites):
        if entry.settings is not None:
            _check_unused(entry.settings, source, ("sites", i, "settings"))
        try:
            site_path = find_site(entry.site, path.parent)
        except BadFile as error:
            raise source.error(("sites", i, "site"), error.what, error.remedy) from None
        try:
            site = read_site(site_path)
        except NoSuchFile:
            raise source.error(
                ("sites", i, "site"),
                f"no such file {site_path}",
                "paths are relative to the campaign file",
            ) from None
        if site.name in sites:
            raise source.error(
                ("sites", i, "site"), f"a second site named {site.name!r}", "give it another name"
            )
        sites[site.name] = site
        partitions = entry.partitions or list(site.partitions)
        for name in partitions:
            if name not in site.partitions:
                raise source.error(
                    ("sites", i, "partitions"),
                    f"{site.name} has no partition {name!r}",
                    known_names(name, site.partitions, "it has"),
                )
        at: KeyPath = ("sites", i, "settings") if entry.settings else ("settings",)
        settings = _settings(entry.settings or campaign.settings, site, source, at)
        _check_classes(site, sweeps, source)
        so_far = sum(map(len, parts))
        count = so_far + len(partitions) * len(inputs) * len(settings) * campaign.repeats
        if count > MAX_POINTS:
            raise source.error(
                ("sites", i),
                f"{count} points so far: {len(inputs)} parameter sets at {len(settings)} settings, "
                f"{campaign.repeats} times on {len(partitions)} partitions",
                f"a campaign may have at most {MAX_POINTS}: plan several",
            )
        _check_twice(inputs, settings, partitions, source)
        for name in partitions:
            problem = holds_no_point(campaign.protocol, site, site.partitions[name])
            if problem:
                raise source.error(
                    ("protocol",),
                    f"{site.name}/{name}: {problem}",
                    f"set a longer partitions.{name}.walltime in {site_path}, or shorten the "
                    f"protocol's steps",
                )
        for partition in partitions:
            parts.append(
                partition_points(
                    site=site.name,
                    partition=partition,
                    inputs=inputs,
                    settings=settings,
                    repeats=campaign.repeats,
                    seed=campaign.seed,
                    batched=site.clocks.control == "slurm",
                    show=partial(_shown_after, show, sum(map(len, parts))),
                )
            )
    return Plan(campaign, sites, PlannedPoints(parts))


def listed_inputs(campaign: Campaign) -> list[tuple[str, str]]:
    """(kernel's name in the store, parameters as JSON) of every parameter set, in the order of
    the campaign file."""
    source = Source("campaign", "")
    return [
        (entry.label or entry.kernel, params)
        for i, entry in enumerate(campaign.kernels)
        for params in _sweep(entry, i, source)
    ]


Sweep = tuple[int, KernelEntry, Kernel, list[str]]


def _sweep(entry: KernelEntry, index: int, source: Source) -> list[str]:
    """The parameter sets of a kernel entry, checked by the kernel, as canonical JSON."""
    kernel = find_kernel(entry.kernel)
    sets = []
    excluded = 0
    for raw in _combinations(entry, index, source):
        if any(_matches(raw, pattern) for pattern in entry.exclude):
            excluded += 1
            continue
        try:
            params = kernel.params.model_validate(raw)
        except ValidationError as errors:
            raise_all([_params_error(entry, kernel, index, e, source) for e in errors.errors()])
        sets.append(canonical_json(params.model_dump(mode="json")))
    if not sets:
        raise source.error(
            ("kernels", index),
            f"the sweep of {entry.kernel} is empty",
            "exclude removes every combination; exclude fewer"
            if excluded
            else "list at least one value for each parameter",
        )
    return sets


def _combinations(entry: KernelEntry, index: int, source: Source) -> Iterator[dict[str, Any]]:
    known = set(find_kernel(entry.kernel).params.model_fields)
    axes: list[list[dict[str, Any]]] = []
    for name, value in entry.params.items():
        values = value if isinstance(value, list) and not _takes_list(entry, name) else [value]
        axes.append([{name: one} for one in values])
    for z, table in enumerate(entry.zip):
        lengths = {len(values) for values in table.values()}
        if len(lengths) > 1:
            raise source.error(
                ("kernels", index, "zip", z),
                f"lists of different lengths ({', '.join(map(str, sorted(lengths)))})",
                "lists that go together must be equally long",
            )
        twice = set(table) & (set(entry.params) | {n for t in entry.zip[:z] for n in t})
        if twice:
            raise source.error(
                ("kernels", index, "zip", z),
                f"parameter {min(twice)!r} is given twice",
                "give it once, in params or in one zip table",
            )
        together = zip(*table.values(), strict=True)
        axes.append([dict(zip(table, row, strict=True)) for row in together])
    count = math.prod(map(len, axes))
    if count > MAX_POINTS:
        raise source.error(
            ("kernels", index),
            f"the sweep of {entry.kernel} has {count} parameter sets",
            f"a campaign may have at most {MAX_POINTS} points: list fewer values",
        )
    for x, pattern in enumerate(entry.exclude):
        stray = sorted(set(pattern) - known)
        if stray:
            raise source.error(
                ("kernels", index, "exclude", x, stray[0]),
                f"unknown parameter of {entry.kernel}",
                known_names(stray[0], sorted(known), "known here"),
            )
    for chosen in itertools.product(*axes):
        yield {name: value for part in chosen for name, value in part.items()}


def _takes_list(entry: KernelEntry, name: str) -> bool:
    """Whether one value of this parameter is a list, such as a command's argv. A sweep over such
    a parameter is a list of lists."""
    field = find_kernel(entry.kernel).params.model_fields.get(name)
    value = entry.params[name]
    is_tuple = field is not None and "tuple" in str(field.annotation)
    return is_tuple and not all(isinstance(item, list) for item in value)


def _matches(raw: Mapping[str, Any], pattern: Mapping[str, Any]) -> bool:
    return all(
        name in raw and (raw[name] in value if isinstance(value, list) else raw[name] == value)
        for name, value in pattern.items()
    )


def _params_error(
    entry: KernelEntry, kernel: Kernel, index: int, first: ErrorDetails, source: Source
) -> BadFile:
    name = str(first["loc"][0]) if first["loc"] else ""
    in_zip = next((z for z, table in enumerate(entry.zip) if name in table), None)
    key: KeyPath = (
        ("kernels", index, "params", name)
        if in_zip is None
        else ("kernels", index, "zip", in_zip, name)
    )
    match first["type"]:
        case "extra_forbidden":
            return source.error(
                key,
                f"unknown parameter of {entry.kernel}",
                known_names(name, sorted(kernel.params.model_fields)),
            )
        case "missing":
            return source.error(
                key, f"{entry.kernel} needs this parameter", f"add {name} = VALUE to params"
            )
        case "value_error":
            error = first["ctx"]["error"]
            key = key if name else ("kernels", index, "params")
            what, remedy = getattr(error, "what", str(error)), getattr(error, "remedy", "")
            return source.error(key, what, remedy)
        case _:
            found = f"found {first['input']!r}"
            return source.error(key, found, value_remedy(first, kernel.params))


def _check_labels(sweeps: list[Sweep], source: Source) -> None:
    owners: dict[str, str] = {}
    for i, entry, _, _ in sweeps:
        label = entry.label or entry.kernel
        if owners.setdefault(label, entry.kernel) != entry.kernel:
            raise source.error(
                ("kernels", i, "label"),
                f"label {label!r} already names the kernel {owners[label]}",
                "choose another label",
            )


def _check_classes(site: Site, sweeps: list[Sweep], source: Source) -> None:
    """Refuse kernels that count a class without a rate on the simulated machine."""
    if site.twin is None:
        return
    for i, entry, kernel, sweep in sweeps:
        for text in sweep:
            try:
                counts = kernel.counts(kernel.params.model_validate_json(text))
            except KernelFailed as error:
                raise source.error(
                    ("kernels", i, "params"),
                    f"the operations of {entry.kernel} cannot be counted: {error}",
                    "fix that, or choose other parameters",
                ) from None
            if counts is None or entry.ranks > 1:
                raise source.error(
                    ("kernels", i, "kernel"),
                    f"{entry.kernel} cannot run on the simulated machine {site.name}",
                    "its counts must be known before it runs, and ranks must be 1",
                )
            stray = [c for c in counts if site.class_of(c) not in site.twin.rate_per_cycle]
            if stray:
                raise source.error(
                    ("kernels", i, "params"),
                    f"{entry.kernel} counts class {stray[0]!r}, which {site.name} does not have",
                    f"it has {', '.join(site.twin.rate_per_cycle)}; choose other parameters",
                )


def _check_unused(settings: Settings, source: Source, at: KeyPath) -> None:
    """Refuse a key that the way of choosing does not read: what it says would not happen."""
    given = {key for key in settings.model_fields_set if getattr(settings, key) is not None}
    for key, choose in (("pairs", "pairs"), ("count", "random"), ("seed", "random")):
        if key in given and settings.choose != choose:
            raise source.error(
                (*at, key),
                f"only used with choose = {choose!r}",
                f"add that line, or remove {key}",
            )


def _settings(settings: Settings, site: Site, source: Source, at: KeyPath) -> list[Setting]:
    legal = site.settings
    match settings.choose:
        case "pairs":
            if not settings.pairs:
                raise source.error((*at, "pairs"), "no pairs", "list [core MHz, memory MHz] pairs")
            chosen = [Setting(*pair) for pair in settings.pairs]
            for setting in chosen:
                if setting not in legal:
                    raise source.error(
                        (*at, "pairs"),
                        f"{setting}: not a legal pair at {site.name}",
                        _nearest_legal(setting, legal),
                    )
            return chosen
        case "random":
            if settings.count is None:
                raise source.error((*at, "count"), "missing", "give the number of settings")
            if settings.count > len(legal):
                raise source.error(
                    (*at, "count"),
                    f"found {settings.count}, and {site.name} has {len(legal)} legal settings",
                    "ask for fewer, or choose = 'all'",
                )
            drawn = sorted(
                legal,
                key=lambda s: hashlib.sha256(f"{settings.seed}:{s.hash_text}".encode()).digest(),
            )
            return sorted(drawn[: settings.count], key=legal.index)
    return legal


def _nearest_legal(setting: Setting, legal: list[Setting]) -> str:
    def distance(other: Setting) -> float:
        pairs = ((setting.core_mhz, other.core_mhz), (setting.mem_mhz, other.mem_mhz))
        return sum(abs((a or 0.0) - (b or 0.0)) for a, b in pairs)

    return f"the nearest legal one is: {min(legal, key=distance)}"


def _check_twice(
    inputs: list[Input], settings: list[Setting], partitions: list[str], source: Source
) -> None:
    """Refuse points of equal content, which would have the same id."""
    twice = (_first_twice(inputs), _first_twice(settings), _first_twice(partitions))
    if any(value is not None for value in twice):
        point, setting = twice[0] or inputs[0], twice[1] or settings[0]
        raise source.error(
            ("kernels",),
            f"the point {point.label} {point.params} at {setting} is planned twice",
            "list each value and each kernel once, or give the kernels different labels",
        )


def _shown_after(show: ShowCount, before: int, planned: int) -> None:
    show(before + planned)


def _first_twice(values: Iterable[T]) -> T | None:
    seen: set[T] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None
