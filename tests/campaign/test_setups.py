"""How each measurement was made is kept before it; a run that would mix says what it changes."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from campaign.launch import setup_record
from campaign.launch.drive import run as drive
from campaign.launch.progress import PlainProgress
from campaign.launch.setup_record import node_record, planned_record
from campaign.measure.point_life import PartitionSetup
from campaign.plan.campaign_file import Protocol
from campaign.plan.plan import make_plan
from campaign.results import open_store as open_results
from campaign.store.compaction import compact, equalize_generations
from campaign.store.journal import JournalWriter, encode, encode_setup, scan
from campaign.store.layout import DamagedStoreError, Store, create_store, driver_lock, open_store
from campaign.store.mixtures import changes, mixtures, not_comparable
from campaign.store.setups import SetupUse, read_setup, setup_id, write_setups
from campaign.store.states import store_status
from campaign.store.tables import read_columns
from campaign.store.verify import give_up_records
from campaign.verbs.command_line import main
from sites.clocks import energy_preference
from sites.site_file import Site
from sites.site_reading import built_in_sites, find_site, read_site
from tests.campaign.test_journal import measurement
from tests.commands import prints

ROOT = Path(__file__).parents[2]
SITE = built_in_sites()["jetson-tk1"].read_text()
CAMPAIGN = """\
name = "first"
repeats = 1
[[sites]]
site = "site.toml"
settings = { choose = "random", count = 6, seed = 1 }
[protocol]
min_duration_s = 0.3
[retries]
max = 2
[[kernels]]
kernel = "sp_fma"
params = { level = "dram", ops_per_word = 4 }
"""


def write_files(folder: Path, campaign: str = CAMPAIGN, site: str = SITE) -> Path:
    (folder / "site.toml").write_text(site)
    (folder / "c.toml").write_text(campaign)
    return folder / "c.toml"


def records(path: Path) -> list[dict[str, Any]]:
    """What a run of a campaign file would keep of each partition, without the node."""
    plan = make_plan(path)
    kernels = tuple(sorted({entry.kernel for entry in plan.campaign.kernels}))
    return [
        planned_record(
            PartitionSetup(
                site=plan.sites[site],
                protocol=plan.campaign.protocol,
                kernels=kernels,
                campaign=plan.campaign.name,
                partition=partition,
            )
        )
        for site, partition in plan.partitions
    ]


def changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("= 0.3", "= 2.0", ["protocol.min_duration_s: was 0.3 (6 points), is now 2.0"]),
        ("misc_w = 0.0", "misc_w = 1.5", ["site.simulated.misc_w: was 0.0 (6 points), is now 1.5"]),
        (
            "[852, 1.030]",
            "[852, 1.1]",
            ["site.domains.core.voltage_v.852: was 1.03 (6 points), is now"],
        ),
        (
            'name = "first"',
            'name = "second"',
            ["campaign name: was first (6 points), is now second"],
        ),
        ("cores = 1", "cores = 2", ["site.partitions.board.cores: was 1 (6 points), is now 2"]),
        ("[retries]\nmax = 2", "[retries]\nmax = 5", []),
        ("nodes = 2", 'nodes = 9\nwalltime = "02:00:00"\naccount = "a"', []),
        ("= 0.3", "= 0.3\ntimeout_s = 33.0", []),
        ("count = 6", "count = 12", []),
        (
            "[clocks]",
            '[energy]\nprice_per_kwh = 0.3\ncurrency = "EUR"\nprice_source = "contract"\n'
            "price_year = 2026\n[metering]\naccuracy_pct = 1.0\n[clocks]",
            [],
        ),
        ("repeats = 1", "repeats = 3", []),
        ("ops_per_word = 4 }", 'ops_per_word = 4 }\n[[kernels]]\nkernel = "idle"', []),
    ],
)
def test_only_what_matters_for_a_value_is_a_change(tmp_path, old, new, expected):
    uses = [SetupUse(record, 6) for record in records(write_files(tmp_path))]
    files = [text.replace(old, new) for text in (CAMPAIGN, SITE)]
    assert files != [CAMPAIGN, SITE]
    found = [str(change) for change in changes(uses, records(write_files(tmp_path, *files)))]
    assert len(found) == len(expected)
    for text, start in zip(found, expected, strict=True):
        assert text.removeprefix("jetson-tk1: ").startswith(start)


def test_what_a_profile_or_a_limit_is_set_by_matters_and_which_there_are_does_not(tmp_path):
    table = """
