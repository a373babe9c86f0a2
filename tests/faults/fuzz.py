"""Files from elsewhere, damaged at random: each must be read, or refused with a clear message.

``python -m tests.faults.fuzz [--inputs 20000] [--seed S] [--json FILE]``

A target is a tree of right files and what reads it: the program's own reader, or the command line.
An input is a change to that tree. It may be accepted, or refused with one of the errors that a
person can mend. Anything else is a failure: another exception, a message that is none, 2 s of
processor time more than the right files take, 10 s of it at all, or more than 500 MB of memory,
which is a limit of the process. The inputs of a target run in a process of their own, which is
started again where one of them ends it. Each input follows from the seed, the target and its
number alone.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
import numcodecs.blosc
import numpy as np
import pandas as pd

from campaign.command_line import main as command_line
from campaign.measurement import Measurement
from campaign.profile_file import read_profile
from campaign.store.compaction import compact
from campaign.store.dataset import open_dataset
from campaign.store.journal import HEAD, LENGTHS, MAGIC, JournalWriter, TornRecord, encode, read
from campaign.store.journal import scan as scan_journal
from campaign.store.layout import create_store, open_store
from campaign.store.planned import write_planned
from campaign.table import checked_rows, read_map, read_table
from campaign.verbs.errors import exit_code
from kernels.command import read_counts
from kernels.kernel import KernelFailed
from sites.meters.cray import open_meter as open_cray
from sites.meters.ipmi import parse_watts
from sites.meters.powermon_lines import ScanReader
from sites.meters.recorded import open_meter as open_recorded
from sites.meters.slurm import open_meter as open_slurm
from tests.campaign.test_journal import measurement
from tests.campaign.test_wrong_files import CAMPAIGN, SITE
from tests.sites.meter_layouts.layout import TREES

LIMIT_CPU_S = 2.0
"""More processor time than the right files take."""
LIMIT_ALL_CPU_S = 10
"""Then the process is ended; so it is after LIMIT_S, which a busy machine needs."""
LIMIT_S = 60
LIMIT_MB = 500
MESSAGE_CHARS = 4000
"""A message that is longer tells nobody anything."""
MAX_BYTES = 2_000_000
"""Time and memory are bounded for files of some size: one of 10 MB may take its seconds."""
ROOT = Path(__file__).parents[2]
GTX = ROOT / "tests/data/gtxtitanx/microbenchmarks.csv"
GTX_MAP = ROOT / "examples/gtxtitanx.map.toml"


@dataclass(frozen=True)
class Link:
    """A symbolic link in the place of a file."""

    to: str


Change = bytes | Link | None
"""What is put in the place of a file; None: it is removed."""
Changes = dict[str, Change]
Files = Mapping[str, bytes]
"""A path in a target's tree -> what it holds."""


@dataclass(frozen=True)
class Target:
    """Something that reads files from elsewhere.

    ``read`` raises for a refused input, and returns what was accepted in a word. ``spare`` are
    further right contents of a file, to begin from and to splice with. ``cases`` are inputs that
    were found to matter, each tried in every run.
    """

    name: str
    share: float
    """Of all inputs, relative to the other targets'."""
    prepare: Callable[[Path], None]
    read: Callable[[Path, int], None]
    spare: Callable[[Files], dict[str, list[bytes]]] = lambda files: {}
    cases: Mapping[str, Callable[[Files], Changes]] = field(default_factory=dict)
    changed: str = ""
    """A pattern in the names of the files that are changed at random."""
    seal: Callable[[random.Random, Files, Changes], None] = lambda rng, files, changes: None
    """What is done to an input at last, as to make checksums right again."""
    short_step: int = 1
    """In a short run one of so many cases is tried."""
    often: tuple[int, ...] = ()
    """The ways of inputs at random, in turn, where some take longer; else all in turn."""
    ways: int = 1
    """How many readings ``read`` tells apart, by its second argument."""


class Unclear(Exception):
    """An input was refused, but nobody could tell why; or accepted, but it is wrong."""


# -- changing bytes ------------------------------------------------------------------------------

DEEP = 100_000
LONG = 200_000
WORDS = [
    *("", "nan", "NaN", "inf", "-inf", "Infinity", "-1", "0", "-0.0", "1e308", "1e400", "1e-400"),
    *("1e17", "5e-324", "9" * 30, "9" * 400, "9" * 5000, "-" + "9" * 400, "0x10", "1_000", "true"),
    *("null", "'", '"', '"""', "'''", "\0", "\x1b[31m", "\x7f", "\ufeff", "\u2028", "\x85", "\x0c"),
    *("é", "٣", "²", "💥", "../../x", "/etc/hostname", "n_../x", "n_", "n_a/b", "a" * LONG, "{}"),
    *("[]", "[" * DEEP, "{a=" * DEEP, '{"a":' * DEEP, "a." * 20_000 + "a", "[[1, 2]]", "#", "\r"),
    *("1979-05-27", "1979-05-27T07:32:00Z", "Active", "J", "us", "W", "*7F", "|", ",", ",,,", "="),
    *("9223372036854775807", "9223372036854775808", "18446744073709551615", "-9223372036854775809"),
]
EXTREMES = [0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1]
TOKEN = re.compile(rb"[^\s,=\[\]{}\"#|:]+")


