"""The store: once in a journal never lost, never twice, whatever dies in between."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from numcodecs.vlen import VLenUTF8

from campaign.store.columns import column
from campaign.store.compaction import compact, equalize_generations
from campaign.store.dataset import current_tables, open_dataset
from campaign.store.generation import generation_numbers
from campaign.store.journal import encode
from campaign.store.layout import (
    DamagedStoreError,
    NotAStoreError,
    Store,
    StoreBusyError,
    create_store,
    driver_lock,
    open_store,
)
from campaign.store.measurement import Measurement, Trace
from campaign.store.states import point_states
from campaign.store.table_files import CHUNK_ROWS, TableFiles
from campaign.store.verify import damaged_traces, repair_samples
from campaign.store.written_store import WrittenStore
from dvfs.dataset import CLOCK_UNPROVEN, DAMAGED
from dvfs.texts import EqualLengths, Texts
from tests.campaign.test_journal import measurement
from tests.stores import write


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return create_store(tmp_path / "store", "test")


def trace_of(dataset: xr.Dataset, point_id: str) -> tuple[np.ndarray, np.ndarray]:
    row = int(np.flatnonzero(dataset["point_id"].values == point_id)[0])
    trace = int(np.flatnonzero(dataset["trace_measurement"].values == row)[0])
    start, size = int(dataset["row_start"][trace]), int(dataset["row_size"][trace])
    cut = dataset.isel(sample=slice(start, start + size))
    return cut["time_ns"].values, cut["value"].values


def test_ragged_traces_come_back_bit_for_bit_through_several_compactions(store):
    sizes = [1, 2, 10, 999, 30_000, 7]
    for i, size in enumerate(sizes):
        write(store, measurement(i, size))
        if i in (1, 3):
            assert compact(store).moved == 2
    compact(store)
    dataset = open_dataset(store)
    assert dataset.sizes["measurement"] == len(sizes)
    for i, size in enumerate(sizes):
        expected = measurement(i, size)
        time_ns, value = trace_of(dataset, expected.point.id)
        np.testing.assert_array_equal(time_ns, expected.traces[0].time_ns)
        np.testing.assert_array_equal(value, expected.traces[0].value.astype(np.float64))
    assert store.journal_paths() != []  # one generation alone may be damaged
    equalize_generations(store)
    assert store.journal_paths() == []
    assert len(list(store.index.iterdir())) == 2


def test_what_is_missing_stays_missing(store):
    nothing = float("nan")
    write(store, measurement(0, energy_j=nothing, traces=(), counts=None), measurement(1))
    compact(store)
    dataset = open_dataset(store)
    assert np.isnan(dataset["energy_j"].values).tolist() == [True, False]
    assert np.isnan(dataset["n_sp"].values).tolist() == [True, False]
    assert np.isnan(dataset["mem_mhz"].values).all()


def test_a_dataset_shows_what_is_not_yet_compacted(store):
    write(store, measurement(0))
    compact(store)
    write(store, measurement(1))
    assert open_dataset(store).sizes["measurement"] == 2
    assert len(current_tables(store)[0].measurements) == 2


def test_the_first_ok_stands_and_failures_are_kept(store):
    def failure(status: str, text: str, attempt: int) -> Measurement:
        return Measurement(
            point=measurement(0).point, status=status, text=text, attempt=attempt, node="n1"
        )

    write(store, failure("node lost", "gone", attempt=0))
    compact(store)
    write(store, failure("timed out", "slow", attempt=1))
    assert current_tables(store)[0].measurements["status"].tolist() == ["timed out"]
    write(store, measurement(0, attempt=2), measurement(0, attempt=2, energy_j=9.0))
    write(store, failure("timed out", "an orphan, late", attempt=3))
    compact(store)
    write(store, measurement(0, attempt=4, energy_j=7.0))
    compact(store)
    tables, _ = current_tables(store)
    assert tables.measurements["status"].tolist() == ["ok"]
    assert tables.measurements["energy_j"].tolist() == [2.5]
    assert sorted(tables.failures["text"]) == ["an orphan, late", "gone", "slow"]


def test_a_measurement_with_unproven_clocks_is_final(store):
    """It has time and energy: neither a failure nor another measurement takes its place."""
    unproven = replace(measurement(0), status=CLOCK_UNPROVEN, clock_proof="", core_mhz_timed=850.5)
    write(store, unproven, measurement(0, energy_j=9.0))
    compact(store)
    late = replace(unproven, status="timed out", energy_j=float("nan"), attempt=3)
    write(store, late, measurement(0, energy_j=8.0))
    compact(store)
    dataset = open_dataset(store)
    assert dataset["status"].values.tolist() == [CLOCK_UNPROVEN]
    assert dataset["energy_j"].values.tolist() == [2.5]
    assert dataset["core_mhz_timed"].values.tolist() == [850.5]
    assert point_states(store) == {unproven.point.id: (CLOCK_UNPROVEN, 1)}


def test_a_damaged_trace_is_not_measured_and_its_double_takes_its_place(store):
    path = write(store, measurement(0), measurement(1))
    broken = bytearray(path.read_bytes())
    broken[len(encode(measurement(0))) - 3] ^= 1
    path.write_bytes(bytes(broken))
    compact(store)
    assert open_dataset(store)["point_id"].values.tolist() == [measurement(1).point.id]
    write(store, measurement(0))
    compact(store)
    time_ns, _ = trace_of(open_dataset(store), measurement(0).point.id)
    np.testing.assert_array_equal(time_ns, measurement(0).traces[0].time_ns)


def test_a_flipped_byte_in_a_shard_is_an_error_not_a_wrong_number(store):
    write(store, measurement(0, 5000))
    compact(store)
    shard = store.traces / "value" / "c" / "0"
    broken = bytearray(shard.read_bytes())
    broken[100] ^= 1
    shard.write_bytes(bytes(broken))
    with pytest.raises(DamagedStoreError, match=r"samples 0 to 65536 .*campaign run measures"):
        open_dataset(store)["value"][:5000].load()


KILLED = """
import os, signal, sys, time
from pathlib import Path
from campaign.store.compaction import compact
from campaign.store.layout import open_store
import zarr  # so that no child spends its time on imports
for k, store in enumerate(sys.argv[2:]):
    child = os.fork()
    if not child:
        compact(open_store(Path(store)))
        os._exit(0)
    time.sleep(float(sys.argv[1]) * k)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


