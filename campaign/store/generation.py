"""Generations of the index: all scalars of a store, written and checked as a whole.

::

    index/000007/
        tables.zarr/    measurements, traces, failures: a Zarr group each
        states.bin      the point's id, the row and the status of every measurement, sorted by id
        manifest        a line of JSON and its CRC32C: every file with its size and CRC32C

A generation is a copy of the one before with new rows (a later attempt at a point overwrites its
row). The rename of its folder commits it. The newest undamaged generation is the valid one. The
last two remain, and a journal is removed only when both contain its records: damage to one of them
loses nothing.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Self

import google_crc32c
import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from campaign.plan.point import ID_CHARS
from campaign.store.columns import SAMPLES, SHARD_SAMPLES
from campaign.store.layout import INDEX, DamagedStoreError, Store, sync, sync_tree
from campaign.store.summary import Summary
from dvfs.files import open_regular, read_regular

STATE = np.dtype([("id", f"S{ID_CHARS}"), ("row", "<i8"), ("status", "u1")])
"""One measurement in ``states.bin``; ``status`` is an index into :data:`STATUSES`."""


PACKED_ID = np.dtype([("first", ">u8"), ("last", ">u4")])
"""An id of 24 hexadecimal digits as 12 bytes."""


def packed_ids(ids: np.ndarray) -> bytes:
    """Pack ids (S24), each into a :data:`PACKED_ID`.

    Raises:
        ValueError: an id is not hexadecimal.
    """
    return bytes.fromhex(ids.tobytes().decode())


def unpacked_ids(packed: bytes | bytearray) -> np.ndarray:
    """The ids (S24) in the result of :func:`packed_ids`."""
    return np.frombuffer(packed.hex().encode(), f"S{ID_CHARS}")


def packed_order(packed: np.ndarray) -> np.ndarray:
    """The order of ids (:data:`PACKED_ID`), int64. It sorts numbers, in a fifth of the time of
    texts."""
    order = np.argsort(packed["first"].astype(np.uint64))
    first = packed["first"][order]
    if (first[1:] == first[:-1]).any():
        return np.lexsort([packed["last"], packed["first"]])
    return order


def id_order(ids: np.ndarray) -> np.ndarray:
    """The order of ids (S24), int64."""
    try:
        return packed_order(np.frombuffer(packed_ids(ids), PACKED_ID))
    except ValueError:  # not hexadecimal
        return np.argsort(ids, kind="stable")


def places_of(sorted_ids: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The index of each of ``ids`` in ``sorted_ids``, int64; -1 if it is not there."""
    if not sorted_ids.size:
        return np.full(ids.size, -1)
    place = np.minimum(np.searchsorted(sorted_ids, ids), sorted_ids.size - 1)
    return np.where(sorted_ids[place] == ids, place, -1)


FileDigest = tuple[int, int]
"""A file's size in bytes and CRC32C."""


@dataclass(frozen=True)
class Generation:
    """A generation, as its manifest describes it; number 0, without rows, before the first one."""

    path: Path
    consumed: dict[str, int] = field(default_factory=dict)
    """Journal -> the byte up to which its records are in the tables."""
    samples_end: int = 0
    shards: dict[str, FileDigest] = field(default_factory=dict)
    """Every shard of the samples, as ``value/c/3``."""
    summary: dict[str, Any] = field(default_factory=dict)
    """The data of ``campaign status``: see :mod:`campaign.store.summary`."""
    files: dict[str, FileDigest] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """Its number, from 1; 0 before the first one."""
        return int(self.path.name)

    @property
    def tables(self) -> Path:
        """The Zarr group of the three tables."""
        return self.path / "tables.zarr"

    def states(self) -> np.ndarray:
        """The states of all measurements, a :data:`STATE` each, sorted by id."""
        if not self.number:
            return np.empty(0, STATE)
        with reading(self.path):
            return np.frombuffer(read_regular(self.path / "states.bin"), STATE)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn the errors that damaged Zarr files cause in the body into DamagedStoreError."""
    try:
        yield
    except (OSError, MemoryError, DamagedStoreError):
        raise
    except Exception as error:
        raise DamagedStoreError(
            f"{path}: is not what this program writes ({type(error).__name__}: {error}); restore "
            f"it from a copy"
        ) from None


MISSING: FileDigest = (-1, 0)
"""The digest that stands for a missing file."""

Offset = Annotated[int, Field(ge=0, lt=2**62)]


class _Manifest(BaseModel):
    """A manifest. The number of its shards must match its samples."""

    model_config = ConfigDict(strict=True)

    consumed: dict[str, Offset]
    samples_end: Offset
    shards: dict[str, FileDigest]
    summary: Summary
    files: dict[str, FileDigest]

    @model_validator(mode="after")
    def _shards_hold_the_samples(self) -> Self:
        numbers = range(self.samples_end // SHARD_SAMPLES)
        if len(self.shards) != len(SAMPLES) * len(numbers) or not all(
            f"{array}/c/{number}" in self.shards for array in SAMPLES for number in numbers
        ):
            raise ValueError(f"{len(self.shards)} shards do not match {self.samples_end} samples")
        return self


def checksum(path: Path) -> FileDigest:
    """A file's size and CRC32C, read in pieces."""
    size, crc = 0, 0
    with open_regular(path) as file:
        while piece := file.read(1 << 22):
            size += len(piece)
            crc = google_crc32c.extend(crc, piece)
    return size, crc


