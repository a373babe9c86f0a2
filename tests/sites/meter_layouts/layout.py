"""A machine's layout for the contract tests: how to show a true energy, and how to break it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TREES = Path(__file__).parents[2] / "trees"


def alone(root: Path) -> AbstractContextManager[None]:
    """For a layout that needs nothing but its files."""
    return nullcontext()


@dataclass(frozen=True)
class Layout:
    """A kind of meter on a kind of machine.

    ``tree`` is a folder of ``tests/trees``, copied to a test's own root. ``show(root, true)``
    makes the machine show the true value of every channel, J since its start or W, as its
    hardware would: rounded to its steps and wrapped at its range, each file replaced whole.
    Calls come in the order of time with energies that never go back.

    ``faults``: name -> what brings it about in an open meter's tree. Each must lead to
    MeterUnreadable when the meter is read again (after ``show`` too, where the fault is a
    counter that went back or was reset). The names that apply are among ``missing``, ``denied``,
    ``empty``, ``garbage``, ``reset``, ``went back`` and ``gone`` (the whole device).
    ``running``: what has to run beside the tree, such as a program that speaks a protocol.
    """

    name: str
    kind: str
    tree: str
    channels: tuple[str, ...]
    show: Callable[[Path, Mapping[str, float]], None]
    faults: Mapping[str, Callable[[Path], None]]
    options: Mapping[str, Any] = field(default_factory=dict)
    running: Callable[[Path], AbstractContextManager[Any]] = alone
