"""Power against time of one measurement, from a store's Dataset to the report."""

from __future__ import annotations

import numpy as np

from analysis.measurements.power_trace import power_trace, row_trace
from dvfs.dataset import Columns
from dvfs.setting import Setting
from tests.frames import measured_columns, trace_columns

TRACES = [
    # measurement, channel, unit, samples as (ns, value)
    (0, "board", "W", [(0, 5.0), (10**9, 5.0)]),
    (1, "board", "W", [(-(10**8), 7.0), (5 * 10**8, 8.0), (11 * 10**8, 9.0)]),
    (1, "package", "J", [(0, 0.0), (10**9, 4.0), (10**9, 4.0), (2 * 10**9, 10.0)]),
    (1, "window", "1", [(0, 1.0), (10**8, 0.0), (2 * 10**8, 1.0), (3 * 10**8, 0.0)]),
    (1, "core clock", "MHz", [(0, 852.0), (10**9, 852.0)]),
    (1, "phase:near", "1", [(0, 1.0), (10**8, 0.0)]),
    (2, "board", "W", [(0, 30.0), (10**9, 30.0)]),
    (3, "board", "W", [(0, 8.0), (10**9, 8.0)]),
]


def traced(channels: tuple[str, ...] = ("board", "package", "window", "core clock", "phase:near")):
    """Measurements of 5, 8 and 30 W at site a, one that failed there, and one at site b."""
    of_all = {"params": '{"n": 1}', "core_mhz": 852.0, "mem_mhz": 924.0, "time_s": 0.1}
    of_each = [("a", "ok", 0.5), ("a", "ok", 0.8), ("a", "ok", 3.0), ("a", "timed out", 0.8)]
    rows = [
        {**of_all, "iterations": 10, "site": site, "status": status, "energy_j": energy_j}
        for site, status, energy_j in (*of_each, ("b", "ok", 0.8))
    ]
    kept = trace_columns(
        (*trace, *zip(*samples, strict=True)) for *trace, samples in TRACES if trace[1] in channels
    )
    return measured_columns(rows).replaced(kept)


def without_traces() -> Columns:
    """Where no trace was kept yet, a store has no samples."""
    return Columns(
        {
            name: values[:0] if name.startswith(("trace_", "row_")) else values
            for name, values in traced().items()
            if name not in ("time_ns", "value")
        }
    )


def test_the_measurement_of_median_power_is_shown_with_its_windows():
    trace = power_trace(traced(), "a")
    assert (trace.kernel, trace.setting, trace.iterations) == ("k n=1", Setting(852.0, 924.0), 10)
    assert trace.energy_j == 0.8
    assert set(trace.channels) == {"board", "package"}
    time_s, power_w = trace.channels["board"]
    np.testing.assert_allclose(time_s, [-0.1, 0.5, 1.1])
    np.testing.assert_array_equal(power_w, [7.0, 8.0, 9.0])
    np.testing.assert_allclose(trace.windows_s, [[0.0, 0.1], [0.2, 0.3]])


def test_a_counter_of_energy_gives_the_power_between_its_readings():
    time_s, power_w = power_trace(traced(), "a").channels["package"]
    np.testing.assert_allclose(time_s, [0.5, 1.5])
    np.testing.assert_allclose(power_w, [4.0, 6.0])


def test_a_counter_begins_anew_with_each_window():
    """Two windows of 4 W: between them the counter goes from 4 J back to 0, which is no power."""
    both = traced()
    row = both["trace_channel"].tolist().index("package")
    first = int(both["row_start"][row])
    both["time_ns"][first : first + 4] = np.array([0, 1, 3, 4]) * 10**9
    both["value"][first : first + 4] = [0.0, 4.0, 0.0, 4.0]
    time_s, power_w = power_trace(both, "a").channels["package"]
    np.testing.assert_allclose(time_s, [0.5, 3.5])
    np.testing.assert_allclose(power_w, [4.0, 4.0])


def test_without_a_window_channel_the_window_is_the_measured_time():
    trace = power_trace(traced(("board",)), "a")
    np.testing.assert_allclose(trace.windows_s, [[0.0, 1.0]])


def test_there_is_no_trace_where_none_is_kept():
    assert power_trace(traced(), "b") is None
    assert power_trace(traced(("core clock", "phase:near")), "a") is None
    assert power_trace(without_traces(), "a") is None


def test_the_trace_of_any_measurement_is_that_of_its_row():
    """Also of one that failed; and there is none where the store keeps no traces."""
    assert row_trace(traced(), 2).channels["board"][1].tolist() == [30.0, 30.0]
    assert row_trace(traced(), 3).energy_j == 0.8
    assert row_trace(traced(), 4) is None
    assert row_trace(without_traces(), 2) is None
