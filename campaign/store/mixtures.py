"""The values of a set-up that matter for a measurement, and their differences within a store.

A value matters if another one could change the time, energy or counts at the same point. So the
time limit, the retries, the number of nodes, wall times, accounts, folders and the lists of legal
clocks, power limits and profiles do not matter. A key that only one record has is a difference,
except where the other record cannot have it (a kernel that was not measured, a clock that is not
listed, another partition, a node that did not report its hardware): then there is nothing to
compare. A record of an earlier version is read like a file of today: missing keys get defaults.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from campaign.store.environment_variables import key_of
from campaign.store.setups import Record, SetupUse
from dvfs.errors import UserError

WITHOUT_EFFECT = {
    "protocol": ("timeout_s",),
    "site": (
        *("name", "description", "legal", "domains", "partitions", "slurm", "architecture"),
        *("energy", "metering", "power_limit", "profiles"),
    ),
}
"""The entries that do not matter. Parts of domains, partitions, power limits and profiles do; see
below."""
LISTED = {"power_limit": "limits_w", "profiles": "names"}
"""Tables of a site that define how listed values are set, and the key of the list."""
OF_PARTITION = ("cores", "exclusive", "directives")
OF_NODE = ("cpu", "board", "gpus", "gpu_driver", "power_limits_w", "energy_preference")
NOT_IN_ALL = (
    *("kernels.", "site.domains.", "site.partitions.", "site.simulated.attained.", "node."),
    *(f"site.{name}." for name in LISTED),
    "version",
)
"""The prefixes of keys that some records cannot have."""
KERNEL_CODE, EARLIER_CODE = "kernel_code", "kernels"
"""Keys of a record's versions: kernel -> its identity; and, in earlier versions, kernel -> hashes
of files, which cannot be compared with identities."""
ABSENT = None
"""The value of a key that a record lacks. No file has this value."""
MOST_SHOWN = 6
VALUE_CHARS = 60


class ChangedSetupError(UserError):
    """A run would add measurements under another set-up than those of the store."""

    def __str__(self) -> str:
        return f"{self.what} ({self.remedy})"


@dataclass(frozen=True)
class Difference:
    """A key, and its values, each with the number of measurements under it."""

    key: str
    values: tuple[tuple[Any, int], ...]

    def __str__(self) -> str:
        values = (f"{value_text(value)} ({_points(points)})" for value, points in self.values)
        return f"{self.key} {', '.join(values)}"


@dataclass(frozen=True)
class Mixture:
    """The number of set-ups of a site's measurements, and their differences."""

    site: str
    setups: int
    differences: tuple[Difference, ...]

    @property
    def text(self) -> str:
        """The mixture in a sentence."""
        shown = [str(difference) for difference in self.differences[:MOST_SHOWN]]
        more = len(self.differences) - len(shown)
        end = f"; and {more} more differences" if more else ""
        return f"measurements under {self.setups} set-ups: {'; '.join(shown)}{end}"

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types: the fields, and ``text``."""
        differences = [
            {"key": difference.key, "values": [list(pair) for pair in difference.values]}
            for difference in self.differences
        ]
        return {
            "site": self.site,
            "setups": self.setups,
            "text": self.text,
            "differences": differences,
        }


@dataclass(frozen=True)
class Change:
    """A key whose value a run would change. ``points``: measurements under the ``old`` value."""

    site: str
    key: str
    old: Any
    points: int
    new: Any

    def __str__(self) -> str:
        where = f"{self.site}: " if self.site else ""
        old, new = value_text(self.old), value_text(self.new)
        key = "campaign name" if self.key == "campaign" else self.key
        return f"{where}{key}: was {old} ({_points(self.points)}), is now {new}"


def values_that_matter(record: Record) -> dict[str, Any]:
    """Key -> value, of all entries of a record that matter for the measurements."""
    record = as_read_now(record)
    site, versions = record["site"], record.get("versions", {})
    values: dict[str, Any] = {"campaign": record["campaign"]}
    values |= _flat("protocol", _without(record["protocol"], WITHOUT_EFFECT["protocol"]))
    values |= _flat("site", _without(site, WITHOUT_EFFECT["site"]))
    for name, domain in (site.get("domains") or {}).items():
        volts = {f"{mhz:g}": volt for mhz, volt in (domain or {}).get("voltage_v") or ()}
        for mhz in (domain or {}).get("frequencies_mhz", ()):
            values[f"site.domains.{name}.voltage_v.{mhz:g}"] = volts.get(f"{mhz:g}")
    for name, list_key in LISTED.items():
        values |= _flat(f"site.{name}", _without(site.get(name) or {}, (list_key,)))
    name = record.get("partition", "")
    partition = site.get("partitions", {}).get(name, {})
    environment = partition.get("environment", {})
    partition_values = {key: partition[key] for key in OF_PARTITION if key in partition}
    if environment:
        variables = environment.get("variables", {})
        partition_values |= {
            "modules": environment.get("modules", []),
            "variables": sorted(variables),
        }
        # The key is part of the name, so that values hidden by different keys are not compared.
        hidden = {
            f"{variable} ({key})" if (key := key_of(value)) else variable: value
            for variable, value in variables.items()
        }
        values |= _flat(f"site.partitions.{name}.variables", hidden)
    values |= _flat(f"site.partitions.{name}", partition_values)
    if "version" in versions:
        values["version"] = versions["version"]
    values |= _flat("kernels", versions.get(KERNEL_CODE, {}))
    if not site.get("simulated"):  # a simulation does not depend on the node
        node = record.get("node", {})
        values |= _flat("node", {key: node[key] for key in OF_NODE if key in node})
    return values


def as_read_now(record: Record) -> Record:
    """A record as this version makes it from the same files: keys that the earlier version lacked
    get their defaults, and renamed keys get their names of today."""
    from pydantic import ValidationError  # noqa: PLC0415

    from campaign.plan.campaign_file import Protocol  # noqa: PLC0415
    from sites.site_file import Site  # noqa: PLC0415

    now = dict(record)
    site = record["site"]
    if "twin" in site:
        now["site"] = {key: value for key, value in site.items() if key != "twin"}
        now["site"]["simulated"] = site["twin"]
        if site["twin"]:
            now["site"]["clocks"] = {**site["clocks"], "control": "simulated"}
    for name, model in (("site", Site), ("protocol", Protocol)):
        with contextlib.suppress(ValidationError):  # then it stays as it is
            now[name] = model.model_validate(now[name]).model_dump(mode="json")
    return now


def is_known(values: Mapping[str, Any], key: str) -> bool:
    """Whether a record states the value of a key, or that it has none."""
    if key in values or not key.startswith(NOT_IN_ALL):
        return True
    domain, separator, _ = key.rpartition(".voltage_v.")
    return bool(separator) and not any(name.startswith(f"{domain}.") for name in values)


def _without(fields: Record, names: Iterable[str]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


def _flat(key: str, value: Any) -> dict[str, Any]:
    """Flatten nested tables and lists of tables into one, with keys like ``meters.0.kind``."""
    if isinstance(value, Mapping):
        entries: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        entries = enumerate(value)
    else:
        return {key: value}
    flat: dict[str, Any] = {}
    for name, item in entries:
        flat |= _flat(f"{key}.{name}", item)
    return flat


def mixtures(uses: Iterable[SetupUse]) -> list[Mixture]:
    """The sites whose measurements were made under several set-ups, by name."""
    by_site: dict[str, list[SetupUse]] = {}
    for use in uses:
        by_site.setdefault(use.site, []).append(use)
    site_mixtures = (
        _mixture(site, [(values_that_matter(use.record), use.points) for use in by_site[site]])
        for site in sorted(by_site)
        if len(by_site[site]) > 1
    )
    return [mixture for mixture in site_mixtures if mixture is not None]


def _mixture(site: str, uses: Sequence[tuple[dict[str, Any], int]]) -> Mixture | None:
    differences = []
    for key in dict.fromkeys(key for values, _ in uses for key in values):
        points: dict[str, list[Any]] = {}
        for values, count in uses:
            if is_known(values, key):
                value = values.get(key, ABSENT)
                points.setdefault(json.dumps(value, sort_keys=True), [value, 0])[1] += count
        if len(points) > 1:
            ordered = sorted(points.values(), key=lambda pair: -pair[1])
            differences.append(Difference(key, tuple((value, n) for value, n in ordered)))
    if not differences:
        return None
    setups: list[dict[str, Any]] = []
    keys = [difference.key for difference in differences]
    for values, _ in sorted(uses, key=lambda use: -len(use[0])):
        known = {key: values.get(key, ABSENT) for key in keys if is_known(values, key)}
        if not any(all(setup.get(k, known[k]) == known[k] for k in known) for setup in setups):
            setups.append(known)
    return Mixture(site, len(setups), tuple(differences))


def changes(uses: Sequence[SetupUse], planned: Iterable[Record]) -> list[Change]:
    """The changes of a run with these planned records. If no measurement of a site was made with
    all of the planned values, compare with the set-up that differs least."""
    recorded = [(use, values_that_matter(use.record)) for use in uses]
    result: dict[tuple[str, str], Change] = {}
    for record in planned:
        site, new_values = str(record["site"]["name"]), values_that_matter(record)
        site_setups = [(values, use.points) for use, values in recorded if use.site == site]
        all_setups = [(values, use.points) for use, values in recorded]
        for change in (
            *_name_change(all_setups, new_values),
            *_optional_changes(site, site_setups, new_values),
            *_nearest_changes(site, site_setups, new_values),
        ):
            result.setdefault((change.site, change.key), change)
    return list(result.values())


Setups = Sequence[tuple[dict[str, Any], int]]
"""The values of set-ups, each with its number of measurements."""


def _name_change(setups: Setups, new_values: Mapping[str, Any]) -> list[Change]:
    """The change of the campaign's name, over all sites of the store."""
    names = {values["campaign"]: 0 for values, _ in setups}
    for values, points in setups:
        names[values["campaign"]] += points
    if not names or new_values["campaign"] in names:
        return []
    old = max(names, key=lambda name: names[name])
    return [Change("", "campaign", old, names[old], new_values["campaign"])]


