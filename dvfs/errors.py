"""Errors that a user can fix. The command line prints one line, no traceback, and exits with the
error's exit code."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class UserError(Exception):
    """An error that a user can fix. Its text is ``what; remedy``.

    Args:
        what: the file, device or value, and what is wrong with it.
        remedy: how to fix it, with a command if there is one; empty if ``what`` implies it.

    ``exit_code``: 2 if the input is wrong, 1 if it is right and cannot be done now.
    """

    exit_code = 2

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(f"{what}; {remedy}" if remedy else what)
        self.what = what
        self.remedy = remedy


class ArgumentError(UserError):
    """An argument does not fit the store or a file."""


class UnsupportedError(UserError):
    """The input is right, but cannot be done now."""

    exit_code = 1


def reason(error: OSError, path: Path) -> str:
    """Why a file cannot be written, for a message."""
    if not path.parent.exists():
        return f"the folder {path.parent} does not exist"
    return error.strerror or str(error)


def exit_code(error: Exception) -> int | None:
    """The exit code of an error that a user can fix; None for a bug."""
    if isinstance(error, UserError):
        return error.exit_code
    return 1 if isinstance(error, OSError | MemoryError) else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """``"did you mean 'jetson-tk1'? "`` for ``jetson``; empty if no name is similar."""
    names = list(names)
    similar = [candidate for candidate in names if name and candidate.startswith(name)][:2]
    similar = similar or [item for item in names if item.casefold() == name.casefold()]
    similar = similar or difflib.get_close_matches(name, names, n=1)
    return f"did you mean {' or '.join(map(repr, similar))}? " if similar else ""


def known_names(name: str, names: Iterable[str], intro: str = "known") -> str:
    """``"did you mean 'jetson-tk1'? Known: jetson-tk1, localhost"``; without the question if no
    name is similar."""
    names = list(names)
    hint = did_you_mean(name, names)
    intro = f"{intro[0].upper()}{intro[1:]}" if hint else intro
    return f"{hint}{intro}: {', '.join(names) or 'none'}"


def unknown_name(kind: str, name: str, names: Iterable[str]) -> str:
    """``"unknown scheme 'holdot'; did you mean 'holdout'? Known: ..."``."""
    return f"unknown {kind} {name!r}; {known_names(name, names)}"
