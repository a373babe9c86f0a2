"""Rows of a table that are the same point: ids, repeats and attempts."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping

import numpy as np

from campaign.plan.point import point_ids
from campaign.table.cells import TableCells
from dvfs.dataset import COMPLETE, DAMAGED
from dvfs.setting import AXES, Setting
from dvfs.texts import Column, Texts

SAME_POINT = ["site", "partition", "kernel", "params", "ranks", *AXES]
"""Rows that are equal in these columns are repeats."""
MIX = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
WORTH = dict.fromkeys(COMPLETE, 2) | {DAMAGED: 1}


def point_ids_of(content: Mapping[str, Column], stored_ids: np.ndarray) -> np.ndarray:
    """The id of every row's point, S24: its stored id, or if that is empty, one of its content."""
    if (stored_ids != b"").all():
        return stored_ids
    columns = {}
    for name in (*SAME_POINT, "repeat"):
        column = content[name]
        if isinstance(column, Texts):
            columns[name] = column
            continue
        numbers = np.asarray(column)
        is_same = numbers.strides == (0,)
        distinct, codes = np.unique(numbers[:1] if is_same else numbers, return_inverse=True)
        values = [None if np.isnan(value) else value for value in distinct.tolist()]
        columns[name] = Texts(np.broadcast_to(codes.astype(np.int32), len(numbers)), values)
    columns["label"] = columns.pop("kernel")
    columns["kernel"] = Texts.same("import", len(stored_ids))
    new_ids = point_ids({name: (column.codes, column.values) for name, column in columns.items()})
    return np.where(stored_ids == b"", new_ids, stored_ids)


def measurements_of(
    cells: TableCells,
    frame: Mapping[str, Column],
    ids: np.ndarray,
    stored_ids: np.ndarray,
    worth: np.ndarray,
) -> np.ndarray:
    """int64: the rows that are measurements, one per point.

    Rows with the same stored id are attempts at one point. Its measurement is the complete one,
    else the one with a damaged trace, else the last. A second row of a point without a stored id is
    an error. ``ids``: all rows' ids; ``stored_ids``: ids from a store, empty for other rows.
    """
    # Sorting 64-bit hashes is ten times as fast as sorting the texts.
    mixed = np.ascontiguousarray(ids).view(np.uint64).reshape(-1, 3) @ MIX
    mixed.sort()
    if (mixed[1:] != mixed[:-1]).all():
        return np.arange(len(ids))
    wrong = np.zeros(len(ids), bool)
    wrong[[*cells.wrong_rows]] = True
    best: dict[Hashable, int] = {}
    attempt = np.asarray(frame["attempt"])
    for i, earlier in same_points(ids.tolist(), stored_ids != b"", worth, attempt, wrong, best):
        cells.note(i, "point", same_point(cells.table.lines[earlier], frame, i))
    return np.array(sorted(best.values()), np.int64)


def same_points(
    ids: Iterable[Hashable],
    of_store: np.ndarray,
    worth: np.ndarray,
    attempt: np.ndarray,
    wrong: np.ndarray,
    best: dict[Hashable, int],
) -> Iterator[tuple[int, int]]:
    """Each row that is the same point as an earlier one, and that row; without attempts of a store.

    ``of_store``: bool, the rows of a store. ``wrong``: bool, rows with errors, which are skipped.
    ``best``: is filled with id -> the row that is its measurement.
    """
    for i, point_id in enumerate(ids):
        if wrong[i]:
            continue
        earlier = best.setdefault(point_id, i)
        if earlier == i:
            continue
        if of_store[i] and of_store[earlier] and min(worth[i], worth[earlier]) == 0:
            if (worth[i], attempt[i]) >= (worth[earlier], attempt[earlier]):
                best[point_id] = i
            continue
        yield i, earlier


def same_point(line: int, frame: Mapping[str, Column], row: int) -> str:
    """The error message for a row of the frame that is the same point as the row on a line."""
    setting = Setting.of(*(frame[name][row] for name in AXES))
    kernel, repeat = frame["kernel"][row], frame["repeat"][row]
    return (
        f"the same point as line {line} ({kernel} at {setting}, repeat {repeat}); number them in a "
        f"column repeat or by number_repeats in a map file, or rename one"
    )


def worth_of(status: Texts) -> np.ndarray:
    """int64: 2 where a point is done, 1 where its trace is damaged, 0 where it failed."""
    return status.array(np.int64, [WORTH.get(name, 0) for name in status.values])
