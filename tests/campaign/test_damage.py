"""Damage to a store's files: noticed, told with the point, and of no cost where it can be none."""

from __future__ import annotations

import contextlib
import random
import shutil
from pathlib import Path

import pytest

from campaign.command_line import main
from campaign.measurement import DAMAGED, Measurement
from campaign.store.compaction import compact, settle
from campaign.store.dataset import current_tables, open_dataset
from campaign.store.generation import checked
from campaign.store.journal import JournalWriter, encode
from campaign.store.layout import DamagedStore, Store, create_store, open_store
from campaign.store.planned import planned_ids, write_planned
from campaign.store.states import point_states
from campaign.store.verify import damaged_traces, mend
from tests.campaign.test_journal import measurement


def made(number: int) -> Measurement:
    """A measurement that differs from every other in its energy, time and samples."""
    return measurement(number, 3000, energy_j=2.5 + number, time_s=0.5 + number / 64)


def write(store: Store, *numbers: int) -> None:
    with JournalWriter(store.journals) as journal:
        for number in numbers:
            journal.append(encode(made(number)))


UNREADABLE = (DamagedStore, ValueError, RuntimeError)
"""What reading damaged samples raises."""


def lost_samples(store: Store) -> list[str]:
    """The points of which samples are not as they were made, found by reading each trace; all
    scalars must be, and each point must have its trace's row."""
    dataset = open_dataset(store)
    with contextlib.suppress(*UNREADABLE):  # faster than trace by trace
        dataset = dataset.load()
    expected = [made(i) for i in range(40)]
    assert dataset["point_id"].values.tolist() == IDS
    for name in ("energy_j", "time_s"):
        assert dataset[name].values.tolist() == [getattr(each, name) for each in expected]
    assert set(dataset["n_sp"].values) == {1e9}
    assert sorted(dataset["trace_measurement"].values) == list(range(40))
    lost = []
    for row, start, size in zip(
        dataset["trace_measurement"].values.tolist(),
        dataset["row_start"].values.tolist(),
        dataset["row_size"].values.tolist(),
        strict=True,
    ):
        assert size == 3000
        cut = dataset.isel(sample=slice(start, start + size))
        trace = expected[row].traces[0]
        try:
            same = (cut["value"].values == trace.value).all()
            same &= (cut["time_ns"].values == trace.time_ns).all()
        except UNREADABLE:
            same = False
        if not same:
            lost.append(IDS[row])
    return sorted(lost)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty measurements at rest, in two shards."""
    store = create_store(tmp_path_factory.mktemp("whole") / "store", "test")
    write(store, *range(20))
    compact(store)
    write(store, *range(20, 40))
    compact(store)
    settle(store)
    assert store.journal_paths() == []
    return store.root


@pytest.fixture
def store(whole: Path, tmp_path: Path) -> Store:
    """A copy to be harmed."""
    return open_store(Path(shutil.copytree(whole, tmp_path / "store")))


IDS = [measurement(i, 3000).point.id for i in range(40)]


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
    settle(store)
    assert len([checked(path) for path in store.index.iterdir()]) == 2
    assert lost_samples(store) == []


def test_damage_to_both_is_told_and_nothing_is_guessed(store, capsys):
    own = random.Random(1)
    for generation in sorted(store.index.iterdir()):
        harm(own.choice(files_below(generation)), own)
    with pytest.raises(DamagedStore, match="no generation of the index is whole"):
        open_dataset(store)
    assert main(["status", str(store.root)]) == 2
    assert "restore" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_shard_costs_its_points_and_no_other(store, seed, capsys):
    own = random.Random(seed)
    name = own.choice(["value", "time_ns"])
    shard = own.choice(files_below(store.traces / name / "c"))
    data = bytearray(shard.read_bytes())
    at = own.randrange(len(data))
    data[at] ^= 0xFF
    shard.write_bytes(bytes(data))
    lost = lost_samples(store)
    assert named(damaged_traces(store)) == lost
    main(["status", str(store.root), "--verify"])
    said = capsys.readouterr().out.splitlines()
    assert named([line for line in said if "damaged: " in line]) == lost
    assert named([line for line in mend(store) if "is measured again" in line]) == lost
    states = point_states(store)
    assert sorted(point_id for point_id in IDS if states[point_id][0] == DAMAGED) == lost
    assert mend(store) == []  # it is known now
    dataset = open_dataset(store)
    left = dataset["point_id"].values[dataset["trace_measurement"].values]
    assert sorted([*left, *lost]) == sorted(IDS)
    if lost:
        write(store, *map(IDS.index, lost))
        compact(store)
    assert set(open_dataset(store)["status"].values) == {"ok"}
    assert lost_samples(store) == []


def named(lines: list[str]) -> list[str]:
    """The points that lines name, one each."""
    return sorted(next(each for each in IDS if each in line) for line in lines)


@pytest.mark.parametrize("harmed", ["gone", "shape", "text"])
@pytest.mark.parametrize("name", ["zarr.json", "value/zarr.json", "time_ns/zarr.json"])
def test_what_describes_the_samples_is_written_anew(store, name, harmed):
    path = store.traces / name
    match harmed:
        case "gone":
            path.unlink()
        case "shape":
            path.write_text(path.read_text().replace("2097152", "1048576"))
        case "text":
            path.write_bytes(path.read_bytes()[:40])
    changed = harmed != "shape" or name != "zarr.json"
    assert len(mend(store)) == changed
    open_dataset(store)["value"].load()
    assert damaged_traces(store) == []


def test_a_file_that_vanishes_under_a_reader_is_an_error_and_no_missing_value(store):
    dataset = open_dataset(store)
    for _ in range(2):  # as if two compactions went by
        newest = max(store.index.iterdir())
        newest.rename(store.index / f"{int(newest.name) + 5:06d}")
    with pytest.raises(DamagedStore, match="open the store again"):
        dataset["energy_j"].load()


def test_states_are_those_of_the_tables(store):
    late = measurement(40, 10)
    write(store, 41)
    with JournalWriter(store.journals) as journal:
        journal.append(encode(late))
    tables = current_tables(store)[0].measurements
    states = point_states(store)
    assert {each: states[each][0] for each in states} == dict(
        zip(tables["point_id"], tables["status"], strict=True)
    )


def test_the_plan_of_a_store_is_read_back_and_damage_to_it_is_told(store):
    ids = {"a/p": IDS[:7], "b/q": [], "c/r": IDS[7:]}
    write_planned(store, {"campaign": {"name": "x"}}, ids)
    found = planned_ids(open_store(store.root))
    assert {name: own.astype(str).tolist() for name, own in found.items()} == ids
    path = next(store.root.glob("planned.*.bin"))
    harm(path, random.Random(2))
    with pytest.raises(DamagedStore, match="run the campaign again"):
        planned_ids(store)
    write_planned(store, {"campaign": {"name": "x"}}, ids)
    assert list(planned_ids(store)) == list(ids)
