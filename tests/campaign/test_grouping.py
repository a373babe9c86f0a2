"""Clocks with jitter become the settings that they mean, and steps of a device stay as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from campaign.command_line import main
from campaign.results import open_store
from campaign.table.grouping import grouped_clocks

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


def test_an_imported_table_has_the_settings_that_it_means(tmp_path, capsys):
    table, exact = table_of(tmp_path, 3.0), tmp_path / "exact.toml"
    assert main(["import", str(table), "--store", str(tmp_path / "s")]) == 0
    out = " ".join(capsys.readouterr().out.split())
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
        ("core_mhz", "1200000", "factor = 0.001"),
        ("core_mhz", "1.2", "factor = 1000"),
        ("mem_mhz", "5000000", "factor = 0.001"),
        ("core_v", "950", "factor = 0.001"),
        ("core_v", "950000", "factor = 1e-06"),
    ],
)
def test_a_clock_or_voltage_that_no_device_has_is_refused_with_its_line(
    tmp_path, capsys, column, value, advice
):
    good = {"core_mhz": "1200", "mem_mhz": "5000", "core_v": "0.95"}
    table = tmp_path / "t.csv"
    lines = [
        ",".join(["a", f"k{i}", *(good | ({column: value} if i == 1 else {})).values(), "1", "2"])
        for i in range(3)
    ]
    header = ",".join(["site", "kernel", *good, "time_s", "energy_j"])
    table.write_text("\n".join([header, *lines]) + "\n")
    assert main(["import", str(table), "--store", str(tmp_path / "s")]) == 2
    message = capsys.readouterr().err
    assert f"t.csv:3: {column}: found" in message and advice in message
    assert "t.csv:2" not in message and not (tmp_path / "s").exists()


def test_jitter_that_is_not_clearly_smaller_than_the_distance_stays():
    """Readings 10 MHz wide, 15 MHz from those of the next setting."""
    rng = np.random.default_rng(5)
    asked, kernel, repeat = rows(40, 1, np.arange(2000.0, 2250.0, 25.0))
    mhz = asked + rng.uniform(-5, 5, len(asked))
    assert not grouped_clocks(mhz, [kernel, repeat], "core_mhz").note
