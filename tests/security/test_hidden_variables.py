"""Values of environment variables, which may be tokens, are in the jobs and nowhere else."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from campaign.launch.drive import plan_record
from campaign.launch.partition_run import partition_setup
from campaign.launch.setup_record import planned_record
from campaign.launch.slurm import SlurmScheduler
from campaign.plan.plan import make_plan
from campaign.store.environment_variables import KEY_FILE
from campaign.store.journal import JournalWriter, encode, encode_setup
from campaign.store.layout import Store, create_store, open_store
from campaign.store.measurement import Measurement
from campaign.store.mixtures import Change, changes
from campaign.store.setups import read_setup, setup_id, setup_uses, write_setups
from campaign.verbs.command_line import main
from dvfs.input_files import FileError
from sites.site_reading import built_in_sites, read_site
from tests.campaign.test_setups import changed
from tests.commands import prints
from tests.points import a_point
from tests.shared_imports import program

TOKEN, PLAIN = "tok-5e9a1c77", "cores-by-threads"
SITE = built_in_sites()["jetson-tk1"].read_text()
ENVIRONMENT = (
    f'[partitions.board.environment]\nvariables = {{ TOKEN = "{TOKEN}", PLACES = "{PLAIN}" }}\n'
    'secrets = ["TOKEN"]\n'
)
CAMPAIGN = """\
name = "c"
[[sites]]
site = "site.toml"
settings = { choose = "random", count = 2, seed = 1 }
[protocol]
min_duration_s = 0.1
[[kernels]]
kernel = "sp_fma"
params = { level = "dram", ops_per_word = 4 }
"""


def campaign(folder: Path, environment: str = ENVIRONMENT) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "site.toml").write_text(SITE + environment)
    (folder / "c.toml").write_text(CAMPAIGN)
    return folder / "c.toml"


def with_values(root: Path) -> list[str]:
    """The files below a folder in which a value is, or a plain hash of one."""
    wanted = [
        text
        for name, value in (("TOKEN", TOKEN), ("PLACES", PLAIN))
        for hashed in (value, f"{name}={value}")
        for text in (value.encode(), hashlib.sha256(hashed.encode()).hexdigest()[:16].encode())
    ]
    files = [path for path in root.rglob("*") if path.is_file()]
    return [path.name for path in files if any(text in path.read_bytes() for text in wanted)]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("variables")
    path = campaign(folder)
    assert main(["run", str(path), "--store", str(folder / "S"), "--quiet"]) == 0
    return folder


def test_no_file_of_a_store_or_export_has_a_value(measured: Path, tmp_path: Path) -> None:
    store = str(measured / "S")
    (setup,) = Path(store, "setups").glob("*.json")
    assert "TOKEN" in setup.read_text()  # its name is kept
    assert "TOKEN" in Path(store, "campaign.json").read_text()
    said = prints("export", store, "--csv", tmp_path / "t.csv")
    said += prints("report", store, "-o", tmp_path / "r.html")
    said += prints("status", store, "--json")
    point = (tmp_path / "t.csv").read_text().splitlines()[1].split(",")[0]
    said += prints("show", store, point, "--json")
    assert "TOKEN" in said
    assert TOKEN not in said
    assert PLAIN not in said
    assert with_values(Path(store)) == with_values(tmp_path) == []


def test_only_the_owner_can_read_the_key(measured: Path) -> None:
    status = (measured / "S" / KEY_FILE).stat()
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_size == 32


def test_what_is_kept_says_nothing_without_the_key(tmp_path: Path) -> None:
    """Neither that two variables have the same value, nor that two stores have."""
    environment = ENVIRONMENT.replace(PLAIN, TOKEN)
    plan = make_plan(campaign(tmp_path, environment))
    kept = []
    for name in ("A", "B"):
        (site,) = plan_record(plan, create_store(tmp_path / name, "s"))["sites"].values()
        kept += site["partitions"]["board"]["environment"]["variables"].values()
    digests = {text.rpartition(":")[2] for text in kept}
    assert len(kept) == len(digests) == 4


def test_a_store_without_variables_has_no_key(tmp_path: Path) -> None:
    store = create_store(tmp_path / "S", "s")
    plan_record(make_plan(campaign(tmp_path, "")), store)
    assert not (store.root / KEY_FILE).exists()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (TOKEN, "tok-other", {"TOKEN"}),
        (f'TOKEN = "{TOKEN}", ', "", {"variables"}),
        ("TOKEN =", 'MORE = "1", TOKEN =', {"variables"}),
        ('secrets = ["TOKEN"]', "secrets = []", set()),
        ("x", "x", set()),
    ],
)
def test_a_changed_value_is_a_changed_set_up(
    measured: Path, tmp_path: Path, old: str, new: str, expected: set[str]
) -> None:
    copy = tmp_path / "S"
    shutil.copytree(measured / "S", copy)
    environment = ENVIRONMENT.replace(old, new)
    if "TOKEN =" not in environment:
        environment = environment.replace('["TOKEN"]', "[]")
    found = changes_of(open_store(copy), campaign(tmp_path / "files", environment))
    keys = {change.key.partition(" (")[0].rpartition(".")[2] for change in found}
    assert keys == expected
    shown = " ".join(map(str, found))
    assert TOKEN not in shown
    assert "tok-other" not in shown
    code = main(["run", str(tmp_path / "files/c.toml"), "--store", str(copy), "--quiet"])
    assert code == (2 if expected else 0)


def changes_of(store: Store, path: Path) -> list[Change]:
    """What a run of a campaign file would change in a store, as the driver asks it."""
    plan = make_plan(path)
    setups = [partition_setup(plan, store, *names, ["sp_fma"]) for names in plan.partitions]
    points = {file.stem: 1 for file in (store.root / "setups").glob("*.json")}
    return changes(setup_uses(store, points, {})[0], map(planned_record, setups))


def clear_record(path: Path) -> dict[str, Any]:
    """A set-up as earlier versions kept it: with the values."""
    plan = make_plan(path)
    store = create_store(path.parent / "unused", "u")
    record = planned_record(partition_setup(plan, store, *plan.partitions[0], ["sp_fma"]))
    site = plan.sites["jetson-tk1"].model_dump(mode="json")
    del site["partitions"]["board"]["environment"]["secrets"]
    return record | {"site": site}


def test_earlier_stores_compare_as_equal_and_show_no_value(tmp_path: Path) -> None:
    path = campaign(tmp_path)
    record = clear_record(path)
    assert TOKEN in json.dumps(record)
    store = create_store(tmp_path / "S", "s")
    write_setups(store, {setup_id(record): record})
    assert read_setup(store, setup_id(record)) == record
    assert changes_of(store, path) == []
    other = campaign(tmp_path / "other", changed(ENVIRONMENT, TOKEN, "tok-other"))
    assert len(changes_of(store, other)) == 1
    (use,) = setup_uses(store, {setup_id(record): 1}, {})[0]
    assert use.id == setup_id(record)
    assert TOKEN not in json.dumps(dict(use.record))


def test_an_export_of_an_earlier_store_has_no_value(tmp_path: Path) -> None:
    """The id of a set-up is a hash of it: the table names the one that stands beside it."""
    record = clear_record(campaign(tmp_path))
    store = create_store(tmp_path / "S", "s")
    measured = Measurement(point=a_point(), status="ok", setup=setup_id(record))
    with JournalWriter(store.journals) as journal:
        journal.append(encode_setup(record), encode(measured))
    (tmp_path / "out").mkdir()
    table = tmp_path / "out" / "t.parquet"
    assert main(["export", str(store.root), "--parquet", str(table)]) == 0
    assert with_values(tmp_path / "out") == []
    (name,) = pd.read_parquet(table)["setup"]
    beside = json.loads(table.with_name("t.parquet.sites.json").read_text())
    assert list(beside["setups"]) == [name]
    assert name != setup_id(record)
    assert setup_id(beside["setups"][name]) == name
    assert "TOKEN" in json.dumps(beside)
    # Nobody has the key: that of another process is another one.
    again = tmp_path / "again.parquet"
    words = ["export", str(store.root), "--parquet", str(again)]
    subprocess.run([program(), *words], check=True, capture_output=True)
    assert pd.read_parquet(again)["setup"].tolist() != [name]


def test_values_of_another_store_s_key_are_not_compared(measured: Path, tmp_path: Path) -> None:
    shutil.copytree(measured / "S", tmp_path / "S")
    (tmp_path / "S" / KEY_FILE).unlink()
    store = open_store(tmp_path / "S")
    assert changes_of(store, campaign(tmp_path)) == []
    names = campaign(tmp_path, changed(ENVIRONMENT, "PLACES", "PLACES2"))
    assert [change.key.rpartition(".")[2] for change in changes_of(store, names)] == ["variables"]


SLURM = """
name = "x"
[partitions.p]
scheduler = "slurm"
[partitions.p.environment]
variables = { TOKEN = "tok-5e9a1c77", PLACES = "cores-by-threads" }
secrets = ["TOKEN"]
"""


def test_the_printed_script_hides_what_is_secret(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(SLURM)
    (tmp_path / "c.toml").write_text(
        CAMPAIGN.split("settings", maxsplit=1)[0] + CAMPAIGN.split("\n", 4)[4]
    )
    for words in ([], ["--json"]):
        script = prints("plan", tmp_path / "c.toml", "--scripts", *words)
        assert "export TOKEN=" in script
        assert f"export PLACES={PLAIN}" in script
        assert TOKEN not in script


def test_the_script_goes_to_sbatch_without_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/words\ncat > {tmp_path}/script\n'
        f"ls -A {tmp_path}/temporary > {tmp_path}/files\necho Submitted batch job 7\n"
    )
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "site.toml").write_text(SLURM)
    site = read_site(tmp_path / "site.toml")
    slurm = SlurmScheduler(site)
    keywords = slurm.job_keywords("p", "dvfs-0", None)
    job = slurm.job_class()(scheduler="SCHEDULER", name="WORKER", **keywords)
    asyncio.run(job.start())
    assert f"export TOKEN={TOKEN}\n" in (tmp_path / "script").read_text()
    assert (tmp_path / "files").read_text() == ""
    assert TOKEN not in (tmp_path / "words").read_text()


def test_a_secret_must_be_a_variable(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(changed(SLURM, '["TOKEN"]', '["TOKN"]'))
    with pytest.raises(FileError, match=r"secrets.*TOKN"):
        read_site(tmp_path / "site.toml")
