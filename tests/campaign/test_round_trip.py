"""Export, then import: the same store, bit for bit."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from campaign.results import open_store as open_results
from campaign.store.columns import FAILURE_COLUMNS
from campaign.store.dataset import current_tables, open_dataset
from campaign.store.layout import open_store
from campaign.store.measurement import Measurement, Trace
from campaign.store.site_record import SiteRecord, read_site_record, write_site_record
from campaign.table.checking import checked_rows
from campaign.table.exporting import write_csv, write_parquet
from campaign.table.map_file import TableMap
from campaign.table.plausibility import DEVICE
from campaign.table.reading import read_table
from campaign.verbs.command_line import main
from dvfs.dataset import (
    BOOLEAN_COLUMNS,
    COLUMN_UNITS,
    DAMAGED,
    FAILURES,
    INTEGER_COLUMNS,
    KERNEL_FAILED,
    MEASUREMENT_COLUMNS,
    OK,
    POSSIBLE,
    POSSIBLE_COUNT,
    STATUSES,
    TIMED_OUT,
)
from dvfs.setting import Setting
from tests.campaign.test_journal import measurement
from tests.commands import answers, prints, refuses
from tests.simulated_runs import simulate
from tests.stores import measurements_of, stored

SIMULATED = """\
name = "simulated"
[[sites]]
site = "jetson-tk1"
settings = { choose = "random", count = 4, seed = 1 }
[protocol]
min_duration_s = 0.05
[[kernels]]
kernel = "sp_fma"
params = { level = "dram", ops_per_word = [1, 8, 64] }
[[kernels]]
kernel = "load"
params = { level = ["l1", "l2", "dram"] }
"""
REAL = """\
name = "real"
repeats = 2
[[sites]]
site = "localhost"
[protocol]
min_duration_s = 0.02
warm_up_s = 0.01
[[kernels]]
kernel = "dp_fma"
[[kernels]]
kernel = "command"
label = "fails"
params = { argv = ["false"] }
"""


def assert_same_stores(one: Path, other: Path, with_traces: bool = False) -> None:
    """Every scalar of every measurement and failed attempt, bit for bit; and the traces."""
    a, b = (current_tables(open_store(path))[0] for path in (one, other))
    assert set(a.measurements) == set(b.measurements) >= set(MEASUREMENT_COLUMNS)
    pd.testing.assert_frame_equal(
        a.measurements[sorted(a.measurements)],
        b.measurements[sorted(a.measurements)],
        check_exact=True,
    )
    for name in a.measurements.select_dtypes("number"):
        values = (frame[name].to_numpy() for frame in (a.measurements, b.measurements))
        assert next(values).tobytes() == next(values).tobytes(), name
    order = ["point_id", "attempt", "start_unix_s"]
    pd.testing.assert_frame_equal(
        *(t.failures[list(FAILURE_COLUMNS)].sort_values(order, ignore_index=True) for t in (a, b)),
        check_exact=True,
    )
    for site in set(a.measurements["site"]):
        stores = (open_store(path) for path in (one, other))
        assert len({repr(read_site_record(store, site)) for store in stores}) == 1
    setups = [
        {file.name: file.read_bytes() for file in (path / "setups").glob("*.json")}
        for path in (one, other)
    ]
    assert setups[0] == setups[1]
    if with_traces:
        assert traces_of(one) == traces_of(other)


def traces_of(path: Path) -> dict[tuple[str, str], tuple[str, str, bytes, bytes]]:
    dataset = open_dataset(open_store(path))
    traces = {}
    for i in range(dataset.sizes["trace"]):
        row = int(dataset["trace_measurement"][i])
        start, size = int(dataset["row_start"][i]), int(dataset["row_size"][i])
        traces[str(dataset["point_id"].values[row]), str(dataset["trace_channel"].values[i])] = (
            str(dataset["trace_domain"].values[i]),
            str(dataset["trace_unit"].values[i]),
            dataset["time_ns"][start : start + size].values.tobytes(),
            dataset["value"][start : start + size].values.tobytes(),
        )
    return traces


def exported(store: Path, folder: Path, *words: str) -> Path:
    assert main(["export", str(store), "--csv", str(folder / "out.csv"), *words]) == 0
    return folder / "out.csv"


def imported(table: Path, store: Path, *words: str) -> Path:
    assert main(["import", str(table), "--store", str(store), *words]) == 0
    return store


def test_a_simulated_campaign_and_its_fit_come_back(tmp_path):
    (tmp_path / "c.toml").write_text(SIMULATED)
    store = tmp_path / "s"
    simulate(tmp_path / "c.toml", store)
    traces = str(tmp_path / "traces")
    table = exported(store, tmp_path, "--traces", traces, "--parquet", str(tmp_path / "o.parquet"))
    again = imported(table, tmp_path / "again", "--traces", traces)
    assert_same_stores(store, again, with_traces=True)
    assert measurements_of(again)["simulated"].all()
    assert len(list((again / "setups").glob("*.json"))) == 1
    fits = [open_results(path).fit("jetson-tk1").summary for path in (store, again)]
    assert fits[0] == fits[1]
    imported(tmp_path / "o.parquet", tmp_path / "third")
    assert_same_stores(store, tmp_path / "third")
    said = answers("import", table, "--store", store)
    assert (said["imported"], said["already_there"]) == (0, 24)
    opened = xr.open_zarr(traces)
    assert opened.sizes == {"trace": 24, "sample": int(opened["row_size"].sum())}
    assert set(opened["point_id"].values) == set(pd.read_csv(table)["point_id"])


def test_a_campaign_on_this_machine_with_failures_comes_back(tmp_path):
    """Without settable clocks, and maybe without a meter: no clocks and no energies."""
    (tmp_path / "c.toml").write_text(REAL)
    store = tmp_path / "s"
    assert main(["run", str(tmp_path / "c.toml"), "--store", str(store)]) == 1
    again = imported(exported(store, tmp_path), tmp_path / "again")
    assert_same_stores(store, again)
    frame = current_tables(open_store(again))[0]
    assert frame.measurements["status"].value_counts().to_dict()[KERNEL_FAILED] == 2
    assert len(frame.failures) == 2
    statuses = [open_results(path).status() for path in (store, again)]
    assert statuses[0].failures == statuses[1].failures


def crafted(folder: Path, measurements: list[Measurement]) -> Path:
    store = stored(folder, *measurements, compacted=True)
    write_site_record(store, "s", SiteRecord({"sp": "mem"}, "gpu", {Setting(852.0): (0.9, None)}))
    return folder


ODD = 'a "quoted" text,\nwith; lines\r\nof\rall kinds, ünï \t'


def attempts() -> list[Measurement]:
    """Points that failed and then passed, that failed twice, and that have odd values."""
    once, twice, third = (measurement(repeat=i, start_unix_s=1e9 + i) for i in range(3))
    failed = {"time_s": math.nan, "energy_j": math.nan, "counts": None, "traces": ()}
    return [
        replace(once, status=TIMED_OUT, text=ODD, **failed),
        replace(once, attempt=1, start_unix_s=1.1e9, clock_proof="read back"),
        replace(twice, status=TIMED_OUT, **failed),
        replace(twice, status=KERNEL_FAILED, text=ODD, attempt=1, start_unix_s=1.2e9, **failed),
        replace(
            third,
            energy_j=math.nan,
            energy_std_j=5e-324,
            core_v=0.1 + 0.2,
            voltage_origin="table",
            iterations=2**62 + 1,
            meters={"m/1": {"energy_j": math.nan, "counts": True}},
            provenance={"flags": ["odd: 1.5"], "text": ODD, "big": 10**30},
        ),
    ]


def test_failed_attempts_and_odd_values_come_back(tmp_path):
    store = crafted(tmp_path / "s", attempts())
    traces = str(tmp_path / "traces")
    table = exported(store, tmp_path, "--traces", traces, "--parquet", str(tmp_path / "o.parquet"))
    again = imported(table, tmp_path / "again", "--traces", traces)
    assert_same_stores(store, again, with_traces=True)
    imported(tmp_path / "o.parquet", tmp_path / "third")
    assert_same_stores(store, tmp_path / "third")
    status = measurements_of(again)["status"]
    assert status.tolist() == [OK, KERNEL_FAILED, OK]
    summaries = [open_results(path).status() for path in (store, again)]
    assert summaries[0].failures == summaries[1].failures
    assert summaries[0].flags == summaries[1].flags
    imported(table, store)
    assert_same_stores(store, again)


def test_a_point_that_failed_is_replaced_by_one_that_is_complete(tmp_path, capsys):
    failed, passed = (crafted(tmp_path / str(n), attempts()[:n]) for n in (1, 2))
    imported(exported(passed, tmp_path), failed)
    assert "1 measurements imported" in capsys.readouterr().out
    assert_same_stores(failed, passed)


def test_a_table_alone_keeps_all_scalars(tmp_path):
    store = crafted(tmp_path / "s", attempts())
    table = exported(store, tmp_path)
    (tmp_path / "out.csv.sites.json").unlink()
    again = imported(table, tmp_path / "again")
    a, b = (measurements_of(path) for path in (store, again))
    pd.testing.assert_frame_equal(a[sorted(a)], b[sorted(a)], check_exact=True)
    assert read_site_record(open_store(again), "s").legal == {}


def test_labels_and_power_come_back_and_are_columns_for_people(tmp_path):
    header = "site,kernel,core_mhz,time_s,energy_j,power_w,governor,status\n"
    rows = "a,k,1000,1.5,0.15,0.1,schedutil,x\na,k,2000,1,0.2,0.2,,y\n"
    (tmp_path / "t.csv").write_text(header + rows)
    (tmp_path / "m.toml").write_text('unknown = "label"\n')
    store = imported(tmp_path / "t.csv", tmp_path / "s", "--map", str(tmp_path / "m.toml"))
    table = exported(store, tmp_path)
    read = pd.read_csv(table)
    assert read["power_w"].tolist() == [0.1, 0.2]
    assert read["governor"].fillna("").tolist() == ["schedutil", ""]
    assert read["status"].tolist() == [OK, OK]  # the label of this name is in provenance
    assert_same_stores(store, imported(table, tmp_path / "again"))


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
NAME = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=9)
WHOLE = st.integers(0, 2**53)
JSON_TEXT = st.dictionaries(TEXT, TEXT | st.integers() | st.floats(), max_size=2).map(json.dumps)
METERS = st.dictionaries(
    TEXT, st.dictionaries(TEXT, TEXT | st.floats() | st.booleans(), max_size=2), max_size=2
).map(json.dumps)
PARAMS = st.dictionaries(
    TEXT, TEXT | st.integers() | st.floats(allow_nan=False, allow_infinity=False), max_size=2
).map(lambda params: json.dumps(params, sort_keys=True, separators=(",", ":")))


@st.composite
def rows_of_a_store(draw: st.DrawFn) -> pd.DataFrame:
    size = draw(st.integers(1, 3))

    def column(values: st.SearchStrategy[object]) -> list[object]:
        return [draw(values) for _ in range(size)]

    frame = pd.DataFrame()
    for name in (*COLUMN_UNITS, "n_sp"):
        low, high, *_ = POSSIBLE.get(name, POSSIBLE_COUNT)
        # A store may hold a 0 that a meter gave, and -0.0 is one.
        zeros = low if name in DEVICE else 0.0
        known = st.floats(zeros, high) | (st.nothing() if zeros else st.just(-0.0))
        always = name in ("time_s", "start_unix_s")
        frame[name] = column(known if always else st.none() | known)
        frame[name] = frame[name].astype(float)
    for name in ("text", "voltage_origin", "setup"):
        frame[name] = column(TEXT)
    for name in ("site", "partition", "kernel"):
        frame[name] = column(NAME.filter(lambda text: bool(text.strip())))
    frame["node"] = column(NAME.filter(lambda text: bool(text.strip())) | st.just(""))
    frame["params"] = column(PARAMS)
    frame["meters"] = column(METERS)
    frame["provenance"] = column(JSON_TEXT)
    frame["status"] = column(st.sampled_from(STATUSES))
    frame["clock_proof"] = column(st.sampled_from(["read back", "timed", "stated", ""]))
    for name in INTEGER_COLUMNS:
        frame[name] = column(WHOLE | st.integers(0, 2**63 - 1) if name != "repeat" else WHOLE)
    for name in BOOLEAN_COLUMNS:
        frame[name] = column(st.booleans())
    ids = st.integers(0, 16**24 - 1).map("{:024x}".format)
    frame["point_id"] = draw(st.lists(ids, min_size=size, max_size=size, unique=True))
    return frame[["point_id", *sorted(set(frame) - {"point_id"})]]


def test_a_row_names_its_line_in_the_table_also_after_export(tmp_path):
    rows = "site,kernel,core_mhz,time_s,energy_j\n\nx,k,1000,1,2\nx,k,800,1.5,2.5\n"
    table = tmp_path / "table.csv"
    table.write_text(rows)
    for store in (tmp_path / "a", tmp_path / "b"):
        prints("import", table, "--store", store)
        for point in open_results(store).columns["point_id"].tolist():
            shown = answers("show", store, point)
            line = rows.splitlines()[shown["provenance"]["line"] - 1]
            assert f"{shown['core_mhz']:.0f},{shown['time_s']:g}," in line
        table = tmp_path / "exported.csv"
        prints("export", store, "--csv", table)


@given(rows_of_a_store(), st.booleans())
def test_any_rows_of_a_store_come_back_bit_for_bit(tmp_path_factory, frame, as_parquet):
    path = tmp_path_factory.mktemp("rows") / ("t.parquet" if as_parquet else "t.csv")
    (write_parquet if as_parquet else write_csv)(frame, path)
    checked = checked_rows(read_table(path, TableMap()), TableMap())
    back = pd.DataFrame(checked.rows)[list(frame)]
    for name in frame:
        if frame[name].dtype.kind == "f":
            mine, theirs = frame[name].to_numpy(), back[name].to_numpy()
            assert (np.isnan(mine) == np.isnan(theirs)).all()
            known = ~np.isnan(mine)
            assert mine[known].tobytes() == theirs[known].tobytes(), name
        else:
            assert frame[name].tolist() == back[name].tolist(), name
    failed = frame["status"].isin(set(FAILURES) - {DAMAGED})
    assert checked.failures["point_id"].tolist() == frame.loc[failed, "point_id"].tolist()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("energy_j", "inf", "energy_j: found 'inf'; must be a number"),
        ("energy_j", "1e999", "energy_j: found '1e999'; must be finite"),
        ("energy_j", "-2.5", "energy_j: found -2.5; must be 0 or more"),
        ("time_s", "1e300", "time_s: found 1e+300; must be from 1e-12 to 1e+09 s"),
        ("n_sp", "-1", "n_sp: found -1; must be 0 or more"),
        ("n_sp", "1e300", "n_sp: found 1e+300; must be from 0 to 1e+28"),
        ("core_v", "1e-300", "core_v: found 1e-300; devices have 0.2 to 5 V"),
        ("provenance", '{"labels": 3}', "provenance: "),
        ("provenance", '{"flags": [1]}', "provenance: "),
        ("provenance", '{"protocol": {"windows": 0}}', "provenance: "),
        ("provenance", '{"sampling": {"m": 1}}', "provenance: "),
        ("meters", '{"m": 1}', "meters: "),
        ("attempt", "1_0", "attempt: found 1_0; must be a whole number"),
        ("status", "fine", "status: found 'fine'; must be one of ok, "),
        ("point_id", "../../x", "point_id: found '../../x'; must be what export wrote"),
        ("attempt", "1.5", "attempt: found 1.5; must be a whole number"),
        ("simulated", "perhaps", "simulated: found 'perhaps'; must be true or false"),
        ("meters", "[1]", "meters: found '[1]'; must be a JSON object"),
        ("clock_proof", "seen", "clock_proof: found 'seen'; must be one of read back, "),
    ],
)
def test_a_wrong_value_in_an_exported_table_is_named(tmp_path, name, value, words):
    table = exported(crafted(tmp_path / "s", [measurement()]), tmp_path)
    frame = pd.read_csv(table, dtype=str)
    frame[name] = value
    frame.to_csv(table, index=False)
    assert f"out.csv:2: {words}" in refuses("import", table, "--store", tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_wrong_file_beside_the_table_is_refused(tmp_path):
    table = exported(crafted(tmp_path / "s", [measurement()]), tmp_path)
    for text in (
        "[]",
        '{"sites": {"s": 1}, "setups": {}}',
        '{"sites": {}, "setups": {"../x": {}}, "earlier": {}}',
        '{"sites": {"s": {"legal": [[852, null, true, null]]}}, "setups": {}, "earlier": {}}',
        '{"sites": {"s": {"legal": [[852, null, 1e-300, null]]}}, "setups": {}, "earlier": {}}',
    ):
        (tmp_path / "out.csv.sites.json").write_text(text)
        assert "out.csv.sites.json: is not what export writes" in refuses(
            "import", table, "--store", tmp_path / "again"
        )


def test_traces_that_are_none_are_refused(tmp_path):
    store = crafted(tmp_path / "s", [measurement()])
    table = exported(store, tmp_path, "--traces", str(tmp_path / "traces"))
    for folder in (tmp_path, tmp_path / "none"):
        words = ["import", str(table), "--store", str(tmp_path / "again"), "--traces", str(folder)]
        assert f"{folder}: is not a folder of traces" in refuses(*words)
    assert "exists and is not empty" in refuses("export", store, "--traces", tmp_path / "traces")


def test_a_table_to_stdout(tmp_path, capsys):
    store = crafted(tmp_path / "s", attempts())
    file = exported(store, tmp_path)
    capsys.readouterr()
    assert main(["export", str(store), "--csv", "-"]) == 0
    written = capsys.readouterr()
    assert written.out == file.read_bytes().decode()
    assert "3 measurements written, and 2 failed attempts before them" in written.err
    assert "name what to write" in refuses("export", store)


def test_traces_keep_their_order_of_channels(tmp_path):
    power = measurement().traces[0]
    marks = Trace("phase:a", "", "1", np.array([-5, 7], np.int64), np.array([1.0, 0.0]))
    store = crafted(tmp_path / "s", [replace(measurement(), traces=(power, marks))])
    folder = str(tmp_path / "traces")
    again = imported(
        exported(store, tmp_path, "--traces", folder), tmp_path / "again", "--traces", folder
    )
    assert_same_stores(store, again, with_traces=True)
    assert [channel for _, channel in traces_of(again)] == ["simulated:board", "phase:a"]
