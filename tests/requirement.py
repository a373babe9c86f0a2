"""What some tests need on a machine. Without it they fail and say how to get it, or by which mark
to deselect them; no test is skipped without notice."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def lacking(what: str, mark: str) -> NoReturn:
    """Fail the test because of ``what``; the tests that need it have the mark."""
    pytest.fail(f"{what}; or deselect these tests: pytest -m 'not {mark}'", pytrace=False)


def need_browser() -> str:
    """The program of a browser that can be driven."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        lacking("no Chromium on this machine: run .ci/install_chromium", "browser")
    return program


def need_root() -> None:
    """Fail the test where this process is not root's."""
    if os.getuid() != 0:
        lacking("only root can become another user", "root")