def change_bytes(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Flip, cut, insert, repeat, splice, or write an extreme number over some bytes."""
    at, size = rng.randrange(len(data) + 1), rng.choice([1, 2, 4, 8, 30, 1000])
    match rng.randrange(9):
        case 0 | 1:
            changed = bytearray(data)
            for _ in range(rng.choice([1, 1, 2, 8])):
                if changed:
                    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            return bytes(changed)
        case 2:
            return data[:at]
        case 3:
            return data[:at] + rng.randbytes(size) + data[at:]
        case 4:
            return data[:at] + data[at + size :]
        case 5:
            return data[: at + size] + data[at:]
        case 6:
            return data[:at] + other[rng.randrange(len(other) + 1) :]
        case 7:
            number = rng.choice(EXTREMES).to_bytes(8, "little")[: rng.choice([1, 2, 4, 8])]
            return data[:at] + number + data[at + len(number) :]
    return rng.choice([b"", b"\0" * 4096, data * 20, b"\xff\xfe" + data])


def change_text(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """Drop, repeat, exchange or spoil lines, words and columns."""
    lines = data.split(b"\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    word = rng.choice(WORDS).encode()
    match rng.randrange(14):
        case 0:
            del lines[i]
        case 1:
            lines.insert(j, lines[i])
        case 2:
            lines[i], lines[j] = lines[j], lines[i]
        case 3:
            lines.insert(i, word)
        case 4:
            lines[i] = rng.choice([lines[i] + word, word + lines[i], lines[i] * 5000])
        case 5:
            return rng.choice([b"\xef\xbb\xbf", b"\xff\xfe", b"\n" * 1000, b" " * LONG]) + data
        case 6:
            return data.replace(b"\n", rng.choice([b"\r\n", b"\r", b"\n\n", b" ", b""]))
        case 7:  # a column twice, or not at all
            column, twice = rng.randrange(12), rng.random() < 0.5
            for k, line in enumerate(lines):
                cells = line.split(b",")
                if column < len(cells):
                    cells[column : column + 1] = cells[column : column + 1] * (2 if twice else 0)
                lines[k] = b",".join(cells)
        case 8:
            return data + rng.choice([lines[i] * 20, other, b"\n" * LONG, b" " * LONG + b"x"])
        case _:
            tokens = list(TOKEN.finditer(data))
            if tokens:
                token = rng.choice(tokens)
                new = rng.choice([word, word, word, token[0] * 2, rng.choice(tokens)[0]])
                return data[: token.start()] + new + data[token.end() :]
    return b"\n".join(lines)


RAW = {"@deep list@": "[" * DEEP + "]" * DEEP, "@deep table@": '{"a":' * DEEP + "1" + "}" * DEEP}
RAW |= {"@digits@": "9" * 5000, "@surrogate@": '"\\ud800"'}
VALUES: list[Any] = [
    *(None, True, False, -1, 0, 1, 2, 3.5, 2**31, 2**53, 2**60, 2**63, 2**64, -(2**63), 10**400),
    *(1e308, -1e308, 5e-324, math.nan, math.inf, -math.inf, "", "x", "x" * LONG, "../../x", "\0"),
    *("2020-01-01", "\x1b[31m", [], {}, [1], {"a": 1}, [[]], [None], "<f8", "|O", "int8", *RAW),
]


def change_json(rng: random.Random, value: Any) -> Any:
    """Drop, repeat, rename or replace one part of a value."""
    parts: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        for key in keys:
            parts.append((value, key))
            if isinstance(value[key], dict | list):
                walk(value[key])

    if isinstance(value, dict | list):
        walk(value)
    if not parts or rng.random() < 0.02:
        return rng.choice(VALUES)
    holder, key = rng.choice(parts)
    match rng.randrange(8):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[rng.choice([key + "x", "", "../x", "a/b", "\0", rng.choice([*holder, key])])] = (
                holder.pop(key)
            )
        case 1 | 2 if isinstance(holder, list):
            holder.extend(holder * rng.choice([1, 10]))
        case 3:
            holder[key] = rng.choice(parts)[0] if rng.random() < 0.1 else [holder[key]]
        case 4 if isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
            holder[key] = rng.choice([-holder[key] - 1, holder[key] * 10**9, holder[key] + 1])
        case 4 | 5 if isinstance(holder[key], str):
            number = holder[key][:2000]
            holder[key] = rng.choice([holder[key] + "x", holder[key][:-1], len(number), number * 9])
        case _:
            holder[key] = rng.choice(VALUES)
    return value


def as_json(value: Any) -> bytes:
    """A value as JSON, with what no value could say in the place of its mark."""
    try:
        text = json.dumps(value)
    except ValueError:  # it holds itself
        text = '{"a": ' + RAW["@deep list@"] + "}"
    for mark, raw in RAW.items():
        text = text.replace(f'"{mark}"', raw)
    return text.encode()


def sealed(text: bytes, payload: bytes, lengths: tuple[int, int] | None = None) -> bytes:
    """A record of a journal whose checksums are right, whatever it holds."""
    sizes = lengths or (len(text), len(payload))
    sums = google_crc32c.value(text), google_crc32c.value(payload)
    head = LENGTHS.pack(MAGIC, *sizes, *sums)
    return head + struct.pack("<I", google_crc32c.value(head)) + text + payload


def unsealed(journal: bytes) -> list[tuple[bytes, bytes]]:
    """The scalars and the traces of each record of a right journal."""
    records, at = [], 0
    while at < len(journal):
        _, text_bytes, payload_bytes, *_ = HEAD.unpack_from(journal, at)
        at += HEAD.size + text_bytes + payload_bytes
        records.append((journal[at - payload_bytes - text_bytes : at], text_bytes))
    return [(both[:n], both[n:]) for both, n in records]


def bomb(n_bytes: int, n_told: int | None = None) -> bytes:
    """Zeros that Blosc has made small; ``n_told``: it says that they are so many."""
    packed = bytearray(numcodecs.blosc.compress(bytes(n_bytes), b"zstd", 9, 1))
    if n_told is not None:
        packed[4:8] = n_told.to_bytes(4, "little")
    return bytes(packed)


def change_journal(rng: random.Random, data: bytes) -> bytes:
    """Change what a record says, under right checksums; or lengths and order of records."""
    records = unsealed(data)
    i = rng.randrange(len(records))
    text, payload = records[i]
    match rng.randrange(10):
        case 0:
            new = sealed(text, payload, (rng.choice([0, 2**31, 2**32 - 1]), len(payload)))
        case 1:
            new = sealed(text, payload, (len(text), rng.choice([0, 2**40, 2**63, 2**64 - 1])))
        case 2:
            new = sealed(text, bomb(1000, rng.choice([2**31 - 17, 2**30, 0])) + payload)
        case 3:
            new = sealed(text, change_bytes(rng, payload, text))
        case 4:
            new = sealed(change_bytes(rng, text, payload), payload)
        case _:
            value = json.loads(text)
            for _ in range(rng.choice([1, 1, 2, 5])):
                value = change_json(rng, value)
            new = sealed(as_json(value), payload)
    made = [sealed(*record) for record in records]
    made[i] = new
    if rng.random() < 0.1:
        rng.shuffle(made)
    return b"".join(made)


def change_manifest(rng: random.Random, data: bytes) -> bytes:
    """Change what a line of JSON says, under a right checksum."""
    line = as_json(change_json(rng, json.loads(data.split(b"\n")[0])))
    return sealed_line(line)


def sealed_line(line: bytes) -> bytes:
    """A line and its checksum, as a generation's manifest has it."""
    return line + f"\n{google_crc32c.value(line):08x}\n".encode()


def seal_manifests(rng: random.Random, files: Files, changes: Changes) -> None:
    """Often, tell the manifests of a store of the files that were changed: whoever damages a
    store on purpose does so, and what is behind the checksums is read."""
    if rng.random() < 0.4:
        return
    for name in [name for name in files if name.endswith("/manifest") and name not in changes]:
        try:
            told = json.loads(files[name].split(b"\n")[0])
            for each, content in changes.items():
                if isinstance(content, bytes):
                    pair = [len(content), google_crc32c.value(content)]
                    folder = f"{Path(name).parent}/"
                    if each.removeprefix(folder) in told["files"]:
                        told["files"][each.removeprefix(folder)] = pair
                    shard = each.removeprefix("store/traces.zarr/")
                    if shard in told["shards"]:
                        told["shards"][shard] = pair
        except (ValueError, KeyError, TypeError):
            continue
        changes[name] = sealed_line(json.dumps(told, separators=(",", ":")).encode())


def change_content(rng: random.Random, name: str, data: bytes, other: bytes) -> bytes:
    """One change to a file, of a kind that suits what it holds, or of bytes."""
    kind = rng.random()
    if name.endswith(".journal") and kind < 0.7:
        try:
            return change_journal(rng, data)
        except (struct.error, ValueError, IndexError, RecursionError):
            pass  # changed twice, and no journal any more
    if name.endswith("/manifest") and kind < 0.7:
        try:
            return change_manifest(rng, data)
        except (ValueError, RecursionError):
            pass
    if data[:1] in (b"{", b"[") and kind < 0.7:
        try:
            return as_json(change_json(rng, json.loads(data)))
        except (ValueError, RecursionError):
            pass
    if kind < 0.75 and b"\0" not in data[:1000]:
        return change_text(rng, data, other)
    return change_bytes(rng, data, other)


LINKS = ["nowhere", ".", "/dev/null", "../../outside.txt", "/proc/self/maps"]


def group_of(name: str) -> str:
    """Files of one kind, so that one of many is not chosen more often than one alone."""
    parts = Path(name)
    return f"{parts.parts[0]}:{parts.suffix or 'bytes'}:{len(parts.parts) > 2}"


def make_changes(
    target: Target, files: Files, spare: Mapping[str, list[bytes]], seed: int, index: int
) -> Changes:
    """An input: it follows from its number, the target and the seed alone."""
    rng = random.Random(f"{seed}:{target.name}:{index}")
    changes: Changes = {}
    groups: dict[str, list[str]] = {}
    for name in sorted(name for name in files if re.search(target.changed, name)):
        groups.setdefault(group_of(name), []).append(name)
    for _ in range(rng.choice([1, 1, 1, 2])):
        name = rng.choice(groups[rng.choice(sorted(groups))])
        data = rng.choice([files[name], *spare.get(name, [])])
        if len(files) > 1 and rng.random() < 0.03:
            changes[name] = rng.choice([None, *map(Link, LINKS)])
            continue
        pool = [*spare.get(name, []), files[rng.choice(sorted(files))]]
        for _ in range(rng.choice([1, 1, 1, 2, 4])):
            data = change_content(rng, name, data, rng.choice(pool))[:MAX_BYTES]
        changes[name] = data
    target.seal(rng, files, changes)
    return changes


# -- reading -------------------------------------------------------------------------------------


def call(*words: str) -> None:
    """The command line in this process: 0, 1 or 2, and one message where it is not 0.

    Raises:
        Refused: 2.
    """
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        code = command_line(words)
    said = errors.getvalue()
    if code not in (0, 1, 2) or "Traceback" in said:
        raise Unclear(f"exit code {code} and {said[:300]!r}")
    if code == 2:
        if not said.startswith("campaign: "):
            raise Unclear(f"exit code 2 and {said[:300]!r}")
        raise Refused(said)


class Refused(Exception):
    """The command line ended with 2, and said why."""


def is_typed(error: BaseException) -> bool:
    """Whether a person can mend it, or the caller knows what it is."""
    if isinstance(error, Refused | TornRecord | KernelFailed):
        return True
    return isinstance(error, Exception) and exit_code(error) is not None


def check_message(text: str) -> None:
    """Refuse a message that is none, is endless, or speaks to the terminal."""
    if not text.strip() or len(text) > MESSAGE_CHARS:
        raise Unclear(f"a message of {len(text)} characters: {text[:200]!r}")
    bad = re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text)
    if bad:
        raise Unclear(
            f"a message with {bad[0]!r} in it: {text[max(0, bad.start() - 60) :][:200]!r}"
        )


