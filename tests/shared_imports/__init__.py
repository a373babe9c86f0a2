"""The command ``campaign`` for tests, without a second or two of imports for each command.

One process of a test session (:mod:`tests.shared_imports.server`) has imported what the verbs
import, and forks for each command. The command has its own arguments, folder, environment and
standard streams, runs ``campaign.verbs.command_line.main``, and ends with its own exit code or
signal.
Where it matters how a command starts (its imports, its speed, signals, other people's packages), a
test starts ``python -m campaign`` itself.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.session_folder import made_once, owner

ROOT = Path(__file__).parents[2]


@cache
def program() -> Path:
    """The program ``campaign``, in a folder of its own; all processes of a session share it."""
    return made_once("campaign", _start) / "campaign"


def _start(folder: Path) -> None:
    """Start the server, which ends with the process that owns the session; write the program."""
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
    client = Path(__file__).with_name("client.py").read_text(encoding="utf-8")
    path = folder / "campaign"
    path.write_text(f"#!{sys.executable} -IS\n{client}", encoding="utf-8")
    path.chmod(0o755)