def difference(digest: FileDigest, written: FileDigest) -> str:
    """How a file differs from what was written; empty if it does not."""
    if digest[0] != written[0]:
        return f"has {digest[0]} bytes, {written[0]} were written"
    return "" if digest == written else "its checksum does not match"


def generation_numbers(store: Store) -> list[int]:
    """The numbers of the generations that have a folder, newest first.

    Raises:
        DamagedStoreError: the folder of generations cannot be read.
    """
    numbers = (int(name) for name in store.entries(INDEX) if name.isdecimal())
    return sorted(numbers, reverse=True)


def generation_folder(store: Store, number: int) -> Path:
    """The folder of a generation."""
    return store.index / f"{number:06d}"


def read_manifest(path: Path) -> Generation:
    """A generation as its manifest describes it. The other files are not read.

    Raises:
        DamagedStoreError: the manifest differs from what was written.
    """
    try:
        line, crc = read_regular(path / "manifest").split(b"\n")[:2]
        if int(crc, 16) != google_crc32c.value(line):
            raise DamagedStoreError(f"{path}/manifest: its checksum does not match")
        manifest = _Manifest.model_validate_json(line)
    except ValidationError as errors:
        first = errors.errors()[0]
        where = ".".join(map(str, first["loc"]))[:80] or "shards"
        problem = first["msg"].removeprefix("Value error, ")
        raise DamagedStoreError(f"{path}/manifest: {where}: {problem}") from None
    except (OSError, ValueError) as error:
        raise DamagedStoreError(f"{path}/manifest: cannot be read ({error})") from None
    return Generation(path, **manifest.model_dump())


def verified_generation(path: Path) -> Generation:
    """The generation of a folder, after a check of all its files.

    Raises:
        DamagedStoreError: a file differs from what was written; the message names it.
    """
    generation = read_manifest(path)
    for name, written in generation.files.items():
        try:
            problem = difference(checksum(path / name), written)
        except OSError as error:
            problem = str(error.strerror)
        if problem:
            raise DamagedStoreError(f"{path / name}: {problem}")
    return generation


def newest_generation(store: Store) -> tuple[Generation, list[str]]:
    """The newest undamaged generation, and the damage of newer ones.

    Raises:
        DamagedStoreError: all generations are damaged or missing.
    """
    damage: list[str] = []
    numbers = generation_numbers(store)
    for number in numbers:
        try:
            return verified_generation(generation_folder(store, number)), damage
        except DamagedStoreError as error:
            damage.append(str(error))
    if not numbers and not _had_generation(store):
        return Generation(generation_folder(store, 0)), []
    if set(generation_numbers(store)) - set(numbers):
        return newest_generation(store)  # a driver has written a new one meanwhile
    problem = f"is damaged ({'; '.join(damage)})" if damage else "is missing"
    raise DamagedStoreError(
        f"{store.root}: every generation of the index {problem}; restore {store.index} from a "
        f"copy, or measure everything again into a new store"
    )


def _had_generation(store: Store) -> bool:
    """Whether a generation was ever committed. A store of an earlier format does not list its
    index; there, samples without a journal show it."""
    no_journal = not store.journal_paths()
    return INDEX in store.listed() or (no_journal and any(store.traces.glob("*/c/*")))


def commit(store: Store, fresh: Path, base: Generation, manifest: Generation) -> Generation:
    """Write the manifest into a folder of tables and states, and make it the next generation.

    ``manifest``: its contents; its path and files are ignored.
    """
    files = {
        str(path.relative_to(fresh)): checksum(path)
        for path in sorted(fresh.rglob("*"))
        if path.is_file()
    }
    names = ("consumed", "samples_end", "shards", "summary")
    contents = {name: getattr(manifest, name) for name in names} | {"files": files}
    line = json.dumps(contents, separators=(",", ":")).encode()
    (fresh / "manifest").write_bytes(line + f"\n{google_crc32c.value(line):08x}\n".encode())
    read_manifest(fresh)  # never commit an unreadable manifest
    sync_tree(fresh)
    path = generation_folder(store, max([base.number, *generation_numbers(store)]) + 1)
    fresh.rename(path)
    sync(store.index)
    store.list_index()
    return replace(manifest, path=path, files=files)
