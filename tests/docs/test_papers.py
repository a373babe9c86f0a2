"""docs/papers.md: every item of the five papers has a row, and what a row says is so."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.docs.pages import ROOT, blocks, steps
from tests.docs.workplace import Workplace

PAGE = ROOT / "docs" / "papers.md"
ITEMS = {
    "Choi & Vuduc 2012": ["figures 1 to 8", "tables 1 to 5", "eqs. 1 to 31"],
    "Anzt et al. 2015": ["figures 1 to 9", "tables I and II", "eqs. 1 and 2"],
    "Choi & Vuduc 2016": ["figures 1 to 7", "tables I to IV", "eqs. 1 to 10"],
    "Prajapati 2019": [
        "figures 1.1 to 1.3, 2.1, 2.2, 8.1, A.1 to A.7, B.1 to B.4, C.1 to C.4, D.1 to D.12",
        "tables 8.1, A.1 to A.4, B.1 to B.3, C.1, C.2, D.1 to D.3",
        "eqs. 8.1 to 8.5, A.1 to A.32, B.1 to B.7, C.1 to C.19, D.1 to D.26",
    ],
}
"""What each paper numbers, counted in the papers. The slides number nothing."""
LAST_OF_PART = {"1": 3, "2": 2}
"""Of the thesis's parts whose figures end where a row's range goes on to the next part."""
ROMAN = ["", "I", "II", "III", "IV"]
NUMBER = re.compile(r"(?<![\w.,^-])\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?(?!\w|\.\d)")


def rows() -> list[tuple[str, list[str]]]:
    """(section, cells) of each row of the page's tables."""
    section, found = "", []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ").removesuffix(" (slides)")
        elif line.startswith("| ") and not line.startswith(("| item", "| ---")):
            found.append((section, [cell.strip() for cell in line.strip("|").split("|")]))
    return found


ROWS = rows()


def between(first: str, last: str) -> list[str]:
    """The numbers from one to another: 3 to 5, II to IV, A.2 to A.4, 1.1 to 2.2."""
    if first in ROMAN and last in ROMAN:
        return ROMAN[ROMAN.index(first) : ROMAN.index(last) + 1]
    (part, _, low), (end, _, high) = first.rpartition("."), last.rpartition(".")
    if part == end:
        dot = f"{part}." if part else ""
        return [f"{dot}{number}" for number in range(int(low), int(high) + 1)]
    middle = f"{part}.{LAST_OF_PART[part]}"
    return [*between(first, middle), *between(f"{int(part) + 1}.1", last)]


def numbers(item: str) -> tuple[str, list[str]]:
    """The kind and the numbers of a row's first cell, such as ``figures 1 to 3 and 5``."""
    kind, _, text = item.partition(" ")
    found: list[str] = []
    for part in re.split(r", | and ", text):
        first, _, last = part.partition(" to ")
        found += between(first, last or first)
    return kind.rstrip(".").rstrip("s"), found


def test_every_item_of_the_papers_has_one_row() -> None:
    for paper, items in ITEMS.items():
        given: dict[str, list[str]] = {}
        for section, cells in ROWS:
            if section == paper and not cells[0].startswith("section"):
                kind, own = numbers(cells[0])
                given.setdefault(kind, []).extend(own)
        printed = {kind: sorted(own) for kind, own in map(numbers, items)}
        assert {kind: sorted(own) for kind, own in given.items()} == printed, paper


@pytest.fixture(scope="module")
def written(workplace: Workplace) -> Workplace:
    """After the commands above the tables."""
    for block in blocks(PAGE):
        for step in steps(block):
            workplace.run(step.command)
    return workplace


@pytest.mark.parametrize(("section", "cells"), ROWS, ids=[f"{s} {c[0]}" for s, c in ROWS])
def test_a_row_has_a_command_or_a_reason_and_its_numbers(
    section: str, cells: list[str], written: Workplace
) -> None:
    _, by, ours, _ = cells
    quoted = re.findall(r"`([^`]+)`", by)
    said = ""
    for text in quoted:
        if text.startswith("campaign ") and " S " not in text:
            said += written.run(text)
        elif "/" in text and not text.startswith(("benchmarks/", "examples/")):
            path = written.folder / text
            assert path.stat().st_size > 0, text
            if path.suffix == ".csv":
                said += path.read_text(encoding="utf-8").replace(",", " ")
        elif "/" in text:
            assert Path(ROOT, text).is_file(), text
    assert said or quoted or len(by) > 20, f"{section}: {cells[0]}: neither a command nor a reason"
    known = np.array([float(text.replace(",", "")) for text in NUMBER.findall(said)])
    for text in NUMBER.findall(ours):
        half = 0.5 * 10.0 ** -len(text.partition(".")[2])
        distance = np.abs(known - float(text.replace(",", "")))
        assert (distance <= half * 1.001).any(), (
            f"{section}: {cells[0]}: {text} is not in what {by} gives"
        )
