"""Says of a store, from its campaign's plan alone, whether it is right, and whether it is complete.

``python -m tests.faults.checker CAMPAIGN.toml STORE [--resumable] [--scratch DIR]``: a line a
finding, then a line that says ``complete``, ``resumable`` or ``wrong``; exit code 0 where nothing
was found. What a simulated point must have measured is computed here by the simulated machine: the
same point is the same measurement, bit for bit, whoever measures it. Without ``--resumable`` every
planned point must be measured, and nothing left behind by whoever was killed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from campaign.measure.protocol import energy_of
from campaign.measure.simulated_window import simulate_window
from campaign.plan.plan import Plan, make_plan
from campaign.plan.point import Point
from campaign.store.columns import SAMPLES
from campaign.store.dataset import current_tables, open_dataset
from campaign.store.journal import TornRecordError, read
from campaign.store.layout import DamagedStoreError, NotAStoreError, Store, open_store
from campaign.store.measurement import Trace
from dvfs.dataset import FAILURES, OK
from kernels.registry import find_kernel

UNFINISHED = (".new", ".partial", ".tmp")
"""How files are named that are still to be renamed to what they shall be."""

READS = 3
"""So often a store at work is read before its damage is believed."""

TracesOfPoints = dict[str, dict[str, Trace | None]]
"""Point id -> channel -> its trace; None where it is there and can't be read."""


@dataclass(frozen=True)
class Expected:
    """What a point must have measured: its row's columns, and a trace a channel."""

    row: Mapping[str, Any]
    traces: Mapping[str, Trace]


@dataclass(frozen=True)
class Judgement:
    """What the checker found. ``measured``: planned points that are measured."""

    findings: list[str]
    planned: int
    measured: int

    @property
    def word(self) -> str:
        """``wrong``, ``complete`` or ``resumable``."""
        if self.findings:
            return "wrong"
        return "complete" if self.measured == self.planned else "resumable"

    def __str__(self) -> str:
        return f"{self.word}: {self.measured} of {self.planned} points measured"


def measured_ids(root: Path) -> set[str]:
    """The points that the store at ``root`` holds as measured; it may be at work.

    Raises:
        DamagedStoreError: no generation is whole.
    """
    if not (root / "store.json").exists():
        return set()
    for attempt in range(READS):
        try:
            rows = current_tables(open_store(root))[0].measurements
        except DamagedStoreError:  # a driver may have removed the generation meanwhile
            if attempt == READS - 1:
                raise
        else:
            return {str(point_id) for point_id in rows["point_id"][rows["status"] == OK]}
    raise AssertionError


def expected_of(plan: Plan) -> dict[str, Expected | None]:
    """Point id -> what it must have measured; None where it is not simulated."""
    return {point.id: _expected(plan, point) for point in plan.points}


def _expected(plan: Plan, point: Point) -> Expected | None:
    site = plan.sites[point.site]
    if not site.is_simulated:
        return None
    kernel = find_kernel(point.kernel)
    params = kernel.params.model_validate_json(point.params)
    counts: dict[str, float] = {}
    for name, n in (kernel.counts(params) or {}).items():
        counts[site.class_of(name)] = counts.get(site.class_of(name), 0.0) + float(n)
    protocol = plan.campaign.protocol
    length_s = protocol.min_duration_s + 2.0 * protocol.trim_s
    window = simulate_window(site, counts, point.setting, length_s, point.id)
    energy, _ = energy_of([window], protocol.trim_s)
    core_v, mem_v = site.volts(point.setting)
    row = {
        "site": point.site,
        "partition": point.partition,
        "kernel": point.label,
        "params": point.params,
        "repeat": point.repeat,
        "ranks": point.ranks,
        "core_mhz": point.setting.core_mhz,
        "mem_mhz": point.setting.mem_mhz,
        "core_mhz_achieved": point.setting.core_mhz,
        "mem_mhz_achieved": point.setting.mem_mhz,
        "core_v": core_v,
        "mem_v": mem_v,
        "voltage_origin": "table",
        "time_s": window.end_ns / 1e9 / window.iterations,
        "iterations": window.iterations,
        "energy_j": energy.energy_j,
        "energy_std_j": energy.std_j,
        "simulated": True,
        "imported": False,
        **{f"n_{name}": n for name, n in counts.items()},
    }
    return Expected(row, {trace.name: trace.trace for trace in window.traces})


