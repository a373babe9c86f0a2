"""fit: fit the energy model to a site."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from campaign.results.fits import DEFAULT
from campaign.verbs import options
from campaign.verbs.printing import explain, marked, print_computed, print_table

if TYPE_CHECKING:
    from analysis.energy.fit_summary import FitSummary, VariantPrices
    from campaign.results.fits import FitSource

SUMMARY = "fit the energy model to a site, and keep the fit in the store"
EXAMPLE = "campaign fit campaign-demo/store --site jetson-tk1"
MORE = (
    "A fit without a name is the default one, which predict, roofline and report use. A fit that "
    "was made with other options is replaced only with --replace; --name keeps another beside it. "
    "Voltages are those that the measurements carry (measured, or from a table). Where there are "
    "none, they are estimated from the energies if cross-validation shows that this helps."
)
OUTLIERS_SHOWN = 5
VOLTAGE_TEXT = {
    "unit": "V = 1",
    "floor": "estimated (constant up to a knee, then a straight rise)",
    "free": "estimated (one for each clock)",
}


def add_arguments(parser: ArgumentParser) -> None:
    options.add_store(parser)
    options.add_site(parser)
    options.add_model(parser)
    parser.add_argument(
        "--like",
        metavar="SITE",
        help="start from the fit of SITE, a site of the store with the same chip or one of its "
        "family: a few points are then enough",
    )
    parser.add_argument(
        "--name",
        default=DEFAULT,
        metavar="NAME",
        help="keep the fit under this name, for --fit of predict, roofline and report (default: "
        "keep it as the default fit)",
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="replace a fit of this name that was made with other options",
    )
    options.add_accept_unproven(parser)
    options.add_all(parser)
    options.add_json(parser)


def run(arguments: Namespace) -> int:
    """Fit, keep the fit, and print it."""
    from campaign.results.findings import finding_texts  # noqa: PLC0415

    store, site = options.store_and_site(arguments)
    result = store.fit(
        site,
        model=arguments.model,
        voltage=arguments.voltage,
        robust=arguments.robust,
        like=arguments.like,
        name=arguments.name,
        replace=arguments.replace,
        accept_unproven=arguments.accept_unproven,
    )
    if arguments.json:
        print_computed(result.as_dict())
        return 0
    for text in finding_texts(result.findings, arguments.all, "--all"):
        explain(text)
    print_fit(result.summary, result.source, arguments.all)
    if result.check is not None:
        explain(result.check.text)
        if result.check.is_unlike:
            explain(
                "warning: this site is unlike the devices that picks' model knows; trust its "
                "intervals less, and measure more settings"
            )
    return 0


def print_fit(fit: FitSummary, source: FitSource, every_row: bool = False) -> None:
    """Print a fit for people: its coefficients with intervals, and what was left out."""
    from analysis.energy.likeness import Likeness  # noqa: PLC0415

    condition = "-" if fit.condition_number is None else f"{fit.condition_number:.3g}"
    voltage = VOLTAGE_TEXT.get(fit.voltage, fit.voltage)
    explain(
        f"{marked(fit.site, fit.simulated)}: model {fit.model}, voltage {voltage}, {fit.n} "
        f"measurements at {fit.n_settings} setting{'s' * (fit.n_settings > 1)}, condition number "
        f"{condition}"
    )
    explain(f"fit {source.name}, {source.made}")
    for line in source.about_data:
        explain(line)
    if source.stale:
        explain(source.why_stale)
    explain(f"why this model: {fit.why}")
    if fit.like is not None:
        likeness = Likeness(**fit.like.model_dump())
        explain(likeness.text)
        if likeness.warning:
            explain(f"warning: {likeness.warning}")
    shared = [entry for entry in fit.coefficients if not entry.is_lumped]
    n_lumped = len(fit.coefficients) - len(shared)
    print_table(
        ["coefficient", "value", "95 % from", "to", "unit"],
        [[entry.name, entry.value, entry.low, entry.high, entry.unit] for entry in shared],
        every_row,
    )
    if n_lumped:
        explain(f"and {n_lumped} coefficients of single kernels, which have no counts (see --json)")
    for domain, curve in fit.voltage_curves.items():
        points = ", ".join(
            f"{volt:.3f} at {mhz:g} MHz"
            for mhz, volt in zip(curve.mhz, curve.relative_v, strict=False)
        )
        name = {"mem": "memory"}.get(domain, domain)
        explain(f"{name} voltage, relative, estimated: {points}")
    for term in fit.dropped:
        explain(f"left out: {term.name}: {term.why}")
    for group in fit.confounded:
        explain(f"cannot be separated: {', '.join(group.terms)}; to separate them, {group.remedy}")
    shown = fit.outliers if every_row else fit.outliers[:OUTLIERS_SHOWN]
    for row in shown:
        explain(
            f"outlier: {row.label} at {row.setting}: {row.energy_j:.4g} J measured, "
            f"{row.predicted_j:.4g} J by the model ({row.deviations:.0f} standard deviations apart)"
        )
    if len(fit.outliers) > len(shown):
        explain(f"and {len(fit.outliers) - len(shown)} more outliers (--all prints them)")
    for prices in fit.variant_prices:
        _print_prices(prices, every_row)


def _print_prices(prices: VariantPrices, every_row: bool) -> None:
    """Print the prices that variants are predicted from."""
    family = " ".join(str(value) for value in prices.family.values())
    if prices.of == "time":
        explain(
            f"\ntimes of variants of {prices.kernel} {family}: from {prices.n} measured pairs of "
            f"variant and setting, error {prices.error_pct:.1f} %; a price is at the highest clocks"
        )
    else:
        clocks = "/".join(f"{mhz:g}" for mhz in (prices.core_mhz, prices.mem_mhz) if mhz)
        explain(
            f"\nenergies of variants of {prices.kernel}{f' at {clocks} MHz' if clocks else ''}: "
            f"least absolute deviations on {prices.n} variants, error of the {prices.tested} "
            f"others {prices.test_error_pct:.1f} %"
        )
    shown = [price for price in prices.prices if every_row or price.value > 0]
    print_table(
        ["for each", "value", "95 % from", "to", "unit"],
        [[price.name, price.value, price.low, price.high, price.unit] for price in shown],
        every_row,
    )
    if len(shown) < len(prices.prices):
        explain(f"and {len(prices.prices) - len(shown)} of price 0 (--all prints them)")
    names = {price.name for price in shown}
    for group in prices.inseparable:
        if names & set(group):
            explain(f"cannot be separated: {', '.join(group)}")
