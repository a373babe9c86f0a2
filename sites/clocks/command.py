"""Clocks that programs of the site set, show and restore: geopmwrite, likwid-setFrequencies,
nvidia-smi through sudo. Separate controls set a power limit and a profile in the same way.

A command is a list of words, run without a shell. Placeholders such as ``{core_mhz}`` in its words
stand for the clocks to set, in ``restore`` for the clocks that ``read`` showed before. A program is
run only if no user but root and this one can change it.

Before a clock is set, the site file's commands and the present clocks are recorded
(:mod:`sites.clocks.shared.journal`). ``restore`` sets the clocks that it names; ``read`` must then
show them again.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dvfs.setting import AS_FOUND, Setting
from sites.clocks.shared.control import (
    ClocksError,
    ClockState,
    ControlDescription,
    ControlledSite,
    IllegalClockError,
    Right,
)
from sites.clocks.shared.journal import (
    Entry,
    Journal,
    PutBack,
    at_last,
    log_left_over,
    signals_wait,
)
from sites.clocks.shared.limited import value_of_all
from sites.described_options import list_option, seconds_option
from sites.meters.shared.command_output import (
    find_program,
    run_command,
    shown_text,
)
from sites.meters.shared.meter import MeterError

HZ = {"GHz": 1e9, "MHz": 1e6, "kHz": 1e3, "Hz": 1.0}
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")
NAME = re.compile(r"[A-Za-z0-9_.:+-]{1,64}")
"""The name of a profile."""
SETTLE_S = 2.0
"""How long the hardware may take until ``read`` shows a new value."""
WAIT_S = 0.05
ABOUT = ControlDescription(
    control="command",
    writes="nothing itself: programs of the site do",
    needs="the programs, and the right to use them",
    options={
        "set": 'commands, each a list of words, such as [["PROGRAM", "{core_khz}"]]; also '
        "{core_ghz}, {core_mhz}, {core_hz}, and those of mem and uncore",
        "read": "commands that show them",
        "pattern": "regular expression with the groups core, mem, uncore (default: a number from "
        "each command, core first, then mem)",
        "unit": "GHz, MHz, kHz or Hz (default: MHz)",
        "restore": "commands; {core_mhz} ... are the clocks found",
        "timeout_s": "seconds a command may take (default: 10)",
    },
)


@dataclass(frozen=True, kw_only=True)
class Quantities:
    """The kind of value that the commands of a control set: clocks, a power limit or a profile."""

    about: ControlDescription
    noun: str
    groups: Mapping[str, str]
    """The groups of ``pattern``, and the fields of a setting that they show."""
    units: Mapping[str, float]
    """Unit -> its size in the smallest unit; empty where the values are names."""
    unit: str
    """The unit of a setting's fields."""
    placeholders: Mapping[str, tuple[str, float]]
    """Placeholder -> the field that it stands for, and the size of its unit as in ``units``."""
    listed: str
    """The place of the legal values in the site file."""
    options: str
    """The place of the options in the site file."""

    @property
    def correct(self) -> str:
        return f"correct [{self.options}]"

    def text(self, value: float | str) -> str:
        """A value for a message."""
        return value if isinstance(value, str) else f"{value:g} {self.unit}"

    def is_value(self, text: str) -> bool:
        """Whether a text that was read is a number above 0; without units, a name."""
        if not self.units:
            return NAME.fullmatch(text) is not None
        return NUMBER.fullmatch(text) is not None and float(text) > 0.0

    @property
    def state_unknown(self) -> str:
        return (
            f"the {self.noun}s of this node are in an unknown state: set them by hand, or reboot "
            "it; the next start also tries again"
        )

    def rights(self, root: Path) -> Right:
        """Unknown: the site file names the programs."""
        del root
        them = "them" if len(self.groups) > 1 else "it"
        return Right(self.about.control, None, f"programs that the site file names set {them}")

    def check(self, options: Mapping[str, Any]) -> Options:
        """Check a site's options.

        Raises:
            ValueError: an unknown option, one that is missing, or one with a wrong value.
        """
        self.about.check_options(options)
        commands = {name: _commands(options, name) for name in ("set", "read", "restore")}
        for name in ("set", "restore"):
            for placeholder in _placeholders(commands[name]):
                if placeholder not in self.placeholders:
                    names = ", ".join(f"{{{p}}}" for p in self.placeholders)
                    raise ValueError(f"{name}: unknown {{{placeholder}}}; known: {names}")
        if not _placeholders(commands["set"]):
            field = f"{{{next(iter(self.groups.values()))}}}"
            noun = self.noun
            raise ValueError(f"set has no {noun} in it; write {field} where the {noun} stands")
        unit = options.get("unit", self.unit)
        if self.units and unit not in self.units:
            raise ValueError(f"unit = {unit!r}; give one of {', '.join(self.units)}")
        pattern = None if "pattern" not in options else _pattern(self, options["pattern"])
        if pattern is None and len(commands["read"]) > min(len(self.groups), 2):
            raise ValueError(f"read has more commands than {self.noun}s; give pattern as well")
        return Options(
            kind=self,
            **commands,
            pattern=pattern,
            unit=unit,
            timeout_s=seconds_option(options, "timeout_s", 10.0),
        )

    def put_back(self, root: Path, entries: Iterable[Entry]) -> PutBack:
        """See :func:`sites.clocks.shared.journal.restore_left_over`.

        Raises:
            KeyError, TypeError, ValueError: an entry that the control cannot have written.
        """
        checked = [
            (self.check(entry["options"]), self.found(entry), float(entry["tolerance_pct"]))
            for entry in entries
        ]
        restored, failed = [], []
        for options, before, tolerance_pct in checked:
            named = f"`{' '.join(options.restore[0])}`"
            try:
                for words in _filled(self, options.restore, before, before):
                    _run(root, words, options)
                fields = {self.placeholders[name][0] for name in _placeholders(options.restore)}
                again = Setting(**{name: getattr(before, name) for name in fields})
                wrong = _unlike(root, options, again, tolerance_pct) if fields else ""
            except (ClocksError, IllegalClockError) as error:
                wrong = str(error)
            if wrong:
                failed.append(f"{named}: {wrong}")
            else:
                restored.append(f"{named} has run")
        return PutBack(tuple(restored), (), tuple(failed))

    def found(self, entry: Entry) -> Setting:
        """The setting that an entry of the journal recorded."""
        values = entry["found"]
        if not isinstance(values, dict) or not all(
            type(value) is float and value > 0
            if self.units
            else isinstance(value, str) and NAME.fullmatch(value)
            for value in values.values()
        ):
            raise TypeError(f"a {self.noun} that this control cannot have found")
        return Setting(**values)


