"""Exporting a store as a table that import reads, or as Extra-P's lines."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from campaign.store.columns import column, missing_column
from campaign.store.dataset import current_tables, open_dataset
from campaign.store.layout import Store
from campaign.store.setups import public_records, setup_id
from campaign.table.map_file import OF_STORE, POINT_ID
from dvfs.dataset import COUNT_PREFIX, ESTIMATED, MEASUREMENT_COLUMNS, is_complete
from dvfs.errors import ArgumentError, unknown_name
from dvfs.extras import explain_missing
from dvfs.files import writing_output
from dvfs.kernel_instance import KernelInstance
from dvfs.setting import AXES, NUMBERS

FIRST = (
    POINT_ID,
    "site",
    "partition",
    "node",
    "kernel",
    "params",
    "ranks",
    "repeat",
    *AXES,
    "status",
    "time_s",
    "energy_j",
    "energy_std_j",
)
LAST = ("text", "setup", "meters", "provenance")
COMPRESSION = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd", ".zip": "zip"}
"""Suffix of a CSV file -> its compression."""
SHOWN = ("power_w", ESTIMATED)
"""Parts of a provenance that are also columns."""
ATTEMPT = [POINT_ID, "attempt", "start_unix_s", "status"]
"""Columns that are equal in a failed measurement and the record of its attempt."""


def export_table(store: Store) -> pd.DataFrame:
    """A row for every measurement, and for every failed attempt that a later one replaced.

    The columns are :data:`dvfs.dataset.MEASUREMENT_COLUMNS` and the counts; then, for readers, the
    labels and the power of imported rows, which are also in ``provenance``.
    """
    tables, tail = current_tables(store)
    frame = tables.measurements
    for name in MEASUREMENT_COLUMNS:
        if name not in frame:
            frame[name] = missing_column(name, len(frame))
    frame = pd.concat([frame, _replaced(frame, tables.failures)], ignore_index=True)
    counts = sorted(name for name in frame.columns if name.startswith(COUNT_PREFIX))
    middle = [n for n in MEASUREMENT_COLUMNS if n not in (*FIRST, *LAST)]
    table = frame[[*FIRST, *middle, *counts, *LAST]]
    records = public_records(store, tail.setups)
    table = table.assign(setup=table["setup"].replace({n: setup_id(r) for n, r in records.items()}))
    return table.assign(**_readable_columns(table["provenance"]))


def _replaced(measurements: pd.DataFrame, failures: pd.DataFrame) -> pd.DataFrame:
    """Rows of measurements for the failed attempts that are not their points' measurements."""
    if not len(failures):
        return measurements.iloc[:0]
    measured = pd.MultiIndex.from_frame(measurements[ATTEMPT])
    replaced = failures[~pd.MultiIndex.from_frame(failures[ATTEMPT]).isin(measured)]
    measured_points = measurements.set_index(POINT_ID).reindex(replaced[POINT_ID])
    same_for_attempts = ("ranks", "repeat", "simulated", "imported")
    rows = {
        name: replaced[name].to_numpy()
        if name in replaced
        else column(name, measured_points[name].to_numpy())
        if name in same_for_attempts
        else missing_column(name, len(replaced))
        for name in measurements.columns
    }
    return pd.DataFrame(rows)


