"""Files from elsewhere: read, or refused with a clear message, and soon."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaign.table.checking import checked_rows
from campaign.table.map_file import TableMap
from campaign.table.reading import read_table
from dvfs.input_files import FileError, FileModel, Source, parse
from kernels.command import CommandParams, read_counts
from kernels.kernel import KernelError
from sites.meters.ipmi import parse_watts
from sites.meters.shared.meter import MeterError
from tests.campaign.test_map_file import read, refusal
from tests.faults.fuzz import trial
from tests.faults.fuzz.damage import Changes, Files
from tests.faults.fuzz.known_cases import many_rows
from tests.faults.fuzz.right_files import IPMI, TABLE, files_in
from tests.faults.fuzz.target import Target, make_changes
from tests.faults.fuzz.targets import TARGETS
from tests.faults.fuzz.trial import TargetResult, run_target

ROOT = Path(__file__).parents[2]
HEADER = "site,kernel,core_mhz,time_s,energy_j"
ROW = "a,k,1000,1.5,3.0"


# -- the fuzzer itself ---------------------------------------------------------------------------


def test_no_damaged_file_ends_in_anything_but_a_clear_refusal(tmp_path):
    """A seed of its own, so that the long run and this one do not try the same inputs."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.faults.fuzz", "--inputs", "500", "--seed", "1"),
            *("--short", "--json", str(tmp_path / "found.json")),
        ],
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "found.json").read_text())
    assert {target["target"] for target in result["targets"]} == {target.name for target in TARGETS}
    assert sum(target["inputs"] for target in result["targets"]) >= 500
    for target in result["targets"]:
        # Were all refused, nothing behind the first check would be tried.
        assert target["accepted"] > 0, target["target"]


def test_an_input_follows_from_its_number_the_seed_and_the_target():
    target = next(known for known in TARGETS if known.name == "table-csv")
    files = {"table.csv": TABLE.encode()}

    def inputs(seed: int) -> list[Changes]:
        return [make_changes(target, files, {}, seed, index) for index in range(30)]

    random.seed(1)
    first = inputs(0)
    random.seed(2)
    assert inputs(0) == first
    assert sum(a != b for a, b in zip(inputs(1), first, strict=True)) > 20


def misbehave(folder: Path, way: int) -> None:
    """What a reader must not do, by its number; 0 and 6 are right."""
    match way:
        case 1:
            raise KeyError("x")
        case 2:
            os.kill(os.getpid(), signal.SIGKILL)
        case 3:
            time.sleep(60)
        case 4:
            bytearray(10**9)
        case 5:
            raise FileError("")
        case 6:
            raise FileError("table.csv: empty; fill it")


def test_what_is_wrong_is_noticed_and_the_inputs_after_it_are_tried(tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "LIMIT_S", 1)
    (tmp_path / "right").mkdir()
    prepare = files_in(table__csv="x")
    prepare(tmp_path / "right")
    target = Target(name="wrong", share=1, prepare=prepare, read=misbehave)
    inputs = [(str(way), way) for way in range(7)]
    result = run_target(target, tmp_path / "right", tmp_path / "work" / "in", 0, inputs)
    assert isinstance(result, TargetResult)
    assert (result.inputs, result.accepted, dict(result.refused)) == (7, 1, {"FileError": 1})
    said = {failure.input.partition(",")[0]: failure.what for failure in result.failures}
    assert set(said) == {"1", "2", "3", "4", "5"}
    assert said["1"].startswith("KeyError")
    assert said["2"] == f"the process ended with {-signal.SIGKILL}"
    assert said["3"] == "did not end within 1 s"
    assert said["4"].startswith("MemoryError")
    assert said["5"].startswith("UnclearError: a message of 0 characters")


def test_slow_is_an_input_that_is_slow_each_time(tmp_path, monkeypatch):
    """A machine that is busy for a moment makes none of them slow."""
    monkeypatch.setattr(trial, "LIMIT_CPU_S", 0.2)
    (tmp_path / "right").mkdir()
    prepare = files_in(table__csv="right")
    prepare(tmp_path / "right")
    read: list[str] = []

    def slow_at_times(folder: Path, _way: int) -> None:
        content = (folder / "table.csv").read_text()
        read.append(content)
        if content == "always" or (content == "once" and read.count("once") == 1):
            end_s = time.process_time() + 0.4
            while time.process_time() < end_s:
                pass

    def becomes(content: str) -> Callable[[Files], Changes]:
        return lambda files: {name: content.encode() for name in files}

    cases = {content: becomes(content) for content in ("once", "always", "never")}
    target = Target(name="slow", share=1, prepare=prepare, read=slow_at_times, cases=cases)
    inputs = [(name, 0) for name in cases]
    result = run_target(target, tmp_path / "right", tmp_path / "work" / "in", 0, inputs)
    assert (result.inputs, result.accepted) == (3, 2)
    (failure,) = result.failures
    assert failure.input == "always, way 0"
    assert re.fullmatch(r"took 0\.[45] s, the right files 0\.\d s", failure.what)


