"""run: measure the points of a campaign that its store does not hold yet."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.errors import BadArgument
from campaign.extras import missing_extra
from campaign.verbs import options
from campaign.verbs.driver import add_driver, check_driver, drive, store_of
from campaign.verbs.printing import print_json

if TYPE_CHECKING:
    from campaign.launch.outcome import Outcome

SUMMARY = "run the points that are not yet measured; continues an interrupted campaign"
EXAMPLE = "campaign run campaign-demo/campaign.toml --store campaign-demo/store"


def add_arguments(parser: ArgumentParser) -> None:
    """The verb's arguments."""
    parser.add_argument("campaign", metavar="CAMPAIGN.toml", help="the campaign file")
    add_driver(parser)
    parser.add_argument(
        "--dashboard",
        metavar="HOST:PORT",
        default="127.0.0.1:0",
        help="where Dask's dashboard of the first partition listens (default: a free port on "
        "loopback; whoever can reach it sees the campaign)",
    )
    options.add_json(parser)


def run(arguments: Namespace) -> int:
    """Run; 0 when every planned point is measured."""
    from campaign.plan.plan import make_plan  # noqa: PLC0415

    _check_dashboard(arguments.dashboard)
    check_driver(arguments)
    plan = make_plan(Path(arguments.campaign))

    def show(outcome: Outcome, store: str) -> None:
        if arguments.json:
            print_json(vars(outcome) | {"complete": outcome.complete, "store": store})

    return drive(arguments, plan, store_of(arguments, plan), show)


def _check_dashboard(address: str) -> None:
    """Raise an error where the dashboard's address cannot be used.

    Raises:
        BadArgument: it is none.
        MissingExtra: the dashboard's package is not installed, and its address is given.
    """
    from campaign.launch.clusters import LOOPBACK_DASHBOARD  # noqa: PLC0415

    if not re.fullmatch(r"(\[[0-9a-fA-F:]+\]|[^\s:\[\]]+):[0-9]{1,5}", address):
        raise BadArgument(
            f"--dashboard {address!r}: must be HOST:PORT, such as 127.0.0.1:8787 "
            f"(0.0.0.0:8787 listens on every interface)"
        )
    missing = missing_extra("bokeh")
    if missing is not None and address != LOOPBACK_DASHBOARD:
        raise missing
