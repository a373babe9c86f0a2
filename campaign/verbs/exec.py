"""exec: run and measure a program at the setting of its policy."""

from __future__ import annotations

import argparse
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dvfs.errors import ArgumentError

if TYPE_CHECKING:
    from campaign.policy.orders import Order, Orders

SUMMARY = "run a program at its policy's setting, measure it, and restore the clocks"
EXAMPLE = "campaign exec --site localhost -- python3 --version"
MORE = (
    "The program runs as it would by itself: output, exit code and signals are its own. Where "
    "the policy or the clocks fail, it runs at the clocks as found, and one line says why."
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--policy", metavar="F", help="the policy file; without one, only measure")
    parser.add_argument(
        "--kernel",
        metavar="K",
        help="the policy's entry, by its name or its kernel (default: the one that matches the "
        "job's name, account and partition, and the program)",
    )
    parser.add_argument(
        "--site",
        metavar="F",
        help="the site file, with the clock control and the meters (default: the policy's site)",
    )
    parser.add_argument(
        "--records",
        metavar="F",
        help="append the measurement to this file, a line of JSON (default: "
        "~/.local/state/dvfs-campaign/exec.jsonl)",
    )
    parser.add_argument("program", nargs=argparse.REMAINDER, help="-- PROGRAM and its arguments")


def run(arguments: Namespace) -> int:
    """Run the program and return its exit code."""
    from campaign.measure.program_run import (  # noqa: PLC0415
        RunRequest,
        become,
        default_records,
        run_program,
    )
    from dvfs.setting import AS_FOUND  # noqa: PLC0415

    words = arguments.program
    argv = words[1:] if words[:1] == ["--"] else words
    if not argv:
        raise ArgumentError("missing: the program: campaign exec ... -- PROGRAM")
    if arguments.policy is None and arguments.site is None:
        raise ArgumentError("missing: --policy F, or --site F to measure alone")
    if os.environ.get("SLURM_LOCALID", "0") != "0":
        become(argv)  # one task of a node sets its clocks and reads its meters
    problems: list[str] = []
    site, entry = None, None
    facts: dict[str, Any] = {}
    try:
        from campaign.policy.exec_inputs import checked_inputs  # noqa: PLC0415

        site, orders = checked_inputs(arguments.site, arguments.policy)
        if orders is not None:
            entry, facts = _entry(arguments.kernel, orders, argv)
    except Exception as error:  # the program runs whatever is wrong here
        action = "measured" if arguments.policy is None else "applied"
        problems.append(f"not {action}: {str(error).splitlines()[0]}")
    applies = entry is not None and facts.get("arm") == "policy"
    request = RunRequest(
        site=site,
        setting=entry.setting if entry is not None and applies else AS_FOUND,
        facts={"site": None if site is None else site.name, **facts},
        problems=problems,
    )
    records = Path(arguments.records) if arguments.records else default_records()
    return run_program(argv, request, records)


def _entry(
    kernel: str | None, orders: Orders, argv: list[str]
) -> tuple[Order | None, dict[str, Any]]:
    """The policy's entry for this run, and the facts about it for the record."""
    job = job_of(argv, os.environ)
    if orders.opts_out(job.get("comment", ""), os.environ):
        return None, {"arm": "opted out"}
    entry = orders.order(kernel, job)
    if entry is None:
        return None, {"arm": "no entry"}
    if os.environ.get("SLURM_CPU_FREQ_REQ") or os.environ.get("SLURM_GPU_FREQ"):
        raise ArgumentError("Slurm has set the clocks of this job already")
    run_id = os.environ.get("SLURM_JOB_ID") or f"{os.getpid()}-{os.times().elapsed}"
    return entry, {"entry": entry.name, "mark": entry.mark, "arm": orders.arm(run_id)}


def job_of(argv: list[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The properties of the job that this process runs in, by the keys of a match."""
    values = {
        "job_name": environment.get("SLURM_JOB_NAME"),
        "executable": Path(argv[0]).name,
        "account": environment.get("SLURM_JOB_ACCOUNT"),
        "partition": environment.get("SLURM_JOB_PARTITION"),
        "comment": environment.get("SLURM_JOB_COMMENT"),
        "arguments": " ".join(argv[1:]),
    }
    return {key: value for key, value in values.items() if value is not None}
