"""What the checks find in damaged tables, word for word, and from which size of damage on.

Each finding is checked against the damage that was made beside (test_quality, test_wrong_tables).
Here the sizes are those just below and just above a limit, and nothing else may be said either.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from analysis.quality import Finding, describe
from tests.analysis.test_quality import CORE_MHZ, MEM_MHZ, findings, sweep
from tests.analysis.test_wrong_tables import counted
from tests.frames import as_columns
from tests.kept import check_kept

Damage = Callable[[float], pd.DataFrame]


def at(frame: pd.DataFrame, kernel: str = "", core: float = 0, mem: float = 0) -> pd.Series:
    """The rows of a kernel, of a core clock, of a memory clock; 0 and "" are all."""
    mask = frame["kernel"].eq(kernel) if kernel else frame["kernel"].ne("")
    mask &= (frame["core_mhz"] == core) | (core == 0)
    return mask & ((frame["mem_mhz"] == mem) | (mem == 0))


def scaled(
    frame: pd.DataFrame, mask: pd.Series | np.ndarray, factor: float, *columns: str
) -> pd.DataFrame:
    """The rows of ``mask`` times a factor, in some columns (energy without any)."""
    frame = frame.astype(dict.fromkeys(columns, float))
    frame.loc[mask, list(columns or ("energy_j",))] *= factor
    return frame


def some(frame: pd.DataFrame, *rows: int) -> np.ndarray:
    return np.isin(np.arange(len(frame)), rows)


def on_nodes(frame: pd.DataFrame, *names: str) -> pd.DataFrame:
    """Each repeat on a node of its own."""
    return frame.assign(node=np.array(names)[frame["repeat"] % len(names)], repeat=0)


def drifting(size: float) -> pd.DataFrame:
    frame = sweep(10, noise=0.01)
    late = frame["start_unix_s"] > frame["start_unix_s"].quantile(0.7)
    return scaled(frame, late, size, "energy_j", "time_s")


def with_volts(core_v: Callable[[np.ndarray], np.ndarray]) -> pd.DataFrame:
    frame = counted(7)
    return frame.assign(core_v=core_v(frame["core_mhz"].to_numpy()), mem_v=1.0)


def fixed(kernels: list[str], seconds: list[float], scatter: float) -> pd.DataFrame:
    """Kernels that run for a fixed time, but for some scatter from setting to setting."""
    frame = counted(10, noise=0.002)
    for kernel, time_s in zip(kernels, seconds, strict=True):
        mask = at(frame, kernel)
        power_w = frame["energy_j"][mask] / frame["time_s"][mask]
        steps = 1 + scatter * np.linspace(-0.5, 0.5, int(mask.sum()))
        frame.loc[mask, "time_s"] = time_s * steps
        frame.loc[mask, "energy_j"] = power_w * time_s * steps
    return frame


def with_power(size: float, rows: tuple[int, ...]) -> pd.DataFrame:
    frame = sweep(3)
    power_w = (frame["energy_j"] / frame["time_s"]).to_numpy(copy=True)
    power_w[list(rows)] *= size
    return frame.assign(provenance=[json.dumps({"power_w": w}) for w in power_w.tolist()])


def achieved(reached: float, count: int) -> pd.DataFrame:
    frame = sweep(6).assign(core_mhz_achieved=lambda f: f["core_mhz"], mem_mhz_achieved=np.nan)
    frame.loc[frame.index[:count], "core_mhz_achieved"] *= reached
    return frame


def capped(seed: int, clocks: float = 0.0) -> pd.DataFrame:
    """One nominal setting; the clock follows a cap, and is reported where ``clocks`` is not 0."""
    frame = sweep(seed, mem=MEM_MHZ[1:2], repeats=1)
    reached = 1200.0 - clocks * (1200.0 - frame["core_mhz"])
    frame = frame.assign(core_mhz=1200.0, repeat=frame.groupby("kernel").cumcount())
    return frame.assign(core_mhz_achieved=reached) if clocks else frame


def nominal(runs_at: float) -> pd.DataFrame:
    """At a nominal 900 MHz another clock runs."""
    return sweep(15, noise=0.004, real_core=np.where(CORE_MHZ == 900, runs_at, CORE_MHZ))


def copied(settings: int) -> pd.DataFrame:
    """A kernel's values under another name, at so many settings; the others are measured."""
    frame = sweep(1)
    copy = frame[frame["kernel"] == "k2"].assign(kernel="again")
    pairs = copy.groupby(["core_mhz", "mem_mhz"], sort=False).ngroup()
    own = pairs >= settings
    copy.loc[own, ["time_s", "energy_j"]] *= 1.0 + 1e-3 * np.arange(own.sum())[:, None]
    return pd.concat([frame, copy], ignore_index=True)


