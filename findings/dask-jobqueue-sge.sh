#!/usr/bin/env bash
# FINDING: dask-jobqueue 0.9.0's SGECluster asks for no cores and no memory. cores and memory, which each
# cluster class requires, are in the job scripts for Slurm, PBS and LSF; the one for SGE has neither, and starts
# as many workers and threads as elsewhere. The scheduler counts such a job as one slot and may put others on
# the cores that it uses; the times and the node's energy are then those of several jobs. Only resource_spec
# and job_extra_directives ask for more.
#
# Seen with dask-jobqueue 0.9.0 and distributed 2026.8.0, cores=24, processes=2, memory="96GB":
#   Slurm: -n 1 --cpus-per-task=24 --mem=90G; starts 2 workers with 12 threads each
#   PBS: -l select=1:ncpus=24:mem=90GB; starts 2 workers with 12 threads each
#   LSF: -n 24 -R "span[hosts=1]" -M 96000000; starts 2 workers with 12 threads each
#   SGE: nothing; starts 2 workers with 12 threads each
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet dask-jobqueue==0.9.0 distributed==2026.8.0

cat > "$folder/program.py" <<'PYTHON'
import re
import sys

from dask_jobqueue import LSFCluster, PBSCluster, SGECluster, SLURMCluster

SIZE = {"cores": 24, "processes": 2, "memory": "96GB"}
CLUSTERS = {"Slurm": SLURMCluster, "PBS": PBSCluster, "LSF": LSFCluster, "SGE": SGECluster}
OTHER = re.compile(r"-(J|N|j|t|W|cwd|l (h_rt|walltime))\b")


def main() -> int:
    asked, started = {}, {}
    for name, kind in CLUSTERS.items():
        with kind(n_workers=0, walltime="01:00:00", **SIZE) as cluster:
            script = cluster.job_script()
        lines = re.findall(r"^#(?:SBATCH|PBS|BSUB|\$) (.*?) *$", script, re.MULTILINE)
        asked[name] = " ".join(line for line in lines if not OTHER.match(line))
        threads, workers = re.search(r"--nthreads (\d+) .*--nworkers (\d+)", script).groups()
        started[name] = int(workers) * int(threads)
        print(f"{name}: {asked[name] or 'nothing'}; starts {workers} workers with {threads} threads each")
    nothing = [name for name, words in asked.items() if not words]
    return 0 if nothing == ["SGE"] and {*started.values()} == {SIZE["cores"]} else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
