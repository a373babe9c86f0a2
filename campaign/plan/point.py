"""A point: one planned measurement. Its id is a hash of its content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dvfs.setting import OPTIONAL, Setting

if TYPE_CHECKING:
    import numpy as np

ID_CHARS = 24
MOST_PAIRS = 1 << 16
"""The most pairs of distinct values in a joint column, and the rows hashed at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One planned measurement. ``params`` is canonical JSON, so that equal points compare equal.

    ``id``: the first 96 bits of the SHA-256 of the other fields' canonical JSON, in hex; computed
    where it is not given.
    """

    site: str
    partition: str
    kernel: str
    label: str
    params: str
    ranks: int
    setting: Setting
    repeat: int
    id: str = ""

    def __post_init__(self) -> None:
        """Set the id."""
        if not self.id:
            content = self.as_dict()
            del content["id"]
            digest = hashlib.sha256(canonical_json(content).encode()).hexdigest()
            object.__setattr__(self, "id", digest[:ID_CHARS])

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types, for :meth:`from_dict`."""
        return {
            "site": self.site,
            "partition": self.partition,
            "kernel": self.kernel,
            "label": self.label,
            "params": self.params,
            "ranks": self.ranks,
            **{name: content_value(value) for name, value in self.setting.as_dict().items()},
            "repeat": self.repeat,
            "id": self.id,
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Point:
        """The inverse of :meth:`as_dict`."""
        names = ("site", "partition", "kernel", "label", "params", "ranks", "repeat", "id")
        return cls(setting=Setting.of_row(fields), **{name: fields[name] for name in names})


def content_value(value: float | str | None) -> float | str | None:
    """A value of a setting in a point's content: 852 and 852.0 give the same text."""
    return value if isinstance(value, str | None) else float(value)


def point_ids(content: Mapping[str, tuple[np.ndarray, Sequence[Any]]]) -> np.ndarray:
    """The ids of many points, S24 (rows,), from the columns of their content: :attr:`Point.id` of
    each row.

    A column is codes, int (rows,), into its distinct values, which have one type, or are None. Each
    value is encoded once. Neighbouring columns with few pairs of values become one column. A
    missing value of :data:`dvfs.setting.OPTIONAL` is not part of the content.
    """
    import numpy as np  # noqa: PLC0415

    parts: list[tuple[np.ndarray, list[bytes]]] = []
    # A pair is encoded once: that pays where many rows have it.
    most_pairs = min(MOST_PAIRS, len(next(iter(content.values()))[0]) // 8)
    for name in sorted(content):
        codes, values = content[name]
        texts = [
            b""
            if value in (None, "") and name in OPTIONAL
            else f"{',' if parts else '{'}{canonical_json(name)}:{canonical_json(value)}".encode()
            for value in values
        ]
        if parts and len(parts[-1][1]) * len(texts) <= most_pairs:
            before, start = parts.pop()
            codes = before.astype(np.int32) * len(texts) + codes
            texts = [first + second for first in start for second in texts]
        parts.append((codes, texts))
    codes, texts = parts[-1]
    parts[-1] = codes, [text + b"}" for text in texts]
    sha256, join, size = hashlib.sha256, b"".join, ID_CHARS // 2
    ids = bytearray()
    for i in range(0, len(codes), MOST_PAIRS):
        columns = [
            map(texts.__getitem__, codes[i : i + MOST_PAIRS].tolist()) for codes, texts in parts
        ]
        rows = zip(*columns, strict=True)
        ids += join([sha256(join(row)).digest()[:size] for row in rows]).hex().encode()
    return np.frombuffer(ids, f"S{ID_CHARS}")


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical_json(value: Any) -> str:
    """The same text for equal values: sorted keys, no spaces, no NaN."""
    return _CANONICAL.encode(value)
