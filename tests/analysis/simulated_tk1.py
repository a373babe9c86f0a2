"""Measurements of the simulated Jetson TK1, made without a campaign: counts in, rows out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dvfs.dataset import Columns
from dvfs.setting import Setting
from sites.simulated.machine import run
from sites.site_file import Site
from sites.site_reading import built_in_sites, read_site
from tests.frames import as_columns

TABLE_I = [
    (852, 924),
    (396, 924),
    (852, 528),
    (648, 528),
    (396, 528),
    (852, 204),
    (648, 204),
    (396, 204),
    (756, 924),
    (180, 528),
    (540, 528),
    (540, 204),
    (756, 204),
    (72, 68),
    (756, 68),
    (180, 924),
]
"""Choi & Vuduc 2016, Table I: (core MHz, memory MHz); the first eight are of type T."""


def simulated_tk1(noise: str) -> Site:
    site = read_site(built_in_sites()["jetson-tk1"])
    return site.model_copy(update={"simulated": site.simulated.model_copy(update={"noise": noise})})


def kernels(per_family: int = 8) -> dict[str, dict[str, float]]:
    """Kernel -> counts of one iteration: the families of Table II over a range of intensities."""
    counts_of = {}
    words = 2.0**22
    for name in ("sp", "dp", "int"):
        for ops in np.geomspace(1, 256, per_family).round():
            counts_of[f"{name}-{ops:g}"] = {name: 2 * ops * words, "dram": 4 * words}
    for name in ("shared", "l2", "dram"):
        for ops in np.geomspace(1, 64, per_family // 2).round():
            counts_of[f"{name}-{ops:g}"] = {"sp": 2 * ops * words, name: 4 * words}
    return counts_of


def other_board(spread: float, seed: int, name: str) -> Site:
    """The simulated board with other constants: each times exp of a normal number of so much
    standard deviation. Its settings differ from the model in their own way too."""
    rng = np.random.default_rng(seed)
    site = simulated_tk1("default")

    def changed(value: float) -> float:
        return float(value * np.exp(spread * rng.normal()))

    constants = {
        name: {key: changed(value) for key, value in getattr(site.simulated, name).items()}
        for name in ("energy_pj_per_v2", "rate_per_cycle")
    } | {
        name: changed(getattr(site.simulated, name))
        for name in ("leakage_core_w_per_v", "leakage_mem_w_per_v")
    }
    changed = site.simulated.model_copy(update=constants)
    return site.model_copy(update={"name": name, "simulated": changed})


def simulated_columns(
    noise: str,
    salt: str = "",
    per_family: int = 8,
    site: Site | None = None,
    limits_w: Sequence[float | None] = (None,),
) -> Columns:
    """``site``: another board than the built-in one; ``limits_w``: power limits, at each pair."""
    name, site = ("tk1", simulated_tk1(noise)) if site is None else (site.name, site)
    rows = []
    settings = [
        Setting(float(c), float(m), power_limit_w=limit) for c, m in TABLE_I for limit in limits_w
    ]
    for kernel, counts in kernels(per_family).items():
        for setting in settings:
            seed = f"{salt}{kernel} {setting.core_mhz:g} {setting.mem_mhz:g}"
            seed += "" if setting.power_limit_w is None else f" {setting.power_limit_w:g}"
            window = run(site, counts, setting, 20, seed)
            core_v, mem_v = site.volts(setting)
            rows.append(
                {
                    "point_id": seed,
                    "site": name,
                    "kernel": kernel,
                    "params": "{}",
                    "status": "ok",
                    **setting.as_dict(),
                    "core_mhz_achieved": window.achieved.core_mhz,
                    "mem_mhz_achieved": window.achieved.mem_mhz,
                    "core_v": core_v,
                    "mem_v": mem_v,
                    "voltage_origin": "table",
                    "simulated": True,
                    "time_s": window.duration_s / 20,
                    "energy_j": np.trapezoid(window.power_w, window.time_ns / 1e9) / 20,
                    "repeat": 0,
                    "node": "simulated",
                }
                | {f"n_{k}": v for k, v in counts.items()}
            )
    return as_columns(pd.DataFrame(rows))
