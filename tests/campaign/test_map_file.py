"""Other people's tables: what is recognised in the file, and what a map file says of it."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.store.layout import open_store
from campaign.store.site_record import read_site_record
from campaign.table.checking import checked_rows
from campaign.table.map_file import TableMap, read_map
from campaign.table.reading import read_table
from campaign.verbs.command_line import main
from dvfs.input_files import FileError
from dvfs.setting import Setting
from tests.commands import answers, refuses

HEADER = ["site", "kernel", "core_mhz", "time_s", "energy_j"]
ROWS = [["a", "k", "1000", "1.5", "3.25"], ["a", "k", "2000", "0.75", "2.5"]]
TEXT = "\n".join(map(",".join, [HEADER, *ROWS])) + "\n"


def read(folder: Path, table: str | bytes, mapping: str = "", name: str = "t.csv") -> pd.DataFrame:
    if isinstance(table, bytes):
        (folder / name).write_bytes(table)
    else:
        (folder / name).write_text(table, newline="")
    (folder / "m.toml").write_text(mapping)
    by = read_map(folder / "m.toml") if mapping else TableMap()
    return pd.DataFrame(checked_rows(read_table(folder / name, by), by).rows)


def refusal(folder: Path, table: str | bytes, mapping: str = "", name: str = "t.csv") -> str:
    with pytest.raises(FileError) as refused:
        read(folder, table, mapping, name)
    return str(refused.value)


def values(frame: pd.DataFrame) -> list[list[object]]:
    return frame[HEADER].to_numpy().tolist()


EXPECTED = [["a", "k", 1000.0, 1.5, 3.25], ["a", "k", 2000.0, 0.75, 2.5]]


# -- recognised ----------------------------------------------------------------------------------


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_delimiters_and_decimal_commas_are_recognised(tmp_path, delimiter, decimal, ending):
    if delimiter == decimal:
        return
    text = TEXT.replace(",", delimiter).replace(".", decimal).replace("\n", ending)
    assert values(read(tmp_path, text)) == EXPECTED


NAMES = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=6)
NUMBERS = st.floats(1e-6, 1e6).map(lambda number: f"{number:.7g}")


@given(st.lists(st.tuples(NAMES, NUMBERS, NUMBERS), min_size=1, max_size=6), st.data())
def test_a_table_reads_the_same_with_any_delimiter(tmp_path_factory, rows, data):
    folder = tmp_path_factory.mktemp("t")
    table = [["site", "kernel", "core_mhz", "repeat", "time_s", "energy_j"]]
    table += [["a", k, "1000", str(i), t, e] for i, (k, t, e) in enumerate(rows)]
    delimiter = data.draw(st.sampled_from([";", "\t", "|"]))
    other = "\n".join(map(delimiter.join, table)) + "\n"
    with_commas = {text: text.replace(".", ",") for row in rows for text in row[1:]}
    unclear = any(
        # 1,234 alone may be either; one number that is surely decimal settles it
        "," in text and len(text.partition(",")[2]) == 3
        for text in with_commas.values()
    )
    columns = ["kernel", "time_s", "energy_j"]
    plain = read(folder, "\n".join(map(",".join, table)) + "\n")[columns]
    if not unclear:
        pd.testing.assert_frame_equal(read(folder, other)[columns], plain)
        for text in table[1:]:
            text[4:] = [with_commas[text[4]], with_commas[text[5]]]
        other = "\n".join(map(delimiter.join, table)) + "\n"
        pd.testing.assert_frame_equal(read(folder, other)[columns], plain)


def test_what_could_be_a_separator_of_thousands_is_refused(tmp_path):
    text = "site;kernel;core_mhz;time_s;energy_j\na;k;1000;1,234;3\n"
    said = refusal(tmp_path, text)
    assert "t.csv:2: time_s: " in said and "'1,234'" in said
    assert 'decimal = ","' in said and 'thousands = ","' in said
    assert read(tmp_path, text, 'thousands = ","')["time_s"].tolist() == [1234]
    assert read(tmp_path, text, 'decimal = ","')["time_s"].tolist() == [1.234]
    both = "site;kernel;core_mhz;time_s;energy_j\na;k;1000;1,5;3.5\n"
    assert "numbers with a comma ('1,5') and with a point ('3.5')" in refusal(tmp_path, both)
    assert "found '1,5'; must be a number" in refusal(tmp_path, both, 'decimal = "."')


def test_decimal_commas_between_commas_are_refused_with_advice(tmp_path):
    said = refusal(tmp_path, ",".join(HEADER) + "\na,k,1000,1,5,3,25\n")
    assert "t.csv:2: 7 fields where the header has 5" in said
    assert "separate the columns by semicolons" in said


def test_columns_in_spaces_need_the_map(tmp_path):
    text = "site kernel  core_mhz time_s energy_j  \n a  k 1000   1.5 3.25\na k 2000 0.75 2.5\n"
    assert values(read(tmp_path, text, 'delimiter = " "')) == EXPECTED


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_tables_are_read_whatever_their_name(tmp_path, pack: Callable[[bytes], bytes]):
    assert values(read(tmp_path, pack(TEXT.encode()), name="t.csv.gz")) == EXPECTED
    cut = pack(TEXT.encode() * 20)[:-9]
    assert "t.csv.gz: cannot be unpacked" in refusal(tmp_path, cut, name="t.csv.gz")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x28\xb5\x2f\xfd123", "t.csv: is compressed by Zstandard; unpack it: zstd -d t.csv"),
        (b"PK\x03\x04123", "t.csv: is a ZIP file or a spreadsheet; unpack it, or save"),
        (TEXT.replace(",k,", ",\xe9,").encode("latin-1"), "t.csv:2: byte 0xe9 is not UTF-8 text; "),
        (TEXT.encode("utf-16-le"), "zero bytes in its first line, as UTF-16 has; save it as UTF-8"),
        (b"\xff\xfeabc", "t.csv: is not UTF-16 text; save it as UTF-8"),
    ],
)
def test_what_is_no_text_is_named_with_a_remedy(tmp_path, data, words):
    assert words in refusal(tmp_path, data)


def test_text_with_a_byte_order_mark_is_read(tmp_path):
    for encoding in ("utf-8-sig", "utf-16"):
        assert values(read(tmp_path, TEXT.encode(encoding))) == EXPECTED


def test_parquet_of_any_name_is_read(tmp_path):
    frame = pd.DataFrame(EXPECTED, columns=HEADER)
    frame.to_parquet(tmp_path / "p")
    assert values(read(tmp_path, (tmp_path / "p").read_bytes(), name="p.data")) == EXPECTED


# -- maps ----------------------------------------------------------------------------------------

POSITIVE = st.floats(1e-9, 1e9)


@given(
    parts=st.lists(POSITIVE, min_size=1, max_size=3),
    factor=st.floats(1e-6, 1e5),
    offset=st.floats(0, 1e9),
    reciprocal=st.booleans(),
)
def test_a_columns_value_is_what_the_map_computes(
    tmp_path_factory, parts, factor, offset, reciprocal
):
    """Against exact fractions."""
    names = [f"part {i}" for i in range(len(parts))]
    source = f"sum = {json.dumps(names)}" if len(parts) > 1 else f'column = "{names[0]}"'
    mapping = (
        f"[columns]\nenergy_j = {{ {source}, factor = {factor!r}, offset = {offset!r}, "
        f"reciprocal = {str(reciprocal).lower()} }}\n"
    )
    header = ["site", "kernel", "core_mhz", "time_s", *names]
    row = ["a", "k", "1000", "1", *map(repr, parts)]
    text = "\n".join(map(",".join, [header, row]))
    exact = sum(map(Fraction, parts))
    exact = (1 / exact if reciprocal else exact) * Fraction(factor) + Fraction(offset)
    (energy_j,) = read(tmp_path_factory.mktemp("t"), text, mapping)["energy_j"]
    assert math.isclose(energy_j, exact, rel_tol=1e-14)


def test_a_sum_without_a_part_and_what_is_no_number_are_named(tmp_path):
    header = "site,kernel,core_mhz,time_s,a,b\n"
    mapping = '[columns]\nenergy_j = { sum = ["a", "b"], factor = 2.0 }'
    assert "t.csv:2: energy_j: missing" in refusal(tmp_path, f"{header}s,k,1,1,2,\n", mapping)
    said = refusal(tmp_path, f"{header}s,k,1,1,2,x\n", mapping)
    assert "t.csv:2: energy_j: found 'x'; must be a number" in said
    rate = '[columns]\ntime_s = { column = "a", reciprocal = true, offset = 1.0 }'
    text = "site,kernel,core_mhz,a,energy_j\ns,k,1,0,1\n"
    assert "time_s: found 0; must be above 0" in refusal(tmp_path, text, rate)


def test_names_are_joined_and_rows_are_kept_by_value_and_expression(tmp_path):
    text = "site,name,size,run,core_mhz,time_s,energy_j\n" + "".join(
        f"a,{name},{size},{run},1000,1,2\n"
        for name in ("gemm", "warm-up", "sgemv")
        for size in ("512", "")
        for run in ("1.0", "2", "true")
    )
    mapping = '[columns]\nkernel = { join = ["name", "size"], separator = "/" }\n'
    keep = '[[keep]]\ncolumn = "name"\nmatches = "gem"\n[[keep]]\ncolumn = "run"\nvalues = %s\n'
    kept = read(tmp_path, text, mapping + keep % "[1]")
    assert kept["kernel"].tolist() == ["gemm/512", "gemm", "sgemv/512", "sgemv"]
    assert len(read(tmp_path, text, mapping + keep % '["2"]')) == 4
    assert len(read(tmp_path, text, mapping + keep % "[true]")) == 4
    assert kept["table_line"][0] == 2
    said = refusal(tmp_path, text, mapping + keep.replace('"run"', '"phase"') % "[1]")
    assert "no column 'phase', which the map names for keep" in said


def test_columns_are_parameters_of_the_kernel(tmp_path):
    text = "site,kernel,tile,order,fast,core_mhz,time_s,energy_j\n" + "".join(
        f"s,k,{cells},1000,1,1\n" for cells in ("8,mnk,true", "0.5,012,false", ",n m,True")
    )
    mapping = 'params = ["tile", "order", "fast"]'
    assert [json.loads(params) for params in read(tmp_path, text, mapping)["params"]] == [
        {"tile": 8, "order": "mnk", "fast": True},
        {"tile": 0.5, "order": "012", "fast": False},
        {"order": "n m", "fast": "True"},
    ]
    said = refusal(tmp_path, text, 'params = ["tile", "ordre", "fast"]')
    assert "no column 'ordre', which the map names for params" in said
    beside = text.replace("order", "params")
    said = refusal(tmp_path, beside, 'params = ["tile", "fast"]')
    assert "params in the map beside a column params; leave params out" in said
    said = refusal(tmp_path, text, f'{mapping}\n[constants]\nparams = "x"')
    assert "params beside a column or constant params; leave out one of the two" in said


def test_repeats_are_numbered_in_the_files_order(tmp_path):
    rows = [(kernel, mhz, i) for i in range(3) for kernel in "ab" for mhz in (1000, 2000)]
    text = "site,kernel,core_mhz,time_s,energy_j\n"
    text += "".join(f"s,{kernel},{mhz},{1 + i},1\n" for kernel, mhz, i in rows)
    assert "number them in a column repeat or by number_repeats" in refusal(tmp_path, text)
    frame = read(tmp_path, text, "number_repeats = true")
    assert frame["repeat"].tolist() == [i for _, _, i in rows] == (frame["time_s"] - 1).tolist()
    assert frame["point_id"].is_unique
    said = refusal(
        tmp_path,
        text.replace("time_s,", "time_s,repeat,", 1).replace(",1\n", ",0,1\n"),
        "number_repeats = true",
    )
    assert "number_repeats beside a column repeat" in said


def test_achieved_clocks_and_uncertainty_are_kept_and_clocks_are_as_stated(tmp_path):
    header = "site,kernel,core_mhz,mem_mhz,read,mem_read,time_s,energy_j,sd\n"
    text = (
        header + "a,k,1000,500,1049,500,1,2,0.1\na,k,2000,500,2101,500,1,2,\na,k,3000,500,,,1,2,\n"
    )
    mapping = (
        '[columns]\ncore_mhz_achieved = "read"\nmem_mhz_achieved = "mem_read"\n'
        'energy_std_j = { column = "sd", factor = 1e-3 }\n'
    )
    frame = read(tmp_path, text, mapping)
    assert frame["clock_proof"].tolist() == ["read back", "stated", "stated"]
    assert frame["core_mhz_achieved"].tolist()[:2] == [1049.0, 2101.0]
    assert frame["energy_std_j"].tolist()[0] == pytest.approx(1e-4)
    assert np.isnan(frame["energy_std_j"][1])
    assert set(read(tmp_path, TEXT)["clock_proof"]) == {"stated"}
    said = read(tmp_path, TEXT, '[constants]\nclock_proof = "timed"\nsimulated = true\n')
    assert set(said["clock_proof"]) == {"timed"} and said["simulated"].all()


def test_legal_settings_can_be_picked(tmp_path):
    """A setting that nobody measured is the best: 2.2 J V^2 and 1 W for 1 s at 1 GHz, each times
    the kernel's size. The voltages are the map's, else the rows'."""
    clocks = {1000: 0.8, 1500: 0.9, 2000: 1.0}
    text = "site,kernel,core_mhz,core_v,time_s,energy_j,n_sp\n" + "".join(
        f"a,k{k},{mhz},{v},{1000 * k / mhz},{k * 2.2 * v**2 + 1000 * k / mhz},{k}e9\n"
        for k in range(1, 4)
        for mhz, v in clocks.items()
    )
    (tmp_path / "t.csv").write_text(text)
    legal = "legal = [[1000], [1250], [1500], [2000]]\n"
    (tmp_path / "m.toml").write_text(legal + "[voltage]\ncore = [[1250, 0.8]]\n")
    store = str(tmp_path / "s")
    words = ["import", str(tmp_path / "t.csv"), "--map", str(tmp_path / "m.toml")]
    assert main([*words, "--store", store]) == 0
    record = read_site_record(open_store(Path(store)), "a")
    volts = {1000.0: 0.8, 1250.0: 0.8, 1500.0: 0.9, 2000.0: 1.0}
    assert record.legal == {Setting(mhz): (v, None) for mhz, v in volts.items()}
    assert main(["fit", store, "--site", "a"]) == 0
    picks = answers("predict", store, "--site", "a", "--all-settings")
    assert [pick["core_mhz"] for pick in picks] == [1250.0] * 3
    train = [word for mhz in (1000, 2000) for word in ("--train", str(mhz))]
    assert answers("crossval", store, "--site", "a", "--scheme", "holdout", *train)["n"] == 3
    assert "trains on 7 MHz, which was not measured" in refuses(
        "crossval", store, "--site", "a", "--scheme", "holdout", "--train", "7"
    )


