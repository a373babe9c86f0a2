"""coefficients: the kept fits with their coefficients, and the costs at a setting."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from campaign.results.fits import DEFAULT
from campaign.verbs.fit import print_fit
from campaign.verbs.options import add_all, add_fit, add_json, add_store
from campaign.verbs.printing import explain, marked, print_computed, print_table
from dvfs.errors import ArgumentError

if TYPE_CHECKING:
    from analysis.comparison.coefficients import CoefficientRatio
    from campaign.results import Results
    from campaign.results.tables import Coefficients, CostsAtSetting

SUMMARY = "list the fits with their coefficients, compare sites, or show the costs at a setting"
EXAMPLE = "campaign coefficients campaign-demo/store --site jetson-tk1 --core-mhz 852 --mem-mhz 924"


def add_arguments(parser: ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument(
        "--site",
        metavar="X",
        action="append",
        help="a site (repeat; default: all). Several are compared with the first",
    )
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

    store = open_store(arguments.store)
    chosen = _chosen_fits(store, arguments)
    if arguments.core_mhz is None and arguments.mem_mhz is None:
        fits = [store.coefficients(site, name) for site, name in chosen]
        ratios = _ratios(fits)
        if arguments.json:
            print_computed([dict(fit.as_json) | _against(fits[0], fit, ratios) for fit in fits])
        else:
            for fit in fits:
                print_fit(fit.summary, fit.source, arguments.all)
            for (site, _), compared in ratios.items():
                _print_ratios(fits[0].summary.site, site, compared)
        return 0
    costs = [
        store.costs(site, arguments.core_mhz, arguments.mem_mhz, arguments.fit or DEFAULT)
        for site in dict.fromkeys(site for site, _ in chosen)
    ]
    if arguments.json:
        print_computed([entry.as_dict() for entry in costs])
    else:
        for entry in costs:
            _print_costs(entry)
    return 0


def _chosen_fits(store: Results, arguments: Namespace) -> list[tuple[str, str]]:
    """(site, name) of the kept fits to show, the sites in the order of the options."""
    from dvfs.errors import unknown_name  # noqa: PLC0415

    chosen = [
        (site, name)
        for site, name in store.kept_fits
        if site in (arguments.site or [site]) and arguments.fit in (None, name)
    ]
    for site in arguments.site or []:
        if site not in [fitted for fitted, _ in chosen]:
            chosen.append((site, arguments.fit or DEFAULT))  # not there: reading it says so
    if arguments.site:
        chosen.sort(key=lambda pair: arguments.site.index(pair[0]))
    if not chosen:
        names = sorted({name for _, name in store.kept_fits})
        if arguments.fit and names:
            raise ArgumentError(f"--fit: {unknown_name('fit', arguments.fit, names)}")
        which = f"fit {arguments.fit!r}" if arguments.fit else "fit yet"
        raise ArgumentError(
            f"{store.path}: has no {which}; run: campaign fit {store.path} --site SITE"
        )
    return chosen


def _ratios(fits: Sequence[Coefficients]) -> dict[tuple[str, str], list[CoefficientRatio]]:
    """(site, fit) -> the ratios of its coefficients to those of the first site. Each site has its
    default fit, or else its first. Empty with one site."""
    fits_by_site: dict[str, Coefficients] = {}
    for fit in fits:
        if fit.summary.site not in fits_by_site or fit.source.name == DEFAULT:
            fits_by_site[fit.summary.site] = fit
    reference, *further_fits = fits_by_site.values()
    if not further_fits:
        return {}
    from analysis.comparison.coefficients import compare_coefficients  # noqa: PLC0415

    return {
        (fit.summary.site, fit.source.name): compare_coefficients(reference.summary, fit.summary)
        for fit in further_fits
    }


def _against(
    first: Coefficients,
    fit: Coefficients,
    ratios: Mapping[tuple[str, str], Sequence[CoefficientRatio]],
) -> dict[str, Any]:
    """What ``--json`` adds to the fit of a further site."""
    ratios_of_fit = ratios.get((fit.summary.site, fit.source.name))
    if ratios_of_fit is None:
        return {}
    rows = [ratio.as_dict() for ratio in ratios_of_fit]
    return {"against": {"site": first.summary.site, "coefficients": rows}}


def _print_ratios(first: str, site: str, ratios: Sequence[CoefficientRatio]) -> None:
    explain(f"\n{site} over {first}")
    print_table(
        ["coefficient", first, site, "unit", "ratio", "95 % from", "to", "p corrected", ""],
        [
            [
                ratio.name,
                ratio.reference,
                ratio.value,
                ratio.unit,
                ratio.ratio,
                ratio.low,
                ratio.high,
                ratio.adjusted_p,
                "differs" if ratio.significant else "",
            ]
            for ratio in ratios
        ],
    )
    explain(
        "differs: at most 5 % of these are chance. Coefficients are for the voltages that each fit "
        "used: where these are estimated or unknown, compare costs at a setting (--core-mhz). "
        "Those without a p are of another model or of voltages that one fit does not know"
    )


def _print_costs(costs: CostsAtSetting) -> None:
    from analysis.measurements.observations import setting_text  # noqa: PLC0415

    core, mem = ("-" if v is None else f"{v:g}" for v in (costs.core_v, costs.mem_v))
    site = marked(costs.site, costs.simulated)
    explain(f"{site} at {setting_text(costs.setting)}, {core}/{mem} V")
    explain(str(costs.fit))
    print_table(
        ["cost", "value", "95 % from", "to", "unit"],
        [[cost.name, cost.value, cost.low, cost.high, cost.unit] for cost in costs.costs],
    )
