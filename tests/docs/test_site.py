"""The documentation's site is built without a warning, and asks nothing of other hosts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from docs.tables import DOCS, with_tables
from tests.docs.pages import ROOT

LOADED = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=["']https?://""")


def test_the_site_is_built_without_warnings_and_loads_nothing_from_outside(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "WARNING" not in ended.stderr
    pages = {str(path.relative_to(tmp_path)): path for path in tmp_path.rglob("*.html")}
    assert {"index.html", "contributing.html", "api/index.html", "api/campaign.html"} <= set(pages)
    assert "open_store" in pages["api/campaign.html"].read_text(encoding="utf-8")
    for name, path in pages.items():
        loaded = LOADED.findall(path.read_text(encoding="utf-8"))
        assert not loaded, f"{name}: {loaded}"
    assert not re.search(r"url\(['\"]?https?:", (tmp_path / "style.css").read_text())


def test_the_tables_are_those_of_the_registries() -> None:
    for page in DOCS.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert with_tables(text) == text, f"{page.name}: run python -m docs.tables"
