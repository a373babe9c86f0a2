"""All samples: two Zarr arrays, ``time_ns`` and ``value``, in shards that are written once.

A shard has the layout of Zarr's sharding codec: the chunks, each compressed by Blosc and followed
by its CRC32C, then an index with the place of each chunk, followed by its CRC32C. Zarr reads the
same files. This module reads all samples of a large store in little more than the time of
decompression, and detects damage chunk by chunk.

The arrays' metadata (zarr.json) can be rewritten at any time: types, chunks and compression are the
same in every store, and a generation states the number of samples. So this module detects and
repairs metadata that are damaged or from another program.

Zarr is imported only where it is used: it takes long, and a store without traces does not need it.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import struct
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import google_crc32c
import numpy as np
from numcodecs import blosc

from campaign.store.columns import CHUNK_SAMPLES, PADDING, SAMPLE_ATTRIBUTES, SAMPLES, SHARD_SAMPLES
from campaign.store.generation import MISSING, Generation, checksum
from campaign.store.layout import (
    OPEN_AGAIN,
    DamagedStoreError,
    Store,
    replace_file,
    sync,
    sync_tree,
)
from campaign.store.measurement import Trace
from dvfs.dataset import TRACE_TEXT_COLUMNS
from dvfs.files import NotRegularError, open_regular, read_regular

if TYPE_CHECKING:
    import zarr
    from zarr.core.group import GroupMetadata
    from zarr.core.metadata import ArrayV3Metadata
    from zarr.storage import StoreLike

CHUNKS = SHARD_SAMPLES // CHUNK_SAMPLES
CRC_BYTES = 4
ENTRY = np.dtype([("offset", "<u8"), ("size", "<u8")])
BLOSC_SIZES = struct.Struct("<4xI4xI")
"""In the header of a Blosc chunk: the sizes of the unpacked and of the packed data."""
INDEX_BYTES = CHUNKS * ENTRY.itemsize + CRC_BYTES
BATCH_SAMPLES = 4 * SHARD_SAMPLES
AHEAD_SAMPLES = 1 << 36
"""No compaction writes this many samples (a terabyte) beyond the committed ones."""


class BadChunkError(DamagedStoreError):
    """A chunk, or the index of a shard, differs from what was written."""


def read_shard(path: Path, dtype: np.dtype[Any], start: int, end: int) -> np.ndarray:
    """Samples ``start`` to ``end`` of a shard, counted from its first.

    Raises:
        BadChunkError: some of them are damaged.
        OSError: the file is missing, is not a regular file, or cannot be read.
    """
    first, last = start // CHUNK_SAMPLES, -(-end // CHUNK_SAMPLES)
    samples = np.empty((last - first) * CHUNK_SAMPLES, dtype)
    with open_regular(path) as file:
        descriptor = file.fileno()
        length = os.fstat(descriptor).st_size
        index = _checked(os.pread(descriptor, INDEX_BYTES, max(0, length - INDEX_BYTES)))
        if index is None or len(index) != CHUNKS * ENTRY.itemsize:
            raise BadChunkError(f"{path}: its index is damaged")
        places = np.frombuffer(index, ENTRY)[first:last]
        for i, (offset, size) in enumerate(places.tolist()):
            first_sample = i * CHUNK_SAMPLES
            packed = (
                _checked(os.pread(descriptor, size, offset)) if offset + size <= length else None
            )
            if packed is None or not _unpack(
                packed, samples[first_sample : first_sample + CHUNK_SAMPLES]
            ):
                from_ = (first + i) * CHUNK_SAMPLES
                raise BadChunkError(
                    f"{path}: its samples {from_} to {from_ + CHUNK_SAMPLES} are damaged"
                )
    return samples[start - first * CHUNK_SAMPLES : end - first * CHUNK_SAMPLES]


def _checked(data: bytes) -> bytes | None:
    """The bytes before their CRC32C; None if it does not match."""
    body = data[:-CRC_BYTES]
    is_whole = google_crc32c.value(body).to_bytes(CRC_BYTES, "little") == data[-CRC_BYTES:]
    return body if is_whole else None


def _unpack(packed: bytes, into: np.ndarray) -> bool:
    """Unpack a chunk. Returns whether it has as many bytes as ``into``."""
    try:
        # Checked first: Blosc writes as many bytes as the header states.
        if BLOSC_SIZES.unpack_from(packed) != (into.nbytes, len(packed)):
            return False
        blosc.decompress(packed, into)
    except Exception:  # a codec may raise anything for damaged data
        return False
    return True


class ShardWriter:
    """Collects samples and writes them into whole new shards, durably."""

    def __init__(self, store: Store, base: Generation) -> None:
        self.store = store
        self.end = base.samples_end
        """Where the next shard begins, in samples."""
        self.shards = dict(base.shards)
        self.rows: dict[str, list[Any]] = {
            name: [] for name in ("point_id", *TRACE_TEXT_COLUMNS, "row_start", "row_size")
        }
        """The columns of the traces table, with ``point_id`` in place of ``measurement``."""
        self._batch: dict[str, list[np.ndarray]] = {name: [] for name in SAMPLES}
        self._collected = 0

    def add(self, point_id: str, traces: Iterable[Trace]) -> None:
        """Collect a measurement's traces."""
        for trace in traces:
            size = trace.time_ns.size
            texts = (getattr(trace, name) for name in TRACE_TEXT_COLUMNS)
            row = (point_id, *texts, self.end + self._collected, size)
            for values, value in zip(self.rows.values(), row, strict=True):
                values.append(value)
            self._batch["time_ns"].append(trace.time_ns)
            self._batch["value"].append(trace.value)
            self._collected += size
        # Only between measurements, because the next batch begins with a new shard.
        if self._collected >= BATCH_SAMPLES:
            self.flush()

    def flush(self) -> None:
        """Write the collected samples. The rest of the last shard is padding.

        Raises:
            DamagedStoreError: the arrays' metadata are not what this program writes.
        """
        if not self._collected:
            return
        import zarr  # noqa: PLC0415

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
            array = cast("zarr.Array[Any]", group[name])
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
    """Open the group of all samples for writing; create it if it does not exist."""
    import zarr  # noqa: PLC0415

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
    """Create the group and its empty arrays. ``earlier``: as in versions with zeros as padding."""
    import zarr  # noqa: PLC0415
    from zarr.codecs import BloscCodec, Crc32cCodec  # noqa: PLC0415

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
def _expected(earlier: bool = False) -> dict[str, GroupMetadata | ArrayV3Metadata]:
    """File -> the metadata of the group or of an empty array."""
    from zarr.core.metadata import ArrayV3Metadata  # noqa: PLC0415
    from zarr.storage import MemoryStore  # noqa: PLC0415

    group = _create(MemoryStore(), earlier)
    expected: dict[str, GroupMetadata | ArrayV3Metadata] = {"zarr.json": group.metadata}
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
    store: Store, name: str, expected: tuple[GroupMetadata | ArrayV3Metadata, ...], samples_end: int
) -> bool:
    """Whether a file has one of the expected metadata. A killed or running compaction may have
    extended an array."""
    from zarr.core.group import GroupMetadata  # noqa: PLC0415
    from zarr.core.metadata import ArrayV3Metadata  # noqa: PLC0415

    try:
        fields = json.loads(read_regular(store.traces / name))
        if not isinstance(expected[0], ArrayV3Metadata):
            return GroupMetadata.from_dict(fields) in expected
        metadata = ArrayV3Metadata.from_dict(fields)
        length = metadata.shape[0]
        # As plain JSON: there NaN is equal to NaN.
        empty = replace(metadata, shape=(0,)).to_dict()
        return samples_end <= length <= samples_end + AHEAD_SAMPLES and any(
            empty == candidate.to_dict() for candidate in expected
        )
    except (FileNotFoundError, NotRegularError):
        return False
    except OSError:
        raise  # the file may be correct
    except Exception:  # Zarr may raise anything for other contents
        return False


