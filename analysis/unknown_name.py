"""What to say of a name that is not known, with those that are near it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def unknown_name(kind: str, name: str, names: Iterable[str]) -> str:
    """``"unknown scheme 'holdot'; did you mean 'holdout'? Known: ..."``."""
    names = list(names)
    near = [known for known in names if name and known.startswith(name)][:2]
    near = near or difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {' or '.join(map(repr, near))}? Known" if near else "known"
    return f"unknown {kind} {name!r}; {hint}: {', '.join(names) or 'none'}"
