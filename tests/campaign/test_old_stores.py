"""A store that an earlier version wrote opens, resumes, and gives the same numbers as then, but for
picks, which another model makes now."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.choice.candidates import all_candidates
from analysis.measurements.observations import measured_volts
from analysis.predict.site import site_time_noise
from campaign.results import results
from campaign.store.compaction import compact
from campaign.store.dataset import current_tables, open_dataset, scalars_of
from campaign.store.layout import driver_lock, open_store
from campaign.store.tables import read_columns
from campaign.verbs.command_line import main
from dvfs.setting import Setting
from tests.analysis.raced import raced
from tests.campaign.test_journal import measurement
from tests.commands import answers, refuses
from tests.stores import write

STORES = Path(__file__).parents[1] / "data" / "stores"
ARCHIVE = STORES / "format-2.tar.gz"
SITE = "jetson-tk1"
EXACT = 1e-9
PRINTED = 5.1e-6
"""Relative: half of the last digit of the six that are printed."""
SOLVED = 1e-6
"""Relative: the present solver ends where a step gains 1e-13 of the cost, so that a coefficient may
be off by the root of that, 3e-7."""

RUN_GAIN = 0.025
"""The standard deviation of the simulated board's energies from run to run, relative."""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The folder with the store and what the version that wrote it said of it."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def numbers(coefficients: dict[str, Any]) -> dict[str, tuple[float, float, float]]:
    return {c["name"]: (c["value"], c["low"], c["high"]) for c in coefficients["coefficients"]}


def assert_same_fit(now: dict[str, Any], then: dict[str, Any], rel: float = EXACT) -> None:
    for key in ("site", "model", "voltage", "simulated", "n", "n_settings", "dropped"):
        assert now[key] == then[key]
    assert now["condition_number"] == pytest.approx(then["condition_number"], rel=rel)
    assert numbers(now).keys() == numbers(then).keys()
    for name, values in numbers(then).items():
        assert numbers(now)[name] == pytest.approx(values, rel=rel), name


def assert_good_picks(
    store: results.Results,
    now: list[dict[str, Any]],
    then: list[dict[str, Any]],
    rel: float = EXACT,
) -> None:
    """Of the same kernels, held against what was measured: a pick has the time that its setting
    has, and its energy within the noise of one, and picks lose no more on average than they did.
    What a pick saves is said against the setting of the highest clocks among those whose times
    differ from the least by less than 1.96 standard errors."""
    data = store.observations(SITE)
    by_kernel, once = all_candidates(data), site_time_noise(data, measured_volts(data))
    above = []
    for pick, earlier in zip(now, then, strict=True):
        label, clocks = pick["label"], Setting.of(pick["core_mhz"], pick["mem_mhz"])
        assert (earlier.get("label", earlier["kernel"]), earlier["simulated"]) == (label, True)
        assert (pick["simulated"], pick["measured"]) == (True, True)
        assert pick["slurm"] == f"--gpu-freq={clocks.core_mhz:g},memory={clocks.mem_mhz:g}"
        assert pick["saving_low_pct"] <= pick["saving_pct"] <= pick["saving_high_pct"]
        rows = data.labels == label
        mine = {
            setting: (data.time_s[at], data.energy_j[at].mean())
            for s, setting in enumerate(data.settings)
            for at in [rows & (data.setting == s)]
        }
        (repeats,) = {len(times) for times, _ in mine.values()}
        assert pick["time_s"] == pytest.approx(mine[clocks][0].mean(), rel=rel)
        near = 1.96 * RUN_GAIN / np.sqrt(repeats)
        assert pick["energy_j"] == pytest.approx(mine[clocks][1], rel=near)
        before = mine[Setting.of(earlier["core_mhz"], earlier["mem_mhz"])]
        above.append((mine[clocks][1], before[1]) / min(energy for _, energy in mine.values()))
        noise = once[label]
        if repeats > 1:
            squares = [(times / times.mean() - 1.0) ** 2 for times, _ in mine.values()]
            noise = float(np.sqrt(np.sum(squares) / (len(mine) * (repeats - 1))))
        times = {setting: float(of.mean()) for setting, (of, _) in mine.items()}
        among = by_kernel[label]
        top = raced(times, noise / np.sqrt(repeats))
        energies = dict(zip(among.settings, among.energy_j, strict=True))
        saved = 1.0 - energies[clocks] / energies[top]
        expected = 100.0 * saved, 100.0 * (times[clocks] / times[top] - 1.0)
        # Percentages are printed with six decimals at most.
        found = pick["saving_pct"], pick["slowdown_pct"]
        assert found == pytest.approx(expected, rel=rel, abs=0.1 * rel)
    lost_now, lost_then = np.mean(above, axis=0)
    assert lost_now <= lost_then


