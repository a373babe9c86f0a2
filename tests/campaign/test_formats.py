"""Files of other tools, as they made them (tests/other_tools), against Python's own readers."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path

import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from campaign.store.layout import open_store
from campaign.table.checking import checked_rows
from campaign.table.exporting import export_table
from campaign.table.formats import FORMATS, HEAD_BYTES, recognised
from campaign.table.formats.kernel_tuner import kernel_tuner_results
from campaign.table.importing import import_table
from campaign.table.map_file import TableMap
from campaign.table.reading import read_table
from campaign.verbs.command_line import main
from dvfs.input_files import FileError
from tests.campaign.test_map_file import read, refusal
from tests.campaign.test_table import ROOT
from tests.commands import answers, prints, refuses
from tests.stores import measurements_of, store_of_table

FILES = ROOT / "tests/data/other_tools"
MADE_BY = {
    "caliper_1.cali": "caliper",
    "caliper_2.cali": "caliper",
    "caliper_ranks.cali": "caliper",
    "caliper_ranks.csv": "caliper",
    "caliper_thicket.csv": "caliper",
    "codecarbon_load.csv": "codecarbon",
    "codecarbon_rapl.csv": "codecarbon",
    "ear_apps.csv": "ear",
    "ear_loops.csv": "ear",
    "geopm_report.yaml": "geopm",
    "likwid_regions.csv": "likwid",
    "likwid_run.csv": "likwid",
    "perf.csv": "perf-stat",
    "perf.json": "perf-stat",
    "perf.txt": "perf-stat",
    "perf_intervals.csv": "perf-stat",
    "perf_runs.txt": "perf-stat",
    "perun.hdf5": "perun",
    "perun.json": "perun",
    "reframe_stream.log": "reframe",
    "sacct.txt": "sacct",
    "zeus_limits.json": "zeus",
    "zeus_windows.csv": "zeus",
}


def taken(folder: Path, file: Path, *words: str) -> pd.DataFrame:
    """The file's measurements, in its order, as ``campaign import`` puts them into a store."""
    store = folder / "s"
    assert main(["import", str(file), "--store", str(store), "--site", "x", *words]) == 0
    frame = measurements_of(store)
    return frame.sort_values("table_line", kind="stable").reset_index(drop=True)


def refused(folder: Path, text: str, layout: str, **constants: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "t").write_text(text)
    with pytest.raises(FileError) as error:
        import_table(folder / "t", folder / "s", site="x", layout=layout, constants=constants)
    assert not (folder / "s").exists()
    return str(error.value)


def costs(frame: pd.DataFrame) -> list[list[float]]:
    return frame[["time_s", "energy_j"]].to_numpy().tolist()


# -- recognised ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted((ROOT / "tests/data").rglob("*.*")), ids=lambda p: p.name)
def test_a_file_is_recognised_by_the_marker_of_its_tool_alone(path: Path) -> None:
    with path.open("rb") as file:
        found = recognised(path, file.read(HEAD_BYTES))
    expected = MADE_BY.get(path.name) if path.parent == FILES else None
    if path.parent.name == "kernel_tuner" and path.suffix == ".json":
        expected = "kernel-tuner"
    assert found == expected


def test_every_format_says_what_it_reads() -> None:
    for name in FORMATS:
        about = FORMATS.load(name).ABOUT
        assert about.name == name and about.tool and about.versions and about.reads


@pytest.mark.parametrize(
    "words", [["--from", "perf"], ["--set", "core_mhz=fast"], ["--set", "k=1"]]
)
def test_a_wrong_argument_is_refused_before_anything_is_made(tmp_path, words) -> None:
    command = ["import", str(FILES / "perf.csv"), "--store", str(tmp_path / "s"), "--site", "x"]
    assert words[0] in refuses(*command, *words)
    assert not (tmp_path / "s").exists()


# -- the tools' own numbers ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["codecarbon_load.csv", "codecarbon_rapl.csv"])
def test_codecarbon_gives_cpu_and_gpu_and_says_what_it_estimated(tmp_path, name) -> None:
    with (FILES / name).open() as file:
        runs = list(csv.DictReader(file))
    frame = taken(tmp_path, FILES / name)
    assert frame["kernel"].tolist() == [run["project_name"] for run in runs]
    for (time_s, energy_j), run in zip(costs(frame), runs, strict=True):
        assert time_s == float(run["duration"])
        assert energy_j == pytest.approx(3.6e6 * float(run["cpu_energy"]), rel=1e-15)
    flagged = ["estimated" in json.loads(text) for text in frame["provenance"]]
    assert flagged == [name == "codecarbon_load.csv"] * len(runs)
    with_ram = tmp_path / "m.toml"
    column = '[columns]\nenergy_j = { column = "energy_consumed", unit = "kWh" }\n'
    with_ram.write_text(f'layout = "codecarbon"\n{column}')
    again = taken(tmp_path / "again", FILES / name, "--map", str(with_ram))
    assert all("estimated" in json.loads(text) for text in again["provenance"])


def test_a_run_of_codecarbon_counts_once_whose_rows_are_from_its_start(tmp_path) -> None:
    """``flush`` writes the totals so far; the last row of a run has them all."""
    head, *runs = (FILES / "codecarbon_rapl.csv").read_text().splitlines()
    cells = dict(zip(head.split(","), runs[0].split(","), strict=True))
    so_far = cells | {name: str(float(cells[name]) / 4) for name in ("duration", "cpu_energy")}
    (tmp_path / "f.csv").write_text("\n".join([head, ",".join(so_far.values()), *runs]) + "\n")
    flushed = taken(tmp_path, tmp_path / "f.csv")
    assert costs(flushed) == costs(taken(tmp_path / "whole", FILES / "codecarbon_rapl.csv"))


def test_each_task_of_codecarbon_is_a_measurement(tmp_path) -> None:
    """All tasks have the run's id; one that ran again has a UUID behind its name."""
    with (FILES / "codecarbon_rapl.csv").open() as file:
        run = next(csv.DictReader(file))
    tasks = ("load", "solve", "solve_5b0fa12a-3dd7-45bb-9766-cc326314d9f1")
    rows = [
        {"task_name": name} | run | {"duration": str(i + 1), "cpu_energy": f"{i + 1}e-5"}
        for i, name in enumerate(tasks)
    ]
    lines = [",".join(values) for values in (rows[0], *(row.values() for row in rows))]
    (tmp_path / "emissions_x_1.csv").write_text("\n".join(lines) + "\n")
    frame = taken(tmp_path, tmp_path / "emissions_x_1.csv")
    assert frame["kernel"].tolist() == ["load", "solve", "solve"]
    assert frame["repeat"].tolist() == [0, 0, 1]
    assert costs(frame) == [[n, pytest.approx(36.0 * n)] for n in (1.0, 2.0, 3.0)]


