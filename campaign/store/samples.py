"""All samples: two Zarr arrays, ``time_ns`` and ``value``, in shards that are written once.

The arrays' metadata (zarr.json) can be written again at any time: types, chunks and compression
are the same in every store, and a generation knows the number of samples. So damaged metadata, or
those of another program, are found and repaired.
"""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.group import GroupMetadata
from zarr.core.metadata import ArrayV3Metadata
from zarr.storage import MemoryStore, StoreLike

from campaign.store.columns import CHUNK_SAMPLES, PADDING, SAMPLE_ATTRIBUTES, SAMPLES, SHARD_SAMPLES
from campaign.store.durable import sync, sync_tree
from campaign.store.generation import FileDigest, checksum
from campaign.store.layout import DamagedStoreError, Store, replace_file
from campaign.store.measurement import Trace
from dvfs.files import NotRegularError, read_regular

BATCH_SAMPLES = 4 * SHARD_SAMPLES
AHEAD_SAMPLES = 1 << 36
"""No compaction writes so many samples beyond those that are committed: a terabyte."""

Description = GroupMetadata | ArrayV3Metadata


class ShardWriter:
    """Collects samples and writes them into whole new shards, durably."""

    def __init__(self, store: Store, end: int, shards: dict[str, FileDigest]) -> None:
        self.store = store
        self.end = end
        """Where the next shard begins, in samples."""
        self.shards = shards
        self._batch: dict[str, list[np.ndarray]] = {name: [] for name in SAMPLES}
        self._collected = 0

    def add(self, point_id: str, traces: Iterable[Trace]) -> tuple[list[Any], ...]:
        """Collect a measurement's traces. Returns the columns of their rows, ``point_id`` first."""
        rows: tuple[list[Any], ...] = ([], [], [], [], [], [])
        for trace in traces:
            size = trace.time_ns.size
            row = (
                point_id,
                trace.channel,
                trace.domain,
                trace.unit,
                self.end + self._collected,
                size,
            )
            for values, value in zip(rows, row, strict=True):
                values.append(value)
            self._batch["time_ns"].append(trace.time_ns)
            self._batch["value"].append(trace.value)
            self._collected += size
        # Only between measurements, because the next batch begins with a new shard.
        if self._collected >= BATCH_SAMPLES:
            self.flush()
        return rows

    def flush(self) -> None:
        """Write the collected samples. The rest of the last shard is padding.

        Raises:
            DamagedStoreError: the arrays' metadata are not what this program writes.
        """
        if not self._collected:
            return
        start = self.end
        end = start + -(-self._collected // SHARD_SAMPLES) * SHARD_SAMPLES
        # By default Zarr does not write a shard of zeros, which would then seem to be missing.
        with zarr.config.set({"array.write_empty_chunks": True}):
            group = _opened(self.store, start)
            self._write(group, start, end)
        self._collected = 0
        self.end = end

    def _write(self, group: zarr.Group, start: int, end: int) -> None:
        for name, dtype in SAMPLES.items():
            samples = np.concatenate(self._batch[name], dtype=dtype, casting="safe")
            self._batch[name].clear()
            array = group[name]
            assert isinstance(array, zarr.Array)  # noqa: S101
            array.resize((end,))
            folder = self.store.traces / name
            for shard in range(start // SHARD_SAMPLES, end // SHARD_SAMPLES):
                first = shard * SHARD_SAMPLES
                part = samples[first - start :][:SHARD_SAMPLES]
                padded = np.full(SHARD_SAMPLES, PADDING[name], dtype)
                padded[: part.size] = part
                array[first : first + SHARD_SAMPLES] = padded  # one shard: Zarr holds copies
                path = folder / "c" / str(shard)
                sync(path)
                self.shards[f"{name}/c/{shard}"] = checksum(path)
            sync(folder / "c")
            sync(folder / "zarr.json")
            sync(folder)


def _opened(store: Store, samples_end: int) -> zarr.Group:
    """The group of all samples, for writing. It is created where it does not exist."""
    if not store.traces.exists():
        fresh = store.root / ".traces.new"
        shutil.rmtree(fresh, ignore_errors=True)
        _create(fresh)
        sync_tree(fresh)
        fresh.rename(store.traces)
        sync(store.root)
    wrong = wrong_descriptions(store, samples_end)
    if wrong:
        raise DamagedStoreError(
            f"{store.traces / wrong[0]}: does not describe the samples any more; run or import "
            f"again to repair it"
        )
    return zarr.open_group(store.traces, mode="r+", zarr_format=3)


def _create(where: StoreLike, earlier: bool = False) -> zarr.Group:
    """The group and its empty arrays; ``earlier``: as versions made it whose padding was zero."""
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
            fill_value=0 if earlier else PADDING[name],
            attributes={} if earlier else SAMPLE_ATTRIBUTES[name],
        )
    return group


@functools.cache
def _expected(earlier: bool = False) -> dict[str, Description]:
    """File -> the metadata of the group or an array while it is empty."""
    group = _create(MemoryStore(), earlier)
    expected: dict[str, Description] = {"zarr.json": group.metadata}
    for name, array in group.arrays():
        assert isinstance(array.metadata, ArrayV3Metadata)  # noqa: S101
        expected[f"{name}/zarr.json"] = array.metadata
    return expected


def wrong_descriptions(store: Store, samples_end: int) -> list[str]:
    """The metadata files that do not describe arrays of at least ``samples_end`` samples."""
    return [
        name
        for name, expected in _expected().items()
        if not _describes(store, name, (expected, _expected(True)[name]), samples_end)
    ]


def _describes(
    store: Store, name: str, expected: tuple[Description, ...], samples_end: int
) -> bool:
    """Whether a file has one of the expected metadata. A compaction that was killed, or is running,
    may have made an array longer."""
    try:
        fields = json.loads(read_regular(store.traces / name))
        if not isinstance(expected[0], ArrayV3Metadata):
            return GroupMetadata.from_dict(fields) in expected
        metadata = ArrayV3Metadata.from_dict(fields)
        length = metadata.shape[0]
        # As plain JSON: there NaN is equal to NaN.
        empty = replace(metadata, shape=(0,)).to_dict()
        return samples_end <= length <= samples_end + AHEAD_SAMPLES and any(
            empty == one.to_dict() for one in expected
        )
    except (FileNotFoundError, NotRegularError):
        return False
    except OSError:
        raise  # it cannot be read now, but may be correct
    except Exception:  # Zarr may raise anything for other contents
        return False


def repair_descriptions(store: Store, samples_end: int) -> list[str]:
    """Rewrite metadata that do not describe arrays of ``samples_end`` samples. Returns sentences
    for the user. The caller must hold the driver's lock.

    Raises:
        OSError: the store cannot be written to.
    """
    messages = []
    for name in wrong_descriptions(store, samples_end) if samples_end else ():
        metadata = _expected()[name]
        if isinstance(metadata, ArrayV3Metadata):
            metadata = replace(metadata, shape=(samples_end,))
        text = metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes()
        replace_file(store.traces / name, text)
        messages.append(f"traces.zarr/{name} was damaged, and has been rewritten")
    return messages
