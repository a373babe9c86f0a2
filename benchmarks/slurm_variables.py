"""Set the user's variables of Slurm one at a time, and measure a small campaign with each.

    .venv/bin/python benchmarks/slurm_variables.py

Starts a real Slurm on this machine (root), with the variables of tests/campaign/test_run_slurm.py.
Prints a line for each variable: the exit code, and where the points were measured. Exits with 1
if a campaign was not measured as planned.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from campaign.store.dataset import current_tables
from campaign.store.layout import open_store
from tests.campaign.test_run_slurm import (
    HOSTILE,
    SLEEPS,
    campaign_file,
    site_file,
)
from tests.slurm_cluster import SlurmCluster


def main() -> int:
    wrong = 0
    with (
        tempfile.TemporaryDirectory(prefix="sv") as base,
        SlurmCluster(Path(base) / "s", "alpha", {"cpu-a": 1, "cpu-b": 1}) as cluster,
    ):
        for name, value in HOSTILE.items():
            folder = Path(base) / name
            folder.mkdir()
            campaign = campaign_file(
                folder, [site_file(folder, cluster, "alpha", ["cpu-a"])], SLEEPS
            )
            store = folder / "store"
            process = subprocess.run(
                [sys.executable, "-m", "campaign", "run", str(campaign), "--store", str(store)],
                env=os.environ | {name: value},
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            frame = current_tables(open_store(store))[0].measurements
            where = sorted(set(frame["node"]))
            right = process.returncode == 0 and where == ["n1"] and set(frame["status"]) == {"ok"}
            wrong += not right
            print(f"{name}={value}: exit {process.returncode}, {len(frame)} points on {where}")
            if not right:
                print(process.stderr or process.stdout)
    print(f"{len(HOSTILE) - wrong} of {len(HOSTILE)} as planned")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
