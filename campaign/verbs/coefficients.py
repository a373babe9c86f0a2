"""coefficients: what has been fitted, and what it means at a setting."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from campaign.errors import BadArgument
from campaign.verbs.fit import print_fit
from campaign.verbs.options import add_all, add_json, add_store
from campaign.verbs.printing import explain, print_json, print_table

if TYPE_CHECKING:
    from campaign.result_tables import CostsAtSetting

SUMMARY = "show the fitted coefficients, or the costs at a setting"
EXAMPLE = "campaign coefficients campaign-demo/store --site jetson-tk1 --core-mhz 852 --mem-mhz 924"


def add_arguments(parser: ArgumentParser) -> None:
    """The verb's arguments."""
    add_store(parser)
    parser.add_argument("--site", metavar="X", help="one site (default: all)")
    parser.add_argument(
        "--core-mhz",
        type=float,
        metavar="MHZ",
        help="with --mem-mhz: show what operations cost at this setting",
    )
    parser.add_argument(
        "--mem-mhz", type=float, metavar="MHZ", help="the memory clock of --core-mhz"
    )
    add_all(parser)
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Print a site's or all sites' coefficients, or their costs at a setting."""
    from campaign.results import open_store  # noqa: PLC0415

    store = open_store(arguments.store)
    sites = [arguments.site] if arguments.site else store.fitted_sites
    if not sites:
        raise BadArgument(
            f"{store.path}: has no fit yet; run: campaign fit {store.path} --site SITE"
        )
    if arguments.core_mhz is None and arguments.mem_mhz is None:
        fits = [store.coefficients(site) for site in sites]
        if arguments.json:
            print_json([fit.as_json for fit in fits])
        else:
            for fit in fits:
                print_fit(fit.summary, arguments.all)
        return 0
    costs = [store.costs(site, arguments.core_mhz, arguments.mem_mhz) for site in sites]
    if arguments.json:
        print_json([entry.as_dict() for entry in costs])
    else:
        for entry in costs:
            _print_costs(entry)
    return 0


def _print_costs(costs: CostsAtSetting) -> None:
    simulated = " (simulated)" if costs.simulated else ""
    explain(
        f"{costs.site}{simulated} at {costs.core_mhz:g}/{costs.mem_mhz:g} MHz, "
        f"{costs.core_v:g}/{costs.mem_v:g} V"
    )
    print_table(
        ["cost", "value", "95 % from", "to", "unit"],
        [[cost.name, cost.value, cost.low, cost.high, cost.unit] for cost in costs.costs],
    )
