"""The meters and clocks that work on this node, for ``campaign doctor``.

``python -m campaign.doctor.node_examination SITE.toml`` prints it as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from campaign.doctor.gpu_examination import GpuExamination, examine_gpus
from campaign.measure.energy import counted_channels
from campaign.measure.point_life import PartitionSetup
from campaign.measure.sampler import MeterChannel, UsedMeter, refuse_doubles
from campaign.measure.subprocesses import SubprocessRunner
from campaign.plan.campaign_file import Protocol
from campaign.plan.point import Point, canonical_json
from campaign.store.journal import decode
from dvfs.dataset import OK
from dvfs.setting import Setting
from kernels.host.ranks import node_name
from kernels.registry import find_kernel
from sites.clocks import (
    CONTROLS,
    ClocksError,
    describe_controls,
    device_of,
    open_control,
    open_power_limit,
    open_profile,
    right_to_set,
)
from sites.clocks.cpufreq import means_turbo, turbo_mhz
from sites.clocks.slurm import what_flags_set
from sites.meters import METERS, AbsentMeterError, MeterError, describe_meters, open_meter
from sites.meters.shared.behaviour import observe
from sites.power_limits import power_limits_w
from sites.simulated.machine import board_channel
from sites.site_file import MeterEntry, Site
from sites.site_reading import read_site
from sites.slurm_clocks import ask_here, read_configuration, slurm_clocks

SHORT = Protocol(idle_s=0.0, warm_up_s=0.1, min_duration_s=0.3, timeout_s=120.0)
KERNELS = {"cpu": "int_mad", "gpu": "idle"}
"""Device -> the kernel of a trial. The one for GPUs leaves them idle."""
NEEDS = (
    "ask the administrators for a Slurm that sets clocks (cpufreq, TaskPlugin and CpuFreqGovernors "
    "for --cpu-freq, a plugin for the GPUs for --gpu-freq), or use another control"
)
OBSERVED_S = 1.0
"""How long each meter is observed."""


@dataclass(frozen=True, kw_only=True)
class ClockTrial:
    """A requested setting and its result. Clocks in MHz, None if not known.

    ``followed``: whether the clock was shown to be the requested one; ``proof``: the proof of that.
    """

    asked: str
    core_mhz: float | None
    mem_mhz: float | None
    core_mhz_timed: float | None
    followed: bool
    proof: str
    text: str


def extreme_settings(site: Site) -> list[Setting]:
    """The lowest and the highest of the site's settings, without duplicates."""
    return list(dict.fromkeys([min(site.settings), max(site.settings)]))


def try_settings(site: Site) -> list[ClockTrial]:
    """Measure a short kernel at the extreme settings, as a campaign would, without meters."""
    name = KERNELS[device_of(site.clocks)]
    bare = site.model_copy(update={"meters": [], "counters": {}})
    runner = SubprocessRunner(PartitionSetup(bare, SHORT, (name,)))
    try:
        return [_try(runner, site, name, setting) for setting in extreme_settings(site)]
    finally:
        runner.close()


def _try(runner: SubprocessRunner, site: Site, name: str, setting: Setting) -> ClockTrial:
    params = find_kernel(name).params()
    point = Point(
        site=site.name,
        partition=next(iter(site.partitions)),
        kernel=name,
        label=name,
        params=canonical_json(params.model_dump(mode="json")),
        ranks=1,
        setting=setting,
        repeat=0,
    )
    measured = decode(runner.measure(point, 0))
    return ClockTrial(
        asked=str(setting),
        core_mhz=_none_if_nan(measured.core_mhz_achieved),
        mem_mhz=_none_if_nan(measured.mem_mhz_achieved),
        core_mhz_timed=_none_if_nan(measured.core_mhz_timed),
        followed=measured.status == OK and bool(measured.clock_proof),
        proof=measured.clock_proof,
        text=measured.text if measured.status == OK else f"{measured.status}: {measured.text}",
    )


def _none_if_nan(mhz: float) -> float | None:
    return None if math.isnan(mhz) else mhz


