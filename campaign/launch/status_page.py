"""A snapshot as a page: one file without a script, which a browser loads again by itself."""

from __future__ import annotations

import html
import time
from collections.abc import Iterable
from dataclasses import replace

from campaign.launch.partition_now import duration
from campaign.launch.snapshot import ENDED, PartitionSnapshot, SettingCounts, Snapshot
from dvfs.printable import printable
from dvfs.setting import Setting

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
    """A table of settings: a row for each core clock, a column for what else they have."""
    cells = {}
    for row in settings:
        setting = Setting.of_row(vars(row))
        cells[row.core_mhz, replace(setting, core_mhz=None)] = row
    memory = sorted({at for _, at in cells})
    heads = (", ".join([f"memory {_mhz(at.mem_mhz)}", *at.further_texts]) for at in memory)
    head = "".join(f'<th scope="col">{_text(text)}</th>' for text in heads)
    rows = "\n".join(
        f'<tr><th scope="row">core {_mhz(core_mhz)}</th>'
        + "".join(_cell(cells.get((core_mhz, at))) for at in memory)
        + "</tr>"
        for core_mhz in _distinct(core_mhz for core_mhz, _ in cells)
    )
    return f"""\
<p class="soft">Points done of those planned, by core and memory clock in MHz:</p>
<div class="wide"><table>
<tr><td></td>{head}</tr>
{rows}
</table></div>"""


def _distinct(clocks: Iterable[float | None]) -> list[float | None]:
    return sorted(set(clocks), key=lambda mhz: mhz or 0.0)


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
