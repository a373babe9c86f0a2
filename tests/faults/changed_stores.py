"""A small store with one change to its files, at random: a byte, a cut, a file or folder removed,
exchanged, or in place of which something else stands. What commands print must be what they printed
before, or they must end with another exit code and name the file."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests import commands
from tests.commands import Written, prints
from tests.faults.outcome import Outcome

SITE = "jetson-tk1"
CAMPAIGN = """\
name = "changed"
[[sites]]
site = "jetson-tk1"
[settings]
choose = "random"
count = 6
seed = 1
[protocol]
min_duration_s = 0.05
[[kernels]]
kernel = "sp_fma"
params = { level = ["dram", "l2"], ops_per_word = [1, 16] }
"""
COMMANDS = {
    "status": ["status"],
    "fit": ["fit", "--site", SITE, "--name", "again", "--replace"],
    "predict": ["predict", "--site", SITE],
    "coefficients": ["coefficients"],
    "crossval": ["crossval", "--site", SITE],
}
WAYS = ("flip", "digit", "cut", "grow", "gone", "other file", "folder", "link to itself")
NOT_READ = ("lock", "status.json", "status.html", "status.prom")
"""No command but watch reads these."""


def ask(verb: str, store: Path) -> Written:
    """Run a command on a store."""
    first, *words = COMMANDS[verb]
    return commands.run(first, store, *words, "--json")


def small_store(folder: Path) -> Path:
    """A store of 24 points with a fit, in ``folder``."""
    path = folder / "c.toml"
    path.write_text(CAMPAIGN)
    store = folder / "store"
    prints("run", path, "--store", store, "--quiet")
    prints("fit", store, "--site", SITE)
    prints("fit", store, "--site", SITE, "--name", "again")
    return store


@contextlib.contextmanager
def changed(store: Path, rng: random.Random) -> Iterator[tuple[str, str]]:
    """Change a store in one place, and change it back: how, and the path in the store."""
    paths = [path for path in store.rglob("*") if str(path.relative_to(store)) not in NOT_READ]
    if rng.random() < 0.5:  # most files are of the index
        paths = [path for path in paths if store / "index" not in path.parents]
    path = rng.choice(sorted(paths))
    kept = store.parent / "kept"
    path.rename(kept)
    how = rng.choice(["gone", "file"]) if kept.is_dir() else rng.choice(WAYS)
    match how:
        case "gone":
            pass
        case "folder":
            path.mkdir()
        case "link to itself":
            path.symlink_to(path.name)
        case _:
            path.write_bytes(_other_bytes(kept, path.parent, how, rng))
    try:
        yield how, str(path.relative_to(store))
    finally:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        kept.rename(path)


def _other_bytes(kept: Path, folder: Path, how: str, rng: random.Random) -> bytes:
    if kept.is_dir():
        return b""
    data = bytearray(kept.read_bytes())
    digits = [i for i, byte in enumerate(data) if byte in b"0123456789"]
    if how == "flip" and data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif how == "digit" and digits:
        at = rng.choice(digits)
        data[at] = rng.choice(sorted(set(b"0123456789") - {data[at]}))
    elif how == "cut":
        del data[rng.randrange(len(data) + 1) :]
    elif how == "grow":
        data += rng.randbytes(rng.randrange(1, 9))
    elif others := [other for other in sorted(folder.iterdir()) if other.is_file()]:
        return rng.choice(others).read_bytes()
    return bytes(data)


def same(said: Written, before: Written) -> bool:
    """Whether a command printed the same numbers; when a fit was made is none of them."""
    if said.code != before.code:
        return False
    if said.out == before.out:
        return True
    now, then = json.loads(said.out), json.loads(before.out)
    for value in (now, then):
        for fit in value if isinstance(value, list) else [value]:
            fit.pop("store", None)
            for holder in (fit, fit.get("fit", {})):
                holder.pop("created", None)
    return bool(now == then)


def wrong(verb: str, said: Written, before: Written, name: str) -> str:
    """What is wrong with what a command said of a store in which ``name`` was changed."""
    if same(said, before):
        return ""
    if said.code == 0:
        return f"{verb}: other output with exit code 0"
    text = "".join((said.out + said.err).split())
    # Of both generations' files, and of samples, their folder says enough.
    if Path(name).name in text or Path(name).parts[0] in text:
        return ""
    return f"{verb}: does not name it: {(said.err or said.out)[-300:]}"


def run(count: int, seed: int, fits_of: int = 2) -> Iterator[Outcome]:
    """``count`` changes; with one of ``fits_of`` a command that fits or predicts is tried, too."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="changed-stores-") as folder:
        store = small_store(Path(folder))
        before = {verb: ask(verb, store) for verb in COMMANDS}
        for number in range(count):
            began = time.monotonic()
            fitting = rng.choice(["fit", "predict", "crossval"])
            verbs = ["status", "coefficients", *([fitting] if number % fits_of == 0 else [])]
            with changed(store, rng) as (how, name):
                said = {}
                for verb in verbs:
                    with _copied(store, verb == "fit") as own:
                        said[verb] = ask(verb, own)
            found = [wrong(verb, said[verb], before[verb], name) for verb in verbs]
            yield Outcome(
                kind=f"change: {how}",
                seed=seed,
                what=name,
                exit_code=max(own.code for own in said.values()),
                last_line="",
                verdict="; ".join(filter(None, found)) or "the same, or refused by name",
                ok=not any(found),
                seconds=time.monotonic() - began,
            )


@contextlib.contextmanager
def _copied(store: Path, is_written: bool) -> Iterator[Path]:
    """The store, or a copy of it for a command that writes."""
    if not is_written:
        yield store
        return
    with tempfile.TemporaryDirectory(prefix="changed-store-") as folder:
        yield Path(shutil.copytree(store, Path(folder) / "store", symlinks=True))