def test_estimated_energies_are_refused_by_fit_until_they_are_accepted(tmp_path) -> None:
    rows = [
        ["x", f"k{k}", mhz, time_s, (2 + 0.01 * mhz + k) * time_s, "TDP"]
        for k in range(4)
        for mhz in (800, 1000, 1200, 1400, 1600)
        for time_s in [(3 + k) * 800 / mhz]
    ]
    header = ["site", "kernel", "core_mhz", "time_s", "energy_j", "estimated"]
    store = str(store_of_table(tmp_path, pd.DataFrame(rows, columns=header)))
    assert "20 of 20 rows are estimated, not measured (TDP)" in refuses("fit", store, "--site", "x")
    assert "energies estimated, not measured" in " ".join(
        prints("fit", store, "--site", "x", "--accept-unproven").split()
    )
    assert "energies estimated, not measured" in " ".join(
        prints("predict", store, "--site", "x").split()
    )
    out = tmp_path / "out.csv"
    assert main(["export", store, "--csv", str(out)]) == 0
    assert set(pd.read_csv(out)["estimated"]) == {"TDP"}


@pytest.mark.parametrize(
    ("power_w", "is_estimate"),
    [
        (lambda i, load: 45.0, True),
        (lambda i, load: 65 * (0.1 + 0.9 * load**3), True),
        (lambda i, load: 65 * (0.1 + 0.9 * load**3) * (1 + 0.01 * math.sin(i * i)), False),
        (lambda i, load: 45.0 + 0.02 * (i % 3), False),
    ],
)
def test_powers_that_no_meter_gives_are_estimates(tmp_path, power_w, is_estimate) -> None:
    rows = []
    for i in range(12):
        load, time_s = 0.1 + 0.07 * i, 2.0 + 0.3 * i
        rows.append(["x", f"k{i}", 1000, time_s, power_w(i, load) * time_s, load])
    header = ["site", "kernel", "core_mhz", "time_s", "energy_j", "cpu_load"]
    pd.DataFrame(rows, columns=header).to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "m.toml").write_text('unknown = "label"\n')
    words = ["import", str(tmp_path / "t.csv"), "--map", str(tmp_path / "m.toml")]
    checks = [one["check"] for one in answers(*words, "--store", tmp_path / "s")["findings"]]
    assert ("energy origin" in checks) == is_estimate


def test_zeus_windows_and_power_limits(tmp_path) -> None:
    with (FILES / "zeus_windows.csv").open() as file:
        windows = list(csv.DictReader(file))
    frame = taken(tmp_path, FILES / "zeus_windows.csv")
    gpus = ("gpu0_energy", "gpu1_energy")
    wanted = [[float(w["elapsed_time"]), sum(float(w[g]) for g in gpus)] for w in windows]
    assert costs(frame) == wanted and frame["repeat"].tolist() == [0, 1, 0]
    assert frame["start_unix_s"].tolist() == [float(w["start_time"]) for w in windows]
    limits = json.loads((FILES / "zeus_limits.json").read_text())["measurements"]
    frame = taken(tmp_path / "l", FILES / "zeus_limits.json", "--set", "kernel=train")
    assert costs(frame) == [[one["time"], one["energy"]] for one in limits]
    assert frame["power_limit_w"].tolist() == [one["power_limit"] for one in limits]


def test_a_zeus_window_of_0_j_has_no_energy(tmp_path) -> None:
    text = (FILES / "zeus_windows.csv").read_text().splitlines()
    (tmp_path / "w.csv").write_text("\n".join([text[0], text[1], "9,short,0.01,0.0,0.0"]) + "\n")
    frame = taken(tmp_path, tmp_path / "w.csv")
    assert frame["energy_j"].isna().tolist() == [False, True]


def test_reframe_takes_values_by_their_units_and_failures_with_their_result(tmp_path) -> None:
    frame = taken(tmp_path, FILES / "reframe_stream.log")
    assert set(frame["kernel"]) == {"stream"} and set(frame["params"]) == {"{}"}
    assert frame["core_mhz"].tolist() == [1200, 2400, 9999]
    assert costs(frame)[:2] == [[1.12, 120.0], [1.24, 240.0]]
    assert frame["status"].tolist() == ["ok", "ok", "kernel failed"]
    assert math.isnan(frame["time_s"][2])


def test_parameters_of_reframe_that_are_parts_of_a_setting_are_its_setting(tmp_path) -> None:
    text = (FILES / "reframe_stream.log").read_text()
    more = " %power_limit_w=150 %uncore_mhz=1600 %size=7"
    (tmp_path / "r.log").write_text(text.replace(" %core_mhz=1200", f" %core_mhz=1200{more}"))
    frame = taken(tmp_path, tmp_path / "r.log")
    setting = frame.loc[0, ["core_mhz", "mem_mhz", "uncore_mhz", "power_limit_w"]].astype(float)
    assert setting.tolist() == pytest.approx([1200, math.nan, 1600, 150], nan_ok=True)
    assert json.loads(frame["params"][0]) == {"size": 7}


def test_a_project_of_codecarbon_keeps_a_name_that_ends_like_a_task(tmp_path) -> None:
    head, *runs = (FILES / "codecarbon_rapl.csv").read_text().splitlines()
    cells = dict(zip(head.split(","), runs[0].split(","), strict=True))
    cells["project_name"] = "solve_5b0fa12a-3dd7-45bb-9766-cc326314d9f1"
    (tmp_path / "p.csv").write_text(f"{head}\n{','.join(cells.values())}\n")
    assert taken(tmp_path, tmp_path / "p.csv")["kernel"].tolist() == [cells["project_name"]]


def test_a_test_of_reframe_in_two_environments_is_two_kernels(tmp_path) -> None:
    text = (FILES / "reframe_stream.log").read_text()
    (tmp_path / "r.log").write_text(text + text.partition("\n")[2].replace("|builtin|", "|gnu|"))
    frame = taken(tmp_path, tmp_path / "r.log")
    assert frame["params"].tolist() == ["{}"] * 3 + ['{"environ":"gnu"}'] * 3
    assert set(frame["repeat"]) == {0}


