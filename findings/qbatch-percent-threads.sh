#!/usr/bin/env bash
# FINDING: qbatch 2.3.2 gives each command of a job other threads where -j is a percentage. A job of 8
# processors with -j 4 runs 4 commands at once and sets THREADS_PER_COMMAND to 2. With -j 50%, which is 4
# commands for GNU parallel on a node of 8 processors, THREADS_PER_COMMAND is 4: the percentage of the
# processors, so the number of commands again, and not the processors that each has. -j 100% is 8 commands of
# 8 threads each, and -j 25% is 2 commands that leave half of the processors idle. One would think that 4 and
# 50% of 8 are the same. Times and energies of such runs are those of an oversubscribed or half idle node.
#
# Seen with qbatch 2.3.2, 16 commands in jobs of 8 processors, threads that run at once:
#   -j 8: 8 x 1, -j 100%: 8 x 8; -j 4: 4 x 2, -j 50%: 4 x 4; -j 2: 2 x 4, -j 25%: 2 x 2
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet qbatch==2.3.2
for name in sbatch squeue parallel; do
    printf '#!/bin/sh\n' > "$folder/venv/bin/$name"
    chmod +x "$folder/venv/bin/$name"
done

cat > "$folder/program.py" <<'PYTHON'
import os
import re
import subprocess
import sys
from pathlib import Path

PROCESSORS = 8


def threads(folder: Path, cores: str) -> int:
    words = ["qbatch", "--dryrun", "--system=slurm", f"--ppj={PROCESSORS}", "--env=none"]
    words += ["--chunksize=16", f"--cores={cores}", "--jobname=run", str(folder / "commands")]
    path = f"{folder / 'venv/bin'}:{os.environ['PATH']}"
    subprocess.run(words, cwd=folder, env=os.environ | {"PATH": path}, check=True)
    script = (folder / ".qbatch/run.array").read_text()
    (found,) = re.findall(r"THREADS_PER_COMMAND=(\d+)", script)
    assert f"CORES={cores}\n" in script and "--cpus-per-task=8" in script
    return int(found)


def main(folder: Path) -> int:
    (folder / "commands").write_text("./solve\n" * 32)
    found = {}
    for commands, percentage in ((8, "100%"), (4, "50%"), (2, "25%")):
        found[commands] = (threads(folder, str(commands)), threads(folder, percentage))
        number, percent = found[commands]
        print(f"-j {commands}: {commands} x {number} threads, -j {percentage}: {commands} x {percent}")
    return 0 if found == {8: (1, 8), 4: (2, 4), 2: (4, 2)} else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
"$folder/venv/bin/python" "$folder/program.py" "$folder"
