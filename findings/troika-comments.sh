#!/usr/bin/env bash
# FINDING: Troika 0.2.7 loses an option of a Slurm job where the script has a later line that turns the same
# option off. "# SBATCH --nodes=1", with a space, is a comment to Slurm; Troika reads it as an option, keeps the
# last of each name, and writes that line as it stands in place of the option. What is submitted has no --nodes
# and no --time: a measurement of two nodes runs on one, for as long as the partition lets it. Nothing is
# said. A line with "## SBATCH" does no harm.
#
# Seen with troika 0.2.7, a script of two nodes, 60 minutes, exclusive, and the same with comments:
#   script: --nodes=2 --time=60 --exclusive
#   submitted: --nodes=2 --time=60 --exclusive
#   submitted, with "## SBATCH --nodes=1" below: --nodes=2 --time=60 --exclusive
#   submitted, with "# SBATCH --nodes=1" and "# SBATCH --time=10" below: --exclusive
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet troika==0.2.7

mkdir "$folder/bin"
cat > "$folder/bin/sbatch" <<SH
#!/bin/sh
for last; do :; done
if [ -f "\$last" ]; then cat "\$last"; else cat; fi > "$folder/submitted"
echo "Submitted batch job 1"
SH
chmod +x "$folder/bin/sbatch"
export PATH="$folder/bin:$PATH"
printf 'sites:\n  cluster:\n    type: slurm\n    connection: local\n' > "$folder/troika.yml"

options() { # FILE: what Slurm takes for options in it, but for the output's file
    sed -n 's/^#SBATCH //p' "$1" | grep -v -e --output | paste -sd ' '
}

submitted() { # LINE...: what is submitted of the script with these lines below its options
    cat "$folder/script" > "$folder/job.sh"
    printf '%s\n' "$@" ./solver >> "$folder/job.sh"
    "$folder/venv/bin/troika" -c "$folder/troika.yml" submit -u "$(id -un)" -o "$folder/out" cluster \
        "$folder/job.sh" > "$folder/log" 2>&1
    options "$folder/submitted"
}

printf '%s\n' '#!/bin/bash' '#SBATCH --nodes=2' '#SBATCH --time=60' '#SBATCH --exclusive' > "$folder/script"
script=$(options "$folder/script")
plain=$(submitted)
hashes=$(submitted '## SBATCH --nodes=1')
comments=$(submitted '# SBATCH --nodes=1' '# SBATCH --time=10')
echo "script: $script"
echo "submitted: $plain"
echo "submitted, with \"## SBATCH --nodes=1\" below: $hashes"
echo "submitted, with \"# SBATCH --nodes=1\" and \"# SBATCH --time=10\" below: $comments"
[[ $plain == "$script" && $hashes == "$script" && $comments == "--exclusive" ]]
