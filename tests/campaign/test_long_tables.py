"""Tables that are too long to be in memory, which are read in parts: the same store, and the same
messages, as of the same table read whole. The limits are lowered, so that small ones are long."""

from __future__ import annotations

import random
import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.table import delimited, long_text
from campaign.table.checking import checked_rows
from campaign.table.delimited import TooLongError
from campaign.table.long_table import LongTable
from campaign.table.map_file import read_map, with_arguments
from campaign.table.reading import read_table
from campaign.verbs.command_line import main
from dvfs.input_files import FileError
from tests.campaign.test_table import ROOT
from tests.commands import run
from tests.stores import measurements_of

HEADER = ["site", "kernel", "node", "repeat", "core_mhz", "mem_mhz", "core_v", "time_s", "energy_j"]
HEADER += ["power_w", "n_sp", "n_int"]
MAP = """
number_repeats = {repeats}
unknown = "label"
clocks = "{clocks}"
params = ["size"]
legal = [[1000, 500], [1200, 500]]
[columns]
energy_j = {{ column = "energy_j", factor = 2.0 }}
[[keep]]
column = "kernel"
matches = "k"
"""
WRONG = {
    "site": ["", "a\x01", " a ", '"a"', "b"],
    "kernel": ["", '"k ""2"""', "k,9", "late", "# k"],
    "node": ["", "node2"],
    "repeat": ["", "-1", "1.5", "77", "0", "1e3"],
    "core_mhz": ["", "abc", "1.2", "2e9", "0", "-5", "1 000", '"1200"', "1.200.000"],
    "mem_mhz": ["", "0.5", "nan"],
    "core_v": ["", "900", "-1"],
    "time_s": ["", "-1", "nan", "1e999", "5 ms", "1e-30", "1,5"],
    "energy_j": ["", "0", "-1", "n/a", "+7.5e0"],
    "power_w": ["1", "", "1e9", "x"],
    "n_sp": ["", "-1", "1e30"],
    "n_int": ["", "5"],
    "size": ["", "7", "1.5", "big"],
}
LINES = ["", "# a comment", "a,k0", '"a', "\r"]


def rows_of(seed: int, n: int, kernels: int, jitter: float, drop: set[str]) -> list[list[str]]:
    """A header and rows of a sweep; clocks with ``jitter``, relative."""
    rng = random.Random(seed)
    header = [name for name in [*HEADER, "size"] if name not in drop]
    rows = [header]
    for i in range(n):
        core = rng.choice([800, 1000, 1200, 1500]) * (1 + rng.uniform(-jitter, jitter))
        time_s = 5e3 / core * rng.uniform(0.98, 1.02)
        row = {
            "site": "a" if i < n * 0.7 else rng.choice("ab"),
            "kernel": f"k{min(i * kernels // n, kernels - 1)}",
            "node": "node1",
            "repeat": str(i),
            "core_mhz": repr(core),
            "mem_mhz": "500",
            "core_v": "0.9",
            "time_s": repr(time_s),
            "energy_j": repr(50.0 * time_s),
            "power_w": "" if i % 3 else repr(50.0 * time_s / time_s),
            "n_sp": "1e6",
            "n_int": "",
            "size": str(i % 2),
        }
        rows.append([row[name] for name in header])
    return rows


def text_of(rows: list[list[str]]) -> str:
    return "".join(",".join(row) + "\n" for row in rows)


def lowered(patch: pytest.MonkeyPatch, part_rows: int = 16) -> None:
    """A table is long if it has more than a few rows."""
    patch.setattr(delimited, "MAX_VALUES", 300)
    patch.setattr(delimited, "PART_BYTES", 512)
    patch.setattr(long_text, "PART_ROWS", part_rows)


def read_whole(path, mapping, map_file):
    """A table's rows as they go into a store, and what is said of it."""
    try:
        checked = checked_rows(read_table(path, mapping, map_file), mapping)
    except FileError as error:
        return str(error)
    return plain([checked]), checked.notes, checked.disagreements


def read_in_parts(path, mapping, map_file):
    """The same by parts of a few rows."""
    with pytest.MonkeyPatch.context() as patch:
        lowered(patch)
        with pytest.raises(TooLongError):
            read_table(path, mapping, map_file)
        text = long_text.long_text(path, mapping)
        if text is None:  # the first lines show no table
            return None
        try:
            table = LongTable(text, map_file)
        except FileError as error:
            return str(error)
        parts = [*table.parts()]
    assert len(parts) > 1
    return plain(parts), table.notes, table.disagreements


