"""Ctrl-C: one line and exit code 130, whatever has been imported."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import make_dataclass

INTERRUPTED = 130


@contextlib.contextmanager
def keeping_handler() -> Iterator[None]:
    """Around an import that sets SIGINT's handler: a SIGINT meanwhile is delivered afterwards, to
    the handler from before, which is put back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def ignore_further() -> None:
    """Ignore SIGINT from now on, since the process ends with an exit code of its own."""
    # If a SIGINT came during an exec (of a dataclass's text, say), CPython 3.11 kills itself with
    # SIGINT at its end, although the exception was handled. The next exec clears that mark, such
    # as that of another dataclass.
    make_dataclass("Cleared", ())
    # Event loops log the tasks that the interrupt left unfinished.
    if "logging" in sys.modules:
        sys.modules["logging"].disable()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
