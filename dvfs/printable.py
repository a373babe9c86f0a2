"""Text that reaches a terminal, and numbers that people read: what of them is printed."""

from __future__ import annotations

import math
from typing import Any

DIGITS = 6
"""Of computed numbers in JSON."""


def printable(text: str, kept: str = "") -> str:
    """Text in which what does not print (control characters, say) is escaped, but for the
    characters ``kept``: by default it is one line."""
    return "".join(c if c.isprintable() or c in kept else repr(c)[1:-1] for c in text)


def rounded(value: Any, of: str = "") -> Any:
    """Numbers to :data:`DIGITS` significant digits, and percentages also to as many decimals, so
    that a difference which is 0 but for rounding is 0. ``of``: the key of ``value``; parameters
    and clocks stay as they are."""
    if of == "params":
        return value
    if isinstance(value, dict):
        return {k: rounded(item, str(k)) for k, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item, of) for item in value]
    if not isinstance(value, float) or not math.isfinite(value) or of.endswith("mhz"):
        return value
    return float(f"{round(value, DIGITS) if of.endswith('_pct') else value:.{DIGITS}g}")
