"""A curve against time in characters: braille dots (2 by 4 a character), or plain ASCII."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

BRAILLE = 0x2800
DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
"""The bit of each dot of a braille character, by row and column (Unicode, chapter 21)."""
LABEL_CHARS = 9
LEAST_WIDTH = 30
FLAT = 1e-9
"""A range below this fraction of its values is widened: it would show nothing but rounding."""


def can_show_braille(encoding: str | None) -> bool:
    """Whether text of this encoding can hold braille characters."""
    try:
        chr(BRAILLE).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def plot(
    x: np.ndarray,
    y: np.ndarray,
    spans: Sequence[tuple[float, float]] = (),
    *,
    width: int,
    height: int = 10,
    braille: bool = True,
) -> list[str]:
    """The lines of a plot of ``y`` against ``x`` (float64 (n,), ``x`` rising), at most ``width``
    characters long.

    Each column of dots spans the least to the greatest value of the curve in its interval, so that
    a single sample is visible. NaN in ``y`` is not drawn. ``spans``: intervals of x to mark below
    the curve. The labels of the axes are the least and the greatest values.
    """
    columns = max(width, LEAST_WIDTH) - LABEL_CHARS - 2
    per_x, per_y = (2, 4) if braille else (1, 1)
    finite = np.isfinite(y)
    if not finite.any():
        return ["no values"]
    low_x, high_x = (float(edge) for edge in _widened(x[0], x[-1]))
    low_y, high_y = (float(edge) for edge in _widened(np.nanmin(y), np.nanmax(y)))
    lowest, highest = _extent(x, y, np.linspace(low_x, high_x, columns * per_x + 1))
    rows = height * per_y
    drawn = np.isfinite(lowest)
    top, bottom = (
        np.clip(((high_y - np.where(drawn, edge, low_y)) / (high_y - low_y) * rows), 0, rows - 1)
        for edge in (highest, lowest)
    )
    row = np.arange(rows)[:, None]
    dots = (row >= top.astype(int)) & (row <= bottom.astype(int)) & drawn
    if braille:
        bits = dots.reshape(height, 4, columns, 2).astype(int) * DOTS[None, :, None, :]
        codes = bits.sum(axis=(1, 3))
        lines = ["".join(chr(BRAILLE + code) if code else " " for code in line) for line in codes]
    else:
        lines = ["".join("*" if dot else " " for dot in line) for line in dots]
    labels = [""] * height
    labels[0], labels[-1] = f"{high_y:.5g}", f"{low_y:.5g}"
    side, floor = ("\u2502", "\u2514") if braille else ("|", "+")
    text = [
        f"{label:>{LABEL_CHARS}} {side}{line}".rstrip()
        for label, line in zip(labels, lines, strict=True)
    ]
    middle = np.linspace(low_x, high_x, columns * 2 + 1)[1::2]
    inside = np.any([(middle >= a) & (middle <= b) for a, b in spans] or [middle < low_x], axis=0)
    marks = "\u2550\u2500" if braille else "=-"
    text.append(" " * (LABEL_CHARS + 1) + floor + "".join(marks[0 if i else 1] for i in inside))
    low_label, high_label = f"{low_x:.5g}", f"{high_x:.5g}"
    text.append(" " * (LABEL_CHARS + 2) + low_label + high_label.rjust(columns - len(low_label)))
    return text


def _widened(low: float, high: float) -> tuple[float, float]:
    """The range, widened where it is (almost) empty."""
    if high - low > FLAT * max(abs(low), abs(high)):
        return low, high
    half = 0.5 * max(abs(low), abs(high)) or 0.5
    return low - half, high + half


def _extent(x: np.ndarray, y: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest value of a curve in each interval between edges, over its samples
    and the straight lines between them; NaN where there are none."""
    at_edges = np.interp(edges, x, y, left=np.nan, right=np.nan)
    low, high = (np.fmin(at_edges[:-1], at_edges[1:]), np.fmax(at_edges[:-1], at_edges[1:]))
    interval = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, len(edges) - 2)
    finite = np.isfinite(y)
    np.fmin.at(low, interval[finite], y[finite])
    np.fmax.at(high, interval[finite], y[finite])
    return low, high
