"""A point: what is to be measured, and its id, a hash of its content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sites.setting import Setting

ID_CHARS = 24


@dataclass(frozen=True, slots=True)
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
        """Plain JSON types, from which :meth:`from_dict` makes the same point."""
        return {
            **_content(
                self.site,
                self.partition,
                self.kernel,
                self.label,
                self.params,
                self.ranks,
                self.setting,
                self.repeat,
            ),
            "id": self.id,
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Point:
        """The point of :meth:`as_dict`."""
        return cls(
            fields["site"],
            fields["partition"],
            fields["kernel"],
            fields["label"],
            fields["params"],
            fields["ranks"],
            Setting(fields["core_mhz"], fields["mem_mhz"]),
            fields["repeat"],
            fields["id"],
        )


def make_point(
    site: str,
    partition: str,
    kernel: str,
    label: str,
    params: str,
    ranks: int,
    setting: Setting,
    repeat: int,
) -> Point:
    """A point with its id: SHA-256 of the canonical JSON of its content, 96 bits in hex."""
    content = _content(site, partition, kernel, label, params, ranks, setting, repeat)
    digest = hashlib.sha256(canonical_json(content).encode()).hexdigest()[:ID_CHARS]
    return Point(site, partition, kernel, label, params, ranks, setting, repeat, digest)


def _content(
    site: str,
    partition: str,
    kernel: str,
    label: str,
    params: str,
    ranks: int,
    setting: Setting,
    repeat: int,
) -> dict[str, Any]:
    return {
        "site": site,
        "partition": partition,
        "kernel": kernel,
        "label": label,
        "params": params,
        "ranks": ranks,
        "core_mhz": _float(setting.core_mhz),
        "mem_mhz": _float(setting.mem_mhz),
        "repeat": repeat,
    }


def _float(mhz: float | None) -> float | None:
    """852 and 852.0 are one clock, and must be one text."""
    return None if mhz is None else float(mhz)


def canonical_json(value: Any) -> str:
    """One text for one value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
