"""The record of a site in a store, ``sites/SITE.json``."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote

from campaign.store.layout import DamagedStoreError, Store
from dvfs.setting import AXES, LegalVolts, Setting


@dataclass(frozen=True)
class SiteRecord:
    """The facts about a site that fits and picks need."""

    classes: dict[str, str] = field(default_factory=dict)
    """Class of operations -> its domain, core or mem, if the site or the map states it."""
    device: Literal["cpu", "gpu"] = "cpu"
    """The device of the clocks, for the Slurm flags."""
    legal: LegalVolts = field(default_factory=dict)
    """The voltages of every legal setting."""


def site_file_name(site: str) -> str:
    """A file name for a site of any name: without a path separator or a leading dot."""
    quoted = quote(site, safe="")
    return (f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted) + ".json"


def has_site_record(store: Store, site: str) -> bool:
    """Whether the store has an undamaged record of this site."""
    with contextlib.suppress(DamagedStoreError):
        return store.read_json(f"sites/{site_file_name(site)}") is not None
    return False


def recorded_sites(store: Store) -> list[str]:
    """The sites with a record in the store, sorted."""
    return sorted(unquote(Path(name).stem) for name in store.json_names("sites"))


def write_site_record(store: Store, site: str, record: SiteRecord) -> None:
    """Write a site's record; it replaces an earlier one."""
    store.write_json(f"sites/{site_file_name(site)}", as_json(record))


def as_json(record: SiteRecord) -> dict[str, Any]:
    """A site's record as plain JSON types; the inverse of :func:`record_of`."""
    return {
        "classes": record.classes,
        "device": record.device,
        "legal": [[*_short(setting), *volts] for setting, volts in record.legal.items()],
    }


def _short(setting: Setting) -> tuple[float | str | None, ...]:
    """The values of a setting. Where possible only those that earlier versions wrote: the clocks,
    and the limit if there is one."""
    if setting.uncore_mhz is not None or setting.profile is not None:
        return setting.values
    limit = () if setting.power_limit_w is None else (setting.power_limit_w,)
    return setting.core_mhz, setting.mem_mhz, *limit


def _setting(values: list[Any]) -> Setting:
    if len(values) == len(AXES):
        return Setting.of(*values)
    core_mhz, mem_mhz, *limit = values
    return Setting.of(core_mhz, mem_mhz, power_limit_w=limit[0] if limit else None)


def read_site_record(store: Store, site: str) -> SiteRecord:
    """A site's record; an empty one if the store has none.

    Raises:
        DamagedStoreError: the file is not that of :func:`write_site_record`.
    """
    name = f"sites/{site_file_name(site)}"
    content = store.read_json(name)
    if content is None:
        return SiteRecord()
    record = record_of(content)
    if record is None:
        raise DamagedStoreError(
            f"{store.root / name}: is not a site's record; run the campaign, or import the site's "
            f"table, again to rewrite it"
        )
    return record


def record_of(content: Any) -> SiteRecord | None:
    """The record in the result of :func:`as_json`; None for another value."""
    if not _is_record(content):
        return None
    legal: LegalVolts = {
        _setting(values): (core_v, mem_v) for *values, core_v, mem_v in content.get("legal", [])
    }
    return SiteRecord(content.get("classes", {}), content.get("device", "cpu"), legal)


def _is_record(content: Any) -> bool:
    if not isinstance(content, dict):
        return False
    classes, legal = content.get("classes", {}), content.get("legal", [])
    return (
        isinstance(classes, dict)
        and all(domain in ("core", "mem") for domain in classes.values())
        and isinstance(content.get("device", ""), str)
        and isinstance(legal, list)
        and all(isinstance(row, list) and len(row) in (4, 5, len(AXES) + 2) for row in legal)
        and all(
            isinstance(value, str | None)
            if i == AXES.index("profile") and len(row) > 5
            else isinstance(value, int | float | None)
            for row in legal
            for i, value in enumerate(row)
        )
    )
