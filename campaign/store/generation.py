"""Generations of the index: all scalars of a store, written whole and checked whole.

::

    index/000007/
        tables.zarr/    measurements, traces, failures: a Zarr group each, a row an entry
        states.bin      of every measurement its point's id, its row and its status, by id
        manifest        a line of JSON, and its CRC32C: every file with its size and CRC32C

A generation begins as a copy of the one before, takes what is new (a point's later attempt
overwrites its row), and comes to be by one rename of its folder: the newest whole one is the
truth. The last two are kept, and a journal goes only when both hold its records: if one is
damaged, nothing is lost.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Self

import google_crc32c
import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from campaign.plan.point import ID_CHARS
from campaign.store.columns import SAMPLES, SHARD_SAMPLES
from campaign.store.durable import sync, sync_tree
from campaign.store.layout import DamagedStore, Store
from campaign.store.regular import open_regular, read_regular
from campaign.store.summary import Summary

STATE = np.dtype([("id", f"S{ID_CHARS}"), ("row", "<i8"), ("status", "u1")])
"""One measurement in ``states.bin``; ``status`` counts in :data:`STATUSES`."""

FileDigest = tuple[int, int]
"""A file's size in bytes and CRC32C."""


@dataclass(frozen=True)
class Generation:
    """A whole generation: what its manifest says."""

    path: Path
    consumed: dict[str, int] = field(default_factory=dict)
    """Journal -> the byte up to which its records are in the tables."""
    samples_end: int = 0
    shards: dict[str, FileDigest] = field(default_factory=dict)
    """Every shard of the samples, as ``value/c/3``."""
    summary: dict[str, Any] = field(default_factory=dict)
    """What ``campaign status`` says of it: see :mod:`campaign.store.summary`."""
    files: dict[str, FileDigest] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """It counts from 1."""
        return int(self.path.name)

    @property
    def tables(self) -> Path:
        """The Zarr group of the three tables."""
        return self.path / "tables.zarr"

    def states(self) -> np.ndarray:
        """Every measurement's state, a :data:`STATE` each, sorted by id."""
        with reading(self.path):
            return np.frombuffer(read_regular(self.path / "states.bin"), STATE)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """What reads files through Zarr: anything that it and its codecs raise of what is damaged, or
    of what another program wrote, ends as :class:`DamagedStore`."""
    try:
        yield
    except (OSError, MemoryError, DamagedStore):
        raise
    except Exception as error:
        raise DamagedStore(
            f"{path}: is not what this program writes ({type(error).__name__}: {error}); restore "
            f"it from a copy"
        ) from None


MISSING: FileDigest = (-1, 0)
"""A file that was written and is there no more."""

Offset = Annotated[int, Field(ge=0, lt=2**62)]


class _Manifest(BaseModel):
    """What a manifest says, beside what it adds up to: as many shards as there are samples."""

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
            raise ValueError(f"{len(self.shards)} shards can't be {self.samples_end} samples")
        return self


def checksum(path: Path) -> FileDigest:
    """A file's size and CRC32C, read in pieces."""
    size, crc = 0, 0
    with open_regular(path) as file:
        while piece := file.read(1 << 22):
            size += len(piece)
            crc = google_crc32c.extend(crc, piece)
    return size, crc


def generation_numbers(store: Store) -> list[int]:
    """The generations that have a folder, newest first."""
    with contextlib.suppress(FileNotFoundError):
        names = (path.name for path in store.index.iterdir())
        return sorted((int(name) for name in names if name.isdecimal()), reverse=True)
    return []


def generation_folder(store: Store, number: int) -> Path:
    """The folder of a generation."""
    return store.index / f"{number:06d}"


def read_manifest(path: Path) -> Generation:
    """What a generation's manifest says; its files are not looked at.

    Raises:
        DamagedStore: it is not what was written.
    """
    try:
        line, crc = read_regular(path / "manifest").split(b"\n")[:2]
        if int(crc, 16) != google_crc32c.value(line):
            raise DamagedStore(f"{path}/manifest: its checksum does not match")
        told = _Manifest.model_validate_json(line)
    except ValidationError as errors:
        first = errors.errors()[0]
        where = ".".join(map(str, first["loc"]))[:80] or "shards"
        what = first["msg"].removeprefix("Value error, ")
        raise DamagedStore(f"{path}/manifest: {where}: {what}") from None
    except (OSError, ValueError) as error:
        raise DamagedStore(f"{path}/manifest: can't be read ({error})") from None
    return Generation(
        path,
        told.consumed,
        told.samples_end,
        told.shards,
        told.summary.model_dump(),
        told.files,
    )


def verified_generation(path: Path) -> Generation:
    """The generation of a folder, every file of which is what was written.

    Raises:
        DamagedStore: one is not; the text names it.
    """
    generation = read_manifest(path)
    for name, (size, crc) in generation.files.items():
        try:
            found = checksum(path / name)
        except OSError as error:
            raise DamagedStore(f"{path / name}: {error.strerror}") from None
        if found[0] != size:
            raise DamagedStore(f"{path / name}: {found[0]} bytes, {size} were written")
        if found[1] != crc:
            raise DamagedStore(f"{path / name}: its checksum does not match")
    return generation


def newest_generation(store: Store) -> tuple[Generation | None, list[str]]:
    """The newest whole generation (None before the first), and what is wrong with newer ones.

    Raises:
        DamagedStore: there are generations, and none is whole.
    """
    wrong: list[str] = []
    there = generation_numbers(store)
    for number in there:
        try:
            return verified_generation(generation_folder(store, number)), wrong
        except DamagedStore as damage:
            wrong.append(str(damage))
    if wrong and set(generation_numbers(store)) - set(there):
        return newest_generation(store)  # a driver has written a new one since they were listed
    if wrong:
        raise DamagedStore(
            f"{store.root}: no generation of the index is whole ({'; '.join(wrong)}); restore "
            f"{store.index} from a copy, or move it away to measure all of it again"
        )
    return None, []


@contextlib.contextmanager
def next_generation_folder(store: Store, base: Generation | None) -> Iterator[Path]:
    """The folder of the generation after ``base``, with a copy of its tables; removed on error."""
    fresh = store.index / ".next"
    shutil.rmtree(fresh, ignore_errors=True)  # left by one that was killed
    try:
        fresh.mkdir()
        if base is not None:
            shutil.copytree(base.tables, fresh / "tables.zarr", copy_function=shutil.copyfile)
        yield fresh
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def commit(store: Store, fresh: Path, base: Generation | None, told: Generation) -> Generation:
    """Write the manifest of a :func:`next_generation_folder`; make it the next generation.

    ``told``: what the manifest says beside its files.
    """
    files = {
        str(path.relative_to(fresh)): checksum(path)
        for path in sorted(fresh.rglob("*"))
        if path.is_file()
    }
    said = {name: getattr(told, name) for name in ("consumed", "samples_end", "shards", "summary")}
    line = json.dumps({**said, "files": files}, separators=(",", ":")).encode()
    (fresh / "manifest").write_bytes(line + f"\n{google_crc32c.value(line):08x}\n".encode())
    read_manifest(fresh)  # what can't be read again must not come to be
    sync_tree(fresh)
    path = generation_folder(
        store, max([0 if base is None else base.number, *generation_numbers(store)]) + 1
    )
    fresh.rename(path)
    sync(store.index)
    return replace(told, path=path, files=files)