@pytest.mark.parametrize("text", ["1" * 400, "[" * 100_000, "Infinity", "1e999"])
def test_a_parameter_that_is_no_number_a_machine_has_is_a_text(tmp_path, text) -> None:
    log = "result|job_completion_time|name|unique_name|time_value|time_unit\n"
    (tmp_path / "r.log").write_text(f"{log}pass|2024|t %n={text}|u|1.0|s\n")
    (tmp_path / "t.csv").write_text(f"kernel,core_mhz,time_s,energy_j,n\nt,1000,1,5,{text}\n")
    (tmp_path / "m.toml").write_text('params = ["n"]\n')
    for file, map_file in (("r.log", None), ("t.csv", tmp_path / "m.toml")):
        made = import_table(tmp_path / file, tmp_path / f"{file}.s", map_file, site="x")
        assert json.loads(made.measurements["params"][0]) == {"n": text}


def test_an_infinite_clock_of_reframe_is_refused_with_its_line(tmp_path) -> None:
    text = (FILES / "reframe_stream.log").read_text().replace("core_mhz=2400", "core_mhz=1e999")
    said = refused(tmp_path, text, "reframe")
    assert "t:3: core_mhz: found '1e999'; must be a number" in said


def test_a_row_of_reframe_whose_fields_shift_is_refused_with_its_line(tmp_path) -> None:
    head, first, *_ = (FILES / "reframe_stream.log").read_text().splitlines()
    short = "|".join(first.split("|")[:-5])
    said = refused(tmp_path, f"{head}\n{first}\n{short}\n", "reframe")
    assert "t:3: 31 fields where the header has 36" in said and "remove this row" in said
    two = [f"{line}|{more}" for line, more in ((head, "copy_value|copy_unit"), (first, "3|s"))]
    said = refused(tmp_path, "\n".join(two) + "\n", "reframe")
    assert 'time_s = "elapsed_value"' in said


PERF = {
    "perf.csv": [12.34],
    "perf.json": [12.345678],
    "perf.txt": [12.34, 12.34],
    "perf_intervals.csv": [3 * 12.34],
    "perf_runs.txt": [12.34],
}


@pytest.mark.parametrize("name", PERF)
def test_perf_stat_in_its_forms(tmp_path, name) -> None:
    """Its times by its own count of ns, which every form has."""
    text = (FILES / name).read_text()
    frame = taken(tmp_path, FILES / name, "--set", "kernel=sleep")
    ns = [float(n) for n in _durations(text)]
    ns = [sum(ns)] if "intervals" in name else ns
    assert frame["time_s"].tolist() == [round(n / 1e9, 9) for n in ns]
    assert frame["energy_j"].tolist() == pytest.approx(PERF[name], rel=1e-15)


def _durations(text: str) -> list[str]:
    found = []
    for line in text.splitlines():
        if line.startswith("{") and "duration_time" in line:
            found.append(json.loads(line)["counter-value"])
        elif "duration_time" in line:
            fields = re.split(r"[;,\s]+", line.strip())
            found.append(fields[fields.index("ns") - 1])
    return found


def test_perf_without_a_time_or_an_energy_says_what_to_count(tmp_path) -> None:
    energy, duration = (FILES / "perf.csv").read_text().splitlines()[-2:]
    said = refused(tmp_path, f"{energy}\n", "perf-stat", kernel="k")
    assert "duration_time" in said and "--set time_s" in said
    package = energy.replace("psys", "pkg")
    said = refused(
        tmp_path, f"{package.replace('12.34', '<not counted>')}\n{duration}\n", "perf-stat"
    )
    assert "energy-pkg" in said and "as root" in said
    said = refused(tmp_path, f"{energy.replace('12.34', '12,34')}\n{duration}\n", "perf-stat")
    assert "LC_ALL=C" in said
    (tmp_path / "zero").write_text(f"{energy.replace('12.34', '0.00')}\n{duration}\n")
    assert math.isnan(taken(tmp_path, tmp_path / "zero", "--set", "kernel=k")["energy_j"][0])


def test_perf_adds_package_and_memory_of_all_sockets_and_no_part_of_them(tmp_path) -> None:
    lines = [
        f"S{s};1;{j};Joules;power/energy-{part}/;200000000;100.00;;"
        for s, part, j in (
            *((0, "pkg", "10.50"), (1, "pkg", "11.25"), (0, "ram", "2.00"), (1, "ram", "2.25")),
            *((0, "cores", "7.00"), (1, "cores", "8.00"), (0, "psys", "40.00")),
        )
    ]
    lines.append("S0;1;200000000;ns;duration_time;200000000;100.00;;")
    (tmp_path / "p").write_text("\n".join(lines) + "\n")
    frame = taken(tmp_path, tmp_path / "p", "--set", "kernel=k")
    assert costs(frame) == [[0.2, 26.0]]


@pytest.mark.parametrize("platform_j", [40.0, None])
def test_perf_takes_no_dram_for_the_whole(tmp_path, capsys, platform_j) -> None:
    """psys has DRAM in it; DRAM alone is no energy of a run."""
    lines = ["2.25;Joules;power/energy-ram/;200000000;100.00;;"]
    if platform_j is not None:
        lines.append(f"{platform_j};Joules;power/energy-psys/;200000000;100.00;;")
    lines.append("200000000;ns;duration_time;200000000;100.00;;")
    (tmp_path / "p").write_text("\n".join(lines) + "\n")
    frame = taken(tmp_path, tmp_path / "p", "--set", "kernel=k")
    expected = math.nan if platform_j is None else platform_j
    assert frame["energy_j"].tolist() == pytest.approx([expected], nan_ok=True)
    assert ("DRAM alone" in "".join(capsys.readouterr())) is (platform_j is None)


def test_perf_counts_an_energy_once_that_was_asked_for_twice(tmp_path) -> None:
    text = (FILES / "perf.txt").read_text()
    line = "              12.34 Joules power/energy-psys/"
    (tmp_path / "p").write_text(text.replace(line, f"{line}\n{line}"))
    assert text.count(line) == 2
    frame = taken(tmp_path, tmp_path / "p", "--set", "kernel=sleep")
    assert frame["energy_j"].tolist() == [12.34, 12.34]


