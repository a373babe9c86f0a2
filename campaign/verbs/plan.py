"""plan: the points of a campaign, and the job scripts that would be submitted."""

from __future__ import annotations

import itertools
import json
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.verbs.options import add_json
from campaign.verbs.printing import (
    counted_on_terminal,
    explain,
    print_json,
    print_table,
    say,
    shortened,
)
from dvfs.errors import ArgumentError

if TYPE_CHECKING:
    from campaign.plan.campaign_file import Search
    from campaign.plan.estimate import PartitionEstimate
    from campaign.plan.plan import Plan
    from campaign.plan.sweep import Sweep
    from campaign.results import Results

FIRST_VARIANTS = 3
CONDITION_CHARS = 80
SUMMARY = "count and list the points of a campaign file"
EXAMPLE = "campaign plan campaign-demo/campaign.toml --limit 5"


def uncounted_commands(plan: Plan) -> list[str]:
    """The names of the commands that have neither ``counts`` nor ``reports_counts``, sorted."""
    instances = {
        (entry.label, entry.params)
        for part in plan.points.parts
        for entry in part.inputs
        if entry.kernel == "command"
    }
    return sorted(
        {
            label
            for label, params in instances
            if not (values := json.loads(params)).get("counts") and not values.get("reports_counts")
        }
    )


