"""What a generation says of its measurements in short: ``campaign status`` reads no table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from analysis.dataset import FAILURES, OK

LATEST = 200
FIGURES = re.compile(r"[-+.\d]+(e[-+]?\d+)?")
Count = Annotated[int, Field(ge=0, lt=2**62)]


class Summary(BaseModel):
    """A summary as a manifest has it.

    ``sites``: site -> measurements. ``latest_unix_s``: "site/partition" -> when its last points
    began. ``failures``: class -> (attempts, the last one's text). ``flags``: a flag without its
    figures -> (measurements that are ok and flagged so, one of them).
    """

    model_config = ConfigDict(strict=True)

    sites: dict[str, Count] = {}
    latest_unix_s: dict[str, list[FiniteFloat]] = {}
    failures: dict[str, tuple[Count, str]] = {}
    flags: dict[str, tuple[Count, str]] = {}


def updated(
    summary: Mapping[str, Any],
    taken: Iterable[Mapping[str, Any]],
    new_points: Iterable[Mapping[str, Any]],
    failed: Iterable[Mapping[str, Any]],
) -> dict[str, Any]:
    """The summary with more records' scalars in it.

    ``taken``: those that stand for their points now; ``new_points``: those of them whose points
    were not measured before; ``failed``: attempts that failed, taken or not.
    """
    latest = {name: list(some) for name, some in summary.get("latest_unix_s", {}).items()}
    failures = dict(summary.get("failures", {}))
    flags = dict(summary.get("flags", {}))
    for scalars in taken:
        point = scalars["point"]
        latest.setdefault(f"{point['site']}/{point['partition']}", []).append(
            scalars["start_unix_s"]
        )
        if scalars["status"] == OK:
            for flag in scalars["provenance"].get("flags", ()):
                kind = FIGURES.sub("#", flag)
                flags[kind] = [flags.get(kind, [0])[0] + 1, flag]
    for scalars in failed:
        status = scalars["status"]
        if status in FAILURES:
            failures[status] = [failures.get(status, [0])[0] + 1, scalars["text"]]
    return {
        **with_sites(summary, Counter(scalars["point"]["site"] for scalars in new_points)),
        "latest_unix_s": {name: sorted(some)[-LATEST:] for name, some in latest.items()},
        "failures": failures,
        "flags": flags,
    }


def with_sites(summary: Mapping[str, Any], counts: Mapping[str, int]) -> dict[str, Any]:
    """The summary with so many more measurements of each site."""
    sites = dict(summary.get("sites", {}))
    for site, count in counts.items():
        sites[site] = sites.get(site, 0) + count
    return {**summary, "sites": sites}


def without_flags(summary: Mapping[str, Any], flags: Iterable[str]) -> dict[str, Any]:
    """The summary without the flags of measurements that no longer stand."""
    left = dict(summary.get("flags", {}))
    for flag in flags:
        kind = FIGURES.sub("#", flag)
        count, example = left.get(kind, (0, ""))
        left[kind] = [count - 1, example]
    return {**summary, "flags": {kind: each for kind, each in left.items() if each[0] > 0}}