def repair_descriptions(store: Store, samples_end: int) -> list[str]:
    """Rewrite metadata that do not describe arrays of ``samples_end`` samples. Returns a sentence
    for the user about each. The caller must hold the driver's lock.

    Raises:
        OSError: the store cannot be written to.
    """
    if not samples_end:
        return []
    from zarr.core.buffer import default_buffer_prototype  # noqa: PLC0415
    from zarr.core.metadata import ArrayV3Metadata  # noqa: PLC0415

    messages = []
    for name in wrong_descriptions(store, samples_end):
        metadata = _expected()[name]
        if isinstance(metadata, ArrayV3Metadata):
            metadata = replace(metadata, shape=(samples_end,))
        text = metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes()
        replace_file(store.traces / name, text)
        messages.append(f"traces.zarr/{name} was damaged, and has been rewritten")
    return messages


def stored_samples(
    store: Store, generation: Generation, row_start: np.ndarray, row_size: np.ndarray
) -> dict[str, Samples]:
    """The samples of a generation by name. ``row_start``, ``row_size``: those of all its traces.
    The arrays may be longer, by a killed or running compaction.

    Raises:
        DamagedStoreError: the metadata of an array differ from what was written.
    """
    wrong = wrong_descriptions(store, generation.samples_end)
    if wrong:
        raise DamagedStoreError(
            f"{store.traces / wrong[0]}: does not describe the {generation.samples_end} samples "
            f"that were written; run or import again to repair it"
        )
    unused = _unused(row_start, row_size, generation.samples_end)
    return {name: Samples(store.traces, name, generation, unused) for name in SAMPLES}