def uncounted_text(labels: list[str]) -> str:
    """The consequences of missing counts for these commands, in sentences."""
    return (
        f"{', '.join(labels)}: no operation counts. The fit gives each such command coefficients "
        f"of its own, so that it is predicted at settings, but does not help to find the cost of "
        f"an operation, and has no place in rooflines. To change that: counts = {{ dp = ... }}, "
        f"reports_counts = true, or hardware counters of the site"
    )


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("campaign", metavar="CAMPAIGN.toml", help="the campaign file")
    parser.add_argument(
        "--scripts", action="store_true", help="show every job script that would be submitted"
    )
    parser.add_argument(
        "--limit",
        type=int,
        default=20,
        metavar="N",
        help="list at most N points (default: %(default)s)",
    )
    parser.add_argument("--store", metavar="S", help="estimate times from the measurements in S")
    parser.add_argument(
        "--architecture",
        metavar="SM",
        help="plan for GPUs of this architecture, such as sm_90, whatever the site files say: "
        "variants that they cannot run are left out; compiles each variant, without a GPU",
    )
    parser.add_argument(
        "--estimate", action="store_true", help="with --json: print the estimates, not the points"
    )
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Print the points, or with ``--scripts`` every job script."""
    from campaign.plan.plan import make_plan  # noqa: PLC0415
    from campaign.results import open_store  # noqa: PLC0415
    from campaign.variants.search_table import read_search  # noqa: PLC0415

    if arguments.limit < 0:
        raise ArgumentError(f"--limit: found {arguments.limit}; must be 0 or more")
    if arguments.estimate and not arguments.json:
        raise ArgumentError(
            "--estimate: only with --json; without it, the points and the estimates are printed"
        )
    store = open_store(arguments.store) if arguments.store else None
    plan = make_plan(
        Path(arguments.campaign),
        counted_on_terminal("points planned"),
        architecture=arguments.architecture,
    )
    if arguments.architecture and not any(map(_judged, plan.spaces)):
        raise ArgumentError(
            "--architecture: this campaign file has no space of a GPU kernel whose variants the "
            "compiler can judge"
        )
    search = None if plan.campaign.search is None else read_search(Path(arguments.campaign))
    if arguments.scripts:
        _print_scripts(plan, arguments)
    elif arguments.json and arguments.estimate:
        print_json([entry.as_dict() for entry in _estimates(plan, store)])
    elif arguments.json:
        print_json([point.as_dict() for point in plan.points])
    else:
        _print_points(plan, arguments.limit)
        _print_estimates(_estimates(plan, store))
        _print_spaces(plan)
        if search is not None:
            _print_search(search)
        labels = uncounted_commands(plan)
        if labels:
            explain(uncounted_text(labels))
    return 0


def _print_search(search: Search) -> None:
    most = "all" if search.budget is None else f"at most {search.budget:,}"
    explain(
        f"campaign tune measures {most} of a partition's points: strategy {search.strategy}, "
        f"objective {search.objective}"
    )


def _print_points(plan: Plan, limit: int) -> None:
    from campaign.plan.plan import kernel_names  # noqa: PLC0415

    names = kernel_names(plan)
    rows = []
    for part in plan.points.parts:
        kernels = len({(entry.label, entry.params) for entry in part.inputs})
        settings, repeats = len(part.settings), len(part.ends)
        rows.append([part.site, part.partition, kernels, settings, repeats, len(part)])
    print_table(["site", "partition", "kernels", "settings", "repeats", "points"], rows)
    count = len(plan.points)
    say(f"{count} point{'s' * (count != 1)} in all; the first {min(limit, count)}:")
    print_table(
        ["id", "site/partition", "kernel", "MHz", "repeat"],
        [
            [
                point.id,
                shortened(f"{point.site}/{point.partition}", 20),
                shortened(names[point.label, point.params], 40),
                point.setting.short_text,
                point.repeat,
            ]
            for point in plan.points[:limit]
        ],
    )


def _estimates(plan: Plan, store: Results | None) -> list[PartitionEstimate]:
    from campaign.plan.estimate import estimates  # noqa: PLC0415

    parts = plan.points.parts
    if store is None:
        return estimates(parts, plan.campaign.protocol, plan.sites, {})
    times = {pair: store.iteration_times(*pair) for pair in plan.partitions}
    return estimates(parts, plan.campaign.protocol, plan.sites, times, store.point_times())


def _print_estimates(estimated: list[PartitionEstimate]) -> None:
    from campaign.launch.snapshot import duration  # noqa: PLC0415

    say("Estimated, without the queue's waiting time:")
    print_table(
        ["site", "partition", "s a point", "time", "nodes", "node-hours", "points per job"],
        [
            [
                shortened(entry.site, 20),
                shortened(entry.partition, 16),
                float(f"{entry.point_s:.3g}"),
                duration(entry.wall_s),
                entry.nodes,
                None if entry.node_hours is None else round(entry.node_hours, 3),
                entry.walltime_points,
            ]
            for entry in estimated
        ],
    )
    measured_inputs = max((entry.known_inputs for entry in estimated), default=0)
    explain(
        "The estimate assumes the protocol's shortest steps, no failures, and "
        + (
            f"the measured times of {measured_inputs} kernels and parameter sets"
            if measured_inputs
            else "short kernels"
        )
        + ". Meters that need longer windows, and longer kernels, make it longer"
        + ("" if measured_inputs else "; --store S takes the times that a store has measured")
    )


def _print_spaces(plan: Plan) -> None:
    """Print each space's number of variants and the first of them, the candidates that its
    conditions refused, and the variants that the site's GPUs cannot run."""
    for space in plan.spaces:
        name = space.entry.label or space.entry.kernel
        say(f"space of {name} at {space.site}: {len(space.params):,} variants; the first:")
        for text in space.params[:FIRST_VARIANTS]:
            say(f"  {_space_values(space, text)}")
        rows = [
            [shortened(condition, CONDITION_CHARS), f"{count:,}"]
            for condition, count in space.refused.items()
        ]
        if rows:
            print_table(["condition", "candidates refused"], rows)
        if space.left_out:
            architecture, count = plan.sites[space.site].architecture, len(space.left_out)
            subject = (
                "variant, which it cannot run, is"
                if count == 1
                else "variants, which it cannot run, are"
            )
            say(f"{architecture}: {count:,} {subject} left out; the first:")
            for text, reason in itertools.islice(space.left_out.items(), FIRST_VARIANTS):
                explain(f"{_space_values(space, text)}: {reason}")


def _judged(space: Sweep) -> bool:
    from kernels.registry import find_kernel  # noqa: PLC0415

    return find_kernel(space.entry.kernel).refused_on is not None


def _space_values(space: Sweep, text: str) -> str:
    """The parameters of a variant that its space declares, as text."""
    params = json.loads(text)
    return " ".join(f"{k}={params[k]}" for k in space.entry.space or () if k in params)


def _print_scripts(plan: Plan, arguments: Namespace) -> None:
    from campaign.launch.preview import default_store, job_scripts  # noqa: PLC0415

    scripts = job_scripts(plan, default_store(Path(arguments.campaign)))
    if arguments.json:
        print_json(scripts)
        return
    for name, entry in scripts.items():
        say(f"==== {name}: {entry['jobs']} job{'s' if entry['jobs'] > 1 else ''} of this script")
        say(entry["script"])
        for step in entry["steps"]:
            say(f"     step: {step}")
    if not scripts:
        say("no partition of this campaign uses Slurm: no job would be submitted")
