"""The node's power from its management controller (BMC): DCMI over IPMI, in W.

Two programs can request it; the first installed one is run:

- ``ipmi-dcmi --get-system-power-statistics`` (FreeIPMI, man page ipmi-dcmi(8)), which prints
  ``Current Power : 164 Watts`` and ``Power Measurement : Active``;
- ``ipmitool dcmi power reading`` (ipmitool(1)), which prints
  ``Instantaneous power reading: 180 Watts`` and ``Power reading state is: activated``.

Both send DCMI's Get Power Reading (network function 0x2C, command 0x02; DCMI 1.5, section 6.6.1)
to ``/dev/ipmi0``, which only root can open. The BMC determines averaging and delay, so use this
meter as a check, not for the energy of short runs.

**A thread** runs the program repeatedly, because an answer takes 0.01 s to several seconds.
:meth:`IpmiMeter.read` returns the last answer and never waits. The time of a reading is the middle
of the program's run; the BMC's value may be a second older. If the last run failed, reading is an
error until a run succeeds.

An answer of 0 W is an error: a running node draws power, and BMCs without a sensor answer 0.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sites.described_options import list_option, seconds_option
from sites.meters.shared.command_output import (
    find_program,
    run_command,
    shown_text,
)
from sites.meters.shared.meter import (
    AbsentMeterError,
    Channel,
    MeterDescription,
    MeterError,
    Reading,
)

ABOUT = MeterDescription(
    kind="ipmi",
    reads="the node's power from its BMC; a check",
    domains="node",
    needs="ipmi-dcmi or ipmitool, and /dev/ipmi0",
    options={
        "command": "words to run instead",
        "limit_s": "seconds a command may take (default: 10)",
        "period_s": "seconds between two commands (default: 1)",
    },
    is_check=True,
)

COMMANDS = (
    ("ipmi-dcmi", "--get-system-power-statistics"),
    ("ipmitool", "dcmi", "power", "reading"),
)
LIMIT_S = 10.0
PERIOD_S = 1.0
"""The sampling period of BMCs: they report statistics over a period of 1 s."""
GAIN_PCT = 5.0
"""Assumed: few vendors document the accuracy of a BMC's sensor, and it differs."""

WATTS = re.compile(
    r"^[ \t]*(?:Current Power|Instantaneous power reading)[ \t]*:[ \t]*([0-9]{1,6})"
    r"[ \t]*W(?:atts)?[ \t\r]*$",
    re.IGNORECASE | re.MULTILINE,
)
STATE = re.compile(
    r"^[ \t]*(?:Power Measurement|Power reading state is)[ \t]*:(.*)$",
    re.IGNORECASE | re.MULTILINE,
)
ACTIVE = ("active", "activated")

ABSENT_REMEDY = (
    "install one with `apt install freeipmi-tools` or `dnf install ipmitool`, or give a command in "
    "the option `command`"
)
REMEDY = (
    "only root can ask the BMC, through /dev/ipmi0 (`modprobe ipmi_devintf ipmi_si`): allow this "
    "one command with a line `USER ALL=(root) NOPASSWD: {command}` in sudoers and set the option "
    'command = ["sudo", "-n", "{first}", ...]'
)
PARSE_REMEDY = "check the output of `{command}`: the BMC may have no power sensor (DCMI)"


def open_meter(root: Path, options: Mapping[str, Any]) -> IpmiMeter:
    """Open the node's BMC and wait for its first answer."""
    words, limit_s, period_s = parse_options(options)
    command = _find_command(root, words)
    meter = IpmiMeter(command, limit_s, period_s)
    try:
        meter.wait_for_answer()
    except BaseException:
        meter.close()
        raise
    return meter


def parse_options(options: Mapping[str, Any]) -> tuple[list[str] | None, float, float]:
    """``command`` (None where it is not set), ``limit_s`` and ``period_s``."""
    expected = 'a list of words such as ["sudo", "-n", "COMMAND"]'
    command = list_option(options, "command", expected, lambda w: isinstance(w, str) and bool(w))
    limit_s = seconds_option(options, "limit_s", LIMIT_S)
    return command, limit_s, seconds_option(options, "period_s", PERIOD_S)


class IpmiMeter:
    """The node's power, requested by a thread."""

    name = "ipmi"

    def __init__(self, command: Sequence[str], limit_s: float, period_s: float) -> None:
        self.channels = (
            Channel(
                name="node/power",
                domain="node",
                kind="power",
                resolution=1.0,
                period_s=max(period_s, PERIOD_S),
                stamped=True,
                averaging_s=PERIOD_S,
                gain_pct=GAIN_PCT,
            ),
        )
        self._command = tuple(command)
        self._limit_s = limit_s
        self._period_s = period_s
        self._answer: Reading | MeterError = MeterError(
            "the BMC has not answered yet", "wait for the first answer"
        )
        self._has_answer = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="ipmi meter", daemon=True)
        self._thread.start()

    def wait_for_answer(self) -> None:
        """Wait until the first run has ended.

        Raises:
            MeterError: it failed.
        """
        self._has_answer.wait()
        self.read()

    def read(self) -> Reading:
        """The last answer, with its time.

        Raises:
            MeterError: the last run failed, or the meter is closed.
        """
        if self._stop.is_set():
            raise MeterError("internal error: the ipmi meter is closed", "please report it")
        answer = self._answer
        if isinstance(answer, Reading):
            return answer
        # A new exception: one that is raised twice collects both tracebacks.
        raise MeterError(answer.what, answer.remedy)

    def close(self) -> None:
        """End the thread and its command; closing again does nothing."""
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _ask(self) -> None:
        remedy = REMEDY.format(command=" ".join(self._command), first=self._command[0])
        while not self._stop.is_set():
            start_ns = time.monotonic_ns()
            try:
                output = run_command(self._command, self._limit_s, remedy, self._stop)
                end_ns = time.monotonic_ns()
                watts = parse_watts(output, " ".join(self._command))
                self._answer = Reading((start_ns + end_ns) // 2, (watts,))
            except MeterError as error:
                self._answer = error
            self._has_answer.set()
            self._stop.wait(self._period_s)


def parse_watts(output: str, command: str) -> float:
    """The power in the output of either program.

    Raises:
        MeterError: there is no power, it is 0, or the BMC reports that it does not measure.
    """
    remedy = PARSE_REMEDY.format(command=command)
    states = [state.strip() for state in STATE.findall(output)]
    inactive = [state for state in states if state.lower() not in ACTIVE]
    if inactive:
        state = shown_text(inactive[0])
        raise MeterError(f"`{command}`: the BMC's power measurement is {state}", remedy)
    powers = WATTS.findall(output)
    if len(powers) != 1:
        shown = shown_text(output) or "nothing"
        raise MeterError(f"`{command}` printed no power, but {shown}", remedy)
    watts = float(powers[0])
    if watts == 0:
        raise MeterError(f"`{command}` printed 0 W, but a running node draws power", remedy)
    return watts


def _find_command(root: Path, words: Sequence[str] | None) -> list[str]:
    candidates = COMMANDS if words is None else (tuple(words),)
    for name, *arguments in candidates:
        program = find_program(name, root)
        if program is not None:
            return [program, *arguments]
    names = " or ".join(words[0] for words in candidates)
    raise AbsentMeterError(f"{names}: not installed", ABSENT_REMEDY)
