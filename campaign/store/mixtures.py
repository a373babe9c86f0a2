"""Which values of a set-up matter for a measurement, and where those of a store differ in them.

A value matters if another one could give another time, energy or count at the same point. So the
time limit, the retries, the number of nodes, wall times, accounts, folders and the lists of legal
clocks, power limits and profiles do not. A key that only one record has is a difference. Where a
record cannot have it (a kernel that was not measured, a clock that is not listed, another
partition, a node that did not show what it is), there is nothing to compare. A record of an earlier
version is read as a file with the same keys is read now: what it lacks has its default.
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
"""The entries that do not matter. Of domains, partitions, power limits and profiles some do, see
below."""
LISTED = {"power_limit": "limits_w", "profiles": "names"}
"""Tables of a site that say how listed values are set, and the key of the list."""
OF_PARTITION = ("cores", "exclusive", "directives")
OF_NODE = ("cpu", "board", "gpus", "gpu_driver", "power_limits_w", "energy_preference")
NOT_IN_ALL = (
    *("kernels.", "site.domains.", "site.partitions.", "site.simulated.attained.", "node."),
    *(f"site.{name}." for name in LISTED),
    "version",
)
"""How the keys begin that some records cannot have."""
KERNEL_CODE, EARLIER_CODE = "kernel_code", "kernels"
"""In a record's versions: kernel -> its identity; and as versions before wrote it, hashes of files,
which cannot be compared with identities."""
NOT_THERE = None
"""The value of a key that a record lacks. A file cannot say it otherwise."""
MOST_SHOWN = 6
VALUE_CHARS = 60


class ChangedSetupError(UserError):
    """A run would add measurements that were made in another way than those of the store."""

    def __str__(self) -> str:
        return f"{self.what} ({self.remedy})"


@dataclass(frozen=True)
class Difference:
    """A key, and each of its values with the number of measurements under it."""

    key: str
    values: tuple[tuple[Any, int], ...]

    def __str__(self) -> str:
        values = (f"{value_text(value)} ({_points(points)})" for value, points in self.values)
        return f"{self.key} {', '.join(values)}"


@dataclass(frozen=True)
class Mixture:
    """A site's measurements under several set-ups: how many, and in what they differ."""

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
    """A key whose value a run would change; ``points``: measurements under the ``old`` one."""

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
    """Key -> value, of everything in a record that matters for the measurements."""
    record = as_read_now(record)
    site, versions = record["site"], record.get("versions", {})
    values: dict[str, Any] = {"campaign": record["campaign"]}
    values |= _flat("protocol", _without(record["protocol"], WITHOUT_EFFECT["protocol"]))
    values |= _flat("site", _without(site, WITHOUT_EFFECT["site"]))
    for name, domain in (site.get("domains") or {}).items():
        volts = {f"{mhz:g}": volt for mhz, volt in (domain or {}).get("voltage_v") or ()}
        for mhz in (domain or {}).get("frequencies_mhz", ()):
            values[f"site.domains.{name}.voltage_v.{mhz:g}"] = volts.get(f"{mhz:g}")
    for name, listed in LISTED.items():
        values |= _flat(f"site.{name}", _without(site.get(name) or {}, (listed,)))
    name = record.get("partition", "")
    partition = site.get("partitions", {}).get(name, {})
    environment = partition.get("environment", {})
    of_partition = {key: partition[key] for key in OF_PARTITION if key in partition}
    if environment:
        variables = environment.get("variables", {})
        of_partition |= {"modules": environment.get("modules", []), "variables": sorted(variables)}
        # By the key in the name, values that different keys have hidden are not compared.
        hidden = {
            f"{key} ({by})" if (by := key_of(value)) else key: value
            for key, value in variables.items()
        }
        values |= _flat(f"site.partitions.{name}.variables", hidden)
    values |= _flat(f"site.partitions.{name}", of_partition)
    if "version" in versions:
        values["version"] = versions["version"]
    values |= _flat("kernels", versions.get(KERNEL_CODE, {}))
    if not site.get("simulated"):  # what is simulated does not depend on the node
        node = record.get("node", {})
        values |= _flat("node", {key: node[key] for key in OF_NODE if key in node})
    return values


def as_read_now(record: Record) -> Record:
    """A record as this version makes it from the same files: keys that an earlier one did not have
    get their defaults, and those that it had by another name get theirs of now."""
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
        with contextlib.suppress(ValidationError):  # it is kept as it is
            now[name] = model.model_validate(now[name]).model_dump(mode="json")
    return now


def is_known(values: Mapping[str, Any], key: str) -> bool:
    """Whether a record shows the value of a key, or that it has none."""
    if key in values or not key.startswith(NOT_IN_ALL):
        return True
    domain, of_domain, _ = key.rpartition(".voltage_v.")
    return bool(of_domain) and not any(name.startswith(f"{domain}.") for name in values)


