"""run: measure the points of a campaign that are not yet in its store."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.verbs import options
from campaign.verbs.driver import add_driver, check_driver, drive, store_of
from campaign.verbs.printing import explain, print_json
from dvfs.errors import ArgumentError
from dvfs.extras import missing_extra

if TYPE_CHECKING:
    from campaign.launch.outcome import Outcome
    from campaign.next.adaptive import Adaptive
    from campaign.plan.plan import Plan
    from campaign.store.layout import Store

SUMMARY = "run the points that are not yet measured; continues an interrupted campaign"
ENOUGH_PCT = 0.5
MOST_ENOUGH = 100.0
EXAMPLE = "campaign run campaign-demo/campaign.toml --store campaign-demo/store"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("campaign", metavar="CAMPAIGN.toml", help="the campaign file")
    add_driver(parser)
    parser.add_argument(
        "--dashboard",
        metavar="HOST:PORT",
        default="127.0.0.1:0",
        help="where Dask's dashboard of the first partition listens (default: a free port on "
        "loopback; whoever can reach it sees the campaign)",
    )
    parser.add_argument(
        "--adaptive",
        action="store_true",
        help="measure only the points that the picks need: in batches, each chosen from what was "
        "measured before, until the picks are expected to lose little",
    )
    parser.add_argument(
        "--enough",
        type=float,
        metavar="PCT",
        help="with --adaptive: the mean loss of the picks, in %%, that ends the run (default: 0.5)",
    )
    parser.add_argument(
        "--objective",
        metavar="O",
        help="with --adaptive: what the picks minimise, as for predict (default: energy)",
    )
    options.add_json(parser)


def run(arguments: Namespace) -> int:
    """Run; return 0 when every planned point is measured."""
    from campaign.plan.plan import make_plan  # noqa: PLC0415
    from campaign.variants.search_table import read_search  # noqa: PLC0415

    _check_dashboard(arguments.dashboard)
    check_driver(arguments)
    _check_adaptive(arguments)
    plan = make_plan(Path(arguments.campaign))
    if plan.campaign.search is not None:
        read_search(Path(arguments.campaign))  # refuse here what tune would refuse
    store = store_of(arguments, plan)
    chooser = _adaptive(arguments, plan, store) if arguments.adaptive else None

    def show(outcome: Outcome, store_path: str) -> None:
        # Site/partition -> the mean expected loss of the picks, in %.
        states = {} if chooser is None else chooser.now
        losses = {"/".join(names): state.lost_pct for names, state in states.items()}
        if arguments.json:
            adaptive = {} if chooser is None else {"expected_loss_pct": losses}
            as_dict = vars(outcome) | {"complete": outcome.complete, "store": store_path}
            print_json(as_dict | adaptive)
            return
        for name, lost_pct in losses.items():
            if lost_pct is not None:
                explain(f"{name}: the picks are expected to lose {lost_pct:.2f} % on average")

    return drive(arguments, plan, store, show, chooser)


def _check_adaptive(arguments: Namespace) -> None:
    """Check the options of ``--adaptive``.

    Raises:
        ArgumentError: they are given without ``--adaptive``, or are wrong.
    """
    for name in ("enough", "objective"):
        if getattr(arguments, name) is not None and not arguments.adaptive:
            raise ArgumentError(f"--{name}: is for a run that chooses its points; add --adaptive")
    if arguments.enough is not None and not 0.0 <= arguments.enough < MOST_ENOUGH:
        raise ArgumentError(
            f"--enough: found {arguments.enough:g}; must be a percentage from 0, such as 0.5"
        )


def _adaptive(arguments: Namespace, plan: Plan, store: Store) -> Adaptive:
    from analysis.choice.objectives import ENERGY, objective  # noqa: PLC0415
    from campaign.next.adaptive import Adaptive  # noqa: PLC0415

    enough_pct = ENOUGH_PCT if arguments.enough is None else arguments.enough
    goal = objective(arguments.objective or ENERGY.name)
    return Adaptive(plan, store, goal, enough_pct / 100.0)


def _check_dashboard(address: str) -> None:
    """Check the dashboard's address.

    Raises:
        ArgumentError: it is not HOST:PORT.
        MissingExtraError: an address is given, and the dashboard's package is not installed.
    """
    from campaign.launch.dask_settings import LOOPBACK_DASHBOARD  # noqa: PLC0415

    if not re.fullmatch(r"(\[[0-9a-fA-F:]+\]|[^\s:\[\]]+):[0-9]{1,5}", address):
        raise ArgumentError(
            f"--dashboard {address!r}: must be HOST:PORT, such as 127.0.0.1:8787 "
            f"(0.0.0.0:8787 listens on every interface)"
        )
    missing = missing_extra("bokeh")
    if missing is not None and address != LOOPBACK_DASHBOARD:
        raise missing
