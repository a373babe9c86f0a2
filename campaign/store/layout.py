"""The files of a store, and who may write to them.

A store is a folder::

    store.json      format and name; a folder with this file is a store
    campaign.json   the last plan: the campaign and its sites
    planned.*.bin   the ids of the planned points (campaign.store.planned)
    journals/       records that are not in two generations yet, one file for each writer
    traces.zarr/    all samples: time_ns and value, in shards that are written once
    index/N/        generation N: all scalars of all measurements, and where their traces are
                    (campaign.store.generation)
    setups/         how measurements were made (campaign.store.setups)
    hours/          the node-hours that runs have spent (campaign.store.hours)
    fits/           fits by site and name, as JSON (campaign.fits)
    logs/, tls/     of a run on Slurm: the jobs' output; certificates while it runs
    variables.key   hides values of environment variables (campaign.store.variables)
    lock            locked by the running driver
    status.*        how the last run stands, for who watches it (campaign.launch.live_status)
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaign.store.durable import sync
from sites.near_names import did_you_mean
from sites.regular_files import read_regular
from sites.whole_files import replacing, temporary_of

FORMAT = 3
"""Of a store that has records of how its measurements were made, which versions that read no more
than format 2 would take for damage."""
READABLE = (2, FORMAT)
JOURNAL_SUFFIX = ".journal"
SNAPSHOT = "status.json"
PAGE = "status.html"
METRICS = "status.prom"


class NotAStore(Exception):
    """The folder is not a store, or its format is not supported by this version."""


class DamagedStore(Exception):
    """A file of the store is not what was written. The text contains its name and a remedy."""


class StoreBusy(Exception):
    """Another process is using this store."""


class StoreUnwritable(Exception):
    """The store cannot be written to, so that further measurements would be lost."""


@dataclass(frozen=True)
class Store:
    """A store's folder. Open one with :func:`open_store`, make one with :func:`create_store`."""

    root: Path

    @property
    def journals(self) -> Path:
        """The folder of journals."""
        return self.root / "journals"

    @property
    def traces(self) -> Path:
        """The Zarr group of all samples."""
        return self.root / "traces.zarr"

    @property
    def index(self) -> Path:
        """The folder of index generations."""
        return self.root / "index"

    @property
    def fits(self) -> Path:
        """The folder of fits."""
        return self.root / "fits"

    def journal_paths(self) -> list[Path]:
        """The journals, by name."""
        return sorted(self.journals.glob(f"*{JOURNAL_SUFFIX}"))

    def read_json(self, name: str) -> Any:
        """A JSON file of the store; None if it does not exist.

        Raises:
            DamagedStore: it is not JSON, or cannot be read.
        """
        path = self.root / name
        try:
            return json.loads(read_regular(path))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise DamagedStore(
                f"{path}: cannot be read ({error}); run or import again to rewrite it, or remove it"
            ) from None

    def write_json(self, name: str, value: Any) -> None:
        """Replace a JSON file of the store atomically and durably."""
        replace_file(self.root / name, json.dumps(value, indent=1).encode() + b"\n")


