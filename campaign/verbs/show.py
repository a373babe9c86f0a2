"""show: everything in the store about one measurement, with its trace as a plot."""

from __future__ import annotations

import math
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from campaign.verbs.options import add_all, add_json, add_store
from campaign.verbs.printing import WIDTH, answer, began_text, explain, print_table, say
from dvfs.setting import Setting

if TYPE_CHECKING:
    from campaign.results.measurement import ShownMeasurement

SUMMARY = "show one measurement: times, energies, clocks, meters, counts, set-up and its trace"
MORE = (
    "The trace is drawn with braille characters, and in plain ASCII where the output is not UTF-8."
)
EXAMPLE = "campaign show campaign-demo/store f389da64"
MOST_PLOTS = 3
"""The most channels that are drawn without ``--all``."""
FROM_SETUP = {
    "campaign": ("campaign",),
    "version": ("versions", "version"),
    "commit": ("versions", "commit"),
    "CPU": ("node", "cpu"),
    "GPUs": ("node", "gpus"),
    "GPU driver": ("node", "gpu_driver"),
    "board": ("node", "board"),
    "release of Linux": ("node", "os_kernel"),
    "Slurm cluster": ("slurm", "cluster"),
    "Slurm job": ("slurm", "job"),
    "Slurm partition": ("slurm", "partition"),
}
"""Name -> keys of the entries of the set-up's record that are shown."""
SHOWN_APART = ("flags", "simulated", "imported")


