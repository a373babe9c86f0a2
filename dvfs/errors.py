"""Errors that a user can fix. The command line prints them in one line, without a traceback, and
ends with their exit code."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class UserError(Exception):
    """An error that a user can fix. Its text is ``what; remedy``.

    Args:
        what: the file, device or value, and what is wrong with it.
        remedy: how to fix it, with a command where there is one; empty where ``what`` says it.

    ``exit_code``: 2 where something that was given is wrong, 1 where it cannot be done now.
    """

    exit_code = 2

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(f"{what}; {remedy}" if remedy else what)
        self.what = what
        self.remedy = remedy


class ArgumentError(UserError):
    """An argument is wrong in a way that only the store or a file can show."""


class UnsupportedError(UserError):
    """What was asked for cannot be done now; nothing that was given is wrong."""

    exit_code = 1


def reason(error: OSError, path: Path) -> str:
    """Why a file cannot be written, for a person."""
    if not path.parent.exists():
        return f"the folder {path.parent} does not exist"
    return error.strerror or str(error)


def exit_code(error: Exception) -> int | None:
    """The exit code of an error that a user can fix; None for a fault of the program."""
    if isinstance(error, UserError):
        return error.exit_code
    return 1 if isinstance(error, OSError | MemoryError) else None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """``"did you mean 'jetson-tk1'? "`` for ``jetson``; empty where no name is near."""
    names = list(names)
    near = [known for known in names if name and known.startswith(name)][:2]
    near = near or [known for known in names if known.casefold() == name.casefold()]
    near = near or difflib.get_close_matches(name, names, n=1)
    return f"did you mean {' or '.join(map(repr, near))}? " if near else ""


def known_names(name: str, names: Iterable[str], intro: str = "known") -> str:
    """``"did you mean 'jetson-tk1'? Known: jetson-tk1, localhost"``; without the question where no
    name is near."""
    names = list(names)
    hint = did_you_mean(name, names)
    intro = f"{intro[0].upper()}{intro[1:]}" if hint else intro
    return f"{hint}{intro}: {', '.join(names) or 'none'}"


def unknown_name(kind: str, name: str, names: Iterable[str]) -> str:
    """``"unknown scheme 'holdot'; did you mean 'holdout'? Known: ..."``."""
    return f"unknown {kind} {name!r}; {known_names(name, names)}"
