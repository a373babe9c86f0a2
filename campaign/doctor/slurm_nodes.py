"""The partitions of a cluster and the kinds of their nodes, as ``sinfo`` prints them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from campaign.plan.estimate import walltime_s
from sites.site_file import PARTITION_NAME

SINFO = (
    "sinfo",
    "--noheader",
    "--exact",  # nodes that differ have lines of their own, not "16+"
    "--noconvert",  # 1024 CPUs, not "1K"
    "--format=%R|%D|%c|%m|%l|%G|%f|%z|%a",
)
"""The command that :func:`read_sinfo` reads, the same from Slurm 20.11 to 26.05."""
FIELDS = 9
LEAST_FIELDS = 6
LIKE_MEMORY = 1.15
"""Nodes of one kind may differ by this factor in memory: the same modules, of which more or less is
reserved. Jobs for more memory do not get the others (see :attr:`Nodes.asked_mb`)."""
PLAIN = re.compile(r"[\w.-]+", re.ASCII)
"""Names of features and of types of GPUs that mean nothing else in Slurm's options."""


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """Nodes of a partition that are alike.

    ``count``: how many; ``cpus``: of each, hardware threads where Slurm schedules these;
    ``layout``: sockets:cores:threads, empty where not known; ``memory_mb``: None where Slurm was
    not given it; ``limit_s``: of the partition's jobs, None where there is none; ``gpus``: type
    (empty where it has none) and number of each; ``features``: those that all of them have,
    ``some_features``: that some have; ``mixed``: whether sinfo says that more than their features
    differ; ``state``: of the partition.
    """

    partition: str
    count: int
    cpus: int
    layout: str
    memory_mb: int | None
    limit_s: int | None
    gpus: tuple[tuple[str, int], ...]
    features: frozenset[str]
    some_features: frozenset[str]
    mixed: bool
    state: str

    def __str__(self) -> str:
        """The hardware, for a comment."""
        parts = [f"{self.cpus} CPUs"]
        parts += [f"{self.memory_mb} MB"] if self.memory_mb is not None else []
        parts += [":".join(filter(None, ("gpu", kind, str(number)))) for kind, number in self.gpus]
        return ", ".join([*parts, *sorted(self.features)])

    @property
    def asked_mb(self) -> int:
        """The memory that a job asks for: most of a node's, as Slurm may reserve some."""
        return 0 if self.memory_mb is None else max(1, self.memory_mb * 9 // 10)


@dataclass(frozen=True)
class Kind:
    """Nodes of one hardware, partition by partition: what a site file may pool."""

    partitions: tuple[Nodes, ...]

    @property
    def has_gpus(self) -> bool:
        return bool(self.partitions[0].gpus)


@dataclass(frozen=True)
class Cluster:
    """What sinfo lists. ``nodes``: of every partition, a line each; ``kinds``: the same by their
    hardware; ``left_out``: partition -> why it has no place in a site file."""

    nodes: tuple[Nodes, ...]
    kinds: tuple[Kind, ...]
    left_out: dict[str, str]


def read_sinfo(printed: str) -> Cluster:
    """What the command ``SINFO`` printed. Lines that do not have its form are skipped."""
    read: list[Nodes] = []
    left_out: dict[str, str] = {}
    for line in printed.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) < LEAST_FIELDS or not fields[0]:
            continue
        fields += [""] * (FIELDS - len(fields))
        name, nodes, cpus, memory, limit, gres, features, layout, state = fields[:FIELDS]
        if not re.fullmatch(PARTITION_NAME, name):
            left_out[name] = "a site file cannot have this name"
        elif _number(nodes) == 0:
            left_out[name] = "it has no nodes"
        elif not _number(cpus):
            left_out[name] = "Slurm lists no CPUs of its nodes"
        else:
            memory_mb = _number(memory)
            read.append(
                Nodes(
                    partition=name,
                    count=_number(nodes) or 1,
                    cpus=_number(cpus) or 1,
                    layout=layout if re.fullmatch(r"[1-9]\d*(:[1-9]\d*){2}", layout) else "",
                    memory_mb=None if memory_mb is None or memory_mb <= 1 else memory_mb,
                    limit_s=limit_seconds(limit),
                    gpus=read_gpus(gres),
                    features=frozenset(_words(features)),
                    some_features=frozenset(_words(features)),
                    mixed=any("+" in field for field in (cpus, memory, layout)),
                    state=state or "up",
                )
            )
    for nodes_of in read:
        left_out.pop(nodes_of.partition, None)
    classes = _memory_classes(read)
    hardware: dict[tuple[object, ...], Nodes] = {}
    for one in read:
        key = (one.partition, one.cpus, one.layout, one.gpus, classes[one.memory_mb])
        hardware[key] = _together(hardware[key], one) if key in hardware else one
    kinds: dict[tuple[object, ...], list[Nodes]] = {}
    for (_, *same), alike in hardware.items():
        kinds.setdefault((*same, alike.features), []).append(alike)
    return Cluster(
        tuple(hardware.values()), tuple(Kind(tuple(k)) for k in kinds.values()), left_out
    )


