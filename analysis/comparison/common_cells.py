"""The measurements of the cells that are in both of two sets, as arrays of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dvfs.dataset import Columns
from dvfs.kernel_instance import KernelInstance, kernel_instances
from dvfs.setting import AXES, axis_values

CELL = ["partition", "kernel", "params", "ranks", *AXES]
"""The columns that identify a cell of one site: those of a point without the repeat."""
QUANTITIES = {"time": "time_s", "energy": "energy_j"}
SIMULATED_NODE = "simulated"
"""The node of all measurements of a simulated machine, whose results depend on no node."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The measurements of common cells, a row each; integer columns are int64.

    ``log_value``: float64, the natural logarithm of a time or energy. ``cell``: index into
    ``cells``. ``after``: bool, whether a row is in the second set. ``node``: index into ``nodes``,
    the names in both sets. ``session``: code of a repeat on a node in a set, a contiguous part of
    the campaign. ``cells``: a row a cell, columns :data:`CELL`, ``kernel_code`` and ``label``.
    """

    log_value: np.ndarray
    cell: np.ndarray
    after: np.ndarray
    node: np.ndarray
    session: np.ndarray
    cells: pd.DataFrame
    nodes: list[str]

    @property
    def cell_side(self) -> np.ndarray:
        """int64: the code of a cell in one set; even in the first set, odd in the second."""
        return np.asarray(2 * self.cell + self.after)


def site_frame(columns: Columns, rows: np.ndarray) -> pd.DataFrame:
    """Measurements of a site, with the columns for a comparison. ``rows``: int64 indices."""
    names = [*CELL[:4], "node", "repeat", "simulated", "start_unix_s", "setup"]
    names += [*QUANTITIES.values()]
    values = {name: columns[name][rows] for name in names}
    values |= dict(zip(AXES, axis_values(columns, rows), strict=True))
    frame: pd.DataFrame = pd.DataFrame(values)
    for name in ("partition", "kernel", "params", "node"):
        frame[name] = [str(value) for value in frame[name]]
    # A row of a foreign table has its node as partition, or "imported" if it names none.
    imported = columns["imported"][rows]
    is_node = (frame["partition"] == frame["node"]) & (frame["partition"] != "")
    frame.loc[imported & is_node, "partition"] = "imported"
    frame.loc[frame["simulated"], "node"] = SIMULATED_NODE
    return frame


def common_rows(
    before: pd.DataFrame,
    after: pd.DataFrame,
    quantity: str,
    instances: Mapping[tuple[str, str], KernelInstance],
) -> Rows | None:
    """The rows of two frames (:func:`site_frame`) in cells with the quantity in both; None if there
    is no such cell. Rows without a value are excluded."""
    column = QUANTITIES[quantity]
    parts = []
    for side, frame in enumerate((before, after)):
        value = frame[column].to_numpy(dtype=np.float64)
        part = frame[np.isfinite(value) & (value > 0)].copy()
        part["side"] = side
        parts.append(part)
    rows = pd.concat(parts, ignore_index=True)
    sides = rows.groupby(CELL, dropna=False)["side"].transform("nunique")
    rows = rows[sides == 2].reset_index(drop=True)
    if rows.empty:
        return None
    cell = rows.groupby(CELL, dropna=False, sort=False).ngroup().to_numpy()
    cells = rows.drop_duplicates(CELL)[CELL].reset_index(drop=True)
    cells["kernel_code"] = cells.groupby(["kernel", "params", "ranks"], sort=False).ngroup()
    cells["label"] = [
        instances[pair].label for pair in zip(cells.kernel, cells.params, strict=True)
    ]
    if cells.ranks.nunique() > 1:
        cells["label"] += [f" ranks={ranks}" for ranks in cells.ranks]
    nodes, node = np.unique(rows["node"].to_numpy(dtype=object).astype(str), return_inverse=True)
    session = rows.groupby(["side", "node", "repeat"], sort=False).ngroup().to_numpy()
    return Rows(
        log_value=np.log(rows[column].to_numpy(dtype=np.float64)),
        cell=cell,
        after=rows["side"].to_numpy() == 1,
        node=node,
        session=session,
        cells=cells,
        nodes=[str(name) for name in nodes],
    )


def instances_of(*sides: Columns) -> dict[tuple[str, str], KernelInstance]:
    """(kernel, params) -> instance, with a label that is unique in all of them."""
    pairs = {
        (str(kernel), str(params))
        for columns in sides
        for kernel, params in zip(
            *(columns[name].tolist() for name in ("kernel", "params")), strict=True
        )
    }
    return kernel_instances(pairs)
