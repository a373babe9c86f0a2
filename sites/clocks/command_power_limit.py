"""A power limit that programs of the site set, show and restore: geopmwrite, nvidia-smi or amd-smi
through sudo. Works and has options like :mod:`sites.clocks.command`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dvfs.setting import Setting
from sites.clocks.command import ABOUT as CLOCKS_ABOUT
from sites.clocks.command import Command, Options, Quantities, check, put_back_by
from sites.clocks.shared.control import ControlDescription, PowerLimitEntry, Right
from sites.clocks.shared.journal import Entry, PutBack, log_left_over
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


def rights(root: Path) -> Right:
    """Unknown: the site file names the programs."""
    del root
    return Right(ABOUT.control, None, "programs that the site file names set it")


def open_control(limit: PowerLimitEntry, root: Path) -> Command:
    """See :mod:`sites.clocks`; the options are in ABOUT.

    Raises:
        ValueError: an unknown option, or one with a wrong value.
    """
    parse_options(limit.options)
    log_left_over(root)
    settings = [Setting(power_limit_w=limit_w) for limit_w in limit.limits_w]
    return Command(root, LIMIT, limit.options, settings, LIMIT_PCT)


def parse_options(options: Mapping[str, Any]) -> Options:
    """See :func:`sites.clocks.command.check`."""
    return check(LIMIT, options)


def put_back(root: Path, entries: Iterable[Entry]) -> PutBack:
    """See :func:`sites.clocks.shared.journal.restore_left_over`."""
    return put_back_by(LIMIT, root, entries)
