"""What ``campaign demo`` leaves and prints: run once in a test session, for all its processes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.session_folder import made_once
from tests.shared_imports import program


def copy_demo(folder: Path) -> str:
    """Put ``campaign-demo`` into a folder, as ``campaign demo`` would there; what it printed."""
    original = made_once("demo", _run)
    shutil.copytree(original / "campaign-demo", folder / "campaign-demo")
    return (original / "printed").read_text(encoding="utf-8")


def _run(folder: Path) -> None:
    shutil.rmtree(folder / "campaign-demo", ignore_errors=True)
    done = subprocess.run(
        [program(), "demo"],
        cwd=folder,
        env={**os.environ, "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    (folder / "printed").write_text(done.stdout, encoding="utf-8")
