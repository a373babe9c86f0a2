#!/usr/bin/env bash
# FINDING: sarray 0.3.1 puts a job's arguments in place of $1 and $2 wherever they stand in its script, in the
# program of an awk too. It merges job arrays into one by copying their scripts, and as the copies have no arguments
# of their own it replaces the text; quotes are not looked at. One would think that '{ sum += $2 }' in single quotes
# is not the shell's, and stays. An awk that adds up the second column of an energy log adds up the job's second
# argument, once a line. Exit status and form are as they should be, and a script that is called without arguments
# is left alone, so that a first try of it is right.
#
# Seen with sarray 0.3.1, a log of 100 J, 200 J and 300 J, a script called with a clock of 1200 and 8 threads:
#   submitted by itself: 1200 MHz, 8 threads: 600 J
#   merged by sarray: 1200 MHz, 8 threads: 24 J
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet sarray==0.3.1 jinja2==3.1.6 rich==14.3.3 simple-parsing==0.1.8

cd "$folder"
printf 'step1 100\nstep2 200\nstep3 300\n' > energy.log
cat > measure.slurm <<'BASH'
#!/bin/bash
#SBATCH --nodes=1
echo "$1 MHz, $2 threads: $(awk '{ sum += $2 } END { print sum }' energy.log) J"
BASH
# sbatch runs the script: its one task, number 0
mkdir bin
printf '%s\n' '#!/bin/bash' 'SLURM_ARRAY_TASK_ID=0 bash "$@"' > bin/sbatch
chmod +x bin/sbatch
export PATH="$folder/bin:$folder/venv/bin:$PATH"

alone=$(sbatch measure.slurm 1200 8)
echo "sbatch measure.slurm 1200 8" > jobs.conf
merged=$(sarray submit jobs.conf)
echo "submitted by itself: $alone"
echo "merged by sarray: $merged"
[[ $alone == "1200 MHz, 8 threads: 600 J" && $merged == "1200 MHz, 8 threads: 24 J" ]]
