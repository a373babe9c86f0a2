"""Kernel Tuner's files as rows, and rows as its T4 files. A record is a variant, failed or not.

A cache is one JSON object: ``tune_params_keys`` names the tuned parameters, and ``cache`` maps each
variant to its record: its parameters, ``time`` in ms and whatever else was observed. Kernel Tuner
appends a line a record and closes the object at the end (github.com/KernelTuner/kernel_tuner,
kernel_tuner/util.py). Its schemas 1.0.0 and 1.1.0 and the files before them, without
``schema_version``, have the same form of what is read here. From 1.5 on a failed variant has
``__error__`` in place of its time. ``store_output_file`` writes the T4 format of results: a list
``results`` whose entries have a ``configuration`` and ``measurements``, and no name of a kernel.

An unfinished cache is read up to its end. The ``json`` module reads no object without its closing
brace, and keeps one of two members of the same name; this reader keeps both, with their lines.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign.plan.point import canonical_json
from campaign.table.delimited import read_table_text
from campaign.table.formats import Columns, FormatDescription
from campaign.table.map_file import ColumnSource, TableMap
from campaign.table.number_text import number
from campaign.table.units import STANDARD, quantity_of
from dvfs.dataset import KERNEL_FAILED, OK, TIMED_OUT, WRONG_RESULT, is_complete
from dvfs.input_files import FileError
from dvfs.setting import NUMBERS

if TYPE_CHECKING:
    import pandas as pd

SPACE = re.compile(r"[ \t\r\n]*")
NAME, RECORDS, CACHE_KEY = "kernel_name", "cache", "tune_params_keys"
RESULTS = "results"
ERROR = "__error__"
NO_COLUMNS = {NAME, CACHE_KEY, RECORDS, RESULTS, ERROR, "tune_params"}
"""Members without a column; the values in ``tune_params`` repeat those of the records."""
TIMES = {
    "runtimes": "times",
    "compilation": "compile_time",
    "benchmark": "benchmark_time",
    "framework": "framework_time",
    "search_algorithm": "strategy_time",
    "validation": "verification_time",
}
"""A time of a T4 result -> its name in a cache."""
OF_RESULT = ("timestamp", "correctness", "objectives")
"""Further members of a T4 result."""
AS_WRITTEN = "measurements as written"
"""The label with the measurements of a T4 result that labels by name cannot hold unchanged."""
MILLISECONDS = ("", "ms", "milliseconds")
FAILED_TIME = 1e20
"""Times from this one on mean a failure: earlier versions of Kernel Tuner wrote 1e20 for it."""
WHAT = "is not a file of Kernel Tuner"
REMEDY = "name one that tune_kernel(..., cache=FILE) or store_output_file wrote, or another format"
OURS = {
    "time_s": ("time", 1e-3),
    "core_mhz": ("nvml_gr_clock", 1.0),
    "mem_mhz": ("nvml_mem_clock", 1.0),
    "uncore_mhz": ("uncore_mhz", 1.0),
    "power_limit_w": ("nvml_pwr_limit", 1.0),
    "core_mhz_achieved": ("core_freq", 1.0),
    "mem_mhz_achieved": ("mem_freq", 1.0),
    "energy_j": ("nvml_energy", 1.0),
    "power_w": ("nvml_power", 1.0),
}
"""Standard column -> its default field, and the factor. Other energies (``ps_energy``, those of
PMT's sensors) depend on what was connected: the map must name them."""
INVALIDITIES = {
    "CompilationFailedConfig": "compile",
    "RuntimeFailedConfig": "runtime",
    "InvalidConfig": "constraints",
    **{name: name for name in ("timeout", "compile", "runtime", "correctness", "constraints")},
}
"""The reason of a failure in a cache or a T4 file -> T4's word."""
OF_FILE = ("schema_version", "metadata", "objective")
"""Members of a file that apply to all its results."""
BY_STATUS = {TIMED_OUT: "timeout", WRONG_RESULT: "correctness"}
ABOUT = FormatDescription(
    name="kernel-tuner",
    tool="Kernel Tuner",
    versions="1.5.0, and caches of earlier versions",
    reads="caches (`tune_kernel(..., cache=FILE)`) and T4 files (`store_output_file`): a row a "
    "variant",
    needs=("kernel of T4 files",),
    traps="energies of other observers than NVML's are labels until a map names one",
    rows="variants",
)


@dataclass(frozen=True)
class JsonRecords:
    """An object's members, with None for the one that holds the records; the records, and the line
    of each in the file; and notes."""

    members: dict[str, Any] = field(default_factory=dict)
    lines: list[int] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_json_records(path: Path, text: str, name: str) -> JsonRecords | None:
    """The object in ``text``. Its records are the values of its member ``name``, an object or a
    list. None if the text is no JSON object.

    Raises:
        FileError: the text is damaged before its end, or a record is no object.
    """
    scan = _Scan(path, text)
    if scan.mark() != "{":
        return None
    contents = JsonRecords()
    try:
        for _, key in scan.members():
            if key == name and scan.mark() in ("{", "["):
                contents.members[key] = None
                for line, _ in scan.members():
                    record = scan.value()
                    if not isinstance(record, dict):
                        raise scan.damaged("is a record, but no JSON object", line)
                    contents.lines.append(line)
                    contents.records.append(record)
            else:
                contents.members[key] = scan.value()
        if scan.mark():
            raise scan.damaged("has text after the end of the object", scan.line())
    except EOFError:
        notes = contents.notes
        notes.append(f"{path}: is not closed, as while it is still written; read to its end")
        if line := scan.cut_off():
            notes.append(f"{path}:{line}: its last record is cut off, and left out")
    return contents


class _Scan:
    """A JSON reader with its position in a text. Methods raise EOFError at an early end."""

    def __init__(self, path: Path, text: str) -> None:
        self._path, self._text = path, text
        self._decoder = json.JSONDecoder()
        self._at = 0
        self._complete = 0
        """The position up to which all members are complete."""
        self._counted = (0, 1)

    def mark(self) -> str:
        """Skip spaces, and return the next character; empty at the end."""
        space = SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at
        return self._text[self._at : self._at + 1]

    def members(self) -> Iterator[tuple[int, str]]:
        """The line and name of each member of the object or list at the position; items of a list
        have no name. Read the value next."""
        end = {"{": "}", "[": "]"}[self.mark()]
        self._at += 1
        while True:
            self._complete = self._at
            if self.mark() == end:
                break
            line, name = self.line(), ""
            if end == "}":
                name = self.value()
                if not isinstance(name, str) or self._mark_before_end() != ":":
                    raise self.damaged("is no name and value", line)
                self._at += 1
            yield line, name
            self._complete = self._at
            if self._mark_before_end() == ",":
                self._at += 1
            elif self.mark() != end:
                raise self.damaged("has no comma before it", self.line())
        self._at += 1

    def value(self) -> Any:
        """Read the value at the position."""
        self.mark()
        try:
            value, self._at = self._decoder.raw_decode(self._text, self._at)
        except json.JSONDecodeError as error:
            if "}" not in self._text[error.pos :]:
                raise EOFError from None
            line = self._text.count("\n", 0, error.pos) + 1
            raise self.damaged(f"is not JSON ({error.msg})", line) from None
        except (ValueError, RecursionError):  # a number of thousands of digits, a deep nesting
            raise self.damaged("is no value that can be read", self.line()) from None
        return value

    def line(self) -> int:
        """The line of the position."""
        start, line = self._counted
        self._counted = self._at, line + self._text.count("\n", start, self._at)
        return self._counted[1]

    def cut_off(self) -> int:
        """The line of the incomplete text after the last complete member; 0 if there is none."""
        cut_text = self._text[self._complete :].lstrip(" \t\r\n,")
        return self._text.count("\n", 0, len(self._text) - len(cut_text)) + 1 if cut_text else 0

    def damaged(self, cause: str, line: int) -> FileError:
        """The error for a damaged line."""
        return FileError(cause, "correct this line", f"{self._path}:{line}")

    def _mark_before_end(self) -> str:
        if not (mark := self.mark()):
            raise EOFError
        return mark


def recognises(path: Path, head: bytes) -> bool:
    """Whether the file has the keys of a cache, or those of a T4 file's first result."""
    keys = (CACHE_KEY, "tune_params"), (RESULTS, "configuration", "invalidity")
    return head.lstrip()[:1] == b"{" and any(
        all(f'"{name}"'.encode() in head for name in kind_keys) for kind_keys in keys
    )


def read(path: Path, mapping: TableMap) -> tuple[Columns, list[str]]:
    """The columns of a file, which may be compressed; and notes.

    ``kernel`` is the file's ``kernel_name`` unless the map gives one. Times, clocks and energies
    are those of :data:`OURS` that the map does not name. ``params`` has the other tuned parameters.
    A failed variant has ``status`` and ``text``. Every other field of the records and key of the
    file is a separate column. A power or energy of 0 was not measured.

    Raises:
        FileError: the file is not of Kernel Tuner or damaged, or a record lacks a tuned parameter.
    """
    text, notes = read_table_text(path)
    is_cache = f'"{CACHE_KEY}"' in text or f'"{RESULTS}"' not in text
    contents = read_json_records(path, text, RECORDS if is_cache else RESULTS)
    if contents is None:
        raise FileError(f"{WHAT}: it is no JSON object", REMEDY, str(path))
    if not is_cache:
        _as_cache(path, contents, mapping)
    for name in (NAME, CACHE_KEY, RECORDS) if is_cache else ():
        if name not in contents.members:
            raise FileError(f"{WHAT}: it has no {name!r}", REMEDY, str(path))
    if not contents.records:
        raise FileError("has no records", "nothing to import", str(path))
    tuned = contents.members[CACHE_KEY]
    if not isinstance(tuned, list) or not all(isinstance(name, str) for name in tuned):
        raise FileError(f"{WHAT}: its {CACHE_KEY!r} is no list of names", REMEDY, str(path))
    _check_parameters(path, contents, tuned)
    usual = _usual(contents, mapping)
    mapping = mapping.model_copy(
        update={
            "columns": mapping.columns | {n: ColumnSource(column=key) for n, key in usual.items()}
        }
    )
    reasons = _reasons(contents, mapping)
    columns = _fields(contents, tuned, mapping, reasons)
    scaled = {name: _scaled(columns[key], OURS[name][1]) for name, key in usual.items()}
    for key in usual.values():
        if key in tuned:
            del columns[key]
        else:  # unchanged, in addition to the standard column
            columns[key] = [_cell(record.get(key)) for record in contents.records]
    standard = scaled | {
        "params": _params(contents, tuned, mapping),
        "status": [KERNEL_FAILED if reason else OK for reason in reasons],
        "text": reasons,
    }
    if all(reasons):
        standard.setdefault("time_s", [None] * len(reasons))
    if "kernel" not in mapping.given:
        standard["kernel"] = [contents.members[NAME]] * len(reasons)
    header, values = [*columns, *standard], [*columns.values(), *standard.values()]
    return (header, contents.lines, values), notes + contents.notes


def _check_parameters(path: Path, contents: JsonRecords, tuned: list[str]) -> None:
    """Raise FileError if a record lacks a tuned parameter."""
    for line, record in zip(contents.lines, contents.records, strict=True):
        if missing := [name for name in tuned if name not in record]:
            raise FileError(
                f"a record without the parameter {missing[0]!r}, which {CACHE_KEY} names",
                "correct or remove this record",
                f"{path}:{line}",
            )


def _usual(contents: JsonRecords, mapping: TableMap) -> dict[str, str]:
    """Standard column -> its default field in the file, for those that the map does not mention."""
    fields = {name for record in contents.records for name in record}
    given_columns = mapping.given
    if {"energy_j", "power_w"} & given_columns:
        given_columns |= {"energy_j", "power_w"}
    return {
        name: key
        for name, (key, _) in OURS.items()
        if name not in given_columns and key in fields - mapping.named
    }


def _scaled(values: list[Any], factor: float) -> list[Any]:
    return [v * factor if isinstance(v, int | float) and factor != 1.0 else v for v in values]


def _as_cache(path: Path, contents: JsonRecords, mapping: TableMap) -> None:
    """Convert results of the T4 format to the form of a cache, in place."""
    if "kernel" not in mapping.given:
        raise FileError(
            "does not name its kernel",
            "give kernel under [constants] in a map file, or --set kernel=K",
            str(path),
        )
    with_unit = {
        name
        for source in mapping.columns.values()
        if source.unit or source.factor != 1.0
        for name in source.names
    } - {OURS["time_s"][0]}
    for i, (line, result) in enumerate(zip(contents.lines, contents.records, strict=True)):
        try:
            params = dict(result["configuration"])
            measured = result.get("measurements", [])
            record = params | {str(entry["name"]): entry["value"] for entry in measured}
            units = {entry["name"]: entry.get("unit", "") for entry in measured}
            if unusual := [entry for entry in measured if not _is_usual(entry)]:
                record[AS_WRITTEN] = unusual
            times = result.get("times", {})
            record |= {ours: times[name] for name, ours in TIMES.items() if name in times}
            record |= {name: result[name] for name in OF_RESULT if name in result}
        except (TypeError, KeyError, ValueError):
            cause = "is a result without its configuration or with other measurements"
            raise FileError(cause, "correct or remove it", f"{path}:{line}") from None
        for ours, (name, _) in OURS.items():
            allowed = MILLISECONDS if ours == "time_s" else ("", STANDARD[quantity_of(ours)])
            if (unit := units.get(name, "")) not in allowed and name not in with_unit:
                raise FileError(
                    f"its {name} is in {unit!r}",
                    f"change it to {allowed[1]}, which Kernel Tuner writes",
                    f"{path}:{line}",
                )
        record.pop(ERROR, None)
        if (why := result.get("invalidity", "correct")) != "correct":
            record[ERROR] = why
        contents.records[i] = record
        contents.members.setdefault(CACHE_KEY, list(params))


def _params(contents: JsonRecords, tuned: list[str], mapping: TableMap) -> list[str]:
    params = [name for name in tuned if name not in mapping.named]
    return [json.dumps({name: record[name] for name in params}) for record in contents.records]


def _fields(
    contents: JsonRecords, tuned: list[str], mapping: TableMap, reasons: list[str]
) -> dict[str, list[Any]]:
    """The columns of the file's keys and the records' fields. In a failed record, a text that the
    map takes for a number is None."""
    shown = mapping.named | {rule.column for rule in mapping.keep}
    columns: dict[str, list[Any]] = {
        name: [_cell(value)] * len(reasons)
        for name, value in contents.members.items()
        if name not in NO_COLUMNS or (name == NAME and name in shown)
    }
    for name in dict.fromkeys(name for record in contents.records for name in record):
        if (name not in tuned or name in shown) and name not in NO_COLUMNS:
            columns[name] = [_cell(record.get(name)) for record in contents.records]
    for ours in ("energy_j", "power_w"):
        for name in mapping.columns[ours].names if ours in mapping.columns else ():
            if name in columns:
                columns[name] = [None if value == 0 else value for value in columns[name]]
    numbers = {n for source in mapping.columns.values() if not source.join for n in source.names}
    for name in numbers & columns.keys() - {*tuned, *contents.members}:
        columns[name] = [
            None if reason and not _is_measured(value) else value
            for value, reason in zip(columns[name], reasons, strict=True)
        ]
    return columns


def _reasons(contents: JsonRecords, mapping: TableMap) -> list[str]:
    """Each record's reason for having no time, empty if it has one: the text in place of the time
    or of the objective."""
    source = mapping.columns.get("time_s")
    names = [] if source is None else source.names
    objective = contents.members.get("objective")
    if isinstance(objective, list):
        objective = next(iter(objective), None)
    reasons = []
    for record in contents.records:
        missing = [name for name in names if not _is_measured(record.get(name))]
        objective_value = record.get(objective) if isinstance(objective, str) else None
        reason = ""
        if ERROR in record:
            reason = str(record[ERROR]) or "failed"
        elif missing and isinstance(record.get(missing[0]), str):
            reason = record[missing[0]] or f"{missing[0]} is empty"
        elif missing and isinstance(objective_value, str):
            reason = objective_value
        elif missing:
            value = record.get(missing[0])
            reason = f"{missing[0]} is {'missing' if value is None else _cell(value)}"
        reasons.append(reason)
    return reasons


def _is_measured(value: Any) -> bool:
    if isinstance(value, str):
        try:
            value = number(value)
        except ValueError:
            return False
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value < FAILED_TIME


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict | bool) else value


