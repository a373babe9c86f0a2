"""run: measure the points of a campaign that its store does not hold yet."""

from __future__ import annotations

import re
import shlex
import socket
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from campaign.errors import BadArgument, CannotDo, exit_code
from campaign.extras import missing_extra
from campaign.interrupts import INTERRUPTED, ignore_further
from campaign.verbs import options
from campaign.verbs.printing import explain, print_json, say

if TYPE_CHECKING:
    from campaign.plan.plan import Plan
    from campaign.store.layout import Store

SUMMARY = "run the points that are not yet measured; continues an interrupted campaign"
EXAMPLE = "campaign run campaign-demo/campaign.toml --store campaign-demo/store"


def add_arguments(parser: ArgumentParser) -> None:
    """The verb's arguments."""
    parser.add_argument("campaign", metavar="CAMPAIGN.toml")
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
    options.add_max_node_hours(parser)
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.add_argument(
        "--dashboard",
        metavar="HOST:PORT",
        default="127.0.0.1:0",
        help="where Dask's dashboard of the first partition listens (default: a free port on "
        "loopback; whoever can reach it sees the campaign)",
    )
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
    options.add_json(parser)


def run(arguments: Namespace) -> int:
    """Run; 0 when every planned point is measured."""
    from campaign.launch.clusters import CantLaunch, SubmissionRefused  # noqa: PLC0415
    from campaign.launch.drive import run as drive  # noqa: PLC0415
    from campaign.launch.live_status import resume_command  # noqa: PLC0415
    from campaign.launch.notify import notify_command, results  # noqa: PLC0415
    from campaign.launch.progress import progress_for  # noqa: PLC0415
    from campaign.launch.scripts import default_store  # noqa: PLC0415
    from campaign.plan.plan import make_plan  # noqa: PLC0415
    from campaign.store.layout import StoreUnwritable, create_store  # noqa: PLC0415

    _check(arguments)
    words = [] if arguments.notify is None else notify_command(arguments.notify)
    path = Path(arguments.campaign)
    plan = make_plan(path)
    store_path = Path(arguments.store) if arguments.store else default_store(path)
    store = create_store(store_path.resolve(), plan.campaign.name)
    if arguments.submit:
        return _submit(arguments, plan, store)
    if arguments.detach:
        return _detach(arguments, store)
    progress = progress_for(arguments.quiet)
    try:
        outcome = drive(
            plan,
            store,
            progress,
            arguments.retry_failed,
            arguments.dashboard,
            arguments.accept_changes,
            campaign_file=path,
            max_node_hours=arguments.max_node_hours,
        )
    except Exception as error:
        problem = error
        if isinstance(error, SubmissionRefused):
            problem = BadArgument(f"{error}. What was measured is kept; correct the site file")
        elif isinstance(error, CantLaunch | StoreUnwritable):
            problem = CannotDo(f"{error}. What was measured is kept; fix this and run again")
        _notify(words, results(store.root, exit_code(problem) or 1, str(problem), None))
        raise problem from None
    if arguments.json:
        print_json(vars(outcome) | {"complete": outcome.complete, "store": str(store_path)})
    else:
        given_up = {} if outcome.limit_reached else outcome.given_up
        for partition, reason in given_up.items():
            explain(f"{partition} was given up in this run: {reason}")
        # One line, so that the last line always says how a run ended.
        resume = f"campaign run {shlex.quote(str(path))} --store {shlex.quote(str(store_path))}"
        say(f"{store_path}: {outcome.sentence(str(store_path), resume)}")
    message = outcome.sentence(str(store.root), resume_command(path, store))
    _notify(words, results(store.root, outcome.exit_code, message, outcome))
    return outcome.exit_code


