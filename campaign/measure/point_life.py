"""A point's life: clocks, warm-up, window, checks, record; the clocks restored whatever happens."""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
import os
import platform
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.dataset import OK
from campaign.measure.energy import NodeEnergy
from campaign.measure.protocol import (
    PointSetup,
    WindowedMeasurement,
    energy_of,
    idle_power,
    joined,
    run_protocol,
)
from campaign.measure.sampler import OpenMeter
from campaign.measure.simulated_window import simulate_window
from campaign.measure.window import Window
from campaign.measurement import Measurement, Trace
from campaign.plan.campaign_file import Protocol
from campaign.plan.point import Point
from kernels.host.ranks import Team, WrongTeamSize
from kernels.kernel import Kernel, KernelFailed, WrongResult
from kernels.registry import find_kernel
from sites.clocks import ClockControl, ClockNotLegal, ClocksUnavailable, open_control
from sites.meters import MeterUnreadable, open_meter
from sites.setting import Setting
from sites.site_file import Site
from sites.twin.machine import NotSimulated

SLURM_VARIABLES = (
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_CPU_FREQ_REQ",
    "SLURMD_TRES_FREQ",
    "SLURM_CLUSTER_NAME",
)
VERSION = importlib.metadata.version("dvfs-campaign")


@dataclass(frozen=True)
class PartitionSetup:
    """What a measuring subprocess knows beside its point."""

    site: Site
    protocol: Protocol
    kernels: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "site": self.site.model_dump(mode="json"),
            "protocol": self.protocol.model_dump(mode="json"),
            "kernels": list(self.kernels),
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> PartitionSetup:
        """The job of :meth:`as_dict`."""
        return cls(
            Site.model_validate(fields["site"]),
            Protocol.model_validate(fields["protocol"]),
            tuple(fields["kernels"]),
        )


class ClockNotAchieved(Exception):
    """The hardware ran at another clock than was asked for."""


def measure(job: PartitionSetup, point: Point, attempt: int) -> Measurement | None:
    """Measure a point; every failure is a measurement too, with its class and text.

    Called on every rank; the measurement is rank 0's, and None on the others.
    """
    started = Measurement(
        point=point, status=OK, attempt=attempt, node=node_name(), start_unix_s=time.time()
    )
    try:
        team = Team.of_world(point.ranks)
    except WrongTeamSize as error:
        return replace(started, status="kernel failed", text=str(error))
    try:
        done = _measure(job, point, team, started)
    except ClockNotLegal as error:
        done = replace(started, status="clock not legal", text=str(error))
    except ClocksUnavailable as error:
        done = replace(started, status="clock not legal", text=str(error))
    except ClockNotAchieved as error:
        done = replace(started, status="clock not achieved", text=str(error))
    except MeterUnreadable as error:
        done = replace(started, status="meter unreadable", text=str(error))
    except WrongResult as error:
        done = replace(started, status="wrong result", text=str(error))
    except (KernelFailed, NotSimulated) as error:
        done = replace(started, status="kernel failed", text=str(error))
    except MemoryError:
        done = replace(started, status="kernel failed", text="out of memory")
    except Exception as error:  # a kernel is anybody's code: what it raises is its failure
        where = "".join(traceback.format_exception(error)[-3:]).strip()
        done = replace(started, status="kernel failed", text=where)
    if done.status != OK and point.ranks > 1 and team.comm is not None:
        _write_off(done, team)
    provenance = {**done.provenance, **_provenance(job)}
    return replace(done, provenance=provenance) if team.rank == 0 else None


def _write_off(failed: Measurement, team: Team) -> None:
    """One rank failed: the others may wait for it for ever, so all of them end."""
    print(f"rank {team.rank}: {failed.status}: {failed.text}", flush=True)
    team.comm.Abort(1)


def _measure(job: PartitionSetup, point: Point, team: Team, started: Measurement) -> Measurement:
    site = job.site
    kernel = find_kernel(point.kernel)
    params = kernel.params.model_validate_json(point.params)
    core_v, mem_v = site.volts(point.setting)
    started = replace(
        started,
        core_v=_nan(core_v),
        mem_v=_nan(mem_v),
        voltage_origin="table" if core_v is not None or mem_v is not None else "",
    )
    with contextlib.ExitStack() as stack:
        try:
            clocks = open_control(site)
        except ValueError as error:
            raise ClocksUnavailable(str(error), "mend clocks.options in the site file") from None
        if team.first_on_node():  # the others of its node only read them
            stack.callback(clocks.restore)
            clocks.set(point.setting)
        team.barrier()
        counts: dict[str, float] | None
        if site.simulated:
            counts = _site_counts(site, kernel.counts(params) or {})
            phases = kernel.phases(params) if kernel.phases else {}
            window = simulate_window(
                site,
                counts,
                point.setting,
                job.protocol.min_duration_s,
                point.id,
                {name: _site_counts(site, each) for name, each in phases.items()},
            )
            measured = WindowedMeasurement([window], {}, [])
        else:
            measured, counts = _measured(job, kernel, params, team, clocks, stack)
        for window in measured.windows:
            _check_clocks(site, point.setting, window.achieved)
    return _record(started, measured, counts, job.protocol.trim_s)