def test_all_columns_that_are_missing_unknown_or_twice_are_named_at_once(tmp_path):
    said = refusal(
        tmp_path, TEXT.replace("time_s", "t").replace("energy_j", "e"), "[constants]\ncore_mhz = 1"
    )
    assert "no column time_s, energy_j or power_w" in said
    assert "unknown columns 't', 'e'" in said
    assert "m.toml: constants.core_mhz" in said or "constants.core_mhz" in said
    said = refusal(tmp_path, TEXT, '[columns]\ntime_s = "t"\nenergy_j = "e"')
    assert "'t', which the map names for time_s" in said and "'e', which" in said


@pytest.mark.filterwarnings("error")
def test_impossible_values_raise_no_warnings(tmp_path):
    rows = [
        f"a,k{i},{mhz},{t},{e}"
        for i, (mhz, t, e) in enumerate(
            (mhz, t, e)
            for mhz in ("-1", "0", "1e300", "1000", "1001", "1002.5", "1003", "1004")
            for t in ("-1", "0", "1e300")
            for e in ("-1", "0", "1e300")
        )
    ]
    for header in (HEADER, [*HEADER[:-1], "power_w"]):
        assert "core_mhz: found -1" in refusal(
            tmp_path, "\n".join([",".join(header), *rows]) + "\n"
        )


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ('delimiter = "x"', "m.toml:1: delimiter: found 'x'; must be ',', ';'"),
        ('[columns]\ntime_s = { sum = ["a"], column = "b" }', "time_s: not one source; give"),
        ('[columns]\ntime_s = { colum = "b" }', "did you mean 'column'?"),
        ("[columns]\ntime_s = 3", "time_s: found 3; give the name of a column"),
        ('[columns]\nkernel = { join = ["a"], factor = 2.0 }', "join with a conversion"),
        (
            '[[keep]]\ncolumn = "a"\nmatches = "("',
            "m.toml:3: keep[0].matches: found '(' (missing )",
        ),
        ('[[keep]]\ncolumn = "a"', "keep[0]: not one rule; give values or matches"),
        ("legal = [[1, 2, 3]]", "legal: found [1.0, 2.0, 3.0]; give [core MHz, memory MHz]"),
        ("legal = [[true]]", "m.toml:1: legal[0][0]: found True; must be a number"),
        ("legal = [[1e-300]]", "m.toml:1: legal: found 1e-300; must be from 10 to 10000 MHz"),
        (
            "[voltage]\ncore = [[1000, 1e-300]]",
            "voltage.core: found 1e-300; must be from 0.2 to 5 V",
        ),
        ('[columns]\ntime_s = { column = "a", factor = 1e-300 }', "time_s.factor: found 1e-300;"),
        (
            '[columns]\ntime_s = { column = "a", factor = true }',
            "factor: found True; must be a numb",
        ),
        ('[columns]\ntime_s = { column = "a", unit = "mz" }', "time_s.unit: found 'mz'; "),
        ('[columns]\ntime_s = { column = "a", unit = "mJ" }', "time_s in the unit 'mJ'; its units"),
        ('[columns]\ntime_s = { column = "a", unit = "ms", factor = 2 }', "unit beside factor"),
        ('decimal = ","\nthousands = ","', "thousands and decimal are the same mark"),
        ("number_repeats = true\n[constants]\nrepeat = 1", "number_repeats beside a column or"),
    ],
)
def test_wrong_maps_are_refused(tmp_path, mapping, words):
    assert words in refusal(tmp_path, TEXT, mapping)


@pytest.mark.parametrize("key", ["factor = 2", "reciprocal = true", "offset = 1"])
def test_a_text_is_no_number(tmp_path, key):
    (tmp_path / "m.toml").write_text(f'[columns]\nprofile = {{ column = "p", {key} }}\n')
    with pytest.raises(FileError, match=r"m\.toml:2: columns\.profile"):
        read_map(tmp_path / "m.toml")
