"""crossval: how far to trust a site's fit and its picks."""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from campaign.results.fits import DEFAULT, UNPROVEN_CLOCKS
from campaign.verbs import options
from campaign.verbs.printing import answer, explain, marked, print_table
from dvfs.errors import ArgumentError

if TYPE_CHECKING:
    from campaign.results import Results
    from campaign.results.crossval import CrossvalResult

SUMMARY = "cross-validate a site: the error of its fit, and what picks lose"
EXAMPLE = "campaign crossval campaign-demo/store --site jetson-tk1 --scheme leave-one-setting-out"

SIMPLE_CHOICES = {
    "highest_clocks": "running at the highest clocks",
    "best_single": "the best single setting",
}
"""Choices without a model that picks are compared with: the name in JSON, and for people."""


def add_arguments(parser: ArgumentParser) -> None:
    options.add_store(parser)
    parser.add_argument(
        "--site",
        action="append",
        metavar="X",
        help="the site (default: the only one of the store); repeat it for leave-one-site-out",
    )
    parser.add_argument(
        "--scheme",
        help="leave-one-setting-out, leave-one-core-clock-out, leave-one-memory-clock-out, "
        "holdout, kfold:K, leave-one-kernel-out, leave-one-node-out, leave-one-site-out; few:M: "
        "as if every kernel had been measured at M random settings only (few:all: at all, with "
        "--new); or over the variants of a kernel: leave-one-variant-out, variants-kfold:K "
        "(default: leave-one-setting-out)",
    )
    parser.add_argument(
        "--new",
        type=int,
        metavar="Q",
        help="for few:M and few:all: judge the picks of a new kernel, as if it had been measured "
        "at Q of these settings only",
    )
    parser.add_argument(
        "--train",
        action="append",
        metavar="CORE[,MEM]",
        help="for holdout: a setting to fit on (repeat; default: a random half)",
    )
    parser.add_argument(
        "--time",
        choices=("measured", "predicted", "profile"),
        default="measured",
        help="the run time that fit and picks are given; profile: from counts and the time at the "
        "fastest setting, for kernels left out (default: %(default)s, and what is lost with "
        "predicted times beside it)",
    )
    parser.add_argument(
        "--fitted-on",
        metavar="S",
        help="fit on another store's measurements of the site, such as those of microbenchmarks, "
        "and predict this store's",
    )
    parser.add_argument(
        "--kernel", metavar="K", help="over variants: their kernel (default: the only one)"
    )
    parser.add_argument(
        "--problem", metavar="P", help="over variants: of this problem alone, NAME=VALUE,..."
    )
    options.add_model(parser, "that of the kept fit")
    options.add_fit(parser)
    options.add_objective(parser)
    options.add_accept_unproven(parser)
    options.add_json(parser)


def run(arguments: Namespace) -> int:
    """Cross-validate and print the result."""
    from campaign.results import open_store  # noqa: PLC0415

    scheme = arguments.scheme or "leave-one-setting-out"
    if arguments.fitted_on and arguments.scheme:
        raise ArgumentError("--fitted-on and --scheme: give one of them")
    if scheme.startswith(("leave-one-variant-out", "variants-kfold")):
        return _over_variants(arguments)
    if scheme.startswith("few:"):
        return _with_few(arguments)
    if arguments.new is not None:
        raise ArgumentError("--new: needs --scheme few:M or few:all")
    for option in ("kernel", "problem"):
        if getattr(arguments, option):
            raise ArgumentError(f"--{option}: needs --scheme leave-one-variant-out")
    train = [options.read_setting(text, "--train") for text in arguments.train or []]
    store = open_store(arguments.store)
    result = store.crossval(
        arguments.site or [store.only_site()],
        scheme,
        train=train or None,
        fitted_on=open_store(arguments.fitted_on) if arguments.fitted_on else None,
        **_of_fit(arguments),
    )
    return answer(arguments.json, result.as_dict, lambda: print_crossval(result), computed=True)


def _of_fit(arguments: Namespace) -> dict[str, Any]:
    """What the energies are fitted and judged by."""
    names = ("model", "voltage", "fit", "time", "objective", "accept_unproven")
    return {name: getattr(arguments, name) for name in names} | {"robust": arguments.robust or None}


def _store_and_only_site(arguments: Namespace, scheme: str) -> tuple[Results, str]:
    from campaign.results import open_store  # noqa: PLC0415

    store = open_store(arguments.store)
    sites = arguments.site or [store.only_site()]
    if len(sites) > 1:
        raise ArgumentError(f"--site: one site with {scheme}")
    return store, sites[0]


