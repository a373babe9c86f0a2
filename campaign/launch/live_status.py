"""The files in which a driver reports its run: the snapshot, the page and the metrics.

The metrics are OpenMetrics text for the textfile collector of Prometheus' node exporter. That
collector reads the older text format (prometheus/node_exporter, issue 1988), so this text is valid
in both: gauges only, without timestamps; ``# UNIT`` and ``# EOF`` are comments in the older one.
All files in a collector's folder share one name space: the label ``store`` distinguishes the
samples of two campaigns.

The planned points are counted once, from the states that the driver reads anyway. Then each
finished point changes one count, so that a snapshot costs the same at any size of the store.
"""

from __future__ import annotations

import html
import math
import os
import shlex
import socket
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from campaign.launch.outcome import limit_option
from campaign.launch.progress import PlainProgress
from campaign.launch.snapshot import (
    ENDED,
    MEASURING,
    STARTING,
    SUBMITTED,
    PartitionNow,
    PartitionSnapshot,
    SettingCounts,
    Snapshot,
    duration,
)
from campaign.plan.plan import Plan
from campaign.plan.point import Point
from campaign.store.hours import Spent
from campaign.store.layout import METRICS, PAGE, SNAPSHOT, Store, replace_file, sealed
from campaign.store.states import NEVER, State
from dvfs.dataset import COMPLETE
from dvfs.printable import printable
from dvfs.setting import AXES, Setting

PREFIX = "dvfs_campaign"
Sample = tuple[dict[str, str], float]
"""Labels and value."""
RELOAD_S = 10
STYLE = """\
:root { color-scheme: light dark; --text: #1b1b1b; --page: #fff; --soft: #5a5a5a; --line: #c8c8c8;
  --done: #cfe8d2; --part: #f4ecc6; --failed: #f6cfcb; }
@media (prefers-color-scheme: dark) { :root { --text: #e8e8e8; --page: #161616; --soft: #a8a8a8;
  --line: #4a4a4a; --done: #1f4a27; --part: #4a4115; --failed: #6a211b; } }
body { font: 16px/1.45 system-ui, sans-serif; color: var(--text); background: var(--page);
  max-width: 60rem; margin: 0 auto; padding: 0.7rem; overflow-wrap: anywhere; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.1rem; margin-top: 1.6rem; }
.soft { color: var(--soft); } progress { width: 100%; height: 1rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.85rem; }
th, td { border: 1px solid var(--line); padding: 0.2rem 0.45rem; text-align: right;
  white-space: nowrap; }
.done { background: var(--done); } .part { background: var(--part); }
.failed { background: var(--failed); font-weight: bold; }
"""
SNAPSHOT_EVERY_S = 2.0
PAGE_EVERY_S = 10.0
DONE, FAILED, LEFT = range(3)
Counts = dict[Setting, list[int]]
"""Setting -> the numbers of points done, failed and left."""


