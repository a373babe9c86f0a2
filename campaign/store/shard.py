"""Reads shards in the layout of Zarr's sharding codec: the chunks, each compressed by Blosc and
followed by its CRC32C, then an index with the place of each chunk, followed by its CRC32C.

Zarr reads the same files. This module reads all samples of a large store in little more than the
time of decompression, and finds damage chunk by chunk.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numcodecs import blosc

from campaign.store.columns import CHUNK_SAMPLES, SHARD_SAMPLES
from campaign.store.layout import DamagedStoreError
from dvfs.files import open_regular

CHUNKS = SHARD_SAMPLES // CHUNK_SAMPLES
CRC_BYTES = 4
ENTRY = np.dtype([("offset", "<u8"), ("size", "<u8")])
BLOSC_SIZES = struct.Struct("<4xI4xI")
"""In the header of a Blosc chunk: its bytes once unpacked, and packed."""
INDEX_BYTES = CHUNKS * ENTRY.itemsize + CRC_BYTES


class BadChunkError(DamagedStoreError):
    """A chunk, or the index of a shard, is not what was written."""


def read_shard(path: Path, dtype: np.dtype[Any], start: int, end: int) -> np.ndarray:
    """Samples ``start`` to ``end`` of a shard, counted from its first.

    Raises:
        BadChunkError: some of them cannot be unpacked any more.
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
            at = i * CHUNK_SAMPLES
            packed = (
                _checked(os.pread(descriptor, size, offset)) if offset + size <= length else None
            )
            if packed is None or not _unpack(packed, samples[at : at + CHUNK_SAMPLES]):
                from_ = (first + i) * CHUNK_SAMPLES
                raise BadChunkError(
                    f"{path}: its samples {from_} to {from_ + CHUNK_SAMPLES} are damaged"
                )
    return samples[start - first * CHUNK_SAMPLES : end - first * CHUNK_SAMPLES]


def _checked(data: bytes) -> bytes | None:
    """The bytes before their CRC32C; None where it does not match."""
    body = data[:-CRC_BYTES]
    is_whole = google_crc32c.value(body).to_bytes(CRC_BYTES, "little") == data[-CRC_BYTES:]
    return body if is_whole else None


def _unpack(packed: bytes, into: np.ndarray) -> bool:
    """Unpack a chunk. Returns whether it has as many bytes as ``into``."""
    try:
        # Checked first: Blosc writes as many bytes as the header says.
        if BLOSC_SIZES.unpack_from(packed) != (into.nbytes, len(packed)):
            return False
        blosc.decompress(packed, into)
    except Exception:  # a codec may raise anything for damaged data
        return False
    return True