@pytest.mark.parametrize("name", ["perun.hdf5", "perun.json"])
def test_perun_gives_its_runs_and_regions_without_what_it_adds(tmp_path, name) -> None:
    """The run ``plain`` as perun prints it; of ``costs``, with a PUE and an overhead, what the
    sensors gave. The pretended RAPL counts 45 W."""
    frame = taken(tmp_path, FILES / name)
    rows = {}
    for row, text in zip(frame.to_dict("records"), frame["provenance"], strict=True):
        run = json.loads(text)["labels"]["output.run_id"]
        rows[run, row["kernel"]] = row | {"estimated": "estimated" in json.loads(text)}
    assert len(rows) == len(frame) == 6
    printed = (FILES / "perun.txt").read_text()
    run = re.search(r"\| +0 \| +All \| +(\S+) s \| +(\S+) J", printed)
    plain = rows["plain", "stream"]
    assert run and [f"{plain[n]:.3f}" for n in ("time_s", "energy_j")] == [*run.groups()]
    regions = re.findall(r"0 \| +(copy|triad) \|.* (\S+) s \|", printed)
    assert len(regions) == 2
    for region, longest_s in regions:
        row = rows["plain", region]
        (mean_w,) = re.findall(rf"{region} \|.* (\S+) ± \S+ W", printed)
        assert f"{row['energy_j'] / row['time_s']:.2f}" == mean_w
        assert row["time_s"] == pytest.approx(float(longest_s), abs=2e-3)
    cpu_and_dram = (
        json.loads(text)["labels"] for text in frame["provenance"] if '"cpu_energy"' in text
    )
    for labels in cpu_and_dram:
        row = rows[labels["output.run_id"], "stream"]
        parts_j = float(labels["cpu_energy"]) + float(labels["dram_energy"])
        assert row["energy_j"] == pytest.approx(parts_j, rel=1e-6)
        assert row["energy_j"] == pytest.approx(45 * row["time_s"], rel=0.03)
    is_short = {kernel: row["estimated"] for (_, kernel), row in rows.items()}
    assert is_short == {"stream": False, "triad": False, "copy": True}


def test_perun_in_both_of_its_forms_is_the_same(tmp_path) -> None:
    frames = [taken(tmp_path / kind, FILES / f"perun.{kind}") for kind in ("hdf5", "json")]
    names = ["kernel", "repeat", "node", "time_s", "energy_j", "status"]
    pd.testing.assert_frame_equal(*(frame[names] for frame in frames))


def test_of_perun_a_failed_run_is_a_failure_and_0_j_no_energy(tmp_path) -> None:
    """Edited as perun 1.0.0 writes a program that raises, and a counter that stands still."""
    program = json.loads((FILES / "perun.json").read_text())
    program["id"] = "failed_stream"
    plain, costs_ = (program["nodes"][0][name]["nodes"][0] for name in ("plain", "costs"))
    plain["failed"] = plain.pop("0") | {"id": "failed", "regions": None}
    costs_["0"]["metrics"]["energy"]["value"] = 0.0
    (tmp_path / "p.json").write_text(json.dumps(program))
    frame = taken(tmp_path, tmp_path / "p.json")
    failed = frame[frame["status"] == "kernel failed"]
    assert failed["kernel"].tolist() == ["stream"]
    assert failed[["time_s", "energy_j"]].isna().all(axis=None)
    others = frame[frame["status"] == "ok"].set_index("kernel")["energy_j"]
    assert others.isna().to_dict() == {"failed_stream": True, "triad": False, "copy": False}


def test_of_perun_units_have_prefixes_and_a_region_on_several_hosts_has_no_energy(tmp_path) -> None:
    """Its sums over hosts are those of runs alone: a rank has the power of its own host."""
    program = json.loads((FILES / "perun.json").read_text())
    for group in program["nodes"][0].values():
        (run,) = group["nodes"][0].values()
        run["nodes"][0]["other"] = {"metrics": {}}
        runtime = run["metrics"]["runtime"]
        runtime["value"] *= 1e3
        runtime["metric_md"]["mag"] = 1e-3
    (tmp_path / "p.json").write_text(json.dumps(program))
    frame = taken(tmp_path, tmp_path / "p.json")
    one_host = taken(tmp_path / "one", FILES / "perun.json")
    assert frame["time_s"].to_numpy() == pytest.approx(one_host["time_s"].to_numpy(), rel=1e-12)
    assert (frame["energy_j"].isna() == (frame["kernel"] != "stream")).all()
    assert set(frame["node"]) == {""}


def test_hdf5_that_is_damaged_or_of_another_tool_says_what_it_is(tmp_path) -> None:
    import h5py

    whole = (FILES / "perun.hdf5").read_bytes()
    for data in (whole[:40_000], whole.replace(b"runtime", b"runtimx")):
        (tmp_path / "p.h5").write_bytes(data)
        with pytest.raises(FileError, match="no results of perun"):
            import_table(tmp_path / "p.h5", tmp_path / "s", site="x", layout="perun")
    for attribute, kind in (("_NCProperties", "NetCDF-4"), ("pandas_type", "pandas")):
        with h5py.File(tmp_path / "o.h5", "w") as file:
            file.attrs[attribute] = "frame_table"
        assert kind in refusal(tmp_path, (tmp_path / "o.h5").read_bytes(), name="t.h5")


BENCHPARK = str(ROOT / "examples/benchpark.map.toml")


def test_caliper_takes_the_time_that_the_map_chooses_and_no_region_for_a_host(tmp_path) -> None:
    """The longest rank slept 30 and 150 ms below coarse and fine; the profiles are repeats."""
    path = FILES / "caliper_thicket.csv"
    with path.open() as file:
        regions = list(csv.DictReader(file))
    frame = taken(tmp_path, path, "--map", BENCHPARK)
    assert frame["time_s"].tolist() == [float(region["Max time/rank"]) for region in regions]
    assert set(frame["node"]) == {""} and frame["repeat"].tolist() == [0, 1] * 5
    assert [text.partition(" (")[0] for text in frame["kernel"]] == [r["name"] for r in regions]
    slept = frame[frame["kernel"].str.startswith("solve")].groupby("kernel")["time_s"].min()
    assert slept.to_numpy() == pytest.approx([0.03, 0.15], abs=5e-3)
    assert frame["energy_j"].isna().all()


def test_caliper_asks_which_time_is_the_run_time(tmp_path, capsys) -> None:
    said = refused(tmp_path / "a", (FILES / "caliper_thicket.csv").read_text(), "caliper")
    assert "ranks and threads: Total time," in said and 'time_s = "Max time/rank"' in said
    said = refused(tmp_path / "b", (FILES / "caliper_ranks.csv").read_text(), "caliper")
    assert "a row for each rank" in said
    said = refused(tmp_path / "c", (FILES / "caliper_1.cali").read_text(), "caliper")
    assert "from_caliperreader('t')" in said
    (tmp_path / "m.toml").write_text('layout = "caliper"\n[columns]\ntime_s = "Total time"\n')
    taken(tmp_path, FILES / "caliper_thicket.csv", "--map", str(tmp_path / "m.toml"))
    assert "Total time may be a sum" in " ".join(capsys.readouterr().out.split())


