"""Waiting until files are on disk, not only in the system's memory."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Wait until a file's bytes, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(root: Path) -> None:
    """Wait until a folder, all files below it and their names are on disk."""
    for folder, _, names in os.walk(root):
        for name in names:
            sync(Path(folder) / name)
        sync(Path(folder))
