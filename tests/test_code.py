"""The code as a reader finds it: ruff and mypy are content, and each room knows its place."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Room -> the rooms and packages that nothing in it may import (the whiteboard's table).
FORBIDDEN = {
    "kernels": {"campaign", "sites", "analysis", "dask", "distributed", "zarr", "xarray"},
    "sites": {"campaign", "kernels", "analysis", "dask", "distributed", "zarr", "xarray"},
    "analysis": {"campaign", "sites", "kernels", "dask", "distributed", "zarr"},
}


def test_ruff():
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_mypy():
    done = subprocess.run(
        [sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("room", FORBIDDEN)
def test_calls_go_one_way(room):
    for path in sorted((ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            for name in names:
                assert name.split(".")[0] not in FORBIDDEN[room], f"{path}: {name}"


def test_a_plan_imports_neither_dask_nor_model_equations():
    code = (
        "import sys; import campaign.plan.plan;"
        "heavy = {'dask', 'distributed', 'analysis', 'numba', 'zarr'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
