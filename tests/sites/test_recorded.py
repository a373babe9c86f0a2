"""A recording that is replayed: the times of its rows, its end, and invalid files."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from sites.meters import Buffered, MeterError, open_meter
from sites.meters.recorded import RecordedMeter

CHANNELS = {
    "cpu": {"domain": "package", "kind": "energy", "unit": "mJ"},
    "cpu_w": {"domain": "package", "kind": "power", "unit": "W", "same_as": "cpu"},
}
ROWS = 200
STEP_S = 0.01


def power_w(time_s: float) -> float:
    return 50 + 20 * math.sin(30 * time_s)


def energy_j(time_s: float) -> float:
    """The integral of the power from 0."""
    return 50 * time_s + 20 / 30 * (1 - math.cos(30 * time_s))


def write(root: Path, text: str | None = None) -> Path:
    path = root / "traces/trace.csv"
    path.parent.mkdir(exist_ok=True)
    if text is None:
        times_s = [1000 + i * STEP_S for i in range(ROWS)]
        lines = [f"{t},x,{1000 * energy_j(t - 1000)!r},{power_w(t - 1000)!r}" for t in times_s]
        text = "\n".join(["time_s,note,cpu,cpu_w", *lines, ""])
    path.write_text(text)
    return path


def open_recorded(root: Path, **options: object) -> RecordedMeter:
    given = {"path": "/traces/trace.csv", "channels": CHANNELS, **options}
    meter = open_meter("recorded", given, root)
    assert isinstance(meter, RecordedMeter)
    return meter


def test_rows_are_replayed_at_their_times_until_the_end(tmp_path: Path) -> None:
    write(tmp_path)
    before_ns = time.monotonic_ns()
    meter = open_recorded(tmp_path)
    after_ns = time.monotonic_ns()
    assert isinstance(meter, Buffered)
    drained = []
    start_ns = meter.read().time_ns if meter.read().values[0] == 0 else before_ns
    assert before_ns <= start_ns <= after_ns
    for _ in range(5):
        now = meter.read()
        assert now.time_ns <= time.monotonic_ns()
        drained += meter.drain()
        assert drained[-1].time_ns >= now.time_ns
        time.sleep(0.03)
    time.sleep(ROWS * STEP_S)
    with pytest.raises(MeterError, match=r"trace\.csv ended after 2 s"):
        meter.read()
    drained += meter.drain()
    with pytest.raises(MeterError, match="ended"):
        meter.drain()
    assert len(drained) == ROWS
    for i, reading in enumerate(drained):
        assert reading.time_ns == pytest.approx(drained[0].time_ns + i * STEP_S * 1e9, abs=1000)
        assert reading.values == pytest.approx((energy_j(i * STEP_S), power_w(i * STEP_S)))
    meter.close()
    with pytest.raises(MeterError, match="closed"):
        meter.read()


def test_the_channels_of_a_recording(tmp_path: Path) -> None:
    write(tmp_path)
    energy, power = open_recorded(tmp_path).channels
    assert (energy.name, energy.domain, energy.kind) == ("recorded/cpu", "package", "energy")
    assert (power.name, power.same_as) == ("recorded/cpu_w", "recorded/cpu")
    assert energy.period_s == pytest.approx(STEP_S)
    assert energy.stamped


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no column time_s"),
        ("time_s,cpu\n0,1\n1,2\n", "no column cpu_w"),
        ("time_s,cpu,cpu,cpu_w\n0,1,1,1\n1,2,1,1\n", "several columns cpu"),
        ("time_s,cpu,cpu_w\n0,1,1\n", "fewer than two rows"),
        ("time_s,cpu,cpu_w\n0,1,1\n1,2,\n", "line 3: cpu_w is ''"),
        ("time_s,cpu,cpu_w\n0,1,1\n1,2\n", "line 3: cpu_w is ''"),
        ("time_s,cpu,cpu_w\n0,1,1\n1,nan,3\n", "line 3: cpu is 'nan'"),
        ("time_s,cpu,cpu_w\n0,1,1\n0,2,3\n", "line 3: time_s does not increase"),
        ("time_s,cpu,cpu_w\n0,2000,1\n1,1000,3\n", "energy cpu goes back from 2 J to 1 J"),
    ],
)
def test_invalid_recordings(tmp_path: Path, text: str, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(MeterError, match=said) as caught:
        open_recorded(tmp_path)
    assert str(path) in caught.value.what


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(MeterError, match=r"cannot be read.*CSV with a header: time_s,cpu"):
        open_recorded(tmp_path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"file": "a"}, "no option file.*path, channels"),
        ({"path": 3}, "path is a CSV file"),
        ({"path": "trace.csv"}, "absolute path.*not 'trace.csv'"),
        ({"channels": {}}, "table of columns"),
        ({"channels": {"cpu": {"domain": "package", "kind": "energy"}}}, "domain, kind, unit"),
        ({"channels": {"cpu": {**CHANNELS["cpu"], "unit": "W"}}}, "one of J, mJ"),
        ({"channels": {"cpu": {**CHANNELS["cpu"], "kind": "heat"}}}, "energy or power"),
        ({"channels": {"cpu": {**CHANNELS["cpu"], "domain": "cpu"}}}, "one of node"),
        ({"channels": {"cpu": {**CHANNELS["cpu"], "inside": "node"}}}, "not another channel"),
    ],
)
def test_invalid_options(tmp_path: Path, options: dict[str, object], said: str) -> None:
    write(tmp_path)
    with pytest.raises(ValueError, match=said):
        open_recorded(tmp_path, **options)