def _without(fields: Record, names: Iterable[str]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


def _flat(key: str, value: Any) -> dict[str, Any]:
    """Nested tables, and lists of tables, as one: ``meters.0.kind``."""
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
    found = (
        _mixture(site, [(values_that_matter(use.record), use.points) for use in by_site[site]])
        for site in sorted(by_site)
        if len(by_site[site]) > 1
    )
    return [mixture for mixture in found if mixture is not None]


def _mixture(site: str, uses: Sequence[tuple[dict[str, Any], int]]) -> Mixture | None:
    differences = []
    for key in dict.fromkeys(key for values, _ in uses for key in values):
        points: dict[str, list[Any]] = {}
        for values, count in uses:
            if is_known(values, key):
                value = values.get(key, NOT_THERE)
                points.setdefault(json.dumps(value, sort_keys=True), [value, 0])[1] += count
        if len(points) > 1:
            ordered = sorted(points.values(), key=lambda pair: -pair[1])
            differences.append(Difference(key, tuple((value, n) for value, n in ordered)))
    if not differences:
        return None
    kept: list[dict[str, Any]] = []
    keys = [difference.key for difference in differences]
    for values, _ in sorted(uses, key=lambda use: -len(use[0])):
        known = {key: values.get(key, NOT_THERE) for key in keys if is_known(values, key)}
        if not any(all(one.get(key, known[key]) == known[key] for key in known) for one in kept):
            kept.append(known)
    return Mixture(site, len(kept), tuple(differences))


def changes(uses: Sequence[SetupUse], planned: Iterable[Record]) -> list[Change]:
    """What a run of these planned records would change: where no measurement of the same site was
    made with all of the planned values, against the set-up that differs least."""
    made = [(use, values_that_matter(use.record)) for use in uses]
    result: dict[tuple[str, str], Change] = {}
    for record in planned:
        site, wanted = str(record["site"]["name"]), values_that_matter(record)
        of_site = [(values, use.points) for use, values in made if use.site == site]
        every = [(values, use.points) for use, values in made]
        for change in (
            *_of_name(every, wanted),
            *_of_optional(site, of_site, wanted),
            *_of_nearest(site, of_site, wanted),
        ):
            result.setdefault((change.site, change.key), change)
    return list(result.values())


Made = Sequence[tuple[dict[str, Any], int]]


def _of_name(every: Made, wanted: Mapping[str, Any]) -> list[Change]:
    """The campaign's name, over all sites of the store."""
    names = {values["campaign"]: 0 for values, _ in every}
    for values, points in every:
        names[values["campaign"]] += points
    if not names or wanted["campaign"] in names:
        return []
    old = max(names, key=lambda name: names[name])
    return [Change("", "campaign", old, names[old], wanted["campaign"])]


def _of_optional(site: str, made: Made, wanted: Mapping[str, Any]) -> list[Change]:
    """The keys that some records cannot have, each on its own."""
    result = []
    records = (*(values for values, _ in made), wanted)
    for key in dict.fromkeys(key for values in records for key in values):
        if not key.startswith(NOT_IN_ALL) or not is_known(wanted, key):
            continue
        new = wanted.get(key, NOT_THERE)
        having = [
            (values.get(key, NOT_THERE), points) for values, points in made if is_known(values, key)
        ]
        if having and all(value != new for value, _ in having):
            old = having[-1][0]
            points = sum(count for value, count in having if value == old)
            result.append(Change(site, key, old, points, new))
    return result


def _of_nearest(site: str, made: Made, wanted: Mapping[str, Any]) -> list[Change]:
    """The keys that every record has, together, against the set-up that differs least."""
    best: list[Change] | None = None
    for values, points in made:
        keys = [
            key
            for key in dict.fromkeys((*values, *wanted))
            if key != "campaign"
            and not key.startswith(NOT_IN_ALL)
            and values.get(key, NOT_THERE) != wanted.get(key, NOT_THERE)
        ]
        if best is None or len(keys) < len(best):
            best = [
                Change(site, key, values.get(key, NOT_THERE), points, wanted.get(key, NOT_THERE))
                for key in keys
            ]
    return best or []


def not_comparable(uses: Sequence[SetupUse], planned: Iterable[Record]) -> list[str]:
    """A sentence for each planned kernel whose code cannot be compared with that of measurements of
    its site: an earlier version recorded it in another way."""
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


def refuse_changes(store_path: str, found: Sequence[Change]) -> None:
    """Raise an error that names every change.

    Raises:
        ChangedSetupError: there are changes.
    """
    if found:
        lines = "".join(f"\n  {change}" for change in found)
        raise ChangedSetupError(
            f"{store_path}: its measurements were made in another way than this run would make "
            f"them:{lines}\nuse a new store (--store NEW), or keep both here with --accept-changes",
            "campaign status then lists the differences",
        )


def value_text(value: Any) -> str:
    """A value on one line; cut off where it is long."""
    if value is NOT_THERE:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= VALUE_CHARS else text[: VALUE_CHARS - 3] + "..."


def _points(count: int) -> str:
    return f"{count} point{'' if count == 1 else 's'}"
