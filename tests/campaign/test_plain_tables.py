"""Plain tables, which Arrow reads, against Python's csv module and float()."""

from __future__ import annotations

import csv
import gzip
import io
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from campaign.table.delimited import read_delimited
from campaign.table.map_file import TableMap
from campaign.table.number_text import Numbers
from campaign.verbs.command_line import main
from tests.commands import refuses
from tests.stores import measurements_of

HEADER = ["site", "kernel", "core_mhz", "time_s", "energy_j"]
NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(10**30), 10**30).map(str),
    st.decimals(-1e9, 1e9, places=17).map(str),
    st.sampled_from(["", "1e-400", "4.9406564584124654e-324", "+1.5", ".5", "5.", "1E+5", " 2.5 "]),
)
PLAIN = st.text(st.characters(exclude_characters='",\r\n#\0', codec="utf-8"), max_size=5)
WORDS = st.one_of(PLAIN, PLAIN, PLAIN, st.text('ab ",#\n', max_size=5))
ROWS = st.lists(st.tuples(WORDS, WORDS, NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=30)


def text_of(rows, end: str = "\n") -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator=end).writerows([HEADER, ["a", "k", "1.5", "1", "1"], *rows])
    return text.getvalue()


@example([('a"', "k", "1", "1", "1")], "\n", False, False)
@example([("# a", "k", "1", "1", "1")], "\n", False, False)
@given(ROWS, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans())
def test_columns_are_those_of_the_csv_module(tmp_path_factory, rows, end, packed, mark):
    path = tmp_path_factory.mktemp("plain") / "t.csv"
    data = text_of(rows, end).encode("utf-8-sig" if mark else "utf-8")
    path.write_bytes(gzip.compress(data) if packed else data)
    (header, lines, columns), delimiter, notes = read_delimited(path, TableMap())
    reader = csv.reader(io.StringIO(text_of(rows, end), newline=""), strict=True)
    ends = [(row, reader.line_num) for row in reader]
    starts = [(row, last + 1) for (_, last), (row, _) in pairwise(ends)]
    expected = [(row, at) for row, at in starts if not row[0].lstrip().startswith("#")]
    assert (header, delimiter, notes) == (HEADER, ",", [])
    assert list(lines) == [at for _, at in expected]
    for i, column in enumerate(columns):
        texts = [row[i].strip() for row, _ in expected]
        if isinstance(column, Numbers):
            theirs = np.array([float(text) if text else math.nan for text in texts])
            assert column.values.tobytes() == theirs.tobytes() and not column.refused
        else:
            assert list(column) == texts


def test_a_plain_table_is_read_by_arrow(tmp_path):
    """Without this, the property above would hold of a reader that is never used."""
    (tmp_path / "t.csv").write_text(text_of([("a", "k", "2", "", "1e3")]))
    (_, _, columns), _, _ = read_delimited(tmp_path / "t.csv", TableMap())
    assert [isinstance(column, Numbers) for column in columns] == [False, False, True, True, True]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a,k,1000,1.2x3,1", "t.csv:3: time_s: found '1.2x3'"),
        ("a,k,1000,nan,1", "t.csv:3: time_s: found 'nan'"),
        ("a,k,1000,1e999,1", "t.csv:3: time_s: found '1e999'"),
        ("a,k,1000,,1", "t.csv:3: time_s: missing"),
        ("a,k,1000,1", "t.csv:3: 4 fields where the header has 5"),
        ("\n\na,k,1000,-1.5,1", "t.csv:5: time_s: found -1.5"),
        ("# a comment\na,k,1000,-1.5,1", "t.csv:4: time_s: found -1.5"),
        ("a,k,1000,1.5,1\r\r\na,k,2000,-1.5,1", "t.csv:5: time_s: found -1.5"),
        ('"a\nb",k,1000,1.5,1', "t.csv:3: site: found"),
        ("a,k,1500.5,2.5,9", "t.csv:3: the same point as line 2"),
    ],
)
def test_a_row_that_is_wrong_is_named_by_its_line(tmp_path, line, said):
    table = tmp_path / "t.csv"
    table.write_text(f"{','.join(HEADER)}\na,k,1500.5,1.5,2.5\n{line}\na,k,2500.5,1.5,2.5\n")
    assert said in refuses("import", table, "--store", tmp_path / "s")


def test_the_rows_of_a_large_table_are_in_the_store(tmp_path):
    """More rows than a chunk of the store has, added to a store with rows."""
    rng = np.random.default_rng(0)
    rows = [
        (f"site{i % 3}", f"kernel {i // 9}", str(1000.5 + i % 7), repr(t), repr(2.0 * t))
        for i, t in enumerate(rng.uniform(0.5, 2.0, 150_000).tolist())
    ]
    store = tmp_path / "s"
    for name, part in (("one.csv", rows[:100_000]), ("all.csv", rows)):
        (tmp_path / name).write_text("\n".join(map(",".join, [HEADER, *part])) + "\n")
        assert main(["import", str(tmp_path / name), "--store", str(store)]) == 0
    frame = measurements_of(store)
    assert frame["point_id"].is_unique
    assert frame["table_line"].tolist() == list(range(2, 150_002))
    for i, name in enumerate(HEADER):
        own = [row[i] for row in rows]
        assert frame[name].tolist() == (own if i < 2 else list(map(float, own)))