def _check(arguments: Namespace) -> None:
    """Raise an error where an option's value is wrong, or options do not go together.

    Raises:
        BadArgument: they are.
        MissingExtra: the dashboard's package is not installed, and its address is given.
    """
    from campaign.launch.clusters import LOOPBACK_DASHBOARD  # noqa: PLC0415

    if not re.fullmatch(r"(\[[0-9a-fA-F:]+\]|[^\s:\[\]]+):[0-9]{1,5}", arguments.dashboard):
        raise BadArgument(
            f"--dashboard {arguments.dashboard!r}: must be HOST:PORT, such as 127.0.0.1:8787 "
            f"(0.0.0.0:8787 listens on every interface)"
        )
    missing = missing_extra("bokeh")
    if missing is not None and arguments.dashboard != LOOPBACK_DASHBOARD:
        raise missing
    if arguments.submit_options is not None and not arguments.submit:
        raise BadArgument("--submit-options: is for the driver's own job; add --submit")
    options.check_max_node_hours(arguments.max_node_hours)
    if arguments.submit and arguments.detach:
        raise BadArgument("--submit and --detach: the driver is one of both; leave one out")


def _notify(words: list[str], variables: dict[str, str]) -> None:
    """Call the command of ``--notify``, where there is one; its failure is a warning."""
    from campaign.launch.notify import notify  # noqa: PLC0415

    if words and (warning := notify(words, variables)):
        say(f"campaign: warning: {warning}", sys.stderr)


def _driver_words(arguments: Namespace, store: Store) -> list[str]:
    """This command line for another process, which is the driver."""
    words = ["run", str(Path(arguments.campaign).resolve()), "--store", str(store.root)]
    words += [f"--dashboard={arguments.dashboard}"]
    limit = arguments.max_node_hours
    words += [] if limit is None else [f"--max-node-hours={limit!r}"]
    words += [] if arguments.notify is None else [f"--notify={arguments.notify}"]
    flags = ("retry_failed", "accept_changes", "quiet", "json")
    return words + [f"--{name.replace('_', '-')}" for name in flags if getattr(arguments, name)]


def _submit(arguments: Namespace, plan: Plan, store: Store) -> int:
    """Submit the driver as a job; 0 when Slurm has accepted it."""
    from campaign.launch.detached import driver_log  # noqa: PLC0415
    from campaign.launch.driver_job import (  # noqa: PLC0415
        slurm_site,
        submission_options,
        submit_driver,
    )
    from campaign.launch.live_status import LiveStatus  # noqa: PLC0415
    from campaign.launch.progress import PlainProgress  # noqa: PLC0415
    from campaign.store.layout import writing  # noqa: PLC0415

    options = submission_options(arguments.submit_options or "")
    site = slurm_site(plan)
    with writing(store):
        log = driver_log(store)
    job = submit_driver(
        site=site,
        store=store,
        live=LiveStatus(
            plan, store, PlainProgress(), Path(arguments.campaign), arguments.max_node_hours
        ),
        words=_driver_words(arguments, store),
        log=log,
        options=options,
    )
    if arguments.json:
        print_json({"site": site.name, "job": job, "log": str(log), "store": str(store.root)})
        return 0
    say(
        f"the driver is job {job} of {site.name}; its output: {log}\n"
        f"to watch it: campaign watch {shlex.quote(str(store.root))}\n"
        f"to stop it: scancel --batch --signal=INT {job}"
    )
    return 0


def _detach(arguments: Namespace, store: Store) -> int:
    """Start the driver in a session of its own; 0 as soon as it measures."""
    from campaign.launch.detached import (  # noqa: PLC0415
        driver_log,
        start_detached,
        wait_until_measuring,
    )
    from campaign.store.layout import writing  # noqa: PLC0415

    with writing(store):
        log = driver_log(store)
        begin = log.stat().st_size if log.exists() else 0
        process = start_detached(_driver_words(arguments, store), log)
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
    if ended is not None:  # what it printed, as if it had run here
        text = log.read_bytes()[begin:].decode("utf-8", "replace").rstrip("\n")
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