def test_a_compaction_killed_at_any_moment_loses_and_doubles_nothing(store, tmp_path):
    """Sixteen kills spread over the time that a compaction takes; then one that is let finish."""
    expected = set()
    for i in range(60):
        write(store, measurement(i, 2000))
        expected.add(measurement(i).point.id)
    reference = tmp_path / "reference"
    shutil.copytree(store.root, reference)
    began = time.monotonic()
    compact(open_store(reference))
    whole_s = time.monotonic() - began
    victims = [shutil.copytree(store.root, tmp_path / f"victim-{k}") for k in range(16)]
    command = [sys.executable, "-c", KILLED, str(whole_s * 1.3 / 16), *map(str, victims)]
    subprocess.run(command, cwd=Path(__file__).parents[2], check=True)
    for k, victim in enumerate(victims):
        after = open_store(victim)
        assert set(open_dataset(after)["point_id"].values) == expected
        if k % 4 == 0:
            compact(after)
            dataset = open_dataset(after)
            assert sorted(dataset["point_id"].values) == sorted(expected)
            time_ns, value = trace_of(dataset, measurement(59).point.id)
            np.testing.assert_array_equal(time_ns, measurement(59, 2000).traces[0].time_ns)
            np.testing.assert_array_equal(value, measurement(59, 2000).traces[0].value)


def test_a_compaction_killed_between_two_arrays_leaves_a_store_that_opens(store):
    write(store, measurement(0, 5000))
    compact(store)
    write(store, measurement(1, 5000))
    group = zarr.open_group(store.traces, mode="r+")
    group["time_ns"].resize((group["time_ns"].shape[0] * 2,))
    dataset = open_dataset(store)
    assert set(dataset["point_id"].values) == {measurement(i).point.id for i in (0, 1)}
    compact(store)
    for i in (0, 1):
        time_ns, value = trace_of(open_dataset(store), measurement(i).point.id)
        np.testing.assert_array_equal(time_ns, measurement(i, 5000).traces[0].time_ns)
        np.testing.assert_array_equal(value, measurement(i, 5000).traces[0].value)


