"""A profile that programs of the site set, show and restore: tuned-adm, powerprofilesctl, a GPU's
power profile through sudo. Works and has options like :mod:`sites.clocks.command`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dvfs.setting import Setting
from sites.clocks.command import ABOUT as CLOCKS_ABOUT
from sites.clocks.command import Command, Options, Quantities, check, put_back_by
from sites.clocks.shared.control import ControlDescription, ProfilesEntry, Right
from sites.clocks.shared.journal import Entry, PutBack, log_left_over

ABOUT = ControlDescription(
    control="command-profile",
    writes="for [profiles]: nothing itself: programs of the site do",
    needs=CLOCKS_ABOUT.needs,
    options={
        "set": 'commands, such as [["tuned-adm", "profile", "{profile}"]]',
        "read": "commands that show it",
        "pattern": "regular expression with the group profile (default: all that is printed)",
        "restore": "commands; {profile} is the one found",
        "timeout_s": CLOCKS_ABOUT.options["timeout_s"],
    },
    axis="profile",
    sets_clocks=False,
)
PROFILE = Quantities(
    about=ABOUT,
    noun="profile",
    groups={"profile": "profile"},
    units={},
    unit="",
    placeholders={"profile": ("profile", 1.0)},
    listed="[profiles] names",
    options="profiles.options",
)


def rights(root: Path) -> Right:
    """Unknown: the site file names the programs."""
    del root
    return Right(ABOUT.control, None, "programs that the site file names set it")


def open_control(profiles: ProfilesEntry, root: Path) -> Command:
    """See :mod:`sites.clocks`; the options are in ABOUT.

    Raises:
        ValueError: an unknown option, or one with a wrong value.
    """
    parse_options(profiles.options)
    log_left_over(root)
    settings = [Setting(profile=name) for name in profiles.names]
    return Command(root, PROFILE, profiles.options, settings, tolerance_pct=0.0)


def parse_options(options: Mapping[str, Any]) -> Options:
    """See :func:`sites.clocks.command.check`."""
    return check(PROFILE, options)


def put_back(root: Path, entries: Iterable[Entry]) -> PutBack:
    """See :func:`sites.clocks.shared.journal.restore_left_over`."""
    return put_back_by(PROFILE, root, entries)
