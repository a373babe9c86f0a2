"""The code blocks of README.md and docs/*.md, and what their authors say about them.

A comment on the line above a block says more than its language does:

``<!-- not run: REASON -->``
    the block cannot run in a test; without this comment every block is run or checked.
``<!-- file: NAME -->``
    the block is the file NAME, which the commands after it read.
``<!-- insert: FILE after TEXT -->``
    the block, a ``diff``, adds lines to FILE below the first line that contains TEXT
    (``docs/extending.md``).

A block whose only line is ``--8<-- "FILE"`` shows a file of the repository.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXTENDING = ROOT / "docs" / "extending.md"
"""Its files go into a copy of the source tree: ``test_extending.py``."""
LANGUAGES = ("console", "sh", "python", "toml", "json", "text", "diff")
FENCE = re.compile(r"^( *)```(\S*)\s*$")
SNIPPET = re.compile(r'^--8<-- "(.+)"\n$')
DIRECTIVE = re.compile(r"^ *<!-- (not run|file|insert): (.+) -->$")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced code block; ``line`` is that of its first line of code, from 1."""

    page: Path
    line: int
    language: str
    text: str
    directive: str = ""
    """``not run``, ``file``, ``insert``, or nothing."""
    argument: str = ""

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """The code blocks of a page, in order."""
    result: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    number, above = 0, ""
    while number < len(lines):
        fence = FENCE.match(lines[number])
        if fence is None:
            above = lines[number] or above
            number += 1
            continue
        indent, language = fence.groups()
        end = number + 1
        while lines[end] != f"{indent}```":
            end += 1
        directive = DIRECTIVE.match(above)
        text = "".join(f"{line.removeprefix(indent)}\n" for line in lines[number + 1 : end])
        shown = SNIPPET.match(text)
        result.append(
            Block(
                page=page,
                line=number + 2,
                language=language,
                text=Path(ROOT, shown[1]).read_text(encoding="utf-8") if shown else text,
                directive=directive[1] if directive else "",
                argument=directive[2] if directive else "",
            )
        )
        number, above = end + 1, ""
    return result


@dataclass(frozen=True)
class Step:
    """A command, and the output that the page shows below it (None: it shows none)."""

    command: str
    output: list[str] | None


def steps(block: Block) -> list[Step]:
    """The commands of a ``console`` or ``sh`` block.

    In a ``console`` block a command follows ``$ ``, and other lines are output. A ``sh`` block is
    commands only, one a line; a backslash at a line's end continues it.
    """
    text = block.text.replace("\\\n", " ")
    if block.language == "sh":
        commands = [line for line in text.splitlines() if line and not line.startswith("#")]
        return [Step(command, None) for command in commands]
    result: list[Step] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            result.append(Step(line[2:], []))
        else:
            assert result, f"{block.where}: output before any command"
            shown = result[-1].output
            assert shown is not None
            shown.append(line)
    return [Step(step.command, step.output or None) for step in result]


def commands_of_pages() -> list[Step]:
    """All commands that ``test_commands.py`` runs."""
    return [
        step
        for page in PAGES
        if page != EXTENDING
        for block in blocks(page)
        if block.language in ("console", "sh") and block.directive != "not run"
        for step in steps(block)
    ]


def first_difference(shown: list[str], printed: str) -> str | None:
    """Where ``printed`` is not as a page shows it; None where it is.

    A line ``...`` stands for any lines, and ``...`` inside a line for any text.
    """
    lines = [line.rstrip() for line in printed.rstrip("\n").split("\n")]
    position, skipping = 0, False
    for line in shown:
        if line.strip() == "...":
            skipping = True
            continue
        pattern = re.compile(".*".join(map(re.escape, line.rstrip().split("..."))))
        limit = len(lines) if skipping else min(position + 1, len(lines))
        match = next((i for i in range(position, limit) if pattern.fullmatch(lines[i])), None)
        if match is None:
            instead = lines[position] if position < len(lines) else "the end of the output"
            return f"the page shows\n  {line}\nand the command printed\n  {instead}"
        position, skipping = match + 1, False
    if not skipping and position < len(lines):
        return f"the command printed more than the page shows:\n  {lines[position]}"
    return None