class Samples:
    """The samples of a generation, ``time_ns`` or ``value``: a slice is read when it is taken."""

    ndim = 1  # Dask asks for it

    def __init__(self, folder: Path, name: str, generation: Generation, unused: np.ndarray) -> None:
        self.dtype = np.dtype(SAMPLES[name])
        self.shape = (generation.samples_end,)
        self._folder, self._name, self._shards = folder, name, generation.shards
        self._unused = unused
        """int64 (n, 2), sorted: the samples (from, to) that belong to no trace."""

    def __getitem__(self, key: slice | tuple[slice]) -> np.ndarray:
        indices = range(self.shape[0])[key[0] if isinstance(key, tuple) else key]
        if not indices:
            return np.empty(0, self.dtype)
        low, high = sorted((indices[0], indices[-1]))
        return self._read(low, high + 1)[:: indices.step]

    def _read(self, low: int, high: int) -> np.ndarray:
        parts, first = [], low
        while low < high:
            number, start = divmod(low, SHARD_SAMPLES)
            end = min(SHARD_SAMPLES, start + high - low)
            parts.append(self._shard(number, start, end))
            low += end - start
        samples = parts[0] if len(parts) == 1 else np.concatenate(parts)
        from_gap = np.searchsorted(self._unused[:, 1], first, side="right")
        to_gap = np.searchsorted(self._unused[:, 0], high)
        if from_gap < to_gap:
            samples = samples.copy()
            for start, stop in self._unused[from_gap:to_gap].tolist():
                samples[max(start - first, 0) : stop - first] = PADDING[self._name]
        return samples

    def _shard(self, number: int, start: int, end: int) -> np.ndarray:
        name = f"{self._name}/c/{number}"
        if self._shards[name] == MISSING:
            return np.full(end - start, PADDING[self._name], self.dtype)  # no trace is in it
        try:
            return read_shard(self._folder / name, self.dtype, start, end)
        except BadChunkError as error:
            raise DamagedStoreError(
                f"{error}; campaign status --verify lists the points, and campaign run measures "
                f"them again"
            ) from None
        except (FileNotFoundError, NotRegularError):
            raise DamagedStoreError(f"{self._folder / name}: is missing; {OPEN_AGAIN}") from None

    def __dask_tokenize__(self) -> object:
        return str(self._folder / self._name), sorted(self._shards.items()), self._unused


def _unused(row_start: np.ndarray, row_size: np.ndarray, samples_end: int) -> np.ndarray:
    """The samples (from, to; int64 (n, 2)) that belong to no trace: padding, and the earlier traces
    of points that were measured again."""
    order = np.argsort(row_start, kind="stable")
    starts = np.append(row_start[order], samples_end)
    ends = np.append(0, (row_start + row_size)[order])
    return np.stack([ends, starts], axis=1)[ends < starts]
