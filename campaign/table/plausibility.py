"""Clocks and voltages that no device has: refused, with the factor that would make them right."""

from __future__ import annotations

import json

import numpy as np

from analysis.dataset import POSSIBLE
from campaign.table.cells import Cells
from campaign.table.map_file import TableMap

UNITS = {
    "MHz": ((1e-3, "1e-3", "kHz"), (1e3, "1e3", "GHz"), (1e-6, "1e-6", "Hz")),
    "V": ((1e-3, "1e-3", "mV"), (1e-6, "1e-6", "uV")),
}
"""Unit of a column -> the factors to it, as a map file has them, and the units that they are
from."""


def note_impossible(
    cells: Cells, columns: dict[str, np.ndarray], judged: np.ndarray, mapping: TableMap
) -> None:
    """Note the columns whose ``judged`` rows (bool) all have values (float64, NaN where there is
    none) in another unit, and the rows whose value no device has; see
    :data:`analysis.dataset.POSSIBLE`."""
    for name in POSSIBLE:
        values = columns[name]
        low, high, unit = POSSIBLE[name]
        bounds = f"devices have {low:g} to {high:,g} {unit}"
        rows = np.flatnonzero(judged & ((values < low) | (values > high)))
        present = values[judged & np.isfinite(values)]
        right = [
            (factor, text, theirs)
            for factor, text, theirs in UNITS[unit]
            if len(rows) == len(present) and _possible(present * factor, low, high).all()
        ]
        if len(rows) and right:
            factor, text, theirs = right[0]
            advice = _advice(name, factor, text, theirs, mapping)
            cells.wrong_columns.append(
                f"{name}{_called(name, mapping)}: {_found(values[rows])} {bounds}; {advice}"
            )
            continue
        for i in rows.tolist():
            seems = [
                f"in {theirs} it would be {values[i] * factor:g} {unit}: "
                for factor, _, theirs in UNITS[unit]
                if _possible(values[i] * factor, low, high)
            ]
            cells.note(
                i,
                f"{name}: found {values[i]:g}; {bounds}; {''.join(seems[:1])}correct this row, "
                f"as the column is in {unit}",
            )


def _possible(values: np.ndarray, low: float, high: float) -> np.ndarray:
    return (values >= low) & (values <= high)


def _found(values: np.ndarray) -> str:
    least, most = float(values.min()), float(values.max())
    if least == most:
        return f"found {least:.10g} in every row, and"
    return f"found {least:.10g} to {most:.10g}, and"


def _called(name: str, mapping: TableMap) -> str:
    """The table's own name of a column, where it is another one."""
    source = mapping.columns.get(name)
    if source is None or source.names == [name]:
        return ""
    return f" ({', '.join(map(repr, source.names))} in the table)"


def _advice(name: str, factor: float, text: str, theirs: str, mapping: TableMap) -> str:
    """What to write in the map file, so that a column has the right unit."""
    source = mapping.columns.get(name)
    if name in mapping.constants:
        right = float(mapping.constants[name]) * factor
        line = f"{name} = {right:g}"
        return f"it seems to be in {theirs}: write {line} under [constants] in the map file"
    if source is None or source.model_fields_set == {"column"}:
        column = json.dumps(name if source is None else source.column, ensure_ascii=False)
        where = "the map file" if source is not None else "a map file, which --map names"
        return (
            f"it seems to be in {theirs}: write {name} = {{ column = {column}, factor = {text} }} "
            f"under [columns] in {where}"
        )
    return f"set factor = {source.factor * factor:g} for {name} under [columns] in the map file"
