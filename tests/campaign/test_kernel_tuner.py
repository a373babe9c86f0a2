"""Import of Kernel Tuner's cache files, against the files as Python's json reads them."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import pandas as pd
import pytest

from campaign.plan.point import canonical_json
from campaign.results import open_store as open_results
from campaign.table.formats.kernel_tuner import read_json_records
from campaign.verbs.command_line import main
from tests.campaign.test_map_file import read, refusal
from tests.campaign.test_table import ROOT
from tests.commands import prints, refuses
from tests.stores import measurements_of, store_of_table

CACHE = ROOT / "tests/data/kernel_tuner/convolution_a100.json.gz"
MAP = ROOT / "examples/kernel-tuner.map.toml"
TIMES = 'layout = "kernel-tuner"\nunknown = "label"\n[constants]\nsite = "a"\n[columns]\n'
TIMES += 'time_s = { column = "time", factor = 1e-3 }\n'
HEAD = {
    "device_name": "a device",
    "kernel_name": "conv",
    "problem_size": [64],
    "tune_params_keys": ["bx", "layout"],
    "tune_params": {"bx": [16, 32], "layout": ["a,b", "c"]},
    "objective": "time",
}
RECORDS = [
    {"bx": 16, "layout": "a,b", "time": 3.5, "GFLOP/s": 2.0},
    {"bx": 16, "layout": "c", "time": "CompilationFailedConfig"},
    {"bx": 32, "layout": "a,b", "time": 2.25, "GFLOP/s": 4.0},
]


def cache(*records: dict[str, object], **head: object) -> str:
    """As Kernel Tuner writes it: the head without its last three characters, then lines."""
    begin = json.dumps(HEAD | head | {"cache": {}}, indent="")[:-3]
    lines = (json.dumps({str(list(r.values())): r})[1:-1] for r in records or RECORDS)
    return begin + ",".join("\n" + line for line in lines) + "}\n}"


def a_record(**fields: object) -> dict[str, object]:
    return {"bx": 16, "layout": "c", "time": 1.0} | fields


def test_every_record_of_a_real_cache_comes_in_and_goes_out(tmp_path):
    store, text = tmp_path / "s", gzip.decompress(CACHE.read_bytes()).decode()
    wanted = json.loads(text)
    command = ["import", str(CACHE), "--map", str(MAP), "--store", str(store), "--site", "a100"]
    said = " ".join(prints(*command).split())
    assert "no energy was measured, only times" in said
    assert "no clock is given: its variants were measured at unchanged clocks" in said
    assert f"63 measurements, 9 of them failed, imported from {CACHE}" in said
    frame = measurements_of(store).set_index("params")
    assert len(frame) == len(wanted["cache"]) == 63
    assert set(frame["site"]) == {"a100"} and set(frame["kernel"]) == {"convolution_kernel"}
    assert frame[["energy_j", "core_mhz", "mem_mhz"]].isna().all(axis=None)
    assert set(frame["clock_proof"]) == {""}
    for record in wanted["cache"].values():
        row = frame.loc[canonical_json({n: record[n] for n in wanted["tune_params_keys"]})]
        if isinstance(record["time"], str):
            assert (row["status"], row["text"]) == ("kernel failed", record["time"])
            assert math.isnan(row["time_s"])
        else:
            assert (row["status"], row["text"], row["time_s"]) == ("ok", "", record["time"] * 1e-3)
        provenance = json.loads(row["provenance"])
        assert provenance["labels"]["device_name"] == "NVIDIA A100-PCIE-40GB"
        assert json.loads(provenance["labels"]["problem_size"]) == [4096, 4096]
        assert json.loads(provenance["labels"].get("times", "0")) == record.get("times", 0)
        assert record["timestamp"] in text.splitlines()[row["table_line"] - 1]

    assert "54 of 63 points done, 9 failed, 0 left" in prints("status", store)
    said = refuses("fit", store, "--site", "a100")
    assert said.count("\n") == 1
    assert "the imported table has their times, and no energy or power" in said

    first, second = tmp_path / "1.csv", tmp_path / "2.csv"
    assert main(["export", str(store), "--csv", str(first)]) == 0
    assert main(["import", str(first), "--store", str(tmp_path / "t")]) == 0
    assert main(["export", str(tmp_path / "t"), "--csv", str(second)]) == 0
    assert first.read_bytes() == second.read_bytes()
    names = ["point_id"]
    again = measurements_of(tmp_path / "t").sort_values(names, ignore_index=True)
    frame = frame.reset_index().sort_values(names, ignore_index=True)
    pd.testing.assert_frame_equal(again, frame[again.columns])


def test_a_file_that_is_still_written_gives_its_complete_records(tmp_path):
    """Cut anywhere, it is read up to the last record whose closing brace stands."""
    text = cache()
    ends = [text.index("}", text.index(json.dumps(r)[1:-1])) for r in RECORDS]
    for size in range(text.index('"cache"'), len(text)):
        cut = read_json_records(tmp_path, text[:size], "cache")
        assert cut is not None
        assert cut.records == RECORDS[: sum(end < size for end in ends)], text[:size]
        assert cut.notes
    whole = read_json_records(tmp_path, text, "cache")
    assert whole is not None and whole.records == RECORDS and not whole.notes


def test_old_and_new_versions_and_forms_of_a_file_are_read_alike(tmp_path):
    expected = read(tmp_path, cache(), TIMES)
    assert expected["time_s"].tolist()[::2] == [3.5 * 1e-3, 2.25 * 1e-3]
    assert json.loads(expected["params"][0]) == {"bx": 16, "layout": "a,b"}
    columns = ["point_id", "time_s", "status", "text"]
    texts = [cache(schema_version=version) for version in ("1.0.0", "1.1.0")]
    texts += [json.dumps(json.loads(cache())), cache()[:-3] + ",", cache()[:-3] + "\n"]
    for text in texts:
        frame = read(tmp_path, text, TIMES)
        pd.testing.assert_frame_equal(frame[columns], expected[columns])


def test_clocks_and_power_are_taken_from_the_fields_that_the_map_names(tmp_path):
    keys = ["bx", "nvml_gr_clock", "nvml_pwr_limit"]
    records = [
        {
            "bx": 8,
            "nvml_gr_clock": mhz,
            "nvml_pwr_limit": 250,
            "core_freq": read_mhz,
            "time": 250.0,
            "nvml_power": power_w,
        }
        for mhz, read_mhz, power_w in (
            (1410, 1410.0, 100.0),
            (1005, 1000.0, 60.0),
            (600, 600, None),
        )
    ]
    mapping = TIMES + 'core_mhz = "nvml_gr_clock"\ncore_mhz_achieved = "core_freq"\n'
    mapping += 'power_w = "nvml_power"\nkernel = { join = ["kernel_name", "device_name"] }\n'
    frame = read(tmp_path, cache(*records, tune_params_keys=keys), mapping)
    assert frame["core_mhz"].tolist() == [1410, 1005, 600]
    assert set(frame["power_limit_w"]) == {250.0}
    assert frame["core_mhz_achieved"].tolist() == [1410, 1000, 600]
    assert frame["energy_j"].tolist()[:2] == [25.0, 15.0] and math.isnan(frame["energy_j"][2])
    assert set(frame["params"]) == {'{"bx":8}'} and set(frame["kernel"]) == {"conv a device"}
    assert set(frame["status"]) == {"ok"} and set(frame["clock_proof"]) == {"read back"}
    fixed = TIMES.replace("[columns]", "core_mhz = 1410\n[columns]")
    frame = read(tmp_path, cache(), fixed)
    assert set(frame["core_mhz"]) == {1410.0} and set(frame["clock_proof"]) == {"stated"}


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"time": "InvalidConfig"}, "InvalidConfig"),
        ({"time": math.nan}, "time is nan"),
        ({"time": None}, "time is missing"),
        ({"time": 1e20}, "time is 1e+20"),
        ({"time": math.inf, "energy": "RuntimeFailedConfig"}, "RuntimeFailedConfig"),
    ],
)
def test_a_variant_without_a_time_is_a_failure_with_its_reason(tmp_path, record, reason):
    mapping = TIMES + 'energy_j = "energy"\n'
    text = cache(a_record(**record), a_record(bx=8, energy=3.0), objective="energy")
    frame = read(tmp_path, text, mapping)
    assert frame["status"].tolist() == ["kernel failed", "ok"]
    assert frame["text"].tolist() == [reason, ""]
    assert frame["time_s"].isna().tolist() == frame["energy_j"].isna().tolist() == [True, False]


@pytest.mark.parametrize(
    ("text", "mapping", "words"),
    [
        (
            "[1]",
            TIMES,
            "t.csv: is not a file of Kernel Tuner: it is no JSON object; name one",
        ),
        ('{"cache": {}}', TIMES, "it has no 'kernel_name'"),
        (
            '{"results": []}',
            TIMES,
            "t.csv: does not name its kernel; give kernel under [constants]",
        ),
        ('{"results": []}', TIMES.replace("[columns]", 'kernel="k"\n[columns]'), "has no records"),
        (
            '{"results": [\n{"configuration": 3}]}',
            TIMES.replace("[columns]", 'kernel="k"\n[columns]'),
            "t.csv:2: is a result without its configuration",
        ),
        (cache(tune_params_keys="bx"), TIMES, "'tune_params_keys' is no list of names"),
        (cache()[: cache().index("\n", cache().index('"cache"'))], TIMES, "t.csv: has no records"),
        (cache({"bx": 8, "time": 1}), TIMES, ":23: a record without the parameter 'layout', which"),
        (cache(a_record(), a_record(time=2)), TIMES, ":24: the same point as line 23"),
        (cache(a_record(time=0)), TIMES, "t.csv:23: time_s: found 0; must be above 0"),
        (cache(a_record(status=1)), TIMES, "several columns 'status'; rename"),
        (cache().replace("},\n", "}\n", 1), TIMES, "t.csv:21: has no comma before it; correct"),
        (cache().replace('"time": 3', '"time" 3'), TIMES, "t.csv:23: is not JSON (Expecting ':'"),
        (cache() + "}", TIMES, "t.csv:26: has text after the end of the object"),
        (cache(), "", "is JSON, and no table; give --from kernel-tuner"),
        (
            cache(),
            TIMES.replace("label", "refuse"),
            "unknown columns 'device_name', 'problem_size', 'objective'",
        ),
        (cache(), 'fields = ["a"]\n' + TIMES, "fields with layout kernel-tuner, whose file names"),
    ],
)
def test_what_is_wrong_in_a_cache_is_named_with_its_line(tmp_path, text, mapping, words):
    assert words in refusal(tmp_path, text, mapping)


ENERGIES = TIMES + 'power_w = "nvml_power"\n'
VERSION_1_5 = ROOT / "tests/data/kernel_tuner/version_1.5_cache.json"


@pytest.mark.parametrize("name", ["version_1.5_cache.json", "version_1.5_results.json"])
def test_the_files_of_version_1_5_keep_why_a_variant_failed_and_that_no_power_was_read(
    tmp_path, name
):
    """Both files of one run, against its cache as Python's json reads it."""
    path = VERSION_1_5.with_name(name)
    mapping = ENERGIES.replace("[columns]", 'kernel = "add"\n[columns]')
    frame = read(tmp_path, path.read_text(), mapping).set_index("params")
    words = {"RuntimeFailedConfig": "runtime", "CompilationFailedConfig": "compile"}
    for record in json.loads(VERSION_1_5.read_text())["cache"].values():
        params = {n: record[n] for n in ("variant", "repeat", "block_size_x")}
        row = frame.loc[canonical_json(params)]
        if error := record.get("__error__"):
            assert row["status"] == "kernel failed" and math.isnan(row["time_s"])
            assert row["text"] == (error if "cache" in name else words[error])
            continue
        assert (row["status"], row["time_s"]) == ("ok", record["time"] * 1e-3)
        if record["nvml_power"]:
            assert row["energy_j"] == pytest.approx(60.5e-3 * record["time"])
        else:
            assert math.isnan(row["energy_j"])
    assert len(frame) == 6