@dataclass(frozen=True, kw_only=True)
class MeterExamination:
    """A meter of the site file.

    ``channels``: the fields of each :class:`sites.meters.Channel`, and ``measured_period_s`` and
    ``measured_step`` (None if the reading changed too rarely). ``counts``: the names of the
    channels that are part of a measurement's energy. ``read_s``: the median time of a reading.
    ``package``: the installed package that has the meter, None for this project.
    """

    meter: str
    use: str
    channels: list[dict[str, Any]]
    counts: list[str]
    read_s: float | None = None
    problem: str | None = None
    remedy: str | None = None
    package: str | None = None


@dataclass(frozen=True)
class ProbedMeter:
    """A kind of meter that the site file does not name: its channels on this node, or the problem.
    ``absent``: whether the node has no such meter."""

    meter: str
    channels: list[str]
    problem: str | None = None
    remedy: str | None = None
    absent: bool = False


@dataclass(frozen=True, kw_only=True)
class PowerLimitExamination:
    """The site's control of the power limit on this node, and the device's range in W, None if it
    does not report it."""

    control: str
    can_set: bool | None
    why: str
    remedy: str | None
    lowest_w: float | None = None
    highest_w: float | None = None


@dataclass(frozen=True, kw_only=True)
class ProfileExamination:
    """The site's control of the profile on this node. ``now``: the current one, None if it cannot
    be read."""

    control: str
    can_set: bool | None
    why: str
    remedy: str | None
    now: str | None = None


@dataclass(frozen=True, kw_only=True)
class ClockExamination:
    """The site's clock control on this node.

    ``settings``: the number of settings in the site file; ``offered``: the number that the hardware
    offers; ``not_offered``: the site file's that it does not offer. ``others``: the controls
    that could set clocks here, if the site file names none. ``package``: the installed package that
    has the control, None for this project. ``can_set``: None if only a trial could show it, and
    there was none. ``power_limits_w``: the current limits
    (:func:`sites.power_limits.power_limits_w`); ``power_limit``, ``profile``: None if no control
    sets it.

    For the control ``slurm``: ``slurm_version`` is the output of ``srun --version``, ``flags_set``
    what its option sets, ``obstacles`` the parts of Slurm's configuration that prevent it,
    ``remarks`` its further effects, and ``trials`` the results at the lowest and highest setting.
    """

    control: str
    settings: int
    offered: int | None = None
    not_offered: list[str] = dataclasses.field(default_factory=list)
    core_mhz_now: float | None = None
    mem_mhz_now: float | None = None
    uncore_mhz_now: float | None = None
    temperature_c: float | None = None
    throttled: list[str] = dataclasses.field(default_factory=list)
    can_set: bool | None
    why: str
    remedy: str | None
    others: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    slurm_version: str | None = None
    flags_set: str | None = None
    package: str | None = None
    obstacles: list[str] = dataclasses.field(default_factory=list)
    remarks: list[str] = dataclasses.field(default_factory=list)
    trials: list[ClockTrial] = dataclasses.field(default_factory=list)
    power_limits_w: dict[str, float] = dataclasses.field(default_factory=dict)
    power_limit: PowerLimitExamination | None = None
    profile: ProfileExamination | None = None


@dataclass(frozen=True, kw_only=True)
class NodeExamination:
    """The meters and clocks of a node.

    ``meters_elsewhere``: meters that the site file does not name, tried if no energy can be
    measured. ``partition``: None if no Slurm job was needed. ``gpu``: whether GPU kernels can run;
    None on a node without NVIDIA GPUs.
    """

    site: str
    node: str
    partition: str | None = None
    simulated: bool
    meters: list[MeterExamination]
    meters_elsewhere: list[ProbedMeter]
    clocks: ClockExamination
    can_measure_energy: bool
    gpu: GpuExamination | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> NodeExamination:
        """The examination whose :meth:`as_dict` is ``fields``."""
        return TypeAdapter(cls).validate_python(fields)