# -- what it found: TOML -------------------------------------------------------------------------


class Anything(FileModel):
    """A model that takes one known key, and refuses all others."""

    known: int = 0


VALUES = [
    "1",
    '"text with # and [ and \\" in it"',
    "'literal with \" and {'",
    '"""several\nlines with ] and "" in them\n"""',
    "'''raw\nlines \\'''",
    '""""quoted""""',
    "[1, 2, # a remark with ]\n 3,\n]",
    "{ a = [1, 2], b = '}' }",
    "1979-05-27T07:32:00Z",
    "true # and a remark",
]


@given(st.lists(st.sampled_from([*VALUES, "# a remark [ \" '''", ""]), min_size=1, max_size=12))
@settings(max_examples=60)
def test_the_line_of_a_key_is_that_where_its_statement_begins(values):
    text, lines = "", {}
    for i, value in enumerate(values):
        if value in VALUES:
            lines[f"k{i}"] = text.count("\n") + 1
            text += f"k{i} = {value}\n"
        else:
            text += f"{value}\n"
    tomllib.loads(text)
    source = Source("x.toml", text)
    assert {key: source.line_of((key,)) for key in lines} == lines
    assert source.line_of(("other",)) is None


def test_the_line_of_an_error_behind_many_lines_is_found_soon():
    text = "a = [\n" + "  [1, 2],\n" * 10_000 + "]\n" + "# x\n" * 30_000 + "b = 1\n"
    start_s = time.process_time()
    with pytest.raises(FileError, match=r"x\.toml:1: a: unknown key"):
        parse("x.toml", text, Anything)
    text = "# x\n" * 30_000 + "".join(f"k{i} = 1\n" for i in range(3000))
    with pytest.raises(FileError, match=r"x\.toml:30001: k0: unknown key.*\n.*2999 more errors"):
        parse("x.toml", text, Anything)
    assert time.process_time() - start_s < 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("known = " + "[" * 100_000, "nested too deeply"),
        ("known = " + "{a=" * 100_000, "nested too deeply"),
        ("known = " + "[" * 100 + "]" * 100, "x.toml:1: known: .*nested too deeply"),
        ("known = " + "9" * 5000, "not TOML: Exceeds the limit"),
        ("known = " + "9" * 30, "x.toml:1: known: a whole number of more than 64 bits"),
        ("\n[[known]]\nx = [1, -99999999999999999999]", "x.toml:3: .*more than 64 bits"),
        ("\n" + "a." * 20_000 + "a = 1", "x.toml:2: a key of more than 64 parts"),
        ("[" + '"a" . ' * 20_000 + "a]", "x.toml:1: a key of more than 64 parts"),
        ("known = {" + "'a'." * 20_000 + "a = 1}", "a key of more than 64 parts"),
    ],
)
def test_toml_that_would_take_for_ever_or_break_the_parser_is_refused(text, said):
    start_s = time.process_time()
    with pytest.raises(FileError, match=said):
        parse("x.toml", text, Anything)
    assert time.process_time() - start_s < 2


def test_long_dotted_words_in_texts_and_numbers_are_no_keys():
    parse("x.toml", "known = 1 # " + "1.2, " * 1000 + "www.example.org, " * 100, Anything)


@given(st.text(max_size=50))
def test_a_refusal_never_sends_control_characters_to_the_terminal(text):
    said = str(FileError(f"x: found {text}; correct it"))
    assert all(c.isprintable() or c in "\n\t" for c in said)
    assert said.endswith("; correct it")


def test_a_refusal_has_an_end():
    said = str(FileError("x.csv: no column y; it has " + "c, " * 10**6 + "; name theirs"))
    assert len(said) <= 3000 and said.endswith("; name theirs") and said.startswith("x.csv: no")


# -- what it found: tables -----------------------------------------------------------------------


def test_a_byte_order_mark_is_none_of_the_first_columns_name(tmp_path):
    assert read(tmp_path, f"\ufeff{HEADER}\n{ROW}\n")["site"].tolist() == ["a"]