@pytest.mark.parametrize(
    ("name", "unit", "usual"),
    [
        ("time", "s", "ms"),
        ("nvml_energy", "mJ", "J"),
        ("nvml_power", "mW", "W"),
        ("core_freq", "Hz", "MHz"),
    ],
)
def test_a_measurement_in_another_unit_than_kernel_tuners_is_refused(tmp_path, name, unit, usual):
    """Unless the map gives its unit: then it is that."""
    units = {"time": "ms", "nvml_energy": "J"} | {name: unit}
    measured = [{"name": of, "value": 5, "unit": its} for of, its in units.items()]
    result = {"configuration": {"bx": 16}, "measurements": measured}
    text = json.dumps({"results": [result]})
    mapping = 'layout = "kernel-tuner"\n[constants]\nsite = "a"\nkernel = "k"\n[columns]\n'
    words = f"t.csv:1: its {name} is in {unit!r}; change it to {usual}, which"
    assert words in refusal(tmp_path, text, mapping)
    if unit == "mJ":
        named = mapping + 'energy_j = { column = "nvml_energy", unit = "mJ" }\n'
        assert read(tmp_path, text, named)["energy_j"].tolist() == [0.005]


def test_variants_that_stand_twice_are_repeats_where_the_map_says_so(tmp_path):
    text = cache(a_record(), a_record(time=2))
    frame = read(tmp_path, text, "number_repeats = true\n" + TIMES)
    assert frame["repeat"].tolist() == [0, 1]


