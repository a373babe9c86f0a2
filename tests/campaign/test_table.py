"""Tables from elsewhere: read right, or refused with the row named; and written back."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from campaign.table.map_file import TableMap
from campaign.table.reading import read_table
from campaign.verbs.command_line import main
from dvfs.input_files import FileError
from tests.commands import answers, prints, refuses
from tests.stores import measurements_of

ROOT = Path(__file__).parents[2]
GTX = ROOT / "tests/data/gtxtitanx/microbenchmarks.csv"
GTX_MAP = ROOT / "examples/gtxtitanx.map.toml"

HEADER = "site,kernel,core_mhz,mem_mhz,core_v,mem_v,time_s,energy_j,n_sp\n"
ROWS = ["a,k,1000,500,0.9,1.0,1.5,3.0,1e9", "a,k,2000,500,1.1,1.0,1.0,2.5,1e9"]


def write(folder: Path, header: str = HEADER, rows: list[str] = ROWS) -> Path:
    path = folder / "table.csv"
    path.write_text(header + "\n".join(rows) + "\n")
    return path


def test_a_table_in_our_columns_and_out_again(tmp_path):
    store = tmp_path / "s"
    assert answers("import", write(tmp_path), "--store", store)["imported"] == 2
    frame = measurements_of(store)
    assert sorted(frame["energy_j"]) == [2.5, 3.0]
    assert set(frame["voltage_origin"]) == {"measured"}
    out = tmp_path / "out.csv"
    assert main(["export", str(store), "--csv", str(out)]) == 0
    again = tmp_path / "again"
    assert main(["import", str(out), "--store", str(again)]) == 0
    a, b = (f.sort_values("core_mhz", ignore_index=True) for f in (frame, measurements_of(again)))
    columns = ["site", "kernel", "core_mhz", "mem_mhz", "core_v", "time_s", "energy_j", "n_sp"]
    pd.testing.assert_frame_equal(a[columns], b[columns])


def test_importing_twice_changes_nothing(tmp_path):
    path, store = write(tmp_path), tmp_path / "s"
    main(["import", str(path), "--store", str(store)])
    assert "0 measurements imported" in prints("import", path, "--store", store).splitlines()[-1]
    assert len(measurements_of(store)) == 2


def test_a_text_of_parquet_that_is_no_text_is_refused(tmp_path):
    """Arrow takes the bytes, and finds out when they become a string."""
    bad = pa.StringArray.from_buffers(
        1, pa.py_buffer(struct.pack("<ii", 0, 2)), pa.py_buffer(b"k\xff")
    )
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"kernel": bad}), path)
    with pytest.raises(FileError, match=r"t\.parquet: cannot be read as Parquet"):
        read_table(path, TableMap())


def test_power_and_parquet(tmp_path):
    path = tmp_path / "t.parquet"
    pd.DataFrame(
        {
            "site": ["a"],
            "kernel": ["k"],
            "core_mhz": [1000.0],
            "time_s": [2.0],
            "power_w": [50.0],
        }
    ).to_parquet(path)
    assert main(["import", str(path), "--store", str(tmp_path / "s")]) == 0
    assert measurements_of(tmp_path / "s")["energy_j"].tolist() == [100.0]
    assert np.isnan(measurements_of(tmp_path / "s")["mem_mhz"]).all()


WRONG = [
    (
        "NaN energy",
        HEADER,
        [ROWS[0], ROWS[1].replace("2.5", "nan")],
        ["table.csv:3", "energy_j", "nan"],
    ),
    ("negative energy", HEADER, [ROWS[0].replace("3.0", "-3.0")], ["table.csv:2", "-3"]),
    ("zero time", HEADER, [ROWS[0].replace("1.5", "0")], ["table.csv:2", "time_s", "above 0"]),
    ("empty energy", HEADER, [ROWS[0].replace("3.0", "")], ["table.csv:2", "power_w", "missing"]),
    ("not a number", HEADER, [ROWS[0].replace("1.5", "fast")], ["table.csv:2", "'fast'"]),
    ("missing column", HEADER.replace("time_s", "n_dp"), ROWS, ["no column time_s", "map"]),
    ("no energy at all", HEADER.replace("energy_j", "n_dp"), ROWS, ["energy_j or power_w"]),
    ("unknown column", HEADER.replace("n_sp", "sp"), ROWS, ["'sp'", "[columns]", "label"]),
    ("duplicate", HEADER, [ROWS[0], ROWS[0]], ["table.csv:3", "line 2", "repeat"]),
    ("short row", HEADER, [ROWS[0] + ",1"], ["table.csv:2", "10 fields", "9"]),
    ("empty", "", [], ["empty"]),
    ("no rows", HEADER, [], ["no rows"]),
]


@pytest.mark.parametrize(
    ("header", "rows", "words"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG]
)
def test_wrong_tables_are_refused_whole(tmp_path, header, rows, words):
    path = tmp_path / "table.csv"
    path.write_text(header + "\n".join(rows))
    message = refuses("import", path, "--store", tmp_path / "s")
    for word in words:
        assert word in message
    assert "Traceback" not in message
    assert not (tmp_path / "s" / "journals").exists() or not list(
        (tmp_path / "s/journals").iterdir()
    )


def test_another_energy_for_a_point_that_is_there_is_refused(tmp_path):
    store = tmp_path / "s"
    main(["import", str(write(tmp_path)), "--store", str(store)])
    changed = write(tmp_path, rows=[ROWS[0].replace("3.0", "4.0")])
    assert "table.csv:2" in refuses("import", changed, "--store", store)
    assert sorted(measurements_of(store)["energy_j"]) == [2.5, 3.0]


def test_unknown_columns_are_kept_as_labels_where_the_map_says_so(tmp_path):
    path = write(tmp_path, HEADER.replace("n_sp", "governor"))
    (tmp_path / "m.toml").write_text('unknown = "label"\n')
    store = tmp_path / "s"
    assert (
        main(["import", str(path), "--store", str(store), "--map", str(tmp_path / "m.toml")]) == 0
    )
    out = tmp_path / "out.csv"
    main(["export", str(store), "--csv", str(out)])
    assert pd.read_csv(out)["governor"].tolist() == [1e9, 1e9]


@given(st.lists(st.text(max_size=20), max_size=6))
def test_garbage_is_refused_with_a_typed_error(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("garbage")
    path = folder / "t.csv"
    path.write_bytes((HEADER + "\n".join(lines)).encode("utf-8", "surrogatepass"))
    assert main(["import", str(path), "--store", str(folder / "s")]) in (0, 2)


def test_other_peoples_format_through_a_map_file(tmp_path):
    """GTX Titan X, 20 of 140 kernels: read independently here, and judged leave-one-setting-out."""
    store = tmp_path / "gtx"
    assert main(["import", str(GTX), "--map", str(GTX_MAP), "--store", str(store)]) == 0
    frame = measurements_of(store)
    expected = {}
    for line in GTX.read_text().splitlines():
        fields = line.split(",")
        if len(fields) == 1:
            kernel = line
        else:
            mem, core, time_ms, _, energy_mj = map(float, fields)
            expected[kernel, core, mem] = (time_ms / 1e3, energy_mj / 1e3)
    assert len(frame) == len(expected) == 640
    for row in frame.itertuples():
        time_s, energy_j = expected[row.kernel, row.core_mhz, row.mem_mhz]
        assert row.time_s == pytest.approx(time_s)
        assert row.energy_j == pytest.approx(energy_j)
    judged = answers("crossval", store, "--site", "gtx-titan-x")
    assert judged["n_folds"] == 32
    assert judged["mape_pct"] < 5.5
    lost = {name: judged["decision"][name]["mean_lost_pct"] for name in ("picks", "race_to_halt")}
    assert lost["picks"] < 4.0 < 25.0 < lost["race_to_halt"]
