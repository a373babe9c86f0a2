"""campaign show: what is printed is what the store has; the plot shows every sample."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from campaign.results import Results
from campaign.results import open_store as open_results
from campaign.store.compaction import compact
from campaign.store.layout import open_store
from campaign.verbs.terminal_plot import BRAILLE, DOTS, LABEL_CHARS, can_show_braille, plot
from tests.analysis.test_report import store_of
from tests.commands import answers, prints, refuses
from tests.stores import store_of_table

SITE = "board"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Four kernels at two settings, with a trace of 6 W each, and a failure."""
    path = tmp_path_factory.mktemp("show") / "store"
    store_of(path, SITE, True, (400.0, 800.0), traced=True)
    compact(open_store(path))
    return open_results(path)


def point_of(store: Results, status: str, row: int = 0) -> tuple[int, str]:
    """The row and the point's id of the first measurement of this status after others."""
    at = int(np.flatnonzero(store.scalars["status"].values == status)[row])
    return at, str(store.scalars["point_id"].values[at])


def test_all_of_a_measurement_is_shown(store):
    row, point = point_of(store, "ok", 5)
    as_json = answers("show", store.path, point[:9])
    for name in ("time_s", "energy_j", "core_mhz", "mem_mhz", "core_v", "iterations", "node"):
        assert as_json[name] == store.scalars[name].values[row]
    assert as_json["energy_std_j"] is None
    assert as_json["counts"]["dram"] == {
        "value": float(store.scalars["n_dram"].values[row]),
        "unit": "byte",
    }
    assert as_json["power_w"] == as_json["energy_j"] / as_json["time_s"]
    assert as_json["trace_channels"] == ["m:board"]
    text = prints("show", store.path, point)
    assert max(map(len, text.splitlines())) <= 100
    for expected in (point, "sp2", "board/p on node n1", "read back", "m:board", "0.001", "byte/s"):
        assert expected in text
    assert "MPI ranks on each node: 1" in " ".join(text.split())
    assert f"{as_json['energy_j']:.4g}" in text and "simulated" not in text


def test_a_failure_is_shown_with_its_text_and_without_numbers(store):
    _, point = point_of(store, "wrong result")
    text = prints("show", store.path, point)
    assert "status wrong result" in text and "sum is off" in text
    assert "nan" not in text and "quantity" not in text


def test_an_uncore_clock_and_a_profile_are_shown_as_such(tmp_path):
    head = "site,kernel,core_mhz,uncore_mhz,core_mhz_achieved,mem_mhz_achieved,time_s,energy_j"
    lines = [f"{head},profile", "cpu,k,2000,1800,1999,1797,1,50,eco"]
    store = store_of_table(tmp_path, lines)
    point = str(open_results(store).scalars["point_id"].values[0])
    lines = [line.split() for line in prints("show", store, point).splitlines()]
    assert ["core", "2000", "1999", "-", "-"] in lines
    assert ["uncore", "1800", "1797", "-", "-"] in lines
    assert "k at 2000 MHz, uncore 1800, profile eco, cpu/imported" in prints("show", store, point)
    assert answers("show", store, point)["profile"] == "eco"


def test_an_id_that_is_none_or_several(store):
    ids = sorted(str(own) for own in store.scalars["point_id"].values)
    same = next(a for a, b in pairwise(ids) if a[0] == b[0])[0]
    for wrong, says in ((same, "give more characters"), ("nothere", "point_id"), ("", "point_id")):
        assert says in refuses("show", store.path, wrong)


def test_the_drawing_is_written_and_refused_without_a_trace(store, tmp_path: Path):
    _, point = point_of(store, "ok")
    path = tmp_path / "trace.svg"
    prints("show", store.path, point, "--svg", path)
    assert "<svg" in path.read_text() and "m:board" in path.read_text()
    _, failed = point_of(store, "wrong result")
    assert "no trace" in refuses("show", store.path, failed, "--svg", path)


def dots_of(lines: list[str], columns: int) -> np.ndarray:
    """The dots of a plot in braille, bool (rows of dots, columns of dots), decoded."""
    rows = []
    for line in lines:
        cells = line[LABEL_CHARS + 2 :].ljust(columns)
        codes = [0 if cell == " " else ord(cell) - BRAILLE for cell in cells]
        rows += [[bool(code & bit) for code in codes for bit in bits] for bits in DOTS]
    return np.array(rows)


@pytest.mark.parametrize("seed", range(4))
def test_every_sample_is_a_dot_and_there_are_no_others(seed):
    random = np.random.default_rng(seed)
    x = np.sort(random.uniform(0.0, 3.0, 40 + 400 * seed))
    y = random.normal(5.0, 1.0, x.size)
    width, height = 60, 8
    columns = width - LABEL_CHARS - 2
    dots = dots_of(plot(x, y, width=width, height=height)[:height], columns)
    fine = np.linspace(x[0], x[-1], 2_000_000)
    curve = np.interp(fine, x, y)
    at_x = np.minimum(((fine - x[0]) / (x[-1] - x[0]) * 2 * columns).astype(int), 2 * columns - 1)
    at_y = np.minimum(((y.max() - curve) / np.ptp(y) * 4 * height).astype(int), 4 * height - 1)
    expected = np.zeros_like(dots)
    expected[np.maximum(at_y, 0), at_x] = True
    assert (dots != expected).mean() < 0.002  # at the edges of dots, by rounding


def test_nothing_is_drawn_where_values_are_missing_and_ascii_is_ascii():
    x = np.linspace(0.0, 1.0, 1001)
    y = np.where((x > 0.4) & (x < 0.6), math.nan, 2.0 + x)
    lines = plot(x, y, [(0.0, 0.5)], width=70, braille=False)
    columns = 70 - LABEL_CHARS - 2
    assert all(line.isascii() and len(line) <= 70 for line in lines)
    drawn = np.array([[c == "*" for c in line[LABEL_CHARS + 2 :].ljust(columns)] for line in lines])
    seen = drawn.any(axis=0)
    middle = (np.arange(columns) + 0.5) / columns
    np.testing.assert_array_equal(seen, (middle < 0.41) | (middle > 0.59))
    marks = lines[-2][LABEL_CHARS + 2 :]
    assert marks.count("=") == pytest.approx(columns / 2, abs=1)
    assert plot(x, np.full(x.size, math.nan), width=70) == ["no values"]


def test_a_constant_power_and_a_single_sample_have_a_plot():
    for x in (np.zeros(1), np.linspace(0.0, 1.0, 9)):
        dots = dots_of(plot(x, np.full(x.size, 6.0), width=40, height=4)[:4], 29)
        assert dots.any(axis=1).sum() == 1


def test_braille_needs_an_encoding_that_has_it():
    assert can_show_braille("utf-8") and can_show_braille("UTF-16")
    assert not any(map(can_show_braille, ("ascii", "latin-1", "cp437", None, "unknown")))
