"""How text reaches a terminal, and how numbers are rounded."""

from __future__ import annotations

import math
from typing import Any

DIGITS = 6
"""The significant digits of computed numbers in JSON."""


def printable(text: str, kept: str = "") -> str:
    """The text with unprintable characters escaped, except those in ``kept``: one line by
    default."""
    return "".join(c if c.isprintable() or c in kept else repr(c)[1:-1] for c in text)


def rounded(value: Any, key: str = "") -> Any:
    """Round numbers to :data:`DIGITS` significant digits, and percentages also to as many
    decimals, so that a rounding error becomes 0. ``key``: the key of ``value``; parameters and
    clocks are not rounded."""
    if key == "params":
        return value
    if isinstance(value, dict):
        return {k: rounded(item, str(k)) for k, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item, key) for item in value]
    if not isinstance(value, float) or not math.isfinite(value) or key.endswith("mhz"):
        return value
    return float(f"{round(value, DIGITS) if key.endswith('_pct') else value:.{DIGITS}g}")