def need(fact: bool, what: str) -> None:
    """Refuse to have accepted something that is wrong."""
    if not fact:
        raise Unclear(f"accepted: {what}")


def read_any_table(folder: Path, name: str) -> None:
    """A table through its map, as import reads it."""
    mapping = read_map(folder / "map.toml" if (folder / "map.toml").exists() else None)
    rows = checked_rows(read_table(folder / name, mapping), mapping).rows
    need(bool(np.isfinite(rows["time_s"]).all() and (rows["time_s"] > 0).all()), "time_s")
    need(bool(np.isfinite(rows["energy_j"]).all() and (rows["energy_j"] > 0).all()), "energy_j")
    need(rows["point_id"].is_unique, "a point twice")
    for column in rows.columns:
        named = re.fullmatch(r"n_[A-Za-z0-9][A-Za-z0-9_.-]{0,63}|[a-mo-z][a-z_]*|node", column)
        need(named is not None, f"a column {column[:80]!r}")


def read_plan(folder: Path, index: int) -> None:
    """A campaign file and its site file, into points."""
    call("plan", str(folder / "c.toml"), *(["--json"] if index % 2 else []))


def read_import(folder: Path, index: int) -> None:
    """The whole way of a table: import, status, export."""
    store = folder / "imported"
    try:
        table, map_ = "table.parquet", []
        if index % 2:
            table, map_ = "table.csv", ["--map", str(folder / "map.toml")]
        call("import", str(folder / table), "--store", str(store), *map_)
        call("status", str(store))
        call("export", str(store), "--csv", str(folder / "imported/out.csv"))
    finally:
        shutil.rmtree(store, ignore_errors=True)


def read_map_file(folder: Path, index: int) -> None:
    """A map file and another's table, in blocks."""
    read_any_table(folder, "table.csv")


def read_profile_file(folder: Path, index: int) -> None:
    """A profile."""
    profile, _ = read_profile(folder / "profile.toml")
    need(all(0 <= n < math.inf for n in profile.counts.values()), "counts")


def read_counts_file(folder: Path, index: int) -> None:
    """What a user's own program says that it counted."""
    counts = read_counts(folder / "counts.json")
    need(all(0 <= n < math.inf for n in counts.values()), "a count")
    need(all(re.fullmatch(r"[\w.-]{1,64}", name, re.ASCII) for name in counts), "a class's name")


def read_recorded(folder: Path, index: int) -> None:
    """A recorded trace, opened and played."""
    channels = {
        "cpu": {"domain": "package", "kind": "power", "unit": "W"},
        "board": {"domain": "node", "kind": "energy", "unit": "kWh"},
    }
    meter = open_recorded(folder, {"path": "trace.csv", "channels": channels})
    try:
        readings = [meter.read(), *meter.drain()]
    finally:
        meter.close()
    need(all(math.isfinite(v) for r in readings for v in r.values), "a value")


def read_ipmi(folder: Path, index: int) -> None:
    """What a BMC's program printed."""
    text = (folder / "output.txt").read_text(errors="replace")
    need(0 < parse_watts(text, "ipmi-dcmi") < 1e7, "watts")


def read_cray(folder: Path, index: int) -> None:
    """Cray's counters, read twice."""
    meter = open_cray(folder, {})
    try:
        for _ in range(2):
            need(all(math.isfinite(v) for v in meter.read().values), "a value")
    finally:
        meter.close()
    need(all(0 < c.period_s < math.inf for c in meter.channels), "period_s")


def read_powermon(folder: Path, index: int) -> None:
    """A logger's lines, in pieces as they come."""
    data = (folder / "lines.txt").read_bytes()
    reader = ScanReader({0: 12.0, 3: None})
    for at in range(0, len(data), 997):
        for scan in reader.take(data[at : at + 997], at):
            need(all(0 <= w < 1e25 for w in scan.watts), "watts")


def read_slurm(folder: Path, index: int) -> None:
    """What Slurm's programs print of a step's energy."""
    meter = open_slurm(folder, {"job": "7", "step": "0", "limit_s": 5.0})
    need(meter.read().values == (0.0,), "the first reading is not 0")


def read_journal(folder: Path, index: int) -> None:
    """A journal: its records, and all that they hold."""
    found = scan_journal(folder / "a.journal")
    refused: TornRecord | None = None
    for entry in found.entries:
        str(entry.point_id)
        try:
            whole = read(entry)
        except TornRecord as error:
            refused = error
            continue
        for trace in whole.traces:
            need(trace.time_ns.shape == trace.value.shape, "a trace of two lengths")
            need(trace.value.dtype.kind == "f", f"a trace of {trace.value.dtype}")
    if refused is not None or found.damage:
        raise refused or TornRecord(found.damage[0][1])


def read_dataset(store: Path) -> None:
    """The Dataset of a store, and the energy of each of its traces."""
    dataset = open_dataset(open_store(store))
    for row in range(dataset.sizes["trace"]):
        start, size = (int(dataset[name][row]) for name in ("row_start", "row_size"))
        need(start >= 0 and size >= 0, f"a trace from {start} on of {size} samples")
        cut = dataset[["time_ns", "value"]].isel(sample=slice(start, start + size))
        need(cut.sizes["sample"] == size, "a trace without all of its samples")
        np.trapezoid(cut["value"].values, cut["time_ns"].values / 1e9)