[profiles]
names = ["low", "high"]
control = "command-profile"
[profiles.options]
set = [["tuned-adm", "profile", "{profile}"]]
read = [["tuned-adm", "active"]]
restore = [["tuned-adm", "profile", "{profile}"]]
[power_limit]
limits_w = [150, 300]
control = "nvml-power-limit"
"""
    example = built_in_sites()["slurm-example"].read_text()
    campaign = changed(CAMPAIGN, 'choose = "random", count = 6, seed = 1', 'choose = "all"')
    site = changed(example, "[clocks]", f"{table}[clocks]")
    uses = [SetupUse(one, 6) for one in records(write_files(tmp_path, campaign, site))]

    def keys(old: str, new: str) -> list[str]:
        path = write_files(tmp_path, campaign, changed(site, old, new))
        return [change.key for change in changes(uses, records(path))]

    assert keys('"low", "high"', '"low"') == keys("150, 300", "300") == keys(table, "") == []
    assert keys('set = [["tuned-adm", "profile"', 'set = [["eppctl", "set"') == [
        "site.profiles.options.set"
    ]
    assert keys("nvml-power-limit", "amdsmi-power-cap") == ["site.power_limit.control"]


def test_another_version_and_another_kernel_source_are_changes(tmp_path):
    (record,) = records(write_files(tmp_path))
    earlier = json.loads(json.dumps(record))
    code = {"sp_fma": "123"}
    earlier["versions"] |= {"version": "0.0.9", "commit": "ab", "kernel_code": code}
    found = {change.key: change.old for change in changes([SetupUse(earlier, 4)], [record])}
    assert found == {"version": "0.0.9", "kernels.sp_fma": "123"}
    # A mixture that is there already is not asked for again.
    assert changes([SetupUse(earlier, 4), SetupUse(record, 2)], [record]) == []


def test_a_mixture_counts_the_points_under_each_value(tmp_path):
    (record,) = records(write_files(tmp_path))
    other = json.loads(json.dumps(record))
    other["protocol"]["min_duration_s"] = 2.0
    uses = [SetupUse(record, 4), SetupUse(record | {"slurm": {"job": "7"}}, 2)]
    assert mixtures(uses) == []  # another job measures alike
    (mixture,) = mixtures([*uses, SetupUse(other, 3)])
    assert mixture.text == (
        "measurements under 2 set-ups: protocol.min_duration_s 0.3 (6 points), 2.0 (3 points)"
    )
    old_driver, new_driver = (
        {**record, "site": {**record["site"], "simulated": None}, "node": {"gpu_driver": version}}
        for version in ("550.54.14", "560.35.03")
    )
    (mixture,) = mixtures([SetupUse(old_driver, 2), SetupUse(new_driver, 5)])
    assert mixture.differences[0].values == (("560.35.03", 5), ("550.54.14", 2))


def test_a_record_has_the_power_limits_in_force_of_a_node_that_measures(tmp_path, monkeypatch):
    limits_w = {"gpu-0": 700.0}
    monkeypatch.setattr(setup_record, "power_limits_w", lambda: dict(limits_w))
    plan = make_plan(write_files(tmp_path))
    simulated = PartitionSetup(plan.sites["jetson-tk1"], plan.campaign.protocol, ("sp_fma",), "c")
    assert "power_limits_w" not in node_record(simulated)["node"]
    real = replace(simulated, site=read_site(find_site("localhost", tmp_path)))
    before = node_record(real)
    assert before["node"]["power_limits_w"] == {"gpu-0": 700.0}
    limits_w["gpu-0"] = 350.0
    (mixture,) = mixtures([SetupUse(before, 2), SetupUse(node_record(real), 3)])
    (difference,) = mixture.differences
    assert difference.values == ((350.0, 3), (700.0, 2))
    limits_w.clear()
    assert "power_limits_w" not in node_record(real)["node"]
    assert mixtures([SetupUse(before, 2), SetupUse(node_record(real), 3)]) == []


def test_a_record_has_the_energy_preference_in_force(tmp_path, monkeypatch):
    tree = Path(__file__).parents[1] / "trees" / "energy-preference"
    shutil.copytree(tree, tmp_path / "root")
    found = partial(energy_preference.in_force, tmp_path / "root")
    monkeypatch.setattr(setup_record, "energy_preference_in_force", lambda root: found())
    plan = make_plan(write_files(tmp_path))
    simulated = PartitionSetup(plan.sites["jetson-tk1"], plan.campaign.protocol, ("sp_fma",), "c")
    real = replace(simulated, site=read_site(find_site("localhost", tmp_path)))
    before = node_record(real)
    assert before["node"]["energy_preference"] == "balance_performance"
    path = "sys/devices/system/cpu/cpufreq/policy1/energy_performance_preference"
    (tmp_path / "root" / path).write_text("power\n")
    (mixture,) = mixtures([SetupUse(before, 2), SetupUse(node_record(real), 3)])
    (difference,) = mixture.differences
    assert difference.values == (("balance_performance, power", 3), ("balance_performance", 2))


VARIABLE = '[partitions.board.environment]\nvariables = {{ OMP_PLACES = "{}" }}\n'


@pytest.mark.parametrize(
    ("before", "after", "key", "values"),
    [
        ("", "cores", "variables", ([], ["OMP_PLACES"])),
        ("cores", "", "variables", (["OMP_PLACES"], [])),
        ("cores", "threads", "variables.OMP_PLACES", ("cores", "threads")),
    ],
)
def test_a_variable_that_is_added_removed_or_set_is_a_change(tmp_path, before, after, key, values):
    texts = [SITE + (VARIABLE.format(value) if value else "") for value in (before, after)]
    (old,), (new,) = (records(write_files(tmp_path, site=text)) for text in texts)
    (change,) = changes([SetupUse(old, 6)], [new])
    assert change.key == f"site.partitions.board.{key}"
    assert (change.old, change.new) == values
    (mixture,) = mixtures([SetupUse(old, 6), SetupUse(new, 2)])
    assert [found.key for found in mixture.differences] == [f"site.partitions.board.{key}"]


def leaves(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The paths of all entries of nested tables."""
    if not isinstance(value, dict):
        return []
    return [found for key in value for found in ((*path, key), *leaves(value[key], (*path, key)))]


