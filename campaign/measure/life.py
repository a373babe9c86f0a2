"""A point's life: clocks, warm-up, window, checks, record; the clocks restored whatever happens."""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
import os
import platform
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from campaign.campaign_file import Protocol
from campaign.measure.energy import total_energy
from campaign.measure.window import Window, run_window, simulate_window
from campaign.measurement import OK, Measurement
from campaign.point import Point
from kernels.kernel import Kernel, KernelFailed, Prepared, WrongResult
from kernels.ranks import Team, WrongTeamSize
from kernels.registry import find_kernel
from sites.clocks import ClockControl, ClockNotLegal, open_control
from sites.meters import Meter, MeterUnreadable, open_meter
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
MAX_CALIBRATIONS = 6
VERSION = importlib.metadata.version("dvfs-campaign")


@dataclass(frozen=True)
class Job:
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
    def from_dict(cls, fields: Mapping[str, Any]) -> Job:
        """The job of :meth:`as_dict`."""
        return cls(
            Site.model_validate(fields["site"]),
            Protocol.model_validate(fields["protocol"]),
            tuple(fields["kernels"]),
        )


class ClockNotAchieved(Exception):
    """The hardware ran at another clock than was asked for."""


def measure(job: Job, point: Point, attempt: int) -> Measurement | None:
    """Measure a point; every failure is a measurement too, with its class and text.

    Called on every rank; the measurement is rank 0's, and None on the others.
    """
    started = Measurement(point, OK, attempt=attempt, node=node_name(), start_unix_s=time.time())
    try:
        team = Team.of_world(point.ranks)
    except WrongTeamSize as error:
        return replace(started, status="kernel failed", text=str(error))
    try:
        done = _measure(job, point, team, started)
    except ClockNotLegal as error:
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


def _measure(job: Job, point: Point, team: Team, started: Measurement) -> Measurement:
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
        clocks = open_control(site)
        stack.callback(clocks.restore)
        clocks.set(point.setting)
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
        else:
            window, counts = _real_window(job, point, kernel, params, team, clocks, stack)
        _check_clocks(site, point.setting, window.achieved)
    return _record(started, window, counts)


def _real_window(
    job: Job,
    point: Point,
    kernel: Kernel,
    params: Any,
    team: Team,
    clocks: ClockControl,
    stack: contextlib.ExitStack,
) -> tuple[Window, dict[str, float] | None]:
    reads_meters = team.first_on_node()
    meters: list[Meter] = []
    for entry in job.site.meters if reads_meters else ():
        try:
            meters.append(open_meter(entry.kind, entry.options))
        except ValueError as error:
            raise MeterUnreadable(f"{entry.kind}: {error}", "mend the site file") from None
        stack.callback(meters[-1].close)
    prepared = kernel.prepare(params, team)
    stack.callback(prepared.close)
    protocol = job.protocol
    iterations = _warm_up(prepared, team, protocol)
    period_s = 1.0 / protocol.sampling_hz
    for _ in range(MAX_CALIBRATIONS):
        window = run_window(prepared, team, iterations, meters, clocks, period_s)
        seconds = window.end_ns / 1e9
        if seconds >= protocol.min_duration_s:
            break
        needed = protocol.min_duration_s / max(seconds, 1e-9) * 1.1
        iterations = int(team.decide(math.ceil(iterations * min(needed, 1000.0))))
    prepared.check()
    counts = team.sums(prepared.counts())
    if team.size > 1:
        window = _joined(window, team)
    return window, None if counts is None else _site_counts(job.site, counts)


def _warm_up(prepared: Prepared, team: Team, protocol: Protocol) -> int:
    """Run until ``warm_up_s`` have passed; the iterations that should fill a window."""
    iterations, spent_s, last_s = 1, 0.0, 0.0
    while spent_s < protocol.warm_up_s:
        begin = time.monotonic()
        prepared.run(iterations)
        last_s = team.maximum(time.monotonic() - begin)
        spent_s += last_s
        one_s = max(last_s / iterations, 1e-9)
        left = max(protocol.warm_up_s - spent_s, 0.0)
        iterations = int(team.decide(max(1, min(int(left / one_s), iterations * 100))))
    if not last_s:
        return 1
    return int(team.decide(max(1, math.ceil(protocol.min_duration_s / one_s * 1.05))))


def _joined(window: Window, team: Team) -> Window:
    """The window with the traces of every node, each meter named after its node."""
    mine = [replace(t, meter=f"{node_name()}/{t.meter}") for t in window.traces]
    return replace(window, traces=[t for traces in team.gather(mine) for t in traces])


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


def _record(started: Measurement, window: Window, counts: dict[str, float] | None) -> Measurement:
    total, each = total_energy(window.traces, window.end_ns)
    meters = {
        f"{t.meter}:{t.channel.name}": {
            "domain": t.channel.domain,
            "kind": t.channel.kind,
            "resolution": t.channel.resolution,
            "period_s": t.channel.period_s,
            "energy_j": each[f"{t.meter}:{t.channel.name}"].energy_j / window.iterations,
        }
        for t in window.traces
    }
    return replace(
        started,
        time_s=window.end_ns / 1e9 / window.iterations,
        iterations=window.iterations,
        energy_j=total.energy_j / window.iterations,
        energy_std_j=total.std_j / window.iterations,
        core_mhz_achieved=_nan(window.achieved.core_mhz),
        mem_mhz_achieved=_nan(window.achieved.mem_mhz),
        counts=counts,
        meters=meters,
        traces=(
            *(replace(t.trace, channel=f"{t.meter}:{t.channel.name}") for t in window.traces),
            *window.marks,
        ),
    )


def node_name() -> str:
    """The node as its scheduler knows it, else as it calls itself."""
    return os.environ.get("SLURMD_NODENAME") or platform.node()


def _provenance(job: Job) -> dict[str, Any]:
    found: dict[str, Any] = {
        "version": VERSION,
        "python": platform.python_version(),
        "simulated": job.site.simulated,
    }
    return found | {name: os.environ[name] for name in SLURM_VARIABLES if name in os.environ}


def _nan(value: float | None) -> float:
    return math.nan if value is None else float(value)
