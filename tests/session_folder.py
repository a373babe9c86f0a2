"""A folder that all processes of a test session share: pytest's own and its workers'."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

FOLDER = "CAMPAIGN_TESTS_FOLDER"
OWNER = "CAMPAIGN_TESTS_OWNER"


def session_folder() -> Path:
    """The folder. The process that asks first makes it, owns it and removes it when it ends; the
    processes that it starts find it in their environment."""
    if FOLDER not in os.environ:
        os.environ[FOLDER] = tempfile.mkdtemp(prefix="campaign-tests-")
        os.environ[OWNER] = str(os.getpid())
        atexit.register(shutil.rmtree, os.environ[FOLDER], ignore_errors=True)
    return Path(os.environ[FOLDER])


def owner() -> int:
    """The process that owns the folder."""
    session_folder()
    return int(os.environ[OWNER])
