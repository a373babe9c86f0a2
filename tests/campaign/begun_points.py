"""Points whose command leaves a line as it begins and as it ends: one that was cut off has no
second line."""

from __future__ import annotations

import sys
from pathlib import Path

KERNEL = """
[[kernels]]
kernel = "command"
params = {{ argv = [["{python}", "-c", "{script}"]] }}
"""
SCRIPT = (
    "import os, time; log = '{log}'; print('begin', file=open(log, 'a')); time.sleep({sleep_s}); "
    "print('end', file=open(log, 'a'))"
)


def command_with_log(log: Path, sleep_s: float) -> str:
    """The kernel's table in a campaign file."""
    script = SCRIPT.format(log=log, sleep_s=sleep_s)
    return KERNEL.format(python=sys.executable, script=script)


def assert_none_was_cut_off(log: Path) -> None:
    lines = log.read_text().split() if log.exists() else []
    assert lines.count("begin") == lines.count("end")