def plain(parts):
    """Columns of rows, of failures and of lines as lists, in which NaN is the text nan."""
    columns = {
        f"{kind} {name}": [
            value for part in parts for value in np.asarray(getattr(part, kind)[name]).tolist()
        ]
        for kind in ("rows", "failures")
        for name in getattr(parts[0], kind)
    }
    columns["lines"] = [line for part in parts for line in part.lines.tolist()]
    return {
        name: [str(value) if value != value else value for value in values]
        for name, values in columns.items()
    }


@given(
    st.integers(0, 2**32),
    st.integers(60, 150),
    st.integers(1, 5),
    st.sampled_from([0.0, 0.0, 0.002]),
    st.sets(st.sampled_from(["node", "core_v", "n_sp", "power_w", "size", "mem_mhz"])),
    st.lists(
        st.sampled_from(sorted(WRONG)).flatmap(
            lambda name: st.tuples(
                st.just(name), st.sampled_from(WRONG[name]), st.floats(0, 1), st.booleans()
            )
        ),
        max_size=3,
    ),
    st.sampled_from(["none", "map", "map", "exact", "numbered"]),
    st.lists(st.tuples(st.sampled_from(LINES), st.integers(55, 60)), max_size=1),
)
def test_a_long_table_is_imported_as_one_that_is_read_whole(
    tmp_path_factory, seed, n, kernels, jitter, drop, wrong, mapped, between
):
    folder = tmp_path_factory.mktemp("long")
    drop = drop | {"size"} if mapped == "none" else drop - {"size"}
    rows = rows_of(seed, n, kernels, jitter, drop)
    for name, text, at, to_end in wrong:
        if name in rows[0]:
            first = 1 + int(at * (n - 1))
            for row in rows[first : None if to_end else first + 1]:
                row[rows[0].index(name)] = text
    (folder / "t.csv").write_text(text_of(rows))
    map_file = None
    if mapped != "none":
        repeats = str(mapped == "numbered").lower()
        clocks = "exact" if mapped == "exact" else "grouped"
        map_file = folder / "m.toml"
        map_file.write_text(MAP.format(repeats=repeats, clocks=clocks))
        if mapped == "numbered":
            at = rows[0].index("repeat")
            rows = [row[:at] + row[at + 1 :] for row in rows]
            (folder / "t.csv").write_text(text_of(rows))
    for line, at in between:
        lines = (folder / "t.csv").read_text().split("\n")
        lines.insert(at, line)
        (folder / "t.csv").write_text("\n".join(lines))
    mapping = with_arguments(read_map(map_file), None, {})
    whole = read_whole(folder / "t.csv", mapping, map_file)
    assert read_in_parts(folder / "t.csv", mapping, map_file) in (whole, None)