def limit_seconds(text: str) -> int | None:
    """A time limit as Slurm prints it (``30:00``, ``1-00:00:00``) in s; None: unlimited."""
    return int(walltime_s(text)) if re.fullmatch(r"(\d+-)?\d+(:\d+){1,2}", text) else None


def read_gpus(gres: str) -> tuple[tuple[str, int], ...]:
    """The GPUs in a node's generic resources, such as ``nic:1,gpu:a100:4(S:0-1)``: type (empty
    where it has none) and number of each, sorted."""
    numbers: dict[str, int] = {}
    for entry in _words(re.sub(r"\([^)]*\)", "", gres)):
        name, *rest = entry.split(":")
        if name != "gpu":
            continue
        number = _number(rest.pop()) if rest and re.fullmatch(r"\d+[KMG]?", rest[-1]) else 1
        kind = next((word for word in rest if word != "no_consume"), "")
        numbers[kind] = numbers.get(kind, 0) + (number or 0)
    return tuple(sorted((kind, number) for kind, number in numbers.items() if number))


def constraints(nodes: Nodes, cluster: Cluster) -> tuple[list[str], list[Nodes]]:
    """The options of sbatch that keep jobs of a partition on these nodes, and the other nodes of
    the partition that they can still get."""
    others = [
        other
        for other in cluster.nodes
        if other.partition == nodes.partition and other != nodes and _can_take(other, nodes)
    ]
    options = []
    if nodes.gpus:
        elsewhere = {kind for other in others for kind, _ in other.gpus}
        only_here = [k for k, _ in nodes.gpus if PLAIN.fullmatch(k) and k not in elsewhere]
        if others and only_here:
            options.append(f"--gres=gpu:{only_here[0]}:1")
            others = []
        else:
            options.append("--gres=gpu:1")
    features = sorted(filter(PLAIN.fullmatch, nodes.features))
    wanted: list[str] = []
    for other in list(others):
        lacking = next((f for f in [*wanted, *features] if f not in other.some_features), None)
        if lacking is not None:
            wanted += [lacking] if lacking not in wanted else []
            others.remove(other)
    if wanted:
        options.append(f"--constraint={'&'.join(wanted)}")
    return options, others


def _can_take(other: Nodes, nodes: Nodes) -> bool:
    """Whether Slurm may run a job for some nodes on others."""
    return (
        other.cpus >= nodes.cpus
        and (other.memory_mb or 0) >= nodes.asked_mb
        and (bool(other.gpus) or not nodes.gpus)
    )


def _together(one: Nodes, other: Nodes) -> Nodes:
    """Nodes of one hardware in one partition: what all of them have."""
    memory = [mb for mb in (one.memory_mb, other.memory_mb) if mb is not None]
    return replace(
        one,
        count=one.count + other.count,
        memory_mb=min(memory, default=None),
        features=one.features & other.features,
        some_features=one.some_features | other.some_features,
        mixed=one.mixed or other.mixed,
    )


def _memory_classes(read: Iterable[Nodes]) -> dict[int | None, int]:
    """Memory -> a number for all sizes that are so near that they are the same modules."""
    classes: dict[int | None, int] = {None: 0}
    before = 0
    for mb in sorted({nodes.memory_mb for nodes in read if nodes.memory_mb is not None}):
        classes[mb] = max(classes.values()) + (mb > before * LIKE_MEMORY)
        before = mb
    return classes


def _number(text: str) -> int | None:
    """A number as sinfo prints it (``128``, ``128+``, ``1K``); None where it prints none."""
    match = re.match(r"(\d{1,18})([KMG]?)", text, re.ASCII)
    return int(match[1]) * 1024 ** " KMG".index(match[2] or " ") if match else None


def _words(text: str) -> Sequence[str]:
    """The words of a list with commas; none where Slurm prints that there is none."""
    return [] if text in ("", "(null)", "n/a") else [w for w in text.split(",") if w]
