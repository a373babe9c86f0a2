"""What the strategies of ``campaign tune`` lose on spaces of which every variant was measured.

    .venv/bin/python benchmarks/search_strategies.py CACHE [CACHE ...] [--trials 100] [--budget 200]
        [--strategy NAME]

CACHE: a cache file of Kernel Tuner with all variants of a kernel and their times, such as those of
convolution_milo in github.com/AutoTuningAssociation/benchmark_hub (MIT licence). Each is imported
into a separate store, and ``campaign tune --replay`` plays the strategies on it. The objective is
the time. Prints how much longer than the fastest of all variants the fastest one found takes, in %,
a mean over the trials, after 25, 50, 100 and 200 measurements.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
MAP = ROOT / "examples" / "kernel-tuner.map.toml"


def campaign(*words: str) -> str:
    """Return the output of the command line."""
    process = subprocess.run(
        [sys.executable, "-m", "campaign", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        sys.exit(process.stderr)
    return process.stdout


def main() -> None:
    """Import each cache and play the strategies on it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("caches", nargs="+", type=Path, metavar="CACHE")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--budget", type=int, default=200)
    parser.add_argument("--strategy", action="append", default=[])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for cache in arguments.caches:
            name = cache.name.partition(".")[0]
            store = str(Path(folder) / name)
            table = str(cache.resolve())
            campaign("import", table, "--map", str(MAP), "--site", name, "--store", store)
            words = [f"--strategy={strategy}" for strategy in arguments.strategy]
            numbers = ["--trials", str(arguments.trials), "--budget", str(arguments.budget)]
            began_s = time.monotonic()
            print(
                campaign(
                    "tune", "--replay", store, "--objective", "time", *numbers, *words
                ).rstrip()
            )
            print(f"{time.monotonic() - began_s:.0f} s\n", flush=True)


if __name__ == "__main__":
    main()
