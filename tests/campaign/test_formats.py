"""Files of other tools, as they made them (tests/other_tools), against Python's own readers."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.table.checking import checked_rows
from campaign.table.formats import FORMATS, HEAD_BYTES, recognised
from campaign.table.formats.kernel_tuner import kernel_tuner_results
from campaign.table.importing import import_table
from campaign.table.map_file import TableMap
from campaign.table.reading import read_table
from campaign.verbs.command_line import main
from dvfs.input_files import FileError
from tests.campaign.test_map_file import read, refusal
from tests.campaign.test_table import ROOT, imported

FILES = ROOT / "tests/data/other_tools"
MADE_BY = {
    "codecarbon_load.csv": "codecarbon",
    "codecarbon_rapl.csv": "codecarbon",
    "geopm_report.yaml": "geopm",
    "likwid_regions.csv": "likwid",
    "likwid_run.csv": "likwid",
    "perf.csv": "perf-stat",
    "perf.json": "perf-stat",
    "perf.txt": "perf-stat",
    "perf_intervals.csv": "perf-stat",
    "perf_runs.txt": "perf-stat",
    "reframe_stream.log": "reframe",
    "sacct.txt": "sacct",
    "zeus_limits.json": "zeus",
    "zeus_windows.csv": "zeus",
}


def taken(folder: Path, file: Path, *words: str) -> pd.DataFrame:
    """The file's measurements, in its order, as ``campaign import`` puts them into a store."""
    store = folder / "s"
    assert main(["import", str(file), "--store", str(store), "--site", "x", *words]) == 0
    frame = imported(store)
    lines = [json.loads(text)["line"] for text in frame["provenance"]]
    return frame.iloc[np.argsort(lines, kind="stable")].reset_index(drop=True)


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
def test_a_wrong_argument_is_refused_before_anything_is_made(tmp_path, words, capsys) -> None:
    command = ["import", str(FILES / "perf.csv"), "--store", str(tmp_path / "s"), "--site", "x"]
    assert main([*command, *words]) == 2
    assert words[0] in capsys.readouterr().err
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


def test_estimated_energies_are_refused_by_fit_until_they_are_accepted(tmp_path, capsys) -> None:
    rows = [
        ["x", f"k{k}", mhz, time_s, (2 + 0.01 * mhz + k) * time_s, "TDP"]
        for k in range(4)
        for mhz in (800, 1000, 1200, 1400, 1600)
        for time_s in [(3 + k) * 800 / mhz]
    ]
    header = ["site", "kernel", "core_mhz", "time_s", "energy_j", "estimated"]
    table, store = tmp_path / "t.csv", str(tmp_path / "s")
    pd.DataFrame(rows, columns=header).to_csv(table, index=False)
    assert main(["import", str(table), "--store", store]) == 0
    assert main(["fit", store, "--site", "x"]) == 2
    assert "20 of 20 rows are estimated, not measured (TDP)" in capsys.readouterr().err
    assert main(["fit", store, "--site", "x", "--accept-unproven"]) == 0
    assert "energies estimated, not measured" in " ".join(capsys.readouterr().out.split())
    assert main(["predict", store, "--site", "x"]) == 0
    assert "energies estimated, not measured" in " ".join(capsys.readouterr().out.split())
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
def test_powers_that_no_meter_gives_are_estimates(tmp_path, power_w, is_estimate, capsys) -> None:
    rows = []
    for i in range(12):
        load, time_s = 0.1 + 0.07 * i, 2.0 + 0.3 * i
        rows.append(["x", f"k{i}", 1000, time_s, power_w(i, load) * time_s, load])
    header = ["site", "kernel", "core_mhz", "time_s", "energy_j", "cpu_load"]
    pd.DataFrame(rows, columns=header).to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "m.toml").write_text('unknown = "label"\n')
    words = ["import", str(tmp_path / "t.csv"), "--map", str(tmp_path / "m.toml")]
    assert main([*words, "--store", str(tmp_path / "s"), "--json"]) == 0
    checks = [one["check"] for one in json.loads(capsys.readouterr().out)["findings"]]
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


# -- out -----------------------------------------------------------------------------------------

NUMBERS = st.floats(1e-6, 1e6) | st.integers(1, 10**9)
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
        st.sampled_from(["correct", "compile", "runtime", "constraints"]),
        st.floats(1e-3, 1e5),
        st.floats(0.1, 400),
        st.dictionaries(st.sampled_from(["GFLOP/s", "temperature", "ps_energy"]), NUMBERS),
        st.lists(NUMBERS, max_size=3),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda one: (one[0]["bx"], one[0]["layout"]),
)


@given(RESULTS)
def test_kernel_tuners_results_go_in_and_out_whole(tmp_path_factory, results) -> None:
    """T4 as Kernel Tuner 1.5 writes it."""
    folder = tmp_path_factory.mktemp("t4")
    timings = {"compilation": 1.5, "benchmark": 2.5, "framework": 3, "search_algorithm": 0.0}
    theirs = [
        {
            "timestamp": "2026-11-27 18:02:19+00:00",
            "configuration": params,
            "times": timings | {"validation": 0, "runtimes": times},
            "invalidity": why,
            "correctness": 1,
            "measurements": [
                {"name": name, "value": value, "unit": "ms" if name == "time" else ""}
                for name, value in (more | {"time": time, "nvml_power": power}).items()
            ]
            if why == "correct"
            else [{"name": "__error__", "value": "", "unit": ""}],
            "objectives": ["time"],
        }
        for params, why, time, power, more, times in results
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
    pd.DataFrame(rows, columns=header).to_csv(tmp_path / "t.csv", index=False)
    assert main(["import", str(tmp_path / "t.csv"), "--store", str(tmp_path / "s")]) == 0
    out = tmp_path / "o.jsonl"
    words = ["export", str(tmp_path / "s"), "--extra-p", str(out), "--metric", "power_w"]
    assert main(words) == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    points = {(one["params"]["n"], one["params"]["inverse_core_mhz"]) for one in lines}
    assert points == {(n, 1 / mhz) for n in (64, 128) for mhz in (800, 1600)}
    assert {one["callpath"] for one in lines} == {"k kind=a"}
    assert {one["metric"] for one in lines} == {"power_w"}
    assert [one["value"] for one in lines] == pytest.approx([3.0] * 4)


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


def test_a_report_of_geopm_gives_its_regions_and_no_totals(tmp_path) -> None:
    """A report by the documentation: the tool is in no registry."""
    frame = taken(tmp_path, FILES / "geopm_report.yaml")
    assert frame["kernel"].tolist() == ["dgemm", "stream"] and set(frame["node"]) == {"node01"}
    assert costs(frame) == [[8.5, 2226.75], [4.25, 950.0]]
    assert frame["core_mhz_achieved"].tolist() == [2195, 2100]
