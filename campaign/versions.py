"""The version of this package, and the commit that it was installed from, where that is known."""

from __future__ import annotations

import json
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Any

PACKAGE = "dvfs-campaign"
ROOT = Path(__file__).parent.parent
GIT_S = 10.0


def package_versions() -> dict[str, Any]:
    """``version`` of this package, its ``commit`` where it is known, and ``python``."""
    facts = {"version": version(PACKAGE), "commit": _commit(), "python": platform.python_version()}
    return {name: fact for name, fact in facts.items() if fact}


def _commit() -> str:
    """The commit: of the checkout that this file is in ("-dirty": with changes), or the one that
    pip installed from (PEP 610); empty where there is none."""
    if (ROOT / ".git").exists():
        return _git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    try:
        text = distribution(PACKAGE).read_text("direct_url.json")
        return str(json.loads(text or "{}").get("vcs_info", {}).get("commit_id", ""))
    except (PackageNotFoundError, ValueError, AttributeError):
        return ""


def _git(*words: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *words],
            capture_output=True,
            text=True,
            timeout=GIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
