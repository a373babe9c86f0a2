"""Facts about a node, for the record of how a measurement was made.

No library is opened and no program started: the kernel shows the names and versions in /proc and
/sys (Linux: Documentation/filesystems/proc.rst; NVIDIA's driver: README, "The /proc interface").
"""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any

from sites.clocks.shared.kernel_files import optional_text

CPU_KEYS = ("model name", "cpu model", "Model", "Hardware", "cpu")
"""The lines of /proc/cpuinfo that name the processor, by architecture."""
ARM_KEYS = ("CPU implementer", "CPU part", "CPU variant")
SLURM_FACTS = {
    "cluster": "SLURM_CLUSTER_NAME",
    "job": "SLURM_JOB_ID",
    "partition": "SLURM_JOB_PARTITION",
}
NVIDIA = "proc/driver/nvidia"
AMD_DRIVER = "sys/module/amdgpu/version"


def node_facts(root: Path = Path("/")) -> dict[str, Any]:
    """The node's processor, GPUs and kernel, without facts that no file shows.

    ``cpu``: its model; ``cores``: the number of logical cores; ``gpus``: their models;
    ``gpu_driver``: its version; ``board``: the model of an embedded system; ``os_kernel``: the
    release of Linux.
    """
    facts = {
        "cpu": _cpu(optional_text(root, "proc/cpuinfo")),
        "cores": os.cpu_count(),
        "board": optional_text(root, "proc/device-tree/model").strip("\0 \n"),
        "gpus": _nvidia_gpus(root) or _amd_gpus(root),
        "gpu_driver": _nvidia_driver(root) or optional_text(root, AMD_DRIVER),
        "os_kernel": platform.release(),
    }
    return {name: fact for name, fact in facts.items() if fact}


def slurm_facts() -> dict[str, str]:
    """The cluster, job and partition of this process's Slurm job; empty outside a job."""
    return {
        name: os.environ[variable]
        for name, variable in SLURM_FACTS.items()
        if variable in os.environ
    }


def _cpu(cpuinfo: str) -> str:
    first: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        first.setdefault(name.strip(), value.strip())
    named = next((first[key] for key in CPU_KEYS if first.get(key)), "")
    arm = " ".join(f"{key.removeprefix('CPU ')} {first[key]}" for key in ARM_KEYS if key in first)
    return named or arm or platform.machine()


def _nvidia_gpus(root: Path) -> list[str]:
    models = []
    for folder in sorted((root / NVIDIA / "gpus").glob("*")):
        match = re.search(r"^Model:\s*(.*\S)", optional_text(folder, "information"), re.MULTILINE)
        models += [match[1]] if match else []
    return models


def _nvidia_driver(root: Path) -> str:
    match = re.search(r"Module.*?\s(\d+\.[\d.]+)(?!\S)", optional_text(root, f"{NVIDIA}/version"))
    return match[1] if match else ""


def _amd_gpus(root: Path) -> list[str]:
    models = []
    for device in sorted((root / "sys/class/drm").glob("card[0-9]*/device")):
        if optional_text(device, "vendor") == "0x1002" and "-" not in device.parent.name:
            name = optional_text(device, "product_name")
            models.append(name or f"AMD {optional_text(device, 'device')}")
    return models
