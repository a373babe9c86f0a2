"""The control `command`: programs of the site that fail, hang, lie, or that others could change."""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dvfs.setting import Setting
from sites.clocks import ClocksError, IllegalClockError, command, open_control
from sites.clocks.shared.journal import restore_left_over
from tests.sites.clock_layouts import LAYOUTS, ClockLayout, contents, copy, fork, journals
from tests.sites.test_power_limits import at, is_accepted, lies_w

SMI, GEOPM, LIKWID = (one for one in LAYOUTS if one.control == "command")
LIMIT = next(one for one in LAYOUTS if one.control == "command-power-limit")
SLOW = Setting(852.0, 1593.0)


@pytest.fixture
def smi(tmp_path: Path) -> Iterator[Path]:
    copy(SMI, tmp_path)
    with SMI.running(tmp_path):
        yield tmp_path


def program(root: Path) -> Path:
    return root / "usr/bin/clocks"


def instead(root: Path, when: str, do: str) -> None:
    """Let the program do something else where its first word is like this."""
    text = program(root).read_text()
    program(root).write_text(text.replace("case $1 in\n", f"case $1 in\n{when}) {do} ;;\n", 1))


def prints(file: Path) -> str:
    """Shell's own words that print a file: another process for each reading takes long."""
    return f'while IFS= read -r line; do printf "%s\\n" "$line"; done < {file}'


def assert_none_is_accepted(
    layout: ClockLayout, root: Path, clocks: Any, asked: Setting, shown: list[str], options: str
) -> None:
    """Let the program print each of ``shown`` as its reading, after ``asked`` was set. ``options``:
    the table of the site file that the remedy of an unreadable one names."""
    site, said, proven = layout.site(), root / "tmp/said", 0
    instead(root, "--query", prints(said))
    for line in shown:
        said.write_text(f"{line}\n")
        with pytest.raises((IllegalClockError, ClocksError)):
            clocks.set(asked)
        try:
            proven += is_accepted(site, asked, [clocks.state().setting])
        except ClocksError as error:
            assert options in error.remedy
    assert (len(shown), proven) == (100, 0)


# --- Lies -----------------------------------------------------------------------------------------


def lies(rng: random.Random) -> Iterator[tuple[str, int]]:
    """Outputs of a reading after SLOW was asked for that do not show it, and exit codes."""

    def off(mhz: float) -> float:
        return mhz * (1.0 + rng.choice((-1, 1)) * rng.uniform(0.021, 3.0))

    core, mem = 852.0, 1593.0
    while True:
        wrong = off(core)
        yield from (
            (f"{abs(wrong):.1f}, {mem:g}", 0),
            (f"{core:g}, {abs(off(mem)):.3f}", 0),
            (f"{mem:g}, {core:g}", 0),
            (f"{core * 1000:g}, {mem * 1000:g}", 0),
            (f"{core / 1000:g}, {mem / 1000:g}", 0),
            (f"-{core:g}, {mem:g}", 0),
            (f"{core:g}, -{mem:g}", 0),
            (f"{core:g}, {mem:g}", rng.randint(1, 125)),
            (f"{core:g}; {mem:g}", 0),
            (f"{core:g}, ", 0),
            (f", {mem:g}", 0),
            ("", 0),
            (f"{core:g}", 0),
            (f"{core:g} MHz, {mem:g} MHz", 0),
            *(
                (f"{no}, {mem:g}", 0)
                for no in ("nan", "inf", "1e400", "0x354", "0", "0.0", "[N/A]")
            ),
            *((f"{core:g}, {no}", 0) for no in ("nan", "inf", "-inf", "1_593", "0", "ERR!")),
            ("٨٥٢, ١٥٩٣", 0),  # digits that int() reads
            (f"{core:g}, {mem:g}\n{abs(wrong):.1f}, {mem:g}", 0),  # the second of two devices
            (f"{'9' * rng.randint(16, 400)}, {mem:g}", 0),
            (f"{core:g},\n{mem:g}", 0),
            ("".join(chr(rng.randint(33, 126)) for _ in range(rng.randint(1, 60))), 0),
        )


