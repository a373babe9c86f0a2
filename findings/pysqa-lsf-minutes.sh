#!/usr/bin/env bash
# FINDING: pysqa 1.1.1 submits one job with a limit of an hour on Slurm and Torque, and of 60 hours on LSF.
# Its run_time_max is in seconds: for Slurm it is divided by 60, and Torque takes it as it is. LSF's -W takes
# minutes, and gets the seconds. The job waits for a gap of 60 hours, or is refused, and a run that hangs is
# charged for all of them. memory_max, too, is in GB with the first two and is written to LSF without a
# unit, which takes it for KB by default.
#
# Seen with pysqa 1.1.1, run_time_max=3600 and memory_max=16 (sbatch, qsub and bsub are simulated):
#   SLURM: --time=60 --mem=16G
#   TORQUE: mem=16GB walltime=3600
#   LSF: -W 3600 -M 16
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pysqa==1.1.1

mkdir "$folder/bin"
for command in sbatch qsub bsub; do
    cat > "$folder/bin/$command" <<'BASH'
#!/usr/bin/env bash
case ${0##*/} in
    sbatch) echo "1" ;;
    qsub) echo "1.server" ;;
    bsub) echo "Job <1> is submitted to queue <normal>." ;;
esac
BASH
    chmod +x "$folder/bin/$command"
done

cat > "$folder/program.py" <<'PYTHON'
import re
import sys
import tempfile
from pathlib import Path

from pysqa import QueueAdapter

LIMITS = r"--time=\d+|--mem=\w+|walltime=\d+|mem=\w+|-W \d+|-M \d+"


def limits(scheduler: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        QueueAdapter(queue_type=scheduler).submit_job(
            working_directory=folder,
            cores=8,
            memory_max=16,
            run_time_max=3600,
            command="./solver",
            partition="batch",
        )
        (script,) = Path(folder).iterdir()
        seen = " ".join(re.findall(LIMITS, script.read_text()))
    print(f"{scheduler}: {seen}")
    return seen


right = limits("SLURM") == "--time=60 --mem=16G"
right = limits("TORQUE") == "mem=16GB walltime=3600" and right
wrong = limits("LSF") == "-W 3600 -M 16"
sys.exit(0 if right and wrong else 1)
PYTHON
PATH=$folder/bin:$PATH "$folder/venv/bin/python" "$folder/program.py"
