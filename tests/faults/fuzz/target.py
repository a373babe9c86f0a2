"""What reads files from elsewhere, and the inputs that are made for it at random."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.fuzz.damage import Changes, Files, Link, change_content

MAX_BYTES = 2_000_000
"""Time and memory are bounded for files of some size: one of 10 MB may take its seconds."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Something that reads files from elsewhere.

    ``read`` raises for a refused input, and returns what was accepted in a word. ``spare`` are
    further right contents of a file, to begin from and to splice with. ``cases`` are inputs that
    were found to matter, each tried in every run.
    """

    name: str
    share: float
    """Of all inputs, relative to the other targets'."""
    prepare: Callable[[Path], None]
    read: Callable[[Path, int], None]
    spare: Callable[[Files], dict[str, list[bytes]]] = lambda files: {}
    cases: Mapping[str, Callable[[Files], Changes]] = field(default_factory=dict)
    changed: str = ""
    """A pattern in the names of the files that are changed at random."""
    seal: Callable[[random.Random, Files, Changes], None] = lambda rng, files, changes: None
    """What is done to an input at last, as to make checksums right again."""
    short_step: int = 1
    """In a short run one of so many cases is tried."""
    often: tuple[int, ...] = ()
    """The ways of inputs at random, in turn, where some take longer; else all in turn."""
    ways: int = 1
    """How many ways of reading ``read`` has, chosen by its second argument."""


LINKS = ["nowhere", ".", "/dev/null", "../../outside.txt", "/proc/self/maps"]


def group_of(name: str) -> str:
    """Files of one kind, so that one of many is not chosen more often than one alone."""
    parts = Path(name)
    return f"{parts.parts[0]}:{parts.suffix or 'bytes'}:{len(parts.parts) > 2}"


def make_changes(
    target: Target, files: Files, spare: Mapping[str, list[bytes]], seed: int, index: int
) -> Changes:
    """An input: it follows from its number, the target and the seed alone."""
    rng = random.Random(f"{seed}:{target.name}:{index}")
    changes: Changes = {}
    groups: dict[str, list[str]] = {}
    for name in sorted(name for name in files if re.search(target.changed, name)):
        groups.setdefault(group_of(name), []).append(name)
    for _ in range(rng.choice([1, 1, 1, 2])):
        name = rng.choice(groups[rng.choice(sorted(groups))])
        data = rng.choice([files[name], *spare.get(name, [])])
        if len(files) > 1 and rng.random() < 0.03:
            changes[name] = rng.choice([None, *map(Link, LINKS)])
            continue
        pool = [*spare.get(name, []), files[rng.choice(sorted(files))]]
        for _ in range(rng.choice([1, 1, 1, 2, 4])):
            data = change_content(rng, name, data, rng.choice(pool))[:MAX_BYTES]
        changes[name] = data
    target.seal(rng, files, changes)
    return changes