def add_arguments(parser: ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument("point", metavar="POINT", help="the point's id, or the beginning of it")
    parser.add_argument("--svg", metavar="F", help="also write the trace as a drawing to this file")
    add_all(parser)
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Print the measurement."""
    from campaign.results import open_store  # noqa: PLC0415

    shown = open_store(arguments.store).measurement(arguments.point)
    answer(arguments.json, shown.as_dict, lambda: _print(shown, arguments.all))
    if arguments.svg:
        shown.write_svg(arguments.svg)
        if not arguments.json:
            say(f"trace: {arguments.svg}")
    return 0


def _print(shown: ShownMeasurement, every_row: bool) -> None:
    from analysis.figures.labels import setting_label  # noqa: PLC0415

    row = shown.scalars
    setting = setting_label(Setting.of_row(row))
    simulated = " (simulated)" if shown.simulated else " (imported)" if row["imported"] else ""
    where = f"{row['site']}/{row['partition']}" if row["partition"] else row["site"]
    node = f" on node {row['node']}" if row["node"] else ""
    say(f"point {row['point_id']}{simulated}")
    explain(f"{shown.instance.label} at {setting}, {where}{node}{began_text(row['start_unix_s'])}")
    explain(
        f"status {row['status']}, repeat {row['repeat']}, attempt {row['attempt'] + 1}, "
        f"MPI ranks on each node: {row['ranks']}"
    )
    for line in row["text"].splitlines():
        explain(f"  {line}")
    if math.isfinite(row["time_s"]):
        _print_measured(shown, every_row)
    for flag in shown.provenance.get("flags", ()):
        explain(f"flag: {flag}")
    say()
    explain(f"set-up: {row['setup'] or 'no record'}")
    for name, value in _facts(shown):
        explain(f"  {name}: {value}")
    if math.isfinite(row["time_s"]):
        _print_trace(shown, every_row)


def _print_measured(shown: ShownMeasurement, every_row: bool) -> None:
    from analysis.measurements.provenance import UNPROVEN  # noqa: PLC0415

    row = shown.scalars
    second = "mem" if math.isnan(row["uncore_mhz"]) else "uncore"
    name = "memory" if second == "mem" else second
    say()
    print_table(["quantity", "value", "uncertainty", "unit"], list(_quantities(shown)))
    say()
    print_table(
        ["clock", "asked MHz", "achieved MHz", "timed MHz", "V"],
        [
            ["core", *(row[f"core_{n}"] for n in ("mhz", "mhz_achieved", "mhz_timed", "v"))],
            [name, row[f"{second}_mhz"], row["mem_mhz_achieved"], None, row["mem_v"]],
        ],
    )
    proof = {"": "nothing, and none was asked for", UNPROVEN: "nothing (clock unproven)"}
    explain(f"clocks shown by: {proof.get(shown.clock_proof, shown.clock_proof)}")
    explain(f"voltages from: {row['voltage_origin'] or 'none is known'}")
    _print_counts(shown)
    _print_meters(shown, every_row)


def _quantities(shown: ShownMeasurement) -> Iterator[list[Any]]:
    row = shown.scalars
    iterations = row["iterations"] or None
    yield ["time of an iteration", row["time_s"], None, "s"]
    yield ["energy of an iteration", row["energy_j"], row["energy_std_j"], "J"]
    yield ["mean power", shown.power_w, None, "W"]
    yield ["iterations", iterations, None, "1"]
    yield ["windows", shown.provenance.get("protocol", {}).get("windows"), None, "1"]
    yield ["time of the windows", row["time_s"] * (iterations or math.nan), None, "s"]


def _print_counts(shown: ShownMeasurement) -> None:
    from dvfs.dataset import class_unit  # noqa: PLC0415

    if not shown.counts:
        say("operation counts: not known")
        return
    rows = [
        [name, count, class_unit(name), count / shown.scalars["time_s"], f"{class_unit(name)}/s"]
        for name, count in shown.counts.items()
    ]
    say()
    print_table(["class", "in an iteration", "unit", "rate", "unit"], rows)


def _print_meters(shown: ShownMeasurement, every_row: bool) -> None:
    if not shown.meters:
        say("meters: none")
        return
    say()
    print_table(
        ["channel", "domain", "kind", "period s", "energy J", "uncertainty J", "counts"],
        [
            [
                name,
                *(meter.get(key) for key in ("domain", "kind", "period_s", "energy_j")),
                meter.get("energy_std_j"),
                {True: "yes", False: "no"}.get(meter.get("counts", ""), "-"),
            ]
            for name, meter in shown.meters.items()
        ],
        every_row,
    )


def _facts(shown: ShownMeasurement) -> Iterator[tuple[str, str]]:
    """(name, value) of the shown entries of the set-up's record and the provenance."""
    for name, keys in FROM_SETUP.items():
        value: Any = shown.setup or {}
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        if value:
            yield name, ", ".join(value) if isinstance(value, list) else str(value)
    for name, value in shown.provenance.items():
        if name not in SHOWN_APART and value not in (None, "", [], {}):
            yield name, _flat(value)


def _flat(value: Any) -> str:
    if isinstance(value, Mapping):
        parts = (f"{name} {_flat(item)}" for name, item in value.items())
        return ", ".join(f"({part})" if ", " in part else part for part in parts)
    if isinstance(value, list):
        return " ".join(map(_flat, value))
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _print_trace(shown: ShownMeasurement, every_channel: bool) -> None:
    from campaign.verbs.terminal_plot import can_show_braille, plot  # noqa: PLC0415

    say()
    if shown.trace is None:
        say("no trace of power (a trace is kept once the run has ended)")
        return
    width = min(shutil.get_terminal_size((WIDTH, 24)).columns, WIDTH)
    drawn = list(shown.trace.channels.items())
    spans = [(float(begin), float(end)) for begin, end in shown.trace.windows_s]
    for name, (time_s, power_w) in drawn if every_channel else drawn[:MOST_PLOTS]:
        say(f"power of {name}, W, against s from the start of the first window; windows are marked")
        braille = can_show_braille(sys.stdout.encoding)
        for line in plot(time_s, power_w, spans, width=width, braille=braille):
            say(line)
    if len(drawn) > MOST_PLOTS and not every_channel:
        say(f"and {len(drawn) - MOST_PLOTS} more channels (--all draws them)")
