"""Ctrl-C: one line and exit code 130, even during an import.

This module imports little: before :func:`defer_while_importing` Python handles an interrupt.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any

INTERRUPTED = 130
LOOK_S = 0.005
"""The interval of checks whether an interrupted import is over."""


def defer_while_importing() -> None:
    """Raise KeyboardInterrupt after SIGINT only when no module is being imported, and again if
    Python has dropped it.

    An exception inside an import can leave an incomplete module, look like an error of the module,
    or be printed and dropped by the interpreter (in a callback of the module's lock).
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # ignored, as in a shell's background job
    signal.signal(signal.SIGALRM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _unraisable


def _interrupt(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            signal.setitimer(signal.ITIMER_REAL, LOOK_S)
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def _unraisable(dropped: Any) -> None:
    """Handle an exception that Python cannot raise, as in a callback of a deleted object."""
    if dropped.exc_type is KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, LOOK_S)
    else:
        sys.__unraisablehook__(dropped)


@contextlib.contextmanager
def keeping_handler() -> Iterator[None]:
    """Restore SIGINT's handler after an import that sets another one. A SIGINT during the import is
    delivered afterwards, to the restored handler."""
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
    """Ignore SIGINT from now on, so that the process ends with its exit code."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
    # If a SIGINT came during an exec (such as that of a dataclass), CPython 3.11 kills itself with
    # SIGINT at its end, although the exception was handled. The next exec, such as that of another
    # dataclass, clears that mark.
    from dataclasses import make_dataclass  # noqa: PLC0415

    make_dataclass("Cleared", ())
    # Deleting the interrupted objects causes messages: event loops log their tasks, and the
    # interpreter warns of coroutines that were not awaited, and prints errors of destructors.
    if "logging" in sys.modules:
        sys.modules["logging"].disable()
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda dropped: None