DOMAINS = ("core", "mem", "uncore")
CLOCKS = Quantities(
    about=ABOUT,
    noun="clock",
    groups={name: f"{name}_mhz" for name in DOMAINS},
    units=HZ,
    unit="MHz",
    placeholders={
        f"{name}_{unit.lower()}": (f"{name}_mhz", hz) for name in DOMAINS for unit, hz in HZ.items()
    },
    listed="[domains]",
    options="clocks.options",
)
rights, parse_options, put_back = CLOCKS.rights, CLOCKS.check, CLOCKS.put_back
WHAT = 'a list of commands, each a list of words, such as [["PROGRAM", "-f", "{core_mhz}"]]'
Words = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Options:
    """The checked options; see ABOUT."""

    kind: Quantities
    set: tuple[Words, ...]
    read: tuple[Words, ...]
    restore: tuple[Words, ...]
    pattern: re.Pattern[str] | None
    unit: str
    timeout_s: float


class Command:
    """Sets values of a kind by the site's commands, after a killed process's are restored.

    Raises:
        ValueError: an unknown option, one that is missing, or one with a wrong value.
    """

    def __init__(
        self,
        root: Path,
        kind: Quantities,
        options: Mapping[str, Any],
        settings: Sequence[Setting],
        tolerance_pct: float,
    ) -> None:
        self.root = root
        self._options = kind.check(options)
        log_left_over(root)
        self._given = dict(options)
        self._settings = settings
        self._tolerance = tolerance_pct
        self._journal = Journal(root, kind.about.control)
        self._entries: list[dict[str, Any]] = []
        self._set = AS_FOUND
        at_last(self, _give_up, self._journal, kind, root, self._entries)

    def range_w(self) -> tuple[None, None]:
        """(None, None): programs do not report the range of a power limit."""
        return None, None

    def legal(self) -> list[Setting]:
        return list(self._settings)

    def set(self, setting: Setting) -> None:
        kind = self._options.kind
        pairs = []
        for name in kind.groups.values():
            value = getattr(setting, name)
            pairs.append((getattr(self._set, name), value))
            if value is not None and value not in {getattr(s, name) for s in self._settings}:
                raise IllegalClockError(
                    f"{name} {kind.text(value)} is not in the site file's {kind.listed}"
                )
        if any(before is not None and value is None for before, value in pairs):
            self.restore()
        if setting == AS_FOUND:
            return
        with signals_wait():
            self._record()
            present = kind.found(self._entries[0])
            self._set = setting
            for words in _filled(kind, self._options.set, setting, present):
                _run(self.root, words, self._options)
        self._read_back(setting)

    def state(self) -> ClockState:
        readings = _read(self.root, self._options)
        source = f"`{' '.join(self._options.read[0])}`"
        if not self._options.kind.units:
            (shown,) = readings.values()
            return ClockState(
                Setting(profile=_name_of_all(shown, self._set.profile)), source=source
            )
        # For a limit, the value furthest from the request: apart_pct covers clocks only.
        requested = self._set.power_limit_w
        values: dict[str, Any] = {
            name: value_of_all(shown, requested) for name, shown in readings.items()
        }
        apart_pct = [(max(shown) - min(shown)) / max(shown) * 100.0 for shown in readings.values()]
        return ClockState(Setting(**values), source=source, apart_pct=max(apart_pct))

    def restore(self) -> None:
        if not self._journal.held:
            return
        with signals_wait():
            back = self._options.kind.put_back(self.root, self._entries)
            if not back.failed:
                self._entries.clear()
                self._set = AS_FOUND
                self._journal.forget()
        if back.failed:
            raise ClocksError(
                f"not restored: {'; '.join(back.failed)}", self._options.kind.state_unknown
            )

    def _record(self) -> None:
        """Hold the journal, and record the present values before the first change."""
        if self._journal.held:
            return
        self._journal.hold()
        try:
            readings, kind = _read(self.root, self._options), self._options.kind
            values = {
                name: value_of_all(shown, None) if kind.units else _name_of_all(shown, None)
                for name, shown in readings.items()
            }
            for name in _placeholders(self._options.restore):
                if kind.placeholders[name][0] not in values:
                    raise ClocksError(
                        f"restore needs {{{name}}}, which `read` does not show",
                        f"{kind.correct}; no {kind.noun} was changed",
                    )
            entry = {"options": self._given, "found": values, "tolerance_pct": self._tolerance}
            self._journal.write([entry])
            self._entries.append(entry)
        except BaseException:
            self._journal.forget()
            raise

    def _read_back(self, setting: Setting) -> None:
        wrong = _unlike(self.root, self._options, setting, self._tolerance)
        if wrong:
            raise IllegalClockError(wrong)


