"""What errors of machines and input files have in common."""

from __future__ import annotations


class WithRemedy(Exception):
    """An error that says how to fix it. Its text is ``what; remedy``.

    Args:
        what: the file, device or value, and what is wrong with it.
        remedy: how to fix it, with a command where there is one.
    """

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")
        self.what = what
        self.remedy = remedy