def metrics_text(snapshot: Snapshot) -> str:
    """The snapshot as OpenMetrics text."""
    campaign_labels = {"campaign": snapshot.campaign, "store": snapshot.store}
    running = snapshot.phase not in (SUBMITTED, ENDED)
    spent_s = snapshot.written_unix_s - snapshot.began_unix_s
    parts = [(campaign_labels | _labels(partition), partition) for partition in snapshot.partitions]
    families: list[tuple[str, str, str, list[Sample]]] = [
        ("running", "", "Whether the driver runs.", [(campaign_labels, float(running))]),
        (
            "written_timestamp_seconds",
            "seconds",
            "When the driver wrote this, in Unix time; it is gone where this stops.",
            [(campaign_labels, snapshot.written_unix_s)],
        ),
        ("run_seconds", "seconds", "How long this run has taken.", [(campaign_labels, spent_s)]),
        (
            "points",
            "",
            "Planned points by state.",
            [
                (labels | {"state": state}, float(count))
                for labels, part in parts
                for state, count in (
                    ("done", part.done),
                    ("failed", part.failed),
                    ("left", part.left),
                )
            ],
        ),
        (
            "run_energy_joules",
            "joules",
            "Energy of the points that this run measured.",
            [(labels, part.energy_j) for labels, part in parts if part.energy_j is not None],
        ),
        (
            "spent_node_hours",
            "hours",
            "Node-hours that all runs have spent, as far as is known.",
            [(labels, part.node_hours) for labels, part in parts if part.node_hours is not None],
        ),
        (
            "max_node_hours",
            "hours",
            "Node-hours at which the run stops.",
            [(campaign_labels, limit) for limit in [snapshot.max_node_hours] if limit is not None],
        ),
        (
            "workers",
            "",
            "Workers that are connected.",
            [(labels, float(part.now.workers)) for labels, part in parts if part.now],
        ),
        (
            "jobs",
            "",
            "Jobs in the queue of Slurm by state.",
            [
                (labels | {"state": state}, float(count))
                for labels, part in parts
                if part.slurm and part.now and not part.now.silent
                for state, count in (("running", part.now.running), ("pending", part.now.pending))
            ],
        ),
        (
            "pending_seconds",
            "seconds",
            "How long the longest pending job has been pending.",
            [
                (labels, part.now.pending_s)
                for labels, part in parts
                if part.slurm and part.now and part.now.pending
            ],
        ),
    ]
    lines = (line for family in families if family[3] for line in _family(*family))
    return "\n".join((*lines, "# EOF", ""))


def _labels(partition: PartitionSnapshot) -> dict[str, str]:
    return {
        "site": partition.site,
        "partition": partition.partition,
        "simulated": str(partition.simulated).lower(),
    }


def _family(name: str, unit: str, text: str, samples: list[Sample]) -> Iterator[str]:
    full = f"{PREFIX}_{name}"
    yield f"# TYPE {full} gauge"
    if unit:
        yield f"# UNIT {full} {unit}"
    yield f"# HELP {full} {text}"
    for labels, value in samples:
        inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{full}{{{inside}}} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def status_page(snapshot: Snapshot) -> str:
    """The snapshot as a page of HTML."""
    ended = snapshot.phase == ENDED
    simulated = " (simulated)" if snapshot.simulated else ""
    title = f"{_text(snapshot.campaign)}{simulated}"
    reload = "" if ended else f'<meta http-equiv="refresh" content="{RELOAD_S}">\n'
    spent = duration(snapshot.written_unix_s - snapshot.began_unix_s)
    written = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(snapshot.written_unix_s))
    driver = f"{_text(snapshot.host)}, PID {snapshot.pid}"
    if ended:
        state = f"<p>Ended after {spent}, exit code {snapshot.exit_code}: {_text(snapshot.end)}</p>"
    else:
        state = (
            f"<p>{_text(snapshot.phase.capitalize())} for {spent}. Driver: {driver}.</p>\n"
            f'<p class="soft">The driver writes this page every {RELOAD_S} s. If the time above '
            f"stays the same for minutes, the driver is gone. To go on: "
            f"<code>{_text(snapshot.resume)}</code></p>"
        )
    notes = "".join(f"<li>{_lines(note)}</li>\n" for note in reversed(snapshot.notes))
    parts = "\n".join(map(_partition, snapshot.partitions))
    limit = ""
    if snapshot.max_node_hours is not None:
        limit = f"<p>No more points begin at {snapshot.max_node_hours:g} node-hours in all.</p>\n"
    return f"""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
{reload}<title>{title}</title>
<style>
{STYLE}</style>
</head>
<body>
<h1>{title}</h1>
<p class="soft">{_text(snapshot.store)}; written {written}</p>
{state}
{limit}{parts}
{f"<h2>Messages, the last one first</h2>{chr(10)}<ul>{chr(10)}{notes}</ul>" if notes else ""}
</body>
</html>
"""


