"""A first site file for a cluster or a node: what Slurm, the clock controls and the meters say."""

from __future__ import annotations

import contextlib
import json
import os
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from campaign.doctor.node_examination import ProbedMeter, probe_meters
from campaign.doctor.slurm_nodes import SINFO, Cluster, Kind, constraints, read_sinfo
from dvfs.input_files import parse
from dvfs.printable import printable
from dvfs.setting import Setting
from kernels.host.ranks import node_name
from sites.clocks import ClocksError, describe_controls, device_of, open_control, right_to_set
from sites.clocks.cpufreq import means_turbo, turbo_mhz
from sites.meters import describe_meters
from sites.node_facts import slurm_facts
from sites.site_file import Site
from sites.slurm_clocks import (
    SlurmClocks,
    ask_here,
    read_configuration,
    slurm_clocks,
)

STEP_MHZ = 100
HIGHEST_MHZ = 10_000
MOST_IN_RANGE = 8
"""How many clocks are written where the hardware takes any clock in a range."""
LONGEST_S = 3600
"""The walltime that is written, where the partition allows it."""


@dataclass(frozen=True)
class SiteDraft:
    """A drafted site file: its path, and its text."""

    path: Path
    text: str


@dataclass(frozen=True)
class FoundClocks:
    """A control that reads this node's clocks, the settings that it offers, and whether this user
    can set them, with the reason."""

    control: str
    device: str
    settings: Sequence[Setting]
    can_set: bool | None
    why: str


def draft_sites(
    name: str | None, root: Path = Path("/"), path: Path | None = None
) -> list[SiteDraft]:
    """Site files for this node and, where Slurm answers here, for each kind of its nodes.

    Args:
        name: the site's name; None for the cluster's, or the node's.
        root: the folder under which the node's files are.
        path: the first file (default: from the site's name); the others add a partition's name.

    The first file is for the kind of nodes most similar to this one: the current job's
    partition, or one that has GPUs if this node has. Only this file has the clocks and meters that
    were found. Nothing is set and no job is started. The texts are valid (:mod:`sites.site_file`);
    comments say how to add what could not be found.
    """
    cluster = read_sinfo(ask_here(*SINFO))
    configuration = read_configuration(ask_here("scontrol", "show", "config"))
    clocks = list(_found_clocks(root))
    node = node_name()
    cluster_name = configuration.get("ClusterName") or node
    site_name = name or _as_name(cluster_name)
    kinds = _most_like_here_first(cluster.kinds, any(control.device == "gpu" for control in clocks))
    names = _names_of_kinds(site_name, kinds)
    first = path or Path(f"{site_name}.toml")
    paths = [
        first.parent / f"{first.stem}{label}{first.suffix}" if label else first
        for label, _ in names
    ]
    meters = probe_meters(set(), root)
    drafts = []
    for i, (site_path, (_, draft_name)) in enumerate(zip(paths, names, strict=True)):
        parts = [
            f"# Drafted by `campaign init` on {printable(node)}. Check each part, then run "
            f"`campaign doctor {printable(str(site_path))}`.",
        ]
        if i == 0:
            parts += _lines_about_others(cluster, kinds, paths)
        parts.append(f'name = "{draft_name}"')
        parts += _partition_lines(kinds[i] if kinds else None, cluster)
        if i == 0:
            used = _chosen(clocks)
            parts += _clock_lines(used, clocks, bool(kinds), root, configuration)
            parts += _meter_lines(meters, "cpu" if used is None else used.device)
        else:
            parts += _unseen_lines(kinds[i])
        text = "\n".join(parts) + "\n"
        parse(str(site_path), text, Site)
        drafts.append(SiteDraft(site_path, text))
    return drafts


def _most_like_here_first(kinds: Sequence[Kind], gpus_here: bool) -> list[Kind]:
    job_partition = slurm_facts().get("partition")

    def unlike(kind: Kind) -> tuple[bool, bool]:
        names = [nodes.partition for nodes in kind.partitions]
        return job_partition not in names, kind.has_gpus != gpus_here

    return sorted(kinds, key=unlike)


def _names_of_kinds(site_name: str, kinds: Sequence[Kind]) -> list[tuple[str, str]]:
    """For each kind the suffix of its file's name, and its site's name, by its first partition."""
    names = [("", site_name)]
    for kind in kinds[1:]:
        partition = _as_name(kind.partitions[0].partition)[:24]
        label, number = f"-{partition}", 1
        while label in [used for used, _ in names]:
            number += 1
            label = f"-{partition}-{number}"
        names.append((label, site_name[: 64 - len(label)] + label))
    return names


