"""Every command, Python block and file that README.md and docs/ show is run or read here."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from campaign.plan.campaign_file import read_campaign
from sites.site_reading import read_site
from tests.docs.pages import (
    EXTENDING,
    LANGUAGES,
    PAGES,
    Block,
    blocks,
    first_difference,
    steps,
)
from tests.docs.workplace import Workplace

RUN = [page for page in PAGES if page != EXTENDING]
SITE_TABLES = '\n[partitions.p]\nscheduler = "slurm"\n'
KERNEL = '\n[[kernels]]\nkernel = "idle"\n'
SITES = '\n[[sites]]\nsite = "localhost"\n'
NAME = 'name = "part"\n'


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_what_a_page_shows_is_what_happens(page: Path, workplace: Workplace) -> None:
    python = ""
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{block.where}: the block names no known language"
        if block.directive == "file":
            workplace.write(block)
        match block.language:
            case "toml":
                check_toml(block, workplace.folder)
            case "json":
                json.loads(block.text)
            case "python":
                if block.directive != "not run":
                    python += f"# {block.where}\n{block.text}\n"
            case "console" | "sh":
                if block.directive != "not run":
                    check_commands(block, workplace)
            case "text":
                assert not block.text.startswith(("$ ", "campaign ", "make ")), (
                    f"{block.where}: commands belong into a block of sh or console"
                )
    if python:
        script = f"{page.stem}.py"
        (workplace.folder / script).write_text(python, encoding="utf-8")
        workplace.run(f"python {script}")


def check_commands(block: Block, workplace: Workplace) -> None:
    assert steps(block), f"{block.where}: no command"
    for command, shown, printed in workplace.outputs(block):
        difference = first_difference(shown, printed) if shown else None
        assert difference is None, f"{block.where}: {command}\n{difference}\n\n{printed}"


def check_toml(block: Block, folder: Path) -> None:
    """A whole site or campaign file, or a part of one, is accepted by its reader."""
    parsed = tomllib.loads(block.text)
    whole = block.text if "name" in parsed else NAME + block.text
    path = folder / (block.argument if block.directive == "file" else "block.toml")
    tables = {"meters", "clocks", "power_limit", "profiles", "counters", "domains", "partitions"}
    if tables & set(parsed):
        path.write_text(whole + ("" if "partitions" in parsed else SITE_TABLES), encoding="utf-8")
        read_site(path)
    elif {"kernels", "protocol", "settings"} & set(parsed):
        whole += "" if "kernels" in parsed else KERNEL
        path.write_text(whole + ("" if "sites" in parsed else SITES), encoding="utf-8")
        read_campaign(path)
    else:
        assert block.directive == "file", f"{block.where}: nothing reads this block"