def read_store(folder: Path, index: int) -> None:
    """A store, through one of the ways that lead into it."""
    store = folder / "store"
    match index:
        case 0:
            call("status", str(store))
        case 1:
            call("status", str(store), "--json")
        case 2:
            call("export", str(store), "--csv", str(folder / "out.csv"))
        case 3:
            call("coefficients", str(store), "--core-mhz", "1000", "--mem-mhz", "500")
        case 4:
            read_dataset(store)
        case 5:
            # It writes: into a copy. The links of an input stay links.
            copy = folder / "copy"
            try:
                shutil.copytree(store, copy, symlinks=True)
                call("import", str(folder / "more.csv"), "--store", str(copy))
                call("status", str(copy))
            finally:
                shutil.rmtree(copy, ignore_errors=True)


def read_fits(folder: Path, index: int) -> None:
    """A store's fits and what it knows of its sites."""
    store = str(folder / "store")
    match index:
        case 0:
            call("coefficients", store)
        case 1:
            call("coefficients", store, "--json")
        case 2:
            call("coefficients", store, "--core-mhz", "1000", "--mem-mhz", "500")


# -- right files ---------------------------------------------------------------------------------

HEADER = "site,kernel,params,node,repeat,core_mhz,mem_mhz,core_v,mem_v,time_s,energy_j,n_sp,n_dram"
MAP = """\
unknown = "label"
device = "cpu"

[columns]
time_s = { column = "t_ms", factor = 1e-3 }
power_w = "watts"

[constants]
site = "a"
repeat = 1

[classes]
sp = "core"

[voltage]
core = [[1000, 0.9], [2000, 1.1]]
mem = [[500, 1.0]]
"""
MAPPED = """\
kernel,core_mhz,mem_mhz,t_ms,watts,who,n_sp
k,1000,500,12.5,3,"b, c",1e9
k,2000,500,9,4,,
"""
PROFILE = """\
kernel = "cg"
core_mhz = 1000
time_s = 1.5
[counts]
sp = 1e9
dram = 3
"""
IPMI = """\
Current Power                        : 164 Watts
Minimum Power over sampling duration : 120 watts
Power Measurement                    : Active
"""
IPMITOOL = """\
    Instantaneous power reading:                   180 Watts
    Power reading state is:                   activated
"""
POWERMON = b"#joined\n" + b"".join(
    b"%d.%03d %d 12.0%02d 1.0%02d\n" % (t // 40, t % 40 * 25, s, t, t)
    for t in range(40)
    for s in (0, 3, 5)
)


def table_rows(kernels: int = 4) -> list[str]:
    """Rows of our own columns that a model fits."""
    rows = []
    for k in range(kernels):
        for core, mem in ((500, 500), (1000, 500), (2000, 500), (1000, 900), (2000, 900)):
            flops, moved = 1e9 * (k + 1), 1e8 * (kernels - k)
            v, w = 0.7 + core / 5000, 0.8 + mem / 5000
            time_s = flops / core / 1e6 / 100 + moved / mem / 1e6 / 10
            energy_j = 2e-11 * flops * v**2 + 3e-10 * moved * w**2 + (2 * v + 3 * w) * time_s
            rows.append(
                f'a,k{k},"{{""n"": {k}}}",n1,0,{core},{mem},{v:.4f},{w:.4f},{time_s:.6g},'
                f"{energy_j:.6g},{flops:g},{moved:g}"
            )
    return rows


def files_in(**named: bytes | str) -> Callable[[Path], None]:
    """Writes these files; in a name, two underscores stand for a dot."""

    def prepare(folder: Path) -> None:
        for name, data in named.items():
            path = folder / name.replace("__", ".")
            path.write_bytes(data.encode() if isinstance(data, str) else data)

    return prepare


TABLE = "\n".join([HEADER, *table_rows()]) + "\n"


def prepare_parquet(folder: Path) -> None:
    """The table as Parquet."""
    pd.read_csv(io.StringIO(TABLE)).to_parquet(folder / "table.parquet", index=False)


def parquet_spares(files: Files) -> dict[str, list[bytes]]:
    """Parquet with other codecs, types and pages."""
    frame = pd.read_csv(io.StringIO(TABLE))
    made = []
    for change, options in (
        (frame, {"compression": "zstd"}),
        (frame.assign(core_mhz=frame["core_mhz"].astype(str)), {"compression": None}),
        (frame.assign(n_dram=None, when=pd.Timestamp("2020-01-01")), {"compression": "gzip"}),
        (frame.set_index("kernel"), {}),
        (frame.assign(params=[[1, 2]] * len(frame)), {}),
    ):
        buffer = io.BytesIO()
        change.to_parquet(buffer, **options)
        made.append(buffer.getvalue())
    return {"table.parquet": made}


def prepare_import(folder: Path) -> None:
    """A table with its map, and as Parquet without."""
    files_in(table__csv=MAPPED, map__toml=MAP)(folder)
    prepare_parquet(folder)


def prepare_cray(folder: Path) -> None:
    """The counters of a recorded node, stamped as of now."""
    shutil.copytree(TREES / "cray-ex-4gpu", folder, dirs_exist_ok=True, symlinks=True)
    for path in (folder / "sys/cray/pm_counters").iterdir():
        if path.is_file():
            path.chmod(0o644)


SLURM_PROGRAM = '#!/bin/sh\nexec cat "${0%/usr/bin/*}/NAME.txt"\n'


def prepare_slurm(folder: Path) -> None:
    """sstat and sacct, which print what a file beside them says."""
    programs = folder / "usr/bin"
    programs.mkdir(parents=True)
    for name in ("sstat", "sacct"):
        (programs / name).write_text(SLURM_PROGRAM.replace("NAME", name))
        (programs / name).chmod(0o755)
        (folder / f"{name}.txt").write_text("7.batch|5000\n7.0|123456\n")


def prepare_journal(folder: Path) -> None:
    """Three records, one of them without traces."""
    nothing = measurement(2, traces=(), counts=None, energy_j=math.nan)
    records = [encode(each) for each in (measurement(0), nothing, measurement(1, 3000))]
    (folder / "a.journal").write_bytes(b"".join(records))


def prepare_store(folder: Path) -> None:
    """A store with an import, compacted and other journals, traces, a fit and a plan."""
    files_in(table__csv=TABLE, more__csv=HEADER + "\n" + table_rows(1)[0].replace("a,k", "b,k"))(
        folder
    )
    path = folder / "store"
    call("import", str(folder / "table.csv"), "--store", str(path))
    call("fit", str(path), "--site", "a", "--model", "choi", "--voltage", "known")
    store = create_store(path, "fuzz")
    for repeats in ((0, 1), (2, 3)):
        with JournalWriter(store.journals) as journal:
            for repeat in repeats:
                journal.append(encode(measurement(repeat, 200)))
            point = measurement(9).point
            failed = Measurement(point, "timed out", "slow", repeats[0], "n1", 1.0)
            journal.append(encode(failed))
        if repeats == (0, 1):
            compact(store)
    ids = [measurement(repeat).point.id for repeat in range(6)]
    write_planned(store, {"name": "fuzz", "sites": {}}, {"s/p": ids})
    (folder / "table.csv").unlink()


# -- inputs that were found to matter ------------------------------------------------------------


def in_file(name: str, data: bytes | str) -> Callable[[Files], Changes]:
    """The whole of one file."""
    return lambda files: {name: data.encode() if isinstance(data, str) else data}


def replaced(name: str, old: str, new: str) -> Callable[[Files], Changes]:
    """One text of a file, replaced."""

    def make(files: Files) -> Changes:
        assert old.encode() in files[name]
        return {name: files[name].replace(old.encode(), new.encode(), 1)}

    return make


def in_first(pattern: str, change: Callable[[bytes], Change]) -> Callable[[Files], Changes]:
    """The first file of a name, changed."""

    def make(files: Files) -> Changes:
        name = min(name for name in files if re.search(pattern, name))
        return {name: change(files[name])}

    return make


def in_record(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    """The scalars of a journal's first record, changed, under right checksums."""

    def make(data: bytes) -> bytes:
        (text, payload), *others = unsealed(data)
        scalars = json.loads(text)
        change(scalars)
        return b"".join([sealed(as_json(scalars), payload), *(sealed(*each) for each in others)])

    return make


def bombed(data: bytes) -> bytes:
    """A record whose traces fill 600 MB."""
    (text, _), *others = unsealed(data)
    scalars, big = json.loads(text), bomb(600_000_000)
    scalars["traces"][0].update(samples=75_000_000, time_bytes=len(big), value_bytes=len(big))
    return sealed(as_json(scalars), big + big) + b"".join(sealed(*each) for each in others)


RECORDS: dict[str, Callable[[bytes], bytes]] = {
    "scalars that are no table": lambda d: sealed(b"[]", b"") + d,
    "scalars that are empty": lambda d: sealed(b"{}", b"") + d,
    "scalars that are no JSON": lambda d: sealed(b"{", b"") + d,
    "scalars that are no UTF-8": lambda d: sealed(b'{"a": "\xff"}', b"") + d,
    "deep scalars": lambda d: sealed(b"[" * DEEP, b"") + d,
    "a number of 5000 digits": in_record(lambda s: s.update(attempt="@digits@")),
    "no status": in_record(lambda s: s.pop("status")),
    "no traces": in_record(lambda s: s.pop("traces")),
    "an unknown field": in_record(lambda s: s.update(colour="red")),
    "a point that is none": in_record(lambda s: s.update(point=3)),
    "a point without id": in_record(lambda s: s["point"].pop("id")),
    "a point of text clocks": in_record(lambda s: s["point"].update(core_mhz="fast")),
    "counts that are none": in_record(lambda s: s.update(counts=[1])),
    "a count that is none": in_record(lambda s: s.update(counts={"sp": "many"})),
    "a class that leads away": in_record(lambda s: s.update(counts={"../../../x": 1.0})),
    "a time that is none": in_record(lambda s: s.update(time_s="1")),
    "an attempt that is none": in_record(lambda s: s.update(attempt=None)),
    "a huge attempt": in_record(lambda s: s.update(attempt=10**30)),
    "provenance that is none": in_record(lambda s: s.update(provenance=None)),
    "traces of objects": in_record(lambda s: s["traces"][0].update(dtype="|O")),
    "traces of no type": in_record(lambda s: s["traces"][0].update(dtype="no type")),
    "negative bytes": in_record(lambda s: s["traces"][0].update(time_bytes=-8)),
    "more bytes than there are": in_record(lambda s: s["traces"][0].update(value_bytes=2**40)),
    "fewer samples than told": in_record(lambda s: s["traces"][0].update(samples=10**12)),
    "traces that tell 2 GB": lambda d: (
        sealed(unsealed(d)[0][0], bomb(1000, 2**31 - 17) + unsealed(d)[0][1]) + d
    ),
    "traces that fill 600 MB": bombed,
    "a length of 4 GB": lambda d: sealed(*unsealed(d)[0], (2**32 - 1, 0)) + d,
    "a length of 2^64": lambda d: sealed(*unsealed(d)[0], (10, 2**64 - 1)) + d,
}
JOURNAL_CASES = {
    name: in_first(r"a\.journal$", make)  # type: ignore[arg-type]
    for name, make in RECORDS.items()
}


def with_json(change: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
    """JSON, changed in place or replaced."""

    def make(data: bytes) -> bytes:
        value = json.loads(data)
        new = change(value)
        return as_json(value if new is None else new)

    return make


def in_newest_manifest(said: dict[str, Any]) -> Callable[[Files], Changes]:
    """The last generation says something else, under a right checksum."""

    def make(files: Files) -> Changes:
        name = max(name for name in files if name.endswith("/manifest"))
        told = json.loads(files[name].split(b"\n")[0]) | said
        return {name: sealed_line(json.dumps(told, separators=(",", ":")).encode())}

    return make


STORE_CASES: dict[str, Callable[[Files], Changes]] = {
    "store.json that is itself": lambda files: {"store/store.json": Link("store.json")},
    "store.json that is deep": in_file("store/store.json", "[" * DEEP),
    "store.json of a format": in_file("store/store.json", '{"format": "\\u001b[31m"}'),
    "store.json of a long format": in_file("store/store.json", as_json({"format": "x" * LONG})),
    "campaign.json of a list": in_file("store/campaign.json", "[1]"),
    "campaign.json of points": in_file("store/campaign.json", '{"planned": [1]}'),
    "campaign.json of numbers": in_file(
        "store/campaign.json", '{"planned": {"partitions": 3, "file": 4}}'
    ),
    "campaign.json that leads out": in_file(
        "store/campaign.json", '{"planned": {"partitions": ["s/p"], "file": "../../x"}}'
    ),
    "campaign.json without end": lambda files: {"store/campaign.json": Link("/dev/zero")},
    "campaign.json cut off": in_file("store/campaign.json", '{"planned": {'),
    "campaign.json that is deep": in_file("store/campaign.json", "[" * DEEP),
    "campaign.json of bytes": in_file("store/campaign.json", b"\xff"),
    "a plan of another file": in_first(r"planned\..*\.bin$", lambda d: d[:-1]),
    "no plan's ids": in_first(r"planned\..*\.bin$", lambda d: None),
    **{
        f"a manifest of {line[:20]!r}": in_first(
            r"/manifest$", lambda d, line=line: sealed_line(line)
        )
        for line in (b"[]", b"{}", b"3", b"[" * DEEP, b'{"consumed": 3}')
    },
    **{
        f"a manifest with {key} {value!r}": in_newest_manifest({key: value})
        for key in ("consumed", "samples_end", "shards", "summary", "files")
        for value in (None, [], {}, -1, 2**70, {"x": 1}, {"../../x": [1, 2]})
    },
    "a generation of another script": lambda files: {"store/index/٣": Link("000001")},
    "a generation of 200 digits": lambda files: {"store/index/" + "9" * 200: Link("000001")},
    "a generation that is itself": lambda files: {"store/index/000099": Link("000099")},
    "a generation that leads out": lambda files: {"store/index/000099": Link("../../..")},
    "a journal that is a folder": lambda files: {
        min(name for name in files if name.endswith(".journal")): Link("..")
    },
    "a journal that leads nowhere": lambda files: {
        min(name for name in files if name.endswith(".journal")): Link("nowhere")
    },
    "a journal without end": lambda files: {
        min(name for name in files if name.endswith(".journal")): Link("/dev/zero")
    },
    "samples of 2^60": in_first(
        r"traces\.zarr/value/zarr\.json$", with_json(lambda v: v.update(shape=[2**60]))
    ),
    "samples of another type": in_first(
        r"traces\.zarr/value/zarr\.json$", with_json(lambda v: v.update(data_type="int8"))
    ),
    "samples of no shape": in_first(
        r"traces\.zarr/time_ns/zarr\.json$", with_json(lambda v: v.update(shape=[]))
    ),
    "samples cut off": in_first(r"traces\.zarr/value/c/", lambda d: d[: len(d) // 2]),
    "samples with a bit changed": in_first(
        r"traces\.zarr/value/c/", lambda d: d[:40] + bytes([d[40] ^ 1]) + d[41:]
    ),
    "traces.zarr of nothing": in_first(r"traces\.zarr/zarr\.json$", lambda d: b""),
    **{
        f"in a journal, {name}": in_first(r"\.journal$", make)  # type: ignore[arg-type]
        for name, make in RECORDS.items()
    },
}
FIT = r"fits/a\.json$"
FIT_CASES = {
    "a fit of a list": in_first(FIT, lambda d: b"[]"),
    "a fit of nothing": in_first(FIT, lambda d: b""),
    "a fit of bytes": in_first(FIT, lambda d: b"\xff"),
    "a deep fit": in_first(FIT, lambda d: b"[" * DEEP),
    "a fit without terms": in_first(FIT, with_json(lambda v: v.pop("terms") and None)),
    "a fit of text": in_first(FIT, with_json(lambda v: v.update(coefficients="x"))),
    "a fit of ragged covariance": in_first(
        FIT, with_json(lambda v: v.update(covariance=[[1], [1, 2]]))
    ),
    "a fit with a term of no kind": in_first(
        FIT, with_json(lambda v: v["terms"][0].pop("kind") and None)
    ),
    "a fit that leads out": lambda files: {"store/fits/b.json": Link("../../../outside.txt")},
    "a fit of an empty name": in_file("store/fits/%2e%2e%2fx.json", "{}"),
}
ROW = "k,1000,500,12.5,3,b,1e9\n"


def many_rows(files: Files) -> Changes:
    """Parquet of 60 million rows in a few bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(pa.table({"core_mhz": np.zeros(60_000_000, np.int8)}), buffer)
    return {"table.parquet": buffer.getvalue()}


TABLE_CASES = {
    "a column twice": in_file("table.csv", TABLE.replace("energy_j", "time_s", 1)),
    "a class that leads away": in_file("table.csv", TABLE.replace("n_dram", "n_../../x", 1)),
    "a class of no name": in_file("table.csv", TABLE.replace("n_dram", "n_", 1)),
    "a class of 300 letters": in_file("table.csv", TABLE.replace("n_dram", "n_" + "x" * 300, 1)),
    "params nested deeply": in_file(
        "table.csv", TABLE.replace('"{""n"": 0}"', '"' + "[" * DEEP + '"', 1)
    ),
    "params of 5000 digits": in_file(
        "table.csv", TABLE.replace('"{""n"": 0}"', '"{""n"": ' + "9" * 5000 + '}"', 1)
    ),
    "a header of 20,000 columns": in_file("table.csv", ",".join(f"c{i}" for i in range(20_000))),
    "a column that speaks to the terminal": in_file("table.csv", "\x1b[31msite,kernel\n"),
    "a byte order mark": in_file("table.csv", "\ufeff" + TABLE),
    "a repeat beyond integers": in_file("table.csv", TABLE.replace(",n1,0,", ",n1,1e300,", 1)),
    "energies that are power times too long": in_file(
        "table.csv",
        "site,kernel,core_mhz,time_s,power_w\na,k,1,1e308,1e308\na,k,2,1e-300,1e-300\n",
    ),
}
MAP_CASES = {
    "a constant of 400 digits": replaced("map.toml", "repeat = 1", "repeat = 1" + "0" * 400),
    "a constant of 5000 digits": replaced("map.toml", "repeat = 1", "repeat = 1" + "0" * 5000),
    "a list nested deeply": replaced("map.toml", "repeat = 1", "repeat = " + "[" * DEEP),
    "a key of many parts": replaced("map.toml", "repeat = 1", "a." * 20_000 + "a = 1"),
    "a key of many quoted parts": replaced("map.toml", "repeat = 1", '"a" . ' * 20_000 + "a = 1"),
    "a table of many parts": replaced("map.toml", "[classes]", "[" + "a." * 20_000 + "a]"),
    "a factor of 400 digits": replaced("map.toml", "1e-3", "1" + "0" * 400),
    "a voltage of 400 digits": replaced("map.toml", "[500, 1.0]", f"[500, {10**400}]"),
    "20,000 lines before an error": replaced(
        "map.toml", "mem = [[500, 1.0]]", "core2 = [\n" + "[1, 2],\n" * 20_000 + "]"
    ),
    "10,000 keys before an error": replaced(
        "map.toml", 'sp = "core"', "".join(f'k{i} = "core"\n' for i in range(10_000)) + "x = 1"
    ),
    "a line that is none before an error": replaced(
        "map.toml", 'device = "cpu"', '# \u2028 "\ndevice = "\u0085"'
    ),
    "a constant that is a class away": replaced("map.toml", "repeat = 1", '"n_../x" = 1'),
    "no end of a text": replaced("map.toml", 'device = "cpu"', '"' + "\\u0041" * 50_000),
}
PLAN_CASES = {
    "a million repeats": replaced("c.toml", "repeats = 1", "repeats = 1000000000"),
    "repeats of 5000 digits": replaced("c.toml", "repeats = 1", "repeats = " + "9" * 5000),
    "params nested deeply": replaced("c.toml", "[1, 2]", "[" * DEEP),
    "params of 400 digits": replaced("c.toml", "[1, 2]", "[1, 1" + "0" * 400 + "]"),
    "params of a date": replaced("c.toml", "[1, 2]", "[1979-05-27]"),
    "params that are no number": replaced("c.toml", "[1, 2]", "[nan, inf]"),
    "a clock of 400 digits": replaced("s.toml", "[1000, 2000]", "[1000, 1" + "0" * 400 + "]"),
    "a site beyond a NUL": replaced("c.toml", '"s.toml"', '"\\u0000.toml"'),
    "a site of a long name": replaced("c.toml", '"s.toml"', f'"{"s" * 5000}.toml"'),
    "counts that can't be told": replaced(
        "c.toml", 'kernel = "sp_fma"', 'kernel = "command"\n[kernels.params2]\nargv = ["x"]'
    ),
}
COUNTS_CASES = {
    "a count of 400 digits": in_file("counts.json", '{"sp": 1' + "0" * 400 + "}"),
    "a count of 5000 digits": in_file("counts.json", '{"sp": 1' + "0" * 5000 + "}"),
    "counts nested deeply": in_file("counts.json", '{"sp": ' + "[" * DEEP),
    "a class that leads away": in_file("counts.json", '{"../../x": 1}'),
    "a class of no name": in_file("counts.json", '{"": 1}'),
    "a count of infinity": in_file("counts.json", '{"sp": Infinity}'),
    "a long text as count": in_file("counts.json", as_json({"sp": "x" * LONG})),
    "bytes": in_file("counts.json", b"\xff\xfe"),
}
RECORDED = "time_s,cpu,board,who\n0,10,0,a\n0.5,11,1e-6,b\n1.0,9.5,2e-6,c\n"
RECORDED_CASES = {
    "times that overflow": in_file("trace.csv", "time_s,cpu,board\n-1e308,1,1\n1e308,1,1\n"),
    "a time that is long": in_file("trace.csv", "time_s,cpu,board\n0,1,1\n1e300,1,1\n"),
    "energies that overflow": in_file("trace.csv", "time_s,cpu,board\n0,1,1e300\n1,1,1e308\n"),
    "a byte order mark": in_file("trace.csv", "\ufeff" + RECORDED),
    "a long word as value": in_file("trace.csv", f"time_s,cpu,board\n0,{'x' * 100_000},1\n"),
}
IPMI_CASES = {
    "watts of 400 digits": in_file("output.txt", IPMI.replace("164", "1" + "0" * 400)),
    "many empty lines": in_file("output.txt", "\n" * LONG + IPMI),
    "a state of many spaces": in_file("output.txt", f"Power Measurement : a{' ' * LONG}b\n"),
    "many spaces": in_file("output.txt", IPMI + "Current Power" + " " * LONG + "x"),
    "digits of another script": in_file("output.txt", IPMI.replace("164", "١٦٤")),
}
SLURM_CASES = {
    "a superscript": in_file("sstat.txt", "7.0|²\n"),
    "an energy of 400 digits": in_file("sstat.txt", "7.0|1" + "0" * 400),
    "an energy of 5000 digits": in_file("sstat.txt", "7.0|1" + "0" * 5000),
    "a long energy": in_file("sstat.txt", "7.0|" + "x" * LONG),
}
PM = "sys/cray/pm_counters/"
CRAY_CASES = {
    "a cap of 5000 digits": in_file(PM + "power_cap", "1" * 5000 + " W\n"),
    "a rate of 5000 digits": in_file(PM + "raw_scan_hz", "1" * 5000 + " Hz\n"),
    "a rate of 400 digits": in_file(PM + "raw_scan_hz", "1" * 400 + " Hz\n"),
    "an energy of 60 digits": in_file(PM + "energy", "1" * 60 + " J\n"),
}

TARGETS = (
    Target(
        "table-csv",
        2.5,
        files_in(table__csv=TABLE),
        lambda folder, index: read_any_table(folder, "table.csv"),
        cases=TABLE_CASES,
    ),
    Target(
        "table-parquet",
        1.5,
        prepare_parquet,
        lambda folder, index: read_any_table(folder, "table.parquet"),
        parquet_spares,
        {"many rows in few bytes": many_rows},
    ),
    Target("map", 2, files_in(table__csv=MAPPED, map__toml=MAP), read_map_file, cases=MAP_CASES),
    Target(
        "map-blocks",
        0.5,
        files_in(
            table__csv=b"".join(GTX.read_bytes().splitlines(True)[:30]),
            map__toml=GTX_MAP.read_bytes(),
        ),
        read_map_file,
    ),
    Target("import", 0.4, prepare_import, read_import, ways=2),
    Target(
        "plan", 2, files_in(c__toml=CAMPAIGN, s__toml=SITE), read_plan, cases=PLAN_CASES, ways=2
    ),
    Target(
        "profile",
        0.7,
        files_in(profile__toml=PROFILE),
        read_profile_file,
    ),
    Target(
        "counts",
        0.7,
        files_in(counts__json='{"sp": 1000000, "dram": 2.5e9, "my_class": 3}'),
        read_counts_file,
        cases=COUNTS_CASES,
    ),
    Target("recorded", 1, files_in(trace__csv=RECORDED), read_recorded, cases=RECORDED_CASES),
    Target(
        "ipmi",
        0.6,
        files_in(output__txt=IPMI),
        read_ipmi,
        lambda files: {"output.txt": [IPMITOOL.encode()]},
        IPMI_CASES,
    ),
    Target("cray", 0.6, prepare_cray, read_cray, cases=CRAY_CASES),
    Target("powermon", 0.6, files_in(lines__txt=POWERMON), read_powermon),
    Target(
        "slurm",
        0.4,
        prepare_slurm,
        read_slurm,
        cases=SLURM_CASES,
        changed=r"\.txt$",
    ),
    Target("journal", 2, prepare_journal, read_journal, cases=JOURNAL_CASES),
    Target(
        "store",
        0.5,
        prepare_store,
        read_store,
        cases=STORE_CASES,
        changed="^store/",
        seal=seal_manifests,
        short_step=6,
        often=(0, 1, 2, 0, 3, 1, 4, 0, 1, 2, 0, 3, 1, 4, 0, 5),
        ways=6,
    ),
    Target(
        "fits",
        0.4,
        prepare_store,
        read_fits,
        cases=FIT_CASES,
        changed="^store/(fits|sites)/",
        often=(0, 1, 0, 1, 2),
        ways=3,
    ),
)


# -- running -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Failure:
    """An input that was not read and not refused as it should be."""

    target: str
    input: str
    """The name of a case, or the number of an input at random, and the way of reading."""
    what: str
    where: str
    """The innermost places in the program, the last one first."""
    changes: dict[str, str]


@dataclass
class Found:
    """What came of the inputs of one target. ``refused``: by the type of the error."""

    target: str
    inputs: int = 0
    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    slowest_s: float = 0.0
    """Processor time of one input."""
    highest_mb: float = 0.0
    """By so much one input let the memory grow."""


def inputs_of(target: Target, n_inputs: int, short: bool) -> list[tuple[str, int]]:
    """The inputs in order: a case's name or a number, and the way of reading."""
    listed: list[tuple[str, int]] = []
    turn = target.often or tuple(range(target.ways))
    for at, name in enumerate(list(target.cases)[:: target.short_step if short else 1]):
        ways = [turn[at % len(turn)]] if short else range(target.ways)
        listed += [(name, way) for way in ways]
    return listed + [(str(i), turn[i % len(turn)]) for i in range(max(n_inputs, 0))]


def tree(folder: Path) -> dict[str, bytes]:
    """The files of a folder, by their paths in it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def put(folder: Path, name: str, content: Change) -> None:
    """Put a content in the place of a file; never through a link."""
    path = folder / name
    path.unlink(missing_ok=True)
    if isinstance(content, Link):
        path.symlink_to(content.to)
    elif content is not None:
        path.write_bytes(content)


def status_kb(name: str) -> int:
    """A line of what the system knows of this process, in KB."""
    text = Path("/proc/self/status").read_text()
    return int(re.search(rf"^{name}:\s*(\d+) kB", text, re.MULTILINE)[1])  # type: ignore[index]


def try_input(target: Target, folder: Path, way: int, usual_s: float) -> dict[str, Any]:
    """Read one input under the limits, and say what came of it."""
    Path("/proc/self/clear_refs").write_text("5")  # the highest memory, from now on
    before_kb = status_kb("VmRSS")
    limit = status_kb("VmSize") * 1024 + LIMIT_MB * 10**6
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_ALL_CPU_S)
    start_s = time.process_time()
    said: dict[str, Any] = {}
    try:
        target.read(folder, way)
        said["accepted"] = True
    except BaseException as error:
        said["refused"] = type(error).__name__
        try:
            if not is_typed(error):
                raise error
            check_message(str(error))
        except BaseException as wrong:
            said["failed"] = f"{type(wrong).__name__}: {str(wrong)[:300]}"
            said["where"] = places(error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    said["s"] = time.process_time() - start_s
    said["mb"] = (status_kb("VmHWM") - before_kb) / 1e3
    if said["s"] > LIMIT_CPU_S + usual_s:
        said.setdefault("failed", f"took {said['s']:.1f} s")
    if said["mb"] > LIMIT_MB:
        said.setdefault("failed", f"took {said['mb']:.0f} MB")
    return said


def places(error: BaseException) -> str:
    """Where in this project an error came from, the innermost place first."""
    frames = traceback.extract_tb(error.__traceback__)
    mine = [
        f"{Path(each.filename).relative_to(ROOT)}:{each.lineno} {each.name}"
        for each in frames
        if Path(each.filename).is_relative_to(ROOT) and ".venv" not in each.filename
    ]
    return " < ".join(dict.fromkeys(reversed(mine[-4:])))


def changes_of(
    target: Target, files: Files, spare: Mapping[str, list[bytes]], seed: int, name: str
) -> Changes:
    """The changes of a case, or of an input at random."""
    if name in target.cases:
        return target.cases[name](files)
    return make_changes(target, files, spare, seed, int(name))


def work(
    target: Target,
    prepared: Path,
    folder: Path,
    seed: int,
    inputs: Sequence[tuple[str, int]],
    say: Callable[[dict[str, Any]], object],
) -> None:
    """Try inputs one after the other, and say before and after each what is done."""
    for each in (signal.SIGALRM, signal.SIGPROF):  # they end the process, whatever it does
        signal.signal(each, signal.SIG_DFL)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(prepared, folder)
    (folder.parent / "outside.txt").write_text("nothing of yours\n")
    files = tree(folder)
    spare = target.spare(files)
    say({"begins": "the right files"})
    usual_s: dict[int, float] = {}
    for way in [*range(target.ways), *range(target.ways)]:
        # Twice: what is loaded at the first reading is not an input's doing.
        start_s = time.process_time()
        target.read(folder, way)
        usual_s[way] = time.process_time() - start_s
    for name, way in inputs:
        say({"begins": name})
        changes = changes_of(target, files, spare, seed, name)
        for each, content in changes.items():
            put(folder, each, content)
        try:
            said = try_input(target, folder, way, usual_s.get(way, 0.0))
        finally:
            for each in changes:
                put(folder, each, files.get(each))
        if "failed" in said:
            said["changes"] = {each: shown(content) for each, content in changes.items()}
        say(said | {"ends": name})


def shown(content: Change) -> str:
    """A change, as short as can be shown."""
    text = repr(content)
    return text if len(text) <= 300 else f"{text[:200]} ... {text[-60:]} ({len(text)} characters)"


def in_child(run: Callable[[Callable[[dict[str, Any]], object]], None]) -> tuple[list[Any], str]:
    """Run something in a forked process; what it said, and how it ended: empty when well."""
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reader)
        code = 1
        try:
            # Else what was printed before is printed once more.
            sys.stdout.flush()
            run(lambda each: os.write(writer, json.dumps(each).encode() + b"\n"))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        said = [json.loads(line) for line in file if line.endswith(b"\n")]
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if code == 0:
        return said, ""
    if code in (-signal.SIGALRM, -signal.SIGPROF):
        limit_s = LIMIT_S if code == -signal.SIGALRM else LIMIT_ALL_CPU_S
        return said, f"did not end within {limit_s} s"
    return said, f"the process ended with {code}"


def run_target(
    target: Target, prepared: Path, folder: Path, seed: int, inputs: list[tuple[str, int]]
) -> Found:
    """Try all inputs of a target, in as many processes as it takes."""
    found = Found(target.name)
    at = 0
    while at < len(inputs):
        left = inputs[at:]
        said, how = in_child(lambda say, left=left: work(target, prepared, folder, seed, left, say))
        ended = [each for each in said if "ends" in each]
        for (name, way), each in zip(left, ended, strict=False):
            take(found, f"{name}, way {way}", each)
        at += len(ended)
        if how:
            name, way = inputs[at] if len(said) > 2 * len(ended) + 1 else ("the right files", 0)
            take(found, f"{name}, way {way}", {"failed": how, "where": "", "changes": {}})
            at = at + 1 if name != "the right files" else len(inputs)
    return found


def take(found: Found, name: str, said: Mapping[str, Any]) -> None:
    """Count one input."""
    found.inputs += 1
    found.slowest_s = max(found.slowest_s, said.get("s", 0.0))
    found.highest_mb = max(found.highest_mb, said.get("mb", 0.0))
    if "failed" in said:
        failure = Failure(
            found.target, name, said["failed"], said.get("where", ""), said.get("changes", {})
        )
        found.failures.append(failure)
    elif "accepted" in said:
        found.accepted += 1
    else:
        found.refused[said["refused"]] += 1


def run(
    n_inputs: int, seed: int, names: Sequence[str], short: bool, show: Callable[[Found], None]
) -> list[Found]:
    """Try ``n_inputs`` over the targets, by their shares."""
    targets = [target for target in TARGETS if not names or target.name in names]
    shares = sum(target.share for target in targets)
    found = []
    with tempfile.TemporaryDirectory(prefix="campaign-fuzz-") as folder:
        prepared: dict[Callable[[Path], None], Path] = {}
        for target in targets:
            own = prepared.get(target.prepare)
            if own is None:
                own = prepared[target.prepare] = Path(folder) / f"right-{target.name}"
                own.mkdir()
                _, how = in_child(lambda say, t=target, o=own: t.prepare(o))
                if how:
                    raise SystemExit(f"{target.name}: its right files can't be made: {how}")
            n_mine = math.ceil(n_inputs * target.share / shares)
            inputs = inputs_of(target, n_mine, short)
            found.append(run_target(target, own, Path(folder) / "work" / "in", seed, inputs))
            show(found[-1])
    return found


def print_found(found: Found) -> None:
    """A target's line, and its failures, of each place the first."""
    refused = ", ".join(f"{name} {n}" for name, n in found.refused.most_common()) or "none"
    print(
        f"{found.target}: {found.inputs} inputs, {found.accepted} accepted, refused: {refused}; "
        f"slowest {found.slowest_s:.2f} s, highest memory growth {found.highest_mb:.0f} MB, "
        f"{len(found.failures)} failures",
        flush=True,
    )
    groups: dict[tuple[str, str], list[Failure]] = {}
    for failure in found.failures:
        groups.setdefault((failure.what.partition(":")[0], failure.where), []).append(failure)
    for group in groups.values():
        first = group[0]
        print(f"  FAILED {first.input} (and {len(group) - 1} more): {first.what}")
        print(f"    at {first.where}")
        for name, change in first.changes.items():
            print(f"    {name}: {change}", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run; 0 when every input was read or refused as it should be, else 1."""
    parser = argparse.ArgumentParser(description="Damaged files, and what the program says of them")
    parser.add_argument("--inputs", type=int, default=20_000, help="at random, over all targets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", action="append", default=[], help="only this one (repeat)")
    parser.add_argument(
        "--short", action="store_true", help="known cases in one way each, and not all of a store"
    )
    parser.add_argument("--json", metavar="FILE", help="also write what was found")
    arguments = parser.parse_args(argv)
    start_s = time.monotonic()
    found = run(arguments.inputs, arguments.seed, arguments.target, arguments.short, print_found)
    total, failed = sum(f.inputs for f in found), sum(len(f.failures) for f in found)
    if arguments.json:
        result = {"seed": arguments.seed, "seconds": time.monotonic() - start_s}
        result |= {
            "targets": [
                vars(each)
                | {
                    "refused": dict(each.refused),
                    "failures": [asdict(failure) for failure in each.failures],
                }
                for each in found
            ]
        }
        Path(arguments.json).write_text(json.dumps(result, indent=1) + "\n")
    print(f"{total} inputs, {failed} failures, {time.monotonic() - start_s:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
