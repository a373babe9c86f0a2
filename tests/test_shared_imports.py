"""The tests' program ``campaign``, which shares its imports, does what the installed one does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shared_imports import program

INSTALLED = Path(sys.executable).with_name("campaign")
CAMPAIGN = """\
name = "c"
sites = [{ site = "jetson-tk1" }]
[[kernels]]
kernel = "load"
params = { level = ["l2", "dram"] }
"""


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["fit", "missing", "--site", "x"],
        ["predict"],
        ["plan", "c.toml", "--limit", "2"],
        ["plan", "\N{SNOWMAN}.toml"],
        ["import", "-", "--store", "S"],
    ],
    ids=" ".join,
)
def test_a_command_prints_the_same_and_ends_with_the_same_code(tmp_path, words):
    (tmp_path / "c.toml").write_text(CAMPAIGN)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "COLUMNS": "60",
    }
    shared, installed = (
        subprocess.run(
            [path, *words],
            cwd=tmp_path,
            env=environment,
            input="site,kernel\n",
            capture_output=True,
            text=True,
            check=False,
        )
        for path in (program(), INSTALLED)
    )
    assert shared.returncode == installed.returncode
    assert shared.stdout == installed.stdout
    assert shared.stderr == installed.stderr
    assert shared.stdout or shared.stderr


def test_a_reader_that_ends_early_is_no_error():
    first_line = f"{program()} --help | head -n 1"
    done = subprocess.run(["bash", "-c", first_line], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: campaign")
    assert "Traceback" not in done.stderr