def _partition(partition: PartitionSnapshot) -> str:
    total = partition.done + partition.failed + partition.left
    finished = partition.done + partition.failed
    simulated = " (simulated)" if partition.simulated else ""
    now = f"<p>{_text(str(partition.now))}</p>\n" if partition.now else ""
    energy = ""
    if partition.energy_j is not None:
        kind = "Simulated energy" if partition.simulated else "Energy"
        energy = f"<p>{kind} of the points measured in this run: {partition.energy_j:.4g} J</p>\n"
    return f"""\
<h2>{_text(partition.label)}{simulated}</h2>
<progress max="{max(total, 1)}" value="{finished}" aria-label="points finished"></progress>
<p>{partition.done} done, {partition.failed} failed, {partition.left} left, of {total} points</p>
{f'<p class="soft">In this run: {_text(partition.line)}</p>' if partition.line else ""}
{now}<p>Spent in all runs: {partition.spent}</p>
{energy}{_grid(partition.settings)}"""


def _grid(settings: tuple[SettingCounts, ...]) -> str:
    """A table of settings: a row for each core clock, a column for each set of other values."""
    cells = {}
    for row in settings:
        setting = Setting.of_row(vars(row))
        cells[row.core_mhz, replace(setting, core_mhz=None)] = row
    columns = sorted({column for _, column in cells})
    heads = (
        ", ".join([f"memory {_mhz(column.mem_mhz)}", *column.further_texts]) for column in columns
    )
    head = "".join(f'<th scope="col">{_text(text)}</th>' for text in heads)
    rows = "\n".join(
        f'<tr><th scope="row">core {_mhz(core_mhz)}</th>'
        + "".join(_cell(cells.get((core_mhz, column))) for column in columns)
        + "</tr>"
        for core_mhz in sorted({core_mhz for core_mhz, _ in cells}, key=lambda mhz: mhz or 0.0)
    )
    return f"""\
<p class="soft">Points done of those planned, by core and memory clock in MHz:</p>
<div class="wide"><table>
<tr><td></td>{head}</tr>
{rows}
</table></div>"""


def _mhz(mhz: float | None) -> str:
    return "unchanged" if mhz is None else f"{mhz:g}"


def _cell(row: SettingCounts | None) -> str:
    if row is None:
        return "<td></td>"
    total = row.done + row.failed + row.left
    kind = "failed" if row.failed else "done" if not row.left else "part" if row.done else "none"
    failed = f", {row.failed} failed" if row.failed else ""
    return f'<td class="{kind}">{row.done}/{total}{failed}</td>'


def _lines(text: str) -> str:
    return "<br>".join(map(_text, text.split("\n")))


def _text(text: str) -> str:
    """Text of one line, escaped for HTML."""
    return html.escape(printable(text))


