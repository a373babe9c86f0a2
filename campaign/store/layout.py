"""The files of a store, and the lock of its writer.

A store is a folder::

    store.json      format, name, and the files that must exist (see below); a folder with this
                    file is a store
    campaign.json   the last plan: the campaign and its sites
    planned.*.bin   the ids of the planned points (campaign.store.planned)
    journals/       records that are not in two generations yet, one file for each writer
    traces.zarr/    all samples: time_ns and value, in shards that are written once
    index/N/        generation N: all scalars of all measurements, and where their traces are
                    (campaign.store.generation)
    setups/         the set-ups of measurements (campaign.store.setups)
    hours/          the node-hours that runs have spent (campaign.store.hours)
    fits/           fits by site and name, as JSON (campaign.results.fits)
    logs/, tls/     of a run on Slurm: the jobs' output; certificates while it runs
    variables.key   hides values of environment variables (campaign.store.environment_variables)
    lock            locked by the running driver
    status.*        the progress of the last run, for its viewers (campaign.launch.live_status)

Each JSON file is sealed: its last entry is a SHA-256 of the rest. ``store.json`` lists these files,
except ``status.json``, and also ``index`` once it has a generation. A listed file that is missing
is damage. A writer lists a file after writing it; if the writer was killed in between, the next
driver lists it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import socket
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvfs.errors import UserError, did_you_mean
from dvfs.files import read_regular, replacing, temporary_of

SEAL = "sha256"
"""The key of the checksum."""
AFTER = b'"\n}\n'
DIGITS = 64
FORMAT = 4
"""The format of stores whose JSON files are sealed and listed."""
READABLE = (2, 3, FORMAT)
HEAD = "store.json"
INDEX = "index"
JSON_FOLDERS = ("fits", "hours", "setups", "sites")
JSON_FILES = ("adaptive.json", "campaign.json", "search.json")
GO_ON = "restore it from a copy, or run or import again to go on without it"
REMEDIES = {
    "campaign.json": "run the campaign again to rewrite it",
    "fits": "make the fit anew with campaign fit",
    "hours": GO_ON,
    "setups": GO_ON,
    "sites": "run the campaign, or import the site's table, again to rewrite it",
    "status.json": "the next run writes it anew",
}
"""The remedy for a damaged file, by its name or folder."""
JOURNAL_SUFFIX = ".journal"
SNAPSHOT = "status.json"
PAGE = "status.html"
METRICS = "status.prom"
OPEN_AGAIN = "if a campaign is running, open the store again, otherwise run the campaign again"


def sealed(name: str, value: Mapping[str, Any]) -> bytes:
    """The bytes of a JSON file. ``name``: its path in the store."""
    text = json.dumps({**value, SEAL: ""}, indent=1).encode() + b"\n"
    return _sealed(name, text.removesuffix(AFTER))


def unsealed(name: str, data: bytes) -> tuple[Any, bool]:
    """The value in the bytes of a JSON file, and whether they are sealed. Files of earlier versions
    are not.

    Raises:
        ValueError: the bytes are not JSON, or do not match their seal.
    """
    value = json.loads(data)
    if not isinstance(value, dict) or SEAL not in value:
        return value, False
    del value[SEAL]
    if data != _sealed(name, data[: -DIGITS - len(AFTER)]):
        raise ValueError("its checksum does not match")
    return value, True


def _sealed(name: str, text: bytes) -> bytes:
    digest = hashlib.sha256(name.encode() + b"\0" + text).hexdigest()
    return text + digest.encode() + AFTER


def sync(path: Path) -> None:
    """Wait until a file's bytes, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(root: Path) -> None:
    """Wait until a folder, all files below it and their names are on disk."""
    for folder, _, names in os.walk(root):
        for name in names:
            sync(Path(folder) / name)
        sync(Path(folder))


class NotAStoreError(UserError):
    """The folder is not a store, or its format is not supported by this version."""


class DamagedStoreError(UserError):
    """A file of the store differs from what was written. The message has its name and a remedy."""


class StoreBusyError(UserError):
    """Another process is using this store."""

    exit_code = 1


