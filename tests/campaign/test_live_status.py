"""What a driver writes for those who watch its run: the snapshot, the page and the metrics."""

from __future__ import annotations

import csv
import re
import shlex
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

from campaign.launch.live_status import metrics_text, status_page
from campaign.launch.snapshot import (
    ENDED,
    MEASURING,
    PartitionNow,
    PartitionSnapshot,
    SettingCounts,
    Snapshot,
    read_snapshot,
)
from campaign.results import Results
from campaign.store.hours import Spent
from campaign.store.layout import open_store
from campaign.verbs.command_line import main
from tests.commands import refuses, warns
from tests.watched import CAMPAIGN

HOSTILE = "<script>alert('\"&\x1b[31m')</script>\\n"


def snapshot(phase: str = MEASURING, text: str = HOSTILE) -> Snapshot:
    now = PartitionNow(workers=1, running=1, pending=2, pending_s=61.0, reason=text, measuring=text)
    grid = tuple(
        SettingCounts(core_mhz=core_mhz, mem_mhz=None, done=done, failed=failed, left=4)
        for core_mhz, done, failed in ((1400.0, 6, 0), (2600.0, 3, 2))
    )
    partition = PartitionSnapshot(
        site=text,
        partition="cpu-a",
        simulated=False,
        slurm=True,
        line=text,
        energy_j=12.5,
        now=now,
        settings=grid,
        node_hours=0.4,
    )
    return Snapshot(
        campaign=text,
        store=f"/tmp/{text}\n",
        host=text,
        pid=7,
        job="",
        phase=phase,
        began_unix_s=1000.0,
        written_unix_s=1100.0,
        resume=text,
        exit_code=1 if phase == ENDED else None,
        end=text,
        notes=(f"{text}\n{text}",),
        partitions=(partition,),
        max_node_hours=2.5,
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a small simulated campaign that a run has completed."""
    folder = tmp_path_factory.mktemp("live")
    (folder / "c.toml").write_text(CAMPAIGN)
    assert main(["run", str(folder / "c.toml"), "--store", str(folder / "S"), "--quiet"]) == 0
    return folder / "S"


def test_the_counts_and_the_energy_are_those_of_the_exported_table(
    store: Path, tmp_path: Path
) -> None:
    assert main(["export", str(store), "--csv", str(tmp_path / "all.csv")]) == 0
    with (tmp_path / "all.csv").open() as file:
        rows = list(csv.DictReader(file))
    written = read_snapshot(open_store(store))
    assert written is not None
    (partition,) = written.partitions
    assert (written.phase, written.exit_code) == (ENDED, 0)
    assert {(row.core_mhz, row.mem_mhz): row.done for row in partition.settings} == Counter(
        (float(row["core_mhz"]), float(row["mem_mhz"])) for row in rows
    )
    assert (partition.failed, partition.left) == (0, 0)
    (row,) = Results(open_store(store)).status().rows()
    assert partition.spent == Spent(row["node_hours"], row["node_hours_complete"])
    assert partition.spent.complete and row["node_hours"] > 0.0
    assert partition.energy_j == pytest.approx(
        sum(float(row["energy_j"]) * int(row["iterations"]) for row in rows)
    )
    assert main(["status", str(store), "--verify"]) == 0


def test_a_command_at_the_end_gets_the_results_without_a_shell(store: Path, tmp_path: Path) -> None:
    campaign = str(store.parent / "c.toml")
    seen = tmp_path / "a b;$(seen)"
    script = (
        "import os, sys; open(sys.argv[1], 'w').write("
        "' '.join(os.environ['CAMPAIGN_' + n] for n in ('STATUS', 'MEASURED', 'LEFT', 'STORE')))"
    )
    command = shlex.join([sys.executable, "-c", script, str(seen)])
    words = ["run", campaign, "--store", str(store), "--quiet", "--notify"]
    assert main([*words, command]) == 0
    assert seen.read_text() == f"complete 16 0 {store}"
    assert (
        warns(*words, "sh -c 'echo no mail >&2; exit 3'")
        == "campaign: warning: --notify: sh ended with 3: no mail\n"
    )
    for wrong in ("no-such-program x", "'", ""):
        assert refuses(*words, wrong).startswith(f"campaign: --notify {wrong!r}: ")


def test_a_later_run_counts_the_points_of_earlier_ones_and_has_no_energy(store: Path) -> None:
    assert main(["run", str(store.parent / "c.toml"), "--store", str(store), "--quiet"]) == 0
    written = read_snapshot(open_store(store))
    assert written is not None
    (partition,) = written.partitions
    assert (partition.done, partition.left, partition.energy_j) == (16, 0, None)
    page = (store / "status.html").read_text()
    assert "jetson-tk1/board (simulated)" in page
    assert "16 done, 0 failed, 0 left, of 16 points" in page


class Elements(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.elements.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_shows_hostile_names_as_text_and_has_no_script() -> None:
    page = status_page(snapshot())
    shown = Elements(page)
    assert "script" not in shown.elements
    assert "<script>alert('\"&\\x1b[31m')</script>" in shown.text
    assert "\x1b" not in page
    assert "Spent in all runs: at least 0.4 node-hours" in shown.text
    assert "No more points begin at 2.5 node-hours in all" in shown.text
    assert "6/10" in shown.text and "3/9, 2 failed" in shown.text
    assert '<meta http-equiv="refresh" content="10">' in page
    assert "refresh" not in status_page(snapshot(ENDED))


# OpenMetrics 1.0, section 5: a sample's line, and the escapes in a label's value.
SAMPLE = re.compile(r'([a-z_]+)\{((?:[a-z]+="(?:[^"\\\n]|\\[\\"n])*",?)+)\} (\d+(?:\.\d+)?)')


def test_the_metrics_are_openmetrics_of_families_with_their_units() -> None:
    text = metrics_text(snapshot())
    assert text.endswith("\n# EOF\n")
    kinds: dict[str, str] = {}
    samples: dict[str, list[float]] = {}
    for line in text.split("\n")[:-2]:
        if line.startswith("# TYPE "):
            _, _, family, kinds[family] = line.split(" ")
        elif line.startswith("# UNIT "):
            _, _, family, unit = line.split(" ")
            assert family.endswith(f"_{unit}")
        elif not line.startswith("# HELP "):
            match = SAMPLE.fullmatch(line)
            assert match, line
            assert match[1] == family  # a family's samples stand together, under its type
            samples.setdefault(family, []).append(float(match[3]))
    # The only types that both formats know under one name without a suffix.
    assert set(kinds.values()) == {"gauge"}
    assert samples["dvfs_campaign_points"] == [9.0, 2.0, 8.0]
    assert samples["dvfs_campaign_jobs"] == [1.0, 2.0]
    assert samples["dvfs_campaign_pending_seconds"] == [61.0]
    assert samples["dvfs_campaign_run_energy_joules"] == [12.5]
    assert samples["dvfs_campaign_spent_node_hours"] == [0.4]
    assert samples["dvfs_campaign_max_node_hours"] == [2.5]


def test_the_metrics_of_a_run_that_has_ended_claim_no_jobs() -> None:
    ended = metrics_text(Snapshot(**vars(snapshot(ENDED, "x")) | {"partitions": ()}))
    assert 'dvfs_campaign_running{campaign="x",store="/tmp/x\\n"} 0.0' in ended
    assert "jobs" not in ended


def test_a_snapshot_comes_back_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "store.json").write_text('{"format": 3, "name": "x"}')
    own = open_store(tmp_path)
    own.write_json("status.json", snapshot().as_dict())
    assert read_snapshot(own) == snapshot()
