"""The controls of profiles: readings that lie, programs that fail, journals that are forged."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dvfs.setting import AS_FOUND, Setting
from sites.clocks import ClocksError, IllegalClockError, command
from sites.clocks.shared import kernel_files, written_files
from sites.clocks.shared.journal import restore_left_over
from tests.sites.clock_layouts import LAYOUTS, POLICIES, contents, copy, fork, journals
from tests.sites.test_command_clocks import FAILS, assert_none_is_accepted, instead, program
from tests.sites.test_power_limits import is_accepted

BY_NAME = {layout.name: layout for layout in LAYOUTS}
PROGRAMS, PREFERENCE = BY_NAME["command-profile"], BY_NAME["energy-preference"]
ASKED = Setting(profile="powersave")
POWER = Setting(profile="power")


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Path]:
    copy(PROGRAMS, tmp_path)
    with PROGRAMS.running(tmp_path):
        yield tmp_path


def lying_names(asked: str, count: int, seed: int) -> list[str]:
    """Names that are not the one that was asked for, of which many are like it."""
    rng = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789_.:+-"
    kinds = (
        lambda: asked[: rng.randrange(1, len(asked))],
        lambda: asked + rng.choice(letters),
        lambda: rng.choice(letters) + asked,
        lambda: "".join(rng.choice((c, c.upper())) for c in asked),
        lambda: "".join(rng.sample(asked, len(asked))),
        lambda: rng.choice(("balanced", "performance", "balance_power", "default", "none", "0")),
        lambda: "".join(rng.choice(letters) for _ in range(rng.randrange(1, 64))),
    )
    lies: list[str] = []
    while len(lies) < count:
        lie = rng.choice(kinds)()
        lies += [lie] if lie != asked else []
    return lies


def test_of_100_readings_of_a_program_that_lies_none_is_accepted(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "SETTLE_S", 0.0)
    before, site = contents(programs), PROGRAMS.site()
    clocks = PROGRAMS.open(programs)
    clocks.set(ASKED)
    text = program(programs).read_text()
    names = lying_names("powersave", 79, 5)
    shown = [f"Current active profile: {name}" for name in names]
    true = "Current active profile: powersave"
    shown += [f"{true}\n{one}" for one in shown[:8]]  # the second of two devices
    shown += [f"{one}\n{true}" for one in shown[:8]]
    shown += ["", "powersave", f"{true} ", f"{true}; x", "No current active profile."]
    assert_none_is_accepted(PROGRAMS, programs, clocks, ASKED, shown, "[profiles.options]")
    program(programs).write_text(text)
    clocks.set(ASKED)
    assert is_accepted(site, ASKED, [clocks.state().setting])
    clocks.restore()
    assert (contents(programs), journals(programs)) == (before, [])


def test_of_500_preferences_that_the_kernel_did_not_take_none_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel takes the write, and the file of some CPUs then shows another preference."""
    before, site = copy(PREFERENCE, tmp_path), PREFERENCE.site()
    clocks = PREFERENCE.open(tmp_path)
    clocks.set(POWER)
    assert is_accepted(site, POWER, [clocks.state().setting])
    refused, proven = 0, 0

    def settled(read: Any, wanted: str, bound_s: float = 0.0, within: int = 0) -> Any:
        return kernel_files.settled(read, wanted, 0.0, within)

    with monkeypatch.context() as patches:
        patches.setattr(written_files, "settled", settled)
        for number, lie in enumerate(lying_names("power", 500, 2)):
            liars = (POLICIES[:1], POLICIES[1:], POLICIES)[number % 3]

            def write(path: Path, text: str, liars=liars, lie=lie) -> None:
                lies = any(str(path.parent) == f"{tmp_path / folder}" for folder in liars)
                kernel_files.write_text(path, f"{lie}\n" if lies else text)

            patches.setattr(written_files, "write_text", write)
            with pytest.raises(IllegalClockError):
                clocks.set(POWER)
            refused += 1
            proven += is_accepted(site, POWER, [clocks.state().setting])
    assert (refused, proven) == (500, 0)
    clocks.restore()
    assert contents(tmp_path) == before