def operations(size: float) -> pd.DataFrame:
    """Counts of a kernel that follow the core clock to some power."""
    frame = counted(8)
    grown = frame["n_sp"] * (frame["core_mhz"] / 500.0) ** size
    return frame.assign(n_sp=grown.where(frame["kernel"].isin(["k1", "k5"]), frame["n_sp"]))


DAMAGES: dict[str, tuple[list[float], Damage]] = {
    "an outlier among three repeats": (
        [0.8637, 0.8654, 1.27, 1.273, 1.5],
        lambda x: scaled(sweep(1), some(sweep(1), 100), x),
    ),
    "outliers among two repeats": (
        [0.88, 0.8825, 0.7],
        lambda x: scaled(sweep(2, repeats=2), some(sweep(2, repeats=2), 7, 90, 200, 301), x),
    ),
    "outliers of hardly any noise": (
        [1.009, 1.011, 1.5],
        lambda x: scaled(sweep(3, noise=1e-5), some(sweep(3), 5, 400), x),
    ),
    "a level that changes": ([0.945, 0.9487, 0.975, 0.9775, 1.024, 1.028], drifting),
    "energy of one kernel": (
        [0.02946, 0.0296, 29.41, 29.53],
        lambda x: scaled(counted(5), at(counted(5), "k3"), x),
    ),
    "time of one kernel": (
        [0.007812, 0.007948, 166.6, 167.2, 10670.0, 10700.0, 166300.0, 166900.0],
        lambda x: scaled(counted(5), at(counted(5), "k3"), x, "time_s", "energy_j"),
    ),
    "energy at one setting": (
        [0.5865, 0.5888, 1.312, 1.316, 50.43, 50.62],
        lambda x: scaled(counted(6), at(counted(6), "", 800, 1600), x),
    ),
    "energy of three cells": (
        [1.756, 1.761, 27.05, 27.11],
        lambda x: scaled(counted(6), at(counted(6), "k2", 800) & at(counted(6)), x),
    ),
    "energy of all": ([0.005162, 0.005316, 36.59, 36.67], lambda x: scaled(
        counted(3), at(counted(3)), x)),
    "energy and time of all": (
        [37.77, 37.86],
        lambda x: scaled(counted(4), at(counted(4)), x, "energy_j", "time_s"),
    ),
    "the core clock's unit": (
        [1e-06, 1000.0, 1e6],
        lambda x: scaled(counted(1), at(counted(1)), x, "core_mhz"),
    ),
    "the memory clock's unit, of one kernel": (
        [1e-3, 1e3],
        lambda x: scaled(counted(1), at(counted(1), "k3"), x, "mem_mhz"),
    ),
    "the core voltage's unit": (
        [0.1, 10.0, 1e6],
        lambda x: with_volts(lambda mhz: x * (0.7 + mhz / 4000)),
    ),
    "a voltage that falls": (
        [0.1498, 0.1502],
        lambda x: with_volts(lambda mhz: 1.2 - x * (mhz - 500) / 700),
    ),
    "a voltage that dips": (
        [0.02, 0.02013],
        lambda x: with_volts(lambda mhz: np.where(mhz == 900, 0.9 * (1 - x), 0.9)),
    ),
    "operations that follow the clock": ([0.4625, 0.4641], operations),
    "loops of a fixed time": (
        [0.01016, 0.01031, 0.03929, 0.03948],
        lambda x: fixed([f"k{i}" for i in range(8)], [10.0] * 8, x),
    ),
    "loops of several fixed times": (
        [0.01016, 0.01031],
        lambda x: fixed([f"k{i}" for i in range(8)], [10.0 + i for i in range(8)], x),
    ),
    "two loops of a fixed time": (
        [0.01016, 0.01031],
        lambda x: fixed(["k3", "k6"], [10.0, 3.0], x),
    ),
    "nodes apart in energy": (
        [0.9117, 0.9141, 1.103, 1.105],
        lambda x: scaled(on_nodes(sweep(13), "a", "b"), sweep(13)["repeat"] == 1, x),
    ),
    "one of three nodes apart in time": (
        [0.9072, 0.9102, 1.095, 1.098],
        lambda x: scaled(on_nodes(sweep(13), "a", "b", "c"), sweep(13)["repeat"] == 2, x,
                         "time_s", "energy_j"),
    ),
    "rounds of repeats apart": (
        [0.9039, 0.9075, 1.091, 1.095],
        lambda x: scaled(sweep(13), sweep(13)["repeat"] == 2, x),
    ),
    "power beside energy, of three rows": (
        [1.009, 1.011],
        lambda x: with_power(x, (4, 40, 400, 401)),
    ),
    "power beside energy, of two rows": ([1.5], lambda x: with_power(x, (4, 40))),
    "achieved clocks of two rows": ([0.949, 0.951, 1.049, 1.051], lambda x: achieved(x, 2)),
    "achieved clocks of five rows": ([0.9], lambda x: achieved(x, 5)),
    "a clock that is not the nominal one": (
        [835.0, 836.9, 856.0, 859.0, 862.0, 864.0], nominal),
    "core clocks that are capped": (
        [1017.0, 1020.0, 1112.0, 1116.0, 1152.0, 1155.0],
        lambda x: sweep(22, noise=0.01, real_core=np.minimum(CORE_MHZ, x)),
    ),
    "core clocks that are capped, without noise": (
        [1006.0, 1008.0, 1106.0, 1109.0],
        lambda x: sweep(22, noise=1e-4, real_core=np.minimum(CORE_MHZ, x), repeats=1),
    ),
    "power that falls": (
        [0.7734, 0.7758, 1.311, 1.314],
        lambda x: scaled(sweep(4, noise=0.005, repeats=1),
                         at(sweep(4, repeats=1), "k2", 900, 800), x),
    ),
    "power that falls over several settings": (
        [0.5203, 0.5219, 0.7109, 0.7125],
        lambda x: scaled(sweep(4, noise=0.005, repeats=1),
                         at(sweep(4, repeats=1), "k2") & (sweep(4, repeats=1)["core_mhz"] > 700),
                         x),
    ),
    "time beyond the clocks' ratio": (
        [0.9525, 0.9547, 1.04, 1.042, 1.156, 1.159, 1.256, 1.261],
        lambda x: scaled(sweep(5, noise=0.005, repeats=1),
                         at(sweep(5, repeats=1), "k4", 900, 800), x, "time_s", "energy_j"),
    ),
    "four cells out of line": (
        [0.6],
        lambda x: scaled(sweep(5, noise=0.005, repeats=1),
                         some(sweep(5, repeats=1), 10, 50, 100, 150), x, "time_s", "energy_j"),
    ),
    "a sweep over caps that nothing names": (
        [0.08555, 0.08574, 0.2995, 0.3004], lambda x: capped(7, x)),
    "copies of a kernel": ([1, 2, 11, 12, 24], lambda x: copied(int(x))),
}  # fmt: skip


