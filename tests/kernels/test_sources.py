"""A kernel's identity changes with the code that it runs, and with nothing else."""

from __future__ import annotations

import ast
import functools
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from kernels import sources
from kernels.registry import KERNELS

ROOT = Path(__file__).parents[2]
CACHED = (
    *(sources.kernel_identity, sources.reached_by, sources._root),
    *(sources._module, sources._references),
)


def forget() -> None:
    for function in CACHED:
        function.cache_clear()


def identities(names: Iterable[str] = KERNELS) -> dict[str, str]:
    forget()
    return {name: sources.kernel_identity(name) for name in names}


def copy_kernels(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """A copy of the kernels, whose identities are asked for from now on."""
    shutil.copytree(ROOT / "kernels", folder / "kernels")
    patch.setattr(sources, "ROOT", folder)
    return folder / "kernels"


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The identities of an unchanged copy."""
    with pytest.MonkeyPatch.context() as patch:
        copy_kernels(tmp_path_factory.mktemp("before"), patch)
        found = identities()
    return found


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy for a test to change."""
    yield copy_kernels(tmp_path, monkeypatch)
    forget()


class _OtherDocstrings(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return ast.Expr(ast.Constant("Another text."))
        return node


def test_comments_docstrings_and_layout_change_no_identity(before, copy):
    """Every file is printed anew from its syntax tree: comments are gone, lines are others."""
    for path in copy.rglob("*.py"):
        tree = ast.fix_missing_locations(_OtherDocstrings().visit(ast.parse(path.read_text())))
        path.write_text(f"# a comment\n{ast.unparse(tree)}\n# another\n")
    for path in copy.rglob("*.cu"):
        lines = path.read_text().splitlines()
        path.write_text("\n\n".join(["// a comment", "/* one of\nlines */", *lines, "// the end"]))
    assert identities() == before


class _OtherOperators(ast.NodeTransformer):
    """Each sum of a definition becomes a difference, each product a quotient, and so on."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        swapped = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div}
        node.op = swapped.get(type(node.op), ast.Mult)()
        return self.generic_visit(node)


def change(path: Path, definition: str | None = None) -> None:
    """Exchange the operators of a file, or of one of its definitions."""
    tree = ast.parse(path.read_text())
    before = ast.dump(tree)
    for statement in tree.body:
        if definition is None or getattr(statement, "name", None) == definition:
            _OtherOperators().visit(statement)
    assert ast.dump(tree) != before, f"{path} has no operator to exchange"
    path.write_text(ast.unparse(tree))


HOST_LOOPS = {"sp_fma", "dp_fma", "int_mad", "load", "chase"}
STENCILS = {"stencil", "gpu_stencil", "cuda_stencil"}


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("fmm/mpi_ranks.py", {"fmm"}),
        ("microbench/loops.py", HOST_LOOPS),
        ("products/fused.py", {"chain"}),
        ("stencils/loops.py", STENCILS - {"cuda_stencil"}),
        ("fmm_u/loops.py", {"fmm_u"}),
        ("cuda/products/gemm.py", {"gpu_gemm"}),
    ],
)
def test_another_operator_changes_the_kernels_that_run_it_and_no_other(before, copy, file, changed):
    change(copy / file)
    now = identities()
    assert {name for name in KERNELS if now[name] != before[name]} == changed


def test_another_line_of_cuda_changes_its_kernel_and_no_other(before, copy):
    path = copy / "cuda" / "microbench" / "fma.cu"
    text = path.read_text()
    assert " + " in text
    path.write_text(text.replace(" + ", " - "))
    now = identities()
    assert {name for name in KERNELS if now[name] != before[name]} == {"gpu_fma"}


def test_another_constant_import_or_registration_is_a_change(copy):
    path = copy / "idle.py"
    text = path.read_text()
    few = ("idle", "command", "sp_fma")
    before = identities(few)
    for changed in (
        text.replace("import time", "import time as clock\n\ntime = clock"),
        f"{text}\nprint('imported')\n",
        f"{text}\n\n@register\ndef of_the_registry():\n    pass\n",
    ):
        assert changed != text
        path.write_text(changed)
        now = identities(few)
        assert {name for name in few if now[name] != before[name]} == {"idle"}
    path.write_text(f"{text}\n\ndef unused():\n    return 1\n")
    assert identities(few) == before


def test_names_that_only_a_run_knows_reach_whole_packages(copy):
    """Of a module that is loaded by a computed name, or used as a value, everything counts."""
    path = copy / "idle.py"
    text = path.read_text()
    import_module = "from importlib import import_module\n\nX = import_module('kernels.' + 'fmm')\n"
    for added, reached in (
        (import_module, "fmm/mpi_ranks.py"),
        ("\nfrom kernels.stencils import stencils\n\nX = vars(stencils)\n", "stencils/stencils.py"),
        ("\nfrom kernels.stencils.stencils import *\n", "stencils/stencils.py"),
    ):
        path.write_text(text.replace("import time\n", f"import time\n{added}") + "\nprint(X)\n")
        before = identities(["idle"])["idle"]
        other = copy / reached
        kept = other.read_text()
        change(other)
        assert identities(["idle"])["idle"] != before, added
        other.write_text(kept)


@functools.cache
def statements_of(file: str) -> list[ast.stmt]:
    return ast.parse(Path(file).read_text()).body


def definition_at(file: str, line: int) -> str | None:
    """The name of the top-level definition that a line is in."""
    for statement in statements_of(file):
        decorators = getattr(statement, "decorator_list", [])
        first = min([statement.lineno, *(node.lineno for node in decorators)])
        if first <= line <= (statement.end_lineno or first):
            return getattr(statement, "name", None)
    return None


def test_every_function_that_a_kernel_executes_is_of_its_identity(tmp_path):
    out = tmp_path / "executed.json"
    words = [sys.executable, "-m", "tests.kernels.executed", str(out)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    executed = json.loads(out.read_text())
    assert set(executed) == set(KERNELS)
    for name, places in executed.items():
        assert places, name
        reached = sources.reached_by(name)
        missing = set()
        for file, line in places:
            path = Path(file).relative_to(ROOT).with_suffix("")
            module = ".".join(path.parts).removesuffix(".__init__")
            defined = definition_at(file, line)
            effects = sources._module(module).effects if (module, "") in reached else []
            is_effect = defined in {getattr(statement, "name", None) for statement in effects}
            if defined and (module, defined) not in reached and not is_effect:
                missing.add((module, defined))
        assert not missing, name
