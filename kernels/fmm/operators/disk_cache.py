"""A cache on disk for the part of the operators that is slow to compute.

That part is the singular value decompositions. There is one file for each interaction, order and
precision, in the directory that ``CAMPAIGN_FMM_CACHE`` names, by default ``dvfs-campaign/fmm`` in
the user's cache directory. Its arrays have checksums, so that a damaged file is detected, computed
again and replaced. Its name contains a version. Where the directory cannot be written, nothing is
kept.
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
"""The version of the files' content: to be increased with every change of surfaces, of the
smallest singular value, or of the layout."""

DAMAGED = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)
"""The errors of reading a damaged archive: no directory, or members with a wrong checksum."""


def cache_directory() -> Path:
    """The directory of the files."""
    if directory := os.environ.get("CAMPAIGN_FMM_CACHE"):
        return Path(directory)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "dvfs-campaign" / "fmm"


def cached(name: str, compute: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays of ``compute()``, read from the file of ``name`` if that is undamaged."""
    path = cache_directory() / f"{name}-v{VERSION}.npz"
    with contextlib.suppress(*DAMAGED), np.load(path, allow_pickle=False) as file:
        return {key: file[key] for key in file.files}
    arrays = compute()
    archive = io.BytesIO()
    np.savez(archive, allow_pickle=False, **arrays)
    with contextlib.suppress(OSError):
        write_kept(path, archive.getvalue())
    return arrays
