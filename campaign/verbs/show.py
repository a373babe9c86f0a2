"""Printing results: JSON for programs, aligned columns for people."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from campaign.printable import printable

if TYPE_CHECKING:
    import xarray as xr

    from analysis.quality import Finding

ROWS_DESCRIBED = 3


def print_json(value: Any) -> None:
    """Print a value as JSON; a number that is missing is null, never NaN."""
    print(json.dumps(plain(value), indent=1, allow_nan=False))


def plain(value: Any) -> Any:
    """A value as JSON can hold it: keys as text, numbers that are missing as None."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def print_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows under a header: text to the left, numbers to the right."""
    texts = [[_text(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *texts, strict=True)]
    right = [
        bool(rows) and all(isinstance(row[i], int | float) or row[i] is None for row in rows)
        for i in range(len(header))
    ]
    for line in (list(header), *texts):
        cells = (
            cell.rjust(width) if r else cell.ljust(width)
            for cell, width, r in zip(line, widths, right, strict=True)
        )
        say("  ".join(cells).rstrip())


def _text(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else printable(str(value))


def say(text: str = "", file: TextIO | None = None) -> None:
    """Print lines for a person; names and texts in them can't steer the terminal."""
    print("\n".join(map(printable, text.split("\n"))), file=file)


def print_finding(site: str, finding: Finding, dataset: xr.Dataset) -> None:
    """What a check of the measurements found, and the first rows of it."""
    from analysis.quality import describe  # noqa: PLC0415

    severity = "not fit for fitting" if finding.severity == "refused" else finding.severity
    say(f"{site}: {severity}: {finding.check}: {finding.text}")
    for line in describe(finding, dataset, ROWS_DESCRIBED):
        say(f"    {line}")