def judge(
    plan: Plan,
    root: Path,
    resumable: bool,
    scratch: Path | None = None,
    expected: Mapping[str, Expected | None] | None = None,
) -> Judgement:
    """Check the store at ``root`` against the plan; only reads.

    ``resumable``: points may be missing, and what was killed may have left files behind.
    ``scratch``: the nodes' scratch folder, in which nothing may be left.
    """
    if expected is None:
        expected = expected_of(plan)
    findings: list[str] = []
    measured = 0
    try:
        store = open_store(root)
    except NotAStoreError as error:
        # Killed before store.json was there, nothing can have been measured.
        if not (resumable and not (root / "store.json").exists() and not _holds_data(root)):
            findings.append(str(error))
    else:
        try:
            measured = _check_store(store, expected, resumable, findings)
        except Exception as error:
            findings.append(f"the store can't be read: {type(error).__name__}: {error}")
    if not resumable:
        findings += _left_behind(root)
        if scratch is not None:
            findings += _left_in_scratch(scratch)
    return Judgement(findings, len(expected), measured)


def _holds_data(root: Path) -> bool:
    """Whether a folder that is no store has records or samples in it all the same."""
    return any(path.is_file() and path.stat().st_size for path in root.glob("journals/*")) or (
        (root / "traces.zarr").exists()
    )


def _check_store(
    store: Store, expected: Mapping[str, Expected | None], resumable: bool, findings: list[str]
) -> int:
    dataset = open_dataset(store)
    in_journals = partial(_traces_in_journals, store, findings)
    return check_dataset(dataset, in_journals, expected, resumable, findings)


def check_dataset(
    dataset: xr.Dataset,
    read_journals: Callable[[], TracesOfPoints],
    expected: Mapping[str, Expected | None],
    resumable: bool,
    findings: list[str],
) -> int:
    """Compare what a reader sees with what it must be; how many planned points are measured.

    ``read_journals`` brings the traces that the Dataset does not hold yet; it is called only where
    some are wanted. What is wrong is added to ``findings``.
    """
    ids = [str(point_id) for point_id in dataset["point_id"].values]
    status = [str(state) for state in dataset["status"].values]
    for point_id, times in Counter(ids).items():
        if times > 1:
            findings.append(f"point {point_id}: measured {times} times")
        if point_id not in expected:
            findings.append(f"point {point_id}: was never planned")
    traces = _traces_in_zarr(dataset, ids, findings)
    if any(
        state == OK and point_id not in traces for point_id, state in zip(ids, status, strict=True)
    ):
        traces = read_journals() | traces
    measured = 0
    for row, (point_id, state) in enumerate(zip(ids, status, strict=True)):
        if state != OK:
            if state not in FAILURES or not resumable:
                findings.append(f"point {point_id}: {state!r}")
            continue
        measured += point_id in expected
        want = expected.get(point_id)
        if want is None:
            continue
        findings += _differing_columns(dataset, row, point_id, want)
        findings += _differing_traces(point_id, traces.get(point_id, {}), want)
    if not resumable:
        findings += [
            f"point {point_id}: not measured" for point_id in sorted(set(expected) - set(ids))
        ]
    return measured


def _traces_in_zarr(dataset: xr.Dataset, ids: list[str], findings: list[str]) -> TracesOfPoints:
    """The compacted traces."""
    traces: TracesOfPoints = {}
    size = dataset.sizes.get("sample", 0)
    end_before = 0
    columns = ("row_start", "row_size", "trace_measurement", "trace_channel", "trace_domain")
    listed = zip(*(dataset[name].values for name in (*columns, "trace_unit")), strict=True)
    rows = sorted(listed, key=lambda row: int(row[0]))
    whole = _samples(dataset, 0, max((int(row[0] + row[1]) for row in rows), default=0))
    for start, length, owner, channel, domain, unit in rows:
        if length == 0:
            continue  # of an earlier attempt
        if not 0 <= owner < len(ids):
            findings.append(f"a trace from sample {start} on belongs to no measurement")
            continue
        point_id = ids[owner]
        if start < end_before or length < 0 or start + length > size:
            findings.append(f"point {point_id}: its trace lies at {start} + {length} of {size}")
            continue
        end_before = start + length
        mine = traces.setdefault(point_id, {})
        if channel in mine:
            findings.append(f"point {point_id}: two traces of {channel}")
        if isinstance(whole, str):  # some chunk is damaged: which traces lie in it?
            cut = _samples(dataset, start, end_before)
        else:
            cut = {name: values[start:end_before] for name, values in whole.items()}
        if isinstance(cut, str):
            findings.append(f"point {point_id}: its trace can't be read: {cut}")
            mine[channel] = None
        else:
            mine[channel] = Trace(channel, domain, unit, cut["time_ns"], cut["value"])
    return traces