def test_likwid_adds_sockets_and_memory_and_takes_the_longest_runtime(tmp_path) -> None:
    """As its STAT tables have them: Sum of energies, Max of runtime, Avg of clocks."""
    frame = taken(tmp_path, FILES / "likwid_regions.csv")
    assert frame["kernel"].tolist() == ["triad", "copy"]
    tables = (FILES / "likwid_regions.csv").read_text().split("TABLE,")
    stats = [
        {row[0]: row[1:] for row in csv.reader(table.splitlines())}
        for table in tables
        if "Metric STAT" in table
    ]
    for (time_s, energy_j), stat in zip(costs(frame), stats, strict=True):
        total, _, longest, _ = (float(x) for x in stat["Runtime (RDTSC) [s] STAT"][:4])
        assert total > longest == time_s
        parts = (float(stat[f"Energy{part} [J] STAT"][0]) for part in ("", " DRAM"))
        assert energy_j == sum(parts)
    clocks = [float(stat["Clock [MHz] STAT"][3]) for stat in stats]
    assert frame["core_mhz_achieved"].tolist() == clocks
    assert refused(tmp_path / "r", (FILES / "likwid_run.csv").read_text(), "likwid")
    # As the import advises: no sum over the threads. An uncore clock is at one of a socket.
    text = (FILES / "likwid_regions.csv").read_text()
    (tmp_path / "u.csv").write_text(
        text.replace("Power [W],34.2000,32.1000", "Uncore Clock [MHz],1800,0")
    )
    (tmp_path / "m.toml").write_text(
        'layout = "likwid"\n[columns]\ncore_mhz = "Clock"\nuncore_mhz = "Uncore Clock"\n'
    )
    (tmp_path / "named").mkdir()
    named = taken(tmp_path / "named", tmp_path / "u.csv", "--map", str(tmp_path / "m.toml"))
    assert named["core_mhz"].tolist() == clocks
    assert named["uncore_mhz"].tolist() == [1800.0, 1800.0]


def test_likwid_on_amd_has_the_energy_of_packages_and_no_part_is_taken_for_it(
    tmp_path, capsys
) -> None:
    """LIKWID's group ENERGY of Zen to Zen 5 has ``Energy PKG`` and ``Energy Core``, no DRAM."""
    text = (FILES / "likwid_regions.csv").read_text()
    no_dram = re.sub("Energy DRAM.*\n", "", text)
    amd = no_dram.replace("Energy [J]", "Energy PKG [J]").replace("PP0", "Core")
    (tmp_path / "amd.csv").write_text(amd)
    energies = [energy_j for _, energy_j in costs(taken(tmp_path, tmp_path / "amd.csv"))]
    lines = [line for line in amd.splitlines() if line.startswith("Energy PKG [J],")]
    assert energies == [sum(map(float, line.split(",")[1:3])) for line in lines] != []
    capsys.readouterr()
    (tmp_path / "parts.csv").write_text(re.sub("Energy PKG.*\n", "", amd).replace("Core", "DRAM"))
    parts = taken(tmp_path / "parts", tmp_path / "parts.csv")
    assert parts["energy_j"].isna().all() and "Energy DRAM" in "".join(capsys.readouterr())


# -- sacct ---------------------------------------------------------------------------------------

NAMES = "JobID|JobName|State|Start|End|ElapsedRaw|ConsumedEnergyRaw|ReqCPUFreqMax|NNodes|NodeList"


def job(number: int, joules: int, *steps: tuple[str, str], state: str = "COMPLETED") -> list[str]:
    """A job of an hour on a node of its own, and its steps' rows (name, ReqCPUFreqMax), of which
    each has all of the node's energy, as Slurm gives it."""
    day, rest = f"2026-11-{number:02}", f"1|n{number}"
    rows = [f"{number}|lu|{state}|{day}T10:00:00|{day}T11:00:00|3600|{joules * 3}|Unknown|{rest}"]
    for name, clock in steps:
        time = f"{day}T10:00:00|{day}T11:00:00|3600"
        rows.append(f"{number}.{name}|{name}|{state}|{time}|{joules}|{clock}|{rest}")
    return rows


def test_the_rows_of_a_job_count_its_joules_once(tmp_path) -> None:
    lines = [
        NAMES,
        *job(1, 5000, ("batch", "0"), ("extern", "0"), ("0", "2.40G")),
        *job(2, 6000, ("batch", "0"), ("0", "1.20G")),
        *job(3, 7000, ("0", "1.20G")),
        *job(4, 8000, ("batch", "0"), state="TIMEOUT"),
        *job(5, 2**64 - 2, ("extern", "0"), ("0", "2.40G")),
        *job(6, 9000),
        *job(7, 100, ("batch", "0"), state="RUNNING"),
    ]
    (tmp_path / "t").write_text("\n".join(lines) + "\n")
    frame = taken(tmp_path, tmp_path / "t")
    energies = frame["energy_j"].tolist()
    assert energies[:3] == [5000, 6000, 7000] and frame["energy_j"][3:].isna().all()
    assert frame["core_mhz"].tolist()[:3] == [2400, 1200, 1200]
    assert frame["status"].tolist() == ["ok"] * 3 + ["timed out"] + ["ok"] * 2


def test_a_job_whose_script_ends_well_after_a_step_failed_is_a_failure(tmp_path) -> None:
    lines = [NAMES]
    for number, state in enumerate(("FAILED", "OUT_OF_MEMORY", "CANCELLED by 0", "COMPLETED"), 1):
        head, batch, step = job(number, 900, ("batch", "0"), ("0", "2.40G"))
        lines += [head, batch, step.replace("COMPLETED", state)]
    (tmp_path / "t").write_text("\n".join(lines) + "\n")
    frame = taken(tmp_path, tmp_path / "t")
    assert frame["status"].tolist() == ["kernel failed"] * 2 + ["ok"] * 2
    assert frame["energy_j"].fillna(0).tolist() == [0, 0, 900, 900]
    assert [text.split() for text in frame["text"][:2]] == [
        ["step", "0", "FAILED"],
        ["step", "0", "OUT_OF_MEMORY"],
    ]


