"""Printing results: JSON for programs; for people, tables and sentences within 100 columns."""

from __future__ import annotations

import json
import math
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from dvfs.printable import printable, rounded

if TYPE_CHECKING:
    from dvfs.setting import Setting

WIDTH = 100
"""The width in columns that every table and sentence fits."""
MOST_ROWS = 20
"""The most rows of a table that are printed without ``--all``."""
COUNT_EVERY_S = 0.5


def print_json(value: Any) -> None:
    """Print a value as JSON; a missing number is null, never NaN."""
    print(json.dumps(plain(value), indent=1, allow_nan=False))


def print_computed(value: Any) -> None:
    """Print results as JSON, rounded to the digits that are equal on all processors."""
    print_json(rounded(value))


def answer(
    as_json: bool,
    value: Callable[[], Any],
    for_people: Callable[[], object],
    *,
    computed: bool = False,
) -> int:
    """Print a result, as JSON or for people; ``computed``: as :func:`print_computed` does. Return
    the exit code 0."""
    if not as_json:
        for_people()
    elif computed:
        print_computed(value())
    else:
        print_json(value())
    return 0


def counted_on_terminal(label: str) -> Callable[[int], None]:
    """A function that shows a count in one line on standard error, where that is a terminal."""
    began_s = shown_s = time.monotonic()

    def show(count: int) -> None:
        nonlocal shown_s
        now_s = time.monotonic()
        if now_s - shown_s >= COUNT_EVERY_S:
            shown_s = now_s
            sys.stderr.write(f"\r{count:,} {label} in {now_s - began_s:.0f} s\x1b[K\r")
            sys.stderr.flush()

    return show if sys.stderr.isatty() else lambda count: None


def plain(value: Any) -> Any:
    """A value in JSON's types: keys as text, missing numbers as None."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[Any]], every_row: bool = True
) -> None:
    """Print rows under a header, with text aligned left and numbers right.

    Without ``every_row``: only the first :data:`MOST_ROWS`, and the number of the others. On a
    terminal the table has rules and a bold header; elsewhere it is aligned text.
    """
    shown = rows if every_row else rows[:MOST_ROWS]
    cells = [[_text(value) for value in row] for row in shown]
    numeric = [
        bool(rows) and all(isinstance(row[i], int | float) or row[i] is None for row in rows)
        for i in range(len(header))
    ]
    if sys.stdout.isatty():
        _print_rich(header, cells, numeric)
    else:
        _print_aligned(header, cells, numeric)
    if len(rows) > len(shown):
        say(f"and {len(rows) - len(shown)} more (--all prints them)")


def print_fields(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> None:
    """Print some fields of rows; ``columns``: header -> key."""
    print_table(list(columns), [[row[key] for key in columns.values()] for row in rows])


def _print_aligned(
    header: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool]
) -> None:
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    for line in (header, *cells):
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        )
        print("  ".join(padded).rstrip())


def _print_rich(
    header: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool]
) -> None:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for name, right in zip(header, numeric, strict=True):
        table.add_column(Text(name), justify="right" if right else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)


def _text(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else printable(str(value))


def marked(name: str, simulated: bool) -> str:
    """The name of a site or a file, marked if its content is simulated."""
    return f"{name} (simulated)" if simulated else name


def mhz_text(setting: Setting) -> str:
    """A setting in a column of MHz: ``852/924``, ``852/924, 150 W``."""
    from analysis.measurements.observations import setting_text  # noqa: PLC0415

    return setting_text(setting).removesuffix(" MHz")


def shortened(text: str, width: int) -> str:
    """The text in at most ``width`` characters: a longer one loses its middle."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}\N{HORIZONTAL ELLIPSIS}{text[-end:]}"


def began_text(start_unix_s: float) -> str:
    """The start of a measurement, after a comma; empty where it is unknown."""
    if not start_unix_s > 0:
        return ""
    return time.strftime(", %Y-%m-%d %H:%M:%S UTC", time.gmtime(start_unix_s))


def say(text: str = "", file: TextIO | None = None) -> None:
    """Print lines unchanged, but without control characters that would affect the terminal."""
    print("\n".join(map(printable, text.split("\n"))), file=file)


def explain(text: str) -> None:
    """Print a sentence within :data:`WIDTH` columns; further lines are indented."""
    for line in text.split("\n"):
        say(
            textwrap.fill(
                line,
                WIDTH,
                subsequent_indent="  ",
                break_long_words=False,
                break_on_hyphens=False,
            )
        )
