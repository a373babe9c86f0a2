"""The plan: it turns a campaign file and its site files into points in a seeded random order.

The same files give the same points with the same ids in the same order on any machine.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from campaign.plan.campaign_file import Campaign, KernelEntry, Settings, SiteEntry, read_campaign
from campaign.plan.estimate import holds_no_point
from campaign.plan.planned_points import (
    Input,
    PartitionPoints,
    PlannedPoints,
    ShowCount,
    partition_points,
)
from campaign.plan.sweep import MAX_POINTS, Sweep, swept
from dvfs.errors import known_names
from dvfs.input_files import FileError, KeyPath, MissingFileError, Source, errors_of, raise_all
from dvfs.kernel_instance import kernel_instances, short_labels
from dvfs.setting import AXES, Setting
from kernels.kernel import KernelError
from kernels.registry import find_kernel
from sites.site_file import Site
from sites.site_reading import find_site, read_site

T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """The points of a campaign, in the order of measurement."""

    campaign: Campaign
    sites: dict[str, Site]
    points: PlannedPoints
    spaces: Sequence[Sweep] = ()
    """The variants of every space at every site."""
    file: Path | None = None
    """The campaign file, or the one from which its points were chosen (``part_of``)."""

    def of_partition(self, site: str, partition: str) -> PartitionPoints:
        """The points of one partition, in order."""
        return next(p for p in self.points.parts if (p.site, p.partition) == (site, partition))

    @property
    def partitions(self) -> list[tuple[str, str]]:
        """(site, partition) of every partition with points, in the order of the files."""
        return [(part.site, part.partition) for part in self.points.parts]


def make_plan(
    path: Path, show: ShowCount = lambda planned: None, *, architecture: str | None = None
) -> Plan:
    """Read a campaign file and its sites, and list the points. ``show`` is called now and then with
    the number of points planned so far. ``architecture``: of the GPUs of all sites, such as
    ``sm_90``, whatever the site files say.

    Raises:
        FileError: a file is wrong; with the place and a remedy.
    """
    common_sweeps: dict[int, Sweep] = {}
    site_files: dict[int, tuple[Site, Path]] = {}

    def sweep(i: int, entry: KernelEntry, source: Source) -> None:
        common_sweeps[i] = swept(entry, i, source)

    def read(i: int, entry: SiteEntry, source: Source) -> None:
        site_files[i] = _site_of(entry, i, path, source)

    def sweep_all(campaign: Campaign, source: Source) -> None:
        entries = [(i, entry) for i, entry in enumerate(campaign.kernels) if entry.space is None]
        raise_all(errors_of(partial(sweep, i, entry, source) for i, entry in entries))
        _check_labels(campaign, source)

    def read_all(campaign: Campaign, source: Source) -> None:
        raise_all(errors_of(partial(read, i, e, source) for i, e in enumerate(campaign.sites)))

    campaign, source = read_campaign(path, [(["kernels"], sweep_all), (["sites"], read_all)])
    spaces: list[Sweep] = []
    sites: dict[str, Site] = {}
    parts: list[PartitionPoints] = []
    _check_unused(campaign.settings, source, ("settings",))
    for i, entry in enumerate(campaign.sites):
        site, site_path = site_files[i]
        if architecture is not None:
            site = site.model_copy(update={"architecture": architecture})
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
        key: KeyPath = ("sites", i, "settings") if entry.settings else ("settings",)
        site_settings = _settings(entry.settings or campaign.settings, site, source, key)
        kernel_settings = _kernel_settings(campaign, site_settings, site, source)
        settings = site_settings
        if any(kernel.settings for kernel in campaign.kernels):
            settings = list(dict.fromkeys(itertools.chain.from_iterable(kernel_settings)))
        sweeps = [
            common_sweeps[i] if i in common_sweeps else swept(entry, i, source, site)
            for i, entry in enumerate(campaign.kernels)
        ]
        spaces += [sweep for sweep in sweeps if sweep.site]
        _check_classes(site, sweeps, source)
        inputs = [
            Input(entry.kernel, entry.label or entry.kernel, params, entry.ranks)
            for entry, sweep in zip(campaign.kernels, sweeps, strict=True)
            for params in sweep.params
        ]
        repeats = [entry.repeats or campaign.repeats for entry in campaign.kernels]
        times = f"{'up to ' * (len(set(repeats)) > 1)}{campaign.most_repeats} times"
        so_far = sum(map(len, parts))
        cells = sum(len(s.params) * len(o) for s, o in zip(sweeps, kernel_settings, strict=True))
        count = so_far + len(partitions) * sum(
            len(s.params) * len(o) * n
            for s, o, n in zip(sweeps, kernel_settings, repeats, strict=True)
        )
        if count > MAX_POINTS:
            raise source.error(
                ("sites", i),
                f"{count} points so far: {len(inputs)} parameter sets at {len(settings)} settings, "
                f"{times} on {len(partitions)} partitions",
                f"a campaign may have at most {MAX_POINTS}: plan several",
            )
        input_settings = [
            o for o, sweep in zip(kernel_settings, sweeps, strict=True) for _ in sweep.params
        ]
        _check_ranks(inputs, source)
        _check_this_machine(sites, parts, site, partitions, source, i)
        _check_twice(inputs, input_settings, [site_settings, *kernel_settings], partitions, source)
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
            part = partition_points(
                site=site.name,
                partition=partition,
                inputs=inputs,
                settings=settings,
                repeats=[n for n, sweep in zip(repeats, sweeps, strict=True) for _ in sweep.params],
                seed=campaign.seed,
                batched=site.clocks.in_steps,
                show=partial(_show_total, show, sum(map(len, parts))),
            )
            if cells < len(inputs) * len(settings):
                part = part.only(_kernel_cells(input_settings, settings))
            parts.append(part)
    file = path if campaign.part_of is None else path.parent / campaign.part_of
    return Plan(campaign, sites, PlannedPoints(parts), spaces, file.resolve())


def _site_of(entry: SiteEntry, i: int, path: Path, source: Source) -> tuple[Site, Path]:
    """A site of the campaign file, and the path of its site file."""
    if entry.settings is not None:
        _check_unused(entry.settings, source, ("sites", i, "settings"))
    try:
        site_path = find_site(entry.site, path.parent)
    except FileError as error:
        raise source.error(("sites", i, "site"), error.what, error.remedy) from None
    try:
        return read_site(site_path), site_path
    except MissingFileError:
        raise source.error(
            ("sites", i, "site"),
            f"no such file {site_path}",
            "paths are relative to the campaign file",
        ) from None


def _kernel_settings(
    campaign: Campaign, site_settings: list[Setting], site: Site, source: Source
) -> list[list[Setting]]:
    """The settings of each kernel entry at a site: the entry's, or else the site's."""
    chosen = []
    for i, entry in enumerate(campaign.kernels):
        settings_of_kernel = site_settings
        if entry.settings is not None:
            key: KeyPath = ("kernels", i, "settings")
            _check_unused(entry.settings, source, key)
            settings_of_kernel = _settings(entry.settings, site, source, key)
        chosen.append(settings_of_kernel)
    return chosen


def _kernel_cells(
    input_settings: Sequence[Sequence[Setting]], settings: Sequence[Setting]
) -> np.ndarray:
    """The candidates (input * len(settings) + setting) when kernels have different settings.
    ``input_settings``: the settings of each input."""
    place = {setting: i for i, setting in enumerate(settings)}
    return np.array(
        [
            i * len(settings) + place[setting]
            for i, chosen in enumerate(input_settings)
            for setting in chosen
        ]
    )


def listed_inputs(campaign: Campaign) -> list[tuple[str, str]]:
    """(kernel's name in the store, parameters as JSON) of every parameter set, in the order of
    the campaign file. It omits the variants of a space, which may depend on the site."""
    source = Source("campaign", "")
    listed = [
        (entry.label or entry.kernel, params)
        for i, entry in enumerate(campaign.kernels)
        if entry.space is None
        for params in swept(entry, i, source).params
    ]
    return list(dict.fromkeys(listed))


def _check_labels(campaign: Campaign, source: Source) -> None:
    owners: dict[str, str] = {}
    for i, entry in enumerate(campaign.kernels):
        label = entry.label or entry.kernel
        if owners.setdefault(label, entry.kernel) != entry.kernel:
            raise source.error(
                ("kernels", i, "label"),
                f"label {label!r} already names the kernel {owners[label]}",
                "choose another label",
            )


def _check_this_machine(
    sites: Mapping[str, Site],
    planned: Sequence[PartitionPoints],
    site: Site,
    partitions: Sequence[str],
    source: Source,
    i: int,
) -> None:
    """Refuse partitions that would measure on this machine at the same time, as all partitions of a
    run do, where a meter counts the energy of both. ``planned``: the points of earlier sites."""
    here = [
        (of.name, name)
        for of, name in [
            *((sites[part.site], part.partition) for part in planned),
            *((site, name) for name in dict.fromkeys(partitions)),
        ]
        if of.partitions[name].scheduler == "local" and not of.is_simulated
    ]
    if len(here) > 1 and any(sites[name].meters for name, _ in here):
        labels = " and ".join("/".join(names) for names in here)
        raise source.error(
            ("sites", i),
            f"{labels} would measure on this machine at the same time, and its meters count the "
            "energy of both",
            "measure them one after the other: give each a campaign file",
        )


def _check_classes(site: Site, sweeps: list[Sweep], source: Source) -> None:
    """Refuse kernels that a simulated machine has no rate for, or that a real one cannot run."""
    if site.simulated is None:
        for i, sweep in enumerate(sweeps):
            if find_kernel(sweep.entry.kernel).prepare is None:
                raise source.error(
                    ("kernels", i, "kernel"),
                    f"{sweep.entry.kernel} is counted only: there is no program that {site.name} "
                    f"could run",
                    "measure it on a simulated machine, such as tesla-k20x or gtx-980",
                )
        return
    for i, sweep in enumerate(sweeps):
        entry, kernel = sweep.entry, find_kernel(sweep.entry.kernel)
        for text in sweep.params:
            try:
                counts = kernel.counts(kernel.params.model_validate_json(text))
            except KernelError as error:
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
            stray = [c for c in counts if site.class_of(c) not in site.simulated.rate_per_cycle]
            if stray:
                raise source.error(
                    ("kernels", i, "params"),
                    f"{entry.kernel} counts class {stray[0]!r}, which {site.name} does not have",
                    f"it has {', '.join(site.simulated.rate_per_cycle)}; choose other parameters",
                )


def _check_unused(settings: Settings, source: Source, place: KeyPath) -> None:
    """Refuse a key of a file that the value of ``choose`` ignores; a store's plan has all keys."""
    set_keys = {key for key in settings.model_fields_set if getattr(settings, key) is not None}
    for key, choose in (("pairs", "pairs"), ("count", "random"), ("seed", "random")):
        if key in set_keys and settings.choose != choose:
            raise source.error(
                (*place, key),
                f"only used with choose = {choose!r}",
                f"add that line, or remove {key}",
            )


def _settings(settings: Settings, site: Site, source: Source, key: KeyPath) -> list[Setting]:
    legal = _with_listed(settings, site, source, key)
    match settings.choose:
        case "pairs":
            if not settings.pairs:
                raise source.error((*key, "pairs"), "no pairs", "list [core MHz, memory MHz] pairs")
            chosen = []
            for pair in settings.pairs:
                limit_w = dict(enumerate(pair)).get(2)
                requested = replace(Setting(*pair[:2]), power_limit_w=limit_w)
                matches = [
                    s
                    for s in legal
                    if s.clocks == requested.clocks and limit_w in (None, s.power_limit_w)
                ]
                if not matches:
                    raise source.error(
                        (*key, "pairs"),
                        f"{requested}: not a legal pair at {site.name}",
                        _nearest_legal(requested, legal),
                    )
                chosen += matches
            return chosen
        case "random":
            if settings.count is None:
                raise source.error((*key, "count"), "missing", "give the number of settings")
            if settings.count > len(legal):
                raise source.error(
                    (*key, "count"),
                    f"found {settings.count}, and {site.name} has {len(legal)} legal settings",
                    "ask for fewer, or choose = 'all'",
                )
            drawn = sorted(
                legal,
                key=lambda s: hashlib.sha256(f"{settings.seed}:{s.hash_text}".encode()).digest(),
            )
            return sorted(drawn[: settings.count], key=legal.index)
    return legal


def _with_listed(settings: Settings, site: Site, source: Source, key: KeyPath) -> list[Setting]:
    """The site's legal settings with the listed values of each axis."""
    legal = site.settings
    for axis in AXES:
        listed: list[Any] | None = getattr(settings, axis)
        if listed is None:
            continue
        values = sorted({v for setting in site.settings if (v := getattr(setting, axis))})
        for value in listed:
            if value not in values:
                known_values = ", ".join(map(_plain, values[:20])) or "none"
                problem = f"found {_plain(value)}"
                raise source.error(
                    (*key, axis), problem, f"{site.name} has {known_values}; list of these"
                )
        legal = [setting for setting in legal if getattr(setting, axis) in listed]
    if not legal:
        raise source.error(key, "no legal setting has all of these values", "list others")
    return legal


def _plain(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _nearest_legal(setting: Setting, legal: list[Setting]) -> str:
    def distance(candidate: Setting) -> float:
        pairs = zip(setting.clocks, candidate.clocks, strict=True)
        return sum(abs((a or 0.0) - (b or 0.0)) for a, b in pairs)

    return f"the nearest legal one is: {min(legal, key=distance)}"


def _check_twice(
    inputs: Sequence[Input],
    input_settings: Sequence[Sequence[Setting]],
    chosen: Sequence[Sequence[Setting]],
    partitions: Sequence[str],
    source: Source,
) -> None:
    """Refuse points of equal content, which would have the same id. ``input_settings``: the
    settings of each input; equal inputs must have different ones. ``chosen``: the site's settings,
    then those of each kernel entry."""
    cell = _shared_cell(inputs, input_settings)
    twice = next(filter(None, map(_first_duplicate, chosen)), None)
    if cell or twice or _first_duplicate(partitions):
        point, setting = cell or (inputs[0], twice or chosen[0][0])
        raise source.error(
            ("kernels",),
            f"the point {point.label} {point.params} at {setting} is planned twice",
            "list each value and each kernel once, or give the kernels different labels",
        )


def _check_ranks(inputs: Sequence[Input], source: Source) -> None:
    """Refuse a kernel with different ranks: the store would not distinguish its measurements."""
    ranks: dict[tuple[str, str], int] = {}
    for entry in inputs:
        first_ranks = ranks.setdefault((entry.label, entry.params), entry.ranks)
        if first_ranks != entry.ranks:
            raise source.error(
                ("kernels",),
                f"{entry.label} {entry.params} with {first_ranks} and with {entry.ranks} ranks",
                "give the kernels different labels",
            )


def _shared_cell(
    inputs: Sequence[Input], input_settings: Sequence[Sequence[Setting]]
) -> tuple[Input, Setting] | None:
    """The first input that occurs twice at one setting, and that setting."""
    count = Counter(inputs)
    cells: set[tuple[Input, Setting]] = set()
    for entry, settings in zip(inputs, input_settings, strict=True):
        if count[entry] == 1:
            continue
        for setting in settings:
            if (entry, setting) in cells:
                return entry, setting
            cells.add((entry, setting))
    return None


def _show_total(show: ShowCount, before: int, planned: int) -> None:
    show(before + planned)


def _first_duplicate(values: Iterable[T]) -> T | None:
    earlier: set[T] = set()
    for value in values:
        if value in earlier:
            return value
        earlier.add(value)
    return None


def kernel_names(plan: Plan) -> dict[tuple[str, str], str]:
    """(label, parameters as JSON) -> the kernel's name: its label, and the parameters that differ
    among the campaign's kernels of this label."""
    inputs = {(entry.label, entry.params) for part in plan.points.parts for entry in part.inputs}
    instances = kernel_instances(inputs)
    short = short_labels(instances.values())
    return {pair: short[instance.label] for pair, instance in instances.items()}
