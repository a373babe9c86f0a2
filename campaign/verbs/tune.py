"""tune: search the variants and settings of a campaign, or replay searches on measurements."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign.verbs import options
from campaign.verbs.driver import add_driver, check_driver, drive, store_of
from campaign.verbs.printing import (
    answer,
    counted_on_terminal,
    explain,
    marked,
    mhz_text,
    print_json,
    print_table,
)
from dvfs.errors import ArgumentError

if TYPE_CHECKING:
    from campaign.launch.outcome import Outcome
    from campaign.variants.replaying import Replay
    from campaign.variants.search_results import Choice, SearchResult

SUMMARY = "search the variants and settings of a campaign for the least energy"
MORE = (
    "Measures batches, each chosen from what is stored, until the budget of [search] in the "
    "campaign file is spent; continues an interrupted search. With --replay it measures nothing: "
    "it plays every strategy on variants that have all been measured."
)
REPLAY_BUDGET = 200
REPLAY_TRIALS = 20
SEARCH_OPTIONS = ("budget", "strategy", "objective")
"""Options of ``--replay`` that a search reads from ``[search]``."""
REPLAY_OPTIONS = (*SEARCH_OPTIONS, "trials", "problem", "kernel", "site")
EXAMPLE = "campaign tune tune.toml --store tune-store"


def add_arguments(parser: ArgumentParser) -> None:
    from analysis.choice.objectives import ENERGY, OBJECTIVE_HELP  # noqa: PLC0415

    parser.add_argument("campaign", nargs="?", metavar="CAMPAIGN.toml", help="the campaign file")
    add_driver(parser)
    parser.add_argument(
        "--replay", metavar="S", help="search among the measurements in S, and measure nothing"
    )
    parser.add_argument(
        "--site",
        metavar="X",
        help="with --replay: the site's name (default: the only one of the store)",
    )
    parser.add_argument(
        "--kernel", metavar="K", help="with --replay: the kernel (default: the only one)"
    )
    parser.add_argument(
        "--problem", metavar="NAME=VALUE,...", help="with --replay: what is computed: n=1920"
    )
    parser.add_argument(
        "--objective",
        metavar="O",
        help=f"with --replay: what the search minimises: {OBJECTIVE_HELP} (default: {ENERGY.name})",
    )
    parser.add_argument(
        "--budget",
        type=int,
        metavar="N",
        help=f"with --replay: measurements of a trial (default: {REPLAY_BUDGET})",
    )
    parser.add_argument(
        "--trials",
        type=int,
        metavar="N",
        help=f"with --replay: trials of a strategy (default: {REPLAY_TRIALS})",
    )
    parser.add_argument(
        "--strategy",
        action="append",
        metavar="NAME",
        help="with --replay: only this strategy (repeat for several)",
    )
    options.add_json(parser)


def run(arguments: Namespace) -> int:
    """Search or replay; return 0 when the budget is spent."""
    if arguments.replay is not None:
        if arguments.campaign is not None:
            raise ArgumentError("--replay: measures nothing; leave out the campaign file")
        if arguments.detach or arguments.submit:
            raise ArgumentError("--replay: measures nothing; leave out --detach and --submit")
        return _replay(arguments)
    if arguments.campaign is None:
        raise ArgumentError("name a campaign file, or --replay S to measure nothing")
    for name in REPLAY_OPTIONS:
        if getattr(arguments, name) is not None:
            instead = (
                f"in a search, set {name} under [search] in {arguments.campaign}"
                if name in SEARCH_OPTIONS
                else f"a search takes all that {arguments.campaign} declares; leave it out"
            )
            raise ArgumentError(f"--{name}: only with --replay; {instead}")
    return _tune(arguments)


def _tune(arguments: Namespace) -> int:
    from campaign.plan.plan import make_plan  # noqa: PLC0415
    from campaign.variants.search_results import search_results  # noqa: PLC0415
    from campaign.variants.search_table import read_search  # noqa: PLC0415
    from campaign.variants.tuning import Tuning  # noqa: PLC0415

    check_driver(arguments)
    path = Path(arguments.campaign)
    search = read_search(path)
    plan = make_plan(path)
    store = store_of(arguments, plan)
    tuning = Tuning(plan, store, search)

    def show(outcome: Outcome, store_path: str) -> None:
        results = search_results(tuning)
        if arguments.json:
            as_dicts = [result.as_dict() for result in results]
            print_json({"run": vars(outcome), "store": store_path, "found": as_dicts})
            return
        for result in results:
            _print_result(result)

    return drive(arguments, plan, store, show, tuning)


def _print_result(result: SearchResult) -> None:
    from campaign.results.fits import UNPROVEN_CLOCKS  # noqa: PLC0415

    params = " ".join(f"{name}={value}" for name, value in result.params.items())
    explain(
        f"{marked(f'{result.site}/{result.partition}', result.simulated)}, {result.kernel} "
        f"{params}: {result.measured} of {result.candidates} candidates measured (a candidate: one "
        f"variant at one setting), {result.failed} failed; objective {result.objective}"
    )
    if result.unproven_clocks:
        explain(UNPROVEN_CLOCKS)
    named: dict[str, tuple[list[str], Choice]] = {}
    for name, choice in (
        ("best", result.best),
        ("fastest", result.fastest),
        ("least energy", result.least_energy),
    ):
        if choice is not None:
            key = repr((choice.variant, choice.setting))
            named.setdefault(key, ([], choice))[0].append(name)
    if not named:
        explain("nothing was measured: see campaign failures")
        return
    rows: list[list[Any]] = [
        [
            ", ".join(names),
            mhz_text(choice.setting),
            choice.time_s,
            choice.energy_j,
            choice.time_lost_pct,
            choice.energy_lost_pct,
        ]
        for names, choice in named.values()
    ]
    print_table(["", "MHz", "s", "J", "time lost %", "energy lost %"], rows)
    for names, choice in named.values():
        variant = " ".join(f"{name}={value}" for name, value in choice.variant.items())
        explain(f"{', '.join(names)}: {variant or 'no parameters'}; srun {choice.slurm}".rstrip())


def _replay(arguments: Namespace) -> int:
    from analysis.choice.objectives import ENERGY  # noqa: PLC0415
    from campaign.results import open_store  # noqa: PLC0415
    from campaign.variants.replaying import replay  # noqa: PLC0415
    from campaign.variants.study import read_problem, tuned_parameters  # noqa: PLC0415

    store = open_store(arguments.replay)
    played = replay(
        store.columns,
        store.only_site(arguments.site),
        kernel=arguments.kernel,
        problem=read_problem(arguments.problem) if arguments.problem else None,
        tuned=tuned_parameters(store.store),
        objective=arguments.objective or ENERGY.name,
        budget=REPLAY_BUDGET if arguments.budget is None else arguments.budget,
        trials=REPLAY_TRIALS if arguments.trials is None else arguments.trials,
        strategies=arguments.strategy,
        show=counted_on_terminal("trials played"),
    )
    return answer(arguments.json, played.as_dict, lambda: _print_replay(played))


def _print_replay(played: Replay) -> None:
    explain(
        f"{marked(played.site, played.simulated)}, {played.kernel}: {played.candidates} "
        f"candidates (a candidate: one variant at one setting), {played.failed} of which failed; "
        f"objective {played.objective}; "
        f"mean loss in % against the best of all, over {played.trials} trials, after so many "
        f"measurements"
    )
    rows = [[name, *losses] for name, losses in played.mean_lost_pct.items()]
    print_table(["strategy", *(str(n) for n in played.measurements)], rows)
