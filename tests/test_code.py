"""The code as a reader finds it: ruff and mypy report nothing, and every import follows the
whiteboard's rules."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.early import EARLY
from tests.import_graph import circles, files_by_module, import_graph, is_in
from tests.seconds import ALWAYS, NEVER, kept, slow

ROOT = Path(__file__).parents[1]
ROOMS = ("campaign", "dvfs", "kernels", "sites", "analysis")

# Part of the code -> what nothing in it may import (the whiteboard's table "Rooms, and who may
# call whom"). A name stands for itself and everything inside it.
FORBIDDEN = {
    "dvfs": {"campaign", "kernels", "sites", "analysis", "dask", "distributed", "zarr"},
    "kernels": {"campaign", "sites", "analysis", "dask", "distributed", "zarr", "xarray"},
    "sites": {"campaign", "kernels", "analysis", "dask", "distributed", "zarr", "xarray"},
    "analysis": {"campaign", "sites", "kernels", "dask", "distributed", "zarr"},
    "campaign.plan": {"dask", "distributed", "zarr", "xarray"},
    "campaign.store": {"distributed"},
    "campaign.measure": {"dask", "distributed"},
    "campaign.table": {"dask", "distributed"},
}

# The rooms of campaign/ from the ground to the top: what stands on one floor may import what is
# below it.
FLOORS = (
    ("plan", "policy", "codesign"),
    ("store",),
    ("measure", "table"),
    ("launch", "profiles"),
    ("variants", "doctor"),
    ("results",),
    ("next",),
    ("verbs",),
    ("__main__",),
)

# What knows nothing of model equations: of analysis it imports the Dataset's contract alone.
WITHOUT_EQUATIONS = ("plan", "launch", "measure", "store", "table")


@pytest.fixture(scope="module")
def graphs():
    """Module -> the project's modules that it imports, and module -> the packages from elsewhere.
    The names in a registry are not imports: it loads what a user asks for, when it is asked for."""
    return import_graph(files_by_module(ROOT, ROOMS))


@pytest.mark.parametrize("words", [["check"], ["format", "--check"]], ids=" ".join)
def test_ruff(words):
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *words, "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.timeout(900)  # without its cache, beside other tests
def test_mypy():
    done = subprocess.run(
        [sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("part", FORBIDDEN)
def test_nothing_imports_what_its_room_may_not_know(graphs, part):
    inside, outside = graphs
    wrong = [
        f"{module} imports {target}"
        for module in inside
        if is_in(module, part)
        for target in sorted(inside[module] | outside[module])
        if any(is_in(target, forbidden) for forbidden in FORBIDDEN[part])
    ]
    assert not wrong


def test_no_import_runs_up_and_every_room_has_a_floor(graphs):
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    inside, _ = graphs
    rooms = {module.split(".")[1] for module in inside if module.startswith("campaign.")}
    assert rooms == floor.keys()
    wrong = [
        f"{module} imports {target}"
        for module, targets in inside.items()
        for target in sorted(targets)
        if module.startswith("campaign.") and target.startswith("campaign.")
        for here, there in [(module.split(".")[1], target.split(".")[1])]
        if here != there and floor[here] <= floor[there]
    ]
    assert not wrong


def test_only_results_and_what_is_above_know_model_equations(graphs):
    inside, _ = graphs
    wrong = [
        f"{module} imports {target}"
        for module, targets in inside.items()
        if any(is_in(module, f"campaign.{part}") for part in WITHOUT_EQUATIONS)
        for target in sorted(targets)
        if target.startswith("analysis.")
    ]
    assert not wrong


def test_no_circles(graphs):
    inside, _ = graphs
    assert circles(inside) == []


@pytest.mark.parametrize("name", sorted({*EARLY, *NEVER} - {"slurm"}))
def test_what_begins_early_or_is_left_out_exists(name):
    path, _, test = name.partition("::")
    text = "".join(file.read_text() for file in ROOT.glob(f"{path}*") if file.is_file())
    assert f"def {test}" in text if test else list(ROOT.glob(f"{path}*"))


def test_functions_whose_seconds_are_kept_exist():
    texts = {file: (ROOT / file).read_text() for file in {name.split("::")[0] for name in kept()}}
    parts = ((name, name.split("::")[0], name.split("::")[-1]) for name in kept())
    assert [name for name, file, test in parts if f"def {test}(" not in texts[file]] == []


def test_make_check_runs_the_first_cases_of_what_takes_long():
    cases = {"a.py::whole": 3, "a.py::part": 8, "a.py::none": 2, ALWAYS: 1, NEVER[0]: 1}
    items = [
        SimpleNamespace(nodeid=f"{name}[{case}]") for name, n in cases.items() for case in range(n)
    ]
    left_out = slow(items, {"a.py::part": 2.0, "a.py::none": 9.0, ALWAYS: 40.0})
    assert [item.nodeid for item in left_out] == [
        *(f"a.py::part[{case}]" for case in range(2, 8)),
        *("a.py::none[0]", "a.py::none[1]", f"{NEVER[0]}[0]"),
    ]


def write_modules(root: Path, **texts: str) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Files of a package ``p`` by their texts, and the imports between them."""
    package = root / "p"
    for name, text in {"__init__": "", **texts}.items():
        path = package / f"{name.replace('__slash__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return import_graph(files_by_module(root, ["p"]))


