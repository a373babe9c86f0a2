"""A store's samples as xarray and zarr alone read them: with units, and padding that is missing."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr

from campaign.results import open_store as open_results
from campaign.store.columns import SHARD_SAMPLES
from campaign.store.compaction import compact
from campaign.store.dataset import open_dataset, trace_of
from campaign.store.layout import Store, create_store, open_store
from campaign.store.measurement import Trace
from dvfs.dataset import MEASUREMENT_COLUMNS, TRACE_COLUMNS
from dvfs.errors import ArgumentError
from tests.campaign.test_journal import measurement
from tests.stores import stored, write

ARCHIVE = Path(__file__).parents[1] / "data" / "stores" / "format-2.tar.gz"
LEAST = np.iinfo(np.int64).min


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three measurements, of which two are in the first shard."""
    store = create_store(tmp_path / "store", "test")
    for repeats in ((0, 1), (2,)):
        write(store, *(measurement(repeat, 1000 + repeat) for repeat in repeats))
        compact(store)
    return store


def test_a_bare_mean_is_that_of_the_samples(store):
    values = np.concatenate([measurement(i, 1000 + i).traces[0].value for i in range(3)])
    expected = values.astype(np.float64).mean()
    dataset = open_dataset(store)
    assert dataset.sizes["sample"] == 2 * SHARD_SAMPLES
    assert float(dataset["value"].mean()) == pytest.approx(expected, rel=1e-12)
    assert dataset["time_ns"].dtype == np.int64
    padding = np.isnan(dataset["value"].values)
    assert padding.sum() == 2 * SHARD_SAMPLES - 3003
    np.testing.assert_array_equal(dataset["time_ns"].values == LEAST, padding)
    alone = xr.open_zarr(store.traces, consolidated=False)
    assert float(alone["value"].mean()) == pytest.approx(expected, rel=1e-12)
    np.testing.assert_array_equal(np.isnan(alone["time_ns"].values), padding)
    group = zarr.open_group(store.traces, mode="r")
    assert float(np.nanmean(group["value"][:])) == pytest.approx(expected, rel=1e-12)
    assert group["time_ns"].attrs["units"] == "ns"


def test_padding_that_an_earlier_version_wrote_as_zero_is_missing(tmp_path):
    """Also after this version has added samples to the same arrays."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    store = open_store(tmp_path / "store")
    raw = zarr.open_group(store.traces, mode="r")["value"][:]
    assert (raw[-1000:] == 0).all()
    dataset = open_dataset(store)
    used = int(dataset["row_size"].sum())
    assert float(dataset["value"].mean()) == pytest.approx(raw.sum() / used, rel=1e-12)
    write(store, measurement(0, 500))
    assert compact(store).messages(writers_gone=True) == []
    dataset = open_dataset(store)
    assert np.isfinite(dataset["value"].values).sum() == used + 500
    assert (dataset["time_ns"].values != LEAST).sum() == used + 500


def test_every_variable_has_a_long_name_and_every_number_a_unit(store):
    dataset = open_dataset(store)
    assert len(dataset.data_vars) == len(MEASUREMENT_COLUMNS) + len(TRACE_COLUMNS) + 3
    for name, variable in dataset.data_vars.items():
        assert variable.attrs.get("long_name"), name
        assert (variable.dtype.kind in "fi") == ("units" in variable.attrs), name
    with (store.traces / "time_ns" / "zarr.json").open() as file:
        assert json.load(file)["attributes"]["units"] == "ns"


def test_a_trace_has_its_time_in_seconds_and_its_unit(store):
    made = measurement(2, 1002)
    trace = open_results(store.root).trace(made.point.id)
    np.testing.assert_array_equal(trace.values, made.traces[0].value.astype(np.float64))
    np.testing.assert_allclose(trace["time"].values, made.traces[0].time_ns / 1e9, rtol=1e-15)
    assert (trace.name, trace.attrs["units"], trace["time"].attrs["units"]) == (
        "simulated:board",
        "W",
        "s",
    )
    with pytest.raises(ArgumentError, match="no measurement of point 'ab'"):
        trace_of(open_dataset(store), "ab")
    with pytest.raises(ArgumentError, match="no channel 'x'; its channels: simulated:board"):
        trace_of(open_dataset(store), made.point.id, "x")


def test_of_several_channels_one_must_be_named(tmp_path):
    time_ns = np.arange(5)
    made = measurement(
        0,
        traces=(
            Trace("a", "node", "W", time_ns, np.full(5, 7.0)),
            Trace("b", "cpu", "J", time_ns, np.arange(5.0)),
            Trace("phase:P2P", "", "1", np.array([1, 3]), np.array([1.0, 0.0])),
        ),
    )
    dataset = open_dataset(stored(tmp_path / "store", made, compacted=True))
    with pytest.raises(ArgumentError, match="name one channel; its channels: a, b, phase:P2P"):
        trace_of(dataset, made.point.id)
    assert trace_of(dataset, made.point.id, "b").attrs["units"] == "J"
    assert trace_of(dataset, made.point.id, "phase:P2P").values.tolist() == [1.0, 0.0]