class UnwritableStoreError(UserError):
    """The store cannot be written to, so that further measurements would be lost."""

    exit_code = 1


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
        return self.root / INDEX

    @property
    def fits(self) -> Path:
        """The folder of fits."""
        return self.root / "fits"

    def journal_paths(self) -> list[Path]:
        """The journals, by name."""
        names = self.entries("journals")
        return [self.journals / name for name in names if name.endswith(JOURNAL_SUFFIX)]

    def json_names(self, folder: str) -> list[str]:
        """The JSON files of a folder by their paths in the store, including missing ones.

        Raises:
            DamagedStoreError: the folder cannot be read.
        """
        existing = {f"{folder}/{name}" for name in self.entries(folder) if _is_json(name)}
        return sorted(existing | {name for name in self.listed() if name.startswith(f"{folder}/")})

    def entries(self, folder: str) -> list[str]:
        """The names in a folder, sorted; empty if it does not exist.

        Raises:
            DamagedStoreError: the folder cannot be read.
        """
        try:
            return sorted(path.name for path in (self.root / folder).iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unreadable(self.root / folder, error) from None

    def listed(self) -> frozenset[str]:
        """The files that the store must have; empty in an earlier format."""
        return frozenset((self._read_json(HEAD) or ({}, True))[0].get("files", ()))

    def read_json(self, name: str) -> Any:
        """A JSON file of the store; None if it does not exist.

        Raises:
            DamagedStoreError: it differs from what was written, is missing, or cannot be read.
        """
        problem = ""
        for _ in range(2):  # a writer may have replaced it between the file and the head
            content = self._read_json(name)
            if content is None:
                problem = "is missing"
                if name not in self.listed():
                    return None
            elif content[1] or self._format() != FORMAT:
                return content[0]
            else:
                problem = "has no checksum"
        raise DamagedStoreError(f"{self.root / name}: {problem}; {_remedy(name)}")

    def _format(self) -> Any:
        return (self._read_json(HEAD) or ({}, True))[0].get("format")

    def _read_json(self, name: str) -> tuple[Any, bool] | None:
        """The value in a file, and whether it is sealed; None if it does not exist."""
        path = self.root / name
        try:
            return unsealed(name, read_regular(path))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise DamagedStoreError(f"{path}: cannot be read ({error}); {_remedy(name)}") from None

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Replace a JSON file of the store atomically and durably, and list it."""
        self.write_json_files({name: value})

    def write_json_files(self, values: Mapping[str, Mapping[str, Any]]) -> None:
        """:meth:`write_json` of several files."""
        with self._locked_head() as head:
            for name, value in values.items():
                replace_file(self.root / name, sealed(name, value))
            self._list(head, {*head.get("files", ()), *values})

    def list_index(self) -> None:
        """List the index, which must have a generation from now on."""
        with self._locked_head() as head:
            self._list(head, {*head.get("files", ()), INDEX})

    def forget(self, name: str) -> None:
        """Remove a file from the list."""
        with self._locked_head() as head:
            self._list(head, {*head.get("files", ())} - {name})

    def adopt(self) -> None:
        """List the files that a killed writer did not list. A store of an earlier format gets this
        version's: its JSON files are sealed first."""
        with self._locked_head() as head:
            names = set(head.get("files", ()))
            folders = (
                f"{folder}/{name}" for folder in JSON_FOLDERS for name in self.entries(folder)
            )
            is_earlier = head["format"] != FORMAT
            for name in filter(_is_json, {SNAPSHOT, *JSON_FILES, *folders} - names):
                try:
                    content = self._read_json(name)
                except DamagedStoreError:
                    continue  # its reader raises the error
                if content is None:
                    continue
                value, is_sealed = content
                if is_earlier and not is_sealed and isinstance(value, dict):
                    replace_file(self.root / name, sealed(name, value))
                    is_sealed = True
                if is_sealed and name != SNAPSHOT:
                    names.add(name)
            if any(name.isdecimal() for name in self.entries(INDEX)):
                names.add(INDEX)
            self._list(head | {"format": FORMAT}, names)

    def _list(self, head: Mapping[str, Any], names: Collection[str]) -> None:
        """Write the head with these files listed, if that changes it."""
        if head.get("format") == FORMAT and head.get("files") != sorted(names):
            replace_file(self.root / HEAD, sealed(HEAD, {**head, "files": sorted(names)}))

    @contextmanager
    def _locked_head(self) -> Iterator[dict[str, Any]]:
        """The head, locked: no other process changes it or a file that it lists."""
        while True:
            with (self.root / HEAD).open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if not os.path.samestat(os.fstat(file.fileno()), (self.root / HEAD).stat()):
                    continue  # it was replaced before it was locked
                yield self.read_json(HEAD)
                return


def _is_json(name: str) -> bool:
    return name.endswith(".json") and not Path(name).name.startswith(".")


def _remedy(name: str) -> str:
    return REMEDIES.get(name.partition("/")[0], "restore it from a copy")


def unreadable(path: Path, error: OSError) -> DamagedStoreError:
    """The error for an existing file or folder of a store that cannot be read."""
    return DamagedStoreError(
        f"{path}: cannot be read ({error.strerror}); make it readable, or restore it from a copy"
    )


def replace_file(path: Path, data: bytes, durable: bool = True) -> None:
    """Write ``data`` to ``path`` atomically: readers see the whole old or the whole new file.

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
        NotAStoreError: ``root`` exists and is not a store.
    """
    store = Store(root)
    if _lost_head(store):
        # It may have been of an earlier format.
        replace_file(root / HEAD, sealed(HEAD, {"format": READABLE[0], "name": name}))
        store.adopt()
    if (root / HEAD).exists():
        return open_store(root)
    # A driver that died while it created the store leaves empty folders.
    ours = {"journals", "index", "fits"}
    names = {path.name for path in root.iterdir()} if root.is_dir() else set()
    temporary = {name for name in names if temporary_of(name) == "store.json"}
    if names - ours - temporary or (root.exists() and not root.is_dir()):
        raise NotAStoreError(f"{root}: exists and is not a store; name a new or empty folder")
    try:
        store.journals.mkdir(parents=True, exist_ok=True)
        store.index.mkdir(exist_ok=True)
        store.fits.mkdir(exist_ok=True)
        replace_file(root / HEAD, sealed(HEAD, {"format": FORMAT, "name": name, "files": []}))
    except OSError as error:
        raise NotAStoreError(
            f"{root}: a store cannot be created here ({error.strerror}); name another folder"
        ) from None
    return store


def _lost_head(store: Store) -> str:
    """The fault of the head, if the folder is otherwise a store; empty without a fault, for another
    folder, or if the file cannot be read."""
    try:
        if store.read_json(HEAD) is None and any(
            (*store.index.glob("*"), *store.journals.glob("*"))
        ):
            return "is missing"
    except DamagedStoreError as error:
        if not isinstance(error.__context__, OSError) and (
            store.journals.is_dir() or store.index.is_dir()
        ):
            return f"is damaged ({error.__context__ or 'it has no checksum'})"
    return ""


def _not_a_folder(path: Path) -> str:
    """The message for a file that is not a store, with the file's default store if it exists."""
    default_store = path.with_name(path.stem + ".store")
    if (default_store / "store.json").exists():
        return f"{path}: is a file, not a store; its store is {default_store}"
    return f"{path}: is a file, not a store; name a folder that campaign run or import created"


def _near_store(root: Path) -> str:
    """A suggestion from the stores in the parent of a missing folder."""
    return did_you_mean(root.name, [path.parent.name for path in root.parent.glob("*/store.json")])


def open_store(root: Path) -> Store:
    """Open an existing store.

    Raises:
        NotAStoreError: there is no store at ``root``, or its format is not readable.
    """
    store = Store(root)
    if root.is_file():
        raise NotAStoreError(_not_a_folder(root))
    if not root.exists():
        raise NotAStoreError(
            f"{root}: is not a store (no such folder); {_near_store(root)}name one that campaign "
            "run or import created"
        )
    if lost := _lost_head(store):
        raise NotAStoreError(
            f"{root / HEAD}: {lost}. Run the campaign again: that rewrites the file and keeps the "
            f"measurements"
        )
    try:
        head = store.read_json(HEAD)
    except DamagedStoreError as error:
        raise NotAStoreError(f"{error}; check that this folder is a store") from None
    if not isinstance(head, dict) or "format" not in head:
        raise NotAStoreError(
            f"{root}: is not a store; name a folder that campaign run or import created"
        )
    if head["format"] not in READABLE:
        raise NotAStoreError(
            f"{root}: store format {ascii(head['format'])[:20]}, but this version reads formats "
            f"{', '.join(map(str, READABLE))}; use the version that wrote the store, or measure "
            "into a new one"
        )
    return store


@contextmanager
def driver_lock(store: Store) -> Iterator[None]:
    """Lock the store for one driver. The system unlocks it when the driver dies.

    Calls :meth:`Store.adopt`.

    Raises:
        StoreBusyError: another process has locked it.
        UnwritableStoreError: the lock file cannot be written to.
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
            raise StoreBusyError(
                f"{store.root}: {holder} is using this store; wait for it, or stop it"
            ) from None
        except OSError as error:
            raise UnwritableStoreError(
                f"{store.root}/lock: cannot be locked ({error.strerror}); put the store on a file "
                f"system that supports locks"
            ) from None
        with writing(store):
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            store.journals.mkdir(exist_ok=True)  # copies may lack an empty folder
            store.adopt()
        yield
        with writing(store):
            file.truncate(0)


@contextmanager
def writing(store: Store) -> Iterator[None]:
    """Turn an OSError of the body, which writes to the store, into UnwritableStoreError."""
    try:
        yield
    except shutil.Error as errors:  # of copying a folder: (from, to, reason) of each file
        _, where, reason = errors.args[0][0]
        raise UnwritableStoreError(f"{where}: {reason}") from None
    except OSError as error:
        where = error.filename or store.root
        raise UnwritableStoreError(f"{where}: {error.strerror or error}") from None
