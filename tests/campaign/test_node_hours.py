"""Node-hours: how what several runs know is put together, and a run that stops at its limit."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.report.display_tables import facts
from campaign.launch.campaign_run import CampaignRun
from campaign.launch.live_status import LiveStatus
from campaign.launch.node_hours import NodeHours
from campaign.launch.outcome import missing_points
from campaign.launch.progress import PlainProgress
from campaign.launch.slurm import jobs_listed
from campaign.plan.plan import make_plan
from campaign.results import open_store
from campaign.results.report import report_content
from campaign.store.hours import (
    FOLDER,
    JobTime,
    PartitionHours,
    RunHours,
    Spent,
    merged,
    spent,
    spent_by_partition,
    total,
)
from campaign.store.layout import create_store
from campaign.store.states import point_states
from campaign.verbs.command_line import main, parser
from campaign.verbs.driver import driver_words
from tests.campaign.begun_points import assert_none_was_cut_off, command_with_log
from tests.commands import prints

SITE = """\
name = "here"
[clocks]
control = "fixed"
[partitions.p]
scheduler = "local"
nodes = 2
"""
CAMPAIGN = """\
name = "limited"
repeats = 12
[[sites]]
site = "here.toml"
[protocol]
min_duration_s = 0.3
warm_up_s = 0.0
"""


Seen = tuple[str, float, int, bool]
"""A job's id, elapsed seconds, nodes, and whether it has ended."""
SEEN = st.tuples(
    st.sampled_from("abc"),
    st.integers(0, 10**6).map(float),
    st.integers(0, 4),
    st.booleans(),
)


@given(looks=st.lists(SEEN, max_size=12), data=st.data())
def test_updates_of_killed_runs_in_any_order_give_the_largest_of_each_job(
    looks: list[Seen], data: st.DataObject
) -> None:
    """Closed form: the sum over jobs of the longest time and the most nodes that anybody saw."""
    ended_in_order = data.draw(st.lists(st.booleans(), min_size=3, max_size=3))
    runs: list[dict[str, PartitionHours]] = [
        {"s/p": PartitionHours(whole=whole)} for whole in ended_in_order
    ]
    for job, elapsed_s, nodes, ended in data.draw(st.permutations(looks)):
        own = data.draw(st.sampled_from(range(3)))
        time = JobTime(elapsed_s=elapsed_s, nodes=nodes, ended=ended)
        look = {"s/p": PartitionHours(jobs={job: time}, whole=True)}
        runs[own] = merged(data.draw(st.permutations([runs[own], look])))
    whole = merged(data.draw(st.permutations(runs)))["s/p"]
    jobs = {job for job, *_ in looks}
    node_s = sum(
        max(own[1] for own in looks if own[0] == job)
        * max(own[2] for own in looks if own[0] == job)
        for job in jobs
    )
    all_seen = all(ended_in_order) and all(
        any(own[3] for own in looks if own[0] == job) for job in jobs
    )
    known = spent(whole)
    assert known.complete == all_seen
    assert (known.node_hours or 0.0) == pytest.approx(node_s / 3600.0)
    assert (known.node_hours is None) == (node_s == 0.0 and not all_seen)


def test_hours_of_versions_that_counted_none_are_missing(tmp_path: Path) -> None:
    store, shows = create_store(tmp_path / "S", "old"), PlainProgress(quiet=True)
    for before, complete in ((True, False), (False, False)):  # the first run's file says it for all
        hours = NodeHours(store, shows, None)
        hours.begin("s/p", measured_before=before)
        hours.begin("s/q", measured_before=False)
        for label in ("s/p", "s/q"):
            hours.add(label, {f"{label} {before}": JobTime(elapsed_s=3600.0, ended=True)})
            hours.end(label, all_seen=True)
        hours.write(now=True)
        assert spent_by_partition(store)[0]["s/p"].complete is complete
        assert spent_by_partition(store)[0]["s/q"].complete
    assert NodeHours(store, shows, 4.0).reached()
    assert not NodeHours(store, shows, 4.1).reached()
    assert NodeHours(store, shows, 4.1).reached(more_s=360.1)


@pytest.mark.parametrize("verb", ["run", "tune"])
def test_the_driver_elsewhere_gets_the_same_options(tmp_path: Path, verb: str) -> None:
    words = [verb, "c.toml", "--detach", "--max-node-hours", "1234567.8", "--retry-failed"]
    top = parser()
    given = top.parse_args([*words, "--notify", "true --x"])
    store = create_store(tmp_path / "S", "x")
    again = top.parse_args(driver_words(given, store))
    here = {"detach": False, "campaign": str(Path("c.toml").resolve()), "store": str(store.root)}
    assert vars(again) == vars(given) | here


def test_what_is_missing_is_never_zero() -> None:
    ended = JobTime(elapsed_s=1440.0, ended=True)
    whole = PartitionHours(jobs={"1": ended}, whole=True)
    cut_off = PartitionHours(jobs={"1": ended, "2": JobTime(elapsed_s=0.0)}, whole=True)
    killed = PartitionHours(jobs={"1": ended})
    assert str(spent(whole)) == "0.4 node-hours"
    assert str(spent(cut_off)) == str(spent(killed)) == "at least 0.4 node-hours"
    assert str(spent(PartitionHours())) == str(Spent()) == "unknown"
    assert str(spent(PartitionHours(whole=True))) == "0 node-hours"  # no job has ever begun
    assert str(total([spent(whole), Spent()])) == "at least 0.4 node-hours"
    assert str(Spent(0.0123, True)) == "less than 0.1 node-hours"
    assert str(Spent(0.0123, False)) == "at least 0.012 node-hours"
    assert str(Spent(12345.6, True)) == "12,346 node-hours"