def test_steps_that_asked_for_clocks_are_rows_unless_they_overlap(tmp_path) -> None:
    head, batch = job(1, 900, ("batch", "0"))
    times = {"0": ("10:00", "10:30"), "1": ("10:30", "11:00"), "2": ("10:45", "11:00")}
    steps = [
        f"1.{n}|lu.x|COMPLETED|2026-11-01T{a}:00|2026-11-01T{b}:00|1800|{400 + int(n)}|{mhz}M|1|n1"
        for (n, (a, b)), mhz in zip(times.items(), (1200, 2400, 3000), strict=True)
    ]
    (tmp_path / "t").write_text("\n".join([NAMES, head, batch, *steps]) + "\n")
    frame = taken(tmp_path, tmp_path / "t")
    assert frame["core_mhz"].tolist() == [1200, 2400, 3000]
    assert frame["energy_j"].fillna(0).tolist() == [400, 0, 0]


def test_jobs_of_a_real_slurm(tmp_path) -> None:
    """By srun, by sbatch without a step, two steps at their clocks, and one that fails."""
    frame = taken(tmp_path, FILES / "sacct.txt")
    text = (FILES / "sacct.txt").read_text(encoding="utf-8").splitlines()
    printed = {
        row["JobID"].partition(".")[2] + row["JobName"]: row
        for row in csv.DictReader(text, delimiter="|")
    }
    own = [printed[name] for name in ("by-srun", "no-step", "0at-1200000", "1at-2400000", "fails")]
    counted = [*(row for row in csv.DictReader(text, delimiter="|") if row["JobName"] == "extern")]
    joules = [counted[0], counted[1], own[2], own[3]]
    assert frame["kernel"].tolist() == [row["JobName"] for row in own]
    assert frame["energy_j"].tolist()[:4] == [float(row["ConsumedEnergyRaw"]) for row in joules]
    assert frame["time_s"].tolist()[:4] == [float(row["ElapsedRaw"]) for row in own[:4]]
    assert frame["core_mhz"].fillna(0).tolist() == [1800, 0, 1200, 2400, 0]
    assert frame["status"].tolist() == ["ok"] * 4 + ["kernel failed"]
    assert frame[["energy_j", "time_s"]].iloc[4].isna().all()
    assert frame["core_mhz_achieved"].isna().all()


def test_sacct_as_people_print_it(tmp_path) -> None:
    text = "JobID|JobName|Elapsed|ConsumedEnergy|State|ReqCPUFreq|NNodes\n"
    text += "1|lu|1-02:46:30|13.74M|COMPLETED|Unknown|1\n"
    text += "1.0|lu.x|1-02:46:30|4.58M|COMPLETED|2.40G|1\n"
    (tmp_path / "t").write_text(text)
    frame = taken(tmp_path, tmp_path / "t")
    assert costs(frame) == [[96390.0, 4.58e6]] and frame["core_mhz"].tolist() == [2400]


# -- EAR -----------------------------------------------------------------------------------------


def test_ear_counts_the_joules_of_a_job_once(tmp_path) -> None:
    """By its documentation: step 101.0 on two nodes with a batch step, 102 without the library,
    103 with nothing but its batch step."""
    frame = taken(tmp_path, FILES / "ear_apps.csv")
    assert frame["kernel"].tolist() == ["lu", "ft", "serial"]
    joules = [410.25 * 299.5 + 400.5 * 299.25, 350.5 * 120.5, 250.25 * 100.5]
    assert costs(frame) == [[t, e] for t, e in zip((299.5, 120.5, 100.5), joules, strict=True)]
    assert frame["core_mhz"].tolist() == [2401, 1800, 2401]
    assert frame["core_mhz_achieved"].tolist() == [2381, 1795, 2390]
    assert frame["node"].tolist() == ["", "n1", "n2"]


def test_a_node_of_ear_without_a_clock_leaves_the_mean_unknown(tmp_path) -> None:
    text = (FILES / "ear_apps.csv").read_text()
    (tmp_path / "e.csv").write_text(text.replace(";2382000;", ";0;"))
    frame = taken(tmp_path, tmp_path / "e.csv")
    assert frame["core_mhz_achieved"].tolist() == pytest.approx([math.nan, 1795, 2390], nan_ok=True)


def test_a_quote_in_likwid_and_a_table_of_ear_without_programs_are_no_tracebacks(tmp_path) -> None:
    text = (FILES / "likwid_regions.csv").read_text()
    (tmp_path / "l.csv").write_text(text.replace("FIXC0,", 'FIXC0,"'))
    whole = taken(tmp_path / "whole", FILES / "likwid_regions.csv")
    assert costs(taken(tmp_path, tmp_path / "l.csv")) == costs(whole)
    text = (FILES / "ear_apps.csv").read_text().replace("JOBNAME", "NAME")
    assert "is no table of EAR" in refused(tmp_path / "r", text, "ear")


CALIPER = "node,name,nid,time\n\"{'name': 'a', 'type': 'r'}\",a,1,"
ZEUS = "start_time,window_name,elapsed_time,gpu0_energy\n1700000000.0,w,1.0,"


@pytest.mark.parametrize(
    ("layout", "text", "said"),
    [
        ("caliper", f"{CALIPER}2.0,9\n", "t:2: 5 fields where the header has 4"),
        ("caliper", CALIPER.rstrip(",") + "\n", "t:2: 3 fields where the header has 4"),
        ("caliper", f"{CALIPER}{'2' * 200_000}\n", "t:2: time_s: found '2222"),
        ("zeus", f"{ZEUS}5.0,7\n", "t:2: 5 fields where the header has 4"),
        ("zeus", f"{ZEUS}{'5' * 200_000}\n", "t:2: gpu0_energy: found '5555"),
        ("zeus", f'{ZEUS}"5.0\n', "t:2: is not CSV"),
        ("zeus", ZEUS.partition("\n")[0], "t: has no windows; nothing to import"),
    ],
)
def test_a_row_that_is_none_of_the_tools_is_refused_with_its_line(tmp_path, layout, text, said):
    (tmp_path / "t").write_text(text)
    (tmp_path / "m.toml").write_text(
        f'layout = "{layout}"\n' + '[columns]\ntime_s = "time"\n' * (layout == "caliper")
    )
    with pytest.raises(FileError, match=re.escape(said)):
        import_table(tmp_path / "t", tmp_path / "s", tmp_path / "m.toml", site="x")


def test_loops_of_ear_are_iterations_on_a_node(tmp_path) -> None:
    frame = taken(tmp_path, FILES / "ear_loops.csv")
    assert set(frame["kernel"]) == {"loop 4021"}
    assert costs(frame) == [[0.25, 411.5 * 0.25], [0.251, 401.25 * 0.251], [0.252, 410.75 * 0.252]]
    assert frame["node"].tolist() == ["n1", "n2", "n1"] and frame["repeat"].tolist() == [0, 0, 1]


