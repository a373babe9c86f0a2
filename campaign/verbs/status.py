"""status: the points done, failed and left in a store."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping

from campaign.verbs.options import add_all, add_json, add_store
from campaign.verbs.printing import (
    explain,
    print_json,
    print_table,
    say,
    shortened,
)

SUMMARY = "show what is done, failed and left, and when it will end"
EXAMPLE = "campaign status campaign-demo/store"
COLUMNS = {
    "planned": "planned",
    "done": "done",
    "failed": "failed",
    "left": "left",
    "waiting": "to retry",
    "seconds_to_end": "seconds left",
    "spent": "node-hours",
}


def add_arguments(parser: ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument(
        "--verify",
        action="store_true",
        help="read every file, all traces too, and name damaged ones",
    )
    add_all(parser)
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Print the status; 0 where no planned point is left or failed, and nothing is damaged."""
    from campaign.results import open_store  # noqa: PLC0415

    status = open_store(arguments.store).status(arguments.verify)
    if arguments.json:
        print_json(status.as_dict())
    else:
        spent = [row.spent for row in status.partitions]
        rows = [
            row | {"spent": None if hours is None else hours.number}
            for row, hours in zip(status.rows(), spent, strict=True)
        ]
        names = ("planned", "done", "clock_unproven", "failed", "left", "waiting")
        total = {name: sum(row[name] or 0 for row in rows) for name in names}
        unproven = total["clock_unproven"]
        proofs = f" (ok {total['done'] - unproven}, clock unproven {unproven})" if unproven else ""
        again = f" ({total['waiting']} of them tried again after a failure)"
        say(
            f"{total['done']} of {total['planned']} points done{proofs}, {total['failed']} failed, "
            f"{total['left']} left{again * bool(total['waiting'])}"
        )
        # A column of zeros, or one that nothing imported has, would only take room.
        shown = {"waiting": bool(total["waiting"]), "spent": any(spent)}
        columns = [name for name in COLUMNS if shown.get(name, True)]
        header = ["site", "partition", *(COLUMNS[name] for name in columns)]
        table = [
            [
                *(shortened(row[name], 24) for name in ("site", "partition")),
                *(row[name] for name in columns),
            ]
            for row in rows
            if any(row[name] for name in names)  # of a plan before the last one nothing may be left
        ]
        print_table(header, table, arguments.all)
        if status.failures:
            _print_failures(status.failures, total["failed"] + total["waiting"], arguments.store)
        for line in status.damage:
            explain(f"damaged: {line}")
        for mixture in status.mixtures:
            explain(f"{mixture.site}: {mixture.text}")
        for count, flag in status.flags:
            explain(f"{count} measurements are flagged, for example: {flag}")
    return 0 if status.complete and not status.damage else 1


def _print_failures(
    failures: Mapping[str, tuple[int, str]], failed_points: int, store: str
) -> None:
    """Print the failed attempts by class; only their number where no point is failed now."""
    command = f"campaign failures {store}"
    if not failed_points:
        count = sum(count for count, _ in failures.values())
        explain(f"{count} earlier attempts failed; no point is failed now (list them: {command})")
        return
    for name, (count, text) in failures.items():
        last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
        explain(f"{count} attempts failed: {name}; the last: {last.strip()}")
    explain(f"more: {command}")