def replace_file(path: Path, data: bytes, durable: bool = True) -> None:
    """Write ``data`` to ``path`` atomically: readers see the old or the new file, never a part.

    ``durable``: also after a power failure.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, durable) as file:
        file.write(data)
    if durable:
        sync(path.parent)


def create_store(root: Path, name: str) -> Store:
    """Create a store at ``root``, or open the existing one.

    Raises:
        NotAStore: ``root`` is something else.
    """
    store = Store(root)
    if (root / "store.json").exists():
        if _has_damaged_head(store):
            store.write_json("store.json", {"format": FORMAT, "name": name})
        return open_store(root)
    # A driver that died while it created the store leaves empty folders.
    ours = {"journals", "index", "fits"}
    names = {path.name for path in root.iterdir()} if root.is_dir() else set()
    left = {name for name in names if temporary_of(name) == "store.json"}
    if names - ours - left or (root.exists() and not root.is_dir()):
        raise NotAStore(f"{root}: exists and is not a store; name a new or empty folder")
    try:
        store.journals.mkdir(parents=True, exist_ok=True)
        store.index.mkdir(exist_ok=True)
        store.fits.mkdir(exist_ok=True)
        store.write_json("store.json", {"format": FORMAT, "name": name})
    except OSError as error:
        raise NotAStore(
            f"{root}: a store cannot be created here ({error.strerror}); name another folder"
        ) from None
    return store


def _has_damaged_head(store: Store) -> bool:
    """Whether a folder is a store, but for its store.json that is not JSON."""
    try:
        store.read_json("store.json")
    except DamagedStore as error:
        is_json = isinstance(error.__context__, OSError)
        return not is_json and store.journals.is_dir() and store.index.is_dir()
    return False


def _not_a_folder(path: Path) -> str:
    """Why a file is no store, and which store may be meant."""
    beside = path.with_name(path.stem + ".store")
    if (beside / "store.json").exists():
        return f"{path}: is a file, not a store; its store is {beside}"
    return f"{path}: is a file, not a store; name a folder that campaign run or import created"


def _near_store(root: Path) -> str:
    """A suggestion among the stores beside a folder that is missing."""
    return did_you_mean(root.name, [path.parent.name for path in root.parent.glob("*/store.json")])


def open_store(root: Path) -> Store:
    """Open an existing store.

    Raises:
        NotAStore: there is no store at ``root``, or it has another format.
    """
    store = Store(root)
    if root.is_file():
        raise NotAStore(_not_a_folder(root))
    if not root.exists():
        raise NotAStore(
            f"{root}: is not a store (no such folder); {_near_store(root)}name one that campaign "
            "run or import created"
        )
    try:
        head = store.read_json("store.json")
    except DamagedStore as error:
        if not _has_damaged_head(store):
            raise NotAStore(f"{error}; check that this folder is a store") from None
        raise NotAStore(
            f"{root / 'store.json'}: is damaged ({error.__context__}). Run the campaign again: "
            "that rewrites the file and keeps the measurements"
        ) from None
    if not isinstance(head, dict) or "format" not in head:
        raise NotAStore(
            f"{root}: is not a store; name a folder that campaign run or import created"
        )
    if head["format"] not in READABLE:
        raise NotAStore(
            f"{root}: store format {ascii(head['format'])[:20]}, but this version reads formats "
            f"{', '.join(map(str, READABLE))}; use the version that wrote the store, or measure "
            "into a new one"
        )
    return store


@contextmanager
def driver_lock(store: Store) -> Iterator[None]:
    """Lock the store for one driver. The system unlocks it when the driver dies.

    A store of an earlier format gets this version's: what is written from now on is of it.

    Raises:
        StoreBusy: another process has locked it.
        StoreUnwritable: the lock file cannot be written to.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with writing(store):
        file = os.fdopen(os.open(store.root / "lock", flags, 0o666), "a+")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read(200).strip() or "another process"
            raise StoreBusy(
                f"{store.root}: {holder} is using this store; wait for it, or stop it"
            ) from None
        except OSError as error:
            raise StoreUnwritable(
                f"{store.root}/lock: cannot be locked ({error.strerror}); put the store on a file "
                f"system that supports locks"
            ) from None
        with writing(store):
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            head = store.read_json("store.json")
            if head["format"] != FORMAT:
                store.write_json("store.json", head | {"format": FORMAT})
        yield
        with writing(store):
            file.truncate(0)


@contextmanager
def writing(store: Store) -> Iterator[None]:
    """Around code that writes to the store: turns OSError into :class:`StoreUnwritable`."""
    try:
        yield
    except shutil.Error as errors:  # of copying a folder: (from, to, reason) of each file
        _, where, reason = errors.args[0][0]
        raise StoreUnwritable(f"{where}: {reason}") from None
    except OSError as error:
        where = error.filename or store.root
        raise StoreUnwritable(f"{where}: {error.strerror or error}") from None