def test_of_100_readings_that_do_not_show_the_clocks_none_is_accepted(
    smi: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "SETTLE_S", 0.0)  # nothing comes, however long it is waited for
    before = contents(smi)
    said, code = smi / "tmp/said", smi / "tmp/code"
    # Until the first clock is set, and after the reset, the program tells the truth.
    instead(
        smi,
        "--query",
        "read -r core < $D/core; read -r mem < $D/mem; "
        f'if [ "$core" != 852 ]; then echo "$core, $mem"; exit; fi; read -r code < {code}; '
        f'{prints(said)}; exit "$code"',
    )
    clocks = SMI.open(smi)
    tellers = lies(random.Random(6))
    for number in range(100):
        text, status = next(tellers)
        said.write_text(f"{text}\n")
        code.write_text(f"{status}\n")
        with pytest.raises((IllegalClockError, ClocksError)):
            clocks.set(SLOW)
        if number % 25 == 0:
            clocks.restore()
            assert contents(smi) == before
    said.write_text("852, 1593\n")  # and the truth is
    code.write_text("0\n")
    clocks.set(SLOW)
    assert clocks.state().setting == SLOW
    clocks.restore()
    assert contents(smi) == before


@pytest.fixture
def limit(tmp_path: Path) -> Iterator[Path]:
    copy(LIMIT, tmp_path)
    with LIMIT.running(tmp_path):
        yield tmp_path


def test_of_100_readings_that_do_not_show_the_limit_none_is_accepted(
    limit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "SETTLE_S", 0.0)
    before, site, said = contents(limit), LIMIT.site(), limit / "tmp/said"
    clocks = LIMIT.open(limit)
    clocks.set(at(250.5))
    text = program(limit).read_text()
    shown = [f"Power Limit : {lie_w:.3f} W" for lie_w in lies_w(250.5, 80, 5)]
    shown += [f"Power Limit : 250.5 W\n{one}" for one in shown[:16]]  # the second of two devices
    shown += ["", "Power Limit : N/A W", "Power Limit : 250.5 mW", "Power Limit : -250.5 W"]
    assert_none_is_accepted(LIMIT, limit, clocks, at(250.5), shown, "[power_limit.options]")
    said.write_text("Power Limit : 250.5 W\nPower Limit : 248.1 W\n")  # both within 1 %
    clocks.set(at(250.5))
    assert clocks.state().setting == at(248.1)
    assert is_accepted(site, at(250.5), [clocks.state().setting])
    program(limit).write_text(text)
    clocks.restore()
    assert (contents(limit), journals(limit)) == (before, [])


def test_a_limit_in_mw(limit: Path) -> None:
    (limit / "sys/device/limit").write_text("280000\n")
    before = contents(limit)
    set_mw = [["clocks", "--power-limit={power_limit_mw}"]]
    options = {**LIMIT.options, "set": set_mw, "restore": set_mw, "unit": "mW"}
    clocks = replace(LIMIT, options=options).open(limit)
    assert clocks.state().setting == at(280.0)
    clocks.set(at(250.5))
    assert (limit / "sys/device/limit").read_text() == "250500\n"
    assert clocks.state().setting == at(250.5)
    clocks.restore()
    assert (contents(limit), journals(limit)) == (before, [])


def test_a_limit_that_is_not_restored_is_said_with_its_name(limit: Path) -> None:
    clocks = LIMIT.open(limit)
    clocks.set(at(150.0))
    text = program(limit).read_text()
    instead(limit, "--power-limit=*", "exit 0")
    with pytest.raises(ClocksError, match=r"power_limit_w: 280 W was asked for, and 150 W") as one:
        clocks.restore()
    assert "power limits of this node are in an unknown state" in one.value.remedy
    program(limit).write_text(text)
    clocks.restore()


LIMIT_CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "a clock": ({"set": [["clocks", "{core_mhz}"]]}, "known: {power_limit_w}, {power_limit_mw}"),
    "no limit": ({"set": [["clocks"]]}, "no power limit in it; write {power_limit_w}"),
    "another group": ({"pattern": "(?P<core>x)"}, "name its groups limit"),
    "another unit": ({"unit": "kW"}, "W, mW"),
    "more readings": ({"read": [["x"]] * 2, "pattern": None}, "more commands than power limits"),
    "no option": ({"colour": 1}, "'command-power-limit' has no option 'colour'"),
}


