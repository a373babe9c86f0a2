"""A power limit that programs of the site set, show and restore: geopmwrite, nvidia-smi or amd-smi
through sudo. Works and has options like :mod:`sites.clocks.command`."""

from __future__ import annotations

from pathlib import Path

from dvfs.setting import Setting
from sites.clocks.command import ABOUT as CLOCKS_ABOUT
from sites.clocks.command import Command, Quantities
from sites.clocks.shared.control import ControlDescription, PowerLimitEntry
from sites.clocks.shared.limited import LIMIT_PCT

ABOUT = ControlDescription(
    control="command-power-limit",
    writes="for [power_limit]: nothing itself: programs of the site do",
    needs=CLOCKS_ABOUT.needs,
    options={
        "set": 'commands, such as [["PROGRAM", "{power_limit_w}"]]; also {power_limit_mw}',
        "read": "commands that show it",
        "pattern": "regular expression with the group limit (default: a number)",
        "unit": "W or mW (default: W)",
        "restore": "commands; {power_limit_w} ... is the limit found",
        "timeout_s": CLOCKS_ABOUT.options["timeout_s"],
    },
    axis="power_limit_w",
    sets_clocks=False,
)
MW = {"W": 1e3, "mW": 1.0}
LIMIT = Quantities(
    about=ABOUT,
    noun="power limit",
    groups={"limit": "power_limit_w"},
    units=MW,
    unit="W",
    placeholders={f"power_limit_{unit.lower()}": ("power_limit_w", mw) for unit, mw in MW.items()},
    listed="limits_w",
    options="power_limit.options",
)
rights, parse_options, put_back = LIMIT.rights, LIMIT.check, LIMIT.put_back


def open_control(limit: PowerLimitEntry, root: Path) -> Command:
    """See :mod:`sites.clocks`; the options are in ABOUT.

    Raises:
        ValueError: an unknown option, or one with a wrong value.
    """
    settings = [Setting(power_limit_w=limit_w) for limit_w in limit.limits_w]
    return Command(root, LIMIT, limit.options, settings, LIMIT_PCT)