def _lines_about_others(
    cluster: Cluster, kinds: Sequence[Kind], paths: Sequence[Path]
) -> Iterator[str]:
    """Comments on the nodes that sinfo lists and this file does not have."""
    if len(kinds) > 1:
        yield "# A fit pools the nodes of a site. For nodes of other hardware, `campaign init -o`"
        yield "# writes other files:"
        for kind, path in zip(kinds[1:], paths[1:], strict=True):
            for nodes in kind.partitions:
                yield _comment(f"{path}: {nodes.partition} ({nodes.count} nodes: {nodes})")
    for name, why in cluster.left_out.items():
        yield _comment(f"partition {name!r} was left out: {why}")


def _as_name(text: str) -> str:
    name = re.sub("[^A-Za-z0-9_.-]", "-", text).lstrip("_.-")[:64]
    return name or "site"


def _found_clocks(root: Path) -> Iterator[FoundClocks]:
    """The clocks that each control reads here, for controls that set clocks of the node."""
    steps = [float(mhz) for mhz in range(STEP_MHZ, HIGHEST_MHZ + 1, STEP_MHZ)]
    for about in describe_controls():
        if not about.sets_clocks:
            continue
        offered = None
        for domains in ({}, {"core": {"frequencies_mhz": steps}}):
            site = Site.model_validate(
                {
                    "name": "draft",
                    "clocks": {"control": about.control},
                    "domains": domains,
                    "partitions": {"local": {}},
                }
            )
            with contextlib.suppress(ClocksError, ValueError):
                offered = offered or open_control(site, root).legal()
        if offered:
            right = right_to_set(about.control, root)
            device = device_of(site.clocks)
            yield FoundClocks(about.control, device, offered, right.can_set, right.why)


def _partition_lines(kind: Kind | None, cluster: Cluster) -> Iterator[str]:
    if kind is None:
        yield "\n# No partition of a Slurm was found: workers run on this machine."
        yield "[partitions.local]"
        yield 'scheduler = "local"'
        return
    if conf := os.environ.get("SLURM_CONF"):
        yield f'\n[slurm]\nconf = "{conf}"' if _plain(conf) else "\n# [slurm]\n# conf = ..."
    for nodes in kind.partitions:
        limit = LONGEST_S if nodes.limit_s is None else max(60, min(LONGEST_S, nodes.limit_s))
        options, other_nodes = constraints(nodes, cluster)
        yield f"\n[partitions.{_key(nodes.partition)}]"
        if nodes.state != "up":
            yield _comment(f"sinfo: this partition is {nodes.state}")
        differing = sorted(nodes.some_features - nodes.features)
        if nodes.mixed or differing:
            in_what = f"the features {', '.join(differing)}" if differing else "CPUs or memory"
            yield _comment(
                f"Its nodes differ in {in_what}. A fit would pool them: where their hardware "
                "differs, keep to one kind by --constraint=FEATURE or --exclude=NODES in directives"
            )
        for group in other_nodes:
            yield _comment(
                f"Jobs can also get {group.count} nodes of this partition with {group}, which a "
                "fit would pool: no feature keeps them away; add --exclude=NODES to directives"
            )
        yield 'scheduler = "slurm"'
        yield f"nodes = 1  # that measure at the same time; the partition has {nodes.count}"
        yield f"cores = {nodes.cpus}"
        if nodes.memory_mb is None:
            yield "# Slurm was not given the nodes' memory (RealMemory): it refuses jobs that ask"
            yield "# for some, and --mem=0 asks for all that there is."
            options.append("--mem=0")
        else:
            yield f'memory = "{nodes.asked_mb}MB"'
        yield f'walltime = "{limit // 3600:02}:{limit // 60 % 60:02}:{limit % 60:02}"'
        if options:
            yield f"directives = {json.dumps(options)}"
        yield '# account = "..."     # the account to charge, where your cluster asks for one'
        yield '# interface = "ib0"   # the network between the nodes and this machine'


def _key(name: str) -> str:
    """A name as a key in TOML; names of partitions need no escapes."""
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else f'"{name}"'


def _plain(text: str) -> bool:
    return re.fullmatch(r"[\w./+:@-]+", text) is not None


def _unseen_lines(kind: Kind) -> Iterator[str]:
    yield "\n# The clocks and meters of these nodes were not read. Run `campaign init` on one:"
    yield _comment(f"srun -p {kind.partitions[0].partition} campaign init --name ... -o ...")
    yield '[clocks]\ncontrol = "fixed"  # clocks stay as they are'


def _chosen(controls: Sequence[FoundClocks]) -> FoundClocks | None:
    """The clocks that the site file sets: the first that can be set here, or else the first."""
    settable = [clocks for clocks in controls if clocks.can_set]
    return next(iter([*settable, *controls]), None)


