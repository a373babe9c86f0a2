"""The ids of the planned points by partition, in a file that is quick to read at any size.

``planned.CRC.bin`` has a :data:`RECORD` for each point, in the plan's order. Its name contains its
checksum, and ``campaign.json`` contains its name, so that the two always belong together.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from campaign.plan.point import ID_CHARS
from campaign.store.layout import DamagedStoreError, Store, replace_file
from dvfs.files import read_regular

RECORD = np.dtype([("partition", "<u2"), ("id", f"S{ID_CHARS}")])
NAME = re.compile(r"planned\.[0-9a-f]{8}\.bin")


def _name_of(data: bytes) -> str:
    return f"planned.{google_crc32c.value(data):08x}.bin"


def write_planned(store: Store, plan: Mapping[str, Any], ids: Mapping[str, Sequence[str]]) -> None:
    """Keep a plan: ``plan`` as JSON, and the points' ``ids`` by "site/partition"."""
    parts = []
    for number, ids_of_partition in enumerate(ids.values()):
        part = np.empty(len(ids_of_partition), RECORD)
        part["partition"] = number
        part["id"] = np.array(ids_of_partition, dtype=RECORD["id"])
        parts.append(part)
    data = np.concatenate(parts).tobytes() if parts else b""
    file = _name_of(data)
    plan = {**plan, "planned": {"partitions": list(ids), "file": file}}
    with contextlib.suppress(DamagedStoreError, OSError):
        if store.read_json("campaign.json") == plan and read_regular(store.root / file) == data:
            return
    replace_file(store.root / file, data)
    store.write_json("campaign.json", plan)
    for old in store.root.iterdir():
        if NAME.fullmatch(old.name) and old.name != file:
            old.unlink(missing_ok=True)


def planned_ids(store: Store) -> dict[str, np.ndarray]:
    """The planned points' ids (bytes, shape (n,)) by "site/partition"; empty without a plan.

    Raises:
        DamagedStoreError: the files do not belong together, or cannot be read.
    """
    remedy = "run the campaign again to rewrite it"
    try:
        try:
            plan, file, data = _read(store)
        except FileNotFoundError:  # a driver has written a new plan meanwhile
            plan, file, data = _read(store)
        if plan is None:
            return {}
        names = [str(name) for name in plan["planned"]["partitions"]]
        if file.name != _name_of(data):
            raise DamagedStoreError(f"{file}: its checksum does not match; {remedy}")
        records = np.frombuffer(data, RECORD)
    except (OSError, ValueError, LookupError, TypeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise DamagedStoreError(
            f"{store.root}: the plan cannot be read ({what}); {remedy}"
        ) from None
    return {name: records["id"][records["partition"] == i] for i, name in enumerate(names)}


def _read(store: Store) -> tuple[dict[str, Any] | None, Path, bytes]:
    """The plan, the path of the file with its points, and that file's bytes; (None, ...) without a
    plan."""
    plan = store.read_json("campaign.json")
    if plan is None:
        return None, store.root, b""
    name = str(plan["planned"]["file"])
    if not NAME.fullmatch(name):
        raise ValueError("campaign.json does not name a file of points")
    return plan, store.root / name, read_regular(store.root / name)
