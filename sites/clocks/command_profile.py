"""A profile that programs of the site set, show and restore: tuned-adm, powerprofilesctl, a GPU's
power profile through sudo. Works and has options like :mod:`sites.clocks.command`."""

from __future__ import annotations

from pathlib import Path

from dvfs.setting import Setting
from sites.clocks.command import ABOUT as CLOCKS_ABOUT
from sites.clocks.command import Command, Quantities
from sites.clocks.shared.control import ControlDescription, ProfilesEntry

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
rights, parse_options, put_back = PROFILE.rights, PROFILE.check, PROFILE.put_back


def open_control(profiles: ProfilesEntry, root: Path) -> Command:
    """See :mod:`sites.clocks`; the options are in ABOUT.

    Raises:
        ValueError: an unknown option, or one with a wrong value.
    """
    settings = [Setting(profile=name) for name in profiles.names]
    return Command(root, PROFILE, profiles.options, settings, tolerance_pct=0.0)
