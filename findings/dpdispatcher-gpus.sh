#!/usr/bin/env bash
# FINDING: dpdispatcher 1.1.0 runs several tasks at once on one GPU and leaves the others idle. With
# if_cuda_multi_devices, which is to spread tasks over the GPUs of a node, para_deg is the number of tasks for
# each GPU, not of tasks at once. para_deg=4 on 4 GPUs starts all of 8 tasks together, four on GPU 0, then four
# on GPU 1; GPUs 2 and 3 get none. One would think that four tasks run at a time, each on a GPU of its own, as
# they do with para_deg=1. Times and energies are those of four tasks that share a GPU.
#
# Seen with dpdispatcher 1.1.0, a job of 8 tasks on 4 GPUs, each task waiting for others for up to 5 s:
#   para_deg=1: 2 tasks on GPU 0, 2 on GPU 1, 2 on GPU 2, 2 on GPU 3; at most 4 tasks at once
#   para_deg=4: 4 tasks on GPU 0, 4 on GPU 1; at most 8 tasks at once
#
# Exit 0: it is still so. Exit 1: it has changed.
set -euo pipefail
sed -n '/^# FINDING/,/^#$/s/^# //p' "$0"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet dpdispatcher==1.1.0

cat > "$folder/solve.py" <<'PYTHON'
import os
import sys
import time
from pathlib import Path

AT_ONCE = 8


def main(running: Path) -> None:
    mine = running / os.path.basename(os.getcwd())
    mine.touch()
    most = 0
    until = time.monotonic() + 5
    while most < AT_ONCE and time.monotonic() < until:
        most = max(most, len(list(running.iterdir())))
        time.sleep(0.1)
    time.sleep(1)
    mine.unlink()
    print(os.environ["CUDA_VISIBLE_DEVICES"], most)


main(Path(sys.argv[1]))
PYTHON

cat > "$folder/program.py" <<'PYTHON'
import logging
import sys
from collections import Counter
from pathlib import Path

from dpdispatcher import Machine, Resources, Submission, Task

TASKS, GPUS = 8, 4


def run(folder: Path, together: int) -> tuple[dict[str, int], int]:
    home = folder / f"para_deg_{together}"
    for name in ("local", "remote", "running"):
        (home / name).mkdir(parents=True)
    where = {"local_root": str(home / "local"), "remote_root": str(home / "remote")}
    machine = Machine.load_from_dict({"batch_type": "Shell", "context_type": "LocalContext"} | where)
    resources = Resources.load_from_dict(
        {
            "number_node": 1,
            "cpu_per_node": GPUS,
            "gpu_per_node": GPUS,
            "queue_name": "",
            "group_size": TASKS,
            "para_deg": together,
            "strategy": {"if_cuda_multi_devices": True},
        }
    )
    command = f"{sys.executable} {folder / 'solve.py'} {home / 'running'}"
    tasks = []
    for number in range(TASKS):
        (home / "local" / str(number)).mkdir()
        tasks.append(
            Task(
                command=command,
                task_work_path=str(number),
                forward_files=[],
                backward_files=["out"],
                outlog="out",
            )
        )
    submission = Submission(".", machine=machine, resources=resources, task_list=tasks)
    submission.run_submission(check_interval=1)
    seen = [(home / "local" / str(number) / "out").read_text().split() for number in range(TASKS)]
    gpus = dict(sorted(Counter(gpu for gpu, _ in seen).items()))
    most = max(int(number) for _, number in seen)
    shares = [f"{number} on GPU {gpu}" for gpu, number in gpus.items()]
    shares[0] = shares[0].replace(" on", " tasks on")
    print(f"para_deg={together}: {', '.join(shares)}; at most {most} tasks at once")
    return gpus, most


def main(folder: Path) -> int:
    logging.disable(logging.CRITICAL)
    alone, shared = run(folder, 1), run(folder, 4)
    right = alone == (dict.fromkeys("0123", 2), 4)
    return 0 if right and shared == ({"0": 4, "1": 4}, 8) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
PYTHON
cd "$folder"
"$folder/venv/bin/python" "$folder/program.py" "$folder"
