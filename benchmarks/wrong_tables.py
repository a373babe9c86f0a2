"""Which wrong tables the checks see: good tables get each fault, at several sizes and places.

    .venv/bin/python -m benchmarks.wrong_tables [--data DIR] [--all] [--json]

The good tables: the simulated Jetson TK1 with its default noise; a simulated CPU with three
repeats on two nodes; the extract of the GTX Titan X measurements in ``tests/data``. With ``--data``
also the GTX 980 and the Odroid XU3 of ``benchmarks/public_data.py``.

A fault is seen if a finding that the good table does not have names at least 80 % of the wrong
rows. ``--all`` prints each trial. The findings of the good tables are printed first.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.quality import Finding, check
from benchmarks import public_data
from benchmarks.shared import ROOT, argument_parser
from tests.frames import as_columns

NAMED = 0.8
"""The smallest share of the wrong rows that a finding must name."""


@dataclass(frozen=True)
class Trial:
    """A wrong table: the place of the fault, and a mask of the wrong rows (bool)."""

    place: str
    table: pd.DataFrame
    wrong: np.ndarray


def simulated_board() -> pd.DataFrame:
    """Return the simulated Jetson TK1: one repeat, counts, a table of voltages."""
    from tests.analysis.simulated_tk1 import simulated_columns

    data = simulated_columns("default")
    return pd.DataFrame({name: data[name].values for name in data.data_vars})


def simulated_cpu() -> pd.DataFrame:
    """Return a CPU at eight clocks, three repeats on each of two nodes that differ by 2 %."""
    rng = np.random.default_rng(3)
    core_mhz, kernel, repeat = (
        values.ravel()
        for values in np.meshgrid(
            np.linspace(1200.0, 2600.0, 8), np.arange(9), np.arange(6), indexing="ij"
        )
    )
    flop = 2e10 * (1 + kernel)
    byte = flop / np.geomspace(0.1, 100, 9)[kernel]
    core_v = 0.75 + 0.35 * (core_mhz / 2600) ** 2
    time_s = np.maximum(flop / (core_mhz * 16e6), byte / 5e10)
    energy_j = flop * 60e-12 * core_v**2 + byte * 200e-12 + time_s * (20 + 15 * core_v)
    noise = rng.normal(0, 0.01, (2, len(time_s)))
    return _frame(
        "cpu",
        [f"k{k}" for k in kernel],
        core_mhz,
        np.nan,
        time_s=time_s * np.exp(noise[0]),
        energy_j=energy_j * np.exp(noise[1]) * np.where(repeat < 3, 1.0, 1.02),
        n_dp=flop,
        n_dram=byte,
        core_v=core_v,
        repeat=repeat % 3,
        node=np.where(repeat < 3, "a", "b"),
    )


def titan_x() -> pd.DataFrame:
    """Return the extract of real measurements in ``tests/data``, without voltages."""
    return _of_observations(
        public_data.imported(
            ROOT / "tests/data/gtxtitanx/microbenchmarks.csv", ROOT / "examples/gtxtitanx.map.toml"
        )
    )


def _of_observations(data) -> pd.DataFrame:
    counts = {f"n_{name}": n for name, n in data.counts.items()}
    volts = {} if data.voltage == "unit" else {"core_v": data.core_v}
    return _frame(
        data.site,
        data.labels.astype(str),
        data.core_mhz,
        data.mem_mhz,
        time_s=data.time_s,
        energy_j=data.energy_j,
        **counts,
        **volts,
    )


def _frame(site, kernel, core_mhz, mem_mhz, **columns) -> pd.DataFrame:
    table = pd.DataFrame(
        {
            "site": site,
            "kernel": kernel,
            "params": "{}",
            "status": "ok",
            "core_mhz": core_mhz,
            "mem_mhz": mem_mhz,
            "node": "",
            "imported": True,
            "simulated": False,
            **columns,
        }
    )
    if "repeat" not in columns:
        keys = ["kernel", "core_mhz", table["mem_mhz"].fillna(-1)]
        table["repeat"] = table.groupby(keys).cumcount()
    return table.assign(point_id=[f"p{i}" for i in range(len(table))])


def findings(table: pd.DataFrame) -> list[Finding]:
    """Return the findings of the checks in a table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return check(as_columns(table), str(table["site"].iloc[0]))


