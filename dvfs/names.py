"""A name that is not known: what to say of it, with those that are near it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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