@pytest.mark.parametrize("change", LIMIT_CHANGES)
def test_options_of_a_limit_that_are_wrong(change: str, tmp_path: Path) -> None:
    changed, said = LIMIT_CHANGES[change]
    options = {k: v for k, v in {**LIMIT.options, **changed}.items() if v is not None}
    with pytest.raises(ValueError, match=re.escape(said)):
        replace(LIMIT, options=options).open(tmp_path)


def test_a_clock_that_comes_late_is_waited_for(smi: Path) -> None:
    late = f"(sleep 0.5; echo 852 > {smi}/sys/device/core) >/dev/null 2>&1 & echo 1593 > $D/mem"
    instead(smi, "1593,852", late)
    clocks = SMI.open(smi)
    began_s = time.monotonic()
    clocks.set(SLOW)
    assert time.monotonic() - began_s >= 0.4
    clocks.restore()


def test_several_devices_are_one_state(smi: Path) -> None:
    instead(smi, "--query", "echo '1400, 2600\n1421, 2600'")
    state = SMI.open(smi).state()
    assert state.setting == Setting(1410.5, 2600.0)
    assert state.apart_pct == pytest.approx(100 * 21 / 1421)


# --- Programs that fail ---------------------------------------------------------------------------

FAILS = {
    "fails": ("echo broken >&2; exit 3", "broken"),
    "is killed": ("kill -9 $$", "status -9"),
    "hangs": ("sleep 60", "took more than 0.3 s"),
    "hangs and ignores SIGTERM": ("trap '' TERM; while :; do sleep 1; done", "took more than"),
    "leaves a child with its output": ("sleep 60 & exit 0", "took more than"),
}


@pytest.mark.parametrize("how", FAILS)
@pytest.mark.parametrize("which", ["1593,852", "--query", "--reset"])
def test_a_program_that_fails_is_one_line(smi: Path, which: str, how: str) -> None:
    do, says = FAILS[how]
    before, text = contents(smi), program(smi).read_text()
    clocks = replace(SMI, options={**SMI.options, "timeout_s": 0.3}).open(smi)
    if which == "--reset":
        clocks.set(SLOW)
    instead(smi, which, do)
    began_s = time.monotonic()
    with pytest.raises((ClocksError, IllegalClockError)) as caught, ExitStack() as stack:
        if which != "--reset":
            stack.callback(clocks.restore)
            clocks.set(SLOW)
        clocks.restore()
    assert time.monotonic() - began_s < 5.0
    assert len(str(caught.value).splitlines()) == 1
    assert says in str(caught.value)
    if which == "--reset":
        assert "unknown state" in str(caught.value)
        assert len(journals(smi)) == 1
        program(smi).write_text(text)
        clocks.restore()
    assert contents(smi) == before
    assert journals(smi) == []


def test_a_restored_clock_that_is_not_shown_again_is_said(tmp_path: Path) -> None:
    before = copy(GEOPM, tmp_path)
    with GEOPM.running(tmp_path):
        clocks = GEOPM.open(tmp_path)
        clocks.set(SLOW)
        text = program(tmp_path).read_text()
        program(tmp_path).write_text(text.replace('echo "$2" >', 'echo "$2" || echo >'))
        with pytest.raises(
            ClocksError, match=r"not restored.* core_mhz: 1410 MHz .* 852 MHz is shown"
        ):
            clocks.restore()
        program(tmp_path).write_text(text)
        assert len(restore_left_over(tmp_path)) == 0, "this process still holds its journal"
        clocks.restore()
    assert contents(tmp_path) == before
    assert journals(tmp_path) == []


def test_a_clock_that_cannot_be_restored_is_not_set(tmp_path: Path) -> None:
    before = copy(GEOPM, tmp_path)
    layout = replace(GEOPM, options={**GEOPM.options, "read": [["clocks", "core"]]})
    said = r"restore needs \{mem_hz\}"
    with layout.running(tmp_path), pytest.raises(ClocksError, match=said):
        layout.open(tmp_path).set(SLOW)
    assert contents(tmp_path) == before
    assert journals(tmp_path) == []


