"""variants: the study of a kernel's variants."""

from __future__ import annotations

import math
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from campaign.verbs import options
from campaign.verbs.printing import answer, explain, marked, print_table, say, shortened

if TYPE_CHECKING:
    from analysis.choice.variants import Correlation, VariantCosts, VariantStudy

SUMMARY = "study a kernel's variants: hull, Pareto front, and what correlates with rate and energy"
EXAMPLE = "campaign variants campaign-demo/store --site jetson-tk1 --kernel load"
MORE = (
    "Variants are choices of parameters that compute the same result, such as tile sizes. They are "
    "those that the space of the campaign file declares; in a store without one, such as an "
    "imported table, all parameters are taken for them. --problem fixes what is computed: n=1920."
)
OPTIONS = {
    "--kernel": ("K", "the kernel (default: the only one of the site)"),
    "--problem": (
        "P",
        "fix parameters: NAME=VALUE, several with commas, such as n=1920,precision=double",
    ),
    "--setting": ("CORE,MEM", "the clocks (default: those with most variants)"),
}
NAME_WIDTH = 44
CLOSE = 1.2
"""The factor of the fastest time within which a variant is a serious choice."""


def add_arguments(parser: ArgumentParser) -> None:
    options.add_store(parser)
    options.add_site(parser)
    for option, (shown, text) in OPTIONS.items():
        parser.add_argument(option, metavar=shown, help=text)
    options.add_all(parser)
    options.add_json(parser)


def run(arguments: Namespace) -> int:
    """Print the study."""
    from campaign.variants.study import read_problem  # noqa: PLC0415

    problem = None if arguments.problem is None else read_problem(arguments.problem)
    setting = options.read_setting(arguments.setting, "--setting") if arguments.setting else None
    store, site = options.store_and_site(arguments)
    result = store.variants(site, arguments.kernel, problem=problem, setting=setting)
    if arguments.json and (left_out := _left_out(result.study)):
        say(left_out, sys.stderr)
    if result.why_stale:
        text = f"warning: the fit that predicts energies: {result.why_stale}"
        if arguments.json:
            say(text, sys.stderr)
        else:
            explain(text)
    return answer(arguments.json, result.as_dict, lambda: print_study(result.study, arguments.all))


def print_study(shown: VariantStudy, every_row: bool = False) -> None:
    """Print the study for people: the two best first, then hull, front, alpha and metrics."""
    from analysis.measurements.observations import setting_text  # noqa: PLC0415
    from campaign.results.fits import ESTIMATED_ENERGIES  # noqa: PLC0415

    basis = shown.of
    more = f"; {basis.settings} settings have variants" if basis.settings > 1 else ""
    explain(
        f"{marked(basis.site, basis.simulated)}: {basis.kernel}, {len(shown.variants)} variants at "
        f"{setting_text(basis.setting)}{more}"
    )
    if basis.problem:
        explain(f"problem: {' '.join(f'{k}={v}' for k, v in basis.problem.items())}")
    if left_out := _left_out(shown):
        explain(left_out)
    if basis.estimated_energies:
        explain(ESTIMATED_ENERGIES)
    explain(_work(shown))
    names = _Names(shown)
    if names.note:
        explain(names.note)
    unit, scale = ("Gflop", 1e9) if basis.work_unit == "flop" else ("run", 1.0)
    rates = [f"{unit}/s", f"{unit}/J"]

    def costs(variant: VariantCosts) -> list[Any]:
        rate, efficiency = variant.rate_per_s / scale, variant.efficiency_per_j / scale
        return [names.name(variant), variant.time_s, variant.energy_j, rate, efficiency]

    say()
    print_table(
        ["", "variant", "s", "J", *rates, "slower %", "more J %"],
        [
            [
                word,
                *costs(variant),
                (variant.time_s / shown.fastest.time_s - 1.0) * 100.0,
                (variant.energy_j / shown.least_energy.energy_j - 1.0) * 100.0,
            ]
            for word, variant in (
                ("fastest", shown.fastest),
                ("least energy", shown.least_energy),
            )
        ],
    )
    explain(
        f"{shown.faster} of {len(shown.variants)} variants are faster than the most efficient one; "
        f"{shown.more_efficient} need less energy than the fastest"
    )
    more_energy_pct = (shown.same_time_more_energy_factor - 1.0) * 100.0
    explain(
        f"at the energy of the fastest variant, run time varies by up to "
        f"{shown.same_energy_slower_pct:.1f} %; at the speed of the most efficient one, energy "
        f"varies by up to {more_energy_pct:.1f} % (from the convex hull)"
    )
    _print_predicted(shown, names)
    say(f"\nhull of rate and efficiency, counter-clockwise from the fastest: {len(shown.hull)}")
    print_table(
        ["arc", "variant", "s", "J", *rates],
        [[arc, *costs(corner)] for arc, corner in shown.hull],
        every_row,
    )
    say(f"\nPareto front of time and energy, the fastest first: {len(shown.pareto)}")
    print_table(["variant", "s", "J", *rates], [costs(v) for v in shown.pareto], every_row)
    say()
    explain(
        "least alpha t + (1 - alpha) e, from the least energy to the fastest: alpha with t and e "
        "over their least, and in s and J"
    )
    print_table(
        ["variant", "from", "to", "s, J: from", "to"],
        [
            [names.name(relative.variant), relative.low, relative.high, s_j.low, s_j.high]
            for relative, s_j in zip(shown.relative, shown.s_j, strict=True)
        ],
        every_row,
    )
    _print_metrics(shown, rates, scale, every_row)