def _clock_lines(
    used: FoundClocks | None,
    controls: Sequence[FoundClocks],
    slurm: bool,
    root: Path,
    configuration: Mapping[str, str],
) -> Iterator[str]:
    if used is None:
        yield "\n# No clock of this node can be read. On a node where one can, run `campaign init`"
        yield "# there; otherwise list the legal clocks here:"
        yield "# [domains.core]\n# frequencies_mhz = [1200, 1600, 2000]"
        yield from _slurm_lines(slurm_clocks(configuration, "cpu", root) if slurm else None)
        yield '[clocks]\ncontrol = "fixed"  # clocks stay as they are'
        return
    core = sorted({s.core_mhz for s in used.settings if s.core_mhz is not None})
    mem = sorted({s.mem_mhz for s in used.settings if s.mem_mhz is not None})
    by_slurm = slurm_clocks(configuration, used.device, root) if slurm else None
    if used.can_set:
        control, why = used.control, used.why
    elif by_slurm is not None and not by_slurm.obstacles:
        control = "slurm"
        why = "job steps ask for clocks; `campaign doctor` tries whether they get them"
    else:
        control, why = "fixed", f"{used.control} could set them, but {used.why}"
    if control != "fixed":
        yield from _domain_lines(core, mem, used.settings)
    else:
        yield "\n" + _comment(f"Clocks that {used.control} reads: {_listed(core or mem)} MHz.")
    yield "\n[clocks]"
    yield _comment(why)
    if not used.can_set:
        yield from _slurm_lines(by_slurm)
    if used.control == "cpufreq" and (mhz := turbo_mhz(root)) is not None:
        yield _comment(f"left out: {means_turbo(mhz)}")
    yield f'control = "{control}"'
    yield f'device = "{used.device}"'
    if used.control == "cpufreq" and any(clocks.control == "uncore" for clocks in controls):
        yield "# options = { uncore = true }  # sets the uncore clock too, as [domains.mem]"
    if not mem:
        yield "\n[classes]"
        yield 'dram = { domain = "core" }  # no memory clock is set'


def _slurm_lines(clocks: SlurmClocks | None) -> Iterator[str]:
    if clocks is not None:
        for line in clocks.obstacles:
            yield _comment(f'not control = "slurm": {line}')
        for line in clocks.remarks:
            yield _comment(line)


def _domain_lines(
    core: list[float], mem: list[float], settings: Sequence[Setting]
) -> Iterator[str]:
    spread = len(core) > MOST_IN_RANGE and all(mhz % STEP_MHZ == 0 for mhz in core) and not mem
    for name, clocks in (("core", core), ("mem", mem)):
        if clocks:
            yield f"\n[domains.{name}]"
            if spread:
                yield f"# {len(core)} clocks from {core[0]:g} to {core[-1]:g} MHz are legal; some:"
                last = len(core) - 1
                clocks = [core[round(i * last / (MOST_IN_RANGE - 1))] for i in range(MOST_IN_RANGE)]  # noqa: PLW2901
            yield f"frequencies_mhz = [{_listed(clocks)}]"
            yield "# voltage_v = [[MHz, V], ...]  # where known; otherwise a fit estimates it"
    for mhz in mem:
        legal_core = [s.core_mhz for s in settings if s.mem_mhz == mhz and s.core_mhz is not None]
        if core and sorted(legal_core) != core:
            yield f"\n[[legal]]\nmem_mhz = {_listed([mhz])}"
            yield f"core_mhz = [{_listed(sorted(legal_core))}]"


def _listed(clocks: Sequence[float]) -> str:
    return ", ".join(f"{mhz:.10g}" for mhz in clocks)


def _meter_lines(probed: Sequence[ProbedMeter], device: str) -> Iterator[str]:
    """``device``: whose clocks are set; the first meter, which counts, must not be of another."""
    about = {description.kind: description for description in describe_meters()}
    usable = [meter for meter in probed if meter.channels]
    usable.sort(key=lambda meter: device == "cpu" and about[meter.meter].domains.startswith("gpu"))
    usable.sort(key=lambda meter: about[meter.meter].is_check)
    for i, meter in enumerate(usable):
        yield f"\n[[meters]]  # channels: {printable(', '.join(meter.channels))}"
        yield f'kind = "{meter.meter}"'
        if i:
            yield 'use = "check"  # compared with the first meter; "energy" where it adds to it'
    if not usable:
        yield "\n# No meter can be read on this node; without one, energies are missing. Tried:"
        for meter in probed:
            if not meter.absent:
                yield _comment(f"{meter.meter}: {meter.problem}; {meter.remedy}")
        absent = ", ".join(meter.meter for meter in probed if meter.absent)
        if absent:
            yield _comment(f"not on this node: {absent}")


def _comment(text: str) -> str:
    return textwrap.fill(
        printable(text), 98, initial_indent="#   ", subsequent_indent="#     ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
