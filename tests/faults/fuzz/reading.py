"""How each kind of file is read, and which errors a user can fix."""

from __future__ import annotations

import contextlib
import io
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd

from campaign.plan.profile_file import read_profile
from campaign.store.dataset import open_dataset
from campaign.store.journal import TornRecordError, read
from campaign.store.journal import scan as scan_journal
from campaign.store.layout import open_store
from campaign.table.checking import checked_rows
from campaign.table.map_file import read_map
from campaign.table.reading import read_table
from campaign.verbs.command_line import main as command_line
from dvfs.errors import exit_code
from kernels.command import read_counts
from kernels.kernel import KernelError
from sites.meters.cray import open_meter as open_cray
from sites.meters.ipmi import parse_watts
from sites.meters.recorded import open_meter as open_recorded
from sites.meters.shared.powermon_lines import ScanReader
from sites.meters.slurm import open_meter as open_slurm

MESSAGE_CHARS = 4000
"""A longer message is of no use."""


class UnclearError(Exception):
    """An input was refused, but nobody could tell why; or accepted, but it is wrong."""


def call(*words: str) -> None:
    """The command line in this process: 0, 1 or 2, and words where it is not 0.

    Raises:
        RefusedError: 2.
        UnclearError: another exit code, words that are none, or that speak to the terminal.
    """
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        code = command_line(words)
    said = errors.getvalue()
    if code not in (0, 1, 2) or "Traceback" in said:
        raise UnclearError(f"exit code {code} and {said[:300]!r}")
    check_characters(out.getvalue() + said)
    if code == 1 and not (out.getvalue() + said).strip():
        raise UnclearError("exit code 1 and not a word")
    if code == 2:
        if not said.startswith("campaign: "):
            raise UnclearError(f"exit code 2 and {said[:300]!r}")
        raise RefusedError(said)


class RefusedError(Exception):
    """The command line ended with 2, and said why."""


def is_typed(error: BaseException, files_missing: bool) -> bool:
    """Whether a user can fix it, or the caller handles it.

    ``files_missing``: a file was removed, or made a link, so that the system may refuse it.
    """
    if isinstance(error, RefusedError | TornRecordError | KernelError):
        return True
    if type(error).__module__ == "builtins" and isinstance(error, OSError):
        return files_missing
    if isinstance(error, MemoryError):
        return False  # reported to a user, but no file may cause it
    return isinstance(error, Exception) and exit_code(error) is not None


def check_message(text: str) -> None:
    """Refuse a message that is empty, too long, or has terminal escapes."""
    if not text.strip() or len(text) > MESSAGE_CHARS:
        raise UnclearError(f"a message of {len(text)} characters: {text[:200]!r}")
    check_characters(text)


def check_characters(text: str) -> None:
    """Refuse words that speak to the terminal."""
    bad = re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text)
    if bad:
        raise UnclearError(
            f"a message with {bad[0]!r} in it: {text[max(0, bad.start() - 60) :][:200]!r}"
        )


def need(fact: bool, what: str) -> None:
    """Refuse to have accepted something that is wrong."""
    if not fact:
        raise UnclearError(f"accepted: {what}")


def read_any_table(folder: Path, name: str) -> None:
    """A table through its map, as import reads it."""
    mapping = read_map(folder / "map.toml" if (folder / "map.toml").exists() else None)
    rows = pd.DataFrame(checked_rows(read_table(folder / name, mapping), mapping).rows)
    need(bool(np.isfinite(rows["time_s"]).all() and (rows["time_s"] > 0).all()), "time_s")
    need(bool(np.isfinite(rows["energy_j"]).all() and (rows["energy_j"] > 0).all()), "energy_j")
    need(rows["point_id"].is_unique, "a point twice")
    for column in rows.columns:
        named = re.fullmatch(r"n_[A-Za-z0-9][A-Za-z0-9_.-]{0,63}|[a-mo-z][a-z_]*|node", column)
        need(named is not None, f"a column {column[:80]!r}")


def read_plan(folder: Path, index: int) -> None:
    """A campaign file and its site file, into points."""
    call("plan", str(folder / "c.toml"), *(["--json"] if index % 2 else []))


def read_import(folder: Path, index: int) -> None:
    """The whole way of a table: import, status, export."""
    store = folder / "imported"
    try:
        table, map_ = "table.parquet", []
        if index % 2:
            table, map_ = "table.csv", ["--map", str(folder / "map.toml")]
        call("import", str(folder / table), "--store", str(store), *map_)
        call("status", str(store))
        call("export", str(store), "--csv", str(folder / "imported/out.csv"))
    finally:
        shutil.rmtree(store, ignore_errors=True)


def read_map_file(folder: Path, index: int) -> None:
    """A map file and another's table, in blocks."""
    read_any_table(folder, "table.csv")


