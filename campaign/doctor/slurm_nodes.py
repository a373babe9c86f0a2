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
"""The command whose output :func:`read_sinfo` parses, the same from Slurm 20.11 to 26.05."""
FIELDS = 9
LEAST_FIELDS = 6
LIKE_MEMORY = 1.15
"""Nodes of one kind may differ by this factor in memory: the modules are equal, but the reserved
shares differ. A job gets no node with less memory than it requests (:attr:`Nodes.asked_mb`)."""
PLAIN = re.compile(r"[\w.-]+", re.ASCII)
"""Names of features and of types of GPUs without special characters of Slurm's options."""


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """Equal nodes of a partition.

    ``count``: their number; ``cpus``: CPUs of a node, hardware threads if Slurm schedules these;
    ``layout``: sockets:cores:threads, empty if not known; ``memory_mb``: None if Slurm does not
    know it; ``limit_s``: time limit of the partition's jobs, None if there is none; ``gpus``: type
    (empty if it has none) and number of each; ``features``: what all nodes have, ``some_features``:
    what some have; ``mixed``: whether more than the features differ according to sinfo;
    ``state``: state of the partition.
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
        """The hardware, for comments in site files."""
        parts = [f"{self.cpus} CPUs"]
        parts += [f"{self.memory_mb} MB"] if self.memory_mb is not None else []
        parts += [":".join(filter(None, ("gpu", kind, str(number)))) for kind, number in self.gpus]
        return ", ".join([*parts, *sorted(self.features)])

    @property
    def asked_mb(self) -> int:
        """The memory that a job requests: most of a node's, as Slurm may reserve some."""
        return 0 if self.memory_mb is None else max(1, self.memory_mb * 9 // 10)


@dataclass(frozen=True)
class Kind:
    """Nodes with the same hardware, by partition. One site file may have them all."""

    partitions: tuple[Nodes, ...]

    @property
    def has_gpus(self) -> bool:
        return bool(self.partitions[0].gpus)


@dataclass(frozen=True)
class Cluster:
    """The nodes that sinfo lists. ``nodes``: by partition and hardware; ``kinds``: the same by
    hardware; ``left_out``: partition -> the reason why no site file has it."""

    nodes: tuple[Nodes, ...]
    kinds: tuple[Kind, ...]
    left_out: dict[str, str]


def read_sinfo(printed: str) -> Cluster:
    """Parse the output of the command :data:`SINFO`. Lines of another form are skipped."""
    groups: list[Nodes] = []
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
            groups.append(
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
    for group in groups:
        left_out.pop(group.partition, None)
    classes = _memory_classes(groups)
    hardware: dict[tuple[object, ...], Nodes] = {}
    for group in groups:
        key = (group.partition, group.cpus, group.layout, group.gpus, classes[group.memory_mb])
        hardware[key] = _merged(hardware[key], group) if key in hardware else group
    kinds: dict[tuple[object, ...], list[Nodes]] = {}
    for (_, *kind_key), alike in hardware.items():
        kinds.setdefault((*kind_key, alike.features), []).append(alike)
    return Cluster(
        tuple(hardware.values()), tuple(Kind(tuple(k)) for k in kinds.values()), left_out
    )


def limit_seconds(text: str) -> int | None:
    """A time limit as Slurm prints it (``30:00``, ``1-00:00:00``) in s; None: unlimited."""
    return int(walltime_s(text)) if re.fullmatch(r"(\d+-)?\d+(:\d+){1,2}", text) else None


def read_gpus(gres: str) -> tuple[tuple[str, int], ...]:
    """The GPUs in a node's generic resources, such as ``nic:1,gpu:a100:4(S:0-1)``: type (empty if
    it has none) and number of each, sorted."""
    numbers: dict[str, int] = {}
    for entry in _words(re.sub(r"\([^)]*\)", "", gres)):
        name, *fields = entry.split(":")
        if name != "gpu":
            continue
        number = _number(fields.pop()) if fields and re.fullmatch(r"\d+[KMG]?", fields[-1]) else 1
        kind = next((word for word in fields if word != "no_consume"), "")
        numbers[kind] = numbers.get(kind, 0) + (number or 0)
    return tuple(sorted((kind, number) for kind, number in numbers.items() if number))


def constraints(nodes: Nodes, cluster: Cluster) -> tuple[list[str], list[Nodes]]:
    """The options of sbatch that keep a partition's jobs on these nodes, and the partition's other
    nodes that jobs can still get."""
    reachable = [
        group
        for group in cluster.nodes
        if group.partition == nodes.partition and group != nodes and _can_take(group, nodes)
    ]
    options = []
    if nodes.gpus:
        elsewhere = {kind for group in reachable for kind, _ in group.gpus}
        only_here = [k for k, _ in nodes.gpus if PLAIN.fullmatch(k) and k not in elsewhere]
        if reachable and only_here:
            options.append(f"--gres=gpu:{only_here[0]}:1")
            reachable = []
        else:
            options.append("--gres=gpu:1")
    features = sorted(filter(PLAIN.fullmatch, nodes.features))
    required: list[str] = []
    for group in list(reachable):
        lacking = next((f for f in [*required, *features] if f not in group.some_features), None)
        if lacking is not None:
            required += [lacking] if lacking not in required else []
            reachable.remove(group)
    if required:
        options.append(f"--constraint={'&'.join(required)}")
    return options, reachable


def _can_take(group: Nodes, nodes: Nodes) -> bool:
    """Whether Slurm may run a job for ``nodes`` on the nodes ``group``."""
    return (
        group.cpus >= nodes.cpus
        and (group.memory_mb or 0) >= nodes.asked_mb
        and (bool(group.gpus) or not nodes.gpus)
    )


def _merged(first: Nodes, second: Nodes) -> Nodes:
    """Two groups of nodes with the same hardware in one partition as one group."""
    memory = [mb for mb in (first.memory_mb, second.memory_mb) if mb is not None]
    return replace(
        first,
        count=first.count + second.count,
        memory_mb=min(memory, default=None),
        features=first.features & second.features,
        some_features=first.some_features | second.some_features,
        mixed=first.mixed or second.mixed,
    )


def _memory_classes(groups: Iterable[Nodes]) -> dict[int | None, int]:
    """Memory -> the number of its class. Nodes with sizes in one class have the same modules."""
    classes: dict[int | None, int] = {None: 0}
    previous_mb = 0
    for mb in sorted({nodes.memory_mb for nodes in groups if nodes.memory_mb is not None}):
        classes[mb] = max(classes.values()) + (mb > previous_mb * LIKE_MEMORY)
        previous_mb = mb
    return classes


def _number(text: str) -> int | None:
    """A number that sinfo prints (``128``, ``128+``, ``1K``); None if there is none."""
    match = re.match(r"(\d{1,18})([KMG]?)", text, re.ASCII)
    return int(match[1]) * 1024 ** " KMG".index(match[2] or " ") if match else None


def _words(text: str) -> Sequence[str]:
    """The words of a list with commas; empty for Slurm's texts for an empty list."""
    return [] if text in ("", "(null)", "n/a") else [w for w in text.split(",") if w]
