#!/usr/bin/env bash
# FINDING: ReFrame 4.10.4 rounds the nodes of a test down. With PBS and LSF (and with Slurm's
# use_nodes_option) it asks for num_tasks // num_tasks_per_node nodes, so that the rest of the tasks has no
# node: 10 tasks of 4 a node get 2 nodes, and 3 tasks get none. With LSF and lrun the test then runs 8
# processes of the 10 without a word, and its time, energy and scaling are those of 8; with PBS the launcher
# starts 10 on the 8 slots, or refuses to. With Slurm alone the count is left to Slurm, and is right.
#
# Seen with reframe-hpc 4.10.4, the scripts of a dry run:
#   slurm, 10 tasks, 4 a node: --ntasks=10, --ntasks-per-node=4, srun ./solver
#   pbs, 10 tasks, 4 a node: select=2:mpiprocs=4:ncpus=4, mpiexec -n 10 ./solver
#   lsf, 10 tasks, 4 a node: -nnodes 2, lrun -N 2 -T 4 ./solver
#   lsf, 12 tasks, 4 a node: -nnodes 3, lrun -N 3 -T 4 ./solver
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet reframe-hpc==4.10.4

cat > "$folder/site.py" <<'PYTHON'
launchers = {"slurm": "srun", "pbs": "mpiexec", "lsf": "lrun"}
site_configuration = {
    "systems": [
        {
            "name": "cluster",
            "hostnames": [".*"],
            "partitions": [
                {"name": s, "scheduler": s, "launcher": launcher, "environs": ["plain"]}
                for s, launcher in launchers.items()
            ],
        }
    ],
    "environments": [{"name": "plain"}],
}
PYTHON
cat > "$folder/solver.py" <<'PYTHON'
import reframe
import reframe.utility.sanity as sanity


@reframe.simple_test
class Solver(reframe.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["plain"]
    executable = "./solver"
    num_tasks = 10
    num_tasks_per_node = 4

    @sanity_function
    def finished(self):
        return sanity.assert_found("finished", self.stdout)
PYTHON

still=0
check() { # SCHEDULER TASKS ASKED
    local asked script
    HOME=$folder "$folder/venv/bin/reframe" --config-file "$folder/site.py" \
        --checkpath "$folder/solver.py" --prefix "$folder/$2" --system "cluster:$1" \
        --setvar num_tasks="$2" --dry-run > "$folder/log" 2>&1
    script=$(find "$folder/$2/stage/cluster/$1" -name rfm_job.sh)
    asked=$(grep -oE -- '--ntasks.*|select=.*|-nnodes.*|^[a-z]+ .*solver' "$script")
    asked=${asked//$'\n'/, }
    echo "$1, $2 tasks, 4 a node: $asked"
    [[ "$asked" == "$3" ]] || still=1
}
check slurm 10 "--ntasks=10, --ntasks-per-node=4, srun ./solver"
check pbs 10 "select=2:mpiprocs=4:ncpus=4, mpiexec -n 10 ./solver"
check lsf 10 "-nnodes 2, lrun -N 2 -T 4 ./solver"
check lsf 12 "-nnodes 3, lrun -N 3 -T 4 ./solver"
exit "$still"