def _unlike(root: Path, options: Options, requested: Setting, tolerance_pct: float) -> str:
    """The values that differ from ``requested``, a clause; empty once none differs, in time."""
    deadline_s = time.monotonic() + SETTLE_S
    while True:
        readings = _read(root, options)
        wrong = []
        for name in options.kind.groups.values():
            value, kind = getattr(requested, name), options.kind
            shown = readings.get(name, [])
            if value is None:
                continue
            if not shown:
                return f"{name}: `read` does not show it"
            off = [
                v
                for v in shown
                if (abs(v - value) > tolerance_pct / 100.0 * value if kind.units else v != value)
            ]
            if off:
                wrong.append(
                    f"{name}: {kind.text(value)} was asked for, and {kind.text(off[0])} is shown"
                )
        if not wrong or time.monotonic() >= deadline_s:
            return "; ".join(wrong)
        time.sleep(WAIT_S)


def _name_of_all(shown: Sequence[str], requested: str | None) -> str:
    """The profile of several devices: the first that differs from the requested one, so that it is
    noticed."""
    return next((name for name in shown if name != requested), shown[0])


def _read(root: Path, options: Options) -> dict[str, list[Any]]:
    """Field -> the values that the commands show, in a setting's unit: one, or one per device."""
    kind = options.kind
    outputs = [_run(root, words, options) for words in options.read]
    if options.pattern is None:
        fields = zip(kind.groups.values(), outputs, strict=False)
        texts = {name: [out.strip()] for name, out in fields}
    else:
        matches = list(options.pattern.finditer("\n".join(outputs)))
        texts = {
            kind.groups[group]: [text for match in matches if (text := match[group]) is not None]
            for group in options.pattern.groupindex
        }
    readings: dict[str, list[Any]] = {}
    for name, found_texts in texts.items():
        if not found_texts or not all(map(kind.is_value, found_texts)):
            shown = shown_text("; ".join(outputs)) or "nothing"
            raise ClocksError(
                f"`{' '.join(options.read[0])}`: no {kind.noun} {name} in its output: {shown}",
                f"correct `read` and `pattern` in [{kind.options}]",
            )
        readings[name] = list(found_texts)
        if kind.units:
            scale = kind.units[options.unit], kind.units[kind.unit]
            readings[name] = [float(number) * scale[0] / scale[1] for number in found_texts]
    return readings


