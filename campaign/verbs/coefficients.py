"""coefficients: what has been fitted, and what it means at a setting."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from campaign.results.fits import DEFAULT
from campaign.verbs.fit import print_fit
from campaign.verbs.options import add_all, add_fit, add_json, add_store
from campaign.verbs.printing import explain, print_computed, print_table
from dvfs.errors import ArgumentError
from dvfs.setting import Setting

if TYPE_CHECKING:
    from campaign.results.tables import CostsAtSetting

SUMMARY = "list the fits with their coefficients, or show the costs at a setting"
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
    add_fit(parser, None)
    add_all(parser)
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Print a site's or all sites' coefficients, or their costs at a setting."""
    from campaign.results import open_store  # noqa: PLC0415
    from dvfs.names import unknown_name  # noqa: PLC0415

    store = open_store(arguments.store)
    kept = [
        (site, name)
        for site, name in store.kept_fits
        if arguments.site in (None, site) and arguments.fit in (None, name)
    ]
    if not kept and arguments.site:
        kept = [(arguments.site, arguments.fit or DEFAULT)]  # not there: reading it says so
    if not kept:
        names = sorted({name for _, name in store.kept_fits})
        if arguments.fit and names:
            raise ArgumentError(f"--fit: {unknown_name('fit', arguments.fit, names)}")
        which = f"fit {arguments.fit!r}" if arguments.fit else "fit yet"
        raise ArgumentError(
            f"{store.path}: has no {which}; run: campaign fit {store.path} --site SITE"
        )
    if arguments.core_mhz is None and arguments.mem_mhz is None:
        fits = [store.coefficients(site, name) for site, name in kept]
        if arguments.json:
            print_computed([fit.as_json for fit in fits])
        else:
            for fit in fits:
                print_fit(fit.summary, fit.source, arguments.all)
        return 0
    costs = [
        store.costs(site, arguments.core_mhz, arguments.mem_mhz, arguments.fit or DEFAULT)
        for site in dict.fromkeys(site for site, _ in kept)
    ]
    if arguments.json:
        print_computed([entry.as_dict() for entry in costs])
    else:
        for entry in costs:
            _print_costs(entry)
    return 0


def _print_costs(costs: CostsAtSetting) -> None:
    from analysis.measurements.observations import setting_text  # noqa: PLC0415

    simulated = " (simulated)" if costs.simulated else ""
    explain(
        f"{costs.site}{simulated} at {setting_text(Setting(costs.core_mhz, costs.mem_mhz))}, "
        f"{costs.core_v:g}/{costs.mem_v:g} V"
    )
    explain(str(costs.fit))
    print_table(
        ["cost", "value", "95 % from", "to", "unit"],
        [[cost.name, cost.value, cost.low, cost.high, cost.unit] for cost in costs.costs],
    )
