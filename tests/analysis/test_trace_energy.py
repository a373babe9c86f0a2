"""Energies recomputed from the stored samples, against the same sums over the traces in memory."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from benchmarks import trace_energy
from benchmarks.trace_energy import trace_energies
from campaign.store.compaction import compact
from campaign.store.dataset import open_dataset
from campaign.store.layout import create_store
from campaign.store.measurement import Measurement, Trace
from tests.campaign.test_journal import measurement
from tests.stores import write


def ragged(i: int, size: int) -> Measurement:
    own = np.random.default_rng(i)
    time_ns = np.cumsum(own.integers(1, 2_000_000, size)) - 5_000_000
    power = Trace("board", "node", "W", time_ns, own.uniform(0.0, 300.0, size).astype(np.float32))
    counter = Trace("rapl", "package", "J", time_ns[:1], np.array([0.0]))
    if size > 1:
        counter = Trace("rapl", "package", "J", time_ns, np.cumsum(own.uniform(0.0, 1.0, size)))
    clock = Trace("core", "", "MHz", time_ns, np.full(size, 1400.0))
    return measurement(i, traces=(power, counter, clock))


@pytest.mark.parametrize("block", [1, 100, 1 << 21])
def test_every_trace_of_any_length_in_blocks_of_any_size(tmp_path, monkeypatch, block):
    monkeypatch.setattr(trace_energy, "BLOCK_SAMPLES", block)
    store = create_store(tmp_path / "store", "test")
    expected = {}
    for part in ([1, 2, 3, 1000], [70_000, 7, 1], [2]):
        made = [ragged(len(expected) + i, size) for i, size in enumerate(part)]
        expected |= {one.point.id: one for one in made}
        write(store, *made)
        compact(store)
    dataset = open_dataset(store)
    energy_j = trace_energies(dataset).values
    ids = dataset["point_id"].values[dataset["trace_measurement"].values]
    assert len(energy_j) == 3 * len(expected)
    for trace_j, point_id, channel in zip(
        energy_j, ids, dataset["trace_channel"].values, strict=True
    ):
        trace = next(t for t in expected[point_id].traces if t.channel == channel)
        value, time_s = trace.value.astype(np.float64), trace.time_ns / 1e9
        if trace.unit == "MHz" or value.size == 1:
            assert np.isnan(trace_j)
        elif trace.unit == "J":
            assert trace_j == value[-1] - value[0]
        else:
            assert trace_j == pytest.approx(np.trapezoid(value, time_s), rel=1e-9)


def test_samples_between_traces_belong_to_none():
    """Padding of a shard, and traces of points that were measured again."""
    time_ns = np.array([0, 10, 20, 7, 9, 0, 5, 15, 0, 0]) * 10**9
    value = np.array([1.0, 2.0, 3.0, 1e9, 1e9, 4.0, 5.0, 6.0, 0.0, 0.0])
    dataset = xr.Dataset(
        {
            "trace_unit": ("trace", np.array(["W", "J"], object)),
            "row_start": ("trace", [0, 5]),
            "row_size": ("trace", [3, 3]),
            "time_ns": ("sample", time_ns),
            "value": ("sample", value),
        }
    )
    assert trace_energies(dataset).values.tolist() == [40.0, 2.0]
    swapped = dataset.assign(trace_unit=("trace", np.array(["J", "W"], object)))
    assert trace_energies(swapped).values.tolist() == [2.0, 77.5]


def test_a_store_without_traces(tmp_path):
    store = create_store(tmp_path / "store", "test")
    assert trace_energies(open_dataset(store)).sizes == {"trace": 0}
