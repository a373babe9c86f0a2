"""Import: what it says of the data, the points' ids, and what a kill leaves behind."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.plan.point import Point, point_ids
from campaign.store.layout import open_store
from campaign.store.site_record import read_site_record
from campaign.verbs.command_line import main
from dvfs.setting import AXES, Setting
from tests.campaign.test_table import HEADER, ROOT, ROWS, write
from tests.commands import answers, prints, refuses, run
from tests.stores import measurements_of, store_of_table

BOTH = HEADER.replace("n_sp", "power_w")


def test_energy_that_is_not_power_times_time_is_named_and_kept(tmp_path):
    rows = ["a,k,1000,500,0.9,1.0,1.5,3.0,2.0", "a,k,2000,500,1.1,1.0,1.0,2.5,2.6"]
    path, store = write(tmp_path, BOTH, rows), tmp_path / "s"
    said = prints("import", path, "--store", store)
    assert "table.csv:3: energy_j is 2.5 J, but power_w x time_s is 2.6 J" in said
    assert "table.csv:2" not in said
    assert "a: warning: energy: in 1 rows energy is not power times time" in said
    assert "k at 2000/500 MHz" in said
    assert sorted(measurements_of(store)["energy_j"]) == [2.5, 3.0]
    out = tmp_path / "out.csv"
    main(["export", str(store), "--csv", str(out)])
    assert sorted(pd.read_csv(out)["power_w"]) == [2.0, 2.6]
    again = tmp_path / "again"
    printed = answers("import", out, "--store", again)
    assert len(printed["disagreements"]) == 1
    assert [f["check"] for f in printed["findings"]] == ["energy"]
    frame = measurements_of(again)
    expected = frame.loc[frame["core_mhz"] == 2000, "point_id"].tolist()
    assert printed["findings"][0]["point_ids"] == expected


def test_energy_and_power_within_a_percent_are_not_flagged(tmp_path):
    rows = ["a,k,1000,500,0.9,1.0,1.5,3.0,2.019", "a,k,2000,500,1.1,1.0,1.0,2.5,"]
    assert prints("import", write(tmp_path, BOTH, rows), "--store", tmp_path / "s").count("\n") == 1


def test_a_sweep_over_power_caps_is_imported_and_called_not_fit_for_fitting(tmp_path):
    rows = [
        f'a,k{k},"{{""power_limit"": {cap}}}",1200,{10 / cap},{9.0 + k}'
        for k in range(3)
        for cap in (100, 150, 200, 250)
    ]
    path = write(tmp_path, "site,kernel,params,core_mhz,time_s,energy_j\n", rows)
    said = prints("import", path, "--store", tmp_path / "s")
    assert "a: cannot be used for a fit: power caps: power_limit was swept" in said
    assert said.splitlines()[-1].endswith("12 measurements imported from " + str(path))
    assert len(measurements_of(tmp_path / "s")) == 12


def test_the_first_wrong_row_of_each_column_is_named_and_the_others_are_counted(tmp_path):
    rows = [ROWS[0].replace("1000", f"{1000 + i}") for i in range(14)]
    for i in range(1, 13):
        rows[i] = rows[i].replace("1.5", "-1").replace("3.0", "")
    rows[5] = rows[0]
    path = write(tmp_path, rows=rows)
    lines = refuses("import", path, "--store", tmp_path / "s").splitlines()
    assert len(lines) == 3
    named = {line.partition("table.csv:3: ")[2].partition(":")[0] for line in lines[:2]}
    assert named == {"time_s", "energy_j"}
    assert all("10 further rows" in line for line in lines[:2])
    assert "table.csv:7: the same point as line 2" in lines[2]


def test_the_lines_of_the_file_are_those_named(tmp_path):
    text = (
        HEADER + '# a comment\n\n"a",k,1000,500,0.9,1.0,1.5,3.0,1e9\n' + "a,k,2000,500,1,1,x,1,1\n"
    )
    (tmp_path / "t.csv").write_text(text)
    assert "t.csv:5: time_s: found 'x'; must be a number" in refuses(
        "import", tmp_path / "t.csv", "--store", tmp_path / "s"
    )


CONTENT = st.fixed_dictionaries(
    {
        "site": st.text(max_size=9),
        "partition": st.sampled_from(["gpu", 'a"b', "ü%s"]),
        "kernel": st.just("import"),
        "label": st.text(max_size=9),
        "params": st.sampled_from(["{}", '{"n":3}']),
        "ranks": st.just(1),
        "core_mhz": st.none() | st.floats(1, 1e4),
        "mem_mhz": st.none() | st.floats(1, 1e4),
        "uncore_mhz": st.none() | st.floats(1, 1e4),
        "power_limit_w": st.none() | st.floats(1, 1e3),
        "profile": st.none() | st.sampled_from(["powersave", "a"]),
        "repeat": st.integers(0, 9),
    }
)


@given(st.lists(CONTENT, min_size=1, max_size=5))
def test_ids_by_column_are_the_ids_of_the_points(contents):
    rows = np.arange(len(contents))
    columns = {name: (rows, [content[name] for content in contents]) for name in contents[0]}
    expected = [
        Point(
            **{n: v for n, v in content.items() if n not in AXES},
            setting=Setting(**{name: content[name] for name in AXES}),
        ).id
        for content in contents
    ]
    assert point_ids(columns).astype(str).tolist() == expected


def test_the_id_of_an_imported_point_never_changes(tmp_path):
    """As the first version of import made it: stores hold it."""
    main(["import", str(write(tmp_path)), "--store", str(tmp_path / "s")])
    assert sorted(measurements_of(tmp_path / "s")["point_id"]) == GOLDEN_IDS


GOLDEN_IDS = ["3e62d54239a93f70f15693e3", "e8ccccfb39bb5eac86e4f63d"]
KILLED = """
import os, signal, sys, time
from pathlib import Path
from campaign.store.layout import open_store
from campaign.table.checking import checked_rows
from campaign.table.importing import import_rows
from campaign.table.map_file import read_map
from campaign.table.reading import read_table
mapping = read_map(None)
checked = checked_rows(read_table(Path(sys.argv[1]), mapping), mapping)
for k, store in enumerate(sys.argv[2:]):
    child = os.fork()
    if not child:
        import_rows(checked, open_store(Path(store)), mapping)
        os._exit(0)
    time.sleep(0.15 * k)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


