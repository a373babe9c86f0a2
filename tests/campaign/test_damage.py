"""Damage to a store's files: found, reported with the point, and harmless where possible."""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import shutil
from pathlib import Path

import google_crc32c
import numpy as np
import pytest

from campaign.store.compaction import compact, equalize_generations
from campaign.store.dataset import current_tables, open_dataset
from campaign.store.generation import verified_generation
from campaign.store.journal import HEAD, JournalWriter, encode
from campaign.store.layout import DamagedStoreError, Store, create_store, open_store
from campaign.store.measurement import Measurement
from campaign.store.planned import planned_ids, write_planned
from campaign.store.states import point_states
from campaign.store.tables import read_columns
from campaign.store.verify import damaged_traces, repair_samples
from campaign.verbs.command_line import main
from dvfs.dataset import DAMAGED
from tests.campaign.test_journal import measurement
from tests.commands import prints, refuses, warns
from tests.faults.fuzz.damage import sealed, unsealed
from tests.stores import write


def made(number: int) -> Measurement:
    """A measurement that differs from every other in its energy, time and samples."""
    return measurement(number, 3000, energy_j=2.5 + number, time_s=0.5 + number / 64)


def lost_samples(store: Store) -> list[str]:
    """The points of which samples are not as they were made, found by reading each trace; all
    scalars must be, and each point must have its trace's row."""
    dataset = open_dataset(store)
    assert dataset["point_id"].values.tolist() == IDS
    for name in ("energy_j", "time_s"):
        assert dataset[name].values.tolist() == [getattr(whole, name) for whole in MADE]
    assert set(dataset["n_sp"].values) == {1e9}
    measurement, start, size = (
        dataset[name].values.tolist() for name in ("trace_measurement", "row_start", "row_size")
    )
    assert sorted(measurement) == list(range(40))
    assert set(size) == {3000}
    lost = set()
    for name in ("value", "time_ns"):
        samples = dataset[name]
        with contextlib.suppress(DamagedStoreError):  # faster than trace by trace
            samples = samples.load()
        for number, first in zip(measurement, start, strict=True):
            expected = getattr(MADE[number].traces[0], name)
            try:
                same = (samples[first : first + 3000].values == expected).all()
            except DamagedStoreError:
                same = False
            if not same:
                lost.add(IDS[number])
    return sorted(lost)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty measurements at rest, in two shards."""
    store = create_store(tmp_path_factory.mktemp("whole") / "store", "test")
    write(store, *map(made, range(20)))
    compact(store)
    write(store, *map(made, range(20, 40)))
    compact(store)
    equalize_generations(store)
    assert store.journal_paths() == []
    return store.root


@pytest.fixture
def store(whole: Path, tmp_path: Path) -> Store:
    """A copy to be harmed."""
    return open_store(Path(shutil.copytree(whole, tmp_path / "store")))


MADE = [made(i) for i in range(40)]
IDS = [whole.point.id for whole in MADE]


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def harm(path: Path, own: random.Random) -> None:
    data = bytearray(path.read_bytes())
    match own.choice(["flip", "cut", "gone"]) if data else "gone":
        case "flip":
            data[own.randrange(len(data))] ^= 1 << own.randrange(8)
            path.write_bytes(bytes(data))
        case "cut":
            path.write_bytes(bytes(data[: own.randrange(len(data))]))
        case "gone":
            path.unlink()


@pytest.mark.parametrize("seed", range(25))
def test_any_damage_to_one_generation_costs_nothing(store, seed):
    own = random.Random(seed)
    generation = own.choice(sorted(store.index.iterdir()))
    harm(own.choice(files_below(generation)), own)
    assert lost_samples(store) == []
    compact(store)
    equalize_generations(store)
    assert len([verified_generation(path) for path in store.index.iterdir()]) == 2
    assert lost_samples(store) == []


def test_damage_to_both_is_reported_and_nothing_is_guessed(store):
    own = random.Random(1)
    for generation in sorted(store.index.iterdir()):
        harm(own.choice(files_below(generation)), own)
    with pytest.raises(DamagedStoreError, match="every generation of the index is damaged"):
        open_dataset(store)
    assert "restore" in refuses("status", store.root)


def harm_shard(store, own):
    name = own.choice(["value", "time_ns"])
    shard = own.choice(files_below(store.traces / name / "c"))
    data = bytearray(shard.read_bytes())
    at = own.randrange(len(data))
    data[at] ^= 0xFF
    shard.write_bytes(bytes(data))


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_shard_costs_its_points_and_no_other(store, seed, capsys):
    harm_shard(store, random.Random(seed))
    lost = lost_samples(store)
    assert named(damaged_traces(store)) == lost
    main(["status", str(store.root), "--verify"])
    said = capsys.readouterr().out.splitlines()
    assert named([line for line in said if "damaged: " in line]) == lost
    assert named([line for line in repair_samples(store) if "is measured again" in line]) == lost
    states = point_states(store)
    assert sorted(point_id for point_id in IDS if states[point_id][0] == DAMAGED) == lost
    assert repair_samples(store) == []  # it is known now
    dataset = open_dataset(store)
    left = dataset["point_id"].values[dataset["trace_measurement"].values]
    assert sorted([*left, *lost]) == sorted(IDS)
    if lost:
        write(store, *(made(IDS.index(one)) for one in lost))
        compact(store)
    assert set(open_dataset(store)["status"].values) == {"ok"}
    assert lost_samples(store) == []


def named(lines: list[str]) -> list[str]:
    """The points that lines name, one each."""
    return sorted(next(point_id for point_id in IDS if point_id in line) for line in lines)


DESCRIPTIONS = ["zarr.json", "value/zarr.json", "time_ns/zarr.json"]


def harm_description(path: Path, how: str) -> None:
    metadata = json.loads(path.read_text())
    match how:
        case "gone":
            path.unlink()
            return
        case "cut":
            path.write_bytes(path.read_bytes()[:40])
            return
        case "device":
            path.unlink()
            path.symlink_to("/dev/zero")
            return
        case "short":
            metadata["shape"] = [1 << 20]
        case "long":
            metadata["shape"] = [1 << 60]
        case "flat":
            metadata["shape"] = []
        case "type":
            metadata["data_type"] = "int8"
        case "chunks":
            metadata["chunk_grid"]["configuration"]["chunk_shape"] = [1 << 19]
        case "codec":
            metadata["codecs"][0]["configuration"]["codecs"].pop()
    path.write_text(json.dumps(metadata))


@pytest.mark.parametrize(
    ("name", "how"),
    [
        *((name, how) for name in DESCRIPTIONS for how in ("gone", "cut", "device")),
        *(("value/zarr.json", how) for how in ("short", "long", "flat", "type", "chunks", "codec")),
    ],
)
@pytest.mark.parametrize("by", ["run", "import"])
def test_what_describes_the_samples_is_written_anew(store, name, how, by, tmp_path):
    before = open_dataset(store)["value"].values
    harm_description(store.traces / name, how)
    with pytest.raises(DamagedStoreError, match=rf"{name}.*to repair it"):
        open_dataset(store)
    assert f"{name} does not describe the samples" in prints(
        "status", store.root, "--verify", code=1
    )
    if by == "run":
        assert repair_samples(store) == [f"traces.zarr/{name} was damaged, and has been rewritten"]
    else:
        table = tmp_path / "more.csv"
        table.write_text("site,kernel,core_mhz,time_s,energy_j\nb,k,1000,1,5\n")
        write(store, made(40))
        assert "has been rewritten" in warns("import", table, "--store", store.root)
    np.testing.assert_array_equal(open_dataset(store)["value"].values[: before.size], before)
    assert damaged_traces(store) == []


def test_a_damaged_shard_costs_no_more_where_its_description_is_gone_too(store):
    harm_shard(store, random.Random(3))
    lost = lost_samples(store)
    assert lost
    (store.traces / "value/zarr.json").unlink()
    assert named([line for line in damaged_traces(store) if "describe" not in line]) == lost
    assert named([line for line in repair_samples(store) if "is measured again" in line]) == lost


def test_a_description_that_is_longer_or_says_the_same_otherwise_is_right(store):
    """A compaction that was killed made it longer; another version may spell it otherwise."""
    before = open_dataset(store)["value"].values
    path = store.traces / "value/zarr.json"
    metadata = json.loads(path.read_text())
    path.write_text(json.dumps(dict(sorted(metadata.items())) | {"shape": [2**30]}, indent=3))
    assert repair_samples(store) == []
    np.testing.assert_array_equal(open_dataset(store)["value"].values, before)
    write(store, made(40))
    compact(store)
    after = open_dataset(store)["value"].values
    np.testing.assert_array_equal(after[: before.size], before)
    np.testing.assert_array_equal(after[before.size :][:3000], made(40).traces[0].value)


@pytest.mark.parametrize("put", ["device", "pipe", "folder"])
@pytest.mark.parametrize(
    "name",
    ["campaign.json", "planned.*.bin", "index/*/manifest", "index/*/states.bin", "journals/*"],
)
def test_what_has_no_end_in_the_place_of_a_file_is_refused(store, name, put, capsys):
    write_planned(store, {"campaign": {"name": "x"}}, {"s/p": IDS})
    write(store, made(40))
    for path in store.root.glob(name):
        path.unlink()
        if put == "device":
            path.symlink_to("/dev/zero")
        elif put == "pipe":
            os.mkfifo(path)
        else:
            path.mkdir()
    assert main(["status", str(store.root)]) in (1, 2)
    assert "not a regular file" in capsys.readouterr().err


@pytest.mark.parametrize("put", ["device", "pipe"])
def test_a_shard_that_has_no_end_costs_its_points(store, put):
    path = store.traces / "value/c/0"
    path.unlink()
    if put == "device":
        path.symlink_to("/dev/zero")
    else:
        os.mkfifo(path)
    with pytest.raises(DamagedStoreError, match="is missing"):
        open_dataset(store)["value"].load()
    assert named([line for line in repair_samples(store) if "measured again" in line]) == sorted(
        IDS[:20]
    )


@pytest.mark.parametrize(
    "said",
    [
        {"consumed": {"a.journal": -1}},
        {"shards": {}, "samples_end": 2**61},
        {"shards": {}},
        {"samples_end": -(1 << 20)},
        {"summary": {"sites": {"s": "many"}}},
        {"summary": {"failures": {"timed out": [1]}}},
        {"files": {"states.bin": [1.5, 2]}},
    ],
)
def test_a_manifest_that_can_not_be_ours_is_refused_whatever_its_checksum(store, said):
    for path in store.index.glob("*/manifest"):
        line = json.dumps(json.loads(path.read_bytes().split(b"\n")[0]) | said).encode()
        path.write_bytes(line + f"\n{google_crc32c.value(line):08x}\n".encode())
    assert f"manifest: {next(iter(said))}" in refuses("status", store.root)


def test_a_file_that_vanishes_under_a_reader_is_an_error_and_no_missing_value(store):
    dataset = open_dataset(store)
    for _ in range(2):  # as if two compactions went by
        newest = max(store.index.iterdir())
        newest.rename(store.index / f"{int(newest.name) + 5:06d}")
    with pytest.raises(DamagedStoreError, match="open the store again"):
        dataset["energy_j"].load()


@pytest.mark.parametrize(
    "said",
    [{"start_unix_s": math.nan}, {"start_unix_s": True}, {"start_unix_s": 1e300}]
    + [{"provenance": {"flags": flags}} for flags in (3, [3], "late")],
)
def test_a_record_that_no_summary_could_hold_is_damage_and_stops_nothing(store, said):
    with JournalWriter(store.journals) as journal:
        text, payload = unsealed(encode(made(40)))[0]
        journal.append(sealed(json.dumps(json.loads(text) | said).encode(), payload))
        journal.append(encode(made(41)))
    compacted = compact(store)
    assert compacted.moved == 1
    assert len(compacted.damage) == 1
    assert main(["status", str(store.root)]) == 0
    assert made(41).point.id in point_states(store)
    assert made(40).point.id not in point_states(store)


def test_states_are_those_of_the_tables(store):
    write(store, made(41))
    write(store, measurement(40, 10))
    tables = current_tables(store)[0].measurements
    states = point_states(store)
    assert {state: states[state][0] for state in states} == dict(
        zip(tables["point_id"], tables["status"], strict=True)
    )


def test_the_plan_of_a_store_is_read_back_and_damage_to_it_is_reported(store):
    ids = {"a/p": IDS[:7], "b/q": [], "c/r": IDS[7:]}
    write_planned(store, {"campaign": {"name": "x"}}, ids)
    ids_by_name = planned_ids(open_store(store.root))
    assert {name: own.astype(str).tolist() for name, own in ids_by_name.items()} == ids
    path = next(store.root.glob("planned.*.bin"))
    harm(path, random.Random(2))
    with pytest.raises(DamagedStoreError, match="run the campaign again"):
        planned_ids(store)
    write_planned(store, {"campaign": {"name": "x"}}, ids)
    assert list(planned_ids(store)) == list(ids)
    for name in ("x" * 200_000, "../outside", ""):
        store.write_json("campaign.json", {"planned": {"partitions": ["a/p"], "file": name}})
        with pytest.raises(DamagedStoreError, match="does not name a file of points") as refused:
            planned_ids(store)
        assert len(str(refused.value)) < 1000


def test_a_damaged_record_is_not_left_out_in_silence(store, tmp_path):
    """Bytes of head and scalars in turn; a record that is cut off was never acknowledged. Fewer of
    them beside what is compacted, which takes long to read."""
    alone = create_store(tmp_path / "alone", "test")
    for own, ids, step in ((alone, [], 1), (store, IDS, 20)):
        write(own, made(40))
        (path,) = own.journal_paths()
        whole = path.read_bytes()
        text_end = HEAD.size + HEAD.unpack_from(whole)[1]
        for at in range(0, text_end, 3 * step):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(DamagedStoreError, match=path.name):
                read_columns(own)
        for size in range(0, len(whole), 97 * step):
            path.write_bytes(whole[:size])
            assert read_columns(own)["point_id"].tolist() == ids
        path.write_bytes(whole)
        assert len(read_columns(own)["point_id"]) == len(ids) + 1


@pytest.mark.parametrize("name", ["campaign.json", "sites/a.json", "fits/a.json", "hours/a.json"])
def test_a_json_file_that_was_written_and_is_gone_or_another_is_damage(store, name):
    assert store.read_json(name) is None
    store.write_json(name, {"value": 1})
    path = store.root / name
    whole = path.read_bytes()
    assert open_store(store.root).read_json(name) == {"value": 1}
    path.unlink()
    with pytest.raises(DamagedStoreError, match=name):
        store.read_json(name)
    if "/" in name:
        path.parent.rmdir()
        assert name in store.json_names(name.partition("/")[0])
        path.parent.mkdir()
    store.write_json("search.json", {"value": 2})
    path.write_bytes((store.root / "search.json").read_bytes())  # whole, and of another name
    with pytest.raises(DamagedStoreError, match=name):
        store.read_json(name)
    path.write_bytes(json.dumps({"value": 1}).encode())
    with pytest.raises(DamagedStoreError, match=name):
        store.read_json(name)
    path.write_bytes(whole)
    assert store.read_json(name) == {"value": 1}