def test_the_site_on_the_command_line_is_refused_beside_a_column_of_sites(tmp_path):
    (tmp_path / "t.csv").write_text("site,kernel,core_mhz,time_s,energy_j\na,k,1000,1.5,3\n")
    command = ["import", str(tmp_path / "t.csv"), "--store", str(tmp_path / "s"), "--site"]
    assert "t.csv: has a column site; leave out --site" in refuses(*command, "b")
    assert main([*command, "a"]) == 0


def test_exported_uncore_clocks_and_profiles_stay_apart(tmp_path: Path) -> None:
    """Kernel Tuner has no name for either: the clock comes back, the profile as a parameter."""
    lines = [
        "site,kernel,params,core_mhz,uncore_mhz,profile,time_s,energy_j",
        's,kk,"{""n"": 1}",1000,1200,powersave,1,100',
        's,kk,"{""n"": 1}",1000,2400,powersave,0.5,80',
        's,kk,"{""n"": 1}",1000,2400,performance,0.4,85',
    ]
    store, again, file = store_of_table(tmp_path, lines), tmp_path / "again", tmp_path / "t4.json"
    assert main(["export", str(store), "--kernel-tuner", str(file), "--kernel", "kk"]) == 0
    set_kernel = ["--site", "s", "--set", "kernel=kk"]
    assert main(["import", str(file), "--store", str(again), *set_kernel]) == 0
    measured = open_results(again).scalars
    assert sorted(
        zip(
            measured["uncore_mhz"].values.tolist(),
            (json.loads(text)["profile"] for text in measured["params"].values),
            measured["time_s"].values.tolist(),
            strict=True,
        )
    ) == [(1200.0, "powersave", 1.0), (2400.0, "performance", 0.4), (2400.0, "powersave", 0.5)]


def test_exported_repeats_are_one_result(tmp_path: Path) -> None:
    """As Kernel Tuner has them: a configuration once, with all its run times and their mean."""
    lines = [
        "site,kernel,params,core_mhz,repeat,time_s,energy_j",
        's,kk,"{""n"": 1}",1000,0,1,100',
        's,kk,"{""n"": 1}",1000,1,2,110',
        's,kk,"{""n"": 1}",1200,0,0.5,80',
    ]
    store, again, file = store_of_table(tmp_path, lines), tmp_path / "again", tmp_path / "t4.json"
    assert main(["export", str(store), "--kernel-tuner", str(file)]) == 0
    assert [one["times"]["runtimes"] for one in json.loads(file.read_text())["results"]] == [
        [1000.0, 2000.0],
        [],
    ]
    set_kernel = ["--site", "s", "--set", "kernel=kk"]
    assert main(["import", str(file), "--store", str(again), *set_kernel]) == 0
    measured = open_results(again).scalars
    assert measured["core_mhz"].values.tolist() == [1000.0, 1200.0]
    assert measured["time_s"].values.tolist() == [1.5, 0.5]
    assert measured["energy_j"].values.tolist() == [105.0, 80.0]
