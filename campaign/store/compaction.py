"""Compaction: move the journals' records into Zarr, in steps that a crash can't tear.

New samples go to whole new shards; a shard is never written again. Then a new generation of the
index is written beside the old one, and CURRENT is renamed to name it: that rename commits. What
a crash leaves behind is either not named by CURRENT or still in its journal.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec

from campaign.store.dataset import (
    SAMPLES,
    TRACE_COLUMNS,
    Tables,
    Tail,
    as_dataset,
    committed_tables,
    journal_tail,
    merge,
)
from campaign.store.journal import JournalEntry, TornRecord, read, remove_if_done, sync_folder
from campaign.store.layout import Store, replace_file

SHARD_SAMPLES = 1 << 20
CHUNK_SAMPLES = 1 << 16
BATCH_SAMPLES = 16 * SHARD_SAMPLES


def compact(store: Store) -> int:
    """Move what the journals hold into a new generation. Only under the driver's lock.

    Returns how many records were moved. A record whose traces are damaged is left in its
    journal, and its point counts as not measured.
    """
    tables = committed_tables(store)
    tail = journal_tail(store, tables.consumed)
    if not tail.entries:
        remove_old(store, tail.consumed)
        return 0
    whole, rows, samples_end = _append_traces(store, tables, tail.entries)
    merged, _ = merge(tables, replace(tail, entries=whole))
    if rows:
        fresh = pd.DataFrame(rows, columns=list(TRACE_COLUMNS))
        traces = fresh if not len(merged.traces) else pd.concat([merged.traces, fresh])
        merged = replace(merged, traces=traces.reset_index(drop=True))
    commit_tables(store, replace(merged, samples_end=samples_end))
    remove_old(store, merged.consumed)
    return len(whole)


def _append_traces(
    store: Store, tables: Tables, entries: list[JournalEntry]
) -> tuple[list[JournalEntry], list[tuple[object, ...]], int]:
    """Write the traces of the entries that a merge takes behind the committed samples.

    Returns the entries that are whole (where one is damaged, another of the same point takes
    its place), the new rows of the traces table, and the new end of the samples.
    """
    rows: list[tuple[object, ...]] = []
    batch: dict[str, list[np.ndarray]] = {name: [] for name in SAMPLES}
    written: set[str] = set()
    at = tables.samples_end
    held = 0
    while True:
        damaged: set[int] = set()
        for entry in merge(tables, Tail(entries, {}, []))[1]:
            if entry.point_id in written:
                continue
            try:
                measurement = read(entry)
            except TornRecord:
                damaged.add(id(entry))
                continue
            written.add(entry.point_id)
            for trace in measurement.traces:
                size = trace.time_ns.size
                rows.append(
                    (entry.point_id, trace.channel, trace.domain, trace.unit, at + held, size)
                )
                batch["time_ns"].append(trace.time_ns)
                batch["value"].append(trace.value)
                held += size
            if held >= BATCH_SAMPLES:
                at = _write_shards(store, at, batch)
                held = 0
        if not damaged:
            break
        entries = [entry for entry in entries if id(entry) not in damaged]
    if held:
        at = _write_shards(store, at, batch)
    return entries, rows, at


def _write_shards(store: Store, start: int, batch: dict[str, list[np.ndarray]]) -> int:
    """Write a batch into new shards from sample ``start`` on, durably; the new end."""
    size = sum(each.size for each in batch["time_ns"])
    end = start + -(-size // SHARD_SAMPLES) * SHARD_SAMPLES
    group = _trace_group(store)
    for name, dtype in SAMPLES.items():
        padded = np.zeros(end - start, dtype)
        np.concatenate(batch[name], out=padded[:size], casting="safe")
        array = group[name]
        assert isinstance(array, zarr.Array)  # noqa: S101
        array.resize((end,))
        array[start:end] = padded
        folder = store.traces / name
        for shard in range(start // SHARD_SAMPLES, end // SHARD_SAMPLES):
            _sync(folder / "c" / str(shard))
        sync_folder(folder / "c")
        _sync(folder / "zarr.json")
        sync_folder(folder)
        batch[name].clear()
    return end


def _trace_group(store: Store) -> zarr.Group:
    if store.traces.exists():
        return zarr.open_group(store.traces, mode="r+")
    fresh = store.root / f".traces.{os.getpid()}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    group = zarr.create_group(fresh)
    for name, dtype in SAMPLES.items():
        group.create_array(
            name,
            shape=(0,),
            dtype=dtype,
            chunks=(CHUNK_SAMPLES,),
            shards=(SHARD_SAMPLES,),
            compressors=[BloscCodec(cname="lz4", clevel=5, shuffle="bitshuffle"), Crc32cCodec()],
            dimension_names=("sample",),
        )
    _sync_tree(fresh)
    fresh.rename(store.traces)
    sync_folder(store.root)
    return zarr.open_group(store.traces, mode="r+")


def commit_tables(store: Store, tables: Tables) -> None:
    """Write the next generation whole, and name it in CURRENT."""
    current = store.generation()
    number = int(current.removesuffix(".zarr")) + 1 if current else 1
    name = f"{number:06d}.zarr"
    path = store.index / name
    shutil.rmtree(path, ignore_errors=True)  # left by a compaction that did not commit
    attributes = {"consumed": json.dumps(tables.consumed), "samples_end": tables.samples_end}
    for group, frame, dimension in (
        ("measurements", tables.measurements, "measurement"),
        ("traces", tables.traces, "trace"),
        ("failures", tables.failures, "failure"),
    ):
        dataset = as_dataset(frame, dimension)
        dataset.attrs = attributes if group == "measurements" else {}
        dataset.to_zarr(path, group=group, mode="w", consolidated=False)
    _sync_tree(path)
    sync_folder(store.index)
    replace_file(store.root / "CURRENT", name.encode() + b"\n")


def remove_old(store: Store, consumed: dict[str, int]) -> None:
    """Remove generations before the last two, and journals that are read to their end."""
    current = store.generation()
    if current is None:
        return
    generations = sorted(path.name for path in store.index.glob("*.zarr"))
    # A reader may still be in the generation before the current one.
    for name in generations[: max(generations.index(current) - 1, 0)]:
        shutil.rmtree(store.index / name, ignore_errors=True)
    for path in store.journal_paths():
        remove_if_done(path, consumed.get(path.name, 0))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_tree(root: Path) -> None:
    for folder, _, names in os.walk(root):
        for name in names:
            _sync(Path(folder) / name)
        sync_folder(Path(folder))
