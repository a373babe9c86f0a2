"""What a cluster's Slurm does with its options for clocks: from its configuration and this node."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sites.clocks.shared.kernel_files import CPUS, optional_text
from sites.slurm_environment import run_slurm, slurm_environment

NO_ANSWER_S = 30.0
STEPS = 64
"""Clocks that Slurm assumes where the driver lists none (FREQ_LIST_MAX in its cpu_frequency.c)."""
WRITES_LIMITS = (23, 11)
"""The first version of Slurm whose --cpu-freq with one number also writes the policies' limits."""


@dataclass(frozen=True)
class SlurmClocks:
    """Sentences without a full stop. ``obstacles``: why Slurm's option sets no clock; ``remarks``:
    how else it differs from the request."""

    obstacles: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def ask_here(*argv: str) -> str:
    """The output of one of Slurm's commands on this host; empty where it is not installed, fails,
    or does not answer."""
    try:
        result = run_slurm(argv, slurm_environment(), NO_ANSWER_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout if result.returncode == 0 else ""


def read_configuration(printed: str) -> dict[str, str]:
    """Key -> value in the output of ``scontrol show config``."""
    return dict(re.findall(r"^(\w+)[ \t]*=[ \t]*(.*?)[ \t]*$", printed, re.MULTILINE))


def slurm_clocks(configuration: Mapping[str, str], device: str, root: Path) -> SlurmClocks:
    """The effects of ``--cpu-freq`` (device ``cpu``) or ``--gpu-freq`` (``gpu``) on a cluster.

    Args:
        configuration: from :func:`read_configuration`; a missing key counts as Slurm's default.
        device: whose clocks are set.
        root: the folder with the files of a node of the cluster.

    Source: src/common/cpu_frequency.c and src/plugins/task of Slurm, 20.11 to 26.05.
    """
    if device == "gpu":
        types = configuration.get("GresTypes", "gpu")
        if "gpu" in types.split(","):
            return SlurmClocks()
        return SlurmClocks((f"GresTypes={types}: without gpu, --gpu-freq sets nothing",))
    obstacles, remarks = [], []
    plugins = configuration.get("TaskPlugin", "task/affinity")
    if "affinity" not in plugins and "cgroup" not in plugins:
        obstacles.append(
            f"TaskPlugin={plugins}: --cpu-freq is shown for jobs and steps, and sets nothing; it "
            "needs task/affinity or task/cgroup"
        )
    elif "affinity" not in plugins and configuration.get("ConstrainCores", "yes") == "no":
        obstacles.append(
            f"TaskPlugin={plugins} with ConstrainCores=no in cgroup.conf: --cpu-freq sets nothing; "
            "it needs ConstrainCores=yes or task/affinity"
        )
    governors = configuration.get("CpuFreqGovernors", "UserSpace")
    if "userspace" not in governors.lower():
        obstacles.append(
            f"CpuFreqGovernors={governors}: srun refuses --cpu-freq with a clock, for which "
            "UserSpace must be allowed"
        )
    folder = f"{CPUS}/cpu0/cpufreq"
    driver = optional_text(root, f"{folder}/scaling_driver") or "cpufreq's driver"
    offered = optional_text(root, f"{folder}/scaling_available_governors").split()
    if offered and "userspace" not in offered:
        version = re.match(r"(\d+)\.(\d+)", configuration.get("SLURM_VERSION", ""))
        if version is None or (int(version[1]), int(version[2])) < WRITES_LIMITS:
            obstacles.append(
                f"{driver} has no governor userspace, through which Slurm before 23.11 sets a clock"
            )
        else:
            remarks.append(
                f"{driver} has no governor userspace: Slurm writes scaling_min_freq and "
                "scaling_max_freq alone"
            )
    if offered and not (root / folder / "scaling_available_frequencies").exists():
        remarks.append(
            f"{driver} lists no clocks: Slurm sets the next higher of {STEPS} between "
            "scaling_min_freq and scaling_max_freq, not the clock that is asked for"
        )
    return SlurmClocks(tuple(obstacles), tuple(remarks))
