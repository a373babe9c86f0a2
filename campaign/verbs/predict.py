"""predict: the best setting for each kernel."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.verbs import options
from campaign.verbs.printing import (
    answer,
    explain,
    marked,
    mhz_text,
    print_table,
    say,
    shortened,
)
from dvfs.errors import ArgumentError

if TYPE_CHECKING:
    from analysis.choice.pick import Pick
    from campaign.results.tables import Prediction, Predictions
    from campaign.variants.space_predictions import SpacePredictions

SUMMARY = "show the best setting for each kernel, with the Slurm flags that ask for it"
EXAMPLE = "campaign predict campaign-demo/store --site jetson-tk1 --max-slowdown 0.05"
KERNEL_WIDTH = 30
MOST_WITHOUT_PICK = 5
"""The number of kernels without a pick that are printed by default."""
DEFAULT_OBJECTIVE = "energy"


def add_arguments(parser: ArgumentParser) -> None:
    options.add_store(parser, needed=False)
    options.add_site(parser)
    parser.add_argument(
        "--kernel",
        metavar="K",
        help="a kernel's name as the table shows it, or its first word for all kernels whose name "
        "begins with it, or a label from --json",
    )
    options.add_objective(parser)
    parser.set_defaults(objective=None)  # to know whether it was given; energy
    options.add_limits(parser)
    parser.add_argument(
        "--profile",
        metavar="F",
        help="pick for an application instead of the measured kernels: a TOML file with its "
        "counts and its time at one setting",
    )
    parser.add_argument(
        "--space",
        metavar="C",
        help="pick among all variants that this campaign file's spaces declare, measured or not",
    )
    parser.add_argument(
        "--form",
        choices=("corrected", "printed"),
        help="with --space and no store: the equations of time (default: corrected)",
    )
    parser.add_argument(
        "--tiles-at-a-time",
        type=int,
        metavar="K",
        help="with --space and no store: tiles that a processor works on (default: the best)",
    )
    parser.add_argument(
        "--all-settings",
        action="store_true",
        help="also pick legal settings that were not measured (their times are predicted)",
    )
    options.add_fit(parser)
    options.add_accept_unproven(parser)
    options.add_all(parser)
    options.add_json(parser)


def run(arguments: Namespace) -> int:
    """Print the picks."""
    if arguments.space:
        return _over_space(arguments)
    _refuse(arguments, DEVICE_OPTIONS, "needs --space, and no store")
    if arguments.store is None:
        site = "" if arguments.site is None else f" --site {arguments.site}"
        raise ArgumentError(
            f"missing: the store (S). Without a store, only stencil tiles can be predicted: "
            f"campaign predict{site} --space CAMPAIGN.toml"
        )
    store, site = options.store_and_site(arguments)
    predictions = store.predict(
        site,
        kernel=arguments.kernel,
        objective=arguments.objective or DEFAULT_OBJECTIVE,
        max_slowdown=arguments.max_slowdown,
        max_power_w=arguments.max_power_w,
        all_settings=arguments.all_settings,
        profile=arguments.profile,
        fit=arguments.fit,
        accept_unproven=arguments.accept_unproven,
    )
    return answer(
        arguments.json,
        predictions.as_dicts,
        lambda: print_predictions(predictions, arguments.all),
        computed=True,
    )


NOT_WITH_SPACE = ("max_slowdown", "max_power_w", "profile", "all_settings")
DEVICE_OPTIONS = ("form", "tiles_at_a_time")


def _refuse(arguments: Namespace, options: Sequence[str], why: str) -> None:
    for option in options:
        if getattr(arguments, option):
            raise ArgumentError(f"--{option.replace('_', '-')}: {why}")


def _on_device(arguments: Namespace) -> SpacePredictions:
    from campaign.variants.device_predictions import (  # noqa: PLC0415
        OBJECTIVES,
        Question,
        predict_on_device,
    )

    objective, at_a_time = arguments.objective or "time", arguments.tiles_at_a_time
    if objective not in OBJECTIVES:
        raise ArgumentError(
            f"--objective: found {objective!r}; without a store only time or energy can be "
            f"predicted; leave it out, or name a store with measured variants"
        )
    if at_a_time is not None and at_a_time < 1:
        raise ArgumentError(f"--tiles-at-a-time: found {at_a_time}; must be 1 or more")
    question = Question(objective, arguments.form or "corrected", at_a_time)
    return predict_on_device(Path(arguments.space), arguments.site, arguments.kernel, question)


def _over_space(arguments: Namespace) -> int:
    _refuse(arguments, NOT_WITH_SPACE, "not with --space; leave one out")
    if arguments.store is None:
        shown = _on_device(arguments)
    else:
        _refuse(arguments, DEVICE_OPTIONS, "needs --space, and no store")
        store, site = options.store_and_site(arguments)
        shown = store.predict_space(
            site,
            arguments.space,
            kernel=arguments.kernel,
            objective=arguments.objective or DEFAULT_OBJECTIVE,
            fit=arguments.fit,
        )
    return answer(arguments.json, shown.as_dict, lambda: print_space(shown, arguments.all))


def print_space(shown: SpacePredictions, every_row: bool) -> None:
    """Print the best variant of each problem, for people."""
    from analysis.measurements.problems import problem_names  # noqa: PLC0415
    from campaign.results.fits import UNPROVEN_CLOCKS  # noqa: PLC0415

    site = marked(shown.site, shown.simulated)
    energies = "without energies" if shown.fit is None else f"energies by fit {shown.fit}"
    by_device = not any(pick.measured for pick in shown.picks)
    if by_device and shown.objective == "energy":
        energies = "energies by the same"
    basis = "those that were measured"
    if by_device:
        site = shown.site
        basis = "the device's constants by the equations of Prajapati 2019; nothing was measured"
    explain(
        f"{site}: variants of the space, predicted from {basis}; objective "
        f"{shown.objective}, {energies}"
    )
    if shown.unproven_clocks:
        explain(UNPROVEN_CLOCKS)
    if shown.why_stale:
        explain(f"warning: fit {shown.fit}: {shown.why_stale}")
    names = problem_names([pick.problem for pick in shown.picks])
    for name, pick in zip(names, shown.picks, strict=True):
        say(f"\n{pick.kernel} {name}".rstrip())
        measured = (
            f" at {pick.settings} settings; times from {pick.measured} measured pairs of variant "
            f"and setting, whose own error is {pick.time_error_pct:.1f} %"
        )
        explain(f"{pick.variants} variants{'' if by_device else measured}")
        variant = " ".join(f"{name}={value}" for name, value in pick.params.items())
        say(f"best variant: {variant}")
        if by_device:
            has_energy = not isnan(pick.energy_j)
            header = ["predicted s", *["predicted J"] * has_energy, "variants within 10 %"]
            print_table(header, [[pick.time_s, *[pick.energy_j] * has_energy, pick.near_count]])
            if has_energy and isnan(pick.time_s):
                explain("dynamic energy alone: without a time there is no static energy")
        else:
            print_table(
                ["MHz", "predicted s", "predicted J", "variants within 10 %", "srun"],
                [[mhz_text(pick.setting), pick.time_s, pick.energy_j, pick.near_count, pick.slurm]],
            )
        if every_row:
            print_table([*pick.params], [[str(v) for v in params.values()] for params in pick.near])
    explain(
        "variants within 10 %: those whose predicted cost at this setting is at most a tenth above "
        "the best; measure these before one of them is used (--json and --all list them)"
    )


def print_predictions(shown: Predictions, every_row: bool = False) -> None:
    """Print picks for people: the number of kernels for each setting, then each kernel."""
    from dvfs.kernel_instance import KernelInstance, short_labels  # noqa: PLC0415

    outside = ", also where that is above the limit" if shown.max_power_w is not None else ""
    explain(
        f"{marked(shown.site, shown.simulated)}: {len(shown.predictions)} kernels, objective "
        f"{shown.objective}; savings are against each kernel's fastest setting{outside}, with "
        f"their 95 % intervals"
    )
    explain(str(shown.fit))
    by_setting: dict[str, list[Prediction]] = {}
    for prediction in shown.predictions:
        by_setting.setdefault(mhz_text(prediction.pick.setting), []).append(prediction)
    most_first = sorted(by_setting.items(), key=lambda item: -len(item[1]))
    print_table(
        ["MHz", "kernels", "saves % (mean)", "srun"],
        [
            [
                setting,
                len(group),
                sum(entry.pick.saving_pct for entry in group) / len(group),
                group[0].slurm,
            ]
            for setting, group in most_first
        ],
        every_row,
    )
    left_out = {entry.slurm_cannot_set for entry in shown.predictions}
    if "power_limit_w" in left_out:
        explain("srun has no option for a power limit: set it on the node (`nvidia-smi -pl`, RAPL)")
    if "profile" in left_out:
        explain("srun has no option for a profile: set it on the node")
    if {"mem_mhz", "uncore_mhz"} & left_out:
        explain(
            "srun has no option for the memory clock of these settings, the uncore clock of a CPU: "
            "it requests the core clock alone"
        )
    explain("")
    names = short_labels(
        KernelInstance(entry.pick.kernel, entry.pick.params, entry.pick.label)
        for entry in shown.predictions
    )
    print_table(
        ["kernel", "MHz", "saves %", "from", "to", "vs top %", "slower %", "P(best)", "race"],
        [
            [
                shortened(names[entry.pick.label], KERNEL_WIDTH),
                mhz_text(entry.pick.setting),
                entry.pick.saving_pct,
                entry.pick.saving_low_pct,
                entry.pick.saving_high_pct,
                entry.pick.saving_vs_highest_clocks_pct,
                entry.pick.slowdown_pct,
                entry.pick.best_probability,
                entry.pick.race_to_halt,
            ]
            for entry in sorted(shown.predictions, key=lambda entry: -entry.pick.saving_pct)
        ],
        every_row,
    )
    explain(
        "vs top %: what is saved against the highest clocks, at which most sites run by default. "
        "P(best): the probability that no other setting is better. race: whether race to halt, "
        "the fastest setting, is right, worse, or open (these measurements do not show which). "
        "--json has energies, times and expected losses."
    )
    for line in (*simple_choices(shown), *tried_picks(shown)):
        explain(line)
    for line in (*unsure_picks(shown), *shown.warnings):
        explain(f"warning: {line}")
    listed = shown.without_pick if every_row else shown.without_pick[:MOST_WITHOUT_PICK]
    for line in listed:
        explain(f"no pick: {line}")
    if more := len(shown.without_pick) - len(listed):
        explain(f"no pick: {more} more kernels (--all prints them)")


def simple_choices(shown: Predictions) -> list[str]:
    """How many picks are better than each choice that needs no model, a line each."""
    from analysis.measurements.observations import setting_text  # noqa: PLC0415

    picks = [entry.pick for entry in shown.predictions]
    lines = []
    if compared := _compared(picks, "highest_clocks"):
        gain_pct, sure, count = compared
        lines.append(
            f"the highest clocks for all are expected to cost {gain_pct:.2f} % more than the "
            f"picks; {sure} of {count} picks are better with 95 % probability"
        )
    single = next((pick.best_single for pick in picks if pick.best_single is not None), None)
    best = f"one setting for all: {setting_text(single)}, the best on average" if single else ""
    if best and (compared := _compared(picks, "best_single")):
        gain_pct, sure, count = compared
        lines.append(
            f"{best}, is expected to cost {gain_pct:.2f} % more than the picks; {sure} of "
            f"{count} picks are better with 95 % probability"
            + ("" if sure else ", so these measurements do not show that separate picks are better")
        )
    outside = sum(
        isnan(pick.better_than_best_single) and pick.best_single is not None for pick in picks
    )
    if outside:
        lines.append(
            f"{best} without limits, is outside the limits for {outside} of {len(picks)} kernels"
        )
    unmeasured = [pick for pick in picks if not pick.measured]
    if compared := _compared(unmeasured, "best_measured"):
        gain_pct, sure, count = compared
        lines.append(
            f"{count} picks are settings that were not measured; the kernel's best measured one is "
            f"expected to cost {gain_pct:.2f} % more, with 95 % probability for {sure}"
        )
    return lines


def _compared(picks: Sequence[Pick], choice: str) -> tuple[float, int, int] | None:
    """What another choice is expected to cost more than picks, in %, on average; how many picks
    are surely better; and how many are compared. None without any."""
    from analysis.choice.pick import SURE  # noqa: PLC0415

    compared = [pick for pick in picks if not isnan(getattr(pick, f"better_than_{choice}"))]
    if not compared:
        return None
    gain_pct = sum(getattr(pick, f"gain_over_{choice}_pct") for pick in compared) / len(compared)
    sure = sum(getattr(pick, f"better_than_{choice}") >= SURE for pick in compared)
    return gain_pct, sure, len(compared)


def unsure_picks(shown: Predictions) -> list[str]:
    """A warning for each choice that needs no model, where fewer than half of the picks that differ
    from it are better with 95 % probability."""
    from analysis.choice.pick import not_surely_better  # noqa: PLC0415

    lines = []
    picks = [entry.pick for entry in shown.predictions]
    for choice, text in (
        ("highest_clocks", "the highest clocks"),
        ("best_single", "one setting for all kernels"),
    ):
        open_, compared = not_surely_better(picks, choice)
        if 2 * len(open_) > compared:
            lines.append(
                f"of the {compared} picks that differ from {text}, only {compared - len(open_)} "
                f"are surely better: measure more settings or repeats before they are used"
            )
    return lines


def tried_picks(shown: Predictions) -> list[str]:
    """A line for each simple choice that replaced the model's picks, after both were tried on
    measured kernels."""
    tried = [entry.pick for entry in shown.predictions if not isnan(entry.pick.model_lost_pct)]
    lines = []
    for chosen_by, setting in (
        ("best_single", "the best single setting was picked"),
        ("highest_clocks", "the highest clocks were picked"),
    ):
        chosen = [pick for pick in tried if pick.chosen_by == chosen_by]
        if chosen:
            lost = [
                sum(getattr(pick, f"{name}_lost_pct") for pick in chosen) / len(chosen)
                for name in ("model", chosen_by)
            ]
            names = ", ".join(pick.label for pick in chosen[:3]) + (
                ", ..." if len(chosen) > 3 else ""
            )
            lines.append(
                f"{len(chosen)} of the kernels ({names}): tried on measured kernels, picks by the "
                f"model lose {lost[0]:.2f} %, and this choice {lost[1]:.2f} %, so {setting}"
            )
    return lines
