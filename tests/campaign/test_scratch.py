"""What killed Dask workers left in scratch is removed, and what a living one has stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from distributed.diskutils import WorkSpace

from campaign.launch.local import remove_dead_workers


def test_folders_of_dead_workers_go_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    scratch = tmp_path / "dask-scratch-space"
    living = WorkSpace(str(scratch)).new_work_dir(prefix="worker-")
    killed = (
        "import os, signal, sys\n"
        "from distributed.diskutils import WorkSpace\n"
        "directory = WorkSpace(sys.argv[1]).new_work_dir(prefix='dead-')\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", killed, str(scratch)], check=False)
    assert [path.name for path in scratch.glob("dead-*") if path.is_dir()]
    remove_dead_workers(tmp_path)
    left = [path.name for path in scratch.iterdir() if path.is_dir()]
    assert left == [Path(living.dir_path).name]
    living.release()
