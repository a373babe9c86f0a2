"""Text that reaches a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """Text of one line in which what does not print (control characters, say) is escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
