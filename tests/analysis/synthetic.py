"""Measurements of a machine that obeys the model, with known coefficients and voltages."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Any

import numpy as np

from analysis.measurements.observations import Observations, distinct_kernels
from dvfs.setting import Setting, clock_columns

CORE_MHZ = (400.0, 600.0, 800.0, 1000.0)
MEM_MHZ = (500.0, 900.0)
COUNTED = {"sp": (20.0, "core"), "int": (45.0, "core"), "dram": (300.0, "mem")}
"""Class -> (pJ/V^2 per operation, domain)."""
WATTS = {"c1_core": 3.0, "c1_mem": 2.0, "p_misc": 1.0, "g_core": 2e-3, "g_mem": 1e-3}


def numbered(labels: Iterable[str]) -> dict[str, Any]:
    """The fields of Observations that say which kernel each row is of; nodes and uncertainties of
    energies are unknown."""
    kernels, kernel = distinct_kernels(labels)
    unknown = {"energy_std_j": np.full(len(kernel), np.nan), "node": without_node(kernel)}
    return {"kernels": kernels, "kernel": kernel, **unknown}


def without_node(rows: Sized) -> np.ndarray:
    """The nodes of so many rows, unknown."""
    return np.full(len(rows), "", object)


def core_volt(mhz: np.ndarray) -> np.ndarray:
    """A floor of 0.8 up to 550 MHz, then straight to 1 at 1,000 MHz."""
    return 0.8 + 0.2 * np.maximum(np.asarray(mhz) - 550.0, 0.0) / 450.0


def mem_volt(mhz: np.ndarray) -> np.ndarray:
    """0.9 at 500 MHz, 1 at 900 MHz."""
    return 0.9 + 0.1 * (np.asarray(mhz) - 500.0) / 400.0


def grid_observations(
    seed: int,
    kernels: int = 8,
    counted: float = 1.0,
    repeats: int = 1,
    noise: float = 0.0,
    known_voltage: bool = True,
    core_mhz: tuple[float, ...] = CORE_MHZ,
    mem_mhz: tuple[float, ...] = MEM_MHZ,
    clock_tree: bool = True,
    setting_noise: float = 0.0,
) -> Observations:
    """``kernels`` kernels at every setting, the share ``counted`` of them with counts.

    Time is a roofline of both clocks; energy is the model's, with relative normal ``noise`` by
    row and ``setting_noise`` by setting.
    """
    rng = np.random.default_rng(seed)
    settings = [Setting(c, m) for c in core_mhz for m in mem_mhz]
    n = {name: 10.0 ** rng.uniform(8, 10, kernels) for name in COUNTED}
    rows = [(k, s) for k in range(kernels) for s in range(len(settings)) for _ in range(repeats)]
    k, s = np.array(rows).T
    core, mem = clock_columns(settings)[s].T
    core_v, mem_v = core_volt(core), mem_volt(mem)
    time_s = np.maximum(
        (n["sp"] + n["int"])[k] / (core * 1e6 * 100), n["dram"][k] / (mem * 1e6 * 16)
    )
    square = {"core": core_v**2, "mem": mem_v**2}
    energy_j = sum(
        n[name][k] * pj * 1e-12 * square[domain] for name, (pj, domain) in COUNTED.items()
    )
    clock_w = WATTS["g_core"] * core_v**2 * core + WATTS["g_mem"] * mem_v**2 * mem
    constant_w = WATTS["c1_core"] * core_v + WATTS["c1_mem"] * mem_v + WATTS["p_misc"]
    energy_j = energy_j + (constant_w + clock_tree * clock_w) * time_s
    energy_j = energy_j * (1 + noise * rng.uniform(-1, 1, len(rows)))
    energy_j = energy_j * (1 + setting_noise * rng.normal(size=len(settings)))[s]
    has = k < round(counted * kernels)
    counts = {name: np.where(has, n[name][k], np.nan) for name in COUNTED} if has.any() else {}
    ones = np.ones(len(rows))
    return Observations(
        site="synthetic",
        simulated=True,
        **numbered(f"kernel-{i}" for i in k),
        core_mhz=core,
        mem_mhz=mem,
        core_v=core_v if known_voltage else ones,
        mem_v=mem_v if known_voltage else ones,
        time_s=time_s,
        energy_j=energy_j,
        counts=counts,
        domains={name: COUNTED[name][1] for name in counts},
        voltage="table" if known_voltage else "unit",
        setting=s.astype(np.int64),
        settings=settings,
    )