@pytest.mark.parametrize(
    "text",
    [
        "import p.b",
        "import p.b as other",
        "from p import b",
        "from p.b import name",
        "from . import b",
        "from .b import name",
        "def late():\n    from p.b import name",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.b import name",
        "import importlib\nimportlib.import_module('p.b')",
        "try:\n    import p.b\nexcept ImportError:\n    pass",
    ],
)
def test_every_way_to_import_is_seen(tmp_path, text):
    inside, _ = write_modules(tmp_path, a=text, b="from p import a")
    assert "p.b" in inside["p.a"]
    assert circles(inside) == [["p.a", "p.b"]]


def test_importing_a_module_imports_the_packages_that_it_is_in(tmp_path):
    inside, outside = write_modules(
        tmp_path, a="import p.q.b, os.path", q__slash____init__="from p import a", q__slash__b=""
    )
    assert inside["p.a"] == {"p.q", "p.q.b"}
    assert outside["p.a"] == {"os"}
    assert circles(inside) == [["p.a", "p.q"]]


def test_a_module_that_imports_from_its_own_package_is_in_a_circle(tmp_path):
    inside, _ = write_modules(tmp_path, __init__="from p.a import A", a="from p import NAME")
    assert circles(inside) == [["p", "p.a"]]


def test_a_line_of_modules_is_no_circle(tmp_path):
    inside, _ = write_modules(tmp_path, a="from p import b, c", b="from p import c", c="import os")
    assert circles(inside) == []


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


# What changes while it is used: counters, and the state of a run.
CHANGING = {
    *("CampaignRun", "Counted", "Starts", "PartitionRun", "JobWorkers", "SetGpu"),
    *("Tally", "PreparedFmm"),
}


def dataclasses_of(path: Path) -> list[tuple[str, dict[str, bool], int]]:
    """The dataclasses of a module: name, what its decorator says, and how many fields it has."""
    return [
        (
            node.name,
            {
                str(word.arg): ast.literal_eval(word.value)
                for word in getattr(decorator, "keywords", [])
            },
            sum(isinstance(line, ast.AnnAssign) for line in node.body),
        )
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        for decorator in node.decorator_list
        if ast.unparse(decorator).startswith("dataclass")
    ]


def test_dataclasses_are_frozen_and_large_ones_take_names_alone():
    """So that what is passed on stays as it is, and that no two fields are mixed up."""
    classes = [c for p in files_by_module(ROOT, ROOMS).values() for c in dataclasses_of(p)]
    assert len(classes) > 200
    assert {name for name, words, _ in classes if not words.get("frozen")} == CHANGING
    assert [name for name, words, n in classes if n >= 8 and not words.get("kw_only")] == []