def test_an_import_killed_at_any_moment_leaves_the_old_state_or_the_new(tmp_path):
    first = write(tmp_path)
    second = tmp_path / "second.csv"
    second.write_text(HEADER + "\n".join(f"b,k{i},1000,500,1,1,1.5,3.0,1e9" for i in range(500)))
    store = tmp_path / "s"
    assert main(["import", str(first), "--store", str(store)]) == 0
    victims = [shutil.copytree(store, tmp_path / f"victim-{k}") for k in range(3)]
    command = [sys.executable, "-c", KILLED, str(second), *map(str, victims)]
    subprocess.run(command, cwd=ROOT, check=True)
    for victim in victims:
        assert len(measurements_of(victim)) in (2, 502)
        assert main(["import", str(second), "--store", str(victim)]) == 0
        ids = measurements_of(victim)["point_id"]
        assert len(ids) == ids.nunique() == 502


def test_a_folder_that_is_no_crate_is_refused_by_its_name(tmp_path):
    (tmp_path / "folder").mkdir()
    words = ["import", str(tmp_path / "folder"), "--store", str(tmp_path / "store")]
    assert refuses(*words).startswith(f"campaign: {tmp_path / 'folder'}: ")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("first", ["1980,,1", "1980,2619,1"], ids=["as found", "set"])
