#!/usr/bin/env bash
# FINDING: signac-flow 0.29.1 asks PBS for the threads of one rank, whatever the number of ranks. Of an
# operation with 4 ranks of 8 threads, its scripts ask Slurm and LSF for 32 cores, and PBS for 8; the 4 ranks
# are then started on these 8, and time and energy are not those of the same operation elsewhere. An operation
# of 32 ranks without threads asks PBS for "procs=" and no number.
#
# Seen with signac-flow 0.29.1, submit(pretend=True):
#   4 ranks of 8 threads: Slurm --ntasks=32, LSF -n 32, PBS -l nodes=1:ppn=8
#   32 ranks: Slurm --ntasks=32, LSF -n 32, PBS -l procs=
#   started in all of them: mpiexec -n 4, mpiexec -n 32
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet signac-flow==0.29.1

mkdir "$folder/bin"
printf '#!/bin/sh\n' | tee "$folder/bin/squeue" > "$folder/bin/qstat"
printf '#!/bin/sh\necho %s\n' "'{\"RECORDS\": []}'" > "$folder/bin/bjobs"
chmod +x "$folder"/bin/*

cat > "$folder/program.py" <<'PYTHON'
import contextlib
import io
import re
import sys

import flow
import signac
from flow import environment

SCHEDULERS = {
    "Slurm": (environment.DefaultSlurmEnvironment, r"#SBATCH (--ntasks.*)"),
    "LSF": (environment.DefaultLSFEnvironment, r"#BSUB (-n .*)"),
    "PBS": (environment.DefaultPBSEnvironment, r"#PBS (-l (?:nodes|procs).*)"),
}
OPERATIONS = {
    "4 ranks of 8 threads": {"nranks": 4, "omp_num_threads": 8},
    "32 ranks": {"nranks": 32},
}


def script(scheduler: type, directives: dict) -> str:
    class Project(flow.FlowProject):
        pass

    @Project.post(lambda job: False)
    @Project.operation(directives=directives)
    def solve(job) -> None:
        pass

    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(io.StringIO()):
        Project(environment=scheduler).submit(pretend=True)
    return text.getvalue()


def main() -> int:
    flow.scheduling.base.Scheduler._dos_timeout = 0  # the schedulers are asked six times
    signac.init_project().open_job({"size": 1}).init()
    asked, started = {}, set()
    for name, directives in OPERATIONS.items():
        for scheduler, (kind, pattern) in SCHEDULERS.items():
            text = script(kind, directives)
            asked[name, scheduler] = re.search(pattern, text).group(1).strip()
            started.add(re.search(r"mpiexec -n \d+", text).group())
        print(f"{name}: " + ", ".join(f"{s} {asked[name, s]}" for s in SCHEDULERS))
    print("started in all of them:", ", ".join(sorted(started, key=len)))
    pbs = [asked[name, "PBS"] for name in OPERATIONS]
    others = {asked[name, s] for name in OPERATIONS for s in ("Slurm", "LSF")}
    same = pbs == ["-l nodes=1:ppn=8", "-l procs="] and others == {"--ntasks=32", "-n 32"}
    return 0 if same and len(started) == 2 else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
cd "$folder"
PATH="$folder/bin:$PATH" venv/bin/python program.py
