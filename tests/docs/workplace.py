"""A folder in which the commands of the pages run, one page after the other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.demo import copy_demo
from tests.docs.pages import ROOT, Block, steps
from tests.shared_imports import program

SHARED = ("examples", "sites", "tests")
"""Folders of the repository that the pages' commands read."""
SAME_AS = {"make demo": "campaign demo"}
"""Commands that first set up the environment that runs this test."""


class Workplace:
    """A folder with the demo's results; a command that several pages show runs once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.printed = {"campaign demo": copy_demo(folder)}
        for name in SHARED:
            (folder / name).symlink_to(ROOT / name)

    def run(self, command: str) -> str:
        """Standard output and error of a command, which must end with 0."""
        command = SAME_AS.get(command, command)
        if command not in self.printed:
            folders = [str(program().parent), str(Path(sys.executable).parent), os.environ["PATH"]]
            path = os.pathsep.join(folders)
            ended = subprocess.run(
                ["bash", "-o", "pipefail", "-ec", command],
                cwd=self.folder,
                env={**os.environ, "PATH": path, "COLUMNS": "100", "MPLBACKEND": "agg"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=200,
                check=False,
            )
            assert ended.returncode == 0 and "Traceback" not in ended.stdout, (
                f"{command}\nended with {ended.returncode}\n{ended.stdout}"
            )
            self.printed[command] = ended.stdout
        return self.printed[command]

    def write(self, block: Block) -> None:
        """The file that a block is."""
        path = self.folder / block.argument
        assert path.parent.resolve() == path.parent.absolute(), f"{block.where}: not into {path}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")

    def outputs(self, block: Block) -> list[tuple[str, list[str] | None, str]]:
        """Command, output as the page shows it, output as printed, for each of a block."""
        return [(step.command, step.output, self.run(step.command)) for step in steps(block)]
