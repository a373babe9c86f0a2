"""plan, run and status."""

from __future__ import annotations

import re
from argparse import Namespace
from pathlib import Path
from typing import Any

from campaign.verbs.errors import BadArgument, CantDo
from campaign.verbs.show import print_json, print_table, say

INTERRUPTED = 130


def plan(arguments: Namespace) -> int:
    """The points, counted and listed; with --scripts, every job script."""
    from campaign.plan.plan import make_plan  # noqa: PLC0415

    made = make_plan(Path(arguments.campaign))
    if arguments.scripts:
        return _scripts(made, arguments)
    if arguments.json:
        print_json([point.as_dict() for point in made.points])
        return 0
    rows = []
    for site, partition in made.partitions:
        mine = made.of_partition(site, partition)
        kernels = len({(p.label, p.params) for p in mine})
        settings = len({p.setting for p in mine})
        rows.append([site, partition, kernels, settings, made.campaign.repeats, len(mine)])
    print_table(["site", "partition", "kernels", "settings", "repeats", "points"], rows)
    say(f"{len(made.points)} points in all; the first {min(arguments.limit, len(made.points))}:")
    shown = made.points[: max(arguments.limit, 0)]
    print_table(
        ["id", "site/partition", "kernel", "params", "core MHz", "memory MHz", "repeat"],
        [
            [
                p.id,
                f"{p.site}/{p.partition}",
                p.label,
                p.params,
                p.setting.core_mhz,
                p.setting.mem_mhz,
                p.repeat,
            ]
            for p in shown
        ],
    )
    return 0


def _scripts(made: Any, arguments: Namespace) -> int:
    from campaign.launch.clusters import job_script  # noqa: PLC0415
    from campaign.launch.drive import job_name  # noqa: PLC0415
    from campaign.launch.steps import step_examples  # noqa: PLC0415

    store = default_store(Path(arguments.campaign))
    found = {}
    for site, partition in made.partitions:
        entry = made.sites[site].partitions[partition]
        if entry.scheduler == "slurm":
            name = job_name(store, site, partition)
            found[f"{site}/{partition}"] = {
                "jobs": entry.nodes,
                "script": job_script(made.sites[site], partition, name),
                "steps": step_examples(made, site, partition),
            }
    if arguments.json:
        print_json(found)
        return 0
    for name, each in found.items():
        say(f"==== {name}: {each['jobs']} job{'s' if each['jobs'] > 1 else ''} of this script")
        say(each["script"])
        for step in each["steps"]:
            say(f"     step: {step}")
    if not found:
        say("no partition of this campaign is Slurm's: no job would be submitted")
    return 0


def default_store(campaign: Path) -> Path:
    """The store of a campaign file that names none: beside it, by its name."""
    return campaign.with_name(campaign.stem + ".store")


def run(arguments: Namespace) -> int:
    """Launch what the store lacks; 0 when every planned point is measured."""
    from campaign.launch.clusters import CantLaunch, SubmissionRefused  # noqa: PLC0415
    from campaign.launch.drive import run as drive  # noqa: PLC0415
    from campaign.launch.progress import progress_for  # noqa: PLC0415
    from campaign.plan.plan import make_plan  # noqa: PLC0415
    from campaign.store.layout import StoreUnwritable, create_store  # noqa: PLC0415

    if not re.fullmatch(r"(\[[0-9a-fA-F:]+\]|[^\s:\[\]]+):[0-9]{1,5}", arguments.dashboard):
        raise BadArgument(
            f"--dashboard {arguments.dashboard!r}: HOST:PORT is needed, such as 127.0.0.1:8787 "
            f"(0.0.0.0:8787 listens on every interface)"
        )
    path = Path(arguments.campaign)
    made = make_plan(path)
    store_path = Path(arguments.store) if arguments.store else default_store(path)
    store = create_store(store_path.resolve(), made.campaign.name)
    try:
        progress = progress_for(arguments.quiet)
        ended = drive(made, store, progress, arguments.retry_failed, arguments.dashboard)
    except SubmissionRefused as error:
        raise BadArgument(f"{error}. What was measured is kept; mend the site file") from None
    except (CantLaunch, StoreUnwritable) as error:
        raise CantDo(f"{error}. What was measured is kept; mend it and run again") from None
    if arguments.json:
        print_json(vars(ended) | {"complete": ended.complete, "store": str(store_path)})
    else:
        end = "complete" if ended.complete else "not complete"
        if ended.interrupted:
            end = "interrupted; run it again to go on"
        elif ended.failed:
            end += "; see campaign status, mend the cause and run with --retry-failed"
        elif ended.left:
            end += "; run it again to go on"
        say(
            f"{store_path}: {ended.ok} of {ended.planned} points measured, {ended.failed} failed, "
            f"{ended.left} left: {end}"
        )
    if ended.interrupted:
        return INTERRUPTED
    return 0 if ended.complete else 1


def status(arguments: Namespace) -> int:
    """What is done, failed and left in a store; 0 when nothing is left or failed."""
    from campaign.launch.pace import seconds_to_end  # noqa: PLC0415
    from campaign.store.layout import open_store  # noqa: PLC0415
    from campaign.store.states import store_status  # noqa: PLC0415

    store = open_store(Path(arguments.store))
    now = store_status(store)
    rows: list[dict[str, Any]] = []
    for each in now.partitions:
        end_s = seconds_to_end(each.latest_unix_s, each.left) if each.left else 0.0
        rows.append(
            {
                "site": each.site,
                "partition": each.partition,
                "planned": each.planned,
                "done": each.done,
                "failed": each.failed,
                "left": each.left,
                "seconds_to_end": end_s,
            }
        )
    damage = list(now.damage)
    if arguments.verify:
        from campaign.store.verify import damaged_traces  # noqa: PLC0415

        damage += damaged_traces(store)
    if arguments.json:
        attempts = {name: count for name, (count, _) in now.failures.items()}
        print_json({"partitions": rows, "failed_attempts": attempts, "damage": damage})
    else:
        print_table(list(rows[0]) if rows else ["site"], [list(row.values()) for row in rows])
        for name, (count, text) in now.failures.items():
            say(f"{count} attempts ended with: {name}; the last: {text}")
        for line in damage:
            say(f"damaged: {line}")
        for count, flag in now.flags.values():
            say(f"{count} measurements are flagged, as: {flag}")
    whole = all(row["failed"] == row["left"] == 0 for row in rows)
    return 0 if whole and not (arguments.verify and damage) else 1