def test_a_second_driver_is_refused_and_takes_over_from_a_dead_one(store):
    code = (
        "import sys, time; from pathlib import Path;"
        "from campaign.store.layout import open_store, driver_lock\n"
        "with driver_lock(open_store(Path(sys.argv[1]))):\n"
        "    print('held', flush=True); time.sleep(60)\n"
    )
    first = subprocess.Popen(
        [sys.executable, "-c", code, str(store.root)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    first.stdout.readline()
    with pytest.raises(StoreBusyError, match=f"process {first.pid} on"), driver_lock(store):
        pass
    first.kill()
    first.wait()
    first.stdout.close()
    with driver_lock(store):
        pass


def test_what_is_no_store_is_refused(tmp_path):
    with pytest.raises(NotAStoreError, match="is not a store"):
        open_store(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotAStoreError, match="not a store; name a new or empty folder"):
        create_store(tmp_path, "x")
    with pytest.raises(NotAStoreError, match="file: is a file, not a store; name a folder"):
        open_store(tmp_path / "file")
    (tmp_path / "store.json").write_text("{not json")
    with pytest.raises(NotAStoreError, match="cannot be read"):
        open_store(tmp_path)
    (tmp_path / "store.json").write_text('{"format": 99}')
    with pytest.raises(NotAStoreError, match="format 99"):
        open_store(tmp_path)


def test_a_damaged_head_is_written_again(tmp_path):
    root = tmp_path / "s"
    create_store(root, "first")
    before = (root / "store.json").read_bytes()
    (root / "store.json").write_text("{not json")
    with pytest.raises(
        NotAStoreError, match=r"store.json: is damaged \(.*\). Run the campaign again"
    ):
        open_store(root)
    create_store(root, "first")
    assert (root / "store.json").read_bytes() == before


def test_traces_of_nothing_but_zeros_are_kept(store):
    """Zarr leaves out chunks of the fill value, and a shard of them would seem to be gone."""
    time_ns = np.zeros(5000, np.int64)
    for i in range(2):
        zeros = Trace("off", "node", "W", time_ns, np.zeros(5000, np.float32))
        write(store, measurement(i, traces=(zeros,)))
        compact(store)
    equalize_generations(store)
    assert damaged_traces(store) == []
    value = open_dataset(store)["value"].values
    assert value[np.isfinite(value)].tolist() == [0.0] * 10_000


def test_a_failed_attempt_keeps_what_is_known_of_a_point_whose_trace_is_damaged(store):
    write(store, measurement(0, 5000))
    compact(store)
    (store.traces / "value" / "c" / "0").unlink()
    repair_samples(store)
    assert current_tables(store)[0].measurements["n_sp"].tolist() == [1e9]
    write(
        store,
        Measurement(
            point=measurement(0).point,
            status="timed out",
            text="slow",
            attempt=0,
            node="n1",
            start_unix_s=2.0,
        ),
    )
    compact(store)
    tables, _ = current_tables(store)
    assert tables.measurements["status"].tolist() == [DAMAGED]
    assert tables.measurements["energy_j"].tolist() == [2.5]
    assert tables.failures["text"].tolist() == ["slow"]
    write(store, measurement(0, 5000, attempt=1))
    compact(store)
    assert current_tables(store)[0].measurements["status"].tolist() == ["ok"]
    # What is left of the shard that is gone belongs to no trace, and is in nobody's way.
    dataset = open_dataset(store).load()
    np.testing.assert_array_equal(
        trace_of(dataset, measurement(0).point.id)[1], measurement(0, 5000).traces[0].value
    )


def test_damage_between_two_records_is_reported_whoever_writes_beside(store):
    """The records behind it are moved, so that nobody looks at it again."""
    made = [measurement(i) for i in range(3)]
    path = write(store, *made)
    second = len(encode(made[0]))
    data = bytearray(path.read_bytes())
    data[second + 60] ^= 1
    path.write_bytes(data)
    done = compact(store)
    assert done.moved == 2
    messages = done.messages(writers_gone=False)
    assert [f"{path.name}: byte {second}" in text for text in messages] == [True]
    again = compact(store)
    assert again.messages(writers_gone=True) == []


def test_a_store_at_rest_is_not_written_again(store):
    for i in range(3):
        write(store, measurement(i))
        compact(store)
    equalize_generations(store)
    at_rest = generation_numbers(store)
    for _ in range(2):
        compact(store)
        equalize_generations(store)
        assert generation_numbers(store) == at_rest


def files_below(folder: Path) -> frozenset[str]:
    return frozenset(str(path.relative_to(folder)) for path in folder.rglob("*"))


def assert_columns(folder: Path, expected: dict[str, list]) -> None:
    """The columns of measurements, as this program reads them and as Zarr does."""
    tables = TableFiles(folder, files_below(folder))
    by_zarr = zarr.open_group(WrittenStore(folder, files_below(folder)), mode="r")["measurements"]
    assert tables.columns("measurements") == sorted(by_zarr.array_keys())
    for name, values in expected.items():
        found = tables.read(f"measurements/{name}")
        assert found.dtype == column(name, []).dtype
        for read in (found, by_zarr[name][:]):
            if found.dtype == float:
                np.testing.assert_array_equal(read, values)
            else:
                assert read.tolist() == values


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_zarr_reads_the_columns_that_are_written_and_they_are_read_as_by_zarr(
    data, tmp_path_factory
):
    """Over chunks of one value, of several and of none; with a chunk that has grown twice; and
    after rows were overwritten."""
    folder = tmp_path_factory.mktemp("columns")
    words = st.sampled_from(["", "a", "aa", "é", "x" * 300, '{"n": 1}', "a\0b"])
    values_of = {
        "kernel": words,
        "site": words,
        "time_s": st.sampled_from([0.0, -0.0, np.nan, 1.5, -np.inf]),
        "n_sp": st.sampled_from([np.nan, 3.0]),
        "iterations": st.sampled_from([0, 1, -(2**63)]),
        "imported": st.booleans(),
    }

    def drawn(name: str, size: int) -> np.ndarray:
        some = data.draw(st.lists(values_of[name], min_size=1, max_size=3))
        return np.resize(column(name, some), size)

    new = TableFiles(folder)
    written: dict[str, list] = {name: [] for name in (*values_of, "point_id")}
    sizes = st.sampled_from([1, 3, CHUNK_ROWS - 2, CHUNK_ROWS])
    for size in data.draw(st.lists(sizes, min_size=1, max_size=3)):
        ids = np.char.zfill(np.arange(size).astype("S12"), 12)
        columns = {name: drawn(name, size) for name in values_of}
        kept = columns | {"site": Texts.of(columns["site"]), "point_id": EqualLengths(ids)}
        new.append("measurements", kept, size)
        for name, values in (columns | {"point_id": ids.astype(str)}).items():
            written[name] += values.tolist()
    assert_columns(folder, written | {"node": [""] * len(written["kernel"])})
    rows = st.integers(0, len(written["kernel"]) - 1)
    at = np.array(data.draw(st.lists(rows, max_size=5, unique=True)), np.int64)
    replaced = {name: drawn(name, at.size) for name in ("kernel", "time_s", "imported")}
    new.overwrite("measurements", replaced, at)
    for name, values in (replaced | {"n_sp": np.full(at.size, np.nan)}).items():
        for row, value in zip(at.tolist(), values.tolist(), strict=True):
            written[name][row] = value
    assert_columns(folder, written)


def test_columns_of_an_earlier_layout_are_read_and_written_anew(tmp_path):
    values = {"point_id": ["a", "", "é", "b"], "time_s": [1.5, np.nan, 0.0, 2.0]}
    group = zarr.open_group(tmp_path, mode="w").create_group("measurements")
    for name, dtype in (("point_id", np.dtypes.StringDType()), ("time_s", np.dtype("f4"))):
        array = group.create_array(name, shape=(4,), chunks=(3,), dtype=dtype)
        array[:] = np.array(values[name], dtype)
    tables = TableFiles(tmp_path, files_below(tmp_path))
    for name, expected in values.items():
        np.testing.assert_array_equal(tables.read(f"measurements/{name}").tolist(), expected)
    more = {name: column(name, of[:2]) for name, of in values.items()}
    TableFiles(tmp_path).append("measurements", more, 2)
    assert_columns(tmp_path, {name: of + of[:2] for name, of in values.items()})


@pytest.mark.parametrize("name", ["kernel", "time_s"])
def test_a_damaged_or_missing_chunk_is_refused(tmp_path, name):
    values = column(name, ["a", "b"] if name == "kernel" else [1.0, 2.0])
    TableFiles(tmp_path).append("measurements", {name: values}, 2)
    tables = TableFiles(tmp_path, files_below(tmp_path))
    chunk = tmp_path / f"measurements/{name}/c/0"
    packed = chunk.read_bytes()
    whole = numcodecs.Zstd().decode(packed)
    fewer = VLenUTF8().encode(values) if name == "kernel" else values.tobytes()
    cut, short = (numcodecs.Zstd().encode(data) for data in (whole[:-2], fewer))
    for wrong in (b"", packed[:-3], b"x" * 40, cut, short):
        chunk.write_bytes(wrong)
        with pytest.raises(DamagedStoreError):
            tables.read(f"measurements/{name}")
    chunk.unlink()
    with pytest.raises(DamagedStoreError):
        tables.read(f"measurements/{name}")
