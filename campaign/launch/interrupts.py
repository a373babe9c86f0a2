"""Ctrl-C: one line and exit code 130, whatever is being imported.

This module imports little, since an interrupt before :func:`defer_while_importing` is Python's.
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
"""How often it is seen whether an import during which an interrupt came is over."""


def defer_while_importing() -> None:
    """Raise KeyboardInterrupt after SIGINT only when no module is being imported, and again where
    Python has dropped it.

    An exception inside of an import can leave a module half made, be taken for an error of the
    module, or be printed and dropped by the interpreter (in a callback of the module's lock).
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
    """What Python calls with an exception that it cannot raise, as in a callback of an object that
    is deleted."""
    if dropped.exc_type is KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, LOOK_S)
    else:
        sys.__unraisablehook__(dropped)


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
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
    # If a SIGINT came during an exec (of a dataclass's text, say), CPython 3.11 kills itself with
    # SIGINT at its end, although the exception was handled. The next exec clears that mark, such
    # as that of another dataclass.
    from dataclasses import make_dataclass  # noqa: PLC0415

    make_dataclass("Cleared", ())
    # What the interrupt left half made is noticed when it is deleted: event loops log their tasks,
    # the interpreter warns of coroutines that nothing awaited, and prints what a destructor raises.
    if "logging" in sys.modules:
        sys.modules["logging"].disable()
    warnings.simplefilter("ignore")
    sys.unraisablehook = _drop


def _drop(dropped: Any) -> None:
    """Print nothing of an exception that Python cannot raise."""
