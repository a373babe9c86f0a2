"""Tables as other people and programs write them: read exactly, or refused with a remedy."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from campaign.table.number_text import number
from campaign.table.profiler_tables import Selection, read_counted
from dvfs.input_files import FileError
from tests.campaign.test_map_file import read, refusal

HEADER = "site;kernel;core_mhz;time_s;energy_j"
MS = '[columns]\ntime_s = { column = "t", unit = "ms" }\n'
SITE = '[constants]\nsite = "c"\n'
WRITTEN = (
    SITE
    + 'kernel = "k"\n[columns]\n'
    + "".join(
        f'{name} = {{ column = "{column}", unit = "as written" }}\n'
        for name, column in (("time_s", "t"), ("core_mhz", "clock"), ("power_w", "power"))
    )
)
SACCT = SITE + "[columns]\nkernel = 'JobName'\n"
NNBSP, NBSP, THIN, QUOTE = "\u202f", "\u00a0", "\u2009", "\u2019"


def rows(*lines: str, header: str = HEADER) -> str:
    return "\n".join([header, *lines]) + "\n"


def cells(time: str, energy: str, mhz: str = "1000") -> str:
    return rows(f"a;k;{mhz};{time};{energy}")


READ: dict[str, tuple[str, str, list[tuple[float, float, float]]]] = {
    "points": (cells("1.5", "3.25"), "", [(1000, 1.5, 3.25)]),
    "commas": (cells("1,5", "3,25"), "", [(1000, 1.5, 3.25)]),
    "de: 1.234,5": (cells("0,5", "1.234,5"), "", [(1000, 0.5, 1234.5)]),
    "de: groups shown by another row": (
        rows("a;k;1000;0,5;1.234,5", "a;l;1000;0,5;46.804"),
        "",
        [(1000, 0.5, 1234.5), (1000, 0.5, 46804)],
    ),
    "de: 1.234.567": (cells("0,5", "1.234.567"), "", [(1000, 0.5, 1234567)]),
    "de: stated": (cells("3699,91", "46.804"), 'thousands = "."', [(1000, 3699.91, 46804)]),
    "de: both stated": (cells("1", "46.804"), 'decimal = ","\nthousands = "."', [(1000, 1, 46804)]),
    "en: 1,234.5": (cells("0.5", "1,234.5"), "", [(1000, 0.5, 1234.5)]),
    "en: stated": (cells("1,234", "46,804"), 'thousands = ","', [(1000, 1234, 46804)]),
    "en: quoted between commas": (
        'site,kernel,core_mhz,time_s,energy_j\na,k,"1,000.0",0.5,"1,234,567"\n',
        "",
        [(1000, 0.5, 1234567)],
    ),
    "fr: narrow space": (cells("0,5", f"1{NNBSP}234,5"), "", [(1000, 0.5, 1234.5)]),
    "fr: no-break space": (cells("0,5", f"1{NBSP}234{NBSP}567"), "", [(1000, 0.5, 1234567)]),
    "si: thin space": (cells("0.5", f"12{THIN}345.5"), "", [(1000, 0.5, 12345.5)]),
    "sv: space": (cells("0,5", "1 234,5"), "", [(1000, 0.5, 1234.5)]),
    "ch: apostrophe": (cells("0.5", "1'234.5"), "", [(1000, 0.5, 1234.5)]),
    "ch: typographic apostrophe": (cells("0.5", f"1{QUOTE}234"), "", [(1000, 0.5, 1234)]),
    "ungrouped among groups": (
        rows("a;k;1000;0,5;1.234,5", "a;l;1000;0,5;1234"),
        "",
        [(1000, 0.5, 1234.5), (1000, 0.5, 1234)],
    ),
    "three decimals, one of them below 1": (cells("0.500", "46.804"), "", [(1000, 0.5, 46.804)]),
    "three decimals between commas, one of four": (
        "site,kernel,core_mhz,time_s,energy_j\na,k,1000,1.500,46.804\na,l,1000,1.5004,9.100\n",
        "",
        [(1000, 1.5, 46.804), (1000, 1.5004, 9.1)],
    ),
    "three decimals, stated": (cells("1.500", "46.804"), 'decimal = "."', [(1000, 1.5, 46.804)]),
    "exponents": (cells("1.5E+0", "325e-2"), "", [(1000, 1.5, 3.25)]),
    "exponents with commas": (cells("1,5E+0", "3,25e0"), "", [(1000, 1.5, 3.25)]),
    "signs and bare marks": (cells("+1.5", ".5", "1000."), "", [(1000, 1.5, 0.5)]),
    "byte order mark": ("\ufeff" + cells("1,5", "2,5"), "", [(1000, 1.5, 2.5)]),
    "spaces around": (cells(" 1.5 ", "\t2.5 "), "", [(1000, 1.5, 2.5)]),
    "windows lines": (cells("1,5", "2,5").replace("\n", "\r\n"), "", [(1000, 1.5, 2.5)]),
    "no last line end": (cells("1.5", "2.5")[:-1], "", [(1000, 1.5, 2.5)]),
    "words for no value": (
        rows("a;k;1000;1.5;NA;2", "a;l;1000;1.5;3;-", header=f"{HEADER};power_w"),
        'missing = ["NA", "-"]',
        [(1000, 1.5, 3), (1000, 1.5, 3)],
    ),
    "dates are labels": (
        rows("a;k;1000;1.5;3;2026-11-27 12:00", header=f"{HEADER};when"),
        'unknown = "label"',
        [(1000, 1.5, 3)],
    ),
    "units": (
        rows("a;k;2,4;1500;0,002", header="site;kernel;f;t;e"),
        MS + 'core_mhz = { column = "f", unit = "GHz" }\nenergy_j = { column = "e", unit = "Wh" }',
        [(2400, 1.5, 7.2)],
    ),
    "nvidia-smi": ("t, clock, power\n1500 ms, 1410 MHz, 61.05 W\n", WRITTEN, [(1410, 1.5, 91.575)]),
    "de: units in cells": (
        "t; clock; power\n1,5 s; 1,41 GHz; 1.061,05 W\n",
        WRITTEN,
        [(1410, 1.5, 1591.575)],
    ),
    "de: units in cells, stated": (
        "t; clock; power\n1.500 ms; 1.410 MHz; 61 W\n",
        'thousands = "."\n' + WRITTEN,
        [(1410, 1.5, 91.5)],
    ),
    "the unit of a column is in its name": (
        rows("a;k;1000;1500;0,002", header="site;kernel;core_mhz;time [ms];E_kWh"),
        '[columns]\ntime_s = { column = "time [ms]", unit = "ms" }\n'
        'energy_j = { column = "E_kWh", unit = "kWh" }',
        [(1000, 1.5, 7200)],
    ),
    "the name of a column is the standard unit, or none": (
        rows("a;k;1000;1,5;2", header="site;kernel;core_mhz;time_min;mean [w]"),
        '[columns]\ntime_s = "time_min"\npower_w = "mean [w]"',
        [(1000, 1.5, 3)],
    ),
    "sacct": (
        "JobName|Elapsed|ReqCPUFreq|ConsumedEnergy\nlu|02:19:48|2.00G|4.58M\n"
        "ft|1-02:46:30|1.50G|812.35K\nis|00:10.250|1.50G|812\n",
        SACCT
        + 'core_mhz = { column = "ReqCPUFreq", unit = "sacct-number" }\n'
        + 'time_s = { column = "Elapsed", unit = "sacct-duration" }\n'
        + 'energy_j = { column = "ConsumedEnergy", unit = "sacct-number" }\n',
        [(2000, 8388, 4.58e6), (1500, 96390, 812350), (1500, 10.25, 812)],
    ),
    "sacct in K of 1024": (
        "JobName|t|f|TRES\nlu|1500|2000|1.5K\n",
        SACCT + MS.partition("\n")[2] + 'core_mhz = "f"\n'
        'energy_j = { column = "TRES", unit = "sacct-memory" }\n',
        [(2000, 1.5, 1536)],
    ),
    "rows kept by a number with a decimal comma": (
        rows("a;k;1000;1,5;3,5;0,5", "a;l;1000;1,5;3,5;1", header=f"{HEADER};share"),
        'unknown = "label"\n[[keep]]\ncolumn = "share"\nvalues = [0.5]\n',
        [(1000, 1.5, 3.5)],
    ),
    "index of pandas as CSV": (
        ",site,kernel,core_mhz,time_s,energy_j\n0,a,k,1000,1.5,3.0\n",
        'unknown = "label"',
        [(1000, 1.5, 3)],
    ),
}


@pytest.mark.parametrize("name", READ)
def test_a_table_in_anothers_style_is_read_exactly(tmp_path: Path, name: str) -> None:
    table, mapping, expected = READ[name]
    frame = read(tmp_path, table, mapping)
    values = frame[["core_mhz", "time_s", "energy_j"]].to_numpy().tolist()
    assert values == [pytest.approx(row, rel=1e-15) for row in expected]


REFUSED: dict[str, tuple[str, str, list[tuple[int, str]], str]] = {
    # table, map, (line, column) of each thing wrong, and the key or word that the remedy names
    "de: point beside a comma": (cells("3699,91", "46.804"), "", [(2, "energy_j")], "thousands"),
    "de: decimal stated": (
        cells("3699,91", "46.804"),
        'decimal = ","',
        [(2, "energy_j")],
        "thousands",
    ),
    "en: comma beside a point": (cells("0.5", "1,234"), "", [(2, "energy_j")], "thousands"),
    "1,234 alone": (cells("1", "1,234"), "", [(2, "energy_j")], "decimal"),
    "1.234 alone between semicolons": (cells("1", "1.234"), "", [(2, "energy_j")], "decimal"),
    "1.234 alone between commas": (
        "site,kernel,core_mhz,time_s,energy_j\na,k,1000,2,46.804\n",
        "",
        [(2, "energy_j")],
        "decimal",
    ),
    "groups of two": (cells("0.5", "1,23,456.0"), "", [(2, "energy_j")], "number"),
    "a group of four": (cells("0,5", "1.2345"), 'thousands = "."', [(2, "energy_j")], "decimal"),
    "a group after the mark": (
        cells("0.5", "1,234.567,8"),
        'thousands = ","',
        [(2, "energy_j")],
        "number",
    ),
    "two marks of groups": (
        rows("a;k;1000;0,5;1.234,5", "a;l;1000;0,5;1'234"),
        "",
        [(3, "energy_j")],
        "number",
    ),
    "both decimal marks": (cells("1,5", "3.5"), "", [(2, "time_s")], "decimal"),
    "underscores": (cells("1.5", "1_0"), "", [(2, "energy_j")], "number"),
    "other digits": (cells("1.5", "\u0663"), "", [(2, "energy_j")], "number"),
    "hexadecimal": (cells("1.5", "0x10"), "", [(2, "energy_j")], "number"),
    "inf": (cells("1.5", "inf"), "", [(2, "energy_j")], "number"),
    "beyond all numbers": (cells("1.5", "1e999"), "", [(2, "energy_j")], "finite"),
    "NA": (cells("1.5", "NA"), "", [(2, "energy_j")], "missing"),
    "percent": (cells("1.5", "42.6%"), "", [(2, "energy_j")], "number"),
    "date": (cells("2026-11-27", "3"), "", [(2, "time_s")], "number"),
    "three columns at once": (
        "JobName|Elapsed|ReqCPUFreq|ConsumedEnergy\nlu|02:19:48|2.00G|4.58M\n",
        SACCT + 'core_mhz = "ReqCPUFreq"\ntime_s = "Elapsed"\nenergy_j = "ConsumedEnergy"\n',
        [(2, "core_mhz"), (2, "time_s"), (2, "energy_j")],
        "unit",
    ),
    "sacct without a reading": (
        "JobName|t|f|e\nlu|1500|2000|18446744073709551614\n",
        SACCT + MS.partition("\n")[2] + 'core_mhz = "f"\n'
        'energy_j = { column = "e", unit = "sacct-number" }\n',
        [(2, "energy_j")],
        "keep",
    ),
    "no duration": (
        rows("a;k;1000;25:61:00;3", header="site;kernel;core_mhz;t;energy_j"),
        '[columns]\ntime_s = { column = "t", unit = "sacct-duration" }',
        [(2, "time_s")],
        "HH:MM:SS",
    ),
    "units in cells that may be either": (
        "t; clock; power\n1.500 ms; 1410 MHz; 1.061 W\n",
        WRITTEN,
        [(2, "time_s"), (2, "power_w")],
        "thousands",
    ),
    "units in cells": (cells("1500 ms", "3 kJ"), "", [(2, "time_s"), (2, "energy_j")], "number"),
    "a row of units": (rows(";;MHz;s;J", "a;k;1000;1;3"), "", [(2, "a row of units")], "unit"),
    "time": (cells("1e300", "3"), "", [(2, "time_s")], "1e+09 s"),
    "count": (
        rows("a;k;1000;1;3;1e300", header=f"{HEADER};n_dp"),
        "",
        [(2, "n_dp")],
        "1e+28",
    ),
    "count below 0": (rows("a;k;1000;1;3;-1", header=f"{HEADER};n_dp"), "", [(2, "n_dp")], "0"),
    "voltage": (rows("a;k;1000;1;3;1e-300", header=f"{HEADER};core_v"), "", [(2, "core_v")], "V"),
    "power times time": (
        "site;kernel;core_mhz;time_s;power_w\na;k;1000;1e8;1e8\n",
        "",
        [(2, "power_w x time_s")],
        "J",
    ),
    "cut at a mark": (cells("1.5", "3.")[:-1], "", [(2, "energy_j")], "copy"),
    "cut in an exponent": (cells("1.5", "3.5e-")[:-1], "", [(2, "energy_j")], "copy"),
    "cut in its decimals": (
        rows(*(f"a;k{i};1000;1.5;3.25" for i in range(4)))[:-2],
        "",
        [(5, "energy_j")],
        "copy",
    ),
    "cut before its last number": (
        rows("a;k;1000;1.5;3", "a;l;1000;1.5;")[:-1],
        "",
        [(3, "energy_j")],
        "copy",
    ),
    "ragged end": (rows("a;k;1000;1.5;3", "a;l;1000"), "", [(3, "3 fields")], "line"),
    "a quote without its end": (
        'site,kernel,core_mhz,time_s,energy_j\na,"k,1000,1.5,3\n',
        "",
        [(2, "is not CSV")],
        "row",
    ),
}


@pytest.mark.parametrize(
    ("ours", "theirs", "unit"),
    [
        ("time_s", "time_ms", "ms"),
        ("time_s", "Runtime (us)", "us"),
        ("energy_j", "energy mJ", "mJ"),
        ("energy_j", "pkg_kwh", "kWh"),
        ("power_w", "power [mW]", "mW"),
    ],
)
def test_a_column_whose_name_says_another_unit_needs_its_unit(
    tmp_path: Path, ours: str, theirs: str, unit: str
) -> None:
    others = sorted({"time_s", "energy_j"} - {ours})
    header = ";".join(["site", "kernel", "core_mhz", theirs, *others])
    table = rows(";".join(["a;k;1000;10", *("10" for _ in others)]), header=header)
    said = refusal(tmp_path, table, f'[columns]\n{ours} = "{theirs}"')
    assert f"m.toml:2: columns.{ours}" in said
    assert f'unit = "{unit}"' in said
    assert len(read(tmp_path, table, f'[columns]\n{ours} = {{ column = "{theirs}", factor = 1 }}'))


@pytest.mark.parametrize(
    ("time", "texts", "values"),
    [
        ("0.5", ["1.024", "512"], [1.024, 512]),
        ("0,5", ["1.024", "0,25"], ["1.024", 0.25]),
        ("2", ["1.024", "0.25"], ["1.024", 0.25]),
    ],
)
def test_a_parameter_that_may_be_two_numbers_stays_the_text_that_it_is(
    tmp_path: Path, time: str, texts: list[str], values: list[object]
) -> None:
    lines = (f"a;k;1000;{time};3;{text}" for text in texts)
    frame = read(tmp_path, rows(*lines, header=f"{HEADER};n"), 'params = ["n"]')
    assert [json.loads(params)["n"] for params in frame["params"]] == values


@pytest.mark.parametrize("name", REFUSED)
def test_a_table_that_may_mean_something_else_is_refused_by_line_and_column(
    tmp_path: Path, name: str
) -> None:
    table, mapping, wrong, remedy = REFUSED[name]
    said = refusal(tmp_path, table, mapping)
    found = re.findall(r"t\.csv:(\d+): ([^:(;]*)", said)
    named = [(int(line), what) for line, what in found]
    assert [
        (line, what[: len(w)]) for (line, what), (_, w) in zip(named, wrong, strict=True)
    ] == wrong
    assert all(remedy in line for line in said.splitlines())


# -- power caps ----------------------------------------------------------------------------------

CAPS = {100: (98.1, 182.4), 125: (122.0, 160.8), 150: (146.6, 145.6), 200: (196.8, 124.5)}
CAPS |= {250: (243.4, 110.4)}
"""Cap in W -> mean power in W and time in s: own numbers, of a kernel that reaches its caps."""
CAP_NAMES = ["power_limit", "gpu.powerLimit [W]", "nvml_pwr_limit", "cap", "W"]


def sweep(name: str, factor: float = 1.0, beside: str = "") -> str:
    head = f"site;kernel;{name};time_s;power_w{';' if beside else ''}{beside}"
    return rows(
        *(
            f"a;{kernel};{cap};{s};{min(w, most) * factor:.2f}" + (f";{cap}" if beside else "")
            for kernel, most in (("k", 1e3), ("l", 90.0), ("m", 230.0))
            for cap, (w, s) in CAPS.items()
        ),
        header=head,
    )


@pytest.mark.parametrize(
    "name", ["power_limit", "gpu.powerLimit [W]", "nvml_pwr_limit", "cap", "W"]
)
def test_a_column_that_is_called_a_cap_is_no_clock(tmp_path: Path, name: str) -> None:
    said = refusal(tmp_path, sweep(name, 0.3), f'[columns]\ncore_mhz = "{name}"')
    assert f"core_mhz ('{name}' in the table)" in said and "power cap" in said
    assert "power_limit_w" in said
    frame = read(tmp_path, sweep(name, 0.3), f'[columns]\npower_limit_w = "{name}"')
    assert frame["power_limit_w"].tolist() == 3 * [*map(float, CAPS)]
    assert frame["core_mhz"].isna().all()


@pytest.mark.parametrize("name", ["power clock MHz", "sm_clock", "freq"])
def test_a_column_that_is_called_a_clock_is_one_unless_power_follows_it(
    tmp_path: Path, name: str
) -> None:
    mapping = f'[columns]\ncore_mhz = "{name}"'
    assert len(read(tmp_path, sweep(name, 0.3), mapping)) == 15
    assert len(read(tmp_path, sweep(name, 1.3), mapping)) == 15
    said = refusal(tmp_path, sweep(name), mapping)
    assert "power cap" in said and re.findall(r"(\d+)\S* W at (\d+)", said) == [
        ("98", "100"),
        ("243", "250"),
    ]


def test_clocks_that_were_read_back_are_no_caps_whatever_is_drawn(tmp_path: Path) -> None:
    assert len(read(tmp_path, sweep("core_mhz", beside="core_mhz_achieved"))) == 15


# -- any table, any style ------------------------------------------------------------------------

STYLES = [
    (decimal, thousands)
    for decimal, thousands in itertools.product(".,", ["", ".", ",", " ", NNBSP, "'", QUOTE])
    if decimal != thousands
]


def written(value: int, decimals: int, decimal: str, thousands: str) -> str:
    """A number of so many decimals, times 10 to that power, digit by digit."""
    digits = str(value).rjust(decimals + 1, "0")
    whole, fraction = digits[: len(digits) - decimals], digits[len(digits) - decimals :]
    groups = [whole[max(i - 3, 0) : i] for i in range(len(whole), 0, -3)][::-1]
    return thousands.join(groups) + (decimal + fraction if fraction else "")


VALUES = st.tuples(st.integers(1, 10**9), st.integers(0, 4))


@example([((46804, 0), (123456, 0))], (",", "."), ",", "")
@given(
    st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=5),
    st.sampled_from(STYLES),
    st.sampled_from([",", ";", "\t", "|"]),
    st.sampled_from(["", "thousands", "both"]),
)
def test_any_table_in_any_style_gives_its_numbers_or_a_refusal_never_others(
    tmp_path_factory: pytest.TempPathFactory,
    table: list[tuple[tuple[int, int], tuple[int, int]]],
    style: tuple[str, str],
    delimiter: str,
    stated: str,
) -> None:
    decimal, thousands = style
    lines = [["site", "kernel", "core_mhz", "time_s", "energy_j"]]
    for i, (time, energy) in enumerate(table):
        texts = [written(*time, decimal, thousands), written(*energy, decimal, thousands)]
        lines.append(["a", f"k{i}", "1000", *(f'"{t}"' if delimiter in t else t for t in texts)])
    mark = {NNBSP: " ", QUOTE: "'"}.get(thousands, thousands)
    keys = {"thousands": mark} if stated else {}
    keys |= {"decimal": decimal} if stated == "both" else {}
    mapping = "".join(f'{key} = "{value}"\n' for key, value in keys.items() if value)
    folder = tmp_path_factory.mktemp("t")
    try:
        frame = read(folder, "\n".join(map(delimiter.join, lines)) + "\n", mapping)
    except FileError:
        # What states both marks is never refused.
        assert stated != "both" or not thousands
        return
    expected = [[t / 10**p, e / 10**q] for (t, p), (e, q) in table]
    values = frame[["time_s", "energy_j"]].to_numpy().tolist()
    assert values == [pytest.approx(row, rel=1e-15) for row in expected]


@given(st.text(st.sampled_from("0123456789.,'_ eE+-xnaif\u0663\u00b2"), min_size=1, max_size=8))
def test_a_text_is_the_number_that_python_reads_or_none(text: str) -> None:
    """Without what Python takes and tables do not have: underscores, other digits, inf and nan."""
    try:
        value = number(text)
    except ValueError:
        plain = re.fullmatch(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,4})?", text.strip())
        assert plain is None or abs(float(text)) == float("inf")
    else:
        assert value == float(text) and "_" not in text and text.strip().isascii()


# -- Parquet -------------------------------------------------------------------------------------

FRAME = pd.DataFrame(
    {"site": "a", "kernel": ["k", "l"], "core_mhz": 1000.0, "time_s": 1.5, "energy_j": [2.5, 3.5]}
)


@pytest.mark.parametrize(
    "frame",
    [
        FRAME.set_index(["kernel", "core_mhz"]),
        FRAME.set_index("kernel"),
        FRAME[FRAME["energy_j"] > 0],
        FRAME.iloc[[1, 0]].iloc[::-1],
        FRAME.set_index(pd.Index([7, 9])),
    ],
    ids=["two columns", "one column", "a filter", "an order", "without a name"],
)
def test_what_pandas_keeps_as_an_index_is_a_column(tmp_path: Path, frame: pd.DataFrame) -> None:
    frame.to_parquet(tmp_path / "p")
    back = read(tmp_path, (tmp_path / "p").read_bytes(), name="t.parquet")
    pd.testing.assert_frame_equal(back[list(FRAME)], FRAME, check_dtype=False)


# -- profilers -----------------------------------------------------------------------------------


def counted(folder: Path, layout: str, text: str, *wanted: str) -> dict[str, float]:
    (folder / "p.csv").write_text(text)
    return dict(read_counted(folder / "p.csv", layout, Selection(), wanted).values)


def perf(decimal: str, mark: str = ";") -> str:
    value, share, part = (f"1004{decimal}23", f"42{decimal}61", f"0{decimal}998")
    first = [value, "msec", "task-clock", "1004230000", f"100{decimal}00", part, "CPUs utilized"]
    second = ["64000", "", "misses:u", "428", share, "", ""]
    return f"# started\n\n{mark.join(first)}\n{mark.join(second)}\n"


JSON_LINES = (
    '{{"counter-value" : "1004{0}230000", "unit" : "msec", "event" : "task-clock", "event-runtime" '
    ': 1004230000, "pcnt-running" : 100{0}00, "metric-value" : 0{0}998}}\n'
    '{{"counter-value" : "64000{0}000000", "unit" : "", "event" : "misses:u", "event-runtime" '
    ': 428, "pcnt-running" : 42{0}61, "metric-value" : 0{0}000000, "metric-unit" : ""}}\n'
)


@pytest.mark.parametrize(
    "text",
    [
        perf("."),  # C, en_US, de_CH
        perf(","),  # de_DE, fr_FR, sv_SE
        perf(".", ","),
        perf(",", "|"),
        JSON_LINES.format("."),
        JSON_LINES.format(","),
    ],
)
def test_perf_in_six_forms_gives_the_same_time_count_and_share(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.csv").write_text(text)
    read = read_counted(tmp_path / "p.csv", "perf-stat", Selection())
    assert read.values == {"task-clock": pytest.approx(1.00423, rel=1e-15), "misses": 64000.0}
    assert [re.findall(r"[\d.]+ %", note) for note in read.notes] == [["42.61 %"]]


def test_perf_with_decimal_commas_between_commas_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"p\.csv:3: .*-x"):
        counted(tmp_path, "perf-stat", perf(",", ","))


def test_real_lines_of_perf_by_interval_cpu_and_repeat(tmp_path: Path) -> None:
    """As perf 6.1 writes them with -I 10, -A, --per-socket and -r 3."""
    text = (
        "     0.010069626;0.42;msec;cpu-clock;423576;100.00;0.042;CPUs utilized\n"
        "CPU0;0.50;msec;cpu-clock;496731;100.00;1.010;CPUs utilized\n"
        "S0;2;0.25;msec;cpu-clock;498003;100.00;1.013;CPUs utilized\n"
        "49;;page-faults;0.00%;232065;100.00;211.135;K/sec\n"
        "<not supported>;;instructions;0;100.00;;\n"
    )
    (tmp_path / "p.csv").write_text(text)
    read = read_counted(tmp_path / "p.csv", "perf-stat", Selection())
    assert read.values == {"cpu-clock": pytest.approx(1.17e-3), "page-faults": 49.0}
    assert read.not_counted == {"instructions": "<not supported>"}


TWICE = (
    "0.97;msec;task-clock;969577;100.00;0.126;CPUs utilized\n" * 2
    + "48;;page-faults;969577;100.00;49.506;K/sec\n"
    + "45;;page-faults:u;969577;100.00;46.412;K/sec\n"
    + "".join(f"{n};;cycles:{mode};969577;100.00;;\n" for mode, n in (("u", 700), ("k", 200)))
)
"""As perf 6.1 writes an event that was asked for twice, or in parts."""
TWICE_AS_JSON = "".join(
    f'{{"interval" : {t}, "socket" : "S{socket}", "counter-value" : "{ms}.000000", "unit" : "msec"'
    f', "event" : "task-clock", "event-runtime" : 827553, "pcnt-running" : 100.00}}\n'
    for t, socket, ms in [(0.05, 0, 40), (0.05, 0, 40), (0.05, 1, 30), (0.1, 0, 20), (0.1, 1, 10)]
)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (TWICE, {"task-clock": 0.97e-3, "page-faults": 48.0, "cycles": 900.0}),
        (TWICE_AS_JSON, {"task-clock": 0.1}),
    ],
    ids=["fields", "json"],
)
def test_perf_counts_an_event_once_that_was_asked_for_twice(tmp_path: Path, text, values) -> None:
    (tmp_path / "p.csv").write_text(text)
    read = read_counted(tmp_path / "p.csv", "perf-stat", Selection())
    assert read.values == pytest.approx(values)
    (note,) = read.notes
    assert "task-clock" in note


def test_perf_counts_that_overlap_are_refused(tmp_path: Path) -> None:
    text = "".join(f"9;;cycles:{modes};1;100.00;;\n" for modes in ("uk", "kh"))
    with pytest.raises(FileError, match="cycles:uk and cycles:kh"):
        counted(tmp_path, "perf-stat", text)


NCU = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'


@pytest.mark.parametrize(
    ("values", "total"),
    [
        (["1,500,000", "500,000"], 2e6),
        (["1.500.000", "500.000"], 2e6),
        ([f"1{NNBSP}500{NNBSP}000", "500 000,5"], 2000000.5),
        (["1500000", "500000.5"], 2000000.5),
        (["1'500'000.5", "500'000"], 2000000.5),
        (["1.500,5", "500.000"], 501500.5),
    ],
)
def test_ncu_writes_numbers_by_its_locale(tmp_path: Path, values: list[str], total: float) -> None:
    lines = "".join(f'"{i}","k","dram__bytes.sum","byte","{v}"\n' for i, v in enumerate(values))
    assert counted(tmp_path, "ncu", NCU + lines) == {"dram__bytes.sum": total}


def test_ncu_whose_numbers_may_be_either_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"p\.csv:2: .*LC_ALL=C"):
        counted(tmp_path, "ncu", NCU + '"0","k","dram__bytes.sum","byte","40,500"\n')


def likwid(group: str, number: int, runtime_s: float, **events: int) -> str:
    """The tables of a group, as likwid-perfctr -O writes them."""
    rows = "".join(f"{name},PMC{i},{n},{n}\n" for i, (name, n) in enumerate(events.items()))
    return (
        f"TABLE,Group {number} Raw,{group},{len(events)},\nEvent,Counter,HWThread 0,HWThread 1\n"
        f"{rows}"
        f"TABLE,Group {number} Raw STAT,{group},1,\nEvent,Counter,Sum\nFLOPS STAT,PMC0,9\n"
        f"TABLE,Group {number} Metric,{group},1,\nMetric,HWThread 0,HWThread 1\n"
        f"Runtime (RDTSC) [s],{runtime_s},{runtime_s / 2}\n"
    )


@pytest.mark.parametrize("second", [1, 2])  # -g twice in one run; or two runs in one file
def test_counts_of_one_group_of_likwid_never_have_the_time_of_another(
    tmp_path: Path, second: int
) -> None:
    text = likwid("DP", 1, 4.0, INSTR=5, FLOPS=10) + likwid("MEM", second, 7.0, INSTR=6, BYTES=20)
    time = "Runtime (RDTSC)"
    assert counted(tmp_path, "likwid", text, time, "FLOPS") == {"INSTR": 10, "FLOPS": 20, time: 4.0}
    assert counted(tmp_path, "likwid", text, time, "BYTES") == {"INSTR": 12, "BYTES": 40, time: 7.0}
    for wanted in (["FLOPS", "BYTES"], [time, "INSTR"]):
        with pytest.raises(FileError, match=r"DP, MEM"):
            counted(tmp_path, "likwid", text, *wanted)