def _print_predicted(shown: VariantStudy, names: _Names) -> None:
    """Print predicted and measured costs of the best variants and of those the model would pick."""
    predicted = [variant for variant in shown.variants if not math.isnan(variant.predicted_s)]
    if not predicted:
        return
    least_s = shown.fastest.time_s
    errors = [(v.predicted_s / v.time_s - 1.0) ** 2 for v in predicted]
    close = [
        (v.predicted_s / v.time_s - 1.0) ** 2 for v in predicted if v.time_s <= CLOSE * least_s
    ]
    say(
        f"\npredicted from the other variants: error of time {_root_mean_pct(errors)} %, of those "
        f"within 20 % of the fastest {_root_mean_pct(close)} % (root mean square)"
    )
    picked = [("predicted fastest", min(predicted, key=lambda v: v.predicted_s))]
    if with_energy := [v for v in predicted if math.isfinite(v.predicted_j)]:
        picked.append(("predicted least energy", min(with_energy, key=lambda v: v.predicted_j)))
    print_table(
        ["", "variant", "s", "predicted", "J", "predicted"],
        [
            [word, names.name(v), v.time_s, v.predicted_s, v.energy_j, v.predicted_j]
            for word, v in (
                ("fastest", shown.fastest),
                ("least energy", shown.least_energy),
                *picked,
            )
        ],
    )


def _root_mean_pct(squares: list[float]) -> str:
    return f"{math.sqrt(sum(squares) / len(squares)) * 100.0:.1f}" if squares else "-"


def _print_metrics(shown: VariantStudy, rates: list[str], scale: float, every_row: bool) -> None:
    if not shown.metrics:
        return
    rate, efficiency = rates
    say()
    explain(
        "correlation of each metric with rate, efficiency and their product (95 % intervals), the "
        "largest with the rate first"
    )
    print_table(
        ["metric", "variants", "rate", "", "efficiency", "", "product", ""],
        [
            [
                shortened(entry.metric.name, 28),
                entry.n,
                *(
                    part
                    for correlation in (entry.rate, entry.efficiency, entry.product)
                    for part in (round(correlation.r, 3), _interval(correlation))
                ),
            ]
            for entry in shown.metrics
        ],
        every_row,
    )
    say("\nmean rate and efficiency of the variants above and not above each metric's mean")
    print_table(
        ["metric", "mean", "above", rate, efficiency, "not", rate, efficiency],
        [
            [
                shortened(entry.metric.name, 28),
                entry.mean,
                *(
                    part
                    for side in (entry.above, entry.below)
                    for part in (side.n, side.rate_per_s / scale, side.efficiency_per_j / scale)
                ),
            ]
            for entry in shown.metrics
        ],
        every_row,
    )


def _interval(r: Correlation) -> str:
    return "-" if r.low != r.low else f"{r.low:.2f} to {r.high:.2f}"


def _left_out(shown: VariantStudy) -> str:
    parts = [f"{n} {reason}" for reason, n in shown.of.left_out.items()]
    return f"left out: {', '.join(parts)}" if parts else ""


def _work(shown: VariantStudy) -> str:
    from analysis.measurements.variants import SAME_WORK  # noqa: PLC0415

    basis = shown.of
    if basis.work_unit != "flop":
        return "work: 1 run, as no flops are counted"
    least = f"work: {basis.work:.5g} flop a run"
    if basis.most_work == basis.work:
        return least
    counted = f"{least}, the fewest that a variant counts (the most: {basis.most_work:.5g})"
    if basis.most_work <= SAME_WORK * basis.work:
        return counted
    return f"{counted}; where they do not compute the same, fix more parameters by --problem"


class _Names:
    """The names of variants in tables: parameters with values, or values alone where these names
    are too long."""

    def __init__(self, shown: VariantStudy) -> None:
        common = shown.of.problem
        self._params = list(
            dict.fromkeys(k for v in shown.variants for k in v.instance.params if k not in common)
        )
        self._long = max(len(variant.name) for variant in shown.variants) > NAME_WIDTH

    @property
    def note(self) -> str:
        """The parameters of the values, where names have values alone."""
        return f"variants by {' '.join(self._params)}" if self._long else ""

    def name(self, variant: VariantCosts) -> str:
        """A variant's name."""
        params = variant.instance.params
        values = " ".join(str(params.get(name, "-")) for name in self._params)
        return shortened(values if self._long else variant.name, NAME_WIDTH)
