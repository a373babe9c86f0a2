"""Measures a point: set clocks, warm up, measure windows, check, record, and restore the clocks."""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
import os
import platform
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from campaign.measure.clock_proof import (
    ClockProof,
    UnachievedClockError,
    proof_of_all,
    prove,
    timed_mhz,
)
from campaign.measure.energy import NodeEnergy, counted_channels
from campaign.measure.gpus_of_kernel import check_gpus
from campaign.measure.hardware_counters import counted, open_site_counters
from campaign.measure.mpi import measuring_ranks, program_launcher
from campaign.measure.protocol import (
    PointSetup,
    WindowedMeasurement,
    energy_of,
    idle_power,
    joined,
    joined_conditions,
    run_protocol,
)
from campaign.measure.sampler import UsedMeter
from campaign.measure.simulated_window import simulate_window
from campaign.measure.window import Window
from campaign.plan.campaign_file import Protocol
from campaign.plan.point import Point
from campaign.store.measurement import Measurement, Trace
from dvfs.dataset import (
    CLOCK_NOT_ACHIEVED,
    CLOCK_NOT_LEGAL,
    CLOCK_UNPROVEN,
    COMPLETE,
    COUNTERS,
    KERNEL_FAILED,
    METER_UNREADABLE,
    METRICS,
    OK,
    RECORDED_PREFIX,
    SIMULATED,
    WRONG_RESULT,
)
from dvfs.extras import MissingExtraError
from kernels.host.ranks import MpiError, RankError, Team, TeamSizeError, node_name
from kernels.kernel import Flagged, Kernel, KernelError, ResultError, WithMetrics
from kernels.registry import find_kernel
from sites.clocks import ClockControl, ClocksError, IllegalClockError, device_of, open_control
from sites.clocks.shared.core_clock import THIS_PROCESS, work_in
from sites.meters import MeterError, open_meter
from sites.simulated.machine import SimulationError
from sites.site_file import Site

SLURM_VARIABLES = (
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_CPU_FREQ_REQ",
    "SLURMD_TRES_FREQ",
)
STATUS_OF_ERRORS = (
    ((IllegalClockError, ClocksError), CLOCK_NOT_LEGAL),
    (UnachievedClockError, CLOCK_NOT_ACHIEVED),
    (MeterError, METER_UNREADABLE),
    (ResultError, WRONG_RESULT),
    ((KernelError, SimulationError), KERNEL_FAILED),
)
"""Classes of errors that end a measurement, and its status then."""
ENDING_S = 0.2
"""How long a program's processes may take to end after it."""
VERSION = importlib.metadata.version("dvfs-campaign")


@dataclass(frozen=True)
class PartitionSetup:
    """The set-up that all points of a partition share.

    ``kernels``, ``campaign``, ``partition``: names. ``id``: the id of this node's set-up
    record (:mod:`campaign.store.setups`); empty before the record is made.
    """

    site: Site
    protocol: Protocol
    kernels: tuple[str, ...]
    campaign: str = ""
    partition: str = ""
    id: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        fields: dict[str, Any] = _SETUP.dump_python(self, mode="json")
        return fields

    @staticmethod
    def from_dict(fields: Mapping[str, Any]) -> PartitionSetup:
        """The set-up of :meth:`as_dict`."""
        return _SETUP.validate_python(fields)


_SETUP = TypeAdapter(PartitionSetup)


def measure(
    setup: PartitionSetup,
    point: Point,
    attempt: int,
    keep: Callable[[Measurement], None] = lambda measurement: None,
) -> Measurement | None:
    """Measure a point. A failure gives a measurement too, with its status and text.

    Call it on every rank. It returns the measurement on rank 0, and None on the others. ``keep``:
    called with the measurement on rank 0, before the ranks of a failed point end.
    """
    started = Measurement(
        point=point,
        status=OK,
        attempt=attempt,
        node=node_name(),
        start_unix_s=time.time(),
        setup=setup.id,
    )
    try:
        ranks = measuring_ranks(point, setup.site)
        team = Team.of_world(ranks, program_launcher(point, setup.site))
    except (TeamSizeError, MissingExtraError, MpiError) as error:
        text = (
            f"{MissingExtraError('mpich')} (mpi4py: {error})"
            if isinstance(error, MpiError)
            else str(error)
        )
        measurement = replace(started, status=KERNEL_FAILED, text=text)
        keep(measurement)
        return measurement
    try:
        started = replace(started, node="+".join(dict.fromkeys(team.nodes)))
        measurement = _measure_or_fail(setup, point, team, started)
        if measurement.status not in COMPLETE:
            place = f"rank {team.rank} on {team.node}: " if team.rank else ""
            team.tell_failed(measurement.status, place + measurement.text)
    except RankError as error:
        measurement = replace(started, status=error.status, text=str(error))
    measurement = replace(measurement, provenance={**measurement.provenance, **_provenance(setup)})
    if team.rank == 0:
        keep(measurement)
    if measurement.status not in COMPLETE:
        team.end_failed()
    return measurement if team.rank == 0 else None


