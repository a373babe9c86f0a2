"""doctor: what a node can measure and set, and how to mend what it can't."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign.errors import CannotDo
from campaign.verbs.options import add_json
from campaign.verbs.printing import print_json, print_table, say

if TYPE_CHECKING:
    from sites.site_file import MeterEntry, Partition, Site

OBSERVED_S = 1.0
"""How long each meter is watched."""
JOB_MINUTES = 10
JOB_TIMEOUT_S = 1800.0
"""How long a partition's job is waited for, in the queue and on its node."""


SUMMARY = "show what this node can measure and set, and how to fix what fails"
EXAMPLE = "campaign doctor localhost"
MORE = "Of a site with Slurm partitions, a node of each is asked through a short job."


def add_arguments(parser: ArgumentParser) -> None:
    """The verb's arguments."""
    parser.add_argument("site", metavar="SITE", help="a site file, or the name of a built-in site")
    parser.add_argument(
        "--partition",
        action="append",
        metavar="P",
        help="ask a node of this Slurm partition (repeat; default: all of the site's)",
    )
    parser.add_argument(
        "--here", action="store_true", help="look at this node alone, without a job"
    )
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Look at this node, or through a short job at each partition; 0 when all can measure."""
    from sites.site_file import find_site, read_site  # noqa: PLC0415

    path = find_site(arguments.site, Path.cwd())
    site = read_site(path)
    remote = [name for name, p in site.partitions.items() if p.scheduler == "slurm"]
    found = []
    if arguments.here or not remote:
        found.append(examine(site))
    else:
        for name in arguments.partition or remote:
            if name not in remote:
                raise CannotDo(
                    f"{site.name} has no Slurm partition {name!r}; it has {', '.join(remote)}"
                )
            found.append(_through_job(site, path.resolve(), name))
    able = all(each["can_measure_energy"] for each in found)
    if arguments.json:
        print_json(found[0] if arguments.here or not remote else found)
    else:
        for each in found:
            print_told(each)
    return 0 if able else 1


def examine(site: Site, root: Path = Path("/")) -> dict[str, Any]:
    """What this node, whose files lie under ``root``, can measure and set, in plain JSON types."""
    meters = [_twin(site)] if site.simulated else [_meter(entry, root) for entry in site.meters]
    counted = {channel for each in meters for channel in each.get("counts", ())}
    named = {entry.kind for entry in site.meters}
    others = [] if site.simulated or counted else _others(named, root)
    return {
        "site": site.name,
        "node": os.environ.get("SLURMD_NODENAME") or platform.node(),
        "partition": None,
        "simulated": site.simulated,
        "meters": meters,
        "meters_elsewhere": others,
        "clocks": _clocks(site, root),
        "can_measure_energy": bool(counted),
    }


def _twin(site: Site) -> dict[str, Any]:
    from sites.twin.machine import board_channel  # noqa: PLC0415

    channel = vars(board_channel(site))
    return {
        "meter": "twin (simulated)",
        "use": "energy",
        "channels": [channel | {"measured_period_s": None, "measured_step": None}],
        "counts": [channel["name"]],
        "read_s": None,
        "problem": None,
        "remedy": None,
    }


def _meter(entry: MeterEntry, root: Path) -> dict[str, Any]:
    """A meter of the site file, opened and watched."""
    from sites.meters import MeterUnreadable, open_meter  # noqa: PLC0415
    from sites.meters.shared.behaviour import observe  # noqa: PLC0415

    told: dict[str, Any] = {
        "meter": entry.kind,
        "use": entry.use,
        "channels": [],
        "counts": [],
        "read_s": None,
        "problem": None,
        "remedy": None,
    }
    try:
        meter = open_meter(entry.kind, entry.options, root)
    except MeterUnreadable as error:
        return told | {"problem": error.what, "remedy": error.remedy}
    except ValueError as error:
        return told | {"problem": str(error), "remedy": "mend the meter's options"}
    try:
        seen = observe(meter, OBSERVED_S)
    except MeterUnreadable as error:
        return told | {"problem": error.what, "remedy": error.remedy}
    finally:
        meter.close()
    channels = [
        vars(channel) | {"measured_period_s": each.period_s, "measured_step": each.step}
        for channel, each in zip(meter.channels, seen, strict=True)
    ]
    counts = [
        c.name for c in meter.channels if entry.use == "energy" and not (c.same_as or c.inside)
    ]
    return told | {"channels": channels, "counts": counts, "read_s": seen[0].read_s}


def _others(named: set[str], root: Path) -> list[dict[str, Any]]:
    """Meters that the site file does not name: whether they would answer here."""
    from sites.meters import MeterUnreadable, describe_meters, open_meter  # noqa: PLC0415

    found = []
    for kind in (about.kind for about in describe_meters() if about.probed):
        if kind in named:
            continue
        told: dict[str, Any] = {"meter": kind, "channels": [], "problem": None, "remedy": None}
        try:
            meter = open_meter(kind, {}, root)
        except MeterUnreadable as error:
            found.append(told | {"problem": error.what, "remedy": error.remedy})
            continue
        except ValueError as error:
            found.append(told | {"problem": str(error), "remedy": "it needs options"})
            continue
        found.append(told | {"channels": [channel.name for channel in meter.channels]})
        meter.close()
    return found


def _clocks(site: Site, root: Path) -> dict[str, Any]:
    from sites.clocks import (  # noqa: PLC0415
        ClocksUnavailable,
        describe_controls,
        open_control,
        right_to_set,
    )

    right = right_to_set(site.clocks.control, root)
    told: dict[str, Any] = {
        "control": site.clocks.control,
        "settings": len(site.settings),
        "offered": None,
        "not_offered": [],
        "core_mhz_now": None,
        "mem_mhz_now": None,
        "temperature_c": None,
        "throttled": [],
        "can_set": right.can_set,
        "why": right.why,
        "remedy": right.remedy or None,
        "others": [],
    }
    try:
        control = open_control(site, root)
        offered, state = control.legal(), control.state()
    except ClocksUnavailable as error:
        return told | {"can_set": False, "why": error.what, "remedy": error.remedy}
    except ValueError as error:
        return told | {"can_set": False, "why": str(error), "remedy": "mend clocks.options"}
    if offered is not None:
        told["offered"] = len(offered)
        told["not_offered"] = [str(s) for s in site.settings if s not in offered]
    told |= {
        "core_mhz_now": state.setting.core_mhz,
        "mem_mhz_now": state.setting.mem_mhz,
        "temperature_c": state.temperature_c,
        "throttled": list(state.throttled),
    }
    if site.clocks.control == "fixed":
        names = [about.control for about in describe_controls() if about.sets_clocks]
        told["others"] = [vars(r) for name in names if (r := right_to_set(name, root)).can_set]
    return told


def _through_job(site: Site, path: Path, name: str) -> dict[str, Any]:
    """What the doctor says on a node of a partition, asked through one short job there."""
    from campaign.launch.clusters import prologue, slurm_argv  # noqa: PLC0415

    partition = site.partitions[name]
    argv = slurm_argv(site, "srun", *_job_words(partition, name), "bash", "-s")
    python = shlex.quote(partition.environment.python or sys.executable)
    asked = f"{python} -m campaign doctor {shlex.quote(str(path))} --here --json"
    script = "\n".join([*prologue(partition), asked]) + "\n"
    where = f"{site.name}/{name}"
    try:
        done = subprocess.run(
            argv, input=script, capture_output=True, text=True, timeout=JOB_TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        raise CannotDo(
            f"{where}: {argv[0]} is not on this host; run where Slurm's commands are, or look at "
            f"this node alone with --here"
        ) from None
    except subprocess.TimeoutExpired:
        raise CannotDo(f"{where}: the job did not end within {JOB_TIMEOUT_S:g} s") from None
    begin = done.stdout.find("{")
    if done.returncode not in (0, 1) or begin < 0:
        said = (done.stderr.strip() or done.stdout.strip())[-500:]
        raise CannotDo(f"{where}: srun ended with {done.returncode}: {said}")
    told: dict[str, Any] = json.loads(done.stdout[begin:])
    return told | {"partition": name}


def _job_words(partition: Partition, name: str) -> list[str]:
    words = [f"--partition={name}", "--nodes=1", "--ntasks=1", f"--time={JOB_MINUTES}"]
    words += ["--quiet", "--job-name=campaign-doctor", "--mpi=none"]
    if partition.exclusive:
        words.append("--exclusive")
    if partition.account is not None:
        words.append(f"--account={partition.account}")
    if partition.qos is not None:
        words.append(f"--qos={partition.qos}")
    return [*words, *(word for each in partition.directives for word in shlex.split(each))]


def print_told(told: dict[str, Any]) -> None:
    """Print what :func:`examine` found, for a person."""
    where = f"{told['site']}/{told['partition']}" if told["partition"] else told["site"]
    say(f"{where} on node {told['node']}")
    rows = [
        [
            meter["meter"],
            channel["name"],
            channel["domain"],
            channel["kind"],
            _measured(channel["resolution"], channel["measured_step"]),
            _measured(channel["period_s"], channel["measured_period_s"]),
            "yes" if channel["name"] in meter["counts"] else meter["use"].replace("energy", "no"),
        ]
        for meter in told["meters"]
        for channel in meter["channels"]
    ]
    if rows:
        print_table(
            [
                "meter", "channel", "domain", "kind", "resolution (measured step)",
                "period s (measured)", "counts",
            ],
            rows,
        )  # fmt: skip
    for meter in told["meters"]:
        if meter["read_s"] is not None:
            say(f"a reading of {meter['meter']} takes {meter['read_s'] * 1e6:.3g} us")
        if meter["problem"]:
            say(f"{meter['meter']}: {meter['problem']}\n  to mend it: {meter['remedy']}")
    _print_clocks(told["clocks"])
    if told["can_measure_energy"]:
        simulated = " (simulated)" if told["simulated"] else ""
        say(f"energy can be measured{simulated}")
    else:
        _print_without(told)


def _measured(nominal: float, measured: float | None) -> str:
    return f"{nominal:.3g} ({'?' if measured is None else format(measured, '.3g')})"


def _print_clocks(clocks: dict[str, Any]) -> None:
    able = "can be set" if clocks["can_set"] else "can't be set"
    if clocks["control"] == "fixed":
        able = "are left as found"
    now = [
        f"{name} {clocks[key]:.0f} MHz"
        for name, key in (("core", "core_mhz_now"), ("memory", "mem_mhz_now"))
        if clocks[key] is not None
    ]
    if clocks["temperature_c"] is not None:
        now.append(f"{clocks['temperature_c']:.0f} C")
    now += [f"throttled: {reason}" for reason in clocks["throttled"]]
    say(
        f"clocks by {clocks['control']}: {able}; {clocks['why']}; {clocks['settings']} settings in "
        f"the site file; now {', '.join(now) or 'not told'}"
    )
    if clocks["remedy"]:
        say(f"  to mend it: {clocks['remedy']}")
    for setting in clocks["not_offered"]:
        say(f"  the hardware does not offer {setting}")
    for other in clocks["others"]:
        say(f"  control = '{other['control']}' would do here: {other['why']}")


def _print_without(told: dict[str, Any]) -> None:
    """Why energy can't be measured, and what each meter would need."""
    from sites.meters import describe_meters  # noqa: PLC0415

    usable = [each for each in told["meters_elsewhere"] if each["channels"]]
    named = [each for each in told["meters"] if each["use"] == "energy"]
    if usable:
        say("energy can't be measured as the site file stands, but this node has meters: add")
        for each in usable:
            say(f'  [[meters]]\n  kind = "{each["meter"]}"  # {", ".join(each["channels"])}')
        return
    which = "No meter of the site file answers, and no other" if named else "No meter"
    say(
        f"{which} tells energy on this node: times will be measured, energies will be missing. "
        "What was tried, and what it would need:"
    )
    for each in told["meters_elsewhere"]:
        say(f"  {each['meter']}: {each['problem']}\n    {each['remedy']}")
    say("  Not tried, because they need options in the site file:")
    for about in describe_meters():
        if not about.probed:
            say(f"  {about.kind}: {about.reads}")
