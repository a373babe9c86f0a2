"""Contents of files, changed at random: bytes, lines, JSON, records with right checksums."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import random
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numcodecs.blosc

from campaign.store.journal import HEAD, LENGTHS, MAGIC
from campaign.store.layout import SEAL


@dataclass(frozen=True)
class Link:
    """A symbolic link in the place of a file."""

    to: str


Change = bytes | Link | None
"""What is put in the place of a file; None: it is removed."""
Changes = dict[str, Change]
Files = Mapping[str, bytes]
"""A path in a target's tree -> what it holds."""


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
            lines[i] = rng.choice([lines[i] + word, word + lines[i], lines[i][:400] * 5000])
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
        return copy.deepcopy(rng.choice(VALUES))
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
            # Its own: what a later change adds to it must not be in the next input.
            holder[key] = copy.deepcopy(rng.choice(VALUES))
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


def seal_store(rng: random.Random, files: Files, changes: Changes) -> None:
    """Often, give the files of a store that were changed, and its manifests, their right checksums:
    whoever damages a store on purpose does so, and what is behind the checksums is read."""
    if rng.random() < 0.4:
        return
    for name, content in changes.items():
        in_store = name.removeprefix("store/")
        text = content.rstrip() if isinstance(content, bytes) else b""
        if in_store.endswith(".json") and "zarr" not in in_store and text.endswith(b"}"):
            begin = text[:-1].rstrip()
            comma = b"" if begin.endswith(b"{") else b","
            entry = comma + f'\n "{SEAL}": "'.encode()
            digest = hashlib.sha256(in_store.encode() + b"\0" + begin + entry).hexdigest()
            changes[name] = begin + entry + digest.encode() + b'"\n}\n'
    for name in [name for name in files if name.endswith("/manifest") and name not in changes]:
        try:
            manifest = json.loads(files[name].split(b"\n")[0])
            for path, content in changes.items():
                if isinstance(content, bytes):
                    pair = [len(content), google_crc32c.value(content)]
                    folder = f"{Path(path).parent}/"
                    if path.removeprefix(folder) in manifest["files"]:
                        manifest["files"][path.removeprefix(folder)] = pair
                    shard = path.removeprefix("store/traces.zarr/")
                    if shard in manifest["shards"]:
                        manifest["shards"][shard] = pair
        except (ValueError, KeyError, TypeError):
            continue
        changes[name] = sealed_line(json.dumps(manifest, separators=(",", ":")).encode())


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