def _usual_unit(name: str) -> str:
    """The unit that Kernel Tuner gives a measurement."""
    return "ms" if name.startswith("time") else ""


def _is_usual(measurement: Mapping[str, Any]) -> bool:
    """Whether a measurement has the unit that Kernel Tuner gives it, and is no number as text."""
    name, value = measurement["name"], measurement["value"]
    is_text = not isinstance(value, str) or isinstance(_value(value), str)
    return is_text and measurement.get("unit", "") == _usual_unit(name)


def kernel_tuner_results(table: pd.DataFrame) -> str:
    """The rows of a kernel, with failures, as Kernel Tuner's T4 file of results (schema 1.0.0).

    The clocks, the power limit (``nvml_gr_clock`` ...), the profile and the number of ranks are
    parameters; times are in ms. Labels from an import of Kernel Tuner's files are measurements
    again, unchanged. Repeats are one result, as Kernel Tuner has them.
    """
    with_ranks = bool((table["ranks"] != 1).any())
    repeats: dict[str, list[dict[str, Any]]] = {}
    for row in table.to_dict("records"):
        result = _result(row, with_ranks)
        repeats.setdefault(canonical_json(result["configuration"]), []).append(result)
    return json.dumps(
        {
            "results": [_mean_result(results) for results in repeats.values()],
            "schema_version": "1.0.0",
            "metadata": {"timeunit": "milliseconds"},
        }
    )


