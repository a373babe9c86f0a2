"""Rows of a table that are the same point: ids, repeats and attempts."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

import numpy as np

from campaign.plan.point import point_ids
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


def has_duplicates(ids: np.ndarray) -> bool:
    """Whether two ids (S24) are equal. Sorting 64-bit hashes is ten times as fast as the texts: a
    rare collision counts too."""
    mixed = np.ascontiguousarray(ids).view(np.uint64).reshape(-1, 3) @ MIX
    mixed.sort()
    return bool((mixed[1:] == mixed[:-1]).any())


def measurements_of(
    ids: Iterable[Hashable],
    of_store: np.ndarray,
    worth: np.ndarray,
    attempt: np.ndarray,
    wrong: np.ndarray,
) -> tuple[np.ndarray, int, tuple[int, int] | None]:
    """int64, sorted: the rows that are measurements, one per point. And the number of rows that are
    the same point as an earlier one by mistake; and the first of them, with that one.

    Rows of a store with the same id are attempts at one point. Its measurement is the complete one,
    else the one with a damaged trace, else the last. A second row of a point that is no attempt is
    a mistake. ``of_store``, ``wrong``: bool, the rows of a store, and those with errors, which are
    skipped.
    """
    best: dict[Hashable, int] = {}
    n_same, first_same = 0, None
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
        n_same, first_same = n_same + 1, first_same or (i, earlier)
    return np.array(sorted(best.values()), np.int64), n_same, first_same


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
