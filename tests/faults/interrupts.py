"""Ctrl-C at random moments of every verb: ``python -m tests.faults.interrupts [--moments N]``.

Each verb runs once to its end, on a demo's store, for its duration; then N times with a SIGINT at a
moment drawn over it. Right is: exit code 130 with one line, or the verb's own end
(a SIGINT in its last moments). ``run``, ``run --adaptive``, ``tune`` and ``import`` are then run to
their end, and the store must have every point of the uninterrupted one, once. Prints a line a verb;
exit code 1 where anything was wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from campaign.store.compaction import compact
from campaign.store.dataset import open_dataset
from campaign.store.layout import open_store

STARTUP = "before the program began"
"""A SIGINT while the interpreter itself starts: Python's own text, and its own exit code."""
STARTUP_S = 0.3
"""The interpreter takes a tenth of this on a machine that does nothing else."""
PROGRESS = "jetson-tk1/board: "
"""Begins each line that demo prints while it measures."""
VERBS = {
    "plan": "plan campaign.toml",
    "run": "run campaign.toml --store new --quiet",
    "run --adaptive": "run campaign.toml --store new --quiet --adaptive",
    "tune": "tune tune.toml --store new --quiet",
    "next": "next few --budget 1 --points 5 --output next.toml",
    "watch": "watch store --once",
    "status": "status store",
    "failures": "failures store",
    "show": "show store",
    "kernels": "kernels fmm",
    "init": "init",
    "doctor": "doctor jetson-tk1",
    "import": "import table.csv --store new",
    "export": "export store --csv out.csv",
    "fit": "fit store --replace",
    "coefficients": "coefficients store",
    "crossval": "crossval store --scheme kfold:5",
    "predict": "predict store",
    "compare": "compare store store",
    "roofline": "roofline store",
    "report": "report store -o out.html",
    "figures": "figures store --format svg",
    "variants": "variants store --kernel double --problem ops_per_word=1",
    "profile": "profile app.csv=perf-intel --core-mhz 852 --mem-mhz 924 -o counted.toml",
    "demo": "demo made",
    "chain": "chain 936,1008,552,368,1016,616,544",
    "codesign": f"codesign {Path(__file__).parents[2] / 'examples' / 'codesign-maxwell.toml'}",
}
WRITES = ("run", "run --adaptive", "tune", "import")
RESULTS = ("new", "out.csv", "out.html", "figures", "made", "counted.toml", "next.toml")
PERF = """\
64000000;;fp_arith_inst_retired.scalar_double;115168822;100.00;;
0;;fp_arith_inst_retired.128b_packed_double;115168822;100.00;;
25000000;;fp_arith_inst_retired.256b_packed_double;115168822;100.00;;
0;;fp_arith_inst_retired.512b_packed_double;115168822;100.00;;
1000000;;longest_lat_cache.miss;115168822;100.00;;
281652094;ns;duration_time;281652094;100.00;;
"""
TUNE = """
[search]
strategy = "neighbours"
budget = 60
batch = 20
"""

VERB_S, AFTER_SIGINT_S = 600.0, 120.0
"""How long a verb may take, and how long it may go on after a SIGINT."""


def interrupted(argv: list[str], folder: Path, after_s: float) -> tuple[str, float]:
    """What came of a SIGINT after so long, and for how long the verb ran. Negative: no SIGINT."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "campaign", *argv],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=dict(os.environ, PYTHONPATH=str(Path(__file__).parents[2])), start_new_session=True,
    )  # fmt: skip
    if after_s >= 0:
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
    try:
        _, errors = process.communicate(timeout=VERB_S if after_s < 0 else AFTER_SIGINT_S)
    except subprocess.TimeoutExpired as slow:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return f"WRONG: did not end within {slow.timeout:g} s", time.perf_counter() - began
    return judged(process.returncode, errors, after_s), time.perf_counter() - began


def judged(code: int, errors: str, after_s: float) -> str:
    """In a word, what the end of a verb was, with a SIGINT after so long."""
    said = [line for line in errors.splitlines() if not line.startswith(PROGRESS)]
    if code == 130 and len(said) <= 1 and all(line.startswith("campaign") for line in said):
        return "130"  # run says in its last line on standard output that it was interrupted
    if code in (0, 1) and "Traceback" not in errors:
        return "ended"
    own = "Traceback" in errors and "campaign/" in errors
    if after_s < STARTUP_S and not own and code in (1, -signal.SIGINT):
        return STARTUP
    return f"WRONG: code {code}: {errors[-300:]!r}"


def points_of(store: Path) -> list[str]:
    """The ids of a store's measurements, sorted, with those that stand twice twice."""
    opened = open_store(store)
    compact(opened)
    return sorted(open_dataset(opened)["point_id"].values.tolist())


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.interrupts")
    parser.add_argument("--moments", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verb", action="append", choices=sorted(VERBS))
    arguments = parser.parse_args()
    # A shell's background job ignores SIGINT, and so would all that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rng = random.Random(arguments.seed)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="campaign-interrupts-") as name:
        folder = Path(name)
        run = [sys.executable, "-m", "campaign", "demo", "."]
        subprocess.run(run, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        export = [sys.executable, "-m", "campaign", "export", "store", "--csv", "table.csv"]
        subprocess.run(export, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (folder / "tune.toml").write_text((folder / "campaign.toml").read_text() + TUNE)
        (folder / "app.csv").write_text(PERF)
        tune = [sys.executable, "-m", "campaign", *VERBS["tune"].split()]
        subprocess.run(tune, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (folder / "new").rename(folder / "few")
        VERBS["show"] += " " + points_of(folder / "store")[0]
        for verb in arguments.verb or VERBS:
            argv = VERBS[verb].split()
            _remove(folder)
            whole, duration_s = interrupted(argv, folder, -1.0)
            planned = points_of(folder / "new") if verb in WRITES else []
            ends: Counter[str] = Counter()
            for _ in range(arguments.moments):
                if rng.random() < 0.5 or verb not in WRITES:
                    _remove(folder)
                end, _ = interrupted(argv, folder, rng.random() * duration_s)
                ends[end] += 1
            if verb in WRITES:
                interrupted(argv, folder, -1.0)
                if points_of(folder / "new") != planned:
                    ends["WRONG: points"] += 1
            wrong += sum(n for end, n in ends.items() if end.startswith("WRONG"))
            wrong += whole.startswith("WRONG")
            said = ", ".join(f"{n} {end}" for end, n in sorted(ends.items()))
            print(f"{verb:15}{duration_s:6.2f} s ({whole}): {said}", flush=True)
    return 1 if wrong else 0


def _remove(folder: Path) -> None:
    for name in RESULTS:
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
