"""Everything that a store has of one measurement, found by the id of its point."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.measurements.power_trace import PowerTrace, row_trace
from analysis.measurements.provenance import clock_proofs
from campaign.store.planned import planned_ids
from campaign.store.records import read_contents
from campaign.store.setups import Record, public_record, read_setup
from campaign.store.tables import read_traces
from dvfs.dataset import (
    BOOLEAN_COLUMNS,
    COLUMN_UNITS,
    INTEGER_COLUMNS,
    Columns,
    class_unit,
    count_columns,
)
from dvfs.errors import ArgumentError, reason
from dvfs.files import write_output
from dvfs.kernel_instance import KernelInstance

if TYPE_CHECKING:
    from campaign.store.layout import Store

TEXTS = (
    "point_id",
    "site",
    "partition",
    "node",
    "profile",
    "status",
    "text",
    "voltage_origin",
    "setup",
)
SHOWN_IDS = 5


@dataclass(frozen=True, kw_only=True)
class ShownMeasurement:
    """One measurement.

    ``scalars``: column -> value in the units of :data:`dvfs.dataset.COLUMN_UNITS`, NaN where
    missing. ``clock_proof``: how its clocks were proved, see
    :func:`analysis.measurements.provenance.clock_proofs`. ``counts``: class -> operations of one
    iteration, for the classes with known counts. ``meters``: channel -> its properties and energy.
    ``setup``: the record of how it was measured, None where the store has none. ``trace``: power
    against time, None where the store keeps no such trace, or none yet.
    """

    instance: KernelInstance
    scalars: Mapping[str, Any]
    clock_proof: str
    counts: Mapping[str, float]
    meters: Mapping[str, Mapping[str, Any]]
    provenance: Mapping[str, Any]
    setup: Mapping[str, Any] | None
    trace: PowerTrace | None

    @property
    def simulated(self) -> bool:
        """Whether the machine is simulated."""
        return bool(self.scalars["simulated"])

    @property
    def power_w(self) -> float:
        """The mean power of the windows, W; NaN where time or energy is missing."""
        return float(self.scalars["energy_j"] / self.scalars["time_s"])

    def as_dict(self) -> dict[str, Any]:
        """``campaign show --json``; missing values are None."""
        scalars = {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in self.scalars.items()
        }
        counts = {
            name: {"value": value, "unit": class_unit(name)} for name, value in self.counts.items()
        }
        return self.instance.as_dict() | {
            **scalars,
            "power_w": None if math.isnan(self.power_w) else self.power_w,
            "clock_proof": self.clock_proof,
            "units": {**COLUMN_UNITS, "power_w": "W"},
            "counts": counts,
            "meters": dict(self.meters),
            "provenance": dict(self.provenance),
            "setup_record": self.setup,
            "trace_channels": sorted(self.trace.channels) if self.trace else [],
            "windows_s": self.trace.windows_s.tolist() if self.trace else None,
        }

    def write_svg(self, path: str | Path) -> None:
        """Write the trace as a drawing.

        Raises:
            ArgumentError: there is no trace, or the file cannot be written.
            MissingExtraError: matplotlib is not installed.
        """
        from analysis.figures.paper import figure_files  # noqa: PLC0415
        from analysis.figures.trace import trace_figure  # noqa: PLC0415
        from dvfs.extras import explain_missing  # noqa: PLC0415

        if self.trace is None:
            raise ArgumentError(
                f"{path}: point {self.scalars['point_id']} has no trace of power to draw"
            )
        figure = trace_figure(self.trace, self.scalars["site"], self.simulated)
        with explain_missing():
            drawn = figure_files(figure, self.simulated, ["svg"])
        try:
            write_output(Path(path), drawn["svg"])
        except OSError as error:
            raise ArgumentError(
                f"{path}: cannot be written ({reason(error, Path(path))}); name another file"
            ) from None


def shown_measurement(store: Store, point: str) -> ShownMeasurement:
    """The measurement of a point: its id, or a beginning of it that no other measured point
    shares.

    Raises:
        ArgumentError: there is no such measurement, or several.
    """
    columns = read_traces(store)
    row = _row(store, columns, point)
    scalars: dict[str, Any] = {name: str(columns[name][row]) for name in TEXTS}
    scalars |= {name: float(columns[name][row]) for name in COLUMN_UNITS}
    scalars |= {name: int(columns[name][row]) for name in INTEGER_COLUMNS}
    scalars |= {name: bool(columns[name][row]) for name in BOOLEAN_COLUMNS}
    counts = {name: float(columns[column][row]) for name, column in count_columns(columns).items()}
    site_rows = np.flatnonzero(columns["site"] == scalars["site"])
    clock_proof = clock_proofs(columns, site_rows)[site_rows == row][0]
    line = scalars.pop("table_line")
    kernel, params = (str(columns[name][row]) for name in ("kernel", "params"))
    setup: Record | None = None
    if scalars["setup"]:
        journal_setups = read_contents(store).tail.setups
        setup = journal_setups.get(scalars["setup"]) or read_setup(store, scalars["setup"])
        setup = None if setup is None else public_record(store, setup)
    return ShownMeasurement(
        instance=columns.kernels_by_pair[kernel, params],
        scalars=scalars,
        clock_proof=str(clock_proof),
        counts={name: count for name, count in counts.items() if math.isfinite(count)},
        meters=json.loads(str(columns["meters"][row])),
        provenance=json.loads(str(columns["provenance"][row])) | ({"line": line} if line else {}),
        setup=setup,
        trace=row_trace(columns, row),
    )


def _row(store: Store, columns: Columns, point: str) -> int:
    """The row of the measurement whose point's id begins with ``point``."""
    ids = [str(point_id) for point_id in columns["point_id"].tolist()]
    rows = [i for i, point_id in enumerate(ids) if point and point_id.startswith(point)]
    if len(rows) == 1:
        return rows[0]
    if rows:
        first = ", ".join(sorted(ids[i] for i in rows)[:SHOWN_IDS])
        raise ArgumentError(
            f"{len(rows)} measured points begin with {point!r}, such as {first}: give more "
            f"characters"
        )
    planned = (
        point_id.decode() for part in planned_ids(store).values() for point_id in part.tolist()
    )
    if point and any(point_id.startswith(point) for point_id in planned):
        raise ArgumentError(f"point {point!r} is planned, and was not measured yet")
    example = f", such as {ids[0]}" if ids else ""
    raise ArgumentError(
        f"no measurement of a point {point!r} in the store; give an id or its beginning{example}: "
        f"campaign export {store.root} --csv - lists them in the column point_id"
    )