def test_a_loop_of_ear_begins_when_the_file_says_and_not_with_its_job(tmp_path) -> None:
    """By its TIMESTAMP; EAR built without it writes ITERATIONS in its place."""
    text = (FILES / "ear_loops.csv").read_text().replace("JOBID;", "JOBID;JOB_START_TIME;")
    text = text.replace("101;0", "101;1794130000;0")
    (tmp_path / "timed.csv").write_text(text)
    (tmp_path / "counted.csv").write_text(text.replace("TIMESTAMP", "ITERATIONS"))
    frame = taken(tmp_path, tmp_path / "timed.csv")
    assert frame["start_unix_s"][0] == 1794139210
    counted = taken(tmp_path / "counted", tmp_path / "counted.csv")
    assert not counted["start_unix_s"].any()  # 0: unknown


def test_steps_of_ear_that_share_a_node_have_no_energy(tmp_path) -> None:
    head, *rows = (FILES / "ear_apps.csv").read_text().splitlines()
    names = head.split(";")
    ft = dict(zip(names, rows[3].split(";"), strict=True))
    other = ft | {
        "STEPID": "1",
        "JOBNAME": "mg",
        "JOB_START_TIME": str(int(ft["JOB_END_TIME"]) - 5),
    }
    other["JOB_END_TIME"] = str(int(ft["JOB_END_TIME"]) + 100)
    (tmp_path / "e.csv").write_text("\n".join([head, *rows, ";".join(other.values())]) + "\n")
    frame = taken(tmp_path, tmp_path / "e.csv").set_index("kernel")
    assert frame["energy_j"].isna().to_dict() == {
        "lu": False,
        "ft": True,
        "serial": False,
        "mg": True,
    }
    said = refused(tmp_path / "r", f"{head}\n{rows[0].replace('lu', 'l;u')}\n", "ear")
    assert "t:2: 50 fields where the header has 49" in said


# -- out -----------------------------------------------------------------------------------------

