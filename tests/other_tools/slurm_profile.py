"""Makes tests/data/other_tools/slurm_profile.h5 by a real Slurm on this machine.

    .venv/bin/python -m tests.other_tools.slurm_profile FOLDER

Needs slurm-wlm-hdf5-plugin of Debian (sh5util, 22.05.8) and root. A job of two nodes, whose power
follows their clocks (tests/accounting_cluster.py), is profiled once a second and merged;
``slurm_profile.true.csv`` is what the nodes drew, by the log of the files that Slurm reads.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.accounting_cluster import AccountingCluster

CONF = "AcctGatherProfileType=acct_gather_profile/hdf5\nJobAcctGatherFrequency=task=1,energy=1\n"


class ProfiledCluster(AccountingCluster):
    """A Slurm with profiles."""

    def _write_files(self) -> None:
        super()._write_files()
        self.conf.write_text(CONF + self.conf.read_text())
        profiles = self.base / "profile"
        profiles.mkdir()
        (self.base / "acct_gather.conf").write_text(
            f"ProfileHDF5Dir={profiles}\nProfileHDF5Default=Energy\n"
        )


def main() -> None:
    """Run the job and write both files."""
    out = Path(sys.argv[1])
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        ProfiledCluster(Path(folder) / "s", "prof", nodes=2) as cluster,
    ):
        began_s = time.time()
        work = f"{cluster.work(6.0)}; sleep 2"
        cluster.run("srun", "-N2", "--profile=Energy", "--cpu-freq=1800000", "bash", "-c", work)
        time.sleep(2)
        job = cluster.run("sacct", "-nPX", "-o", "JobID").split()[-1]
        profiles, made = cluster.base / "profile", out / "slurm_profile.h5"
        words = ["sh5util", "-j", job, "-p", str(profiles), "-o", str(made)]
        subprocess.run(words, env=cluster.environment, check=True)
        rows = ["node,time_s,energy_j"]
        for node in cluster.nodes:
            log = cluster.log(node)
            rows += [f"{node},{t:.3f},{e:.2f}" for t, e, _ in log[log[:, 0] > began_s - 1.0]]
        (out / "slurm_profile.true.csv").write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
