#!/usr/bin/env bash
# FINDING: sarray 0.3.1 drops the limit of an array that it merges with others. "sbatch --array=0-3%1", one task at a
# time, keeps its tasks and their numbers in the merged array and loses the %1; nothing is said. It refuses to merge
# jobs that differ in any other option. One would think that a limit that cannot be kept for a part is refused as
# well, or holds for the whole. Measurements that were to follow each other on a node, or within a budget of power, run
# at once: the power of each contains the others'. Its own --throttle sets a limit for the whole.
#
# Seen with sarray 0.3.1, two arrays of four tasks, one task at a time each:
#   submitted by themselves: --array=0-3%1 and --array=0-3%1
#   merged by sarray: --array=0-7
#   with another --time in one of them: refused
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet sarray==0.3.1 jinja2==3.1.6 rich==14.3.3 simple-parsing==0.1.8

cd "$folder"
printf '%s\n' '#!/bin/bash' '#SBATCH --nodes=1' './measure "$1" "$SLURM_ARRAY_TASK_ID"' > measure.slurm
# sbatch prints the option of the script that it is given
mkdir bin
printf '%s\n' '#!/bin/bash' 'grep -o -e "--array=.*" "$1"' > bin/sbatch
chmod +x bin/sbatch
export PATH="$folder/bin:$folder/venv/bin:$PATH"

printf 'sbatch --array=0-3%%1 measure.slurm %s\n' 1200 2000 > jobs.conf
echo "submitted by themselves: $(grep -o -e '--array=[^ ]*' jobs.conf | paste -sd ' ' | sed 's/ / and /')"
merged=$(sarray submit jobs.conf)
echo "merged by sarray: $merged"
sed '2s/sbatch/sbatch --time=10/' jobs.conf > other.conf
other=$(sarray submit other.conf 2> /dev/null) || other=refused
echo "with another --time in one of them: $other"
[[ $merged == "--array=0-7" && $other == refused ]]
