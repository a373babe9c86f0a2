"""Do two builds give the same answers? Compares every verb's ``--json``, number by number.

    .venv/bin/python -m benchmarks.same_answers --before TREE [--after TREE] [--store STORE ...]

``TREE`` is a checkout; both run in this environment. The build before makes the stores: the demo,
and three public tables that are part of the tests. ``--store`` adds others, such as one that a
campaign on a real Slurm wrote. Each build reads its copies of them. Times, paths of the copies, and
versions of the builds are left out. Differences are printed with their place, and the exit code is
then 1.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.shared import ROOT, argument_parser

LEFT_OUT = re.compile(r"(made|created|version|commit|python|written|_unix_s|wall_s|elapsed)$")
TABLES = {
    "titanx": ("tests/data/gtxtitanx/microbenchmarks.csv", "examples/gtxtitanx.map.toml"),
    "k20x": ("tests/data/anzt2015/table-2.csv", "examples/k20x-table-2.map.toml"),
    "tuner": ("tests/data/kernel_tuner/convolution_a100.json.gz", "examples/kernel-tuner.map.toml"),
}
OF_A_SITE = [
    "fit S --site {site} --json",
    "fit S --site {site} --model choi --replace --json",
    "fit S --site {site} --replace --json",
    "fit S --site {site} --robust --name robust --json",
    "coefficients S --json",
    "coefficients S --site {site} --json",
    "crossval S --site {site} --json",
    "crossval S --site {site} --scheme leave-one-kernel-out --json",
    "crossval S --site {site} --scheme leave-one-core-clock-out --json",
    "crossval S --site {site} --scheme leave-one-memory-clock-out --json",
    "crossval S --site {site} --scheme few:4 --json",
    "crossval S --site {site} --scheme holdout --time predicted --json",
    "predict S --site {site} --json",
    "predict S --site {site} --all-settings --json",
    "predict S --site {site} --objective edp --json",
    "predict S --site {site} --max-slowdown 0.1 --json",
    "roofline S --site {site} --json",
    "next S --site {site} --points 8 --budget 1000 --output n.toml --json",
    "variants S --site {site} --json",
]
OF_A_STORE = ["status S --json", "failures S --json", "compare S S --json"]
ALONE = [
    "kernels --json",
    "chain 400,40,400,40,400 --json",
    "codesign {after}/examples/codesign-maxwell.toml --json",
    "plan {after}/examples/tk1-fmm.toml --json",
    "plan {after}/examples/stencil-tiles.toml --json",
    "plan {after}/examples/gpu-microbenchmarks.toml --json",
    "roofline --platform gtx-580 --json",
]


def ask(tree: Path, words: list[str], folder: Path) -> tuple[int, str, str]:
    """Return exit code, output and messages of ``campaign`` of a checkout."""
    environment = os.environ | {"PYTHONPATH": str(tree), "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.run(
        [sys.executable, "-m", "campaign", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return process.returncode, process.stdout, process.stderr


def differences(before: Any, after: Any, place: str = "") -> list[str]:
    """Return where two JSON values differ; numbers must be equal to the last digit."""
    if isinstance(before, dict) and isinstance(after, dict):
        texts = []
        for key in [*before, *(key for key in after if key not in before)]:
            if LEFT_OUT.search(key):
                continue
            if (key in before) != (key in after):
                texts.append(f"{place}.{key}: {'gone' if key in before else 'new'}")
            else:
                texts += differences(before[key], after[key], f"{place}.{key}")
        return texts
    if isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            return [f"{place}: {len(before)} entries, {len(after)}"]
        pairs = enumerate(zip(before, after, strict=True))
        return [text for i, (a, b) in pairs for text in differences(a, b, f"{place}[{i}]")]
    is_same = before == after or (before != before and after != after)
    return [] if is_same else [f"{place}: {before!r}, {after!r}"]


def parsed(answer: tuple[int, str, str]) -> list[Any]:
    """Return an answer with its JSON parsed; output that is not JSON stays text."""
    code, output, messages = answer
    try:
        return [code, json.loads(output), messages]
    except ValueError:
        return [code, output, messages]


def main() -> int:
    parser = argument_parser(__doc__)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--after", type=Path, default=ROOT)
    parser.add_argument("--store", type=Path, action="append", default=[])
    arguments = parser.parse_args()
    before, after = arguments.before.resolve(), arguments.after.resolve()
    with tempfile.TemporaryDirectory() as name:
        made = Path(name) / "made"
        made.mkdir()
        stores = {f"other-{i}": path.resolve() for i, path in enumerate(arguments.store)}
        ask(before, ["demo", "demo"], made)
        stores["demo"] = made / "demo" / "store"
        for table, (path, map_file) in TABLES.items():
            words = ["import", str(after / path), "--store", table, "--map", str(after / map_file)]
            words += ["--site", "a100"] if table == "tuner" else []
            code, _, text = ask(before, words, made)
            if code:
                raise SystemExit(f"{table}: {text}")
            stores[table] = made / table
        questions = [("", line.format(after=after), (made, made)) for line in ALONE]
        for label, store in stores.items():
            folders = tuple(Path(name) / f"{number}-{label}" for number in range(2))
            for folder in folders:
                shutil.copytree(store, folder / "S")
            status = json.loads(ask(before, ["status", "S", "--json"], folders[0])[1])
            sites = sorted({part["site"] for part in status["partitions"]})
            lines = [*OF_A_STORE, *(line.format(site=s) for s in sites for line in OF_A_SITE)]
            questions += [(f"{label}: ", line, folders) for line in lines]
        refused, wrong = 0, []
        for label, line, folders in questions:
            answers = [
                ask(build, line.split(), folder)
                for build, folder in zip((before, after), folders, strict=True)
            ]
            refused += answers[0][0] != 0
            found = differences(*map(parsed, answers))
            wrong += [f"{label}campaign {line}: {text}" for text in found]
            print(f"{label}{line}: {'DIFFERS' if found else 'same'}", flush=True)
    print(
        f"{len(questions)} questions, {refused} of them refused by both; {len(wrong)} differences"
    )
    print("\n".join(wrong))
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
