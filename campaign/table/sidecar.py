"""What a table of measurements cannot hold, in a file beside it: ``TABLE.sites.json``.

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
    """The records of sites, by name; the set-ups, by id; and, by site, what is known of
    measurements without a set-up of their own."""

    sites: dict[str, SiteRecord] = field(default_factory=dict)
    setups: dict[str, dict[str, Any]] = field(default_factory=dict)
    earlier: dict[str, SetupUse] = field(default_factory=dict)


def sidecar_path(table: Path) -> Path:
    """The file that belongs to a table."""
    return table.with_name(table.name + SUFFIX)


def write_sidecar(store: Store, sites: list[str], table: Path) -> Path:
    """Write what a store holds of these sites, and its set-ups, beside a table; the file's path.

    Raises:
        OSError: it cannot be written.
        DamagedStoreError: a record of the store is not what was written.
    """
    records = public_records(store, read_contents(store).tail.setups)
    kept = {
        "sites": {site: as_json(read_site_record(store, site)) for site in sites},
        "setups": {setup_id(record): record for record in records.values()},
        "earlier": {
            site: {"points": earlier.points, "record": earlier.record}
            for site in sites
            if (earlier := read_earlier(store, site))
        },
    }
    path = sidecar_path(table)
    write_output(path, json.dumps(kept, indent=1) + "\n")
    return path


def _is_possible(record: SiteRecord) -> bool:
    """Whether the clocks and voltages of its settings are such that a device can have them."""
    names = (*NUMBERS, "core_v", "mem_v")
    return all(
        value is None or (type(value) is not bool and POSSIBLE[n][0] <= value <= POSSIBLE[n][1])
        for setting, volts in record.legal.items()
        for n, value in zip(names, (*setting.numbers, *volts), strict=True)
    )


def read_sidecar(table: Path) -> Sidecar:
    """What stands beside a table; nothing where there is no such file.

    Raises:
        FileError: the file is not one that :func:`write_sidecar` writes.
    """
    path = sidecar_path(table)
    if not path.is_file():
        return Sidecar()
    try:
        kept = json.loads(read_text(path))
        records = {site: record_of(record) for site, record in kept["sites"].items()}
        setups = {name: dict(record) for name, record in kept["setups"].items()}
        earlier = {
            site: SetupUse(dict(use["record"]), int(use["points"]))
            for site, use in kept["earlier"].items()
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
