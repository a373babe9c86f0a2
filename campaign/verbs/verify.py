"""verify: the promises of a policy, compared with what its jobs delivered."""

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
    """Print the verdicts; 1 where a promise is not kept."""
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
    verification = verify(policy, jobs)
    if arguments.metrics:
        _write_metrics(Path(arguments.metrics), metrics_text(policy, verification.verdicts))
    if arguments.json:
        print_json(
            {
                "site": policy.site,
                "jobs": len(jobs),
                "marked": sum(bool(job.mark) for job in jobs),
                "other_marks": verification.other_marks,
                "entries": [verdict.as_dict() for verdict in verification.verdicts],
            }
        )
    else:
        _print(arguments, policy, jobs, verification)
    return 1 if any(verdict.verdict == BROKEN for verdict in verification.verdicts) else 0


def _write_metrics(path: Path, text: str) -> None:
    from dvfs.errors import reason  # noqa: PLC0415
    from dvfs.files import write_output  # noqa: PLC0415

    try:
        write_output(path, text)
    except OSError as error:
        raise ArgumentError(f"--metrics {path}: cannot be written: {reason(error, path)}") from None


def _jobs(arguments: Namespace) -> list[Job]:
    from campaign.policy.accounting import ask_sacct, read_jobs  # noqa: PLC0415
    from campaign.policy.verification import check_since, joined, read_records  # noqa: PLC0415
    from dvfs.input_files import read_text  # noqa: PLC0415

    if not (arguments.jobs or arguments.since or arguments.records):
        raise ArgumentError("missing: --since DATE, --jobs F or --records F")
    if arguments.jobs and arguments.since:
        raise ArgumentError("--jobs and --since: leave one out")
    jobs: list[Job] = []
    if arguments.jobs:
        table = Path(arguments.jobs)
        jobs = read_jobs(read_text(table), str(table))
    elif arguments.since:
        jobs = read_jobs(ask_sacct(check_since(arguments.since)))
    return joined(jobs, read_records(map(Path, arguments.records)))


def _print(
    arguments: Namespace, policy: Policy, jobs: Sequence[Job], verification: Verification
) -> None:
    simulated = " (the promises are of a simulated machine)" if policy.origin.simulated else ""
    explain(
        f"{policy.site}{simulated}: {len(jobs)} jobs, {sum(bool(job.mark) for job in jobs)} of "
        f"them under a policy"
    )
    with_jobs = [
        row for row in verification.verdicts if row.policy_jobs or row.control_jobs or row.apart
    ]
    print_table(
        ["entry", "jobs", "control", "promised %", "saved %", "from", "to", "slower %", "verdict"],
        [
            [
                row.entry,
                row.policy_jobs,
                row.control_jobs,
                None if row.promise is None else row.promise.saving_pct,
                row.saving_pct,
                *(row.saving_pct_95 or (None, None)),
                row.slowdown_pct,
                row.verdict,
            ]
            for row in with_jobs
        ],
        arguments.all,
    )
    if len(with_jobs) < len(verification.verdicts):
        explain(f"{len(verification.verdicts) - len(with_jobs)} entries had no jobs")
    excluded: Counter[str] = Counter()
    for row in with_jobs:
        excluded.update(row.apart)
    for why, count in excluded.most_common():
        explain(f"not compared: {count} jobs: {why}")
    for mark, count in verification.other_marks.items():
        explain(f"not compared: {count} jobs of {mark}: no entry has this name and setting")
    for row in with_jobs:
        _print_next(arguments, row)


def _print_next(arguments: Namespace, row: EntryVerdict) -> None:
    """Print what decides about a broken or open entry, and what to do about it."""
    from campaign.policy.verification import BROKEN, OPEN  # noqa: PLC0415

    store, policy = shlex.quote(arguments.store), shlex.quote(arguments.policy)
    if row.verdict == BROKEN:
        kernel = f" --kernel {shlex.quote(row.kernel.split()[0])}" if row.kernel else ""
        say(
            f"{row.entry}: not kept, by its {_decision_text(row)}. Measure again: campaign "
            f"next {store}{kernel} --budget 1; or withdraw it: campaign policy withdraw {policy} "
            f"{row.entry}"
        )
    elif row.verdict == OPEN:
        more = "" if row.more_jobs is None else f"; about {row.more_jobs} more jobs would decide"
        explain(f"{row.entry}: open, by its {_decision_text(row)}{more}")


def _decision_text(row: EntryVerdict) -> str:
    """The saving or slowdown that decides, as delivered and as promised."""
    name = f"{row.because.partition(' ')[0]}_pct_95"
    delivered, promised = getattr(row, name), getattr(row.promise, name)
    if delivered is None:
        return f"{row.because}: no jobs to compare"
    return (
        f"{row.because}: {delivered[0]:.1f} to {delivered[1]:.1f} % delivered, {promised[0]:.1f} "
        f"to {promised[1]:.1f} % promised"
    )
