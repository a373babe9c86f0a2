"""The documentation's site is built without a warning, and asks nothing of other hosts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from campaign.codesign.study_file import Study
from campaign.plan.campaign_file import Campaign
from campaign.plan.profile_file import Profile
from campaign.profiles.profile import CounterMap
from campaign.table.map_file import TableMap
from docs.tables import DOCS, with_tables
from dvfs.input_files import FileModel
from kernels.parameters import field_texts
from sites.counters.group_file import CounterGroup
from sites.site_file import Site
from tests.docs.pages import ROOT

LOADED = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=["']https?://""")
FILES = (Campaign, Site, TableMap, Profile, Study, CounterGroup, CounterMap)


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
    assert {
        "index.html",
        "contributing.html",
        "api/index.html",
        "api/campaign.results.html",
    } <= set(pages)
    reference = pages["file-reference.html"].read_text(encoding="utf-8")
    assert file_keys() <= set(re.findall(r"<li><code>(\w+)</code>", reference))
    assert "open_store" in pages["api/campaign.results.html"].read_text(encoding="utf-8")
    for name, path in pages.items():
        loaded = LOADED.findall(path.read_text(encoding="utf-8"))
        assert not loaded, f"{name}: {loaded}"
    assert not re.search(r"url\(['\"]?https?:", (tmp_path / "style.css").read_text())


def test_the_tables_are_those_of_the_registries() -> None:
    for page in DOCS.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert with_tables(text) == text, f"{page.name}: run python -m docs.tables"


def test_the_file_reference_has_every_key_with_its_meaning() -> None:
    items = (DOCS / "file-reference.md").read_text(encoding="utf-8").splitlines()
    models = {table.__name__: table for table in FileModel.__subclasses__()}
    for model in FILES:
        for table in tables_of(model):
            texts = field_texts(models[table["title"]])
            for key in table["properties"]:
                meaning = texts.get(key, "")
                assert meaning, f"{model.__name__}: {key} has no description"
                of_key = [item for item in items if item.startswith(f"- `{key}` (")]
                assert any(item.endswith(f"): {meaning}") for item in of_key), f"{key}: {meaning}"


def tables_of(model: Any) -> list[dict[str, Any]]:
    """The JSON schemas of a file's tables."""
    schema = model.model_json_schema()
    return [schema, *schema.get("$defs", {}).values()]


def file_keys() -> set[str]:
    """Every key of the files that a user writes."""
    return {key for model in FILES for table in tables_of(model) for key in table["properties"]}
