"""The driver of run and tune: in this process, detached from the terminal, or as a Slurm job."""

from __future__ import annotations

import math
import shlex
import socket
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.launch.interrupts import INTERRUPTED, ignore_further
from campaign.verbs.printing import explain, print_json, say
from dvfs.errors import ArgumentError, UnsupportedError, exit_code

if TYPE_CHECKING:
    from campaign.launch.chooser import Chooser
    from campaign.launch.outcome import Outcome
    from campaign.plan.plan import Plan
    from campaign.store.layout import Store


def add_driver(parser: ArgumentParser) -> None:
    """The options of a verb that measures a campaign into a store."""
    parser.add_argument(
        "--store", metavar="S", help="the store (default: beside the campaign file)"
    )
    parser.add_argument(
        "--retry-failed",
        action="store_true",
        help="try all failed points again, whatever the failure was",
    )
    parser.add_argument(
        "--accept-changes",
        action="store_true",
        help="measure into a store whose measurements were made in another way: another protocol, "
        "site file, version or campaign",
    )
    parser.add_argument(
        "--max-node-hours",
        metavar="HOURS",
        type=float,
        help="start no further points once all runs of the store together have used so many "
        "node-hours",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.add_argument(
        "--detach",
        action="store_true",
        help="leave the driver running without the terminal; campaign watch S shows it",
    )
    parser.add_argument(
        "--submit",
        action="store_true",
        help="run the driver as a Slurm job of its own; campaign watch S shows it",
    )
    parser.add_argument(
        "--submit-options",
        metavar="OPTIONS",
        help="options of sbatch for the driver's job: "
        "--submit-options='--partition=cpu --time=1-0'",
    )
    parser.add_argument(
        "--notify",
        metavar="COMMAND",
        help="call this command when the run has ended, with the results in the environment "
        "(CAMPAIGN_STATUS and others)",
    )


def check_driver(arguments: Namespace) -> None:
    """Check the driver's options.

    Raises:
        ArgumentError: a value is wrong, or options exclude each other.
    """
    if arguments.submit_options is not None and not arguments.submit:
        raise ArgumentError("--submit-options: is for the driver's own job; add --submit")
    limit = arguments.max_node_hours
    if limit is not None and not 0.0 < limit < math.inf:
        raise ArgumentError(
            f"--max-node-hours: found {limit:g}; must be more than 0, such as 12.5; to measure "
            f"without a limit, leave it out"
        )
    if arguments.submit and arguments.detach:
        raise ArgumentError(
            "--detach and --submit cannot be combined; --detach runs the driver here, --submit "
            "runs it as a Slurm job"
        )
    _notify_words(arguments)


def store_of(arguments: Namespace, plan: Plan) -> Store:
    """The named store, or the default one of the campaign file; created where it is missing."""
    from campaign.store.layout import create_store  # noqa: PLC0415

    return create_store(_store_path(arguments).resolve(), plan.campaign.name)


def drive(
    arguments: Namespace,
    plan: Plan,
    store: Store,
    show: Callable[[Outcome, str], None],
    chooser: Chooser | None = None,
) -> int:
    """Measure in this process, or start a driver that does so elsewhere; return the exit code.

    Args:
        arguments: those of :func:`add_driver`, ``verb``, ``campaign`` and ``json``.
        plan: the points.
        store: receives the measurements.
        show: prints the results before the last line, from the outcome and the store's path.
        chooser: as for :func:`campaign.launch.drive.run`.
    """
    from campaign.launch.dask_settings import LOOPBACK_DASHBOARD  # noqa: PLC0415
    from campaign.launch.drive import run  # noqa: PLC0415
    from campaign.launch.live_status import resume_command  # noqa: PLC0415
    from campaign.launch.notify import results  # noqa: PLC0415
    from campaign.launch.progress import progress_for  # noqa: PLC0415
    from campaign.launch.scheduler import LaunchError, SubmissionError  # noqa: PLC0415
    from campaign.store.layout import UnwritableStoreError  # noqa: PLC0415

    if arguments.submit:
        return _submit(arguments, plan, store)
    if arguments.detach:
        return _detach(arguments, store)
    path = Path(arguments.campaign)
    words = _notify_words(arguments)
    command = arguments.verb if chooser is None else chooser.command
    try:
        outcome = run(
            plan,
            store,
            progress_for(arguments.quiet),
            arguments.retry_failed,
            getattr(arguments, "dashboard", LOOPBACK_DASHBOARD),
            arguments.accept_changes,
            campaign_file=path,
            max_node_hours=arguments.max_node_hours,
            chooser=chooser,
        )
    except Exception as error:
        problem = error
        if isinstance(error, SubmissionError):
            problem = ArgumentError(f"{error}. What was measured is kept; correct the site file")
        elif isinstance(error, LaunchError | UnwritableStoreError):
            problem = UnsupportedError(
                f"{error}. What was measured is kept; fix this and run again"
            )
        _notify(words, results(store.root, exit_code(problem) or 1, str(problem), None))
        raise problem from None
    store_path = str(_store_path(arguments))
    show(outcome, store_path)
    if not arguments.json:
        given_up = {} if outcome.limit_reached else outcome.given_up
        for partition, reason in given_up.items():
            explain(f"{partition} was given up in this run: {reason}")
        # One line, so that the last line always says how a run ended.
        named = f"{shlex.quote(str(path))} --store {shlex.quote(store_path)}"
        resume = f"campaign {command} {named}"
        say(f"{store_path}: {outcome.sentence(store_path, resume)}")
    resume = resume_command(path, store, command)
    message = outcome.sentence(str(store.root), resume)
    _notify(words, results(store.root, outcome.exit_code, message, outcome))
    return outcome.exit_code


def _store_path(arguments: Namespace) -> Path:
    from campaign.launch.preview import default_store  # noqa: PLC0415

    return Path(arguments.store) if arguments.store else default_store(Path(arguments.campaign))


def _notify_words(arguments: Namespace) -> list[str]:
    from campaign.launch.notify import notify_command  # noqa: PLC0415

    return [] if arguments.notify is None else notify_command(arguments.notify)


def _notify(words: list[str], variables: dict[str, str]) -> None:
    """Call the command of ``--notify``, if any; print a warning where it fails."""
    from campaign.launch.notify import notify  # noqa: PLC0415

    if words and (warning := notify(words, variables)):
        say(f"campaign: warning: {warning}", sys.stderr)


def driver_words(arguments: Namespace, store: Store) -> list[str]:
    """The command line for another process that becomes the driver."""
    words = [arguments.verb, str(Path(arguments.campaign).resolve()), "--store", str(store.root)]
    for name in ("dashboard", "max_node_hours", "notify", "objective", "enough"):
        value = getattr(arguments, name, None)
        words += [] if value is None else [f"--{name.replace('_', '-')}={value}"]
    flags = ("retry_failed", "accept_changes", "quiet", "json", "adaptive")
    set_flags = [name for name in flags if getattr(arguments, name, False)]
    return words + [f"--{name.replace('_', '-')}" for name in set_flags]


def _submit(arguments: Namespace, plan: Plan, store: Store) -> int:
    """Submit the driver as a job; return 0 when Slurm has accepted it."""
    from campaign.launch.detached import (  # noqa: PLC0415
        driver_log,
        driver_scheduler,
        submission_options,
        submit_driver,
    )
    from campaign.launch.live_status import LiveStatus  # noqa: PLC0415
    from campaign.launch.progress import PlainProgress  # noqa: PLC0415
    from campaign.store.layout import writing  # noqa: PLC0415

    words = submission_options(arguments.submit_options or "")
    scheduler = driver_scheduler(plan)
    with writing(store):
        log = driver_log(store)
    job = submit_driver(
        scheduler=scheduler,
        plan=plan,
        store=store,
        live=LiveStatus(
            plan,
            store,
            PlainProgress(),
            Path(arguments.campaign),
            arguments.max_node_hours,
            arguments.verb,
        ),
        words=driver_words(arguments, store),
        log=log,
        options=words,
    )
    if arguments.json:
        print_json(
            {"site": scheduler.site.name, "job": job, "log": str(log), "store": str(store.root)}
        )
        return 0
    say(
        f"the driver is job {job} of {scheduler.site.name}; its output: {log}\n"
        f"to watch it: campaign watch {shlex.quote(str(store.root))}\n"
        f"to stop it: scancel --batch --signal=INT {job}"
    )
    return 0


def _detach(arguments: Namespace, store: Store) -> int:
    """Start the driver in its own session; return 0 as soon as it measures."""
    from campaign.launch.detached import (  # noqa: PLC0415
        driver_log,
        start_detached,
        wait_until_measuring,
    )
    from campaign.store.layout import writing  # noqa: PLC0415

    with writing(store):
        log = driver_log(store)
        log_start = log.stat().st_size if log.exists() else 0
        process = start_detached(driver_words(arguments, store), log)
    quoted = shlex.quote(str(store.root))
    try:
        ended = wait_until_measuring(process, store)
    except KeyboardInterrupt:
        ignore_further()
        print(
            f"campaign: the driver goes on as process {process.pid}; campaign watch {quoted}",
            file=sys.stderr,
        )
        return INTERRUPTED
    if ended is not None:  # print the driver's output, as if it had run here
        text = log.read_bytes()[log_start:].decode("utf-8", "replace").rstrip("\n")
        say(text, sys.stderr if ended else None)
        return ended
    host = socket.gethostname()
    if arguments.json:
        print_json({"host": host, "pid": process.pid, "log": str(log), "store": str(store.root)})
        return 0
    say(
        f"the driver runs as process {process.pid} on {host}; its output: {log}\n"
        f"to watch it: campaign watch {quoted}\n"
        f"to stop it, on {host}: kill -INT {process.pid}"
    )
    return 0