def _readable_columns(provenances: Iterable[str]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {}
    texts = list(provenances)
    for i, text in enumerate(texts):
        if any(f'"{name}"' in text for name in ("labels", *SHOWN)):
            provenance = json.loads(text)
            shown = {name: provenance[name] for name in SHOWN if name in provenance}
            labels = provenance.get("labels", {})
            for name, value in (labels | shown).items():
                if name in SHOWN or not (name in OF_STORE or name.startswith(COUNT_PREFIX)):
                    columns.setdefault(name, [None] * len(texts))[i] = value
    return columns


def of_one(table: pd.DataFrame, column: str, name: str | None) -> pd.DataFrame:
    """The rows of one site or kernel. ``column``: which of the two. ``name``: default the only one.

    Raises:
        ArgumentError: there is no such name, or there are several and none is given.
    """
    names = sorted(set(table[column]))
    if name is None and len(names) > 1:
        known_names = ", ".join(names)
        raise ArgumentError(f"--{column}: name one of {known_names}: the file holds one {column}")
    if name is not None and name not in names:
        raise ArgumentError(f"--{column}: {unknown_name(column, name, names)}")
    return table if name is None else table[table[column] == name]


def write_csv(table: pd.DataFrame, path: Path | None) -> None:
    """Write a table as CSV; ``None``: to stdout. Reading a number returns the same value.

    Raises:
        OSError: it cannot be written.
    """
    # pandas does not quote fields with a carriage return, which would end a line.
    texts = table.select_dtypes(exclude=["number", "bool"])
    odd = any("\r" in text for name in texts for text in texts[name] if isinstance(text, str))
    quoting = csv.QUOTE_NONNUMERIC if odd else csv.QUOTE_MINIMAL
    write = partial(table.to_csv, index=False, lineterminator="\n", quoting=quoting)
    if path is None:
        write(sys.stdout)
        return
    with writing_output(path) as file:
        write(file, compression=COMPRESSION.get(path.suffix))


def write_parquet(table: pd.DataFrame, path: Path | None) -> None:
    """Write a table as Parquet; ``None``: to stdout.

    Raises:
        MissingExtraError: PyArrow is not installed.
        OSError: it cannot be written.
    """
    with explain_missing():
        import pyarrow  # noqa: F401, PLC0415
    if path is None:
        table.to_parquet(sys.stdout.buffer, index=False)
        return
    with writing_output(path) as file:
        table.to_parquet(file, index=False)


def write_netcdf(store: Store, path: Path) -> None:
    """Write the Dataset of a store, with its traces, as NetCDF-4: what
    :func:`campaign.results.open_store` gives as ``dataset``.

    Raises:
        MissingExtraError: h5netcdf is not installed.
        OSError: it cannot be written.
        DamagedStoreError: a sample cannot be read.
    """
    with explain_missing():
        import h5netcdf  # noqa: F401, PLC0415
    dataset = open_dataset(store)
    encoding = {
        name: {"zlib": True, "complevel": 1, "_FillValue": None}
        for name, variable in dataset.variables.items()
        if variable.dtype.kind in "if"
    }
    # HDF5 seeks in its output, which a pipe does not support.
    with TemporaryDirectory() as folder:
        temporary = Path(folder) / "made.nc"
        dataset.drop_encoding().to_netcdf(temporary, engine="h5netcdf", encoding=encoding)
        with temporary.open("rb") as file, writing_output(path) as output:
            copyfileobj(file, output)


def extra_p_lines(table: pd.DataFrame, metric: str) -> str:
    """The complete rows as Extra-P's JSON lines: one metric, and a call path for each kernel.

    Parameters are the kernels' numbers, ``ranks``, and the inverse of each number of a setting, as
    ``inverse_core_mhz`` (1/MHz), if they vary: Extra-P's default models grow with their parameters.
    Other parameters and the profile are part of the call path.

    Raises:
        ArgumentError: nothing varies, or kernels have different parameters.
    """
    rows = []
    for row in table[is_complete(table["status"])].to_dict("records"):
        power_w = row["energy_j"] / row["time_s"] if row["time_s"] > 0 else math.nan
        value = power_w if metric == "power_w" else row[metric]
        params = json.loads(row["params"])
        numbers = {n: v for n, v in params.items() if type(v) in (int, float)}
        numbers.setdefault("ranks", row["ranks"])
        numbers |= {
            f"inverse_{name}": 1.0 / row[name] for name in NUMBERS if math.isfinite(row[name])
        }
        numbers.setdefault("inverse_power_limit_w", 0.0)  # no limit is the highest
        label_params = {n: v for n, v in params.items() if n not in numbers}
        label_params |= {"profile": row["profile"]} if row["profile"] else {}
        if math.isfinite(value):
            rows.append((KernelInstance(row["kernel"], label_params).label, numbers, value))
    names = dict.fromkeys(name for _, numbers, _ in rows for name in numbers)
    varying = [n for n in names if len({numbers.get(n) for _, numbers, _ in rows}) > 1]
    if not varying:
        raise ArgumentError("--extra-p: no parameter or clock varies, so there is nothing to model")
    for label, numbers, _ in rows:
        if missing := [n for n in varying if n not in numbers]:
            raise ArgumentError(
                f"--extra-p: {label} has no parameter {missing[0]!r}, as others have: name one "
                "kernel by --kernel"
            )
    lines = (
        {
            "params": {name: numbers[name] for name in varying},
            "callpath": label,
            "metric": metric,
            "value": value,
        }
        for label, numbers, value in rows
    )
    return "".join(json.dumps(line) + "\n" for line in lines)