def test_what_a_record_of_an_earlier_version_lacks_has_its_default(tmp_path):
    """Each key that has a default, taken out of the record in turn, is no change by the user."""
    (record,) = records(write_files(tmp_path))
    tried = 0
    for part, model in (("protocol", Protocol), ("site", Site)):
        for name, field in model.model_fields.items():
            if (
                field.is_required()
                or record[part][name]
                != model.model_validate(
                    {key: value for key, value in record[part].items() if key != name}
                ).model_dump(mode="json")[name]
            ):
                continue
            earlier = json.loads(json.dumps(record))
            del earlier[part][name]
            assert changes([SetupUse(earlier, 6)], [record]) == [], name
            assert mixtures([SetupUse(earlier, 6), SetupUse(record, 1)]) == [], name
            tried += 1
    assert tried > 8


def test_hashes_of_files_by_an_earlier_version_are_not_compared_and_that_is_said(tmp_path):
    (record,) = records(write_files(tmp_path))
    earlier = json.loads(json.dumps(record))
    earlier["versions"]["kernels"] = {"sp_fma": "0123456789ab"}
    del earlier["versions"]["kernel_code"]
    uses = [SetupUse(earlier, 4)]
    assert changes(uses, [record]) == []
    (said,) = not_comparable(uses, [record])
    assert "sp_fma" in said and "4 points" in said
    assert not_comparable([SetupUse(record, 4)], [record]) == []