def test_measurements_are_the_same(old: Path) -> None:
    then = pd.read_csv(old / "measurements.csv")
    dataset = open_dataset(open_store(old / "store"))
    now = dataset[list(then.columns)].to_dataframe().reset_index(drop=True)
    order = ["kernel", "params", "core_mhz", "mem_mhz", "repeat"]
    then, now = (frame.sort_values(order, ignore_index=True) for frame in (then, now))
    pd.testing.assert_frame_equal(now, then, check_dtype=False, rtol=0, atol=0)


def test_columns_that_it_does_not_have_are_missing(old: Path) -> None:
    """Also after a new generation, in which the new row has them."""
    store = open_store(old / "store")
    for dataset in (open_dataset(store), scalars_of(read_columns(store))):
        for name in ("clock_proof", "setup"):
            assert dataset[name].values.tolist() == [""] * 144
            assert dataset[name].dtype == dataset["status"].dtype
        assert np.isnan(dataset["core_mhz_timed"].values).all()
        assert dataset["core_mhz_timed"].attrs["units"] == "MHz"
    assert set(current_tables(store)[0].measurements) == set(dataset.variables)
    made = measurement(core_mhz_timed=851.2, clock_proof="timed", setup="ab12")
    write(store, made)
    for _ in range(2):  # in the journal, then in the index
        dataset = scalars_of(read_columns(store))
        for name in ("clock_proof", "setup"):
            assert dataset[name].values.tolist() == [""] * 144 + [getattr(made, name)]
        assert np.isnan(dataset["core_mhz_timed"].values).tolist() == [True] * 144 + [False]
        compact(store)


def test_a_driver_gives_it_the_present_format(old: Path) -> None:
    """An earlier version would take the new records for damage; reading changes nothing."""
    head = old / "store" / "store.json"
    before = json.loads(head.read_text())
    open_dataset(open_store(old / "store"))
    assert json.loads(head.read_text()) == before
    with driver_lock(open_store(old / "store")):
        pass
    now = json.loads(head.read_text())
    assert {name: now[name] for name in before} == before | {"format": 4}
    assert before["format"] == 2
    open_store(old / "store")


def test_traces_are_readable(old: Path) -> None:
    """The mean power of a trace times the window's time is about the measured energy."""
    dataset = open_dataset(open_store(old / "store"))
    assert dataset.sizes["trace"] == dataset.sizes["measurement"] == 144
    for trace in range(0, 144, 12):
        start, size = (int(dataset[name][trace]) for name in ("row_start", "row_size"))
        power_w = dataset["value"][start : start + size].values
        row = dataset.isel(measurement=int(dataset["trace_measurement"][trace]))
        mean_w = float(row["energy_j"] / row["time_s"])
        assert np.mean(power_w) == pytest.approx(mean_w, rel=0.05)


def test_a_kept_fit_is_the_same_and_its_picks_are_good(old: Path) -> None:
    store = str(old / "store")
    (then,) = json.loads((old / "coefficients.json").read_text())
    earlier = json.loads((old / "predict.json").read_text())
    kept = results.open_store(store)
    assert_same_fit(kept.coefficients(SITE).as_json, then)
    assert_good_picks(kept, kept.predict(SITE).as_dicts(), earlier)
    (now,) = answers("coefficients", store)
    assert_same_fit(now, then, PRINTED)
    picks = answers("predict", store, "--site", SITE)
    assert_good_picks(kept, picks, earlier, PRINTED)


def test_a_fit_with_a_surface_of_residuals_is_read_as_its_coefficients(old: Path) -> None:
    """Earlier versions could add one, and kept what intervals of savings came from."""
    store, file = str(old / "store"), old / "store" / "fits" / f"{SITE}.json"
    at = ("--core-mhz", "852", "--mem-mhz", "924")
    (before,), (costs,) = (answers("coefficients", store, *more) for more in ((), at))
    kept = json.loads(file.read_text())
    asked = {"model": "choi+surface", "voltage": "auto", "robust": False, "like": ""}
    about = {"created": "2025-01-01T00:00:00+00:00", "version": "0.1", "data_id": "", "files": {}}
    shape = {"shape": [1.0, 1.0], "own_shape": [1.0, 1.0]}
    kept |= {
        "model": "choi+surface",
        "surface": {"mhz": [[852.0, 924.0]], "kernels": ["k"], "residual": [[0.1]]} | shape,
        "refits": {"value": [[1.0]] * 2, "curves": []},
        "discrepancy": {"kernel": 0.1, "setting": 0.1, "own": 0.1, "freedom": 9.0},
        "kept": about | {"request": asked},
    }
    file.write_text(json.dumps(kept))
    now, now_costs = (answers("coefficients", store, *more)[0] for more in ((), at))
    assert now_costs | {"fit": 0} == costs | {"fit": 0}
    assert numbers(now) == numbers(before)
    assert (before["model"], now["model"], now_costs["fit"]["model"]) == ("choi",) * 3
    judged = answers("crossval", store, "--site", SITE)
    assert judged["form"]["model"] == "choi"
    assert answers("fit", store, "--site", SITE, "--model", "choi")["model"] == "choi"