def _optional_changes(site: str, setups: Setups, new_values: Mapping[str, Any]) -> list[Change]:
    """The changes of keys that some records cannot have. Each key is compared separately."""
    result = []
    records = (*(values for values, _ in setups), new_values)
    for key in dict.fromkeys(key for values in records for key in values):
        if not key.startswith(NOT_IN_ALL) or not is_known(new_values, key):
            continue
        new = new_values.get(key, ABSENT)
        having = [
            (values.get(key, ABSENT), points) for values, points in setups if is_known(values, key)
        ]
        if having and all(value != new for value, _ in having):
            old = having[-1][0]
            points = sum(count for value, count in having if value == old)
            result.append(Change(site, key, old, points, new))
    return result


def _nearest_changes(site: str, setups: Setups, new_values: Mapping[str, Any]) -> list[Change]:
    """The changes of the keys that every record has, from the set-up that differs least."""
    best: list[Change] | None = None
    for values, points in setups:
        keys = [
            key
            for key in dict.fromkeys((*values, *new_values))
            if key != "campaign"
            and not key.startswith(NOT_IN_ALL)
            and values.get(key, ABSENT) != new_values.get(key, ABSENT)
        ]
        if best is None or len(keys) < len(best):
            best = [
                Change(site, key, values.get(key, ABSENT), points, new_values.get(key, ABSENT))
                for key in keys
            ]
    return best or []


