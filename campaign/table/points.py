"""Which rows of a table are the same point: its id, its repeats and its attempts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from campaign.plan.point import point_ids
from campaign.table.cells import TableCells
from dvfs.dataset import COMPLETE, DAMAGED
from dvfs.setting import AXES, Setting

SAME_POINT = ["site", "partition", "kernel", "params", "ranks", *AXES]
"""Rows that are equal in these are repeats of one another."""
WORTH = dict.fromkeys(COMPLETE, 2) | {DAMAGED: 1}


@dataclass(frozen=True)
class Attempts:
    """Which rows of a table are measurements, one a point, and which are failed attempts."""

    measurements: np.ndarray
    failures: np.ndarray


def numbered_repeats(frame: pd.DataFrame) -> np.ndarray:
    """int64: how many rows of the same point are before each row."""
    return np.asarray(frame.groupby(SAME_POINT, dropna=False, sort=False).cumcount(), np.int64)


def point_ids_of(frame: pd.DataFrame, given: list[str]) -> list[str]:
    """The id of every row's point: ``given``, where that is not empty, else of its content."""
    if all(given):
        return given
    content = {
        name: frame[name].tolist() for name in ("site", "partition", "params", "ranks", "repeat")
    }
    for name in AXES:
        values = frame[name]
        content[name] = (
            values.tolist()
            if values.notna().all()
            else values.astype(object).where(values.notna(), None).tolist()
        )
    content |= {"label": frame["kernel"].tolist(), "kernel": ["import"] * len(frame)}
    made = point_ids(content)
    return [own or other for own, other in zip(given, made, strict=True)]


def attempts_of(
    cells: TableCells, frame: pd.DataFrame, ids: list[str], given: list[str], worth: np.ndarray
) -> Attempts:
    """Divide the rows into measurements and failed attempts.

    Rows with the same id of a store are attempts at one point. Its measurement is the one that is
    complete, else the one with a damaged trace, else the last. Of other rows, one that is the same
    point as one before it is wrong. ``ids``: of the rows; ``given``: those that are of a store.
    """
    failures = np.flatnonzero(worth == 0)
    if len(set(ids)) == len(ids):
        return Attempts(np.arange(len(ids)), failures)
    attempt = frame["attempt"].to_numpy()
    best: dict[str, int] = {}
    wrong = cells.wrong_rows
    for i, point_id in enumerate(ids):
        if i in wrong:
            continue
        other = best.setdefault(point_id, i)
        if other == i:
            continue
        if given[i] and given[other] and min(worth[i], worth[other]) == 0:
            if (worth[i], attempt[i]) >= (worth[other], attempt[other]):
                best[point_id] = i
            continue
        setting = Setting.of(*(frame[name][i] for name in AXES))
        cells.note(
            i,
            "point",
            f"the same point as line {cells.table.lines[other]} ({frame['kernel'][i]} at "
            f"{setting}, repeat {frame['repeat'][i]}); number them in a column repeat or by "
            f"number_repeats in a map file, or rename one",
        )
    return Attempts(np.array(sorted(best.values()), np.int64), failures)


def worth_of(status: Iterable[str]) -> np.ndarray:
    """int64: 2 where a point is done, 1 where its trace is damaged, 0 where it failed."""
    codes, names = pd.factorize(np.asarray(status, object))
    return np.array([WORTH.get(name, 0) for name in names], np.int64)[codes]
