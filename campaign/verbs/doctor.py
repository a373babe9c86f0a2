"""doctor: what a node can measure and set, and how to fix what fails."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.verbs.options import add_json
from campaign.verbs.printing import marked, print_json, print_table, say
from dvfs.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from campaign.doctor.gpu_examination import GpuExamination
    from campaign.doctor.node_examination import ClockExamination, NodeExamination

SUMMARY = "show what this node can measure and set, and how to fix what fails"
EXAMPLE = "campaign doctor localhost"
MORE = "For a site with Slurm partitions, a short job examines one node of each."
CAN = {True: "can be set", False: "cannot be set", None: "not tried"}
"""What :class:`sites.clocks.shared.control.Right` says."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("site", metavar="SITE", help="a site file, or a built-in site's name")
    parser.add_argument(
        "--partition",
        action="append",
        metavar="P",
        help="examine a node of this Slurm partition (may be repeated; default: all of the site)",
    )
    parser.add_argument("--here", action="store_true", help="examine only this node, without a job")
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Examine this node, or a node of each Slurm partition; 0 when all can measure energy."""
    from campaign.doctor.node_examination import examine_node  # noqa: PLC0415
    from dvfs.errors import known_names  # noqa: PLC0415
    from sites.site_reading import find_site, read_site  # noqa: PLC0415

    path = find_site(arguments.site, Path.cwd())
    site = read_site(path)
    slurm = [name for name, p in site.partitions.items() if p.has_jobs]
    if arguments.partition and not slurm:
        raise ArgumentError(f"{site.name} has no Slurm partition; leave --partition out")
    only_here = arguments.here or not slurm
    if only_here:
        examinations = [examine_node(site)]
    else:
        from campaign.doctor.examination_job import examine_partition  # noqa: PLC0415

        chosen = arguments.partition or slurm
        for name in chosen:
            if name not in slurm:
                raise UnsupportedError(
                    f"{site.name} has no Slurm partition {name!r}; "
                    + known_names(name, slurm, "it has")
                )
        examinations = [examine_partition(site, path, name) for name in chosen]
    if arguments.json:
        fields = [examination.as_dict() for examination in examinations]
        print_json(fields[0] if only_here else fields)
    else:
        for examination in examinations:
            print_examination(examination)
    return 0 if all(examination.can_measure_energy for examination in examinations) else 1


def print_examination(node: NodeExamination) -> None:
    """Print an examination for a person."""
    where = f"{node.site}/{node.partition}" if node.partition else node.site
    say(f"{where} on node {node.node}")
    rows = [
        [
            meter.meter,
            channel["name"],
            channel["domain"],
            channel["kind"],
            _with_measured(channel["resolution"], channel["measured_step"]),
            _with_measured(channel["period_s"], channel["measured_period_s"]),
            "yes" if channel["name"] in meter.counts else meter.use.replace("energy", "no"),
        ]
        for meter in node.meters
        for channel in meter.channels
    ]
    if rows:
        print_table(
            [
                "meter", "channel", "domain", "kind", "resolution (measured step)",
                "period s (measured)", "used for energy",
            ],
            rows,
        )  # fmt: skip
    for meter in node.meters:
        if meter.package is not None:
            say(f"{meter.meter} is of the package {meter.package}")
        if meter.read_s is not None:
            say(f"reading {meter.meter} takes {meter.read_s * 1e6:.3g} us")
        if meter.problem:
            say(f"{meter.meter}: {meter.problem}\n  to fix it: {meter.remedy}")
    _print_clocks(node.clocks)
    if node.gpu is not None:
        _print_gpu(node.gpu)
    if node.can_measure_energy:
        say(marked("energy can be measured", node.simulated))
    elif any(meter.counts for meter in node.meters):
        say(
            "energy cannot be measured: every meter of the site file must be readable; fix the "
            "meters above, or remove them from the site file"
        )
    else:
        _print_missing_energy(node)


def _print_gpu(gpu: GpuExamination) -> None:
    counted = [f"{gpu.gpus.count(name)} {name}" for name in sorted(set(gpu.gpus))]
    gpu_text = f"{', '.join(counted)} ({', '.join(gpu.architectures)}), driver {gpu.driver}"
    if gpu.problem is None:
        say(f"GPU kernels can run: {gpu_text}, packages of CUDA {gpu.cuda}")
    else:
        on_gpus = f" on {gpu_text}" if gpu.gpus else ""
        say(f"GPU kernels cannot run{on_gpus}: {gpu.problem}\n  to fix it: {gpu.remedy}")


def _with_measured(nominal: float, measured: float | None) -> str:
    return f"{nominal:.3g} ({'not measured' if measured is None else format(measured, '.3g')})"


def _print_clocks(clocks: ClockExamination) -> None:
    now = [
        f"{name} {mhz:.0f} MHz"
        for name, mhz in (
            ("core", clocks.core_mhz_now),
            ("memory", clocks.mem_mhz_now),
            ("uncore", clocks.uncore_mhz_now),
        )
        if mhz is not None
    ]
    if clocks.temperature_c is not None:
        now.append(f"{clocks.temperature_c:.0f} C")
    now += [f"throttled: {reason}" for reason in clocks.throttled]
    if clocks.control == "fixed":
        ability = "clocks are not set"
    else:
        ability = f"clocks {CAN[clocks.can_set]}; {clocks.why}; "
        ability += f"{clocks.settings} setting{'s'[: clocks.settings != 1]} in the site file"
    state = f"now {', '.join(now)}" if now else "the current clock cannot be read"
    package = "" if clocks.package is None else f" of the package {clocks.package}"
    say(f"clock control '{clocks.control}'{package}: {ability}; {state}")
    if clocks.flags_set:
        say(f"  {clocks.slurm_version or 'Slurm of an unknown version'}: {clocks.flags_set}")
    for line in (*clocks.obstacles, *clocks.remarks):
        say(f"  {line}")
    for trial in clocks.trials:
        say(f"  tried {trial.asked}: {trial.proof or trial.text}")
    if clocks.remedy:
        say(f"  to fix it: {clocks.remedy}")
    for setting in clocks.not_offered:
        say(f"  the hardware does not offer {setting}")
    for usable in clocks.others:
        say(f"  control = '{usable['control']}' would work here: {usable['why']}")
    _print_power_limit(clocks)
    profile = clocks.profile
    if profile is not None:
        shown = "" if profile.now is None else f"; now {profile.now}"
        say(f"profile: {CAN[profile.can_set]} by '{profile.control}'; {profile.why}{shown}")
        if profile.remedy:
            say(f"  to fix it: {profile.remedy}")


def _print_power_limit(clocks: ClockExamination) -> None:
    parts, limit = [], clocks.power_limit
    if limit is not None:
        parts = [f"{CAN[limit.can_set]} by '{limit.control}'", limit.why]
        if limit.highest_w is not None:
            lowest = "up" if limit.lowest_w is None else f"{limit.lowest_w:g}"
            parts.append(f"the device offers {lowest} to {limit.highest_w:g} W")
    if clocks.power_limits_w:
        now = (f"{device} {limit_w:g} W" for device, limit_w in clocks.power_limits_w.items())
        parts.append(f"now {', '.join(now)}")
    if parts:
        say(f"power limit: {'; '.join(parts)}")
    if limit is not None and limit.remedy:
        say(f"  to fix it: {limit.remedy}")


def _print_missing_energy(node: NodeExamination) -> None:
    """Print why energy cannot be measured, and what each meter needs."""
    from sites.meters import describe_meters  # noqa: PLC0415

    usable = [meter for meter in node.meters_elsewhere if meter.channels]
    if usable:
        say("energy cannot be measured with this site file, but this node has meters; add")
        for meter in usable:
            say(f'  [[meters]]\n  kind = "{meter.meter}"  # {", ".join(meter.channels)}')
        return
    named = any(meter.use == "energy" for meter in node.meters)
    which = "No meter of the site file, and no other meter," if named else "No meter"
    say(f"{which} can be read on this node: times will be measured, energies will be missing")
    for meter in node.meters_elsewhere:
        if not meter.absent:
            say(f"  {meter.meter}: {meter.problem}\n    {meter.remedy}")
    if absent := [meter.meter for meter in node.meters_elsewhere if meter.absent]:
        say(f"  not on this node: {', '.join(absent)} (--json says what each of them needs)")
    untried = [meter_type.kind for meter_type in describe_meters() if not meter_type.probed]
    say(f"  not tried, because they need options in the site file: {', '.join(untried)}")
