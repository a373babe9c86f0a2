"""Run all pages, and write below their commands what they print now.

    python -m tests.docs.refresh

Of an output that is shown in part, as many lines as before are written at its beginning and at its
end; a line with ``...`` in it stays while it still fits.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.docs.pages import EXTENDING, PAGES, ROOT, blocks, first_difference, steps
from tests.docs.workplace import Workplace


def renewed(shown: list[str], printed: str) -> list[str]:
    """The lines to show of ``printed``, as many as are shown now."""
    lines = [line.rstrip() for line in printed.rstrip("\n").split("\n")]
    gaps = [i for i, line in enumerate(shown) if line == "..."]
    if not gaps:
        return lines
    head, tail = shown[: gaps[0]], shown[gaps[-1] + 1 :]
    now = [*lines[: len(head)], *shown[gaps[0] : gaps[-1] + 1], *lines[len(lines) - len(tail) :]]
    return [
        old if "..." in old and first_difference([old], new) is None else new
        for old, new in zip(shown, now, strict=False)
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        workplace = Workplace(Path(folder))
        for page in (page for page in PAGES if page != EXTENDING):
            text = page.read_text(encoding="utf-8")
            for block in blocks(page):
                if block.directive == "file":
                    workplace.write(block)
                if block.language not in ("console", "sh") or block.directive == "not run":
                    continue
                new = block.text
                for step in steps(block):
                    printed = workplace.run(step.command)
                    if step.output and first_difference(step.output, printed):
                        old = "".join(f"{line}\n" for line in step.output)
                        now = "".join(f"{line}\n" for line in renewed(step.output, printed))
                        new = new.replace(old, now, 1)
                if new != block.text:
                    print(f"{page.relative_to(ROOT)}:{block.line}")
                    text = text.replace(block.text, new, 1)
            page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
