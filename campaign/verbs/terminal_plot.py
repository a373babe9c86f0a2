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
"""A range below this fraction of its values is widened: nothing but rounding would be seen."""


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
    """The lines of a plot of ``y`` against ``x`` (float64 (n,), ``x`` rising), ``width`` characters
    at most.

    Each column of dots reaches from the least to the greatest value of the curve in its interval,
    so that a single sample is seen. Where ``y`` is NaN nothing is drawn. ``spans``: intervals of x
    that are marked below the curve. The axes are labelled with the least and the greatest values.
    """
    columns = max(width, LEAST_WIDTH) - LABEL_CHARS - 2
    per_x, per_y = (2, 4) if braille else (1, 1)
    known = np.isfinite(y)
    if not known.any():
        return ["no values"]
    low_x, high_x = (float(edge) for edge in _widened(x[0], x[-1]))
    low_y, high_y = (float(edge) for edge in _widened(np.nanmin(y), np.nanmax(y)))
    low, high = _extent(x, y, np.linspace(low_x, high_x, columns * per_x + 1))
    rows = height * per_y
    drawn = np.isfinite(low)
    top, bottom = (
        np.clip(((high_y - np.where(drawn, edge, low_y)) / (high_y - low_y) * rows), 0, rows - 1)
        for edge in (high, low)
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
    left, right = f"{low_x:.5g}", f"{high_x:.5g}"
    text.append(" " * (LABEL_CHARS + 2) + left + right.rjust(columns - len(left)))
    return text


def _widened(low: float, high: float) -> tuple[float, float]:
    """A range that is not empty."""
    if high - low > FLAT * max(abs(low), abs(high)):
        return low, high
    half = 0.5 * max(abs(low), abs(high)) or 0.5
    return low - half, high + half


def _extent(x: np.ndarray, y: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least and the greatest value of a curve in each interval between edges, of its samples
    there and of straight lines between samples; NaN where it has none."""
    at_edges = np.interp(edges, x, y, left=np.nan, right=np.nan)
    low, high = (np.fmin(at_edges[:-1], at_edges[1:]), np.fmax(at_edges[:-1], at_edges[1:]))
    place = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, len(edges) - 2)
    known = np.isfinite(y)
    np.fmin.at(low, place[known], y[known])
    np.fmax.at(high, place[known], y[known])
    return low, high
