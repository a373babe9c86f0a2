#!/usr/bin/env bash
# FINDING: Maestro 1.2.1 asks Slurm for 90 hours where a study says walltime: 1:30:00. The study's YAML is
# read by YAML 1.1, in which digits with colons and no zero in front are one integer to the base of 60: 5400,
# the seconds. Maestro's schema takes integers, and writes it as it is; Slurm takes a number alone for
# minutes. With quotes, or with a zero in front, the limit is right. So 9:00:00 and 09:00:00 in one study
# are 22.5 days and 9 hours. Slurm refuses the job, or keeps it waiting for a gap of that length, and a run
# that hangs is charged for all of it.
#
# Seen with maestrowf 1.2.1 and PyYAML 6.0.2, the header of the job's script:
#   walltime: 01:30:00 gives #SBATCH --time=01:30:00
#   walltime: "1:30:00" gives #SBATCH --time=1:30:00
#   walltime: 1:30:00 gives #SBATCH --time=5400
#   walltime: 9:00:00 gives #SBATCH --time=32400
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet maestrowf==1.2.1 pyyaml==6.0.2

cat > "$folder/program.py" <<'PYTHON'
import io
import sys

from maestrowf.interfaces import ScriptAdapterFactory
from maestrowf.specification import YAMLSpecification

STUDY = """
description: {name: clocks, description: energy over clocks}
batch: {type: slurm, host: cluster, bank: project, queue: batch}
study:
  - name: run
    description: one run
    run:
      cmd: srun ./solver
      nodes: 1
      procs: 1
      walltime: WALLTIME
"""


def limit(walltime: str) -> str:
    text = STUDY.replace("WALLTIME", walltime)
    study = YAMLSpecification.load_specification_from_stream(io.StringIO(text))
    study.verify()
    adapter = ScriptAdapterFactory.get_adapter("slurm")(**study.batch)
    header = adapter.get_header(study.get_study_steps()[0])
    (line,) = [x for x in header.splitlines() if "--time" in x]
    print(f"walltime: {walltime} gives {line}")
    return line.split("=")[1]


def main() -> int:
    right = (limit("01:30:00"), limit('"1:30:00"')) == ("01:30:00", "1:30:00")
    wrong = (limit("1:30:00"), limit("9:00:00")) == ("5400", "32400")
    return 0 if right and wrong else 1


if __name__ == "__main__":
    sys.exit(main())
PYTHON
"$folder/venv/bin/python" "$folder/program.py"
