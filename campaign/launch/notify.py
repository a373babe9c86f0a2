"""The user's command that is called at the end of a run."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from campaign.launch.outcome import Outcome
from dvfs.errors import ArgumentError
from dvfs.printable import printable

NOTIFY_S = 60.0


def notify_command(text: str) -> list[str]:
    """The words of ``--notify``, which run without a shell.

    Raises:
        ArgumentError: there is no such command.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ArgumentError(f"--notify {text!r}: {error}; quote it as for a shell") from None
    if not words or shutil.which(words[0]) is None:
        raise ArgumentError(
            f"--notify {text!r}: no such command; name a program, and its arguments, such as "
            f"'mail -s campaign me@example.org'"
        )
    return words


def results(store: Path, exit_code: int, message: str, outcome: Outcome | None) -> dict[str, str]:
    """The environment variables that tell the command the end of a run. The numbers of points are
    missing if the run ended with an error."""
    variables = {
        "CAMPAIGN_STORE": str(store),
        "CAMPAIGN_EXIT_CODE": str(exit_code),
        "CAMPAIGN_MESSAGE": printable(message),
        "CAMPAIGN_STATUS": "error",
    }
    if outcome is None:
        return variables
    ended = "complete" if outcome.complete else "not complete"
    return variables | {
        "CAMPAIGN_STATUS": "interrupted" if outcome.interrupted else ended,
        "CAMPAIGN_PLANNED": str(outcome.planned),
        "CAMPAIGN_MEASURED": str(outcome.measured),
        "CAMPAIGN_FAILED": str(outcome.failed),
        "CAMPAIGN_LEFT": str(outcome.left),
    }


def notify(words: Sequence[str], variables: Mapping[str, str]) -> str:
    """Call the command. Returns a warning if it failed, else an empty text."""
    try:
        result = subprocess.run(
            words,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=NOTIFY_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"--notify: {words[0]} did not end in {NOTIFY_S:g} s, and was ended"
    except OSError as error:
        return f"--notify: {words[0]}: {error.strerror}"
    if result.returncode:
        output = result.stderr.decode("utf-8", "replace").strip().split("\n")[-1]
        return f"--notify: {words[0]} ended with {result.returncode}: {output}"
    return ""