def _measure_or_fail(
    setup: PartitionSetup, point: Point, team: Team, started: Measurement
) -> Measurement:
    """The measurement, also for a failure on this rank."""
    try:
        return _measure(setup, point, team, started)
    except RankError:
        raise
    except MemoryError:
        status, text = KERNEL_FAILED, "out of memory"
    except Exception as error:  # a kernel's code may raise anything
        expected = [status for kinds, status in STATUS_OF_ERRORS if isinstance(error, kinds)]
        where = "".join(traceback.format_exception(error)[-3:]).strip()
        status, text = (expected[0], str(error)) if expected else (KERNEL_FAILED, where)
    return replace(started, status=status, text=text)


def _measure(setup: PartitionSetup, point: Point, team: Team, started: Measurement) -> Measurement:
    site = setup.site
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
        launcher = team.launcher
        is_remote = launcher is not None and not launcher.children
        try:
            with work_in(None if is_remote else THIS_PROCESS), _on_all_cpus_of(team):
                clocks = open_control(site)
        except ValueError as error:
            raise ClocksError(str(error), "correct clocks.options in the site file") from None
        if team.first_on_node():  # the other ranks of the node only read them
            stack.callback(clocks.restore)
            clocks.set(point.setting)
        team.barrier()
        counts: dict[str, float] | None
        if site.is_simulated:
            counts = _site_counts(site, kernel.counts(params) or {})
            phases = kernel.phases(params) if kernel.phases else {}
            window = simulate_window(
                site,
                counts,
                point.setting,
                setup.protocol.min_duration_s + 2.0 * setup.protocol.trim_s,
                point.id,
                {name: _site_counts(site, phase_counts) for name, phase_counts in phases.items()},
            )
            measured, proof = WindowedMeasurement([window], {}, []), ClockProof(SIMULATED)
        else:
            measured, counts = _measured(setup, kernel, params, team, clocks, stack)
            proof = proof_of_all(
                team.gather((team.node, prove(site, point.setting, measured.windows)))
            )
            if team.size > 1:
                measured = joined(measured, team)
    started = replace(
        started,
        status=CLOCK_UNPROVEN if proof.missing else OK,
        text=proof.missing,
        clock_proof=proof.by,
    )
    measurement = _record(started, measured, counts, setup.protocol.trim_s)
    if kernel.metrics is not None or measured.metrics:
        metrics = dict(kernel.metrics(params)) if kernel.metrics is not None else {}
        metrics |= measured.metrics
        measurement = replace(measurement, provenance={**measurement.provenance, METRICS: metrics})
    return measurement


@contextlib.contextmanager
def _on_all_cpus_of(team: Team) -> Iterator[None]:
    """Let this process run, in the body, on the CPUs of all ranks of its node: a launcher may have
    bound each rank to some CPUs, and the control of the first rank sets the clocks of all."""
    affinity = os.sched_getaffinity(0)
    ranks = zip(team.nodes, team.gather(affinity), strict=True)
    os.sched_setaffinity(0, set().union(*(cpus for node, cpus in ranks if node == team.node)))
    try:
        yield
    finally:
        os.sched_setaffinity(0, affinity)