def said(finding: Finding, in_full: bool) -> list[object]:
    brief = [finding.check, finding.severity, len(finding.rows), int(finding.rows.sum())]
    if not in_full:
        return brief
    return [*brief, finding.text, [kernel.label for kernel in finding.kernels][:4]]


def found(name: str) -> dict[str, object]:
    """Size of a damage -> its findings; in full at the last size, and where they are new."""
    sizes, damage = DAMAGES[name]
    result: dict[str, object] = {}
    seen: set[object] = set()
    for size in sizes:
        here = findings(damage(size))
        in_full = size in sizes[-1:] or any((f.check, len(f.rows)) not in seen for f in here)
        seen |= {(f.check, len(f.rows)) for f in here}
        result[f"{size:g}"] = [said(finding, in_full) for finding in here]
    return result


def labelled(**labels: str) -> pd.Series:
    return pd.Series([json.dumps({"labels": labels})])


def tables() -> dict[str, pd.DataFrame]:
    """Tables that are wrong in one way, without a size."""
    plain = sweep(9)
    caps = capped(8)
    step = [{"power_limit_w": 100 + 10 * int(r)} for r in caps["repeat"]]
    swept = [json.dumps(one) for one in step]
    labels = [json.dumps({"labels": one, "power_w": "unknown"}) for one in step]
    many = plain.assign(params=[json.dumps({"pl": 100 + r}) for r in plain["repeat"]])
    reached = many.assign(core_mhz_achieved=many["core_mhz"] * 0.9)
    swap = counted(16)
    two_memories = pd.concat(
        [sweep(4, mem=MEM_MHZ[1:2]), sweep(5, mem=MEM_MHZ[1:2]).assign(mem_mhz=1600.0)],
        ignore_index=True,
    )
    unproven = plain.assign(clock_proof=np.where(plain["core_mhz"] > 900, "unproven", "read back"))
    double = pd.concat(
        [plain, plain.iloc[[7, 100, 101, 200]].assign(energy_j=lambda f: f["energy_j"] * 1.001)],
        ignore_index=True,
    )
    recorded = plain.assign(
        meters=[
            json.dumps(
                {"recorded:recorded/board": {"energy_j": 1.0, "counts": i % 3 > 0}}
                if i % 50 == 7
                else {}
            )
            for i in range(len(plain))
        ]
    )
    return {
        "caps in the parameters": caps.assign(params=swept),
        "caps in the labels": caps.assign(provenance=labels),
        "caps beside clocks": many,
        "caps beside clocks that were not reached": reached,
        "swapped columns": swap.assign(core_mhz=swap["mem_mhz"], mem_mhz=swap["core_mhz"]),
        "memory clocks in name only": two_memories,
        "unproven clocks": unproven,
        "the same row twice": double,
        "energies of a recording": recorded,
        "in ranks": plain.assign(ranks=1 + plain["repeat"]).pipe(
            lambda f: scaled(f, some(f, 3, 4), 1e4)),
    }  # fmt: skip


def found_in(name: str) -> list[object]:
    return [said(finding, True) for finding in findings(tables()[name])]


def described() -> list[str]:
    """The rows of a finding, in words; of an unknown node and without a memory clock too."""
    frame = sweep(12).assign(params='{"n": 3}')
    few = frame.assign(node="", mem_mhz=np.nan)
    return [
        line
        for table, rows in ((frame, np.arange(3, 9)), (few, np.array([2])))
        for line in describe(rows, as_columns(table), 5)
    ]


TABLES = tuple(tables())
RESULTS: dict[str, Callable[[], object]] = {
    **{name: lambda name=name: found(name) for name in DAMAGES},
    **{name: lambda name=name: found_in(name) for name in TABLES},
    "rows in words": described,
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_damage_is_found_from_the_same_size_on_and_said_in_the_same_words(name):
    """A table that was accepted is not refused by a later version, or the other way round."""
    check_kept("findings", name, RESULTS[name]())
