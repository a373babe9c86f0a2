"""Whole results as files: what is computed now must be what is kept in ``tests/data/kept``.

A result is turned into JSON by :func:`plain`: all fields of all objects in it, with their types.
Of a long array or list some values are kept, spread over all of it, two sums that change with every
number, and a checksum of all texts. After a change that is meant to change results,
``python -m tests.kept`` writes the files again; the difference is read before it is committed.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from pydantic import BaseModel

KEPT = Path(__file__).parents[1] / "data" / "kept"
SHOWN = 4
"""Of an array, or a list, that has more than twice as many."""
RELATIVE = 1e-6
SMALLEST = 1e-15
"""Below this, relative to 1, a number is 0 but for rounding; energies per operation are larger."""

Results = Mapping[str, Callable[[], object]]
"""Name -> what computes a result."""


def plain(value: object) -> Any:
    """A result as JSON."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, bytes):
        return {"bytes": len(value), "crc32": zlib.crc32(value)}
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else str(value)
    if isinstance(value, xr.Dataset | xr.DataArray):
        return plain(value.to_dict())
    if isinstance(value, np.ndarray):
        return plain_array(value)
    if is_dataclass(value) and not isinstance(value, type):
        own = {one.name: plain(getattr(value, one.name)) for one in fields(value)}
        return {"": type(value).__name__} | {k: v for k, v in own.items() if k[0] != "_"}
    if isinstance(value, BaseModel):
        return plain(value.model_dump())
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, tuple | list):
        return plain_list(list(value))
    if isinstance(value, type) or callable(value):
        return f"<{value.__qualname__}>"
    raise TypeError(f"no plain form of {type(value)}")


def plain_array(array: np.ndarray) -> Any:
    """An array: itself, or its shape, some values and two sums."""
    if array.dtype == object or array.dtype.kind in "US":
        return plain_list(array.tolist())
    if array.size <= 2 * SHOWN:
        return [plain(one) for one in array.tolist()] if array.ndim else plain(array.item())
    flat = array.ravel()
    if array.dtype.kind not in "biuf":
        return plain_list(flat.tolist())
    at = np.linspace(0, flat.size - 1, SHOWN).round().astype(int)
    return {
        "shape": list(array.shape),
        "values": [plain(one) for one in flat[at].tolist()],
        "of all": sums(flat),
    }


def plain_list(items: list[Any]) -> Any:
    """A list: itself, or its length, some of it, and what all texts and numbers come to."""
    if len(items) <= 2 * SHOWN:
        return [plain(one) for one in items]
    if all(isinstance(one, int | float | np.number) for one in items):
        return plain_array(np.array(items, float))
    every = [plain(one) for one in items]
    at = np.linspace(0, len(items) - 1, SHOWN).round().astype(int)
    kept = {"length": len(items), "items": [every[i] for i in at.tolist()]}
    leaves = list(leaves_of(every))
    texts = [one for one in leaves if isinstance(one, str)]
    numbers = np.array([one for one in leaves if not isinstance(one, str | None)], float)
    if texts:
        kept["crc32"] = zlib.crc32("\n".join(texts).encode())
    return kept | ({"of all": sums(numbers)} if numbers.size else {})


def leaves_of(value: Any) -> Iterator[Any]:
    """Every text, number and None in a plain value."""
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from leaves_of(one)
    else:
        yield value


def sums(flat: np.ndarray) -> list[Any]:
    """How many are finite; the sum of their sizes; and one in which each has another weight."""
    known = np.where(np.isfinite(flat), flat, 0.0).astype(float)
    weight = 1.0 + np.arange(flat.size) % 97
    return [
        int(np.isfinite(flat).sum()),
        plain(float(np.abs(known).sum())),
        plain(float((known * weight).sum())),
    ]


def differences(kept: Any, now: Any, where: str = "") -> list[str]:
    """Where two plain results differ, a line each."""
    number = int | float
    if isinstance(kept, bool) or isinstance(now, bool):
        same = kept is now
    elif isinstance(kept, number) and isinstance(now, number):
        # A percentage is what a ratio differs from 1 by, and as sure as the ratio.
        smallest = 100.0 * RELATIVE if "_pct" in where else SMALLEST
        same = math.isclose(kept, now, rel_tol=RELATIVE, abs_tol=smallest)
    elif isinstance(kept, dict) and isinstance(now, dict) and list(kept) == list(now):
        return [line for key in kept for line in differences(kept[key], now[key], f"{where}/{key}")]
    elif isinstance(kept, list) and isinstance(now, list) and len(kept) == len(now):
        pairs = zip(kept, now, strict=True)
        return [
            line for i, (a, b) in enumerate(pairs) for line in differences(a, b, f"{where}/{i}")
        ]
    else:
        same = kept == now
    return [] if same else [f"{where}: {shown(kept)} was kept, {shown(now)} is computed"]


def shown(value: Any) -> str:
    """A value in a message."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 300 else f"{text[:300]}..."


def file_of(subject: str) -> Path:
    """The file of all results about a subject."""
    return KEPT / f"{subject}.json"


def check_kept(subject: str, name: str, result: object) -> None:
    """Fail where a result is not what is kept under its name."""
    kept = json.loads(file_of(subject).read_text(encoding="utf-8"))
    assert name in kept, f"nothing is kept of {name}: python -m tests.kept"
    lines = differences(kept[name], json.loads(json.dumps(plain(result))))
    assert not lines, (
        f"{len(lines)} differences from {file_of(subject).name}, {name}; if they are meant: "
        "python -m tests.kept\n" + "\n".join(lines[:20])
    )