def _result(row: Mapping[Any, Any], with_ranks: bool) -> dict[str, Any]:
    provenance = json.loads(row["provenance"])
    labels = {name: _value(text) for name, text in provenance.get("labels", {}).items()}
    ok = bool(is_complete(row["status"]))
    setting = {
        OURS[name][0]: int(row[name]) if row[name].is_integer() else row[name]
        for name in NUMBERS
        if math.isfinite(row[name])
    }
    setting |= {"profile": row["profile"]} if row["profile"] else {}
    setting |= {"ranks": row["ranks"]} if with_ranks else {}
    as_written = {entry["name"]: entry for entry in labels.pop(AS_WRITTEN, ())}
    elsewhere = {*TIMES.values(), *OF_RESULT, *OF_FILE}
    measured = {name: value for name, value in labels.items() if name not in elsewhere}
    if ok:
        values = {
            "time": row["time_s"] * 1e3,
            OURS["energy_j"][0]: row["energy_j"],
            OURS["power_w"][0]: provenance.get("power_w"),
            OURS["core_mhz_achieved"][0]: row["core_mhz_achieved"],
            OURS["mem_mhz_achieved"][0]: row["mem_mhz_achieved"],
        }
        with_power = any(made_of in measured for made_of in ("nvml_power", "nvml_energy"))
        for name, value in values.items():
            has_value = value is not None and math.isfinite(value)
            if has_value and not (with_power and name == OURS["energy_j"][0]):
                measured.setdefault(name, value)
    else:
        measured[ERROR] = ""
    times = {t4_name: labels[ours] for t4_name, ours in TIMES.items() if ours in labels}
    why = BY_STATUS.get(row["status"], "runtime")
    return {
        **{name: labels[name] for name in ("timestamp",) if name in labels},
        "configuration": json.loads(row["params"]) | setting,
        "times": {"runtimes": []} | times,
        "invalidity": "correct" if ok else INVALIDITIES.get(row["text"], why),
        "correctness": labels.get("correctness", 1),
        "measurements": [
            as_written.get(name) or {"name": name, "value": value, "unit": _usual_unit(name)}
            for name, value in measured.items()
        ],
        "objectives": labels.get("objectives", ["time"]),
    }


def _mean_result(repeats: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The repeats of a configuration as one result: the means of their numbers, and all run times.
    Failed repeats are left out, unless all failed."""
    good = [result for result in repeats if result["invalidity"] == "correct"]
    if len(good) < 2:
        return (good or repeats)[0]
    values = [{m["name"]: m["value"] for m in result["measurements"]} for result in good]
    runtimes = [
        time_ms
        for result, measured in zip(good, values, strict=True)
        for time_ms in result["times"]["runtimes"] or [measured["time"]]
    ]

    def mean(name: str, value: Any) -> Any:
        numbers = [row[name] for row in values if type(row.get(name)) in (int, float)]
        return statistics.fmean(numbers) if type(value) in (int, float) else value

    # A repeat may lack what others have, as its energy.
    entries = {m["name"]: m for result in reversed(good) for m in result["measurements"]}
    names = dict.fromkeys(m["name"] for result in good for m in result["measurements"])
    return good[0] | {
        "times": good[0]["times"] | {"runtimes": runtimes},
        "measurements": [
            entries[name] | {"value": mean(name, entries[name]["value"])} for name in names
        ],
    }


def _value(text: str) -> Any:
    """The number or list that a label's text is in JSON; else the text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, int | float | list) else text
