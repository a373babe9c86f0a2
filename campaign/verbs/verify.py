"""verify: what a policy promises beside what its jobs delivered."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.verbs import options
from campaign.verbs.printing import explain, print_json, print_table, say
from dvfs.errors import ArgumentError

if TYPE_CHECKING:
    from campaign.policy.accounting import Job
    from campaign.policy.policy_file import Policy
    from campaign.policy.verification import EntryVerdict, Verification

SUMMARY = "compare what a policy promises with what the jobs saved that ran"
EXAMPLE = "campaign verify campaign-demo/store --policy policy.toml --jobs jobs.txt"
MORE = (
    "Jobs with the policy are compared with the control jobs of the same user and input, by sacct "
    "or by the records of campaign exec. Exit code 1 where a promise is not kept."
)


def add_arguments(parser: ArgumentParser) -> None:
    """The verb's arguments."""
    options.add_store(parser)
    parser.add_argument("--policy", required=True, metavar="F", help="the policy file")
    parser.add_argument("--since", metavar="DATE", help="ask sacct for the jobs since DATE")
    parser.add_argument(
        "--jobs",
        metavar="F",
        help="a table of jobs instead, as sacct --allusers --parsable2 writes it",
    )
    parser.add_argument(
        "--records",
        action="append",
        default=[],
        metavar="F",
        help="a file of campaign exec's records (repeat for several)",
    )
    parser.add_argument(
        "--metrics", metavar="F", help="also write the verdicts to F for Prometheus"
    )
    options.add_all(parser)
    options.add_json(parser)


def run(arguments: Namespace) -> int:
    """0; 1 where a promise is not kept."""
    from campaign.policy.policy_file import read_policy  # noqa: PLC0415
    from campaign.policy.verification import BROKEN, metrics_text, verify  # noqa: PLC0415
    from campaign.results import open_store  # noqa: PLC0415

    sites = open_store(arguments.store).sites
    policy, _ = read_policy(Path(arguments.policy))
    if sites and policy.site not in sites:
        raise ArgumentError(
            f"{arguments.policy}: is for {policy.site}, and {arguments.store} has "
            f"{', '.join(sites)}; name the store that the policy is from"
        )
    jobs = _jobs(arguments)
    found = verify(policy, jobs)
    if arguments.metrics:
        _write_metrics(Path(arguments.metrics), metrics_text(policy, found.verdicts))
    if arguments.json:
        print_json(
            {
                "site": policy.site,
                "jobs": len(jobs),
                "marked": sum(bool(job.mark) for job in jobs),
                "other_marks": found.other_marks,
                "entries": [verdict.as_dict() for verdict in found.verdicts],
            }
        )
    else:
        _print(arguments, policy, jobs, found)
    return 1 if any(verdict.verdict == BROKEN for verdict in found.verdicts) else 0


def _write_metrics(path: Path, text: str) -> None:
    from dvfs.errors import reason  # noqa: PLC0415
    from dvfs.files import write_output  # noqa: PLC0415

    try:
        write_output(path, text)
    except OSError as error:
        raise ArgumentError(f"--metrics {path}: cannot be written: {reason(error, path)}") from None


def _jobs(arguments: Namespace) -> list[Job]:
    from campaign.policy.accounting import ask_sacct, read_jobs, read_jobs_file  # noqa: PLC0415
    from campaign.policy.verification import check_since, joined, read_records  # noqa: PLC0415

    if not (arguments.jobs or arguments.since or arguments.records):
        raise ArgumentError("missing: --since DATE, --jobs F or --records F")
    if arguments.jobs and arguments.since:
        raise ArgumentError("--jobs and --since: leave one out")
    jobs: list[Job] = []
    if arguments.jobs:
        jobs = read_jobs_file(Path(arguments.jobs))
    elif arguments.since:
        jobs = read_jobs(ask_sacct(check_since(arguments.since)))
    return joined(jobs, read_records(map(Path, arguments.records)))


def _print(arguments: Namespace, policy: Policy, jobs: Sequence[Job], found: Verification) -> None:
    simulated = " (the promises are of a simulated machine)" if policy.origin.simulated else ""
    explain(
        f"{policy.site}{simulated}: {len(jobs)} jobs, {sum(bool(job.mark) for job in jobs)} of "
        f"them under a policy"
    )
    seen = [one for one in found.verdicts if one.policy_jobs or one.control_jobs or one.apart]
    print_table(
        ["entry", "jobs", "control", "promised %", "saved %", "from", "to", "slower %", "verdict"],
        [
            [
                one.entry,
                one.policy_jobs,
                one.control_jobs,
                None if one.promise is None else one.promise.saving_pct,
                one.saving_pct,
                *(one.saving_pct_95 or (None, None)),
                one.slowdown_pct,
                one.verdict,
            ]
            for one in seen
        ],
        arguments.all,
    )
    if len(seen) < len(found.verdicts):
        explain(f"{len(found.verdicts) - len(seen)} entries had no jobs")
    apart: Counter[str] = Counter()
    for one in seen:
        apart.update(one.apart)
    for why, count in apart.most_common():
        explain(f"not compared: {count} jobs: {why}")
    for mark, count in found.other_marks.items():
        explain(f"not compared: {count} jobs of {mark}: no entry has this name and setting")
    for one in seen:
        _print_next(arguments, one)


def _print_next(arguments: Namespace, one: EntryVerdict) -> None:
    """What decides about an entry, and what to do about it."""
    from campaign.policy.verification import BROKEN, OPEN  # noqa: PLC0415

    store, policy = shlex.quote(arguments.store), shlex.quote(arguments.policy)
    if one.verdict == BROKEN:
        kernel = f" --kernel {shlex.quote(one.kernel.split()[0])}" if one.kernel else ""
        say(
            f"{one.entry}: not kept, by its {_shown(one)}. Measure again: campaign next "
            f"{store}{kernel} --budget 1; or withdraw it: campaign policy withdraw {policy} "
            f"{one.entry}"
        )
    elif one.verdict == OPEN:
        more = "" if one.more_jobs is None else f"; about {one.more_jobs} more jobs would decide"
        explain(f"{one.entry}: open, by its {_shown(one)}{more}")


def _shown(one: EntryVerdict) -> str:
    """The saving or slowdown that decides, beside what was promised."""
    name = f"{one.because.partition(' ')[0]}_pct_95"
    delivered, promised = getattr(one, name), getattr(one.promise, name)
    if delivered is None:
        return f"{one.because}: no jobs to compare"
    return (
        f"{one.because}: {delivered[0]:.1f} to {delivered[1]:.1f} % delivered, {promised[0]:.1f} "
        f"to {promised[1]:.1f} % promised"
    )
