"""Clocks that programs of the site set, show and restore: geopmwrite, likwid-setFrequencies,
nvidia-smi through sudo.

A command is a list of words, run without a shell. In its words, ``{core_mhz}`` and the like stand
for the clocks to set, in ``restore`` for those that ``read`` gave before. Only programs that nobody
but root and this user can change are run.

Before a clock is set, the commands and the clocks that were found are recorded
(:mod:`sites.clocks.shared.journal`), as the site file had them. Restored is what ``restore`` names;
where it has a clock in it, ``read`` must then show that clock again.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvfs.setting import AS_FOUND, Setting
from sites.clocks.shared.control import ClocksError, ClockState, ControlledSite, IllegalClockError
from sites.clocks.shared.description import ControlDescription, Right
from sites.clocks.shared.journal import (
    Entry,
    Journal,
    PutBack,
    at_last,
    log_left_over,
    signals_wait,
)
from sites.described_options import list_option
from sites.meters.shared.command_output import (
    find_program,
    parse_seconds,
    run_command,
    shown_text,
)
from sites.meters.shared.meter import MeterError

HZ = {"GHz": 1e9, "MHz": 1e6, "kHz": 1e3, "Hz": 1.0}
CLOCKS = {"core": "core_mhz", "mem": "mem_mhz"}
"""The groups of ``pattern``, and the clocks that they show."""
PLACEHOLDERS = {
    f"{name}_{unit.lower()}": (clock, hz)
    for name, clock in CLOCKS.items()
    for unit, hz in HZ.items()
}
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")
SETTLE_S = 2.0
"""How long the hardware may take until ``read`` shows a clock."""
WAIT_S = 0.05
ABOUT = ControlDescription(
    control="command",
    writes="nothing itself: programs of the site set the clocks",
    needs="the programs, and the right to use them",
    options={
        "set": 'commands that set a setting, each a list of words, such as [["PROGRAM", '
        '"{core_khz}"]]; {core_ghz}, {core_mhz}, {core_khz}, {core_hz} and those of mem stand for '
        "its clocks",
        "read": "commands that show the clocks",
        "pattern": "a regular expression with the groups core and mem that finds the clocks in "
        "their output (default: each command prints a number, first core, then mem)",
        "unit": "of what is read: GHz, MHz, kHz or Hz (default: MHz)",
        "restore": "commands that restore the clocks; {core_mhz} ... stand for those found",
        "timeout_s": "seconds after which a command is stopped (default: 10)",
    },
)
WHAT = 'a list of commands, each a list of words, such as [["PROGRAM", "-f", "{core_mhz}"]]'
Words = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Options:
    """The checked options; see ABOUT."""

    set: tuple[Words, ...]
    read: tuple[Words, ...]
    restore: tuple[Words, ...]
    pattern: re.Pattern[str] | None
    unit: str
    timeout_s: float


class Command:
    """Sets clocks by the site's commands."""

    def __init__(
        self, root: Path, options: Mapping[str, Any], settings: Sequence[Setting], tolerance: float
    ) -> None:
        self.root = root
        self._options = parse_options(options)
        self._given = dict(options)
        self._settings = sorted({setting.without_limit for setting in settings})
        self._tolerance = tolerance
        self._journal = Journal(root, "command")
        self._entries: list[dict[str, Any]] = []
        self._set = AS_FOUND
        at_last(self, _give_up, self._journal, root, self._entries)

    def legal(self) -> list[Setting]:
        return self._settings

    def set(self, setting: Setting) -> None:
        for name, mhz, offered in zip(
            ("core", "memory"),
            setting.clocks,
            zip(*(one.clocks for one in self._settings), strict=True),
            strict=True,
        ):
            if mhz is not None and mhz not in offered:
                raise IllegalClockError(f"{name} {mhz:g} MHz is not in the site file's [domains]")
        pairs = zip(self._set.clocks, setting.clocks, strict=True)
        if any(before is not None and mhz is None for before, mhz in pairs):
            self.restore()
        if setting == AS_FOUND:
            return
        with signals_wait():
            self._record()
            found = _clocks_of(self._entries[0])
            self._set = setting
            for words in _filled(self._options.set, setting, found):
                _run(self.root, words, self._options.timeout_s)
        self._read_back(setting)

    def state(self) -> ClockState:
        readings = _read(self.root, self._options)
        means = {name: sum(mhz) / len(mhz) for name, mhz in readings.items()}
        apart = [(max(mhz) - min(mhz)) / max(mhz) * 100.0 for mhz in readings.values()]
        source = f"`{' '.join(self._options.read[0])}`"
        return ClockState(Setting(**means), source=source, apart_pct=max(apart))

    def restore(self) -> None:
        if not self._journal.held:
            return
        with signals_wait():
            back = put_back(self.root, self._entries)
            if not back.failed:
                self._entries.clear()
                self._set = AS_FOUND
                self._journal.forget()
        if back.failed:
            raise ClocksError(f"not restored: {'; '.join(back.failed)}", STATE_UNKNOWN)

    def _record(self) -> None:
        """Hold the journal, and record what is found before the first clock is set."""
        if self._journal.held:
            return
        for line in self._journal.hold():
            logging.getLogger(__name__).warning("%s", line)
        try:
            readings = _read(self.root, self._options)
            found = {name: sum(mhz) / len(mhz) for name, mhz in readings.items()}
            for name in _placeholders(self._options.restore):
                if PLACEHOLDERS[name][0] not in found:
                    raise ClocksError(
                        f"restore needs {{{name}}}, which `read` does not show",
                        "correct [clocks.options]; no clock was changed",
                    )
            entry = {"options": self._given, "found": found, "tolerance_pct": self._tolerance}
            self._journal.write([entry])
            self._entries.append(entry)
        except BaseException:
            self._journal.forget()
            raise

    def _read_back(self, setting: Setting) -> None:
        wrong = _unlike(self.root, self._options, setting, self._tolerance)
        if wrong:
            raise IllegalClockError(wrong)


