"""A warm interpreter that forks a measuring subprocess for every point.

``python -m campaign.measure.forkserver SETUP.json`` imports the kernels' modules once, stays
single-threaded, and then reads requests on its standard input, one JSON object a line: ``point``,
``attempt``, ``result`` and ``log`` (paths) and ``timeout_s``. It answers each with a line
``{"exit": code or null, "timed_out": bool}`` after the child and all its processes have ended.
When its standard input closes (the worker died), it kills the child and ends.

Points of a simulated machine are measured in this process: no kernel runs, and a fork would take
ten times as long as the simulation. An alarm enforces their time limit.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

import numpy as np

from campaign.measure.__main__ import UnwrittenRecordError, end, first_out_of_memory, write_record
from campaign.measure.point_life import VERSION, PartitionSetup
from campaign.measure.point_server import end_with_parent
from campaign.measure.simulated_window import simulate_window
from campaign.plan.point import Point
from campaign.store.journal import encode, packing
from campaign.store.measurement import Measurement, Trace
from dvfs.dataset import OK
from kernels.host.timed_clock import compile_chain
from kernels.registry import find_kernel
from sites.clocks import ClocksError, device_of, open_control
from sites.clocks.shared.journal import put_back_held, restore_left_over

GRACE_S = 2.0
PR_SET_CHILD_SUBREAPER = 36


def main(setup_file: str) -> None:
    """Serve requests until standard input ends."""
    # Descendants whose parent died become children of this process, so that it can end them.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        text = Path(setup_file).read_text()
    except FileNotFoundError:
        if Path(setup_file).parent.exists():
            raise
        return  # the worker has ended meanwhile, and removed its folder: no request will come
    setup = PartitionSetup.from_dict(json.loads(text))
    packing()  # imported once, not by every child
    for line in restore_left_over():
        print(line, file=sys.stderr)
    # Each point reports an error of the clock control.
    with contextlib.suppress(ClocksError, ValueError):
        open_control(setup.site)
    for name in setup.kernels:
        kernel = find_kernel(name)
        for module in () if setup.site.is_simulated else kernel.imports:
            import_module(module)
    if setup.site.meters or "numba" in sys.modules:
        # The first function that Numba loads in a process costs half a second, whatever it is.
        import_module("campaign.measure.ticker").compile_loop()
    if not setup.site.is_simulated and device_of(setup.site.clocks) == "cpu":
        compile_chain()
    _warm_up(setup)
    gc.freeze()
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    for line in iter(requests.readline, b""):
        request = json.loads(line)
        if setup.site.is_simulated:
            status, timed_out = _measure_here(setup, request)
        else:
            child = os.fork()
            if child == 0:
                _child(setup, request)
            status, timed_out = _watch(child, request["timeout_s"], requests)
            end_descendants()
        answer = {"exit": status, "timed_out": timed_out}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


def _warm_up(setup: PartitionSetup) -> None:
    """Run once the code that every child runs, so that no child has its one-time costs."""
    time_ns = np.arange(2)
    trace = Trace("", "", "W", time_ns, time_ns.astype(np.float32))
    point = Point(
        site=setup.site.name,
        partition="",
        kernel="idle",
        label="",
        params="{}",
        ranks=1,
        setting=setup.site.settings[0],
        repeat=0,
    )
    encode(Measurement(point=point, status=OK, provenance={"version": VERSION}, traces=(trace,)))
    if setup.site.is_simulated:
        assert setup.site.simulated is not None  # noqa: S101
        one_operation = dict.fromkeys(list(setup.site.simulated.rate_per_cycle)[:1], 1.0)
        simulate_window(setup.site, one_operation, setup.site.settings[0], 1e-3, "")


class _OutOfTime(BaseException):
    """A point in this process exceeded its time limit. ``except Exception`` does not catch it."""


def _alarm(number: int, frame: FrameType | None) -> None:
    raise _OutOfTime


def _measure_here(setup: PartitionSetup, request: dict[str, Any]) -> tuple[int | None, bool]:
    """Measure a simulated point in this process; see :func:`_watch`. A failure goes to the log."""
    signal.signal(signal.SIGALRM, _alarm)
    try:
        signal.setitimer(signal.ITIMER_REAL, request["timeout_s"])
        _write_record(setup, request)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
    except _OutOfTime:
        return None, True
    except Exception as error:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        unwritten = isinstance(error, UnwrittenRecordError)
        with contextlib.suppress(OSError):
            why = str(error) if unwritten else traceback.format_exc()
            Path(request["log"]).write_text(why, encoding="utf-8")
        return os.EX_IOERR if unwritten else 1, False
    return 0, False


def _write_record(setup: PartitionSetup, request: dict[str, Any]) -> None:
    point = Point.from_dict(request["point"])
    write_record(setup, point, request["attempt"], Path(request["result"]))


def _child(setup: PartitionSetup, request: dict[str, Any]) -> None:
    """Run the measuring subprocess; never returns."""
    code = 1
    try:
        os.setsid()
        end_with_parent()
        signal.signal(signal.SIGTERM, end)
        first_out_of_memory()
        try:
            log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        except OSError as error:
            raise UnwrittenRecordError(f"{request['log']}: {error.strerror}") from None
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        _write_record(setup, request)
        code = 0
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else 1
    except UnwrittenRecordError as unwritten:
        print(unwritten, file=sys.stderr)
        code = os.EX_IOERR
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            # A signal may have come before the point restored its clocks.
            put_back_held()
        finally:  # also if another signal came meanwhile
            with contextlib.suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)


def _watch(child: int, timeout_s: float, requests: BinaryIO) -> tuple[int | None, bool]:
    """Wait for the child; (its exit status, False), or (None, True) if it had to be killed."""
    deadline = time.monotonic() + timeout_s
    ended = os.pidfd_open(child)
    try:
        while True:
            remaining_s = deadline - time.monotonic()
            stdin = requests.fileno()
            ready, _, _ = select.select([ended, stdin], [], [], max(remaining_s, 0.0))
            if ended in ready:
                return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), False
            if stdin in ready:  # no request comes while a child runs: the worker is gone
                _kill(child, ended)
                end_descendants()
                raise SystemExit(0)
            if remaining_s <= 0:
                _kill(child, ended)
                return None, True
    finally:
        os.close(ended)


def _kill(child: int, ended: int) -> None:
    """Send SIGTERM to the child's group, so that it restores clocks; after a while SIGKILL."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGTERM)
    if not select.select([ended], [], [], GRACE_S)[0]:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)


def end_descendants() -> None:
    """Kill and reap all processes that remain after the child's end."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] != 0:
                continue
        except ChildProcessError:
            return
        import psutil  # noqa: PLC0415  (only when something was left)

        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1])
