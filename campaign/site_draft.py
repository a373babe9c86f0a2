"""A first site file for a cluster or a node: what Slurm, the clock controls and the meters say."""

from __future__ import annotations

import os
import re
import subprocess
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from campaign.measure.node_examination import ProbedMeter, probe_meters
from campaign.measure.point_life import node_name
from campaign.plan.estimate import walltime_s
from campaign.printable import printable
from dvfs.setting import Setting
from sites.clocks import ClocksUnavailable, describe_controls, device_of, open_control, right_to_set
from sites.located_toml import parse
from sites.site_file import NAME, Site

STEP_MHZ = 100
HIGHEST_MHZ = 10_000
MOST_IN_RANGE = 8
"""How many clocks are written where the hardware takes any clock in a range."""
NO_ANSWER_S = 30.0
LONGEST_S = 3600
"""The walltime that is written, where the partition allows it."""


@dataclass(frozen=True)
class SlurmPartition:
    """A line of sinfo; ``limit_s`` None: no time limit."""

    name: str
    nodes: int
    cores: int
    memory_mb: int
    limit_s: int | None
    gpus: str


@dataclass(frozen=True)
class FoundClocks:
    """A control that reads this node's clocks, the settings that it offers, and whether this user
    can set them, with the reason."""

    control: str
    device: str
    settings: Sequence[Setting]
    can_set: bool
    why: str


def draft_site(name: str | None = None, root: Path = Path("/")) -> str:
    """The text of a site file for this node and, where Slurm answers here, its partitions.

    Args:
        name: the site's name (default: the cluster's, or the node's).
        root: the folder under which the node's files are.

    Nothing is set and no job is started. The text is valid (:mod:`sites.site_file`); what could
    not be found is a comment that says how to fill it in.
    """
    partitions = slurm_partitions()
    clocks = list(_found_clocks(root))
    meters = probe_meters(set(), root)
    node = node_name()
    site_name = name or _as_name(_cluster_name() or node)
    parts = [
        f"# Drafted by `campaign init` on {node}. Check each part, then run "
        f"`campaign doctor {site_name}.toml`.",
        f'name = "{site_name}"',
        *_partition_lines(partitions, node),
        *_clock_lines(clocks, bool(partitions)),
        *_meter_lines(meters),
    ]
    text = "\n".join(parts) + "\n"
    parse(f"{site_name}.toml", text, Site)
    return text


def slurm_partitions() -> list[SlurmPartition]:
    """The partitions that `sinfo` lists, in its order; none where there is no Slurm here."""
    printed = _output("sinfo", "--noheader", "--format=%R|%D|%c|%m|%l|%G")
    found: dict[str, SlurmPartition] = {}
    for line in printed.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 6 or not re.fullmatch(NAME, fields[0]):
            continue
        name, nodes, cores, memory, limit, gpus = fields
        numbers = [re.match(r"\d+", text) for text in (nodes, cores, memory)]
        n, c, m = (int(number.group()) if number else 1 for number in numbers)
        earlier = found.get(name)
        if earlier is not None:  # nodes of another kind: what all of them have
            n, c, m = n + earlier.nodes, min(c, earlier.cores), min(m, earlier.memory_mb)
        gpu = gpus if gpus.startswith("gpu") else (earlier.gpus if earlier else "")
        found[name] = SlurmPartition(name, n, c, m, limit_seconds(limit), gpu)
    return list(found.values())


def limit_seconds(text: str) -> int | None:
    """A time limit as Slurm prints it (``30:00``, ``1-00:00:00``) in s; None: unlimited."""
    return int(walltime_s(text)) if re.fullmatch(r"(\d+-)?\d+(:\d+){1,2}", text) else None


def _output(*argv: str) -> str:
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=NO_ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _cluster_name() -> str:
    match = re.search(r"^ClusterName\s*=\s*(\S+)", _output("scontrol", "show", "config"), re.M)
    return match.group(1) if match else ""


def _as_name(text: str) -> str:
    name = re.sub("[^A-Za-z0-9_.-]", "-", text).lstrip("_.-")[:64]
    return name or "site"


def _found_clocks(root: Path) -> Iterator[FoundClocks]:
    """What each control that sets clocks of the node by itself reads here."""
    steps = [float(mhz) for mhz in range(STEP_MHZ, HIGHEST_MHZ + 1, STEP_MHZ)]
    for about in describe_controls():
        if not about.sets_clocks:
            continue
        site = Site.model_validate(
            {
                "name": "draft",
                "clocks": {"control": about.control},
                "domains": {"core": {"frequencies_mhz": steps}},
                "partitions": {"local": {}},
            }
        )
        try:
            offered = open_control(site, root).legal()
        except (ClocksUnavailable, ValueError):
            continue
        right = right_to_set(about.control, root)
        if offered:
            yield FoundClocks(
                about.control, device_of(site.clocks), offered, right.can_set, right.why
            )


