"""The records of set-ups, one for each run and node. Measurements refer to the record by its id.

::

    setups/ID.json              campaign, site and its file's content (without the values of
                                variables: campaign.store.environment_variables), partition,
                                protocol, versions, node, slurm, and of GPUs that have it NVML's
                                power model (nvml_power_model): plain JSON; ID is a hash of it
    setups/earlier.SITE.json    the set-up, from the plan, of a site's measurements by earlier
                                versions: their column ``setup`` is empty

A worker writes the record into its journal, durably, before the first measurement that refers to
it. A compaction writes it into ``setups/`` before it commits a generation that refers to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign.store.environment_variables import without_values
from campaign.store.layout import REMEDIES, DamagedStoreError, Store
from campaign.store.site_record import site_file_name

ID_CHARS = 16
FOLDER = "setups"
EARLIER = "earlier."

Record = Mapping[str, Any]


@dataclass(frozen=True)
class SetupUse:
    """A record, and the number of the store's complete measurements under it. ``id``: that of the
    record in these measurements; empty if they name none."""

    record: Record
    points: int
    id: str = ""

    @property
    def site(self) -> str:
        """The site's name."""
        return str(self.record["site"]["name"])


def setup_id(record: Record) -> str:
    """The id of a record: the first characters of the SHA-256 of its JSON with sorted keys."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:ID_CHARS]


def write_setups(store: Store, records: Mapping[str, Record]) -> None:
    """Write records by their ids, durably. A record that exists already is not written."""
    missing = {_file(name): records[name] for name in records if not _has(store, name)}
    if missing:
        store.write_json_files(missing)


def _has(store: Store, name: str) -> bool:
    with contextlib.suppress(DamagedStoreError):
        return read_setup(store, name) is not None
    return False


def read_setup(store: Store, name: str) -> Record | None:
    """The record of an id; None if the store has none.

    Raises:
        DamagedStoreError: the file differs from what was written.
    """
    return read_file(store, _file(name))


def read_file(store: Store, file: str) -> Record | None:
    """The content of a file of :data:`FOLDER`: a record, or that of :func:`write_earlier`.

    Raises:
        DamagedStoreError: the file differs from what was written.
    """
    content = store.read_json(file)
    if content is None:
        return None
    is_earlier = Path(file).name.startswith(EARLIER)
    with contextlib.suppress(KeyError, TypeError):
        record, digest = (
            (content["record"], content["digest"]) if is_earlier else (content, Path(file).stem)
        )
        if isinstance(record, dict) and setup_id(record) == digest:
            return dict(content)
    raise DamagedStoreError(f"{store.root / file}: is not what was written; {REMEDIES[FOLDER]}")


def _file(name: str) -> str:
    return f"{FOLDER}/{name}.json"


def public_records(store: Store, in_journals: Mapping[str, Record]) -> dict[str, Record]:
    """Every record of the store without the values of variables, by the id in the store's
    measurements. For a record of an earlier version, :func:`setup_id` gives another id.

    Raises:
        DamagedStoreError: a record differs from what was written.
    """
    records = dict(in_journals)
    for file in store.json_names(FOLDER):
        name = Path(file).stem
        if not name.startswith(EARLIER) and (record := read_setup(store, name)):
            records[name] = record
    return {name: public_record(store, record) for name, record in records.items()}


def public_record(store: Store, record: Record) -> Record:
    """A record without the values of variables, which records of earlier versions contain."""
    return {**record, "site": without_values(store, record["site"])}


def write_earlier(store: Store, site: str, use: SetupUse) -> None:
    """Write the set-up of a site's measurements that name no record."""
    name = EARLIER + site_file_name(site)
    digest = setup_id(use.record)
    store.write_json(
        f"{FOLDER}/{name}", {"points": use.points, "digest": digest, "record": use.record}
    )


def read_earlier(store: Store, site: str) -> SetupUse | None:
    """The set-up that :func:`write_earlier` wrote for a site; None if there is none.

    Raises:
        DamagedStoreError: the file differs from what was written.
    """
    content = read_file(store, f"{FOLDER}/{EARLIER}{site_file_name(site)}")
    return None if content is None else _earlier(store, content)


def _earlier(store: Store, content: Mapping[str, Any]) -> SetupUse:
    return SetupUse(public_record(store, content["record"]), int(content["points"]))


def has_earlier(store: Store, site: str) -> bool:
    """Whether :func:`write_earlier` was called for a site."""
    return f"{FOLDER}/{EARLIER}{site_file_name(site)}" in store.json_names(FOLDER)


def setup_uses(
    store: Store, points: Mapping[str, int], in_journals: Mapping[str, Record]
) -> tuple[list[SetupUse], list[str]]:
    """The set-ups of the store's measurements, and a line for each record that was given up
    (:func:`campaign.store.verify.give_up_records`).

    ``points``: id -> number of complete measurements. ``in_journals``: records that may not be in
    files yet.

    Raises:
        DamagedStoreError: a record differs from what was written.
    """
    uses, damage = [], []
    for name in filter(None, points):
        record = in_journals.get(name) or read_setup(store, name)
        if record is not None:
            uses.append(SetupUse(public_record(store, record), points[name], name))
        elif points[name]:
            damage.append(
                f"{_file(name)} is missing: how {points[name]} measurements were made is not known"
            )
    for file in store.json_names(FOLDER):
        if Path(file).name.startswith(EARLIER) and (content := read_file(store, file)):
            uses.append(_earlier(store, content))
    return [use for use in uses if use.points], damage


def perf_per_watt_mhz(uses: Iterable[SetupUse]) -> dict[str, float]:
    """Site -> the core clock of the best performance per watt by NVML's power model, the median
    over its GPUs and records. Sites without such a record are missing."""
    clocks: dict[str, list[float]] = {}
    for use in uses:
        for model in use.record.get("nvml_power_model", ()):
            clocks.setdefault(use.site, []).append(float(model["best_core_mhz"]))
    return {site: statistics.median(mhz) for site, mhz in clocks.items()}
