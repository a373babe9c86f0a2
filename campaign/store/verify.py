"""Checks all files of a store, and marks measurements with damaged traces.

Opening a generation checks it; reading a journal's record or a JSON file checks that. This module
checks the shards before a campaign continues, so that points with damaged traces are measured
again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np

from campaign.store import hours, setups
from campaign.store.columns import CHUNK_SAMPLES, SAMPLES, SHARD_SAMPLES, column
from campaign.store.compaction import next_generation
from campaign.store.generation import (
    MISSING,
    FileDigest,
    Generation,
    checksum,
    difference,
    generation_folder,
    generation_numbers,
    verified_generation,
)
from campaign.store.layout import (
    JOURNAL_SUFFIX,
    JSON_FILES,
    JSON_FOLDERS,
    SNAPSHOT,
    DamagedStoreError,
    Store,
    unreadable,
)
from campaign.store.records import read_contents
from campaign.store.samples import (
    BadChunkError,
    read_shard,
    repair_descriptions,
    wrong_descriptions,
)
from campaign.store.summary import without
from campaign.store.table_files import written_tables
from dvfs.dataset import COMPLETE, COUNT_PREFIX, DAMAGED
from dvfs.files import NotRegularError
from dvfs.setting import AXES, Setting

LOST = ".lost"
"""The suffix of a damaged record's file, without which the store continues."""


@dataclass(frozen=True)
class BadShard:
    """A shard that differs from what was written: its name, the problem, its present digest, and
    the samples (from, to) that cannot be read."""

    name: str
    problem: str
    digest: FileDigest
    lost: list[tuple[int, int]]


@dataclass(frozen=True)
class LostTrace:
    """A measurement with lost samples: its row, its point, and the damage."""

    row: int
    point_id: str
    label: str
    damage: str


def bad_shards(store: Store, generation: Generation) -> list[BadShard]:
    """The shards of a generation that differ from what was written."""
    bad = []
    for name, written in generation.shards.items():
        path = store.traces / name
        try:
            digest = checksum(path)
        except (FileNotFoundError, NotRegularError):
            digest = MISSING
        if digest == written:
            continue
        problem = "is missing" if digest == MISSING else difference(digest, written)
        bad.append(BadShard(name, problem, digest, _lost(store, name)))
    return bad


def _lost(store: Store, name: str) -> list[tuple[int, int]]:
    """The samples of a damaged shard that cannot be read, chunk by chunk."""
    array_name, _, number = name.split("/")
    begin = int(number) * SHARD_SAMPLES
    lost = []
    for start in range(0, SHARD_SAMPLES, CHUNK_SAMPLES):
        try:
            read_shard(
                store.traces / name, np.dtype(SAMPLES[array_name]), start, start + CHUNK_SAMPLES
            )
        except (BadChunkError, FileNotFoundError, NotRegularError):
            lost.append((begin + start, begin + start + CHUNK_SAMPLES))
    # Damage in bytes between the chunks loses no samples.
    return lost


def lost_traces(generation: Generation, shards: Iterable[BadShard]) -> list[LostTrace]:
    """The measurements that lost samples."""
    tables = written_tables(generation)
    trace = {
        name: tables.read(f"traces/{name}") for name in ("measurement", "row_start", "row_size")
    }
    damage: dict[int, str] = {}
    for shard in shards:
        for start, end in shard.lost:
            begin = trace["row_start"]
            hit = (begin < end) & (begin + trace["row_size"] > start) & (trace["row_size"] > 0)
            for row in trace["measurement"][hit].tolist():
                damage.setdefault(row, f"traces.zarr/{shard.name} {shard.problem}")
    rows = sorted(damage)
    columns = {
        name: tables.read(f"measurements/{name}")[rows]
        for name in ("point_id", "kernel", "params", *AXES)
        if name in tables.columns("measurements")  # an earlier version wrote fewer
    }
    settings = (Setting.of_row({n: columns[n][i] for n in columns}) for i in range(len(rows)))
    return [
        LostTrace(
            row,
            str(columns["point_id"][i]),
            f"{columns['kernel'][i]} {columns['params'][i]} at {setting}",
            damage[row],
        )
        for i, (row, setting) in enumerate(zip(rows, settings, strict=True))
    ]


BELONGS = re.compile(
    r"store\.json|lock|variables\.key|status\.(json|html|prom)|planned\.[0-9a-f]{8}\.bin|(logs|tls)/.+"
    rf"|{'|'.join(map(re.escape, JSON_FILES))}|({'|'.join(JSON_FOLDERS)})/.+\.json({LOST})?"
    rf"|journals/.+{re.escape(JOURNAL_SUFFIX)}|index/[0-9]+/.+"
    r"|traces\.zarr/((value|time_ns)/)?zarr\.json|traces\.zarr/(value|time_ns)/c/[0-9]+"
    r"|(.*/)?\..*|.*\.partial"
)
"""The paths of a store's files. Hidden ones, and Zarr's partial ones, are those of a running or
killed writer."""