def examine_node(site: Site, root: Path = Path("/")) -> NodeExamination:
    """Open and observe the site's meters on this node, and query its clock control.

    The rule for measurements (:func:`campaign.measure.energy.counted_channels`), over all meters
    together, decides which channels count. A measurement needs every meter of the site file: if one
    cannot be read, no energy can be measured.

    Args:
        site: the site.
        root: the folder under which the node's files are.
    """
    if site.is_simulated:
        meters = [_simulated_meter(site)]
    else:
        meters = _with_counts([_examine_meter(entry, root) for entry in site.meters])
    counts = any(meter.counts for meter in meters)
    named = {entry.kind for entry in site.meters}
    return NodeExamination(
        site=site.name,
        node=node_name(),
        simulated=site.is_simulated,
        meters=meters,
        meters_elsewhere=[] if site.is_simulated or counts else probe_meters(named, root),
        clocks=_examine_clocks(site, root),
        can_measure_energy=counts and not any(meter.problem for meter in meters),
        gpu=None if site.is_simulated else examine_gpus(root),
    )


def _simulated_meter(site: Site) -> MeterExamination:
    channel = vars(board_channel(site))
    return MeterExamination(
        meter="simulated",
        use="energy",
        channels=[channel | {"measured_period_s": None, "measured_step": None}],
        counts=[channel["name"]],
    )


_Examined = tuple[MeterExamination, list[MeterChannel]]


def _examine_meter(entry: MeterEntry, root: Path) -> _Examined:
    """A meter of the site file, opened and observed, and its channels."""
    failed = MeterExamination(
        meter=entry.kind,
        use=entry.use,
        channels=[],
        counts=[],
        package=METERS.packages.get(entry.kind),
    )
    try:
        meter = open_meter(entry.kind, entry.options, root)
    except MeterError as error:
        return replace(failed, problem=error.what, remedy=error.remedy), []
    except ValueError as error:
        remedy = "correct the meter's options in the site file"
        return replace(failed, problem=str(error), remedy=remedy), []
    try:
        behaviours = observe(meter, OBSERVED_S)
    except MeterError as error:
        return replace(failed, problem=error.what, remedy=error.remedy), []
    finally:
        meter.close()
    channels = [
        vars(channel) | {"measured_period_s": behaviour.period_s, "measured_step": behaviour.step}
        for channel, behaviour in zip(meter.channels, behaviours, strict=True)
    ]
    examined = replace(failed, channels=channels, read_s=behaviours[0].read_s)
    return examined, UsedMeter(meter, entry.use).channels


def _with_counts(examined: list[_Examined]) -> list[MeterExamination]:
    """The meters with ``counts`` set, by the rule for all of them together."""
    every_channel = [channel for _, channels in examined for channel in channels]
    try:
        refuse_doubles(every_channel)
    except MeterError as error:
        last = examined[-1][0]
        examined = [*examined[:-1], (replace(last, problem=error.what, remedy=error.remedy), [])]
    counted = {id(channel) for channel in counted_channels(every_channel)}
    return [
        replace(meter, counts=[c.channel.name for c in channels if id(c) in counted])
        for meter, channels in examined
    ]


def probe_meters(named: set[str], root: Path) -> list[ProbedMeter]:
    """Try to read the kinds of meters that the site file does not name."""
    probed = []
    for about in describe_meters():
        if not about.probed or about.kind in named:
            continue
        try:
            meter = open_meter(about.kind, {}, root)
        except MeterError as error:
            absent = isinstance(error, AbsentMeterError)
            probed.append(ProbedMeter(about.kind, [], error.what, error.remedy, absent))
            continue
        except ValueError as error:
            probed.append(ProbedMeter(about.kind, [], str(error), "give it options"))
            continue
        probed.append(ProbedMeter(about.kind, [channel.name for channel in meter.channels]))
        meter.close()
    return probed


