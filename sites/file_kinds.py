"""Which kind of input file a TOML table looks like, from its keys."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class FileKind:
    """A kind of input file: what it is called, its keys, those of which it must have one,
    and what to do with such a file at ``{path}``."""

    name: str
    keys: frozenset[str]
    own: frozenset[str]
    use: str


def _kind(name: str, own: str, other: str, use: str) -> FileKind:
    needed = frozenset(own.split())
    return FileKind(name, needed | frozenset(other.split()), needed, use)


FILE_KINDS = {
    "Campaign": _kind(
        "a campaign file",
        "sites kernels repeats protocol settings retries search part_of",
        "name seed",
        "measure its points: campaign run {path}",
    ),
    "Site": _kind(
        "a site file",
        "partitions domains meters clocks legal slurm twin counters",
        "name description classes device architecture energy nodes_per_point",
        "name it in a campaign file, under [[sites]], or examine it: campaign doctor {path}",
    ),
    "TableMap": _kind(
        "a map file of a table",
        "columns constants fields delimiter decimal thousands missing keep number_repeats",
        "voltage unknown layout clocks classes legal device params",
        "use it: campaign import TABLE --map {path} --store S",
    ),
    "Profile": _kind(
        "a profile file",
        "time_s counts",
        "kernel core_mhz mem_mhz",
        "use it: campaign predict S --profile {path}",
    ),
    "Study": _kind(
        "a study file of chips",
        "area machine tiles workload existing energy form",
        "name objective",
        "compute it: campaign codesign {path}",
    ),
    "CounterMap": _kind(
        "a counter map of a profiler",
        "layout",
        "description time_s counts",
        "use it: campaign profile FILE={path}",
    ),
    "CounterGroup": _kind(
        "a counter group",
        "events derived",
        "description",
        "name it in a site file, under [counters]",
    ),
}
"""The kinds by the name of their model."""


def other_kind(wanted: FileKind, keys: Collection[str]) -> FileKind | None:
    """The kind that a file of these keys looks like, where that is not the wanted one: the kind
    that has most of them, more than half and more than the wanted one, and one of its own."""

    def known(kind: FileKind) -> int:
        return len(kind.keys & set(keys))

    kinds = [kind for kind in FILE_KINDS.values() if kind.own & set(keys)]
    best = max(kinds, key=known, default=wanted)
    return best if known(best) > max(len(keys) / 2, known(wanted)) else None
