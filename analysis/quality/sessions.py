"""The check for a drift between sessions: points that were measured again, some time later."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from analysis.quality.finding import Finding
from analysis.quality.noise import NOISE_FLOOR, RELEVANT, student_limit
from analysis.quality.rows import Rows

BREAK_S = 1800.0
"""After so long without a measurement another session begins."""
FEWEST = 3
"""Points that were measured before from which on a session is judged."""


def session_offsets(rows: Rows) -> list[Finding]:
    """Sessions of a partition whose time or power is apart from earlier ones, in the same points.

    The differences of the points are judged against how far they differ from each other: Student's
    t of pairs.
    """
    compared = [
        (quantity, session, log_ratio)
        for sessions in _sessions(rows)
        for quantity in ("power", "time")
        for session, log_ratio in _differences(rows, sessions, quantity)
    ]
    findings = []
    for quantity, session, log_ratio in compared:
        n, step = len(log_ratio), float(log_ratio.mean())
        error = max(float(log_ratio.std(ddof=1)), NOISE_FLOOR) / np.sqrt(n)
        if abs(step) < max(RELEVANT, student_limit(len(compared), n - 1) * error):
            continue
        began = datetime.fromtimestamp(rows.start_unix_s[session].min(), UTC)
        findings.append(
            Finding(
                "sessions",
                "warning",
                np.sort(rows.index[session]),
                f"{quantity} is {100 * np.expm1(step):+.1f} % in the session that began on "
                f"{began:%Y-%m-%d at %H:%M} UTC, in the {n} points (kernel and setting) that were "
                f"measured before too; a fit takes this for an effect of the settings: find out "
                f"what changed (heat, another node, firmware), and measure one of the sessions "
                f"again",
            )
        )
    return findings


def _sessions(rows: Rows) -> list[list[np.ndarray]]:
    """The rows of each session of a partition, in the order of time."""
    sessions = []
    for partition in np.unique(rows.partition):
        mine = np.flatnonzero((rows.partition == partition) & (rows.start_unix_s > 0))
        mine = mine[np.argsort(rows.start_unix_s[mine], kind="stable")]
        breaks = np.flatnonzero(np.diff(rows.start_unix_s[mine]) > BREAK_S) + 1
        sessions.append(np.split(mine, breaks))
    return sessions


def _differences(
    rows: Rows, sessions: list[np.ndarray], quantity: str
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The rows of each session that has enough points of earlier ones, and the logarithms of what
    these are now over what they were first, (points,)."""
    if len(sessions) < 2:
        return []
    import pandas as pd  # noqa: PLC0415  (few tables have several sessions)

    first = pd.Series(dtype=float)
    differences = []
    for session in sessions:
        values = pd.Series(rows.values[quantity][session])
        now = values.groupby(rows.cell[session]).mean()
        log_ratio = (now - first.reindex(now.index)).dropna().to_numpy()
        if len(log_ratio) >= FEWEST:
            differences.append((session, log_ratio))
        first = first.combine_first(now)
    return differences