def read_profile_file(folder: Path, index: int) -> None:
    """A profile."""
    profile, _ = read_profile(folder / "profile.toml")
    need(all(0 <= n < math.inf for n in profile.counts.values()), "counts")


def read_counts_file(folder: Path, index: int) -> None:
    """What a user's own program says that it counted."""
    counts = read_counts(folder / "counts.json")
    need(all(0 <= n < math.inf for n in counts.values()), "a count")
    need(all(re.fullmatch(r"[\w.-]{1,64}", name, re.ASCII) for name in counts), "a class's name")


def read_recorded(folder: Path, index: int) -> None:
    """A recorded trace, opened and played."""
    channels = {
        "cpu": {"domain": "package", "kind": "power", "unit": "W"},
        "board": {"domain": "node", "kind": "energy", "unit": "kWh"},
    }
    meter = open_recorded(folder, {"path": "/trace.csv", "channels": channels})
    try:
        readings = [meter.read(), *meter.drain()]
    finally:
        meter.close()
    need(all(math.isfinite(v) for r in readings for v in r.values), "a value")


def read_ipmi(folder: Path, index: int) -> None:
    """What a BMC's program printed."""
    text = (folder / "output.txt").read_text(errors="replace")
    need(0 < parse_watts(text, "ipmi-dcmi") < 1e7, "watts")


def read_cray(folder: Path, index: int) -> None:
    """Cray's counters, read twice."""
    meter = open_cray(folder, {})
    try:
        for _ in range(2):
            need(all(math.isfinite(v) for v in meter.read().values), "a value")
    finally:
        meter.close()
    need(all(0 < c.period_s < math.inf for c in meter.channels), "period_s")


def read_powermon(folder: Path, index: int) -> None:
    """A logger's lines, in pieces as they come."""
    data = (folder / "lines.txt").read_bytes()
    reader = ScanReader({0: 12.0, 3: None})
    for at in range(0, len(data), 997):
        for scan in reader.take(data[at : at + 997], at):
            need(all(0 <= w < 1e25 for w in scan.watts), "watts")


def read_slurm(folder: Path, index: int) -> None:
    """What Slurm's programs print of a step's energy."""
    meter = open_slurm(folder, {"job": "7", "step": "0", "limit_s": 5.0})
    need(meter.read().values == (0.0,), "the first reading is not 0")


def read_journal(folder: Path, index: int) -> None:
    """A journal: its records, and all that they hold."""
    scanned = scan_journal(folder / "a.journal")
    refused: TornRecordError | None = None
    for entry in scanned.entries:
        str(entry.point_id)
        try:
            whole = read(entry)
        except TornRecordError as error:
            refused = error
            continue
        for trace in whole.traces:
            need(trace.time_ns.shape == trace.value.shape, "a trace of two lengths")
            need(trace.value.dtype.kind == "f", f"a trace of {trace.value.dtype}")
    if refused is not None or scanned.damage:
        raise refused or TornRecordError(scanned.damage[0][1])


def read_dataset(store: Path) -> None:
    """The Dataset of a store, and the energy of each of its traces."""
    dataset = open_dataset(open_store(store))
    for row in range(dataset.sizes["trace"]):
        start, size = (int(dataset[name][row]) for name in ("row_start", "row_size"))
        need(start >= 0 and size >= 0, f"a trace from {start} on of {size} samples")
        cut = dataset[["time_ns", "value"]].isel(sample=slice(start, start + size))
        need(cut.sizes["sample"] == size, "a trace without all of its samples")
        np.trapezoid(cut["value"].values, cut["time_ns"].values / 1e9)


def read_store(folder: Path, index: int) -> None:
    """A store, through one of the ways that lead into it."""
    store = folder / "store"
    match index:
        case 0:
            call("status", str(store))
        case 1:
            call("status", str(store), "--json")
        case 2:
            call("export", str(store), "--csv", str(folder / "out.csv"))
        case 3:
            call("coefficients", str(store), "--core-mhz", "1000", "--mem-mhz", "500")
        case 4:
            read_dataset(store)
        case 5:
            # It writes: into a copy. The links of an input stay links.
            copy = folder / "copy"
            try:
                shutil.copytree(store, copy, symlinks=True)
                call("import", str(folder / "more.csv"), "--store", str(copy))
                call("status", str(copy))
            finally:
                shutil.rmtree(copy, ignore_errors=True)


def read_fits(folder: Path, index: int) -> None:
    """A store's fits and what it knows of its sites."""
    store = str(folder / "store")
    match index:
        case 0:
            call("coefficients", store)
        case 1:
            call("coefficients", store, "--json")
        case 2:
            call("coefficients", store, "--core-mhz", "1000", "--mem-mhz", "500")
        case 3:
            call("predict", store, "--site", "a")
        case 4:
            call("crossval", store, "--site", "a", "--model", "choi", "--voltage", "known")
