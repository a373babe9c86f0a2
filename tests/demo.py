"""What ``campaign demo`` leaves and prints: run once in a test session, for all its processes."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from tests.session_folder import session_folder
from tests.shared_imports import program


def copy_demo(folder: Path) -> str:
    """Put ``campaign-demo`` into a folder, as ``campaign demo`` would there; what it printed."""
    original = session_folder() / "demo"
    original.mkdir(exist_ok=True)
    printed = original / "printed"
    with (original / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not printed.exists():
            shutil.rmtree(original / "campaign-demo", ignore_errors=True)
            done = subprocess.run(
                [program(), "demo"],
                cwd=original,
                env={**os.environ, "COLUMNS": "100"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout
            printed.write_text(done.stdout, encoding="utf-8")
    shutil.copytree(original / "campaign-demo", folder / "campaign-demo")
    return printed.read_text(encoding="utf-8")