CAPS = [
    [
        "a",
        "node1",
        "k",
        str(i),
        repr(100.5 + 50 * (i % 4)),
        "1.5",
        repr(1.5 * (99.5 + 50 * (i % 4))),
    ]
    for i in range(100)
]
LOG = [["a", "node1", f"k{i % 2}", repr(900.5), repr(1.5 + i), "7.5"] for i in range(100)]
COST = {"ok": ["2.5", "9"], "node lost": ["", ""]}
ATTEMPTS = [
    [f"{i % 40:024x}", "a", "k", str(i % 40), "1000.5", *COST[status], status, str(i // 40), "1.5"]
    for i in range(120)
    for status in ["ok" if i // 40 == i % 40 % 3 else "node lost"]
]
COLUMNS = "site,node,kernel,repeat,core_mhz,time_s,energy_j"


@pytest.mark.parametrize(
    ("header", "rows", "map_text", "said"),
    [
        (COLUMNS, CAPS, "", "is a power cap (power limit) in W, not a clock: rows draw 99.5 W"),
        (COLUMNS.replace(",repeat", ""), LOG, "number_repeats = true", "time_s: rises by 2 s"),
        (
            COLUMNS.replace("kernel", "region"),
            [[row[0], f"n{i % 3}", f"r{i % 3}", *row[3:]] for i, row in enumerate(CAPS)],
            '[columns]\nkernel = "region"',
            "each of its values is of one kernel",
        ),
        (
            f"{COLUMNS},kind",
            [[*row, "old"] for row in CAPS],
            '[[keep]]\ncolumn = "kind"\nvalues = ["new"]',
            "none of its 100 rows is kept",
        ),
        (
            "point_id,site,kernel,repeat,core_mhz,time_s,energy_j,status,attempt,start_unix_s",
            ATTEMPTS,
            "",
            "",
        ),
    ],
)
def test_what_only_all_rows_show_is_seen_in_parts(tmp_path, header, rows, map_text, said):
    (tmp_path / "t.csv").write_text(text_of([header.split(","), *rows]))
    (tmp_path / "m.toml").write_text(map_text)
    mapping = with_arguments(read_map(tmp_path / "m.toml"), None, {})
    found = read_in_parts(tmp_path / "t.csv", mapping, tmp_path / "m.toml")
    assert found == read_whole(tmp_path / "t.csv", mapping, tmp_path / "m.toml")
    if said:
        assert said in found
    else:
        points, failures = (found[0][f"{kind} point_id"] for kind in ("rows", "failures"))
        assert len({*points}) == len(points) == 40 and len(failures) == 80
        assert {*found[0]["rows status"]} == {"ok"}


def imported(table, store, long: bool) -> tuple:
    """What an import prints, and the files that it leaves."""
    with pytest.MonkeyPatch.context() as patch:
        if long:
            lowered(patch)
        code, *said = run("import", table, "--store", store)
    said = [text.replace(str(store), "S") for text in said]
    files = {
        str(path.relative_to(store)): path.read_bytes()
        for path in sorted(store.rglob("*"))
        if path.is_file() and path.name != "store.json"
    }
    return code, said, files


def test_the_store_of_a_long_table_is_that_of_one_that_is_read_whole(tmp_path):
    """Of one table after the other: new points, points that were failed, and held ones."""
    header = "point_id,site,kernel,repeat,core_mhz,time_s,energy_j,status,attempt,start_unix_s"
    for name, rows in (("1", ATTEMPTS[:60]), ("2", ATTEMPTS), ("3", ATTEMPTS[::-1])):
        (tmp_path / f"{name}.csv").write_text(text_of([header.split(","), *rows]))
    rows = rows_of(1, 150, 4, 0.0, {"size"})
    (tmp_path / "4.csv").write_text(text_of(rows))
    (tmp_path / "5.csv").write_text(
        text_of([*rows[:140], [*rows[140][:-4], "7.5", *rows[140][-3:]]])
    )
    at = rows[0].index("mem_mhz")
    rows[1:] = [["c", *row[1:at], "", *row[at + 1 :]] for row in rows[1:]]
    rows[24][at] = "500"  # the only memory clock, within a part
    (tmp_path / "6.csv").write_text(text_of(rows))
    for name in "123456":
        table = tmp_path / f"{name}.csv"
        whole = imported(table, tmp_path / "whole", long=False)
        long = imported(table, tmp_path / "long", long=True)
        assert long[0] == whole[0]
        assert long[1][1] == whole[1][1]
        assert long[1][0].splitlines()[-1:] == whole[1][0].splitlines()[-1:]
        if name == "1":
            assert long[1] == whole[1]
        assert [*long[2]] == [*whole[2]]
        assert [name for name in whole[2] if long[2][name] != whole[2][name]] == []
        assert whole[0] == (2 if name == "5" else 0)


KILLED = """
import os, signal, sys
from campaign.store import compaction
from campaign.store.dataset import current_tables
from campaign.store.layout import open_store
from campaign.store.table_files import TableFiles
from campaign.table import delimited, long_text
from campaign.verbs.command_line import main
delimited.MAX_VALUES, delimited.PART_BYTES, long_text.PART_ROWS = 300, 512, 16
name, left = sys.argv[3], int(sys.argv[4])
where = TableFiles if name == "append" else compaction
called = getattr(where, name)
def killed(*words, **named):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return called(*words, **named)
setattr(where, name, killed)
main(["import", sys.argv[1], "--store", sys.argv[2]])
"""


@pytest.mark.parametrize(
    ("where", "calls", "held"),
    [("append", 0, 40), ("append", 3, 40), ("commit", 0, 40), ("_remove_old", 1, 190)],
)
def test_an_import_of_parts_that_is_killed_leaves_the_old_state_or_the_new(
    tmp_path, where, calls, held
):
    store = tmp_path / "s"
    header = "point_id,site,kernel,repeat,core_mhz,time_s,energy_j,status,attempt,start_unix_s"
    (tmp_path / "first.csv").write_text(text_of([header.split(","), *ATTEMPTS]))
    assert main(["import", str(tmp_path / "first.csv"), "--store", str(store)]) == 0
    (tmp_path / "t.csv").write_text(text_of(rows_of(1, 150, 4, 0.0, {"size"})))
    words = [str(tmp_path / "t.csv"), str(store), where, str(calls)]
    done = subprocess.run([sys.executable, "-c", KILLED, *words], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(measurements_of(store)) == held
    assert imported(tmp_path / "t.csv", store, long=True)[0] == 0
    ids = measurements_of(store)["point_id"]
    assert len(ids) == ids.nunique() == 190
    assert not (store / "index" / ".next").exists()
