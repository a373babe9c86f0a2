"""The command ``campaign`` for tests, without a second or two of imports for each command.

One process of a test session (:mod:`tests.shared_imports.server`) has imported what the verbs
import, and forks for each command. The command has its own arguments, folder, environment and
standard streams, runs ``campaign.verbs.command_line.main``, and ends with its own exit code or
signal.
Where it matters how a command starts (its imports, its speed, signals, other people's packages), a
test starts ``python -m campaign`` itself.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.session_folder import owner, session_folder

ROOT = Path(__file__).parents[2]


@cache
def program() -> Path:
    """The program ``campaign``, in a folder of its own; all processes of a session share it."""
    folder = session_folder() / "campaign"
    folder.mkdir(exist_ok=True)
    path = folder / "campaign"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            _start(folder)
            client = Path(__file__).with_name("client.py").read_text(encoding="utf-8")
            path.write_text(f"#!{sys.executable} -IS\n{client}", encoding="utf-8")
            path.chmod(0o755)
    return path


def _start(folder: Path) -> None:
    """Start the server; it ends with the process that owns the session."""
    with socket.socket(socket.AF_UNIX) as listener, (folder / "log").open("w") as log:
        # By a descriptor, since a socket's path has at most 107 bytes.
        descriptor = os.open(folder, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{descriptor}/socket")
        os.close(descriptor)
        listener.listen(64)
        subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.shared_imports.server"),
                *(str(listener.fileno()), str(owner())),
            ],
            cwd=ROOT,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "agg"},
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
