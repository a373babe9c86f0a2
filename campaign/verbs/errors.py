"""The errors that a person can mend, and the exit code of each."""

from __future__ import annotations

from analysis.observations import CantFit
from campaign.store.layout import NotAStore, StoreBusy
from sites.clocks.control import ClocksUnavailable
from sites.located_toml import BadFile
from sites.meters.meter import MeterUnreadable


class BadArgument(Exception):
    """An argument that is wrong in a way that only the store or a file can tell."""


class CantDo(Exception):
    """What was asked for can't be done now; nothing that was given is wrong."""


EXPECTED: dict[type[Exception], int] = {
    BadFile: 2,
    BadArgument: 2,
    NotAStore: 2,
    CantFit: 2,
    StoreBusy: 1,
    CantDo: 1,
    MeterUnreadable: 1,
    ClocksUnavailable: 1,
}
