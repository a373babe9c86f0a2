"""The seal of a store's JSON files: their last entry is a SHA-256 of the file's name in the store
and of all its other bytes. A changed, cut off or exchanged file is noticed when it is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

SEAL = "sha256"
"""The key of the checksum."""
AFTER = b'"\n}\n'
DIGITS = 64


def sealed(name: str, value: Mapping[str, Any]) -> bytes:
    """The bytes of a JSON file. ``name``: its path in the store."""
    text = json.dumps({**value, SEAL: ""}, indent=1).encode() + b"\n"
    return _sealed(name, text.removesuffix(AFTER))


def unsealed(name: str, data: bytes) -> tuple[Any, bool]:
    """The value in the bytes of a JSON file, and whether they are sealed; files of earlier versions
    are not.

    Raises:
        ValueError: the bytes are not JSON, or not those that were sealed.
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
