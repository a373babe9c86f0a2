"""plan, run and status."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from pathlib import Path
from typing import Any

from campaign.verbs.errors import CantDo
from campaign.verbs.show import print_json, print_table

INTERRUPTED = 130


def plan(arguments: Namespace) -> int:
    """The points, counted and listed; with --scripts, every job script."""
    from campaign.plan import make_plan  # noqa: PLC0415

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
    print(f"{len(made.points)} points in all; the first {min(arguments.limit, len(made.points))}:")
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
        print(f"==== {name}: {each['jobs']} job{'s' if each['jobs'] > 1 else ''} of this script")
        print(each["script"])
        for step in each["steps"]:
            print(f"     step: {step}")
    if not found:
        print("no partition of this campaign is Slurm's: no job would be submitted")
    return 0


def default_store(campaign: Path) -> Path:
    """The store of a campaign file that names none: beside it, by its name."""
    return campaign.with_name(campaign.stem + ".store")


def run(arguments: Namespace) -> int:
    """Launch what the store lacks; 0 when every planned point is measured."""
    from campaign.launch.clusters import CantLaunch  # noqa: PLC0415
    from campaign.launch.drive import run as drive  # noqa: PLC0415
    from campaign.launch.progress import progress_for  # noqa: PLC0415
    from campaign.launch.worker import StoreUnwritable  # noqa: PLC0415
    from campaign.plan import make_plan  # noqa: PLC0415
    from campaign.store.layout import create_store  # noqa: PLC0415

    path = Path(arguments.campaign)
    made = make_plan(path)
    store_path = Path(arguments.store) if arguments.store else default_store(path)
    store = create_store(store_path.resolve(), made.campaign.name)
    try:
        ended = drive(made, store, progress_for(arguments.quiet), arguments.retry_failed)
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
        print(
            f"{store_path}: {ended.ok} of {ended.planned} points measured, {ended.failed} failed, "
            f"{ended.left} left: {end}"
        )
    if ended.interrupted:
        return INTERRUPTED
    return 0 if ended.complete else 1


def status(arguments: Namespace) -> int:
    """What is done, failed and left in a store; 0 when nothing is left or failed."""
    from campaign.launch.pace import seconds_to_end  # noqa: PLC0415
    from campaign.store.dataset import current_tables  # noqa: PLC0415
    from campaign.store.layout import open_store  # noqa: PLC0415

    store = open_store(Path(arguments.store))
    tables, tail = current_tables(store)
    frame = tables.measurements
    held = dict(zip(frame["point_id"], frame["status"], strict=True))
    planned = (store.read_json("campaign.json") or {}).get("points", {})
    rows: list[dict[str, Any]] = []
    for name, ids in planned.items():
        states = [held.get(point_id) for point_id in ids]
        done = sum(state == "ok" for state in states)
        failed = sum(state not in ("ok", None) for state in states)
        left = len(states) - done - failed
        site, _, partition = name.partition("/")
        mine = frame[(frame["site"] == site) & (frame["partition"] == partition)]
        rows.append(
            {
                "site": site,
                "partition": partition,
                "planned": len(ids),
                "done": done,
                "failed": failed,
                "left": left,
                "seconds_to_end": seconds_to_end(mine["start_unix_s"], left) if left else 0.0,
            }
        )
    for site in sorted(set(frame["site"]) - {row["site"] for row in rows}):
        mine = frame[frame["site"] == site]
        rows.append(
            {
                "site": site,
                "partition": "imported",
                "planned": len(mine),
                "done": len(mine),
                "failed": 0,
                "left": 0,
                "seconds_to_end": 0.0,
            }
        )
    failures = tables.failures.groupby("status").size().to_dict() if len(tables.failures) else {}
    damage = [f"{name}: byte {at}: {what}" for name, at, what in tail.damage]
    if arguments.json:
        print_json({"partitions": rows, "failed_attempts": failures, "damage": damage})
    else:
        print_table(list(rows[0]) if rows else ["site"], [list(row.values()) for row in rows])
        for name, count in failures.items():
            example = tables.failures[tables.failures["status"] == name].iloc[-1]
            print(f"{count} attempts ended with: {name}; the last: {example['text']}")
        for line in damage:
            print(f"damaged: {line}")
        _print_flags(frame)
    return 0 if all(row["failed"] == row["left"] == 0 for row in rows) else 1


def _print_flags(frame: Any) -> None:
    """How many measurements say something that a reader should know, and an example of each."""
    flagged: dict[str, list[str]] = {}
    for text in frame.loc[frame["provenance"].str.contains('"flags"'), "provenance"]:
        for flag in json.loads(text).get("flags", ()):
            # The same but for its figures is the same flag.
            flagged.setdefault(re.sub(r"[-+.\d]+(e[-+]?\d+)?", "#", flag), []).append(flag)
    for flags in flagged.values():
        print(f"{len(flags)} measurements are flagged, as: {flags[0]}")