def _measured(
    job: PartitionSetup,
    kernel: Kernel,
    params: Any,
    team: Team,
    clocks: ClockControl,
    stack: contextlib.ExitStack,
) -> tuple[WindowedMeasurement, dict[str, float] | None]:
    """The windows of a real node, and the counts of one iteration."""
    meters: list[OpenMeter] = []
    for entry in job.site.meters if team.first_on_node() else ():
        try:
            meter = open_meter(entry.kind, entry.options)
        except ValueError as error:
            raise MeterUnreadable(f"{entry.kind}: {error}", "mend the site file") from None
        stack.callback(meter.close)
        meters.append(OpenMeter(meter, entry.use))
    idle = idle_power(team, meters, clocks, job.protocol)
    prepared = kernel.prepare(params, team)
    stack.callback(prepared.close)
    measured = run_protocol(PointSetup(prepared, team, meters, clocks, job.protocol))
    prepared.check()
    counts = team.sums(prepared.counts())
    measured = replace(measured, steps=idle | measured.steps)
    if team.size > 1:
        measured = joined(measured, team, node_name())
    return measured, None if counts is None else _site_counts(job.site, counts)


def _site_counts(site: Site, counts: Mapping[str, float]) -> dict[str, float]:
    """A kernel's counts under the site's names of the classes."""
    total: dict[str, float] = {}
    for name, value in counts.items():
        own = site.class_of(name)
        total[own] = total.get(own, 0.0) + float(value)
    return total


def _check_clocks(site: Site, asked: Setting, achieved: Setting) -> None:
    for name in ("core_mhz", "mem_mhz"):
        want, got = getattr(asked, name), getattr(achieved, name)
        if want is None or got is None:
            continue
        if abs(got - want) > site.clocks.tolerance_pct / 100.0 * want:
            raise ClockNotAchieved(
                f"{name.removesuffix('_mhz')} clock: asked for {want:g} MHz, ran at {got:g} MHz"
            )


def _record(
    started: Measurement,
    measured: WindowedMeasurement,
    counts: dict[str, float] | None,
    trim_s: float,
) -> Measurement:
    windows = measured.windows
    iterations = sum(window.iterations for window in windows)
    energy, each = energy_of(windows, trim_s)
    conditions = windows[-1].conditions
    flags = [*measured.flags, *(text for one in each for text in one.disagreements)]
    if conditions.get("throttled"):
        flags.append(f"the clocks were throttled: {', '.join(conditions['throttled'])}")
    facts = {
        "protocol": measured.steps,
        "sampling": windows[-1].sampling,
        "conditions": conditions,
        "flags": list(dict.fromkeys(flags)),
    }
    if "core_v" in conditions:
        started = replace(started, core_v=conditions["core_v"], voltage_origin="measured")
    return replace(
        started,
        time_s=sum(window.end_ns for window in windows) / 1e9 / iterations,
        iterations=iterations,
        energy_j=energy.energy_j,
        energy_std_j=energy.std_j,
        core_mhz_achieved=_mean(window.achieved.core_mhz for window in windows),
        mem_mhz_achieved=_mean(window.achieved.mem_mhz for window in windows),
        counts=counts,
        meters=_meters(windows, each),
        provenance={name: fact for name, fact in facts.items() if fact},
        traces=_traces(windows),
    )


def _mean(clocks_mhz: Iterable[float | None]) -> float:
    known = [mhz for mhz in clocks_mhz if mhz is not None]
    return sum(known) / len(known) if known else math.nan


def _meters(windows: Sequence[Window], each: Sequence[NodeEnergy]) -> dict[str, dict[str, Any]]:
    """What is known of every channel, with its own energy of one iteration."""
    found: dict[str, dict[str, Any]] = {}
    for t in windows[0].traces:
        told = [
            (one.by_channel[t.name], window.iterations)
            for window, one in zip(windows, each, strict=True)
            if t.name in one.by_channel
        ]
        found[t.name] = {
            "domain": t.channel.domain,
            "kind": t.channel.kind,
            "resolution": t.channel.resolution,
            "period_s": t.channel.period_s,
            "energy_j": sum(energy.energy_j / n for energy, n in told) / len(told),
            "energy_std_j": sum(energy.std_j / n for energy, n in told) / len(told),
            "counts": t.name in each[0].counted,
        }
    return found


def _traces(windows: Sequence[Window]) -> tuple[Trace, ...]:
    """Every channel's trace over all windows, with times from the first one's start.

    Where there are several windows, channel ``window`` tells when each of them was.
    """
    if len(windows) == 1:
        named = (replace(t.trace, channel=t.name) for t in windows[0].traces)
        return (*named, *windows[0].marks)
    parts: dict[str, list[Trace]] = {}
    for window in windows:
        since_ns = window.start_ns - windows[0].start_ns
        edges_ns = np.array([0, window.end_ns], np.int64)
        own = [Trace("window", "", "1", edges_ns, np.array([1.0, 0.0]))]
        own += [replace(t.trace, channel=t.name) for t in window.traces]
        for trace in (*own, *window.marks):
            later = replace(trace, time_ns=trace.time_ns + since_ns)
            parts.setdefault(trace.channel, []).append(later)
    return tuple(
        replace(
            some[0],
            time_ns=np.concatenate([t.time_ns for t in some]),
            value=np.concatenate([t.value for t in some]),
        )
        for some in parts.values()
    )


def node_name() -> str:
    """The node as its scheduler knows it, else as it calls itself."""
    return os.environ.get("SLURMD_NODENAME") or platform.node()


def _provenance(job: PartitionSetup) -> dict[str, Any]:
    found: dict[str, Any] = {
        "version": VERSION,
        "python": platform.python_version(),
        "simulated": job.site.simulated,
    }
    return found | {name: os.environ[name] for name in SLURM_VARIABLES if name in os.environ}


def _nan(value: float | None) -> float:
    return math.nan if value is None else float(value)
