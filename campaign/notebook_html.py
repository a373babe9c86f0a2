"""Results as a notebook shows them."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def html_table(frame: pd.DataFrame, title: str) -> str:
    """A table below its title."""
    return f"<p>{escape(title)}</p>\n{frame.to_html(float_format='{:.4g}'.format, na_rep='-')}"


def simulated_mark(simulated: bool) -> str:
    """What a title says at its end."""
    return " (simulated)" if simulated else ""