def _measured(
    setup: PartitionSetup,
    kernel: Kernel,
    params: Any,
    team: Team,
    clocks: ClockControl,
    stack: contextlib.ExitStack,
) -> tuple[WindowedMeasurement, dict[str, float] | None]:
    """The windows on a real node, and the counts of one iteration, None if unknown."""
    meters: list[UsedMeter] = []
    for entry in setup.site.meters if team.first_on_node() else ():
        try:
            meter = open_meter(entry.kind, entry.options)
        except ValueError as error:
            raise MeterError(
                f"{entry.kind}: {error}", "correct the meter's options in the site file"
            ) from None
        stack.callback(meter.close)
        meters.append(UsedMeter(meter, entry.use))
    idle = idle_power(team, meters, clocks, setup.protocol)
    # Before the kernel starts its threads, so that these are counted too.
    counters, flags = open_site_counters(setup.site, team)
    if counters is not None:
        stack.callback(counters.close)
    if kernel.prepare is None:
        raise KernelError(f"{kernel.name} is counted only: there is no program to run")
    if team.first_on_node():
        flags = [*flags, *check_gpus(kernel, setup.site, team.nodes.count(team.node))]
    prepared = kernel.prepare(params, team)
    stack.callback(prepared.close)
    measured = run_protocol(
        PointSetup(
            prepared,
            team,
            meters,
            clocks,
            setup.protocol,
            counters=counters,
            timed_cpus=_timed_cpus(setup.site, team),
        ),
        runs_differ=kernel.starts_ranks,
    )
    left_running = _left_running() if kernel.starts_ranks else []
    prepared.check()
    if isinstance(prepared, Flagged):
        flags = [*flags, *prepared.flags()]
    counters_result = counted(setup.site, team, measured.windows)
    counts = team.sums(prepared.counts())
    if counts is None and counters_result.derived:
        counts = counters_result.derived
    measured = replace(
        measured,
        steps=idle | measured.steps,
        flags=[
            *measured.flags,
            *flags,
            *counters_result.flags,
            *_shared_node(setup, measured.windows[0]),
            *left_running,
        ],
        counters=counters_result.record,
        metrics=dict(prepared.metrics()) if isinstance(prepared, WithMetrics) else {},
    )
    return measured, None if counts is None else _site_counts(setup.site, counts)


def _left_running() -> list[str]:
    """A sentence if processes of a user's program run on after its end: they became children of the
    fork server, which has no others."""
    server = Path(f"/proc/{os.getppid()}")
    try:
        if b"campaign.measure.forkserver" not in (server / "cmdline").read_bytes():
            return []
        children = {*map(int, (server / "task" / server.name / "children").read_text().split())}
    except OSError:
        return []
    running = [child for child in children - {os.getpid()} if not _has_ended(child)]
    if running:
        time.sleep(ENDING_S)
        running = [child for child in running if not _has_ended(child)]
    if not running:
        return []
    return [
        f"{len(running)} processes of the program ran on after it had ended: their time is not "
        "measured; let it wait for them"
    ]


def _has_ended(process: int) -> bool:
    """Whether a process is gone, or a zombie (proc(5), stat)."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _shared_node(setup: PartitionSetup, window: Window) -> list[str]:
    """A sentence if other jobs may run on this node whose energy a meter counts, too. That of GPUs
    is of the job's GPUs alone."""
    partition = setup.site.partitions.get(setup.partition)
    if partition is None or partition.exclusive or not partition.has_jobs:
        return []
    if int(os.environ.get("SLURM_CPUS_ON_NODE", "0")) >= (os.cpu_count() or 1):
        return []  # the job has the whole node
    domains = {trace.channel.domain for trace in counted_channels(window.traces)} - {"gpu"}
    if not domains:
        return []
    return [
        "other jobs may run on the node (exclusive = false), and their energy counts, too: "
        + ", ".join(sorted(domains))
    ]


def _site_counts(site: Site, counts: Mapping[str, float]) -> dict[str, float]:
    """A kernel's counts by the site's classes."""
    total: dict[str, float] = {}
    for name, value in counts.items():
        site_class = site.class_of(name)
        total[site_class] = total.get(site_class, 0.0) + float(value)
    return total


