"""The summary of a generation's measurements, so that ``campaign status`` reads no table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from dvfs.dataset import COMPLETE, FAILURES

LATEST = 200
NUMBERS = re.compile(r"[-+.\d]+(e[-+]?\d+)?")
Count = Annotated[int, Field(ge=0, lt=2**62)]


class Summary(BaseModel):
    """A summary, as it is in a manifest.

    ``sites``: site -> number of measurements. ``latest_unix_s``: "site/partition" -> the start
    times of its last points. ``failures``: class -> (number of attempts, text of the last one).
    ``flags``: a flag without its numbers -> (number of complete measurements with such a flag, an
    example of the flag). ``setups``: id of a set-up -> number of complete measurements.
    """

    model_config = ConfigDict(strict=True, defer_build=True)

    sites: dict[str, Count] = {}
    latest_unix_s: dict[str, list[FiniteFloat]] = {}
    failures: dict[str, tuple[Count, str]] = {}
    flags: dict[str, tuple[Count, str]] = {}
    setups: dict[str, Count] = {}


def updated(
    summary: Mapping[str, Any],
    accepted: Iterable[Mapping[str, Any]],
    new_points: Iterable[Mapping[str, Any]],
    failed: Iterable[Mapping[str, Any]],
) -> dict[str, Any]:
    """Update the summary with the scalars of further records.

    ``accepted``: the records that are now valid for their points; ``new_points``: those of them
    whose points were not measured before; ``failed``: failed attempts, accepted or not.
    """
    latest = {name: list(times) for name, times in summary.get("latest_unix_s", {}).items()}
    failures = dict(summary.get("failures", {}))
    flags = dict(summary.get("flags", {}))
    setups = Counter(summary.get("setups", {}))
    for scalars in accepted:
        point = scalars["point"]
        latest.setdefault(f"{point['site']}/{point['partition']}", []).append(
            scalars["start_unix_s"]
        )
        if scalars["status"] in COMPLETE:
            setups[scalars["setup"]] += 1
            for flag in scalars["provenance"].get("flags", ()):
                kind = NUMBERS.sub("#", flag)
                flags[kind] = [flags.get(kind, [0])[0] + 1, flag]
    for scalars in failed:
        status = scalars["status"]
        if status in FAILURES:
            failures[status] = [failures.get(status, [0])[0] + 1, scalars["text"]]
    return {
        **with_sites(summary, Counter(scalars["point"]["site"] for scalars in new_points)),
        "latest_unix_s": {name: sorted(times)[-LATEST:] for name, times in latest.items()},
        "failures": failures,
        "flags": flags,
        "setups": dict(setups),
    }


def with_sites(summary: Mapping[str, Any], counts: Mapping[str, int]) -> dict[str, Any]:
    """Add measurements to the summary. ``counts``: site -> their number."""
    sites = dict(summary.get("sites", {}))
    for site, count in counts.items():
        sites[site] = sites.get(site, 0) + count
    return {**summary, "sites": sites}


def without(
    summary: Mapping[str, Any], flags: Iterable[str], setups: Iterable[str]
) -> dict[str, Any]:
    """Remove the flags and set-ups of measurements that are no longer valid from the summary."""
    remaining = dict(summary.get("flags", {}))
    for flag in flags:
        kind = NUMBERS.sub("#", flag)
        count, example = remaining.get(kind, (0, ""))
        remaining[kind] = [count - 1, example]
    counts = Counter(summary.get("setups", {}))
    counts.subtract(name for name in setups if name in counts)
    return {
        **summary,
        "flags": {kind: entry for kind, entry in remaining.items() if entry[0] > 0},
        "setups": {name: count for name, count in counts.items() if count > 0},
    }