def _over_variants(arguments: Namespace) -> int:
    from campaign.variants.study import read_problem  # noqa: PLC0415

    if arguments.train or arguments.fitted_on:
        raise ArgumentError("--train and --fitted-on: not with a scheme over variants")
    store, site = _store_and_only_site(arguments, "a scheme over variants")
    shown = store.crossval_variants(
        site,
        scheme=arguments.scheme,
        kernel=arguments.kernel,
        problem=read_problem(arguments.problem) if arguments.problem else None,
        **_of_fit(arguments),
    ).as_dict()
    return answer(arguments.json, lambda: shown, lambda: print_over_variants(shown), computed=True)


def _with_few(arguments: Namespace) -> int:
    if arguments.train or arguments.time != "measured":
        raise ArgumentError("--train and --time: not with --scheme few:M")
    if arguments.model or arguments.voltage or arguments.robust or arguments.fit != DEFAULT:
        raise ArgumentError(
            "--model, --voltage, --robust and --fit: not with --scheme few:M, which judges the "
            "picks of campaign predict"
        )
    text = arguments.scheme.removeprefix("few:")
    if text != "all" and not text.isdigit():
        raise ArgumentError(f"--scheme: few:M needs a whole number M, or few:all; found {text!r}")
    if text == "all" and arguments.new is None:
        raise ArgumentError("--scheme: few:all needs --new Q, the settings of a new kernel")
    count = None if text == "all" else int(text)
    if count == 0:
        raise ArgumentError(f"--scheme: found few:{text}; M must be 1 or more")
    if arguments.new is not None and not 1 <= arguments.new <= (count or math.inf):
        most = "1 or more" if count is None else f"1 to {count}"
        raise ArgumentError(f"--new: found {arguments.new}; with few:{text} it must be {most}")
    store, site = _store_and_only_site(arguments, "--scheme few:M")
    shown = store.crossval_few(
        site,
        count,
        arguments.new,
        objective=arguments.objective,
        accept_unproven=arguments.accept_unproven,
    ).as_dict()
    return answer(arguments.json, lambda: shown, lambda: print_few(shown), computed=True)


def print_few(shown: dict[str, Any]) -> None:
    """Print what each chooser loses with few measurements, for people."""
    from analysis.choice.objectives import objective  # noqa: PLC0415

    settings = shown["scheme"].removeprefix("few:")
    new = "" if shown["new"] is None else f", the kernels judged at {shown['new']} of these"
    plural = "" if settings == "1" else "s"
    explain(
        f"{marked(shown['site'], shown['simulated'])}: all kernels measured at {settings} "
        f"setting{plural} drawn at random{new}; {shown['draws']} draws"
    )
    if shown["unproven_clocks"]:
        explain(UNPROVEN_CLOCKS)
    decision = shown["decision"]
    title = objective(decision["objective"]).title
    explain(
        f"{title} lost by choosing a setting among all of the site, {decision['cases']} cases (a "
        f"kernel in a draw each):"
    )
    _print_few_choosers(decision)
    explain(losses_text(title, f"{decision['cases']} cases"))
    for key, name in SIMPLE_CHOICES.items():
        if against := shown.get(f"against_{key}"):
            explain(contest_text(against, title, name))
            if against["verdict"] != "picks":
                explain(f"warning: the picks are not surely better than {name}")
    if math.isfinite(shown["expected_loss_pct"]):
        explain(f"the picks are expected to lose {shown['expected_loss_pct']:.2f} %")


def _print_few_choosers(lost: dict[str, Any]) -> None:
    from analysis.choice.few_crossval import FEW_CHOOSERS  # noqa: PLC0415

    print_table(
        ["method", "mean %", "max %", "best picked"],
        [
            [name, *(lost[key][column] for column in ("mean_lost_pct", "max_lost_pct", "exact"))]
            for key, name in FEW_CHOOSERS.items()
            if key in lost
        ],
    )


def print_over_variants(shown: dict[str, Any]) -> None:
    """Print the errors and losses of each problem, for people."""
    from analysis.choice.objectives import objective  # noqa: PLC0415
    from analysis.measurements.problems import problem_names  # noqa: PLC0415

    explain(
        f"{marked(shown['site'], shown['simulated'])}: {shown['kernel']}, {shown['scheme']}, "
        f"{folds_text(shown['n_folds'])}, {shown['n']} pairs of variant and setting; energies from "
        f"{shown['time']} times"
    )
    if shown["unproven_clocks"]:
        explain(UNPROVEN_CLOCKS)
    explain(
        "error: root mean square of (predicted / measured - 1) over all variants, and over those "
        "within 20 % of the best"
    )
    title = objective(shown["objective"]).title
    names = problem_names([problem["problem"] for problem in shown["problems"]])
    explain(
        f"picks: one at each setting, by the predictions; wrong: those that are not the best "
        f"variant; lost: their {title} above that of the best"
    )
    print_table(
        [
            *("problem", "variants", "picks", "wrong", "lost % rms", "most"),
            *("time % all", "best", "energy % all", "best"),
        ],
        [
            [
                name,
                *(problem[name] for name in ("variants", "cases", "wrong")),
                *(problem[name] for name in ("lost_rms_pct", "lost_max_pct")),
                *(problem[name] for name in ("time_error_pct", "time_error_close_pct")),
                *(problem[name] for name in ("energy_error_pct", "energy_error_close_pct")),
            ]
            for name, problem in zip(names, shown["problems"], strict=True)
        ],
    )