def test_fitting_again_gives_the_same_fit(old: Path) -> None:
    then = json.loads((old / "fit.json").read_text())
    assert_same_fit(results.open_store(old / "store").fit(SITE).as_dict(), then, SOLVED)
    assert_same_fit(answers("fit", old / "store", "--site", SITE), then, PRINTED)


def test_another_protocol_than_its_last_plan_is_named(old: Path) -> None:
    """Its rows name no set-up: the plan in its campaign.json stands for them, also later."""
    store, campaign = old / "store", old / "small.toml"
    text = campaign.read_text()
    assert "min_duration_s = 0.05" in text
    campaign.write_text(text.replace("min_duration_s = 0.05", "min_duration_s = 7.5"))
    for _ in range(2):
        assert "protocol.min_duration_s: was 0.05 (144 points), is now 7.5" in refuses(
            "run", campaign, "--store", store, "--quiet"
        )
    (kept,) = (store / "setups").iterdir()
    assert kept.name == f"earlier.{SITE}.json"
    assert json.loads(kept.read_text())["record"]["protocol"]["min_duration_s"] == 0.05
    campaign.write_text(text)
    assert answers("run", campaign, "--store", store, "--quiet")["complete"]


def test_its_campaign_has_nothing_left_to_measure(old: Path) -> None:
    """The points of the plan have the ids that they had."""
    store, campaign = old / "store", old / "small.toml"
    before = {path.name for path in (store / "index").iterdir()}
    ended = answers("run", campaign, "--store", store, "--quiet")
    assert (ended["planned"], ended["ok"], ended["complete"]) == (144, 144, True)
    assert {path.name for path in (store / "index").iterdir()} == before


# -- format 3: the same, but that its JSON files have no checksums ---------------------------------


@pytest.fixture
def format_3(tmp_path: Path) -> Path:
    """The folder with the store and what the version that wrote it printed of it."""
    with tarfile.open(STORES / "format-3.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def printed(folder: Path) -> None:
    """Compare what commands print with what the version that wrote the store printed."""
    store = str(folder / "store")
    then = {
        verb: json.loads((folder / f"{verb}.json").read_text())
        for verb in ("coefficients", "predict", "status")
    }
    assert answers("status", store) == then["status"]
    kept = results.open_store(store)
    (fitted,) = then["coefficients"]
    assert_same_fit(kept.coefficients(SITE).as_json, fitted)
    assert_good_picks(kept, kept.predict(SITE).as_dicts(), then["predict"])
    (now,) = answers("coefficients", store)
    assert_same_fit(now, fitted, PRINTED)
    picks = answers("predict", store, "--site", SITE)
    assert_good_picks(kept, picks, then["predict"], PRINTED)


def test_a_store_without_checksums_is_read_and_gets_them_from_the_next_writer(
    format_3: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = format_3 / "store"
    names = {
        str(path.relative_to(store)) for path in store.rglob("*.json") if "zarr" not in str(path)
    }
    printed(format_3)
    assert main(["status", str(store), "--verify"]) == 0
    assert main(["run", str(format_3 / "small.toml"), "--store", str(store), "--quiet"]) == 0
    capsys.readouterr()
    printed(format_3)
    assert main(["status", str(store), "--verify"]) == 0
    assert names == {
        str(p.relative_to(store)) for p in store.rglob("*.json") if "zarr" not in str(p)
    }
    for name in names:
        path = store / name
        whole = path.read_bytes()
        at = len(whole) // 2
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert main(["status", str(store), "--verify"]) != 0, name
        captured = capsys.readouterr()
        assert path.name in "".join((captured.out + captured.err).split()), name
        path.write_bytes(whole)


def test_a_fit_that_a_store_without_checksums_gets_is_adopted_with_the_rest(format_3: Path) -> None:
    store = format_3 / "store"
    answers("fit", store, "--site", SITE, "--name", "other")
    before = answers("coefficients", store)
    with driver_lock(open_store(store)):
        pass
    assert answers("coefficients", store) == before
    next(store.glob("fits/*other*")).unlink()
    assert "other" in refuses("coefficients", store, "--json")


@pytest.mark.parametrize("number", [2, 3])
def test_an_index_that_is_gone_is_missed_in_every_format(number: int, tmp_path: Path) -> None:
    with tarfile.open(STORES / f"format-{number}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    shutil.rmtree(tmp_path / "store" / "index")
    for verb, *words in (["status"], ["fit", "--site", SITE], ["crossval", "--site", SITE]):
        assert "index" in refuses(verb, tmp_path / "store", *words)