# --- What the words are ---------------------------------------------------------------------------


def test_clocks_stand_in_words_in_their_units_and_no_shell_reads_them(tmp_path: Path) -> None:
    """One of the clocks given: the other one in the same word is as found."""
    copy(SMI, tmp_path)
    log = tmp_path / "tmp/log"
    options = {
        **SMI.options,
        "set": [
            ["clocks", "{mem_mhz},{core_mhz}"],
            ["log", "$(touch x); {core_ghz} {core_khz}", "*", "{core_hz}"],
            ["log", "only memory", "{mem_khz}"],
            ["log", "always"],
        ],
    }
    layout = replace(SMI, options=options, core_mhz=(852.0, 1410.25, 1980.0))
    with layout.running(tmp_path):
        (tmp_path / "usr/bin/log").write_text(f'#!/bin/sh\nprintf "<%s>" "$@" >> {log}\n')
        (tmp_path / "usr/bin/log").chmod(0o755)
        clocks = layout.open(tmp_path)
        clocks.set(Setting(1410.25))
        assert (tmp_path / "sys/device/mem").read_text() == "2619\n"
        clocks.restore()
    assert log.read_text() == "<$(touch x); 1.41025 1410250><*><1410250000><always>"


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "no set": ({"set": None}, "set is missing"),
    "no read": ({"read": None}, "read is missing"),
    "no restore": ({"restore": None}, "restore is missing"),
    "a shell's line": ({"set": ["clocks {core_mhz}"]}, "a list of words"),
    "an empty command": ({"restore": [[]]}, "a list of words"),
    "an empty word": ({"restore": [["x", ""]]}, "a list of words"),
    "no clock": ({"set": [["clocks"]]}, "no clock in it"),
    "an unknown clock": ({"set": [["clocks", "{core}"]]}, "unknown {core}; known: {core_ghz}"),
    "a power": ({"restore": [["clocks", "{power_limit_w}"]]}, "unknown {power_limit_w}"),
    "no expression": ({"pattern": "("}, "no regular expression"),
    "no group": ({"pattern": "x"}, "name its groups"),
    "another group": ({"pattern": "(?P<core>x)(?P<gpu>y)"}, "name its groups"),
    "another unit": ({"unit": "THz"}, "GHz, MHz, kHz, Hz"),
    "no time": ({"timeout_s": 0}, "timeout_s"),
    "no option": ({"colour": 1}, "no option 'colour'"),
    "more readings than clocks": ({"read": [["x"]] * 3, "pattern": None}, "give pattern"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_options_that_are_wrong(change: str, tmp_path: Path) -> None:
    changed, said = CHANGES[change]
    options = {k: v for k, v in {**SMI.options, **changed}.items() if v is not None}
    with pytest.raises(ValueError, match=re.escape(said)):
        replace(SMI, options=options).open(tmp_path)


# --- Nothing that another user can change is run --------------------------------------------------


def writable(path: Path) -> None:
    path.chmod(0o777)


def anothers(path: Path) -> None:
    os.chown(path, 65534, 65534)


@pytest.mark.root
@pytest.mark.parametrize("change", [writable, anothers])
@pytest.mark.parametrize("which", ["usr/bin/clocks", "usr/bin", "tmp/linked/clocks", "tmp/linked"])
def test_a_program_that_another_user_can_change_is_not_run(
    smi: Path, which: str, change: Any
) -> None:
    layout = SMI
    if which.startswith("tmp"):
        (smi / "tmp/linked").mkdir()
        program(smi).rename(smi / "tmp/linked/clocks")
        program(smi).symlink_to(smi / "tmp/linked/clocks")
    before = contents(smi)
    ran = smi / "tmp/ran"
    program(smi).write_text(program(smi).read_text().replace("set -eu", f"set -eu; echo > {ran}"))
    clocks = layout.open(smi)
    change(smi / which)
    for use in (lambda: clocks.set(SLOW), clocks.state):
        with pytest.raises(ClocksError, match="can be changed by another user"):
            use()
    assert not ran.exists()
    assert contents(smi) == before
    (smi / which).chmod(0o755)
    os.chown(smi / which, 0, 0)
    clocks.set(SLOW)
    # A killed process's journal neither.
    change(smi / which)
    ran.unlink()
    with pytest.raises(ClocksError, match=r"not restored.*can be changed by another user"):
        clocks.restore()
    assert not ran.exists()
    (smi / which).chmod(0o755)
    os.chown(smi / which, 0, 0)
    clocks.restore()
    assert contents(smi) == before


FORGED: list[dict[str, Any]] = [
    {"options": {}},
    {"options": {**SMI.options, "restore": "touch x"}},
    {"options": {**SMI.options, "shell": True}},
    {"found": {"core_mhz": "1; touch x"}},
    {"found": {"core_mhz": -1.0}},
    {"found": {"core_mhz": True}},
    {"found": {"other": 1.0}},
    {"found": []},
    {"tolerance_pct": "x"},
]


@pytest.mark.parametrize("number", range(len(FORGED)))
def test_a_journal_that_the_control_did_not_write_is_not_replayed(smi: Path, number: int) -> None:
    read, write = os.pipe()

    def work() -> None:
        clocks = SMI.open(smi)
        clocks.set(SLOW)
        os.write(write, b"x")
        os.kill(os.getpid(), 9)

    child = fork(work)
    os.waitpid(child, 0)
    assert os.read(read, 1) == b"x"
    os.close(read)
    os.close(write)
    left = contents(smi)
    (journal,) = (smi / "run/campaign-clocks").glob("*.json")
    kept = json.loads(journal.read_text())
    journal.write_text(json.dumps(kept | {"found": [kept["found"][0] | FORGED[number]]}))
    (line,) = restore_left_over(smi)
    assert "holds what command does not write" in line
    assert contents(smi) == left
    journal.write_text(json.dumps(kept))
    assert restore_left_over(smi) == ["left over, restored: `clocks --reset` has run"]


def killed_with_a_child(root: Path, child_s: float) -> None:
    """Leave clocks set by a killed process that was starting a program, which holds its lock."""
    read, write = os.pipe()

    def work() -> None:
        clocks = SMI.open(root)
        clocks.set(SLOW)
        if os.fork() == 0:
            os.close(write)
            time.sleep(child_s)
            os._exit(0)
        os.write(write, b"x")
        time.sleep(60)

    child = fork(work)
    assert os.read(read, 1) == b"x"
    os.kill(child, 9)
    os.waitpid(child, 0)
    os.close(read)
    os.close(write)


def test_a_lock_that_a_killed_process_left_to_a_child_is_waited_for(smi: Path) -> None:
    before = contents(smi)
    killed_with_a_child(smi, 0.3)
    assert contents(smi) != before
    assert len(restore_left_over(smi)) == 1
    assert contents(smi) == before
    assert journals(smi) == []


def test_on_a_machine_without_the_program(tmp_path: Path) -> None:
    clocks = open_control(SMI.site(), tmp_path)
    (tmp_path / "run").mkdir()
    with pytest.raises(ClocksError, match="`clocks`: no such program"):
        clocks.set(SLOW)
    assert journals(tmp_path) == []


# --- The uncore clock -----------------------------------------------------------------------------


def test_an_uncore_clock_is_set_shown_and_restored(tmp_path: Path) -> None:
    text = json.dumps(LIKWID.options).replace("mem_ghz", "uncore_ghz").replace("<mem>", "<uncore>")
    layout = replace(LIKWID, mem_mhz=(), uncore_mhz=LIKWID.mem_mhz, options=json.loads(text))
    before = copy(layout, tmp_path)
    with layout.running(tmp_path):
        clocks = layout.open(tmp_path)
        wanted = Setting(852.0, uncore_mhz=1593.0)
        assert wanted in (clocks.legal() or [])
        clocks.set(wanted)
        assert (tmp_path / layout.device / "mem").read_text() == "1.593\n"
        assert clocks.state().setting == wanted
        with pytest.raises(IllegalClockError, match="uncore_mhz"):
            clocks.set(Setting(852.0, uncore_mhz=1600.0))
        clocks.restore()
    now = contents(tmp_path)
    assert {name: now[name] for name in now if not name.startswith("usr/")} == before
