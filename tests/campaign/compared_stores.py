"""Stores to compare, written by hand: nothing in them was measured.

python -m tests.campaign.compared_stores   # writes tests/data/stores/driver-change
"""

from __future__ import annotations

import json
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from campaign.store.journal import JournalWriter, encode, encode_setup
from campaign.store.layout import Store, create_store
from campaign.store.measurement import Measurement
from campaign.store.setups import setup_id
from dvfs.setting import Setting
from tests.points import a_point

SITE = "mycluster"
DRIVERS = ("535.183.01", "550.54.15")
START_UNIX_S = (1_767_225_600.0, 1_772_323_200.0)
"""2026-01-01 and 2026-03-01, UTC."""
KERNELS = {"dp_fma": 1.0, "fmm": 1.025, "stream": 1.0}
"""Kernel -> how much longer it takes, with as much more energy, with the second driver."""
CLOCKS_MHZ = (1200.0, 1410.0)


def setup_record(driver: str) -> dict[str, Any]:
    """How measurements were made with a driver."""
    return {
        "campaign": "drivers",
        "site": {"name": SITE},
        "partition": "gpu",
        "protocol": {"min_duration_s": 2.0},
        "versions": {"version": "0.1.0"},
        "node": {"name": "node01", "gpus": ["NVIDIA A100"], "gpu_driver": driver},
    }


def write(folder: Path, drivers: tuple[str, ...] = DRIVERS, repeats: int = 3) -> Store:
    """A store with so many repeats under each driver, the first driver's first."""
    store = create_store(folder, "drivers")
    with JournalWriter(store.journals) as journal:
        for driver in drivers:
            number = DRIVERS.index(driver)
            random = np.random.default_rng(number)
            record = setup_record(driver)
            journal.append(encode_setup(record))
            points = product(range(repeats), KERNELS, CLOCKS_MHZ)
            for minute, (repeat, kernel, core_mhz) in enumerate(points):
                point = a_point(
                    kernel,
                    site=SITE,
                    partition="gpu",
                    params=json.dumps({"n": 1}),
                    setting=Setting(core_mhz, 1215.0),
                    repeat=repeat + repeats * number,
                )
                slower = KERNELS[kernel] if number else 1.0
                noise = np.exp(random.normal(0.0, (0.002, 0.005)))
                journal.append(
                    encode(
                        Measurement(
                            point=point,
                            status="ok",
                            clock_proof="read back",
                            node="node01",
                            setup=setup_id(record),
                            start_unix_s=START_UNIX_S[number] + 60.0 * minute,
                            time_s=float(round(1410.0 / core_mhz * slower * noise[0], 6)),
                            iterations=2,
                            energy_j=float(round(250.0 * slower * noise[1], 4)),
                            provenance={"simulated": False},
                        )
                    )
                )
    return store


if __name__ == "__main__":
    target = Path(__file__).parents[1] / "data" / "stores" / "driver-change"
    shutil.rmtree(target, ignore_errors=True)
    write(target)
