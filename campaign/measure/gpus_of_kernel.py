"""Whether the GPUs that a site's meters read, and its control sets, are those of the kernel."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from kernels.kernel import Kernel
from sites.clocks import ClocksError
from sites.meters import MeterError
from sites.nvml_library import NvmlError, NvmlLibrary, find_gpus, open_library, parse_devices
from sites.site_file import Site

NVML = "nvml"
"""The meter, and the clock control, of NVIDIA's GPUs ..."""
NVML_LIMIT = "nvml-power-limit"
"""... and the control of their power limit."""
REMEDY = "name the same GPUs in `devices` of the site file and in CUDA_VISIBLE_DEVICES"


def check_gpus(kernel: Kernel, site: Site, ranks: int, root: Path = Path("/")) -> list[str]:
    """Compare the GPUs on which a kernel runs with those of the site's NVML meters and control.

    The first rank on a node has the first visible GPU, and so on. Which one is the first is known
    only where all have the same name, or CUDA numbers them by bus.

    Args:
        kernel: the kernel; others than those of NVIDIA's GPUs are not checked.
        site: the site.
        ranks: of the kernel on this node.
        root: ``/``, or a folder with a library for tests.

    Returns:
        Sentences about GPUs whose energy counts and on which the kernel does not run.

    Raises:
        MeterError: the energy of one of the kernel's GPUs does not count.
        ClocksError: the clocks, or the power limit, of one of them are not set.
    """
    metered = [m.options for m in site.meters if m.kind == NVML and m.use == "energy"]
    controlled = {NVML: site.clocks.options} if site.clocks.control == NVML else {}
    limit = site.power_limit
    if limit is not None and limit.control == NVML_LIMIT:
        controlled[NVML_LIMIT] = limit.options
    of_gpus = any(need.startswith("an NVIDIA GPU") for need in kernel.needs)
    if not of_gpus or not (metered or controlled):
        return []
    try:
        with closing(open_library(root)) as library:
            visible = find_gpus(library)
            counted = {i for options in metered for i in _indices(library, options)}
            set_by = {control: _indices(library, o) for control, o in controlled.items()}
    except NvmlError:
        return []  # the meter or the control says why
    by_bus = os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if by_bus or len({gpu.name for gpu in visible}) == 1:
        for gpu in visible[:ranks]:
            runs = f"the kernel runs on {gpu.label}"
            if metered and gpu.index not in counted:
                raise MeterError(f"{runs}, and the meter nvml reads {_named(counted)}", REMEDY)
            for control, indices in set_by.items():
                if gpu.index not in indices:
                    sets = f"the control {control} sets {_named(indices)}"
                    raise ClocksError(f"{runs}, and {sets}", REMEDY)
    if len(counted) <= ranks:
        return []
    return [
        f"the energy is of {_named(counted)}, and the kernel runs on {ranks} of them: the others "
        f"add their idle power; {REMEDY}"
    ]


def _indices(library: NvmlLibrary, options: Mapping[str, Any]) -> set[int]:
    """The GPUs that the options of a meter or control choose."""
    return {gpu.index for gpu in find_gpus(library, parse_devices(options))}


def _named(indices: set[int]) -> str:
    listed = ", ".join(map(str, sorted(indices)))
    return f"GPU {listed}" if len(indices) == 1 else f"GPUs {listed}"
