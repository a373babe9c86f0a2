"""Makes the files of Slurm in tests/data/other_tools by a real Slurm 22.05.8 on this machine.

    .venv/bin/python -m tests.other_tools.slurm_files FOLDER

Needs slurm-wlm-hdf5-plugin of Debian (sh5util) and root. Power follows the nodes' clocks
(tests/accounting_cluster.py).

- ``slurm_profile.h5``: a job of two nodes, profiled once a second and merged;
  ``slurm_profile.true.csv`` is what was drawn, by the log of the files that Slurm reads.
- ``sacct.txt``: jobs by srun, by sbatch without a step and with steps at two clocks; one fails.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.accounting_cluster import AccountingCluster

FIELDS = (
    "JobID,JobName,State,Start,End,ElapsedRaw,ConsumedEnergyRaw,ReqCPUFreqMax,NNodes,NodeList,"
    "AveCPUFreq"
)
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


def profile(cluster: ProfiledCluster, out: Path) -> None:
    """The profile of a job, and what its nodes drew."""
    began_s = time.time()
    work = f"{cluster.work(6.0)}; sleep 2"
    cluster.run("srun", "-N2", "--profile=Energy", "--cpu-freq=1800000", "bash", "-c", work)
    time.sleep(2)
    job = cluster.run("sacct", "-nPX", "-o", "JobID").split()[-1]
    words = ["sh5util", "-j", job, "-p", str(cluster.base / "profile")]
    made = out / "slurm_profile.h5"
    subprocess.run([*words, "-o", str(made)], env=cluster.environment, check=True)
    rows = ["node,time_s,energy_j"]
    for node in cluster.nodes:
        log = cluster.log(node)
        rows += [f"{node},{t:.3f},{e:.2f}" for t, e, _ in log[log[:, 0] > began_s - 1.0]]
    made.with_suffix(".true.csv").write_text("\n".join(rows) + "\n")


def jobs(cluster: ProfiledCluster, out: Path) -> None:
    """sacct's table of several jobs."""
    work = cluster.work(4.0)
    sbatch = ("sbatch", "--parsable", "--wait", "-o", "/dev/null")
    cluster.run("srun", "-J", "by-srun", "--cpu-freq=1800000", "bash", "-c", work)
    cluster.run(*sbatch, "-J", "no-step", "--wrap", work)
    steps = "; ".join(
        f"srun -J at-{khz} --cpu-freq={khz} bash -c {shlex.quote(work)}"
        for khz in (1_200_000, 2_400_000)
    )
    cluster.run(*sbatch, "-J", "two-clocks", "--wrap", steps)
    subprocess.run(
        [*sbatch, "-J", "fails", "--wrap", "exit 3"], check=False, env=cluster.environment
    )
    text = cluster.run("sacct", "--parsable2", f"--format={FIELDS}")
    (out / "sacct.txt").write_text(text)


def main() -> None:
    """Run the jobs and write the files."""
    out = Path(sys.argv[1])
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        ProfiledCluster(Path(folder) / "s", "prof", nodes=2) as cluster,
    ):
        jobs(cluster, out)
        profile(cluster, out)


if __name__ == "__main__":
    main()
