"""A machine's layout for the contract tests: how to show a true energy, and how to break it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sites.meters import open_meter

TREES = Path(__file__).parents[2] / "trees"
M = TypeVar("M")


def alone(root: Path) -> AbstractContextManager[None]:
    """For a layout that needs nothing but its files."""
    return nullcontext()


def replace(path: Path, text: str) -> None:
    """Put a file with this text in the place of another, so that a reader sees one or the other."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    new.replace(path)


def deny(path: Path) -> None:
    """Forbid a file to users without privileges."""
    # Modes don't bind root, and an owner other than root is the user who is to be denied.
    path.chmod(0o400 if os.geteuid() == 0 else 0)


def file_faults(
    file: Path, device: Path, garbage: str, empty: str = ""
) -> dict[str, Callable[[Path], None]]:
    """What can be wrong with a file of a tree, and the loss of the device that it belongs to."""
    return {
        "missing": lambda root: (root / file).unlink(),
        "denied": lambda root: deny(root / file),
        "empty": lambda root: replace(root / file, empty),
        "garbage": lambda root: replace(root / file, garbage),
        "gone": lambda root: shutil.rmtree(root / device),
    }


def number_in(path: Path) -> int:
    """The number that a file holds."""
    return int(path.read_text())


def copied(tree: str, root: Path) -> Path:
    """A tree of ``tests/trees``, copied to a folder, which may exist."""
    shutil.copytree(TREES / tree, root, dirs_exist_ok=True)
    return root


def opener(kind: str, of: type[M]) -> Callable[..., M]:
    """``open(root, **options)``, which opens a meter below a root and knows its class."""

    def open_it(root: Path, **options: object) -> M:
        meter = open_meter(kind, options, root)
        assert isinstance(meter, of)
        return meter

    return open_it


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A kind of meter on a kind of machine.

    ``tree`` is a folder of ``tests/trees``, copied to a test's own root. ``show(root, true)``
    makes the machine show the true value of every channel, J since its start or W, as its
    hardware would: rounded to its steps and wrapped at its range, each file replaced whole.
    Calls come in the order of time with energies that never go back; also from a process of
    their own, which finds the layout by its name in this package.

    ``faults``: name -> what brings it about in an open meter's tree. Each must lead to
    MeterError when the meter is read again (after ``show`` too, where the fault is a
    counter that went back or was reset). The names that apply are among ``missing``, ``denied``,
    ``empty``, ``garbage``, ``reset``, ``went back`` and ``gone`` (the whole device). ``denied``
    takes effect for a user without privileges, who then opens the meter in another process.
    ``running``: what has to run beside the tree, such as a program that implements a protocol.
    """

    name: str
    kind: str
    tree: str
    channels: tuple[str, ...]
    show: Callable[[Path, Mapping[str, float]], None]
    faults: Mapping[str, Callable[[Path], None]]
    options: Mapping[str, Any] = field(default_factory=dict)
    running: Callable[[Path], AbstractContextManager[Any]] = alone
    wrong_options: tuple[tuple[Mapping[str, Any], str], ...] = ()
    """Options that open_meter refuses with a ValueError, and what it says that would do."""
    greatest_step_j: float = 50.0
    """What every counter may gain between two readings in immediate succession, in J."""
    greatest_power_w: float = 40.0
    """What every gauge of power can show, in W."""
    lag_s: float = 0.0
    """How old a reading may be when it is taken, in s."""
    update_s: float = 0.001
    """How long a writer waits between two values, in s, where it may not be as short as can be."""
    wraps: bool = False
    """Whether a counter wraps, and soon enough for a test to see it do so several times."""
    from_files: bool = False
    """Whether a reading is one whole number a file (:class:`sites.meters.FromFiles`)."""
    named: tuple[str, ...] = ()
    """What an error may name in the place of a path below the root, such as a device."""
