"""Clocks with jitter become the settings that they mean, and steps of a device stay as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from campaign.results import open_store
from campaign.table.grouping import grouped_clocks
from campaign.verbs.command_line import main
from tests.commands import prints, refuses

SETTINGS = np.arange(800.0, 2800.0, 100.0)


def rows(kernels: int, repeats: int = 1, settings: np.ndarray = SETTINGS):
    """(clock that was asked for, kernel, repeat) of every row."""
    return (
        axis.ravel()
        for axis in np.meshgrid(settings, np.arange(kernels), np.arange(repeats), indexing="ij")
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("kernels", "repeats", "jitter_mhz"), [(10, 1, 1.5), (10, 3, 4.0), (1, 5, 2.0), (80, 1, 0.4)]
)
def test_jitter_becomes_the_settings_that_were_meant(seed, kernels, repeats, jitter_mhz):
    rng = np.random.default_rng(seed)
    asked, kernel, repeat = rows(kernels, repeats)
    mhz = (asked + rng.uniform(-jitter_mhz, jitter_mhz, len(asked))).round(1)
    grouped = grouped_clocks(mhz, [kernel, repeat], "core_mhz")
    codes = np.unique(grouped.mhz, return_inverse=True)[1]
    assert np.array_equal(codes, np.unique(asked, return_inverse=True)[1])
    assert np.abs(grouped.mhz - asked).max() <= jitter_mhz
    assert f"{len(np.unique(mhz))} clocks" in grouped.note and "20 settings" in grouped.note


@pytest.mark.parametrize(
    "settings",
    [
        SETTINGS,
        np.array([595.0, 633, 671, 709, 747, 785, 823, 861, 899, 937, 975, 1013, 1050, 1088]),
        np.arange(1200.0, 1995.0, 7.5),
        np.array([1400.0, 1800, 2200, 2600, 2601]),
        np.array([300.0, 576, 768, 1017, 1248, 1324, 1516, 1612, 1708, 1804, 1900, 1958, 2016]),
        np.concatenate([c + np.array([0.0, 5, 10]) for c in (500.0, 1000, 1500, 2000)]),
    ],
)
@pytest.mark.parametrize("kernels", [1, 12])
def test_the_steps_of_a_device_stay(settings, kernels):
    mhz, kernel, repeat = rows(kernels, 2, settings)
    grouped = grouped_clocks(mhz, [kernel, repeat], "core_mhz")
    assert np.array_equal(grouped.mhz, mhz) and not grouped.note


def test_jitter_as_wide_as_the_distance_stays():
    rng = np.random.default_rng(1)
    asked, kernel, repeat = rows(10)
    mhz = asked + rng.uniform(-40, 40, len(asked))
    assert not grouped_clocks(mhz, [kernel, repeat], "core_mhz").note


def test_repeats_without_numbers_are_grouped_where_the_map_numbers_them():
    rng = np.random.default_rng(2)
    asked, kernel, _ = rows(1, 5)
    mhz = (asked + rng.uniform(-2, 2, len(asked))).round(1)
    assert not grouped_clocks(mhz, [kernel], "core_mhz").note
    assert "20 settings" in grouped_clocks(mhz, [kernel], "core_mhz", True).note


def test_rows_without_a_clock_stay_without():
    rng = np.random.default_rng(3)
    asked, kernel, repeat = rows(10)
    mhz = (asked + rng.uniform(-1, 1, len(asked))).round(1)
    mhz[7] = np.nan
    grouped = grouped_clocks(mhz, [kernel, repeat], "mem_mhz")
    assert np.flatnonzero(np.isnan(grouped.mhz)).tolist() == [7] and grouped.note


def table_of(folder: Path, jitter_mhz: float) -> Path:
    """Twenty settings of ten kernels; clocks as a counter measured them."""
    rng = np.random.default_rng(4)
    asked, kernel, _ = rows(10)
    mhz = (asked + rng.uniform(-jitter_mhz, jitter_mhz, len(asked))).round(1)
    path = folder / "t.csv"
    lines = [
        f"cpu,k{k},{clock},{(1 + k) * 1000 / clock},{5 + k + clock / 500}"
        for k, clock in zip(kernel, mhz, strict=True)
    ]
    path.write_text("site,kernel,core_mhz,time_s,energy_j\n" + "\n".join(lines) + "\n")
    return path


def test_an_imported_table_has_the_settings_that_it_means(tmp_path):
    table, exact = table_of(tmp_path, 3.0), tmp_path / "exact.toml"
    out = " ".join(prints("import", table, "--store", tmp_path / "s").split())
    assert "clocks as measured are taken for 20 settings" in out and 'clocks = "exact"' in out
    data = open_store(tmp_path / "s").scalars
    own = data["core_mhz_achieved"].values
    assert len(np.unique(data["core_mhz"].values)) == 20
    assert len(np.unique(own)) > 150
    assert np.abs(own - data["core_mhz"].values).max() <= 6.0
    exact.write_text('clocks = "exact"\n')
    assert main(["import", str(table), "--store", str(tmp_path / "x"), "--map", str(exact)]) == 0
    data = open_store(tmp_path / "x").scalars
    assert np.array_equal(np.sort(data["core_mhz"].values), np.sort(own))
    assert np.isnan(data["core_mhz_achieved"].values).all()


@pytest.mark.parametrize(
    ("column", "value", "advice"),
    [
        ("core_mhz", "1200000", "in kHz it would be 1200 MHz: correct this row"),
        ("core_mhz", "1.2", "in GHz it would be 1200 MHz: correct this row"),
        ("mem_mhz", "5000000", "in kHz it would be 5000 MHz: correct this row"),
        ("core_v", "950", "in mV it would be 0.95 V: correct this row"),
        ("core_v", "950000", "in uV it would be 0.95 V: correct this row"),
        ("core_v", "9.5", "devices have 0.2 to 5 V; correct this row, as the column is in V"),
    ],
)
def test_a_clock_or_voltage_that_no_device_has_is_refused_with_its_line(
    tmp_path, column, value, advice
):
    good = {"core_mhz": "1200", "mem_mhz": "5000", "core_v": "0.95"}
    table = tmp_path / "t.csv"
    lines = [
        ",".join(["a", f"k{i}", *(good | ({column: value} if i == 1 else {})).values(), "1", "2"])
        for i in range(3)
    ]
    header = ",".join(["site", "kernel", *good, "time_s", "energy_j"])
    table.write_text("\n".join([header, *lines]) + "\n")
    message = refuses("import", table, "--store", tmp_path / "s")
    assert f"t.csv:3: {column}: found" in message and advice in message
    assert "t.csv:2" not in message and not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("core", "mapping", "said"),
    [
        (
            ("852000", "180000"),
            '[columns]\ncore_mhz = "sm clock"\n',
            "t.csv: core_mhz ('sm clock' in the table): found 180000 to 852000, and devices have "
            "10 to 10,000 MHz; it seems to be in kHz: write core_mhz = { column = \"sm clock\", "
            "factor = 1e-3 } under [columns] in the map file",
        ),
        (
            ("852000000", "180000000"),
            "",
            "t.csv: core_mhz: found 180000000 to 852000000, and devices have 10 to 10,000 MHz; "
            "it seems to be in Hz: write core_mhz = { column = \"core_mhz\", factor = 1e-6 } under "
            "[columns] in a map file, which --map names",
        ),
        (
            ("0.852", "0.18"),
            "",
            "t.csv: core_mhz: found 0.18 to 0.852, and devices have 10 to 10,000 MHz; it seems to "
            "be in GHz: write core_mhz = { column = \"core_mhz\", factor = 1e3 } under [columns] "
            "in a map file, which --map names",
        ),
        (
            ("852", "180"),
            '[columns]\ncore_mhz = { column = "sm clock", factor = 1000.0 }\n',
            "t.csv: core_mhz ('sm clock' in the table): found 180000 to 852000, and devices have "
            "10 to 10,000 MHz; set factor = 1 for core_mhz under [columns] in the map file",
        ),
        (
            ("852", "180"),
            "[constants]\nmem_mhz = 924000\n",
            "t.csv: mem_mhz: found 924000 in every row, and devices have 10 to 30,000 MHz; it "
            "seems to be in kHz: write mem_mhz = 924 under [constants] in the map file",
        ),
    ],
)  # fmt: skip
def test_a_column_in_another_unit_is_named_once_with_what_to_write_in_the_map(
    tmp_path, monkeypatch, core, mapping, said
):
    monkeypatch.chdir(tmp_path)
    name = "sm clock" if "sm clock" in mapping else "core_mhz"
    rows_of = "".join(f"a,k,{mhz},1,2\n" for mhz in core)
    Path("t.csv").write_text(f"site,kernel,{name},time_s,energy_j\n{rows_of}")
    Path("m.toml").write_text(mapping)
    words = ["import", "t.csv", "--store", "s", *(["--map", "m.toml"] if mapping else [])]
    assert refuses(*words) == f"campaign: {said}\n"
    if "write " in said and "[columns]" in said:  # what it says to write is right
        line = said.partition("write ")[2].partition(" under")[0]
        Path("m.toml").write_text(f"[columns]\n{line}\n")
        assert main(["import", "t.csv", "--store", "s", "--map", "m.toml"]) == 0
        settings = open_store(Path("s")).scalars["core_mhz"].values
        np.testing.assert_allclose(np.sort(settings), [180.0, 852.0])


def test_jitter_that_is_not_clearly_smaller_than_the_distance_stays():
    """Readings 10 MHz wide, 15 MHz from those of the next setting."""
    rng = np.random.default_rng(5)
    asked, kernel, repeat = rows(40, 1, np.arange(2000.0, 2250.0, 25.0))
    mhz = asked + rng.uniform(-5, 5, len(asked))
    assert not grouped_clocks(mhz, [kernel, repeat], "core_mhz").note