STATE_UNKNOWN = (
    "the clocks of this node are in an unknown state: set them by hand, or reboot it; the next "
    "start also tries again"
)


def _unlike(root: Path, options: Options, wanted: Setting, tolerance_pct: float) -> str:
    """Which clock is not shown as it should be, a clause; empty where all are, in time."""
    deadline_s = time.monotonic() + SETTLE_S
    while True:
        readings = _read(root, options)
        wrong = []
        for name, mhz in zip(CLOCKS.values(), wanted.clocks, strict=True):
            allowed = tolerance_pct / 100.0 * (mhz or 0.0)
            shown = readings.get(name, [])
            if mhz is not None and not shown:
                return f"{name}: `read` does not show it"
            off = [one for one in shown if mhz is not None and not abs(one - mhz) <= allowed]
            if off:
                wrong.append(f"{name}: {mhz:g} MHz was asked for, and {off[0]:g} MHz is shown")
        if not wrong or time.monotonic() >= deadline_s:
            return "; ".join(wrong)
        time.sleep(WAIT_S)


def _read(root: Path, options: Options) -> dict[str, list[float]]:
    """The clocks that are shown, in MHz: one, or one of each device."""
    outputs = [_run(root, words, options.timeout_s) for words in options.read]
    if options.pattern is None:
        texts = {name: [out.strip()] for name, out in zip(CLOCKS.values(), outputs, strict=False)}
    else:
        found = list(options.pattern.finditer("\n".join(outputs)))
        texts = {
            CLOCKS[group]: [text for one in found if (text := one[group]) is not None]
            for group in options.pattern.groupindex
        }
    readings = {}
    for name, numbers in texts.items():
        if not numbers or not all(NUMBER.fullmatch(n) and float(n) > 0.0 for n in numbers):
            shown = shown_text("; ".join(outputs)) or "nothing"
            raise ClocksError(
                f"`{' '.join(options.read[0])}`: no clock {name} in its output: {shown}",
                "correct `read` and `pattern` in [clocks.options]",
            )
        readings[name] = [float(number) * HZ[options.unit] / HZ["MHz"] for number in numbers]
    return readings


def _filled(commands: Iterable[Words], setting: Setting, found: Setting) -> list[Words]:
    """Commands with their clocks: of the setting, where it has none as found. A command whose
    clocks are all left as found is left out.

    Raises:
        IllegalClockError: a clock is needed that ``read`` does not show.
    """
    filled = []
    for words in commands:
        names = {PLACEHOLDERS[name][0] for word in words for name in PLACEHOLDER.findall(word)}
        if names and all(getattr(setting, name) is None for name in names):
            continue
        filled_words = list(words)
        for name, (clock, hz) in PLACEHOLDERS.items():
            mhz = getattr(setting, clock)
            mhz = getattr(found, clock) if mhz is None else mhz
            if mhz is None and clock in names:
                raise IllegalClockError(f"`{words[0]}` needs {clock}, which `read` does not show")
            if mhz is not None:
                value = mhz * HZ["MHz"] / hz
                text = f"{value:.10g}" if hz >= HZ["MHz"] else str(round(value))
                filled_words = [word.replace(f"{{{name}}}", text) for word in filled_words]
        filled.append(tuple(filled_words))
    return filled


def _run(root: Path, words: Words, timeout_s: float) -> str:
    """The output of a command.

    Raises:
        ClocksError: there is no such program, others can change it, or it fails or takes too long.
    """
    program = find_program(words[0], root)
    remedy = "run it by hand as this user, and correct [clocks.options]"
    if program is None:
        raise ClocksError(f"`{words[0]}`: no such program", remedy)
    for path in (Path(program).resolve(), *Path(program).resolve().parents):
        status = path.stat()
        others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if status.st_uid not in (0, os.geteuid()) or (others and not status.st_mode & stat.S_ISVTX):
            raise ClocksError(
                f"`{words[0]}`: {path} can be changed by another user, so it is not run",
                f"as root: chown root {path} && chmod go-w {path}",
            )
    try:
        return run_command([program, *words[1:]], timeout_s, remedy, dies_with_us=True)
    except MeterError as error:
        raise ClocksError(error.what, error.remedy) from None