def _scaled(
    table: pd.DataFrame, factors: dict[str, float], mask: np.ndarray, place: str
) -> Iterator[Trial]:
    """Multiply columns by factors in the rows of the mask, if the table has the columns."""
    if mask.any() and all(name in table and table[name].notna().any() for name in factors):
        table = table.copy()
        for name, factor in factors.items():
            table.loc[mask, name] = table.loc[mask, name] * factor
        yield Trial(place, table, mask)


def _everywhere(table: pd.DataFrame) -> np.ndarray:
    return np.ones(len(table), bool)


Masks = Iterator[tuple[str, np.ndarray]]


def _all_rows(table: pd.DataFrame) -> Masks:
    yield "", _everywhere(table)


def _kernels(table: pd.DataFrame) -> Masks:
    """Yield the masks of several kernels."""
    names = np.unique(table["kernel"])
    for i in (0, len(names) // 2, len(names) - 1):
        yield f"{names[i]}: ", (table["kernel"] == names[i]).to_numpy()


def _settings(table: pd.DataFrame) -> Masks:
    """Yield the masks of the lowest, a middle and the highest setting."""
    setting = table["core_mhz"] * 1e6 + table["mem_mhz"].fillna(0)
    levels = np.unique(setting)
    for i in (0, len(levels) // 2, len(levels) - 1):
        yield f"setting {i}: ", (setting == levels[i]).to_numpy()


def scaled(
    masks: Callable[[pd.DataFrame], Masks], *factors: dict[str, float]
) -> Callable[[pd.DataFrame], Iterator[Trial]]:
    """Scale columns by the factors, in the rows of each mask."""

    def trials(table: pd.DataFrame) -> Iterator[Trial]:
        for scale in factors:
            text = ", ".join(f"{name} x {factor:g}" for name, factor in scale.items())
            for place, mask in masks(table):
                yield from _scaled(table, scale, mask, f"{place}{text}")

    return trials


def one_cell(table: pd.DataFrame) -> Iterator[Trial]:
    """Make energies or times of one kernel at one setting a thousand times too large or small."""
    rng = np.random.default_rng(1)
    for scale in ({"energy_j": 1e3}, {"energy_j": 1e-3}, {"time_s": 1e3}, {"time_s": 1e-3}):
        row = table.iloc[int(rng.integers(len(table)))]
        mask = (table["kernel"] == row["kernel"]) & (table["core_mhz"] == row["core_mhz"])
        mask &= (table["mem_mhz"] == row["mem_mhz"]) | table["mem_mhz"].isna()
        yield from _scaled(table, scale, mask.to_numpy(), f"{row['kernel']}: {scale}")


def fixed_loops(table: pd.DataFrame) -> Iterator[Trial]:
    """Make all loops run 10 s whatever the clock, with energy as power times that, and with
    jitter."""
    power_w = table["energy_j"] / table["time_s"]
    for jitter in (0.0, 0.002):
        rng = np.random.default_rng(4)
        time_s = 10.0 * np.exp(rng.normal(0, jitter, len(table)))
        wrong = table.assign(time_s=time_s, energy_j=power_w * time_s)
        yield Trial(f"10 s, jitter {jitter:g}", wrong, _everywhere(table))


def one_fixed_kernel(table: pd.DataFrame) -> Iterator[Trial]:
    """Make one kernel's loops run 10 s, if both clocks are swept."""
    if table["mem_mhz"].nunique() < 2:
        return
    for name in np.unique(table["kernel"])[[0, -1]]:
        mask = (table["kernel"] == name).to_numpy()
        power_w = table["energy_j"] / table["time_s"]
        wrong = table.copy()
        wrong.loc[mask, "time_s"] = 10.0
        wrong.loc[mask, "energy_j"] = 10.0 * power_w[mask]
        yield Trial(str(name), wrong, mask)


def counts_with_the_clock(table: pd.DataFrame) -> Iterator[Trial]:
    """Scale counts with the clock, as in loops of fixed duration: of all kernels, or of one."""
    names = [name for name in table if name.startswith("n_")]
    if not names:
        return
    factor = table["core_mhz"] / table["core_mhz"].max()
    yield Trial(
        "all counts",
        table.assign(**{n: table[n] * factor for n in names}),
        (table[names].fillna(0).sum(axis=1) > 0).to_numpy(),
    )
    kernel = str(np.unique(table["kernel"])[1])
    mask = (table["kernel"] == kernel).to_numpy()
    wrong = table.copy()
    for name in names:
        wrong[name] = np.where(mask, table[name] * factor, table[name])
    yield Trial(f"counts of {kernel}", wrong, mask)


def voltages_reversed(table: pd.DataFrame) -> Iterator[Trial]:
    """Reverse the order of the core voltages over the clocks."""
    if "core_v" not in table or not table["core_v"].notna().any():
        return
    by_clock = table.groupby("core_mhz")["core_v"].median()
    if by_clock.iloc[-1] <= by_clock.iloc[0]:
        return
    reverse = dict(zip(by_clock.index, by_clock.to_numpy()[::-1], strict=True))
    wrong = table.assign(core_v=table["core_mhz"].map(reverse))
    yield Trial("core_v reversed", wrong, _everywhere(table))


def nodes_apart(table: pd.DataFrame) -> Iterator[Trial]:
    """Give a node, or a round of repeats, 15 or 25 % more power, or more time."""
    if table["repeat"].nunique() < 2:
        if table["mem_mhz"].nunique() < 2:
            return
        rng = np.random.default_rng(5)  # each point once more, with other noise
        more = table.assign(repeat=1, point_id=table["point_id"] + "b")
        for name in ("time_s", "energy_j"):
            more[name] = more[name] * np.exp(rng.normal(0, 0.01, len(more)))
        table = pd.concat([table, more], ignore_index=True)
    by_node = table["node"].nunique() > 1
    group = table["node"] if by_node else table["repeat"]
    mask = (group == sorted(set(group))[-1]).to_numpy()
    for scale in ({"energy_j": 1.15}, {"energy_j": 1.25}, {"time_s": 1.25, "energy_j": 1.25}):
        yield from _scaled(table, scale, mask, f"{'node' if by_node else 'repeat'}: {scale}")


def nominal_contradicted(table: pd.DataFrame) -> Iterator[Trial]:
    """Name the highest, or a middle, core clock too high: 1500 MHz as 1620 or 1800."""
    clocks = np.unique(table["core_mhz"])
    for i in (len(clocks) - 1, len(clocks) // 2):
        for factor in (1.08, 1.2):
            named_mhz = clocks[i] * factor
            if i + 1 < len(clocks) and named_mhz >= clocks[i + 1]:
                continue
            mask = (table["core_mhz"] == clocks[i]).to_numpy()
            yield from _scaled(table, {"core_mhz": factor}, mask, f"{clocks[i]:g} as {named_mhz:g}")


def swapped_columns(table: pd.DataFrame) -> Iterator[Trial]:
    """Swap the columns of core and memory clock."""
    if table["mem_mhz"].nunique() > 1 and any(name.startswith("n_") for name in table):
        wrong = table.assign(core_mhz=table["mem_mhz"], mem_mhz=table["core_mhz"])
        yield Trial("swapped", wrong, _everywhere(table))


J, T = "energy_j", "time_s"
FAULTS: dict[str, Callable[[pd.DataFrame], Iterator[Trial]]] = {
    "clocks in kHz, Hz, GHz": scaled(
        _all_rows, {"core_mhz": 1e3}, {"core_mhz": 1e6}, {"core_mhz": 1e-3}
    ),
    "clocks of one kernel in kHz": scaled(_kernels, {"core_mhz": 1e3}),
    "energy in mJ": scaled(_all_rows, {J: 1e3}),
    "time in ms": scaled(_all_rows, {T: 1e3}),
    "time and energy in ms, mJ": scaled(_all_rows, {J: 1e3, T: 1e3}),
    "one kernel's energy in mJ or kJ": scaled(_kernels, {J: 1e3}, {J: 1e-3}),
    "one kernel's time in ms": scaled(_kernels, {T: 1e3}, {T: 1e-3}),
    "one kernel's time and energy": scaled(_kernels, {T: 1e3, J: 1e3}, {T: 1e-3, J: 1e-3}),
    "one setting's energy in mJ": scaled(_settings, {J: 1e3}, {J: 1e-3}),
    "one setting's time in ms": scaled(_settings, {T: 1e3}),
    "one cell in another unit": one_cell,
    "voltages in mV, uV": scaled(_all_rows, {"core_v": 1e3}, {"core_v": 1e6}),
    "voltages fall with the clock": voltages_reversed,
    "counts vary with the setting": counts_with_the_clock,
    "fixed-duration loops": fixed_loops,
    "one fixed-duration kernel": one_fixed_kernel,
    "two nodes 15 or 25 % apart": nodes_apart,
    "a nominal clock contradicted": nominal_contradicted,
    "core and memory swapped": swapped_columns,
}


def verdict(trial: Trial, clean: set[tuple[str, str]]) -> str:
    """Return ``refused`` or ``flagged`` if a new finding names the wrong rows, otherwise ""."""
    wrong = np.flatnonzero(trial.wrong)
    of_trial = [
        finding
        for finding in findings(trial.table)
        if (finding.check, finding.text) not in clean
        and np.isin(wrong, finding.rows).mean() >= NAMED
    ]
    if any(finding.severity == "refused" for finding in of_trial):
        return "refused"
    return "flagged" if of_trial else ""


def good_tables(data: Path | None) -> dict[str, pd.DataFrame]:
    """Return the tables that faults are put into."""
    tables = {
        "simulated TK1": simulated_board(),
        "simulated CPU": simulated_cpu(),
        "Titan X": titan_x(),
    }
    if data:
        tables["GTX 980"] = _of_observations(public_data.gtx_980(data, True))
        tables["XU3 cBench"] = _of_observations(public_data.odroid(data, "cBench", True))
    return tables


def main() -> int:
    """Print the findings of good tables, and the verdict on each fault."""
    parser = argument_parser(__doc__)
    parser.add_argument("--data", type=Path, help="the folder of data sets")
    parser.add_argument("--all", action="store_true", help="print each trial")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    tables = good_tables(arguments.data)
    clean = {}
    for name, table in tables.items():
        table_findings = findings(table)
        clean[name] = {(finding.check, finding.text) for finding in table_findings}
        if not arguments.json:
            print(f"{name}: {len(table)} rows, {len(table_findings)} findings")
    results: dict[str, list[tuple[str, str, str]]] = {}
    for fault, trials in FAULTS.items():
        results[fault] = [
            (name, trial.place, verdict(trial, clean[name]))
            for name, table in tables.items()
            for trial in trials(table)
        ]
    if arguments.json:
        print(json.dumps(results, indent=1))
        return 0
    print(f"\n{'fault':<34}{'trials':>8}{'seen':>6}{'refused':>9}")
    for fault, fault_results in results.items():
        verdicts = [result for *_, result in fault_results]
        n_seen, n_refused = sum(map(bool, verdicts)), verdicts.count("refused")
        print(f"{fault:<34}{len(verdicts):>8}{n_seen:>6}{n_refused:>9}")
        for table_name, place, result in fault_results:
            if arguments.all or not result:
                print(f"    {result or 'silent':<9}{table_name}: {place}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