def test_a_column_twice_is_refused_whatever_it_is(tmp_path):
    said = refusal(tmp_path, f"{HEADER},energy_j\n{ROW},9.0\n")
    assert "several columns 'energy_j'" in said
    said = refusal(tmp_path, f"{HEADER},who,who\n{ROW},b,c\n", 'unknown = "label"')
    assert "several columns 'who'" in said


@pytest.mark.parametrize("name", ["n_", "n_a/b", "n_../../x", "n_" + "x" * 65, "n_.", "n_a b"])
def test_a_class_that_can_name_no_file_is_no_column_of_ours(tmp_path, name):
    assert "unknown column" in refusal(tmp_path, f"{HEADER},{name}\n{ROW},1\n")
    said = refusal(tmp_path, f"{HEADER}\n{ROW}\n", f'[constants]\n"{name}" = 1.0')
    assert "unknown column" in said and "/m.toml:2: " in said
    with pytest.raises(ValueError, match="counts"):
        CommandParams(argv=("x",), counts={name.removeprefix("n_"): 1.0})


def test_a_column_of_the_map_that_nobody_knows_is_refused(tmp_path):
    said = refusal(tmp_path, f"{HEADER}\n{ROW}\n", '\n[columns]\nenergy = "energy_j"')
    assert "/m.toml:3: columns.energy: unknown column 'energy'" in said and "energy_j" in said


def test_params_that_no_reader_of_json_takes_are_kept_as_text(tmp_path):
    deep = "[" * 100_000
    rows = read(tmp_path, f"{HEADER},params\n{ROW},{deep}\n")
    assert json.loads(rows["params"][0]) == {"params": deep}


def test_power_times_time_beyond_all_numbers_is_refused(tmp_path):
    header = HEADER.replace("energy_j", "power_w")
    rows = "a,k,1000,1e8,1e8\na,k,2000,1e-300,1e-300\na,k,3000,1,1\n"
    named = [line.split(": ")[:2] for line in refusal(tmp_path, f"{header}\n{rows}").splitlines()]
    assert [(place.rpartition(":")[2], what) for place, what in named] == [
        ("2", "power_w x time_s"),
        ("3", "time_s"),
        ("3", "power_w"),
    ]


def test_a_kernel_or_node_of_several_lines_is_refused(tmp_path):
    (tmp_path / "x.parquet").unlink(missing_ok=True)
    row = dict(zip(HEADER.split(","), ROW.split(","), strict=True)) | {"node": "n1"}
    for change in ({"kernel": "a\nb"}, {"node": "\x1b[31m"}):
        pd.DataFrame([row | change]).to_parquet(tmp_path / "x.parquet")
        with pytest.raises(FileError, match="must be a name of one line"):
            checked_rows(read_table(tmp_path / "x.parquet", TableMap()), TableMap())


def test_parquet_of_more_rows_than_memory_holds_is_refused(tmp_path):
    many = many_rows({})["table.parquet"]
    assert isinstance(many, bytes) and len(many) < 10**6
    (tmp_path / "x.parquet").write_bytes(many)
    with pytest.raises(FileError, match="holds 60000000 values"):
        read_table(tmp_path / "x.parquet", TableMap())


# -- what it found: counts and meters ------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"sp": 1' + "0" * 400 + "}", "not a number >= 0"),
        ('{"sp": ' + "[" * 100_000, "cannot read the reported counts"),
        ('{"../../x": 1}', "a class of the reported counts"),
        ('{"": 1}', "a class of the reported counts"),
        ('{"sp": "' + "x" * 10**6 + '"}', "not a number >= 0"),
        ('{"sp": NaN}', "not a number >= 0"),
    ],
)
def test_counts_that_are_none_are_refused(tmp_path, text, said):
    (tmp_path / "counts.json").write_text(text)
    with pytest.raises(KernelError, match=said) as refused:
        read_counts(tmp_path / "counts.json")
    assert len(str(refused.value)) < 300


@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_whatever_a_bmcs_program_prints_is_watts_or_unreadable(text):
    for printed in (text, f"Current Power : {text} Watts", IPMI + text):
        try:
            assert 0 < parse_watts(printed, "x") < 1e6
        except MeterError as error:
            assert all(c.isprintable() for c in str(error))


@pytest.mark.parametrize(
    "text",
    [
        "\n" * 10**6,
        "Power Measurement : a" + " " * 10**6 + "b",
        "Current Power" + " " * 10**6 + "x",
    ],
)
def test_long_outputs_of_a_bmcs_program_are_read_soon(text):
    start_s = time.process_time()
    with pytest.raises(MeterError):
        parse_watts(text, "x")
    assert time.process_time() - start_s < 2
