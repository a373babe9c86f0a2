"""A cache on disk for the singular value decompositions, the slow part of the operators.

Each interaction, order and precision has one file, in the directory that ``CAMPAIGN_FMM_CACHE``
names, by default ``dvfs-campaign/fmm`` in the user's cache directory. The arrays have checksums, so
that a damaged file is detected, computed again and replaced. The file's name contains a version.
Where the directory is not writable, nothing is stored.
"""

from __future__ import annotations

import contextlib
import io
import os
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dvfs.files import write_kept

VERSION = 1
"""The version of the files' content: increase it with every change of the surfaces, of the
smallest singular value, or of the layout."""

DAMAGED = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)
"""The errors of a missing or damaged archive: no central directory, wrong checksums of members."""


def cache_directory() -> Path:
    """The directory of the files."""
    if directory := os.environ.get("CAMPAIGN_FMM_CACHE"):
        return Path(directory)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "dvfs-campaign" / "fmm"


def cached(name: str, compute: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays of ``compute()``, from the file of ``name`` if it is undamaged."""
    path = cache_directory() / f"{name}-v{VERSION}.npz"
    with contextlib.suppress(*DAMAGED), np.load(path, allow_pickle=False) as file:
        return {key: file[key] for key in file.files}
    arrays = compute()
    archive = io.BytesIO()
    np.savez(archive, allow_pickle=False, **arrays)
    with contextlib.suppress(OSError):
        write_kept(path, archive.getvalue())
    return arrays
