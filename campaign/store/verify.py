"""Look at every byte of a store's samples, and let go of what is damaged.

A generation is checked whenever it is opened, a journal's records when they are read. The shards
are not: they are read through here before a campaign goes on, so that a point whose trace was
damaged is measured again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import zarr

from analysis.dataset import COUNT_PREFIX, DAMAGED
from campaign.store.columns import CHUNK_SAMPLES, SAMPLES, SHARD_SAMPLES, column
from campaign.store.compaction import NewRows, write_generation
from campaign.store.dataset import open_tables, read_column
from campaign.store.generation import MISSING, FileDigest, Generation, checksum
from campaign.store.layout import Store
from campaign.store.records import StoreContents, read_contents
from campaign.store.regular import NotRegular
from campaign.store.samples import repair_descriptions, wrong_descriptions
from campaign.store.shard import BadChunk, read_shard
from campaign.store.summary import without_flags


@dataclass(frozen=True)
class BadShard:
    """A shard that is not what was written: its name, what is wrong, what it is now, and the
    samples (from, to) that can't be read."""

    name: str
    what: str
    now: FileDigest
    lost: list[tuple[int, int]]


@dataclass(frozen=True)
class LostTrace:
    """A measurement of which samples are lost: its row, its point and where the damage is."""

    row: int
    point_id: str
    label: str
    what: str


def bad_shards(store: Store, generation: Generation) -> list[BadShard]:
    """Every shard of a generation that is not what was written."""
    found = []
    for name, written in generation.shards.items():
        path = store.traces / name
        try:
            now = checksum(path)
        except (FileNotFoundError, NotRegular):
            now = MISSING
        if now == written or now == MISSING == written:
            continue
        if now == MISSING:
            what = "is gone"
        elif now[0] != written[0]:
            what = f"has {now[0]} bytes, {written[0]} were written"
        else:
            what = "its checksum does not match"
        found.append(BadShard(name, what, now, _lost(store, name)))
    return found


def _lost(store: Store, name: str) -> list[tuple[int, int]]:
    """Which samples of a damaged shard can't be read, chunk by chunk."""
    array_name, _, number = name.split("/")
    begin = int(number) * SHARD_SAMPLES
    lost = []
    for start in range(0, SHARD_SAMPLES, CHUNK_SAMPLES):
        try:
            read_shard(
                store.traces / name, np.dtype(SAMPLES[array_name]), start, start + CHUNK_SAMPLES
            )
        except (BadChunk, FileNotFoundError, NotRegular):
            lost.append((begin + start, begin + start + CHUNK_SAMPLES))
    # Damage in the bytes between the chunks costs nothing.
    return lost


def lost_traces(now: StoreContents, shards: Iterable[BadShard]) -> list[LostTrace]:
    """The measurements that have a sample in what is lost."""
    assert now.generation is not None  # noqa: S101
    tables = open_tables(now.generation)
    trace = {
        name: read_column(tables, f"traces/{name}")
        for name in ("measurement", "row_start", "row_size")
    }
    why: dict[int, str] = {}
    for shard in shards:
        for start, end in shard.lost:
            begin = trace["row_start"]
            hit = (begin < end) & (begin + trace["row_size"] > start) & (trace["row_size"] > 0)
            for row in trace["measurement"][hit].tolist():
                why.setdefault(row, f"traces.zarr/{shard.name} {shard.what}")
    rows = sorted(why)
    told = {
        name: read_column(tables, f"measurements/{name}")[rows]
        for name in ("point_id", "kernel", "params", "core_mhz", "mem_mhz")
    }
    return [
        LostTrace(
            row,
            str(told["point_id"][i]),
            f"{told['kernel'][i]} {told['params'][i]} at {told['core_mhz'][i]:g}/"
            f"{told['mem_mhz'][i]:g} MHz",
            why[row],
        )
        for i, row in enumerate(rows)
    ]


def damaged_traces(store: Store) -> list[str]:
    """What of the samples is damaged, point by point; reads only."""
    now = read_contents(store)
    if now.generation is None:
        return []
    base = now.generation
    described = wrong_descriptions(store, base.samples_end) if base.samples_end else []
    lost = lost_traces(now, bad_shards(store, base))
    return [f"traces.zarr/{name} does not describe the samples" for name in described] + [
        f"{each.what}: {each.point_id} ({each.label})" for each in lost
    ]


def repair_samples(store: Store) -> list[str]:
    """Check all samples; what a person should know. Only under the driver's lock.

    A measurement with a lost sample keeps its scalars, and takes the status :data:`DAMAGED`:
    the next run measures it again.

    Raises:
        OSError: the store can't be written.
        DamagedStore: no generation is whole.
    """
    now = read_contents(store)
    base = now.generation
    if base is None or not base.shards:
        return []
    told = repair_descriptions(store, base.samples_end)
    shards = bad_shards(store, base)
    if not shards:
        return told
    lost = lost_traces(now, shards)
    rows = [each.row for each in lost]
    tables = open_tables(base)
    provenance = read_column(tables, "measurements/provenance")[rows]
    # Counts that are not given become missing.
    measurements = tables["measurements"]
    assert isinstance(measurements, zarr.Group)  # noqa: S101
    counts = {
        name: read_column(tables, f"measurements/{name}")[rows]
        for name in measurements.array_keys()
        if name.startswith(COUNT_PREFIX)
    }
    flags = [flag for text in provenance for flag in json.loads(str(text)).get("flags", ())]
    new_rows = NewRows(
        {
            "point_id": column("point_id", [each.point_id for each in lost]),
            "status": column("status", [DAMAGED] * len(lost)),
            "text": column("text", [each.what for each in lost]),
            **counts,
        },
        {},
        {},
    )
    known = base.shards | {shard.name: shard.now for shard in shards}
    summary = without_flags(base.summary, flags)
    write_generation(store, base, new_rows, replace(base, shards=known, summary=summary))
    told += [f"traces.zarr/{shard.name} {shard.what}" for shard in shards if not shard.lost]
    return told + [
        f"{each.what}: point {each.point_id} ({each.label}) is measured again" for each in lost
    ]
