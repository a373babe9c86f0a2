"""What some tests need of a machine. Without it they fail and say so: whoever can do without them
leaves them out by their mark, and nothing is left out unseen."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def lacking(what: str, mark: str) -> NoReturn:
    """Fail the test for want of ``what``; tests that need it have the mark."""
    pytest.fail(f"{what}; or leave these tests out: pytest -m 'not {mark}'", pytrace=False)


def need_browser() -> str:
    """The program of a browser that can be driven."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        lacking("no Chromium on this machine: run .ci/install_chromium", "browser")
    return program


def need_root() -> None:
    """Only root can become another user."""
    if os.getuid() != 0:
        lacking("this is not root, who alone can become another user", "root")
