"""A campaign file of chosen points."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from campaign.plan.campaign_file import Campaign
from campaign.plan.planned_points import Input, PartitionPoints
from dvfs.setting import NUMBERS, Setting
from sites.site_reading import built_in_sites, find_site


def next_file(
    campaign: Campaign,
    file: Path,
    part: PartitionPoints,
    cells: Mapping[tuple[int, int], int],
    beside: Path,
) -> str:
    """The text of a campaign file with the cells of a partition: (kernel, setting) -> repeats.

    ``campaign``, ``file``: where the points come from; the text keeps its name, seed, repeats,
    protocol and retries, so that the points are those that it would have planned. ``beside``: the
    folder of the new file.
    """
    import tomlkit  # noqa: PLC0415

    entry = next(e for e in campaign.sites if _is_of(e.site, file, part.site))
    site = entry.site
    if not _is_built_in(site):
        site = _relative(find_site(site, file.parent), beside)
    kept = campaign.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    content: dict[str, Any] = {
        "name": campaign.name,
        "seed": campaign.seed,
        "repeats": campaign.repeats,
        "part_of": _relative(file, beside),
        "sites": [{"site": site, "partitions": [part.partition]}],
        **{name: kept[name] for name in ("protocol", "retries") if name in kept},
        "kernels": _kernels(part, cells, campaign.repeats),
    }
    return tomlkit.dumps(content)


def _is_built_in(site: str) -> bool:
    return site in built_in_sites()


def _is_of(site: str, file: Path, name: str) -> bool:
    from sites.site_reading import read_site  # noqa: PLC0415

    return read_site(find_site(site, file.parent)).name == name


def _relative(path: Path, folder: Path) -> str:
    path, folder = path.resolve(), folder.resolve()
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _kernels(
    part: PartitionPoints, cells: Mapping[tuple[int, int], int], usual: int
) -> list[dict[str, Any]]:
    """The [[kernels]] tables: those with the same settings (:func:`_together`), repeats and names
    of parameters in one.
    ``usual``: the campaign's repeats."""
    settings: dict[tuple[int, int, tuple[str, float]], list[int]] = defaultdict(list)
    for (kernel, setting), repeats in cells.items():
        settings[kernel, repeats, _together(part.settings[setting])].append(setting)
    alike: dict[tuple[str, str, int, tuple[str, ...], int, tuple[int, ...]], list[Input]]
    alike = defaultdict(list)
    for kernel, repeats, together in sorted(settings):
        own = part.inputs[kernel]
        names = tuple(_values(own))
        at = tuple(sorted(settings[kernel, repeats, together]))
        alike[own.kernel, own.label, own.ranks, names, repeats, at].append(own)
    tables = []
    for (kernel_name, label, ranks, names, repeats, at), inputs in alike.items():
        table: dict[str, Any] = {"kernel": kernel_name}
        if label != kernel_name:
            table["label"] = label
        if ranks > 1:
            table["ranks"] = ranks
        if repeats != usual:
            table["repeats"] = repeats
        values = [_values(own) for own in inputs]
        # A value that is a list itself stands in a list, as one value of the sweep.
        same = {name: values[0][name] for name in names if _all_same(values, name)}
        if same:
            table["params"] = {
                name: [value] if isinstance(value, list) else value for name, value in same.items()
            }
        varied = [name for name in names if name not in same]
        if varied:
            table["zip"] = [{name: [own[name] for own in values] for name in varied}]
        table["settings"] = _listed([part.settings[s] for s in at])
        tables.append(table)
    return tables


def _all_same(values: Sequence[dict[str, Any]], name: str) -> bool:
    return len({json.dumps(own[name], sort_keys=True) for own in values}) == 1


def _values(own: Input) -> dict[str, Any]:
    """Parameters with a value; one without is the kernel's default, which a file leaves out."""
    values = json.loads(own.params)
    return {name: value for name, value in values.items() if value is not None}


def _together(setting: Setting) -> tuple[str, float]:
    """What settings of one table have in common: the profile; and the power limit where a clock is
    missing, for then no list of pairs can name it."""
    limit_w = setting.power_limit_w if None in setting.clocks else None
    return setting.profile or "", limit_w or 0.0


def _listed(settings: Sequence[Setting]) -> dict[str, Any]:
    """The table of a campaign file that chooses these settings (:func:`_together`)."""
    profile = settings[0].profile
    chosen: dict[str, Any] = {} if profile is None else {"profile": [profile]}
    if any(None in setting.clocks for setting in settings):
        values = {name: [getattr(one, name) for one in settings] for name in NUMBERS}
        given = {
            name: dict.fromkeys(v for v in own if v is not None) for name, own in values.items()
        }
        return chosen | {name: list(own) for name, own in given.items() if own}
    pairs = [(*one.clocks, one.power_limit_w) for one in settings]
    listed = [[float(value) for value in pair if value is not None] for pair in pairs]
    return chosen | {"choose": "pairs", "pairs": listed}
