#!/usr/bin/env bash
# FINDING: quickslurm 0.2.5 asks for one GPU and one hour, whatever the options say, once GPUs are enabled. Slurm(
# gpu_enable=True) has defaults of --gres=gpu:1 and --time=01:00:00; they are put over the options of the call and
# not under them. A dictionary that is used for several calls keeps them, also for a Slurm() without GPUs. One would
# think that a default is what counts where nothing is said. A scaling over 1, 2 and 4 GPUs is measured three times
# on one, and runs of more than an hour are cut.
#
# Seen with quickslurm 0.2.5, the options of sbatch for gres=gpu:1, gpu:2 and gpu:4, time=08:00:00:
#   without gpu_enable: as given; with it: --time=01:00:00 --gres=gpu:1 three times, and the dictionary has these
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet quickslurm==0.2.5

printf '#!/bin/sh\necho "Submitted batch job 7"\n' > "$folder/sbatch"
printf '#!/bin/sh\n' > "$folder/solve.sh"
chmod +x "$folder/sbatch"

cat > "$folder/program.py" <<'PYTHON'
import sys

from quickslurm import Slurm


def asked(script: str, options: dict[str, str], gpu_enable: bool) -> str:
    slurm = Slurm(gpu_enable=gpu_enable)
    return " ".join(slurm.sbatch(script, sbatch_options=options, wait=False).args[1:-1])


def main(script: str) -> int:
    found, left = [], []
    for gpus in (1, 2, 4):
        options = {"time": "08:00:00", "gres": f"gpu:{gpus}"}
        found.append([asked(script, options, gpu_enable) for gpu_enable in (False, True)])
        left.append(options)
        print(f"{gpus} GPUs, 8 hours: {found[-1][0]}; with gpu_enable: {found[-1][1]}")
    print(f"the dictionaries afterwards: {left}")
    one = {"time": "01:00:00", "gres": "gpu:1"}
    as_given = [f"--time=08:00:00 --gres=gpu:{gpus}" for gpus in (1, 2, 4)]
    expected = [[words, "--time=01:00:00 --gres=gpu:1"] for words in as_given]
    return 0 if found == expected and left == [one] * 3 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
PYTHON
PATH="$folder:$PATH" "$folder/venv/bin/python" "$folder/program.py" "$folder/solve.sh"