def print_crossval(result: CrossvalResult) -> None:
    """Print a cross-validation for people: the error out of fold, and what each chooser loses."""
    from analysis.choice.crossval import form_text, halves_text  # noqa: PLC0415
    from analysis.choice.losses import CHOOSERS  # noqa: PLC0415
    from analysis.choice.objectives import objective  # noqa: PLC0415

    shown = result.as_dict()
    elsewhere = shown["scheme"] == "fitted-on"
    how = f"{shown['scheme']}, {folds_text(shown['n_folds'])}"
    explain(
        f"{marked(shown['site'], shown['simulated'])}: "
        f"{'fitted on the other store' if elsewhere else how}, model {shown['model']}, voltage "
        f"{shown['voltage']}"
    )
    if not elsewhere:
        explain("a fold is a part of the measurements, predicted by a fit to all the others")
        explain(form_text(result.crossval))
    if result.crossval.train:
        explain(halves_text(result.crossval))
    explain(
        f"error of {shown['n']} energies by the physics fit out of fold: {shown['mape_pct']:.2f} % "
        f"(std {shown['std_pct']:.2f}, {shown['min_pct']:.2f} to {shown['max_pct']:.2f})"
    )
    explain(f"error of the energies that picks are by: {shown['picks_mape_pct']:.2f} %")
    for name, count in shown.get("not_fitted", {}).items():
        explain(
            f"warning: {count} of these energies are of kernels that count {name}, and no kernel "
            f"that was fitted does: they are predicted as if it took no energy"
        )
    if shown["n_folds"] > 1:
        by_fold = shown["folds"]
        explain(
            f"mean error by fold: {by_fold['mean_pct']:.2f} % (std {by_fold['std_pct']:.2f}, "
            f"{by_fold['min_pct']:.2f} to {by_fold['max_pct']:.2f})"
        )
    if shown["unproven_clocks"]:
        explain(UNPROVEN_CLOCKS)
    decision = shown["decision"]
    titles = {"picks": CHOOSERS["picks"], "picks_predicted_time": "picks, predicted time"}
    rows = [
        [title, entry["mean_lost_pct"], entry["max_lost_pct"], entry["exact"]]
        for name, title in (titles | CHOOSERS).items()
        if (entry := decision.get(name))
    ]
    if rows:
        title = objective(decision["objective"]).title
        explain(
            f"{title} lost by choosing a setting, {decision['cases']} kernels, {decision['time']} "
            f"time:"
        )
        print_table(["method", "mean %", "max %", "best picked"], rows)
        explain(losses_text(title, f"{decision['cases']} kernels"))
        explain(contest_text(shown["against_race_to_halt"], title))
        for key, name in SIMPLE_CHOICES.items():
            if key in decision:
                explain(contest_text(shown[f"against_{key}"], title, name))
        if "against_perf_per_watt" in shown:
            nvml = "NVML's best performance per watt"
            explain(contest_text(shown["against_perf_per_watt"], title, nvml))
    if among_all := shown.get("among_all_settings"):
        title = objective(decision["objective"]).title
        explain(
            f"{title} lost by what predict picks, among all settings, also those fitted on "
            f"({among_all['cases']} kernels measured at all of them):"
        )
        _print_few_choosers(among_all)


def folds_text(count: int) -> str:
    """``16 folds``."""
    return f"{count} fold{'s'[: count != 1]}"


def losses_text(title: str, cases: str) -> str:
    """The explanation of the columns of a table of losses."""
    return (
        f"mean %, max %: {title} above that of the kernel's best measured setting; best picked: "
        f"for how many of the {cases} the method picks that setting (on average where it depends "
        f"on chance or on the fold)"
    )


def contest_text(contest: dict[str, Any], title: str, choice: str = "race to halt") -> str:
    """Whether the picks are better than another choice, in words."""
    interval = f"{contest['mean_gain_pct']:.2f} percentage points more {title} than the picks"
    if math.isfinite(contest["low_pct"]):
        interval += f" (95 %: {contest['low_pct']:.2f} to {contest['high_pct']:.2f})"
    verdict = {
        "picks": "the picks are better",
        "race_to_halt": "race to halt is better here: run at the fastest setting",
        "highest_clocks": "the highest clocks are better here",
        "best_single": "one setting for all kernels is better here",
        "perf_per_watt": "NVML's clock is better here",
        "open": "these measurements do not show which is better",
    }[contest["verdict"]]
    return f"{choice} takes {interval}: {verdict}"