def _partition_lines(partitions: Sequence[SlurmPartition], node: str) -> Iterator[str]:
    if not partitions:
        yield "\n# No Slurm answers here: workers run on this machine."
        yield "[partitions.local]"
        yield 'scheduler = "local"'
        return
    if conf := os.environ.get("SLURM_CONF"):
        yield f'\n[slurm]\nconf = "{conf}"' if _plain(conf) else "\n# [slurm]\n# conf = ..."
    for partition in partitions:
        limit = LONGEST_S if partition.limit_s is None else min(LONGEST_S, partition.limit_s)
        yield f"\n[partitions.{partition.name}]"
        yield 'scheduler = "slurm"'
        yield f"nodes = 1  # that measure at the same time; the partition has {partition.nodes}"
        yield f"cores = {partition.cores}"
        yield f'memory = "{max(1, partition.memory_mb * 9 // 10)}MB"'
        yield f'walltime = "{limit // 3600:02}:{limit // 60 % 60:02}:{limit % 60:02}"'
        if partition.gpus:
            yield f'directives = ["--gres=gpu:1"]  # the nodes have {printable(partition.gpus)}'
        yield '# account = "..."     # the account to charge, where your cluster asks for one'
        yield '# interface = "ib0"   # the network between the nodes and this machine'


def _plain(text: str) -> bool:
    return re.fullmatch(r"[\w./+:@-]+", text) is not None


def _clock_lines(found: Sequence[FoundClocks], slurm: bool) -> Iterator[str]:
    settable = [clocks for clocks in found if clocks.can_set]
    used = next(iter([*settable, *found]), None)
    if used is None:
        yield "\n# No clock of this node can be read. On a node where one can, run `campaign init`"
        yield "# there; otherwise list the legal clocks here:"
        yield "# [domains.core]\n# frequencies_mhz = [1200, 1600, 2000]"
        yield '[clocks]\ncontrol = "fixed"  # clocks stay as they are'
        return
    core = sorted({s.core_mhz for s in used.settings if s.core_mhz is not None})
    mem = sorted({s.mem_mhz for s in used.settings if s.mem_mhz is not None})
    if used.can_set:
        control, why = used.control, used.why
    elif slurm:
        control, why = "slurm", "job steps ask for clocks; `campaign doctor` tries whether they get"
    else:
        control, why = "fixed", f"{used.control} could set them, but {used.why}"
    if control != "fixed":
        yield from _domain_lines(core, mem, used.settings)
    else:
        yield f"\n# Clocks that {used.control} reads: {_listed(core or mem)} MHz."
    yield "\n[clocks]"
    yield _comment(why)
    yield f'control = "{control}"'
    yield f'device = "{used.device}"'
    if used.control == "cpufreq" and any(clocks.control == "uncore" for clocks in found):
        yield "# options = { uncore = true }  # sets the uncore clock too, as [domains.mem]"
    if not mem:
        yield "\n[classes]"
        yield 'dram = { domain = "core" }  # no memory clock is set'


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
        there = [s.core_mhz for s in settings if s.mem_mhz == mhz and s.core_mhz is not None]
        if core and sorted(there) != core:
            yield f"\n[[legal]]\nmem_mhz = {mhz:g}\ncore_mhz = [{_listed(sorted(there))}]"


def _listed(clocks: Sequence[float]) -> str:
    return ", ".join(f"{mhz:.10g}" for mhz in clocks)


def _meter_lines(probed: Sequence[ProbedMeter]) -> Iterator[str]:
    usable = [meter for meter in probed if meter.channels]
    for i, meter in enumerate(usable):
        yield f"\n[[meters]]  # channels: {printable(', '.join(meter.channels))}"
        yield f'kind = "{meter.meter}"'
        if i:
            yield 'use = "check"  # compared with the first meter; "energy" where it adds to it'
    if not usable:
        yield "\n# No meter can be read on this node; without one, energies are missing. Tried:"
        for meter in probed:
            yield _comment(f"{meter.meter}: {meter.problem}; {meter.remedy}")


def _comment(text: str) -> str:
    return textwrap.fill(
        printable(text), 98, initial_indent="#   ", subsequent_indent="#     ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
