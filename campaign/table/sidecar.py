"""The data that a table of measurements cannot hold, in a file next to it: ``TABLE.sites.json``.

The sites' records (the classes' domains, the device, the legal settings and their voltages), and
how the measurements were made.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign.store.layout import Store
from campaign.store.records import read_contents
from campaign.store.setups import SetupUse, public_records, read_earlier, setup_id
from campaign.store.site_record import (
    SiteRecord,
    as_json,
    read_site_record,
    record_of,
)
from dvfs.dataset import POSSIBLE
from dvfs.files import write_output
from dvfs.input_files import FileError, read_text
from dvfs.setting import NUMBERS

SUFFIX = ".sites.json"


@dataclass(frozen=True)
class Sidecar:
    """``sites``: name -> record. ``setups``: id -> set-up. ``earlier``: site -> the set-up of
    measurements that do not name one."""

    sites: dict[str, SiteRecord] = field(default_factory=dict)
    setups: dict[str, dict[str, Any]] = field(default_factory=dict)
    earlier: dict[str, SetupUse] = field(default_factory=dict)


def sidecar_path(table: Path) -> Path:
    """The path of a table's sidecar file."""
    return table.with_name(table.name + SUFFIX)


def write_sidecar(store: Store, sites: list[str], table: Path) -> Path:
    """Write a store's records of these sites, and its set-ups, next to a table. Return the path.

    Raises:
        OSError: it cannot be written.
        DamagedStoreError: a record of the store is damaged.
    """
    records = public_records(store, read_contents(store).tail.setups)
    contents = {
        "sites": {site: as_json(read_site_record(store, site)) for site in sites},
        "setups": {setup_id(record): record for record in records.values()},
        "earlier": {
            site: {"points": earlier.points, "record": earlier.record}
            for site in sites
            if (earlier := read_earlier(store, site))
        },
    }
    path = sidecar_path(table)
    write_output(path, json.dumps(contents, indent=1) + "\n")
    return path


def _is_possible(record: SiteRecord) -> bool:
    """Whether a device can have the clocks and voltages of the record's settings."""
    names = (*NUMBERS, "core_v", "mem_v")
    return all(
        value is None or (type(value) is not bool and POSSIBLE[n][0] <= value <= POSSIBLE[n][1])
        for setting, volts in record.legal.items()
        for n, value in zip(names, (*setting.numbers, *volts), strict=True)
    )


def read_sidecar(table: Path) -> Sidecar:
    """A table's sidecar file; an empty :class:`Sidecar` if there is none.

    Raises:
        FileError: the file is not one that :func:`write_sidecar` writes.
    """
    path = sidecar_path(table)
    if not path.is_file():
        return Sidecar()
    try:
        contents = json.loads(read_text(path))
        records = {site: record_of(record) for site, record in contents["sites"].items()}
        setups = {name: dict(record) for name, record in contents["setups"].items()}
        earlier = {
            site: SetupUse(dict(use["record"]), int(use["points"]))
            for site, use in contents["earlier"].items()
        }
        if not all(record and _is_possible(record) for record in records.values()) or any(
            setup_id(setups[name]) != name for name in setups
        ):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise FileError(
            "is not what export writes beside a table", "export again, or remove it", str(path)
        ) from None
    return Sidecar({site: record for site, record in records.items() if record}, setups, earlier)