def not_comparable(uses: Sequence[SetupUse], planned: Iterable[Record]) -> list[str]:
    """A sentence for each planned kernel whose code cannot be compared with that of earlier
    measurements of its site, because an earlier version recorded it in another form."""
    texts = {}
    for record in planned:
        site = str(record["site"]["name"])
        for kernel in record["versions"][KERNEL_CODE]:
            points = sum(
                use.points
                for use in uses
                if use.site == site
                and kernel in use.record.get("versions", {}).get(EARLIER_CODE, {})
            )
            if points:
                texts[site, kernel] = (
                    f"{site}: an earlier version measured {_points(points)}, and whether {kernel} "
                    f"has changed since cannot be seen"
                )
    return list(texts.values())


def refuse_changes(store_path: str, setup_changes: Sequence[Change]) -> None:
    """Raise an error that names all changes, if there are any.

    Raises:
        ChangedSetupError: there are changes.
    """
    if setup_changes:
        lines = "".join(f"\n  {change}" for change in setup_changes)
        raise ChangedSetupError(
            f"{store_path}: its measurements were made in another way than this run would make "
            f"them:{lines}\nuse a new store (--store NEW), or keep both here with --accept-changes",
            "campaign status then lists the differences",
        )


def value_text(value: Any) -> str:
    """A value on one line; a long one is cut off."""
    if value is ABSENT:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= VALUE_CHARS else text[: VALUE_CHARS - 3] + "..."


def _points(count: int) -> str:
    return f"{count} point{'' if count == 1 else 's'}"
