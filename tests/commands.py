"""``campaign VERB`` in a test's process: how it ends and what it writes; and ``campaign run`` in
another process."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from campaign.verbs.command_line import main


class Written(NamedTuple):
    """The exit code of a command, and its standard output and error."""

    code: int
    out: str
    err: str


def run(*words: object) -> Written:
    """Run a command of these words, each as ``str`` gives it."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in words])
    return Written(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))


def prints(*words: object, code: int = 0) -> str:
    """The standard output of a command that ends with ``code``."""
    done = run(*words)
    assert done.code == code, done.err
    return done.out


def answers(*words: object, code: int = 0) -> Any:
    """What a command prints with ``--json``."""
    return json.loads(prints(*words, "--json", code=code))


def refuses(*words: object, code: int = 2) -> str:
    """The standard error, which has no traceback, of a command that ends with ``code``."""
    done = run(*words)
    assert done.code == code and "Traceback" not in done.err, done.out + done.err
    return done.err


def warns(*words: object) -> str:
    """The standard error, which has no traceback, of a command that ends with 0."""
    return refuses(*words, code=0)


def start(campaign: Path, *command: str | Path) -> subprocess.Popen[str]:
    """Start ``campaign run`` in a session, with the store in the campaign file's folder.
    ``command``: the words that stand for ``campaign``."""
    return subprocess.Popen(
        [
            *(command or (sys.executable, "-m", "campaign")),
            *("run", campaign, "--store", campaign.parent / "store"),
        ],
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