def _timed_cpus(site: Site, team: Team) -> frozenset[int]:
    """The CPUs on which this rank times the core clock. One rank of the node times each CPU."""
    if device_of(site.clocks) != "cpu":
        return frozenset()
    cpus_of_ranks = [
        {(node, cpu) for cpu in cpus}
        for node, cpus in zip(team.nodes, team.gather(os.sched_getaffinity(0)), strict=True)
    ]
    return frozenset(
        cpu for _, cpu in cpus_of_ranks[team.rank].difference(*cpus_of_ranks[: team.rank])
    )


def _record(
    started: Measurement,
    measured: WindowedMeasurement,
    counts: dict[str, float] | None,
    trim_s: float,
) -> Measurement:
    windows = measured.windows
    iterations = sum(window.iterations for window in windows)
    energy, by_window = energy_of(windows, trim_s)
    conditions = joined_conditions([window.conditions for window in windows])
    meters = _meters(windows, by_window)
    flags = [*measured.flags, *(text for node in by_window for text in node.disagreements)]
    flags += [
        f"the energy is replayed from a recording: {name}"
        for name, meter in meters.items()
        if meter["counts"] and RECORDED_PREFIX in name
    ]
    if conditions.get("throttled"):
        flags.append(f"the clocks were throttled: {', '.join(conditions['throttled'])}")
    facts = {
        "protocol": measured.steps,
        COUNTERS: measured.counters,
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
        mem_mhz_achieved=_mean(window.achieved.clocks[1] for window in windows),
        core_mhz_timed=_mean(timed_mhz(windows)),
        counts=counts,
        meters=meters,
        provenance={name: fact for name, fact in facts.items() if fact},
        traces=_traces(windows),
    )


def _mean(clocks_mhz: Iterable[float | None]) -> float:
    read_mhz = [mhz for mhz in clocks_mhz if mhz is not None]
    return sum(read_mhz) / len(read_mhz) if read_mhz else math.nan


def _meters(
    windows: Sequence[Window], by_window: Sequence[NodeEnergy]
) -> dict[str, dict[str, Any]]:
    """The properties of every channel, and its energy of one iteration."""
    meters: dict[str, dict[str, Any]] = {}
    for t in windows[0].traces:
        energies = [
            (node.by_channel[t.name], window.iterations)
            for window, node in zip(windows, by_window, strict=True)
            if t.name in node.by_channel
        ]
        iterations = sum(n for _, n in energies)
        meters[t.name] = {
            "domain": t.channel.domain,
            "kind": t.channel.kind,
            "resolution": t.channel.resolution,
            "period_s": t.channel.period_s,
            "energy_j": sum(energy.energy_j for energy, _ in energies) / iterations,
            "energy_std_j": sum(energy.std_j for energy, _ in energies) / iterations,
            "counts": t.name in by_window[0].counted,
        }
    return meters


def _traces(windows: Sequence[Window]) -> tuple[Trace, ...]:
    """The trace of every channel over all windows, with times from the start of the first window.

    With several windows, the channel ``window`` marks the start and end of each.
    """
    if len(windows) == 1:
        named = (replace(t.trace, channel=t.name) for t in windows[0].traces)
        return (*named, *windows[0].marks)
    parts: dict[str, list[Trace]] = {}
    for window in windows:
        since_ns = window.start_ns - windows[0].start_ns
        edges_ns = np.array([0, window.end_ns], np.int64)
        traces = [Trace("window", "", "1", edges_ns, np.array([1.0, 0.0]))]
        traces += [replace(t.trace, channel=t.name) for t in window.traces]
        for trace in (*traces, *window.marks):
            shifted = replace(trace, time_ns=trace.time_ns + since_ns)
            parts.setdefault(trace.channel, []).append(shifted)
    return tuple(
        replace(
            channel_traces[0],
            time_ns=np.concatenate([t.time_ns for t in channel_traces]),
            value=np.concatenate([t.value for t in channel_traces]),
        )
        for channel_traces in parts.values()
    )


def _provenance(setup: PartitionSetup) -> dict[str, Any]:
    provenance: dict[str, Any] = {"simulated": setup.site.is_simulated}
    if not setup.id:  # otherwise the set-up's record has it, once for each run and node
        provenance |= {"version": VERSION, "python": platform.python_version()}
    return provenance | {name: os.environ[name] for name in SLURM_VARIABLES if name in os.environ}


def _nan(value: float | None) -> float:
    return math.nan if value is None else float(value)
