"""A point: one planned measurement. Its id is a hash of its content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dvfs.setting import AXES, Setting

ID_CHARS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One planned measurement. ``params`` is canonical JSON, so that equal points compare equal."""

    site: str
    partition: str
    kernel: str
    label: str
    params: str
    ranks: int
    setting: Setting
    repeat: int
    id: str

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types, for :meth:`from_dict`."""
        return {
            "site": self.site,
            "partition": self.partition,
            "kernel": self.kernel,
            "label": self.label,
            "params": self.params,
            "ranks": self.ranks,
            **{name: _float(value) for name, value in self.setting.as_dict().items()},
            "repeat": self.repeat,
            "id": self.id,
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Point:
        """The point of :meth:`as_dict`."""
        return cls(
            site=fields["site"],
            partition=fields["partition"],
            kernel=fields["kernel"],
            label=fields["label"],
            params=fields["params"],
            ranks=fields["ranks"],
            setting=Setting(*(fields.get(name) for name in AXES)),
            repeat=fields["repeat"],
            id=fields["id"],
        )


def make_point(
    *,
    site: str,
    partition: str,
    kernel: str,
    label: str,
    params: str,
    ranks: int,
    setting: Setting,
    repeat: int,
) -> Point:
    """A point with the id of its content, see :func:`point_id`."""
    point = Point(
        site=site,
        partition=partition,
        kernel=kernel,
        label=label,
        params=params,
        ranks=ranks,
        setting=setting,
        repeat=repeat,
        id="",
    )
    content = point.as_dict()
    del content["id"]
    object.__setattr__(point, "id", point_id(content))  # nobody else has the point yet
    return point


def point_id(content: Mapping[str, Any]) -> str:
    """The id of a point of this content (:meth:`Point.as_dict` without its id): SHA-256 of the
    content's canonical JSON, 96 bits in hex."""
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()[:ID_CHARS]


def point_ids(content: Mapping[str, Sequence[Any]]) -> list[str]:
    """The ids of many points, from the columns of their content: :func:`point_id` of each row.

    Each distinct value is encoded once. A column holds values of one type, or None. No power limit
    is no part of the content.
    """
    encoded = []
    for name in sorted(content):
        texts = {v: f",{canonical_json(name)}:{canonical_json(v)}" for v in set(content[name])}
        if name == "power_limit_w" and None in texts:
            texts[None] = ""
        encoded.append([texts[value] for value in content[name]])
    return [
        hashlib.sha256(f"{{{''.join(values)[1:]}}}".encode()).hexdigest()[:ID_CHARS]
        for values in zip(*encoded, strict=True)
    ]


def _float(value: float | None) -> float | None:
    """So that 852 and 852.0 give the same text."""
    return None if value is None else float(value)


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical_json(value: Any) -> str:
    """One text for one value: sorted keys, no spaces, no NaN."""
    return _CANONICAL.encode(value)