def _samples(dataset: xr.Dataset, start: int, end: int) -> dict[str, np.ndarray] | str:
    """The samples from ``start`` to ``end``, or why they can't be read."""
    try:
        return {name: dataset[name][start:end].values for name in SAMPLES if name in dataset}
    except Exception as error:  # Zarr's codecs have no error in common
        return f"{type(error).__name__}: {error}"


def _traces_in_journals(store: Store, findings: list[str]) -> TracesOfPoints:
    """The traces of the records that are not compacted."""
    traces: TracesOfPoints = {}
    for entry in current_tables(store)[1].entries:
        try:
            measurement = read(entry)
        except (TornRecordError, FileNotFoundError) as error:
            findings.append(f"point {entry.point_id}: its record can't be read: {error}")
            continue
        traces.setdefault(entry.point_id, {t.channel: t for t in measurement.traces})
    return traces


def _differing_columns(
    dataset: xr.Dataset, row: int, point_id: str, want: Expected
) -> Iterator[str]:
    counts = {str(name) for name in dataset.data_vars if str(name).startswith("n_")}
    wanted = {name: float("nan") for name in counts} | dict(want.row)
    for name, value in wanted.items():
        got = dataset[name].values[row] if name in dataset else None
        both_missing = value != value and got != got
        if got != value and not both_missing:
            yield f"point {point_id}: {name} is {got!r}, and must be {value!r}"


def _differing_traces(
    point_id: str, got: Mapping[str, Trace | None], want: Expected
) -> Iterator[str]:
    for channel in sorted(set(got) | set(want.traces)):
        if channel not in want.traces:
            yield f"point {point_id}: a trace of {channel}, which nothing measures"
        elif channel not in got:
            yield f"point {point_id}: the trace of {channel} is missing"
        else:
            has, must = got[channel], want.traces[channel]
            if has is None:
                continue  # reported when it was read
            if (has.domain, has.unit) != (must.domain, must.unit):
                yield f"point {point_id}: {channel}'s trace is of {has.domain!r} in {has.unit!r}"
            for name, dtype in SAMPLES.items():
                values = [np.asarray(getattr(trace, name)).astype(dtype) for trace in (has, must)]
                if values[0].tobytes() != values[1].tobytes():
                    yield f"point {point_id}: {channel}'s {name} differs from the simulated one"


def _left_behind(root: Path) -> Iterator[str]:
    """What a killed writer has left in the store, and the next run should have removed."""
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root)
        unfinished = path.name.endswith(UNFINISHED) or path.name.startswith(".")
        # The keys; their folder alone harms nobody.
        if unfinished or (name.parts[0] == "tls" and not path.is_dir()):
            yield f"left behind: {name}"
    for path in sorted((root / "journals").glob("*")):
        yield f"left behind: journals/{path.name}, {path.stat().st_size} bytes"


def _left_in_scratch(scratch: Path) -> Iterator[str]:
    """Dask keeps a folder of its own with locks in it; nothing else, and no worker's folder."""
    for path in sorted(scratch.iterdir()):
        if path.name != "dask-scratch-space":
            yield f"left in scratch: {path.name}"
            continue
        for inner in sorted(path.iterdir()):
            if inner.is_dir():
                yield f"left in scratch: {path.name}/{inner.name}"


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("campaign", type=Path, metavar="CAMPAIGN.toml")
    parser.add_argument("store", type=Path, metavar="STORE")
    parser.add_argument("--resumable", action="store_true", help="points may be missing")
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="must hold nothing")
    arguments = parser.parse_args()
    plan = make_plan(arguments.campaign)
    judgement = judge(plan, arguments.store, arguments.resumable, arguments.scratch)
    for line in judgement.findings:
        print(line)
    print(judgement)
    return 1 if judgement.findings else 0


if __name__ == "__main__":
    sys.exit(main())