def keep(store: Store, record: dict[str, Any], *repeats: int) -> Path:
    with JournalWriter(store.journals) as journal:
        journal.append(encode_setup(record))
        for repeat in repeats:
            journal.append(encode(replace(measurement(repeat), setup=setup_id(record))))
        return journal.path


def test_nvmls_power_model_gives_the_site_a_clock(tmp_path):
    """The median over GPUs and records, those of a journal too; none without a record."""
    store = create_store(tmp_path / "store", "test")
    (record,) = records(write_files(tmp_path))
    keep(store, record, 0)
    assert json.loads(read_columns(store).attrs["perf_per_watt_mhz"]) == {}
    models = [[1095.0, 1110.0], [1290.0]]
    for repeat, clocks in enumerate(models, 1):
        found = [{"gpu": f"GPU-{mhz}", "best_core_mhz": mhz} for mhz in clocks]
        keep(store, record | {"nvml_power_model": found}, repeat)
    compact(store)
    assert json.loads(read_columns(store).attrs["perf_per_watt_mhz"]) == {"jetson-tk1": 1110.0}


def test_cut_anywhere_a_measurement_has_its_set_up(tmp_path):
    store = create_store(tmp_path / "store", "test")
    (record,) = records(write_files(tmp_path))
    path = keep(store, record, 0, 1)
    whole = path.read_bytes()
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        scanned = scan(path)
        for entry in scanned.entries:
            assert scanned.setups[entry.scalars["setup"]] == record


def test_killed_between_the_set_up_and_its_measurement_nothing_is_left(tmp_path):
    store = create_store(tmp_path / "store", "test")
    (record,) = records(write_files(tmp_path))
    keep(store, record, 0)
    compact(store)
    alone = keep(store, record | {"slurm": {"job": "2"}})
    for _ in range(2):
        assert compact(store).messages(writers_gone=True) == []
        equalize_generations(store)
    assert not alone.exists()
    assert [path.stem for path in (store.root / "setups").iterdir()] == [setup_id(record)]


def test_a_set_up_is_in_its_file_before_the_index_refers_to_it(tmp_path):
    """Killed after the one and before the other, both are there; and never the other way round."""
    store = create_store(tmp_path / "store", "test")
    (record,) = records(write_files(tmp_path))
    keep(store, record, 0, 1)
    write_setups(store, {setup_id(record): record})  # and killed
    assert store_status(open_store(store.root)).damage == []
    (store.root / "setups" / f"{setup_id(record)}.json").unlink()
    (store.root / "setups").rmdir()
    (store.root / "setups").touch()  # it cannot be written
    with pytest.raises(OSError, match="setups"):
        compact(store)
    assert list(store.index.iterdir()) == []
    (store.root / "setups").unlink()
    compact(store)
    assert read_setup(store, setup_id(record)) == record
    assert read_columns(store)["setup"].tolist() == [setup_id(record)] * 2


def test_a_damaged_set_up_is_named_and_nothing_else_is_lost(tmp_path):
    store = create_store(tmp_path / "store", "test")
    (record,) = records(write_files(tmp_path))
    keep(store, record, 0, 1)
    compact(store)
    path = store.root / "setups" / f"{setup_id(record)}.json"
    path.write_text(path.read_text().replace("0.3", "0.4"))
    assert path.name in "".join(prints("status", store.root, code=1).split())
    with pytest.raises(DamagedStoreError, match=path.name):
        read_columns(store)
    # The next run or import goes on without it, and says so.
    with driver_lock(store):
        (said,) = give_up_records(store)
        assert path.name in said
        assert give_up_records(store) == []
    assert len(read_columns(store)["point_id"]) == 2
    assert path.name in "".join(prints("status", store.root, code=1).split())