NUMBERS = st.floats(1e-6, 1e6) | st.integers(1, 10**9)
ARRAYS = st.lists(NUMBERS, max_size=3)
UNITS = st.sampled_from(["", "J", "GFLOP/s"])
PARAMS = st.fixed_dictionaries(
    {
        "bx": st.integers(1, 1024),
        "layout": st.sampled_from("abc"),
        "nvml_pwr_limit": st.sampled_from([100, 150]),
    }
)
RESULTS = st.lists(
    st.tuples(
        PARAMS,
        st.sampled_from(["correct", "compile", "runtime", "constraints", "timeout", "correctness"]),
        st.floats(1e-3, 1e5),
        st.floats(0.1, 400),
        st.dictionaries(
            st.sampled_from(["GFLOP/s", "temperature", "ps_energy"]),
            st.tuples(NUMBERS | st.sampled_from(["a", "12", "[1]"]) | ARRAYS, UNITS),
        ),
        ARRAYS,
        st.sampled_from(["2026-11-27 18:02:19+00:00", "2026-11-27T18:02:19Z"]),
        st.sampled_from([["time"], ["GFLOP/s"], ["time", "ps_energy"]]),
        st.sampled_from([0, 0.5, 1]),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda one: (one[0]["bx"], one[0]["layout"]),
)


@given(RESULTS)
def test_kernel_tuners_results_go_in_and_out_whole(tmp_path_factory, results) -> None:
    """All that the schema of T4 1.0.0 has a place for, with the times of Kernel Tuner 1.5."""
    folder = tmp_path_factory.mktemp("t4")
    timings = {"compilation": 1.5, "benchmark": 2.5, "framework": 3, "search_algorithm": 0.0}
    theirs = [
        {
            "timestamp": timestamp,
            "configuration": params,
            "times": timings | {"validation": 0, "runtimes": times},
            "invalidity": why,
            "correctness": correctness,
            "measurements": [
                {"name": name, "value": value, "unit": unit}
                for name, (value, unit) in (
                    more | {"time": (time, "ms"), "nvml_power": (power, "W")}
                ).items()
            ]
            if why == "correct"
            else [{"name": "__error__", "value": "", "unit": ""}],
            "objectives": objectives,
        }
        for params, why, time, power, more, times, timestamp, objectives, correctness in results
    ]
    head = {"schema_version": "1.0.0", "metadata": {"timeunit": "milliseconds"}}
    (folder / "r.json").write_text(json.dumps({"results": theirs} | head))
    by = TableMap(layout="kernel-tuner", constants={"site": "x", "kernel": "k"})
    rows = pd.DataFrame(checked_rows(read_table(folder / "r.json", by), by).rows)
    ours = json.loads(kernel_tuner_results(rows))

    def in_order(found: list[dict]) -> list[str]:
        for one in found:
            one["measurements"].sort(key=lambda measured: measured["name"])
        return sorted(json.dumps(one, sort_keys=True) for one in found)

    assert in_order(ours.pop("results")) == in_order(theirs) and ours == head


def test_extra_p_gets_a_kernels_numbers_and_the_inverse_of_its_clocks(tmp_path) -> None:
    header = ["site", "kernel", "params", "core_mhz", "time_s", "energy_j"]
    rows = [
        ["x", "k", json.dumps({"n": n, "kind": "a"}), mhz, n / mhz, 3.0 * n / mhz]
        for n in (64, 128)
        for mhz in (800, 1600)
    ]
    store, out = store_of_table(tmp_path, pd.DataFrame(rows, columns=header)), tmp_path / "o.jsonl"
    assert main(["export", str(store), "--extra-p", str(out), "--metric", "power_w"]) == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    points = {(one["params"]["n"], one["params"]["inverse_core_mhz"]) for one in lines}
    assert points == {(n, 1 / mhz) for n in (64, 128) for mhz in (800, 1600)}
    assert {one["callpath"] for one in lines} == {"k kind=a"}
    assert {one["metric"] for one in lines} == {"power_w"}
    assert [one["value"] for one in lines] == pytest.approx([3.0] * 4)


def test_no_power_limit_is_the_highest_for_extra_p(tmp_path) -> None:
    lines = ["site,kernel,core_mhz,power_limit_w,core_mhz_achieved,time_s,energy_j"]
    lines += ["x,k,1000,,1000,1,100", "x,k,1000,80,900,1.1,88", "x,k,800,,800,1.25,90"]
    store, out = store_of_table(tmp_path, lines), tmp_path / "o.jsonl"
    assert main(["export", str(store), "--extra-p", str(out), "--metric", "time_s"]) == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert {one["value"]: one["params"]["inverse_power_limit_w"] for one in lines} == {
        1.0: 0.0,
        1.1: 1 / 80,
        1.25: 0.0,
    }


def test_numbers_of_ranks_are_exported_as_what_tells_runs_apart(tmp_path) -> None:
    (tmp_path / "m.toml").write_text('[columns]\nranks = "p"\n')
    lines = ["site,kernel,core_mhz,p,time_s,energy_j", "x,k,1000,1,8,80", "x,k,1000,4,2,90"]
    store = store_of_table(tmp_path, lines, "--map", tmp_path / "m.toml")
    for form in ("--extra-p", "--kernel-tuner"):
        assert main(["export", str(store), form, str(tmp_path / form)]) == 0
    lines = [json.loads(line) for line in (tmp_path / "--extra-p").read_text().splitlines()]
    assert [[one["params"], one["value"]] for one in lines] == [
        [{"ranks": 1}, 80.0],
        [{"ranks": 4}, 90.0],
    ]
    results = json.loads((tmp_path / "--kernel-tuner").read_text())["results"]
    assert [one["configuration"]["ranks"] for one in results] == [1, 4]


def test_a_first_repeat_without_energy_does_not_lose_the_others(tmp_path) -> None:
    """As of a node without a meter: the energy is the mean of those that were measured."""
    lines = ["site,kernel,core_mhz,repeat,time_s,energy_j"]
    lines += ["x,k,1000,0,2,80", "x,k,1000,1,4,90", "x,k,1000,2,6,110"]
    table = export_table(open_store(store_of_table(tmp_path, lines)))
    table.loc[table["repeat"] == 0, "energy_j"] = math.nan
    (result,) = json.loads(kernel_tuner_results(table.sort_values("repeat")))["results"]
    measured = {one["name"]: one["value"] for one in result["measurements"]}
    assert (measured["time"], measured["nvml_energy"]) == (4000.0, 100.0)
    assert result["times"]["runtimes"] == [2000.0, 4000.0, 6000.0]


# -- tables that mean something else -------------------------------------------------------------

MAP = '[constants]\nsite = "x"\n[columns]\nkernel = "name"\ntime_s = "time"\n'
REGIONS = "name,node,time,core_mhz,energy_j\nmain,main,3.5,1000,30\nfoo,foo,2.5,1000,20\n"
HOSTS = "name,node,time,core_mhz,energy_j\nmain,n1,3.5,1000,30\nmain,n2,3.4,1000,30\n"


def test_a_column_node_that_is_no_host_needs_the_map(tmp_path) -> None:
    assert "'node'" in refusal(tmp_path, REGIONS, MAP)
    assert set(read(tmp_path, REGIONS, MAP + 'node = "node"\n')["node"]) == {"main", "foo"}
    assert set(read(tmp_path, HOSTS, MAP)["node"]) == {"n1", "n2"}


def test_times_since_a_start_are_no_repeats(tmp_path) -> None:
    head = "site,kernel,core_mhz,time_s,energy_j\n"
    log = head + "".join(f"x,k,1000,{0.05 * i},{2 + i % 2}\n" for i in range(1, 9))
    assert "since" in refusal(tmp_path, log, "number_repeats = true\n")
    runs = head + "".join(f"x,k,1000,{t},3\n" for t in (1.01, 1.03, 1.02, 1.04, 1.05, 1.06, 1.07))
    assert len(read(tmp_path, runs, "number_repeats = true\n")) == 7


def test_hdf5_and_numbers_with_units_get_a_remedy_that_works(tmp_path) -> None:
    said = refusal(tmp_path, b"\x89HDF\r\n\x1a\n" + bytes(64), name="t.h5")
    assert "HDF5" in said and "iconv" not in said
    table = "site,kernel,core_mhz,time_s,power_w\nx,k,1000,3.5,60.50 W\n"
    said = refusal(tmp_path, table)
    assert 'power_w = { column = "power_w", unit = "as written" }' in said
    mapping = '[columns]\npower_w = { column = "power_w", unit = "as written" }\n'
    assert read(tmp_path, table, mapping)["energy_j"].tolist() == [60.5 * 3.5]


def test_a_report_of_geopm_counts_the_energy_of_gpus(tmp_path) -> None:
    text = (FILES / "geopm_report.yaml").read_text()
    gpu = "dram-energy (J): 101.25\n      gpu-energy (J): 4000.5"
    (tmp_path / "r.yaml").write_text(text.replace("dram-energy (J): 101.25", gpu))
    assert costs(taken(tmp_path, tmp_path / "r.yaml")) == [[8.4, 6227.25], [4.2, 950.0]]


def test_a_report_of_geopm_gives_its_regions_and_no_totals(tmp_path) -> None:
    """A report by the documentation: the tool is in no registry."""
    frame = taken(tmp_path, FILES / "geopm_report.yaml")
    assert frame["kernel"].tolist() == ["dgemm", "stream"] and set(frame["node"]) == {"node01"}
    assert costs(frame) == [[8.4, 2226.75], [4.2, 950.0]]
    report = yaml.safe_load((FILES / "geopm_report.yaml").read_text())
    for region, time_s in zip(report["Hosts"]["node01"]["Regions"], frame["time_s"], strict=True):
        assert region["power (W)"] == pytest.approx(region["package-energy (J)"] / time_s, rel=1e-6)
    assert frame["core_mhz_achieved"].tolist() == [2195, 2100]


def test_a_region_that_geopm_never_sampled_is_left_out(tmp_path, capsys) -> None:
    text = (FILES / "geopm_report.yaml").read_text()
    (tmp_path / "r.yaml").write_text(text.replace("sync-runtime (s): 8.4", "sync-runtime (s): 0"))
    frame = taken(tmp_path, tmp_path / "r.yaml")
    assert frame["kernel"].tolist() == ["stream"] and costs(frame) == [[4.2, 950.0]]
    assert "regions: 1" in "".join(capsys.readouterr())


@pytest.mark.parametrize("form", [["--extra-p", "F"], ["--kernel-tuner", "F", "--kernel", "k"]])
def test_measurements_of_two_sites_are_not_exported_as_one_machine_s(tmp_path, form):
    lines = ["site,kernel,core_mhz,time_s,energy_j"]
    lines += [f"{site},k,{mhz},1,{j}" for site, j in (("a", 1), ("b", 2)) for mhz in (800, 900)]
    store, out = str(store_of_table(tmp_path, lines)), tmp_path / "out"
    words = [str(out) if word == "F" else word for word in form]
    assert "--site: name one of a, b" in refuses("export", store, *words)
    assert main(["export", store, *words, "--site", "b"]) == 0
    energies = re.findall(r'"value": ([12]\.0)\b', out.read_text())
    assert energies == ["2.0", "2.0"]
