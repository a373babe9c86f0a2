"""What ``campaign demo --gpu`` asks before it measures, and what it prints."""

from __future__ import annotations

import os
from argparse import Namespace
from typing import TYPE_CHECKING, Any

import numpy as np

from campaign.verbs.printing import explain, print_table, say
from dvfs.errors import ArgumentError

if TYPE_CHECKING:
    import xarray as xr

    from campaign.results import Results


def check_gpu() -> None:
    """Whether GPU kernels can run here. Of several GPUs the first one is taken, by
    CUDA_VISIBLE_DEVICES, so that the meter reads the one that the kernels run on.

    Raises:
        ArgumentError: with what is missing, and what to install or where to run.
    """
    from campaign.doctor.gpu_examination import examine_gpus  # noqa: PLC0415
    from kernels.cuda.device import NO_DRIVER_REMEDY  # noqa: PLC0415

    found = examine_gpus()
    if found is None:
        raise ArgumentError(f"--gpu: no NVIDIA GPU can be used here: {NO_DRIVER_REMEDY}")
    if found.problem is not None:
        raise ArgumentError(f"--gpu: {found.problem}: {found.remedy}")
    os.environ["CUDA_VISIBLE_DEVICES"] = found.uuids[0]
    say(f"{found.gpus[0]} ({found.uuids[0]}), driver {found.driver}, CUDA {found.cuda}")


def show_measured(store: Results) -> None:
    """Print the status of the store, and each kernel's time, energy and clock."""
    from campaign.verbs import status  # noqa: PLC0415

    status.run(Namespace(store=str(store.path), verify=False, all=True, json=False))
    say()
    print_table(
        ["kernel", "ms", "J", "W", "pJ per operation", "core MHz"],
        measured_rows(store.scalars),
    )
    explain(
        "ms, J: of one iteration; pJ per operation: all energy, constant power too, divided by the "
        "arithmetic operations; core MHz: as NVML showed it meanwhile. Clocks were not set."
    )
    say(f"store: {store.path}")


def measured_rows(dataset: xr.Dataset) -> list[list[Any]]:
    """A row for each kernel that was measured: label, ms, J, W, pJ per operation, core MHz; the
    means over repeats, by the order of their energies per operation."""
    from dvfs.dataset import COUNT_PREFIX, is_complete  # noqa: PLC0415
    from dvfs.kernel_instance import dataset_kernels  # noqa: PLC0415

    done = is_complete(dataset["status"].values)
    labels = dataset_kernels(dataset)
    pairs = list(zip(dataset["kernel"].values, dataset["params"].values, strict=True))
    of_kernel = np.array([labels[pair].label for pair in pairs], object)
    operations = sum(
        np.nan_to_num(dataset[COUNT_PREFIX + name].values.astype(float))
        for name in ("sp", "dp", "half", "int")
        if COUNT_PREFIX + name in dataset
    )
    rows = []
    for label in sorted(set(of_kernel[done].tolist())):
        mine = done & (of_kernel == label)
        time_s, energy_j, core_mhz = (
            float(dataset[name].values[mine].astype(float).mean())
            for name in ("time_s", "energy_j", "core_mhz_achieved")
        )
        counted = float(np.mean(operations[mine])) if np.ndim(operations) else 0.0
        each_pj = energy_j / counted * 1e12 if counted else np.nan
        rows.append([label, time_s * 1e3, energy_j, energy_j / time_s, each_pj, core_mhz])
    return sorted(rows, key=lambda row: (np.isnan(row[4]), row[4]))