def rights(root: Path) -> Right:
    """Which programs there are is the site file's to say."""
    del root
    return Right("command", False, "it needs the commands of a site file: try `campaign doctor F`")


def open_control(site: ControlledSite, root: Path) -> Command:
    """See :mod:`sites.clocks`; the options are in ABOUT.

    Raises:
        ValueError: an unknown option, or one with a wrong value.
    """
    parse_options(site.clocks.options)
    log_left_over(root)
    return Command(root, site.clocks.options, site.settings, site.clocks.tolerance_pct)


def parse_options(options: Mapping[str, Any]) -> Options:
    """Check a site's options.

    Raises:
        ValueError: an unknown option, one that is missing, or one with a wrong value.
    """
    ABOUT.check_options(options)
    commands = {name: _commands(options, name) for name in ("set", "read", "restore")}
    for name in ("set", "restore"):
        for placeholder in _placeholders(commands[name]):
            if placeholder not in PLACEHOLDERS:
                known = ", ".join(f"{{{one}}}" for one in PLACEHOLDERS)
                raise ValueError(f"{name}: unknown {{{placeholder}}}; known: {known}")
    if not _placeholders(commands["set"]):
        raise ValueError("set has no clock in it; write {core_mhz} where the clock stands")
    unit = options.get("unit", "MHz")
    if unit not in HZ:
        raise ValueError(f"unit = {unit!r}; give one of {', '.join(HZ)}")
    pattern = None if "pattern" not in options else _pattern(options["pattern"])
    if pattern is None and len(commands["read"]) > len(CLOCKS):
        raise ValueError("read has more commands than clocks; give pattern as well")
    return Options(
        **commands,
        pattern=pattern,
        unit=unit,
        timeout_s=parse_seconds(options, "timeout_s") or 10.0,
    )


def _commands(options: Mapping[str, Any], name: str) -> tuple[Words, ...]:
    commands = list_option(options, name, WHAT, _is_command)
    if commands is None:
        raise ValueError(f"{name} is missing; give {WHAT}")
    return tuple(tuple(words) for words in commands)


def _is_command(words: Any) -> bool:
    is_list = isinstance(words, list) and bool(words)
    return is_list and all(isinstance(w, str) and w and "\0" not in w for w in words)


def _placeholders(commands: Iterable[Words]) -> list[str]:
    return [name for words in commands for word in words for name in PLACEHOLDER.findall(word)]


def _pattern(text: Any) -> re.Pattern[str]:
    try:
        pattern = re.compile(text, re.MULTILINE)
    except (TypeError, re.error) as error:
        raise ValueError(f"pattern = {text!r} is no regular expression: {error}") from None
    if not pattern.groupindex or not CLOCKS.keys() >= pattern.groupindex.keys():
        raise ValueError(f"pattern = {text!r}; name its groups core or mem: (?P<core>[0-9]+)")
    return pattern


def put_back(root: Path, found: Iterable[Entry]) -> PutBack:
    """See :func:`sites.clocks.shared.journal.restore_left_over`.

    Raises:
        KeyError, TypeError, ValueError: an entry that this control cannot have written.
    """
    entries = [
        (parse_options(entry["options"]), _clocks_of(entry), float(entry["tolerance_pct"]))
        for entry in found
    ]
    done, failed = [], []
    for options, clocks, tolerance_pct in entries:
        named = f"`{' '.join(options.restore[0])}`"
        try:
            for words in _filled(options.restore, clocks, clocks):
                _run(root, words, options.timeout_s)
            named_clocks = {PLACEHOLDERS[name][0] for name in _placeholders(options.restore)}
            again = Setting(**{name: getattr(clocks, name) for name in named_clocks})
            wrong = _unlike(root, options, again, tolerance_pct) if named_clocks else ""
        except (ClocksError, IllegalClockError) as error:
            wrong = str(error)
        if wrong:
            failed.append(f"{named}: {wrong}")
        else:
            done.append(f"{named} has run")
    return PutBack(tuple(done), (), tuple(failed))


def _clocks_of(entry: Entry) -> Setting:
    """The clocks that were found, of an entry of the journal."""
    found = entry["found"]
    if not isinstance(found, dict) or not all(type(f) is float and f > 0 for f in found.values()):
        raise TypeError("a clock that is no number")
    return Setting(**found)


def _give_up(journal: Journal, root: Path, entries: Sequence[Entry]) -> None:
    if not journal.held:
        return
    with signals_wait():
        if put_back(root, entries).failed:
            journal.let_go()
        else:
            journal.forget()
