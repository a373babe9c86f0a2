"""The checker must notice what it is there for, or the fault run proves nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from campaign.plan.plan import Plan
from campaign.store.compaction import compact, equalize_generations
from campaign.store.dataset import open_dataset
from campaign.store.journal import JournalWriter, encode
from campaign.store.layout import create_store, driver_lock, open_store
from campaign.store.measurement import Measurement
from tests.faults.checker import check_dataset, expected_of, judge, measured_ids
from tests.faults.local_faults import Trial, lost
from tests.faults.local_run import measured_again, points_acknowledged, points_said
from tests.faults.small_campaign import SCRATCH, measured_here, plan_of, write_campaign

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("campaign") / "c"
    write_campaign(folder, kernels=2, settings=2)
    return folder


@pytest.fixture(scope="module")
def plan(folder: Path) -> Plan:
    return plan_of(folder)


@pytest.fixture(scope="module")
def measurements(plan: Plan) -> list[Measurement]:
    """What a measuring subprocess would bring of every point."""
    return [measured_here(plan, point) for point in plan.points]


def make(root: Path, measurements: list[Measurement], compacted: bool = True) -> Path:
    """A store that holds these, written as a driver writes it."""
    store = create_store(root, "faults")
    with driver_lock(store):
        with JournalWriter(store.journals) as journal:
            for measurement in measurements:
                journal.append(encode(measurement))
        if compacted:
            compact(store)
            equalize_generations(store)
    return root


def with_sample(measurement: Measurement, change: float) -> Measurement:
    """The same, one sample of its trace changed."""
    trace = measurement.traces[0]
    value = trace.value.copy()
    value[3] = np.nextafter(value[3], np.float32(change))
    return replace(measurement, traces=(replace(trace, value=value),))


def test_a_right_store_is_complete_compacted_or_not(
    tmp_path: Path, plan: Plan, measurements: list[Measurement], folder: Path
) -> None:
    for compacted in (True, False):
        root = make(tmp_path / str(compacted), measurements, compacted)
        judgement = judge(plan, root, not compacted, folder / SCRATCH)
        assert (judgement.word, judgement.findings) == ("complete", [])
        assert str(judgement) == "complete: 4 of 4 points measured"


def test_no_store_and_a_part_of_one_are_resumable_and_not_complete(
    tmp_path: Path, plan: Plan, measurements: list[Measurement]
) -> None:
    assert judge(plan, tmp_path / "none", True).word == "resumable"
    assert judge(plan, tmp_path / "none", False).word == "wrong"
    root = make(tmp_path / "store", measurements[:-1])
    assert str(judge(plan, root, True)) == "resumable: 3 of 4 points measured"
    assert judge(plan, root, False).findings == [f"point {plan.points[-1].id}: not measured"]


@pytest.mark.parametrize("compacted", [True, False])
def test_one_sample_that_differs_by_one_bit_is_found(
    tmp_path: Path, plan: Plan, measurements: list[Measurement], compacted: bool
) -> None:
    bent = [with_sample(measurements[0], 1e9), *measurements[1:]]
    root = make(tmp_path / "store", bent, compacted)
    findings = judge(plan, root, True).findings
    assert findings == [
        f"point {plan.points[0].id}: simulated:board's value differs from the simulated one"
    ]


def test_a_measurement_whose_trace_is_not_there_is_found(
    tmp_path: Path, plan: Plan, measurements: list[Measurement]
) -> None:
    root = make(tmp_path / "store", [replace(measurements[0], traces=()), *measurements[1:]])
    findings = judge(plan, root, True).findings
    assert findings == [f"point {plan.points[0].id}: the trace of simulated:board is missing"]


@pytest.mark.parametrize("column", ["energy_j", "time_s", "core_v", "iterations"])
def test_one_figure_that_differs_from_the_simulated_one_is_found(
    tmp_path: Path, plan: Plan, measurements: list[Measurement], column: str
) -> None:
    wrong = replace(measurements[1], **{column: getattr(measurements[1], column) * 2})
    root = make(tmp_path / "store", [measurements[0], wrong, *measurements[2:]])
    (finding,) = judge(plan, root, True).findings
    assert finding.startswith(f"point {plan.points[1].id}: {column} is ")


def test_a_failure_is_resumable_and_not_complete(
    tmp_path: Path, plan: Plan, measurements: list[Measurement]
) -> None:
    failed = Measurement(point=plan.points[0], status="node lost", text="gone")
    root = make(tmp_path / "store", [failed, *measurements[1:]])
    assert str(judge(plan, root, True)) == "resumable: 3 of 4 points measured"
    assert judge(plan, root, False).findings == [f"point {plan.points[0].id}: 'node lost'"]


def test_a_point_measured_twice_or_never_planned_is_found(
    tmp_path: Path, plan: Plan, measurements: list[Measurement]
) -> None:
    root = make(tmp_path / "store", measurements)
    dataset = open_dataset(open_store(root)).load()
    expected = expected_of(plan)
    findings: list[str] = []
    assert check_dataset(dataset, dict, expected, False, findings) == 4
    assert not findings
    doubled = dataset.isel(measurement=[0, 1, 2, 3, 0])
    check_dataset(doubled, dict, expected, False, findings)
    assert f"point {dataset['point_id'].values[0]}: measured 2 times" in findings
    stray = plan.points[0].id
    findings.clear()
    others = {name: want for name, want in expected.items() if name != stray}
    check_dataset(dataset, dict, others, False, findings)
    assert findings == [f"point {stray}: was never planned"]


def test_traces_that_overlap_or_reach_beyond_the_samples_are_found(
    tmp_path: Path, plan: Plan, measurements: list[Measurement]
) -> None:
    root = make(tmp_path / "store", measurements)
    dataset = open_dataset(open_store(root)).load()
    starts = dataset["row_start"].values
    for start in (int(starts.min()) + 1, dataset.sizes["sample"]):
        bent = starts.copy()
        bent[np.argmax(starts)] = start
        findings: list[str] = []
        changed = dataset.assign(row_start=("trace", bent))
        check_dataset(changed, dict, expected_of(plan), False, findings)
        assert any("its trace lies at" in finding for finding in findings), findings


def test_a_flipped_bit_in_a_shard_is_found(
    tmp_path: Path, plan: Plan, measurements: list[Measurement]
) -> None:
    root = make(tmp_path / "store", measurements)
    shard = root / "traces.zarr" / "value" / "c" / "0"
    data = bytearray(shard.read_bytes())
    data[100] ^= 1
    shard.write_bytes(bytes(data))
    assert judge(plan, root, True).word == "wrong"


@pytest.mark.parametrize("name", [".campaign.json.new", "index/zarr.0123.partial", "tls/cert.pem"])
def test_what_a_killed_driver_left_is_found(
    tmp_path: Path, plan: Plan, measurements: list[Measurement], name: str
) -> None:
    root = make(tmp_path / "store", measurements)
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text("half")
    assert judge(plan, root, True).word == "complete"
    assert judge(plan, root, False).findings == [f"left behind: {name}"]


def test_every_key_is_found_and_their_folder_alone_is_not(
    tmp_path: Path, plan: Plan, measurements: list[Measurement]
) -> None:
    root = make(tmp_path / "store", measurements)
    (root / "tls" / "old").mkdir(parents=True)
    assert judge(plan, root, False).word == "complete"
    for name in ("tls/key.pem", "tls/old/key.pem"):
        (root / name).touch()
    assert judge(plan, root, False).findings == [
        "left behind: tls/key.pem",
        "left behind: tls/old/key.pem",
    ]


def test_measured_are_the_points_that_did_not_fail(
    tmp_path: Path, plan: Plan, measurements: list[Measurement]
) -> None:
    assert measured_ids(tmp_path / "none") == set()
    failed = Measurement(point=plan.points[0], status="node lost", text="gone")
    for compacted in (True, False):
        root = make(tmp_path / str(compacted), [failed, *measurements[1:]], compacted)
        assert measured_ids(root) == {point.id for point in plan.points[1:]}


def test_points_that_a_harmed_run_reported_or_held_and_are_gone_are_found(
    tmp_path: Path, plan: Plan, measurements: list[Measurement], folder: Path
) -> None:
    shutil.copytree(folder, tmp_path / "c")
    trial = Trial(folder=tmp_path / "c", generator=Random(1), exit_code=1)
    trial.output = "/s: 3 of 4 points measured, 0 failed, 1 left: not complete"
    trial.held = {point.id for point in plan.points[:2]}
    make(trial.store, measurements[:3])
    assert lost(trial, trial.judge(True)) == []
    shutil.rmtree(trial.store)
    make(trial.store, measurements[1:3])
    assert lost(trial, trial.judge(True)) == [
        "3 points were reported as measured, and 2 are there",
        f"1 points that were measured are gone, such as {plan.points[0].id}",
    ]
    trial.exit_code = 0
    assert "exit code 0, and resumable: 2 of 4 points measured" in lost(trial, trial.judge(True))


def test_points_that_a_run_reports_are_counted_and_those_measured_again() -> None:
    begun = "a/p: 30 points to measure; dashboard x\na/q: 12 points to measure; dashboard y\n"
    killed = begun + "a/p: 3 done, 0 failed, 27 left, about 9 s left\na/q: 4 done, 1 failed\n"
    assert points_acknowledged(killed) == 7
    ended = killed + "/s: 20 of 45 points measured, 1 failed, 24 left: not complete\n"
    assert points_acknowledged(ended) == 20
    assert points_said(ended) == (20, 45)
    assert points_said(killed) is None
    assert measured_again(begun, 45, 3) == []
    assert measured_again(begun, 45, 5) == ["2 points that were measured are measured again"]


def test_a_torn_journal_and_a_workers_scratch_are_found(
    tmp_path: Path, plan: Plan, measurements: list[Measurement]
) -> None:
    root = make(tmp_path / "store", measurements)
    (root / "journals" / "n1-1-0.journal").write_bytes(encode(measurements[0])[:-10])
    scratch = tmp_path / "scratch"
    (scratch / "campaign-x1").mkdir(parents=True)
    (scratch / "dask-scratch-space" / "worker-1").mkdir(parents=True)
    findings = judge(plan, root, False, scratch).findings
    assert [finding.split(",")[0] for finding in findings] == [
        "left behind: journals/n1-1-0.journal",
        "left in scratch: campaign-x1",
        "left in scratch: dask-scratch-space/worker-1",
    ]


def test_the_program_ends_with_1_where_something_was_found(
    tmp_path: Path, folder: Path, measurements: list[Measurement]
) -> None:
    root = make(tmp_path / "store", measurements[:2])
    words = [sys.executable, "-m", "tests.faults.checker", str(folder / "c.toml"), str(root)]
    for more, code, last in (
        ([], 1, "wrong: 2 of 4 points measured"),
        (["--resumable"], 0, "resumable: 2 of 4 points measured"),
    ):
        done = subprocess.run(
            [*words, *more], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout.splitlines()[-1]) == (code, last), done.stderr
