"""The plan in a store: the kernels of all planned campaign files, and the ids of the points of the
last one by partition, in a file that is fast to read at any size.

``planned.CRC.bin`` has a :data:`RECORD` for each point, in the plan's order. Its name contains its
checksum, and ``campaign.json`` contains its name, so that the two always belong together.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import google_crc32c
import numpy as np

from campaign.plan.point import ID_CHARS
from campaign.store.layout import REMEDIES, DamagedStoreError, Store, replace_file
from dvfs.files import read_regular

if TYPE_CHECKING:
    from campaign.plan.campaign_file import Campaign

RECORD = np.dtype([("partition", "<u2"), ("id", f"S{ID_CHARS}")])
NAME = re.compile(r"planned\.[0-9a-f]{8}\.bin")


class PlannedKernel(NamedTuple):
    """A kernel of a campaign file: its name in the registry, and the parameters that its spaces
    declare, in order."""

    registered: str
    tuned: list[str]


def planned_kernels(store: Store) -> dict[str, PlannedKernel]:
    """Name in the store -> kernel, of all planned campaign files."""
    from pydantic import ValidationError  # noqa: PLC0415

    from campaign.plan.campaign_file import Campaign  # noqa: PLC0415

    plan = store.read_json("campaign.json") or {}
    if "kernels" in plan:
        return {name: PlannedKernel(**kernel) for name, kernel in plan["kernels"].items()}
    try:  # the plan of an earlier version has the last file only
        return _kernels_of(Campaign.model_validate(plan.get("campaign")))
    except ValidationError:
        return {}


def with_earlier_kernels(store: Store, campaign: Campaign) -> dict[str, PlannedKernel]:
    """The kernels of a campaign file and of the store's plan. A file of ``campaign next`` states no
    spaces: its kernels keep those of the plan."""
    kernels = planned_kernels(store)
    for name, kernel in _kernels_of(campaign).items():
        if campaign.part_of is None or name not in kernels:
            kernels[name] = kernel
    return kernels


def _kernels_of(campaign: Campaign) -> dict[str, PlannedKernel]:
    tuned = campaign.tuned
    names = campaign.registered_names
    return {name: PlannedKernel(names[name], tuned.get(name, [])) for name in names}


def _name_of(data: bytes) -> str:
    return f"planned.{google_crc32c.value(data):08x}.bin"


def write_planned(store: Store, plan: Mapping[str, Any], ids: Mapping[str, Sequence[str]]) -> None:
    """Write a plan: ``plan`` as JSON, and the points' ``ids`` by "site/partition"."""
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
        DamagedStoreError: the files do not match each other, or cannot be read.
    """
    try:
        with contextlib.suppress(FileNotFoundError):  # a driver has written a new plan meanwhile
            return _read(store)
        return _read(store)
    except (OSError, ValueError, LookupError, TypeError) as error:
        description = f"{type(error).__name__}: {error}"
        raise DamagedStoreError(
            f"{store.root}: the plan cannot be read ({description}); {REMEDIES['campaign.json']}"
        ) from None


def _read(store: Store) -> dict[str, np.ndarray]:
    plan = store.read_json("campaign.json")
    if plan is None:
        return {}
    name = str(plan["planned"]["file"])
    if not NAME.fullmatch(name):
        raise ValueError("campaign.json does not name a file of points")
    data = read_regular(store.root / name)
    if name != _name_of(data):
        raise DamagedStoreError(
            f"{store.root / name}: its checksum does not match; {REMEDIES['campaign.json']}"
        )
    records = np.frombuffer(data, RECORD)
    partitions = map(str, plan["planned"]["partitions"])
    return {label: records["id"][records["partition"] == i] for i, label in enumerate(partitions)}
