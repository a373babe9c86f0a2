"""Files that a cache keeps: whole or not at all, also when several processes write one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def keep(path: Path, data: bytes) -> None:
    """Write a file under a new name of its folder, which is made, and rename it.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
