"""What a table of measurements cannot hold, in a file beside it: ``TABLE.sites.json``.

The sites' records (the classes' domains, the device, the legal settings and their voltages), and
the setups under which the measurements were made.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaign.store.layout import Store, replace_file
from campaign.store.site_record import SiteRecord, as_json, read_site_record, record_of
from sites.located_toml import BadFile, read_text

SUFFIX = ".sites.json"
SETUP_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Beside:
    """The records of sites, by name, and the setups, by id."""

    sites: dict[str, SiteRecord] = field(default_factory=dict)
    setups: dict[str, Any] = field(default_factory=dict)


def path_beside(table: Path) -> Path:
    """The file that belongs to a table."""
    return table.with_name(table.name + SUFFIX)


def write_beside(store: Store, sites: list[str], table: Path) -> Path:
    """Write what a store holds of these sites, and its setups, beside a table; the file's path.

    Raises:
        OSError: it cannot be written.
        DamagedStore: a record of the store is not what was written.
    """
    setups = {
        path.stem: store.read_json(f"setups/{path.name}")
        for path in sorted((store.root / "setups").glob("*.json"))
    }
    records = {site: as_json(read_site_record(store, site)) for site in sites}
    path = path_beside(table)
    replace_file(path, json.dumps({"sites": records, "setups": setups}, indent=1).encode() + b"\n")
    return path


def read_beside(table: Path) -> Beside:
    """What stands beside a table; nothing where there is no such file.

    Raises:
        BadFile: the file is not one that :func:`write_beside` writes.
    """
    path = path_beside(table)
    if not path.is_file():
        return Beside()
    try:
        kept = json.loads(read_text(path))
        records = {site: record_of(record) for site, record in kept["sites"].items()}
        setups = dict(kept["setups"])
        if None in records.values() or not all(map(SETUP_ID.fullmatch, setups)):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadFile(
            "is not what export writes beside a table", "export again, or remove it", str(path)
        ) from None
    return Beside({site: record for site, record in records.items() if record}, setups)
