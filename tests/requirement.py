"""What some tests need of a machine: without it they are skipped, and say so, or fail where a
variable demands it, as ``.ci/run`` does."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def lacking(what: str, variable: str) -> NoReturn:
    """Skip the test for want of ``what``; fail it if ``variable`` is 1."""
    if os.environ.get(variable) == "1":
        pytest.fail(f"{variable}=1, but {what}", pytrace=False)
    pytest.skip(what)


def need_browser() -> str:
    """The program of a browser that can be driven."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        lacking("no Chromium on this machine (.ci/install_chromium)", "CAMPAIGN_REQUIRE_BROWSER")
    return program


def need_root() -> None:
    """Only root can become another user."""
    if os.getuid() != 0:
        lacking("this is not root, who alone can become another user", "CAMPAIGN_REQUIRE_ROOT")