def test_a_table_with_memory_clocks_is_of_a_gpu_whichever_row_is_first(
    tmp_path: Path, first: str
) -> None:
    """Slurm sets its clocks by other options than those of a CPU."""
    rows = ["1980,,1", "1980,2619,1", "1500,2619,1.1", "1500,1593,1.2"]
    rows.remove(first)
    lines = ["site,kernel,core_mhz,mem_mhz,time_s,energy_j"]
    lines += [f"gpu,a,{row},300" for row in (first, *rows)]
    store = open_store(store_of_table(tmp_path, lines))
    assert read_site_record(store, "gpu").device == "gpu"


def test_a_site_of_core_clocks_that_gets_memory_clocks_may_be_a_gpu(tmp_path: Path) -> None:
    """The store has it as a CPU, whose clocks Slurm sets by other options."""
    store, map_file = tmp_path / "s", tmp_path / "m.toml"
    tables = [tmp_path / "core.csv", tmp_path / "both.csv"]
    tables[0].write_text("site,kernel,core_mhz,time_s,energy_j\nx,a,500,2,30\nx,a,1000,1,25\n")
    tables[1].write_text(
        "site,kernel,core_mhz,mem_mhz,time_s,energy_j\nx,b,500,800,2,30\nx,b,1000,800,1,25\n"
    )
    map_file.write_text('device = "gpu"\n')
    said = ["".join(run("import", table, "--store", store)[1:]) for table in tables]
    assert ['device = "gpu"' in text for text in said] == [False, True]
    assert read_site_record(open_store(store), "x").device == "cpu"
    again = "".join(run("import", tables[1], "--map", map_file, "--store", store)[1:])
    assert 'device = "gpu"' not in again
    assert read_site_record(open_store(store), "x").device == "gpu"


def test_a_row_may_set_a_limit_or_a_profile_alone(tmp_path: Path) -> None:
    rows = ["1000,,,1", "1400,,,0.8", ",100,,0.9", ",,eco,1.2"]
    lines = ["site,kernel,core_mhz,power_limit_w,profile,time_s,energy_j"]
    frame = measurements_of(store_of_table(tmp_path, lines + [f"s,a,{row},100" for row in rows]))
    measured = {Setting.of_row(row): row["time_s"] for row in frame.to_dict("records")}
    assert measured == {
        Setting(1000.0): 1.0,
        Setting(1400.0): 0.8,
        Setting(power_limit_w=100.0): 0.9,
        Setting(profile="eco"): 1.2,
    }


def test_a_map_counts_for_a_site_that_the_store_has(tmp_path):
    store = tmp_path / "s"

    def imports(rows, mapping=""):
        (tmp_path / "m.toml").write_text(mapping)
        words = ["import", str(write(tmp_path, rows=rows)), "--map", str(tmp_path / "m.toml")]
        assert main([*words, "--store", str(store)]) == 0
        return read_site_record(open_store(store), "a")

    imports(ROWS, "legal = [[1000, 500], [2000, 500]]\n[voltage]\ncore = [[2000, 0.8]]\n")
    second = 'device = "cpu"\nlegal = [[2000, 500], [3000, 500]]\n[classes]\nsp = "mem"\n'
    record = imports(["a,k,3000,500,1.2,1.0,1.5,3.0,1e9"], second)
    assert (record.classes, record.device) == ({"sp": "mem"}, "cpu")
    assert record.legal == {Setting(2000.0, 500.0): (0.8, 1.0), Setting(3000.0, 500.0): (1.2, 1.0)}
    assert imports(ROWS, "missing = ['-']\n") == record
    # An export of this store, imported into one that has the site, brings the record with it.
    other, out = tmp_path / "other", tmp_path / "out.csv"
    assert main(["export", str(store), "--csv", str(out)]) == 0
    assert main(["import", str(write(tmp_path)), "--store", str(other)]) == 0
    assert main(["import", str(out), "--store", str(other)]) == 0
    brought = read_site_record(open_store(other), "a")
    assert (brought.classes, brought.legal) == (record.classes, record.legal)
