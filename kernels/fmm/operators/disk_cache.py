"""What is slow to compute of the operators, kept on disk: the singular value decompositions.

One file for each interaction, order and precision, in ``CAMPAIGN_FMM_CACHE``, or else in
``dvfs-campaign/fmm`` of the user's cache directory. A file is written whole under another name
and then renamed, so that processes that start together do no harm; its arrays carry checksums,
so that a torn one is noticed, computed again and replaced; and its name tells versions apart.
Where nothing can be written, nothing is kept.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

VERSION = 1
"""Of what is in a file. Goes up with every change of surfaces, cuts or layout."""

TORN = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)
"""What reading a torn archive raises: it has no directory, or members of another checksum."""


def cache_directory() -> Path:
    """Where the files are."""
    if given := os.environ.get("CAMPAIGN_FMM_CACHE"):
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "dvfs-campaign" / "fmm"


def kept(name: str, compute: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays of ``compute()``, from the file of ``name`` where that is whole."""
    path = cache_directory() / f"{name}-v{VERSION}.npz"
    with contextlib.suppress(*TORN), np.load(path, allow_pickle=False) as file:
        return {key: file[key] for key in file.files}
    found = compute()
    with contextlib.suppress(OSError):
        _write(path, found)
    return found


def _write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        try:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