class LiveStatus:
    """Counts a run's points, and writes its progress into the store now and then.

    The run does not depend on these files: if they cannot be written, it prints one message.
    """

    def __init__(
        self,
        plan: Plan,
        store: Store,
        progress: PlainProgress,
        campaign_file: Path | None,
        max_node_hours: float | None = None,
        verb: str = "run",
    ) -> None:
        self.spent: Mapping[str, Spent] = {}
        """"site/partition" -> the node-hours of all runs so far."""
        self.resume = resume_command(campaign_file, store, verb)
        """The command that continues the campaign, without a limit of node-hours."""
        self._plan = plan
        self._store = store
        self._progress = progress
        self._counts: dict[tuple[str, str], Counts] = {}
        self._energy_j: dict[str, float] = {}
        self._now: Mapping[str, PartitionNow] = {}
        self._snapshot_s = self._page_s = -math.inf
        self._failed = False
        began_unix_s = time.time()
        self._base = Snapshot(
            campaign=plan.campaign.name,
            store=str(store.root),
            host=socket.gethostname(),
            pid=os.getpid(),
            job="",
            phase=STARTING,
            began_unix_s=began_unix_s,
            written_unix_s=began_unix_s,
            resume=self.resume + limit_option(max_node_hours),
            max_node_hours=max_node_hours,
        )

    def count(
        self, points: Iterable[Point], state: Mapping[str, State], todo: Collection[str]
    ) -> None:
        """Count the planned points. ``todo``: the ids of those that this run measures."""
        self._counts = {partition: {} for partition in self._plan.partitions}
        for point in points:
            complete = state.get(point.id, NEVER)[0] in COMPLETE
            kind = DONE if complete else LEFT if point.id in todo else FAILED
            self._counts_of(point)[kind] += 1

    def add(self, points: Iterable[Point]) -> None:
        """Count further points that this run measures."""
        for point in points:
            self._counts_of(point)[LEFT] += 1

    def _counts_of(self, point: Point) -> list[int]:
        return self._counts[point.site, point.partition].setdefault(point.setting, [0, 0, 0])

    def point_finished(
        self, point: Point, status: str, energy_j: float | None, will_retry: bool
    ) -> None:
        """Count a point that was measured, or failed."""
        if will_retry:
            return
        counts = self._counts_of(point)
        counts[LEFT] -= 1
        counts[DONE if status in COMPLETE else FAILED] += 1
        if status in COMPLETE and energy_j is not None:
            label = f"{point.site}/{point.partition}"
            self._energy_j[label] = self._energy_j.get(label, 0.0) + energy_j

    def show(self, now: Mapping[str, PartitionNow]) -> None:
        """Write the files that are due, with the state of the active partitions."""
        self._now = now
        if self._base.phase != MEASURING:
            self.enter(MEASURING)
        elif time.monotonic() - self._snapshot_s >= SNAPSHOT_EVERY_S:
            self._write(time.monotonic() - self._page_s >= PAGE_EVERY_S)

    def enter(self, phase: str) -> None:
        """Enter another phase of the run, and write all files."""
        self._base = replace(self._base, phase=phase)
        self._write(True)

    def submitted(self, job: str) -> None:
        """Write all files: the driver's job of this name waits in Slurm's queue."""
        self._base = replace(self._base, job=job)
        self.enter(SUBMITTED)

    def end(self, exit_code: int, text: str) -> None:
        """Write all files for the last time, with the end of the run."""
        self._now = {}
        self._base = replace(self._base, exit_code=exit_code, end=text)
        self.enter(ENDED)

    def _write(self, page_too: bool) -> None:
        self._snapshot_s = time.monotonic()
        snapshot = self._snapshot()
        files = {SNAPSHOT: sealed(SNAPSHOT, snapshot.as_dict())}
        if page_too:
            self._page_s = self._snapshot_s
            texts = {PAGE: status_page(snapshot), METRICS: metrics_text(snapshot)}
            files |= {name: text.encode("utf-8", "replace") for name, text in texts.items()}
        try:
            for name, data in files.items():
                replace_file(self._store.root / name, data, False)
        except OSError as error:
            if not self._failed:
                self._failed = True
                self._progress.note(
                    f"{self._store.root}: how the run stands cannot be written "
                    f"({error.strerror}); campaign watch and {PAGE} show what was written last"
                )

    def _snapshot(self) -> Snapshot:
        return replace(
            self._base,
            written_unix_s=time.time(),
            notes=tuple(self._progress.recent),
            partitions=tuple(
                self._partition(site, partition, counts)
                for (site, partition), counts in self._counts.items()
            ),
        )

    def _partition(self, site: str, partition: str, counts: Counts) -> PartitionSnapshot:
        label = f"{site}/{partition}"
        spent = self.spent.get(label, Spent())
        return PartitionSnapshot(
            site=site,
            partition=partition,
            simulated=self._plan.sites[site].is_simulated,
            slurm=self._plan.sites[site].partitions[partition].has_jobs,
            line=self._progress.line(label),
            energy_j=self._energy_j.get(label),
            node_hours=spent.node_hours,
            node_hours_complete=spent.complete,
            now=self._now.get(label),
            settings=tuple(
                SettingCounts(
                    **{name: getattr(setting, name) for name in AXES},
                    done=done,
                    failed=failed,
                    left=left,
                )
                for setting, (done, failed, left) in sorted(counts.items())
            ),
        )


def resume_command(campaign_file: Path | None, store: Store, verb: str) -> str:
    """The command that continues a campaign."""
    file = "CAMPAIGN.toml" if campaign_file is None else shlex.quote(str(campaign_file.resolve()))
    return f"campaign {verb} {file} --store {shlex.quote(str(store.root))}"