def run(path: Path, *words: str) -> int:
    return main(["run", str(path), "--store", str(path.parent / "s"), "--quiet", *words])


SHOWN = ("status.json", "status.html", "status.prom")


def test_a_run_that_would_mix_asks_and_what_is_mixed_is_named(tmp_path, capsys):
    """The two cases of a user: another duration of the windows with other constants of the site,
    and another campaign's name, on a store of six points."""
    assert run(write_files(tmp_path)) == 0
    (kept,) = (tmp_path / "s" / "setups").iterdir()
    record = json.loads(kept.read_text())
    assert record["site"]["simulated"]["misc_w"] == 0.0
    assert record["versions"]["version"]
    assert len(record["versions"]["kernel_code"]["sp_fma"]) == 12
    assert record["node"]["os_kernel"]
    results = open_results(tmp_path / "s")
    assert set(results.scalars["setup"].values.tolist()) == {kept.stem}
    assert "python" not in results.scalars["provenance"].values[0]
    capsys.readouterr()

    longer = changed(changed(CAMPAIGN, "= 0.3", "= 2.0"), "count = 6", "count = 9")
    site = changed(SITE, "misc_w = 0.0", "misc_w = 1.5")
    path = write_files(tmp_path, longer, site)
    shown_before = {name: (tmp_path / "s" / name).read_bytes() for name in SHOWN}
    assert run(path) == 2
    # What watch shows is the last run that measured.
    assert {name: (tmp_path / "s" / name).read_bytes() for name in SHOWN} == shown_before
    error = capsys.readouterr().err
    assert "protocol.min_duration_s: was 0.3 (6 points), is now 2.0\n" in error
    assert "site.simulated.misc_w: was 0.0 (6 points), is now 1.5\n" in error
    assert "--accept-changes" in error
    assert len(open_results(tmp_path / "s").scalars["setup"]) == 6

    assert run(path, "--accept-changes") == 0
    shown = " ".join(prints("status", tmp_path / "s").split())
    expected = (
        "2 set-ups: protocol.min_duration_s 0.3 (6 points), 2.0 (3 points); site.simulated.misc_w"
    )
    assert f"jetson-tk1: measurements under {expected} 0.0 (6 points), 1.5 (3 points)" in shown
    results = open_results(tmp_path / "s")
    assert any(
        "mixed set-ups" in found.text_for_people() for found in results.findings("jetson-tk1")
    )

    other = changed(longer, 'name = "first"', 'name = "second"')
    other = changed(
        changed(other, "count = 9", "count = 2"), "ops_per_word = 4", "ops_per_word = 8"
    )
    path = write_files(tmp_path, other, site)
    assert run(path) == 2
    assert "campaign name: was first (9 points), is now second" in capsys.readouterr().err
    assert run(path, "--accept-changes") == 0
    assert run(path) == 0  # it is in the store already, and accepted
    capsys.readouterr()
    main(["status", str(tmp_path / "s"), "--json"])
    rows = json.loads(capsys.readouterr().out)["partitions"]
    assert [(row["partition"], row["done"]) for row in rows] == [("board", 2), ("not planned", 9)]


def test_nothing_is_asked_while_no_point_is_complete(tmp_path):
    store = create_store(tmp_path / "s", "first")
    plan = make_plan(write_files(tmp_path, CAMPAIGN.replace("count = 6", "count = 1")))
    failed = replace(measurement(0), point=plan.points[0], status="wrong result")
    setup = PartitionSetup(plan.sites["jetson-tk1"], plan.campaign.protocol, ("sp_fma",), "other")
    record = node_record(setup)
    with JournalWriter(store.journals) as journal:
        journal.append(encode_setup(record), encode(replace(failed, setup=setup_id(record))))
    outcome = drive(plan, store, PlainProgress(quiet=True))
    assert (outcome.failed, outcome.ok) == (1, 0)