def damaged_files(store: Store) -> list[str]:
    """The damage of the files without samples, a sentence for each: the JSON files, those of all
    generations, and files that do not belong to a store. Nothing is written."""
    damage: list[str] = []
    for name in (*JSON_FILES, SNAPSHOT, *chain(*map(store.json_names, JSON_FOLDERS))):
        with _noting(damage):
            store.read_json(name)
    written: dict[Path, set[Path]] = {}
    for number in generation_numbers(store):
        folder = generation_folder(store, number)
        with _noting(damage):
            try:
                files = (*verified_generation(folder).files, "manifest")
                written[folder] = {folder / name for name in files}
            except DamagedStoreError:
                if folder.exists():  # otherwise a driver has removed it meanwhile
                    raise
    for parent, _, names in os.walk(store.root, onerror=_refuse):
        for path in (Path(parent, name) for name in names):
            name = str(path.relative_to(store.root))
            generation = next((folder for folder in written if folder in path.parents), None)
            belongs = BELONGS.fullmatch(name) if generation is None else path in written[generation]
            if not belongs:
                damage.append(f"{name} does not belong to a store; move it elsewhere")
    return damage


@contextlib.contextmanager
def _noting(damage: list[str]) -> Iterator[None]:
    try:
        yield
    except DamagedStoreError as error:
        damage.append(str(error))


def _refuse(error: OSError) -> None:
    raise unreadable(Path(error.filename), error)


def give_up_records(store: Store) -> list[str]:
    """Continue without the damaged records of set-ups and node-hours; each file gets the suffix
    :data:`LOST`. Returns sentences for the user. The caller must hold the driver's lock."""
    messages = []
    for name in (*store.json_names(setups.FOLDER), *store.json_names(hours.FOLDER)):
        try:
            (hours.read_run if name.startswith(hours.FOLDER) else setups.read_file)(store, name)
        except DamagedStoreError as error:
            path = store.root / name
            with contextlib.suppress(FileNotFoundError):
                path.rename(path.with_name(path.name + LOST))
            store.forget(name)
            if name.startswith(hours.FOLDER):
                store.write_json(name, hours.RunHours(lost=True).model_dump(mode="json"))
            messages.append(f"{error}: this run goes on without it")
    return messages


def damaged_traces(store: Store) -> list[str]:
    """The damage of the samples, a sentence for each point. Nothing is written."""
    base = read_contents(store).generation
    if not base.shards:
        return []
    wrong = wrong_descriptions(store, base.samples_end)
    lost = lost_traces(base, bad_shards(store, base))
    return [f"traces.zarr/{name} does not describe the samples" for name in wrong] + [
        f"{trace.damage}: {trace.point_id} ({trace.label})" for trace in lost
    ]


def repair_samples(store: Store) -> list[str]:
    """Check all samples. Returns sentences for the user. The caller must hold the driver's lock.

    A measurement with lost samples keeps its scalars and gets the status :data:`DAMAGED`, so that
    the next run measures it again.

    Raises:
        OSError: the store cannot be written to.
        DamagedStoreError: every generation is damaged.
    """
    base = read_contents(store).generation
    if not base.shards:
        return []
    messages = repair_descriptions(store, base.samples_end)
    shards = bad_shards(store, base)
    if not shards:
        return messages
    lost = lost_traces(base, shards)
    rows = [trace.row for trace in lost]
    tables = written_tables(base)
    provenance = tables.read("measurements/provenance")[rows]
    # Repeated, because NextGeneration.add makes the counts that new rows lack missing.
    written = tables.columns("measurements")
    counts = {
        name: tables.read(f"measurements/{name}")[rows]
        for name in written
        if name.startswith(COUNT_PREFIX)
    }
    setups = []
    if "setup" in written:  # an earlier version wrote none
        status, setup = (tables.read(f"measurements/{name}") for name in ("status", "setup"))
        setups = [str(setup[row]) for row in rows if status[row] in COMPLETE]
    flags = [flag for text in provenance for flag in json.loads(str(text)).get("flags", ())]
    digests = base.shards | {shard.name: shard.digest for shard in shards}
    summary = without(base.summary, flags, setups)
    with next_generation(store, base) as new:
        if lost:
            new.add(
                {
                    "point_id": column("point_id", [trace.point_id for trace in lost]),
                    "status": column("status", [DAMAGED] * len(lost)),
                    "text": column("text", [trace.damage for trace in lost]),
                    **counts,
                }
            )
        new.commit(replace(base, shards=digests, summary=summary))
    messages += [f"traces.zarr/{shard.name} {shard.problem}" for shard in shards if not shard.lost]
    return messages + [
        f"{trace.damage}: point {trace.point_id} ({trace.label}) is measured again"
        for trace in lost
    ]
