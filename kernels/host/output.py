"""The excerpt of a program's output for error messages."""

from __future__ import annotations

import re

CHARS = 2000
"""The characters quoted from the first error on, and of the end."""

ERROR = re.compile(
    r"error|fatal|abort|exception|traceback|cannot|can't|could not|failed|failure|not found"
    r"|no such|denied|invalid|illegal|out of memory|segmentation|assert|undefined|panic",
    re.IGNORECASE,
)


def beginning_and_end(text: str) -> str:
    """The lines from the first one that looks like an error (without one: from the beginning), and
    the last lines, with the numbers of omitted characters; a short text in full.

    The first error is the cause; after it, every rank of an MPI program may print another.
    """
    text = text.strip()
    if len(text) <= 2 * CHARS:
        return text or "none"
    end_at = len(text) - CHARS
    error = ERROR.search(text, 0, end_at)
    start = text.rfind("\n", 0, error.start()) + 1 if error else 0
    until = min(start + CHARS, end_at)
    parts = [_left_out(start), text[start:until], _left_out(end_at - until), text[end_at:]]
    return "\n".join(part for part in parts if part)


def _left_out(chars: int) -> str:
    return f"[... {chars} characters left out ...]" if chars else ""