@pytest.mark.parametrize(
    ("state", "elapsed", "nodes", "expected"),
    [
        ("RUNNING", "1-02:03:04", "2", JobTime(elapsed_s=93784.0, nodes=2)),
        ("COMPLETING", "12:34", "1", JobTime(elapsed_s=754.0, ended=True)),
        ("NODE_FAIL", "2:00:00", "1", JobTime(elapsed_s=7200.0, ended=True)),
        ("PENDING", "0:00", "1", JobTime(elapsed_s=0.0)),
        ("TIMEOUT", "INVALID", "", JobTime(elapsed_s=0.0)),
    ],
)
def test_times_as_squeue_prints_them(
    state: str, elapsed: str, nodes: str, expected: JobTime
) -> None:
    """By squeue's manual, %M: days-hours:minutes:seconds."""
    (job,) = jobs_listed(f"7|name|{state}|{elapsed}|{nodes}|None\n")
    assert job.time == expected


class LimitAtFirst(PlainProgress):
    """Sets a limit that is spent already as soon as the first point begins."""

    def __init__(self, log: Path) -> None:
        super().__init__(quiet=True)
        self.log = log
        self.hours: NodeHours | None = None

    def start(self, points: dict[str, int], dashboards: dict[str, str]) -> None:
        super().start(points, dashboards)
        threading.Thread(target=self._limit, daemon=True).start()

    def _limit(self) -> None:
        while not self.log.exists():
            time.sleep(0.01)
        assert self.hours is not None
        self.hours.most = 1e-6


def test_a_run_stops_in_order_at_its_limit(tmp_path: Path, capsys) -> None:
    campaign, log = tmp_path / "c.toml", tmp_path / "log"
    (tmp_path / "here.toml").write_text(SITE)
    campaign.write_text(CAMPAIGN + command_with_log(log, 0.3))
    plan = make_plan(campaign)
    store = create_store(tmp_path / "S", "limited")
    progress = LimitAtFirst(log)
    live = LiveStatus(plan, store, progress, campaign)
    todo = missing_points(plan, {}, False)
    live.count(plan.points, {}, {point.id for point, _ in todo})
    hours = progress.hours = NodeHours(store, progress, None)
    hours.begin("here/p", measured_before=False)
    left = {("here", "p"): len(todo)}
    assert hours.estimate_note(plan, left) == ""
    assert NodeHours(store, progress, 1.0).estimate_note(plan, left) == ""
    assert "more than --max-node-hours 1e-06" in (
        NodeHours(store, progress, 1e-6).estimate_note(plan, left)
    )
    began = time.monotonic()
    given_up = CampaignRun(
        plan=plan,
        store=store,
        progress=progress,
        live=live,
        hours=hours,
        todo=todo,
        retry_failed=False,
        interrupted=threading.Event(),
        dashboard="127.0.0.1:0",
        chooser=None,
    ).run_until_done()
    took_s = time.monotonic() - began
    assert given_up == {"here/p": "--max-node-hours 1e-06 is reached"}
    states = point_states(store)
    measured = sum(status == "ok" for status, _ in states.values())
    assert 0 < measured < 8, "the first eight are with the workers when the limit is reached"
    assert measured == len(states), "no point has failed"
    assert_none_was_cut_off(log)
    # Of both workers together, from before they started until they had ended.
    counted = spent_by_partition(store)[0]["here/p"]
    assert counted.complete
    assert counted.node_hours is not None
    assert 0.7 * 2.0 * took_s < counted.node_hours * 3600.0 < 2.0 * took_s

    # A later run counts what is spent, starts nothing, and says how to go on.
    words = ["run", str(campaign), "--store", str(store.root), "--quiet"]
    (line,) = prints(*words, "--max-node-hours", "1e-6", code=1).splitlines()
    assert line.endswith(
        f"{12 - measured} left: not complete; --max-node-hours 1e-06 is reached; to go on, allow "
        f"more: campaign run {campaign} --store {store.root} --max-node-hours HOURS"
    )
    assert spent_by_partition(store)[0]["here/p"] == counted

    # One that was killed leaves a lower bound.
    killed = RunHours(partitions={"here/p": PartitionHours(jobs={"x": JobTime(elapsed_s=7200.0)})})
    store.write_json(f"{FOLDER}/killed.json", killed.model_dump(mode="json"))
    (row,) = open_store(store.root).status().rows()
    assert row["node_hours"] == pytest.approx(2.0 + (counted.node_hours or 0.0))
    assert not row["node_hours_complete"]
    main(["status", str(store.root)])
    assert "at least 2" in capsys.readouterr().out
    (site,) = report_content(store).sites
    assert ("node-hours spent", "at least 2") in facts(site.measured)
    (store.root / FOLDER / "killed.json").write_text("{")
    (row,) = open_store(store.root).status().rows()
    assert (row["node_hours"], row["node_hours_complete"]) == (counted.node_hours, False)
    assert any("killed.json" in line for line in open_store(store.root).status().damage)


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "much"])
def test_a_limit_that_is_no_positive_number_is_one_line(value: str, tmp_path: Path, capsys) -> None:
    try:
        code = main(["run", str(tmp_path / "c.toml"), f"--max-node-hours={value}"])
    except SystemExit as error:
        code = error.code
    assert code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"--max-node-hours: found {value!r}" in line or f"found {value};" in line
