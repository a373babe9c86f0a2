"""All samples: two Zarr arrays, ``time_ns`` and ``value``, in shards that are written once.

What describes the arrays (their zarr.json) says nothing that this module does not know: of which
type they are, in which pieces and how packed is the same in every store, and how long they are a
generation says. So one that was damaged, or written by somebody else, is noticed and repaired.
"""

from __future__ import annotations

import functools
import json
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.group import GroupMetadata
from zarr.core.metadata import ArrayV3Metadata
from zarr.storage import MemoryStore, StoreLike

from campaign.measurement import Measurement
from campaign.store.columns import CHUNK_SAMPLES, SAMPLES, SHARD_SAMPLES
from campaign.store.durable import sync, sync_tree
from campaign.store.generation import FileDigest, checksum
from campaign.store.layout import DamagedStore, Store, replace_file
from campaign.store.regular import NotRegular, read_regular

BATCH_SAMPLES = 4 * SHARD_SAMPLES
AHEAD_SAMPLES = 1 << 36
"""A compaction can't have written so far beyond what was committed: it is a terabyte."""

Description = GroupMetadata | ArrayV3Metadata


class ShardWriter:
    """Collects samples and writes them into whole new shards, durably."""

    def __init__(self, store: Store, end: int, shards: dict[str, FileDigest]) -> None:
        self.store = store
        self.end = end
        """Where the next shard begins, in samples."""
        self.shards = shards
        self._batch: dict[str, list[np.ndarray]] = {name: [] for name in SAMPLES}
        self._held = 0

    def add(self, measurement: Measurement) -> tuple[list[Any], ...]:
        """Take a measurement's traces; the columns of their rows, from ``point_id`` on."""
        rows: tuple[list[Any], ...] = ([], [], [], [], [], [])
        for trace in measurement.traces:
            size = trace.time_ns.size
            row = (
                measurement.point.id,
                trace.channel,
                trace.domain,
                trace.unit,
                self.end + self._held,
                size,
            )
            for values, value in zip(rows, row, strict=True):
                values.append(value)
            self._batch["time_ns"].append(trace.time_ns)
            self._batch["value"].append(trace.value)
            self._held += size
        # Between measurements only: the next batch begins at a shard of its own.
        if self._held >= BATCH_SAMPLES:
            self.flush()
        return rows

    def flush(self) -> None:
        """Write what was collected; the rest of the last shard stays zero.

        Raises:
            DamagedStore: what describes the arrays is not what this program writes.
        """
        if not self._held:
            return
        start, size = self.end, self._held
        end = start + -(-size // SHARD_SAMPLES) * SHARD_SAMPLES
        # Zarr would leave out a shard of zeros, and it would seem to be gone.
        with zarr.config.set({"array.write_empty_chunks": True}):
            group = _opened(self.store, start)
            self._write(group, start, size, end)
        self._held = 0
        self.end = end

    def _write(self, group: zarr.Group, start: int, size: int, end: int) -> None:
        for name, dtype in SAMPLES.items():
            padded = np.zeros(end - start, dtype)
            np.concatenate(self._batch[name], out=padded[:size], casting="safe")
            array = group[name]
            assert isinstance(array, zarr.Array)  # noqa: S101
            array.resize((end,))
            array[start:end] = padded
            folder = self.store.traces / name
            for shard in range(start // SHARD_SAMPLES, end // SHARD_SAMPLES):
                path = folder / "c" / str(shard)
                sync(path)
                self.shards[f"{name}/c/{shard}"] = checksum(path)
            sync(folder / "c")
            sync(folder / "zarr.json")
            sync(folder)
            self._batch[name].clear()


def _opened(store: Store, samples_end: int) -> zarr.Group:
    """The group of all samples, to be written to; made where there is none."""
    if not store.traces.exists():
        fresh = store.root / ".traces.new"
        shutil.rmtree(fresh, ignore_errors=True)
        _create(fresh)
        sync_tree(fresh)
        fresh.rename(store.traces)
        sync(store.root)
    wrong = wrong_descriptions(store, samples_end)
    if wrong:
        raise DamagedStore(
            f"{store.traces / wrong[0]}: does not describe the samples any more; run or import "
            f"again to mend it"
        )
    return zarr.open_group(store.traces, mode="r+", zarr_format=3)


def _create(where: StoreLike) -> zarr.Group:
    group = zarr.create_group(where)
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
    return group


@functools.cache
def _right() -> dict[str, Description]:
    """What the group and its arrays are described by while they are empty, by file."""
    group = _create(MemoryStore())
    found: dict[str, Description] = {"zarr.json": group.metadata}
    for name, array in group.arrays():
        assert isinstance(array.metadata, ArrayV3Metadata)  # noqa: S101
        found[f"{name}/zarr.json"] = array.metadata
    return found


def wrong_descriptions(store: Store, samples_end: int) -> list[str]:
    """The files that do not describe the arrays of at least so many samples."""
    return [
        name for name, right in _right().items() if not _describes(store, name, right, samples_end)
    ]


def _describes(store: Store, name: str, right: Description, samples_end: int) -> bool:
    """Whether both mean the same, however they say it; a compaction that was killed, or runs
    now, may have made an array longer."""
    try:
        told = json.loads(read_regular(store.traces / name))
        if not isinstance(right, ArrayV3Metadata):
            return bool(GroupMetadata.from_dict(told) == right)
        found = ArrayV3Metadata.from_dict(told)
        length = found.shape[0]
        return (
            samples_end <= length <= samples_end + AHEAD_SAMPLES
            and replace(found, shape=right.shape) == right
        )
    except (FileNotFoundError, NotRegular):
        return False
    except OSError:
        raise  # it can't be read now, and may be right
    except Exception:  # of a text that describes nothing Zarr raises all kinds
        return False


def repair_descriptions(store: Store, samples_end: int) -> list[str]:
    """Write anew what does not describe the arrays of so many samples; what a person should
    know. Only under the driver's lock.

    Raises:
        OSError: the store can't be written.
    """
    told = []
    for name in wrong_descriptions(store, samples_end) if samples_end else ():
        right = _right()[name]
        if isinstance(right, ArrayV3Metadata):
            right = replace(right, shape=(samples_end,))
        text = right.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes()
        replace_file(store.traces / name, text)
        told.append(f"traces.zarr/{name} was damaged, and is written anew")
    return told