def _examine_clocks(site: Site, root: Path) -> ClockExamination:
    examined = ClockExamination(
        **_right(site.clocks.control, root),
        package=CONTROLS.packages.get(site.clocks.control),
        settings=len(site.settings),
        power_limits_w={} if site.is_simulated else power_limits_w(root),
        power_limit=_examine_power_limit(site, root),
        profile=_examine_profile(site, root),
    )
    try:
        control = open_control(site, root)
        offered, state = control.legal(), control.state()
    except ClocksError as error:
        return replace(examined, can_set=False, why=error.what, remedy=error.remedy)
    except ValueError as error:
        remedy = "correct clocks.options in the site file"
        return replace(examined, can_set=False, why=str(error), remedy=remedy)
    if offered is not None:
        offers = {(s.clocks, s.power_limit_w, s.profile) for s in offered}
        missing = [
            str(s) for s in site.settings if (s.clocks, s.power_limit_w, s.profile) not in offers
        ]
        examined = replace(examined, offered=len(offered), not_offered=missing)
    if site.clocks.in_steps:
        examined = _examine_slurm(site, examined, root)
    if site.clocks.control == "fixed":
        controls = [about.control for about in describe_controls() if about.sets_clocks]
        rights = [right_to_set(name, root) for name in controls]
        examined = replace(examined, others=[vars(right) for right in rights if right.can_set])
    return replace(
        examined,
        core_mhz_now=state.setting.core_mhz,
        mem_mhz_now=state.setting.mem_mhz,
        uncore_mhz_now=state.setting.uncore_mhz,
        temperature_c=state.temperature_c,
        throttled=list(state.throttled),
    )


def _right(control: str, root: Path) -> dict[str, Any]:
    """The fields of an examination that say whether this user can set what a control sets."""
    right = right_to_set(control, root)
    return {**vars(right), "control": control, "remedy": right.remedy or None}


def _examine_power_limit(site: Site, root: Path) -> PowerLimitExamination | None:
    if site.power_limit is None or site.power_limit.control is None:
        return None
    examined = PowerLimitExamination(**_right(site.power_limit.control, root))
    try:
        control = open_power_limit(site, root)
        lowest_w, highest_w = (None, None) if control is None else control.range_w()
    except ClocksError as error:
        return replace(examined, can_set=False, why=error.what, remedy=error.remedy)
    return replace(examined, lowest_w=lowest_w, highest_w=highest_w)


def _examine_profile(site: Site, root: Path) -> ProfileExamination | None:
    if site.profiles is None:
        return None
    examined = ProfileExamination(**_right(site.profiles.control, root))
    try:
        control = open_profile(site, root)
        now = None if control is None else control.state().setting.profile
    except ClocksError as error:
        return replace(examined, can_set=False, why=error.what, remedy=error.remedy)
    return replace(examined, now=now)


def _examine_slurm(site: Site, examined: ClockExamination, root: Path) -> ClockExamination:
    """Add Slurm's version, what its option sets, and whether a step's clock follows it.

    Without a job there is no trial: :mod:`campaign.doctor.examination_job` starts one.
    """
    printed = ask_here("srun", "--version").strip()
    configuration = read_configuration(ask_here("scontrol", "show", "config"))
    configured = slurm_clocks(configuration, site.clocks.device, root)
    remarks = list(configured.remarks)
    turbo = None if site.clocks.device == "gpu" else turbo_mhz(root)
    if turbo is not None and turbo in {setting.core_mhz for setting in site.settings}:
        remarks.append(means_turbo(turbo))
    examined = replace(
        examined,
        slurm_version=printed or None,
        flags_set=what_flags_set(printed, site.clocks.device),
        obstacles=list(configured.obstacles),
        remarks=remarks,
    )
    if "SLURM_JOB_ID" not in os.environ:
        if examined.obstacles:
            why = "Slurm's option sets none here"
            return replace(examined, can_set=False, why=why, remedy=NEEDS)
        why = "only a job step can show whether Slurm sets them"
        remedy = "leave --here out, so that a job tries it"
        return replace(examined, can_set=None, why=why, remedy=remedy)
    trials = try_settings(site)
    if all(trial.followed for trial in trials):
        proofs = " and ".join(sorted({trial.proof for trial in trials}))
        why = f"the clock followed at {' and at '.join(trial.asked for trial in trials)} ({proofs})"
        return replace(examined, can_set=True, why=why, trials=trials)
    idle = any(trial.core_mhz is not None for trial in trials) and site.clocks.device == "gpu"
    return replace(
        examined,
        can_set=False,
        why="the clock did not follow, or nothing shows it"
        + ("; the GPU was idle, and may have a lower clock then" if idle else ""),
        remedy=NEEDS,
        trials=trials,
    )


if __name__ == "__main__":
    print(json.dumps(examine_node(read_site(Path(sys.argv[1]))).as_dict()))
