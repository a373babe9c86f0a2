"""The energy of whole nodes that Slurm's accounting records for a job step, in J; for a check.

``ConsumedEnergyRaw`` of ``sstat -n -P -o JobID,ConsumedEnergyRaw -j JOB.STEP`` while the step runs,
and of ``sacct`` with the same arguments once it has ended (man pages sstat(1), sacct(1)). Slurm's
slurmd reads a meter of the node (IPMI, RAPL, Cray's or a GPU's, by AcctGatherEnergyType) every
JobAcctGatherFrequency's ``energy`` seconds, 30 unless set otherwise.

- It is the energy of the step's **whole nodes**, including other jobs: use it for exclusive jobs.
- Steps that run at the same time each count the whole node, so they are never summed: one step is
  read, ``batch`` unless the option ``step`` names another. A batch step is on the job's first node.
- An empty value, 0, or Slurm's number for "no value" shows that no energy is gathered. It is an
  error. A step younger than the gathering interval has the same values.
- A counter that was reset during the step gives almost 2^64: an error too.

A reading runs a command that queries the nodes, which takes 0.01 s to several seconds: read before
and after a run, not during it. The time of a reading is the middle of the command; the energy is
older by up to the gathering interval.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import ExitStack
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from sites.described_options import seconds_option
from sites.meters.shared.command_output import find_program, run_command
from sites.meters.shared.counter import Counter
from sites.meters.shared.meter import AbsentMeterError, Channel, MeterDescription, MeterError
from sites.meters.shared.open_meter import OpenMeter

ABOUT = MeterDescription(
    kind="slurm",
    reads="ConsumedEnergyRaw of a Slurm job's step; a check",
    domains="node",
    needs="an AcctGatherEnergyType plugin",
    options={
        "job": "its number (default: SLURM_JOB_ID)",
        "step": "its step (default: batch)",
        "limit_s": "seconds a command may take (default: 30)",
    },
    probed=False,
)

LIMIT_S = 30.0
PERIOD_S = 30.0
"""AcctGatherNodeFreq and JobAcctGatherFrequency at most sites (slurm.conf(5))."""
GAIN_PCT = 5.0
"""Assumed: it depends on the node's meter, which Slurm does not name."""
NO_VALUES = (0, 2**32 - 2)
"""No energy was gathered; NO_VAL of slurm.h."""
RESET_J = 2**63
"""A reading of this or more is NO_VAL64, or 2^64 less the energy lost when a counter was reset."""

ABSENT_REMEDY = "run it on a node of the cluster, with Slurm's programs on PATH"
COMMAND_REMEDY = "check the job's number with `squeue -j {job}`, and `sacctmgr show cluster`"
NOTHING_REMEDY = (
    "AcctGatherEnergyType in slurm.conf must name a plugin (`scontrol show config | grep "
    "AcctGatherEnergy`), and a step must be older than JobAcctGatherFrequency"
)


def open_meter(root: Path, options: Mapping[str, Any]) -> OpenMeter:
    """Open the accounting of a step, without a first reading."""
    job, step, limit_s = parse_options(options)
    if job is None:
        raise MeterError(
            "this is not a Slurm job: SLURM_JOB_ID is not set",
            "run it in a job, or give the job's number in the option `job`",
        )
    programs = {name: find_program(name, root) for name in ("sstat", "sacct")}
    paths = {name: path for name, path in programs.items() if path is not None}
    if len(paths) < len(programs):
        missing = ", ".join(sorted(set(programs) - set(paths)))
        raise AbsentMeterError(f"{missing}: not installed", ABSENT_REMEDY)
    name = f"{job}.{step}"
    channel = Channel(
        name="node/energy",
        domain="node",
        kind="energy",
        resolution=1.0,
        period_s=PERIOD_S,
        gain_pct=GAIN_PCT,
    )
    counter = Counter(f"ConsumedEnergyRaw of step {name}", Fraction(1))
    read_raw = partial(_read_energy_j, paths["sstat"], paths["sacct"], name, limit_s)
    return OpenMeter(ABOUT.kind, [channel], [counter], read_raw, ExitStack())


def _read_energy_j(sstat: str, sacct: str, step: str, limit_s: float) -> list[int]:
    """Run sstat, or sacct once the step has ended, and return the step's energy in J.

    Raises:
        MeterError: Slurm does not know the step, gathers no energy, or a command fails.
    """
    remedy = COMMAND_REMEDY.format(job=step.partition(".")[0])
    words = ["-n", "-P", "-o", "JobID,ConsumedEnergyRaw", "-j", step]
    try:
        output = run_command([sstat, *words], limit_s, remedy)
        value = parse_energy(output, step)
    except MeterError:
        value = None  # sstat fails for a step that is not running.
    program = sstat
    if value is None:
        program = sacct
        value = parse_energy(run_command([program, *words], limit_s, remedy), step)
    if value is None:
        raise MeterError(f"`{program}` does not know step {step}", remedy)
    is_energy = re.fullmatch("[0-9]{1,20}", value) and int(value) not in NO_VALUES
    if not is_energy or int(value) >= RESET_J:
        raise MeterError(
            f"`{program}` has no energy of step {step}: ConsumedEnergyRaw is {value[:40]!r}",
            NOTHING_REMEDY,
        )
    return [int(value)]


def parse_energy(output: str, step: str) -> str | None:
    """The energy in a step's line ``JOB.STEP|ENERGY``; None if there is no such line."""
    for line in output.splitlines():
        name, _, value = line.strip().partition("|")
        if name == step:
            return value.strip()
    return None


def parse_options(options: Mapping[str, Any]) -> tuple[str | None, str, float]:
    """The job (None where it is unknown), the step and ``limit_s``."""
    limit_s = seconds_option(options, "limit_s", LIMIT_S)
    job = options.get("job", os.environ.get("SLURM_JOB_ID"))
    if job is not None and not re.fullmatch(r"\d+(_\d+)?", str(job)):
        raise ValueError(f"job is the number of a Slurm job such as 1234 or 1234_5, not {job!r}")
    step = options.get("step", "batch")
    if isinstance(step, bool) or not re.fullmatch(r"\d+|batch", str(step)):
        raise ValueError(f"step is the number of a step or batch, not {step!r}")
    return (None if job is None else str(job)), str(step), limit_s
