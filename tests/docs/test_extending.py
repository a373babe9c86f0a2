"""The examples of docs/extending.md, written to a copy of the source tree and run there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import EXTENDING, ROOT, Block, blocks, steps
from tests.shared_imports import program

ROOMS = ("campaign", "dvfs", "kernels", "sites", "analysis")
EIGHT_KERNELS = """
[[kernels]]
kernel = "dp_fma"
params = { level = "dram", ops_per_word = [1, 8, 64] }
[[kernels]]
kernel = "sp_fma"
params = { level = "l2", ops_per_word = [1, 8, 64] }
[[kernels]]
kernel = "load"
params = { level = ["l2", "dram"] }
"""
KINDS = ["A meter", "A clock control", "A kernel", "An energy term", "An objective", "A verb"]


def sections() -> dict[str, list[Block]]:
    """Heading of the page -> the blocks below it."""
    lines = EXTENDING.read_text(encoding="utf-8").splitlines()
    starts = [i + 1 for i, line in enumerate(lines) if line.startswith("## ")]
    ends = [*starts[1:], len(lines) + 1]
    return {
        lines[start - 1].removeprefix("## "): [
            block for block in blocks(EXTENDING) if start < block.line < end
        ]
        for start, end in zip(starts, ends, strict=True)
    }


def insert(tree: Path, block: Block) -> None:
    """The block's lines below the first line that contains the text that its comment names."""
    name, _, text = block.argument.partition(" after ")
    lines = (tree / name).read_text(encoding="utf-8").splitlines(keepends=True)
    place = next((i for i, line in enumerate(lines) if text in line), None)
    assert place is not None, f"{block.where}: {name} has no line with {text!r}"
    lines[place + 1 : place + 1] = [
        line.removeprefix("+") for line in block.text.splitlines(keepends=True)
    ]
    (tree / name).write_text("".join(lines), encoding="utf-8")


def run(tree: Path, command: str) -> None:
    first = Path(sys.executable) if tree != ROOT else program()
    path = os.pathsep.join([str(first.parent), os.environ["PATH"]])
    ended = subprocess.run(
        ["bash", "-o", "pipefail", "-ec", command],
        cwd=tree,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"


@pytest.fixture(scope="module")
def demo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store as the demo's, of 8 kernels instead of 116."""
    folder = tmp_path_factory.mktemp("extending")
    text = (ROOT / "campaign" / "verbs" / "demo_campaign.toml").read_text(encoding="utf-8")
    (folder / "campaign.toml").write_text(
        text[: text.index("[[kernels]]")] + EIGHT_KERNELS, encoding="utf-8"
    )
    run(ROOT, f"campaign run {folder}/campaign.toml --store {folder}/store --quiet")
    run(ROOT, f"campaign fit {folder}/store --site jetson-tk1")
    return folder


def test_the_page_has_an_example_of_each() -> None:
    assert list(sections()) == [*KINDS, "From an installed package"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_example_is_one_file_and_its_registry(
    kind: str, tmp_path: Path, demo_folder: Path
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for room in ROOMS:
        # With what Numba has compiled, which stays valid as long as a source file is unchanged.
        shutil.copytree(ROOT / room, tree / room, ignore=shutil.ignore_patterns("*.pyc"))
    shutil.copytree(demo_folder, tree / "campaign-demo")
    files, registries = [], set()
    for block in sections()[kind]:
        assert block.directive != "not run", block.where
        text = block.text.replace("/tmp/", f"{tmp_path}/")
        if block.directive == "file":
            path = Path(block.argument.replace("/tmp/", f"{tmp_path}/"))
            assert not (tree / path).exists(), f"{block.where}: it changes {path}"
            (tree / path).write_text(text, encoding="utf-8")
            files += [path] if path.suffix == ".py" else []
        elif block.directive == "insert":
            insert(tree, block)
            registries.add(block.argument.partition(" after ")[0])
        elif block.language == "python":
            (tmp_path / "block.py").write_text(text, encoding="utf-8")
            run(tree, f"python {tmp_path / 'block.py'}")
        else:
            for step in steps(block):
                run(tree, step.command.replace("/tmp/", f"{tmp_path}/"))
    assert len(files) == (0 if kind == "An objective" else 1)
    assert all(re.search("registry|__init__|models|objectives", name) for name in registries)
    for path in files:
        run(tree, f"ruff check --config {ROOT / 'pyproject.toml'} {path}")