def test_of_500_points_with_a_window_under_another_profile_none_is_accepted() -> None:
    site, rng, accepted = PREFERENCE.site(), random.Random(3), 0
    for lie in lying_names("power", 500, 4):
        readings = [POWER] * rng.randrange(4)
        assert not readings or is_accepted(site, POWER, readings)
        faked = rng.choice((Setting(profile=lie), Setting(profile=f"power, {lie}"), AS_FOUND))
        readings.insert(rng.randrange(len(readings) + 1), faked)
        accepted += is_accepted(site, POWER, readings)
    assert accepted == 0


@pytest.mark.parametrize("how", FAILS)
@pytest.mark.parametrize("which", ["--profile=powersave", "--query", "--profile=balanced"])
def test_a_program_that_fails_is_one_line_and_the_profile_is_restored(
    programs: Path, which: str, how: str
) -> None:
    """``balanced`` is what is restored: then the node is said to be in an unknown state."""
    do, says = FAILS[how]
    before, text = contents(programs), program(programs).read_text()
    layout = replace(PROGRAMS, options={**PROGRAMS.options, "timeout_s": 0.3})
    clocks = layout.open(programs)
    restores = which == "--profile=balanced"
    if restores:
        clocks.set(ASKED)
    instead(programs, which, do)
    began_s = time.monotonic()
    with pytest.raises((ClocksError, IllegalClockError)) as caught, ExitStack() as stack:
        if not restores:
            stack.callback(clocks.restore)
            clocks.set(ASKED)
        clocks.restore()
    assert time.monotonic() - began_s < 5.0
    assert len(str(caught.value).splitlines()) == 1
    assert says in str(caught.value)
    if restores:
        assert "profiles of this node are in an unknown state" in str(caught.value)
        assert len(journals(programs)) == 1
        program(programs).write_text(text)
        clocks.restore()
    assert (contents(programs), journals(programs)) == (before, [])


def test_a_program_that_lies_about_restoring_is_found_out(programs: Path) -> None:
    clocks = PROGRAMS.open(programs)
    clocks.set(ASKED)
    text = program(programs).read_text()
    instead(programs, "--profile=balanced", "exit 0")
    with pytest.raises(ClocksError, match="profile: balanced was asked for, and powersave is"):
        clocks.restore()
    program(programs).write_text(text)
    clocks.restore()
    assert (programs / "sys/device/profile").read_text() == "balanced\n"


def test_a_slow_program_is_waited_for(programs: Path) -> None:
    late = f"(sleep 0.5; echo powersave > {programs}/sys/device/profile) >/dev/null 2>&1 &"
    instead(programs, "--profile=powersave", late)
    clocks = PROGRAMS.open(programs)
    began_s = time.monotonic()
    clocks.set(ASKED)
    assert time.monotonic() - began_s >= 0.4
    clocks.restore()


FORGED: list[dict[str, Any]] = [
    {"options": {}},
    {"options": {**PROGRAMS.options, "restore": "touch x"}},
    {"options": {**PROGRAMS.options, "unit": "W"}},
    {"found": {"profile": "a; touch x"}},
    {"found": {"profile": ""}},
    {"found": {"profile": 1.0}},
    {"found": {"core_mhz": "1000"}},
    {"found": {"other": "x"}},
    {"found": []},
]


@pytest.mark.parametrize("number", range(len(FORGED)))
def test_a_journal_that_the_control_did_not_write_is_not_replayed(
    programs: Path, number: int
) -> None:
    def work() -> None:
        clocks = PROGRAMS.open(programs)
        clocks.set(ASKED)
        os.kill(os.getpid(), 9)

    os.waitpid(fork(work), 0)
    left = contents(programs)
    (journal,) = (programs / "run/campaign-clocks").glob("*.json")
    kept = json.loads(journal.read_text())
    journal.write_text(json.dumps(kept | {"found": [kept["found"][0] | FORGED[number]]}))
    (line,) = restore_left_over(programs)
    assert "holds what command-profile does not write" in line
    assert contents(programs) == left
    journal.write_text(json.dumps(kept))
    (line,) = restore_left_over(programs)
    assert line.startswith("left over, restored: ")
    assert (programs / "sys/device/profile").read_text() == "balanced\n"