def _filled(
    kind: Quantities, commands: Iterable[Words], setting: Setting, found: Setting
) -> list[Words]:
    """The commands with values from ``setting``, or from ``found`` where it has none. A command
    without a value from ``setting`` is left out.

    Raises:
        IllegalClockError: a value is needed that ``read`` does not show.
    """
    filled = []
    for words in commands:
        names = {kind.placeholders[name][0] for word in words for name in PLACEHOLDER.findall(word)}
        if names and all(getattr(setting, name) is None for name in names):
            continue
        filled_words = list(words)
        for name, (field, per) in kind.placeholders.items():
            value = getattr(setting, field)
            value = getattr(found, field) if value is None else value
            if value is None and field in names:
                raise IllegalClockError(f"`{words[0]}` needs {field}, which `read` does not show")
            if value is not None:
                text = str(value)
                if kind.units:
                    scaled = value * kind.units[kind.unit] / per
                    text = f"{scaled:.10g}" if per >= kind.units[kind.unit] else str(round(scaled))
                filled_words = [word.replace(f"{{{name}}}", text) for word in filled_words]
        filled.append(tuple(filled_words))
    return filled


def _run(root: Path, words: Words, options: Options) -> str:
    """The output of a command.

    Raises:
        ClocksError: there is no such program, others can change it, or it fails or takes too long.
    """
    program = find_program(words[0], root)
    remedy = f"run it by hand as this user, and {options.kind.correct}"
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
        return run_command([program, *words[1:]], options.timeout_s, remedy, dies_with_us=True)
    except MeterError as error:
        raise ClocksError(error.what, error.remedy) from None


def open_control(site: ControlledSite, root: Path) -> Command:
    """See :mod:`sites.clocks`; the options are in ABOUT.

    Raises:
        ValueError: an unknown option, or one with a wrong value.
    """
    not_clocks = {"power_limit_w": None, "profile": None}
    settings = list(dict.fromkeys(replace(setting, **not_clocks) for setting in site.settings))
    return Command(root, CLOCKS, site.clocks.options, settings, site.clocks.tolerance_pct)


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


def _pattern(kind: Quantities, text: Any) -> re.Pattern[str]:
    try:
        pattern = re.compile(text, re.MULTILINE)
    except (TypeError, re.error) as error:
        raise ValueError(f"pattern = {text!r} is no regular expression: {error}") from None
    if not pattern.groupindex or not kind.groups.keys() >= pattern.groupindex.keys():
        names = list(kind.groups)
        raise ValueError(
            f"pattern = {text!r}; name its groups {' or '.join(names)}: (?P<{names[0]}>[0-9]+)"
        )
    return pattern


def _give_up(journal: Journal, kind: Quantities, root: Path, entries: Sequence[Entry]) -> None:
    if not journal.held:
        return
    with signals_wait():
        if kind.put_back(root, entries).failed:
            journal.let_go()
        else:
            journal.forget()
