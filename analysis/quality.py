"""Checks of measurements before anything is fitted to them.

What counts as out of line is judged against the noise that the measurements themselves show:
between repeats of one point where there are any, and between neighbouring settings. Every limit
is Student's t at :data:`FALSE_ALARM` divided by the number of comparisons (Bonferroni), so that
a clean campaign stays silent however large it is.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pandas as pd
import xarray as xr
from scipy import special

from analysis.observations import kernel_name, setting_text

FALSE_ALARM = 0.01
"""The chance that a check finds something in a clean data set."""
RELEVANT = 0.01
"""Differences of less than one percent are of no interest, however sure they are."""
NOISE_FLOOR = 1e-3
"""Relative: no meter and no clock is taken to be better than this."""
UNKNOWN_NOISE = 0.05
"""Relative: assumed where neither repeats nor neighbours tell."""
MAD_TO_SIGMA = 1.4826
MAD_EFFICIENCY = 0.37
"""A deviation from the median of n values is as sure as a variance from 0.37 n of them."""
OWN_NOISE_FROM = 10
"""Comparisons from which on a kernel has a noise of its own."""
MIN_RESPONSE = 0.1
"""Any kernel's power or time answers to a clock at least by its ratio to this power."""
HELD_CLOCK = 0.05
"""Relative: an achieved clock further than this from the nominal one was not held."""
NAME_ONLY = 0.3
"""A step is in name only where surely less than this share of the change to expect is seen."""
PLAUSIBLE_W = (1e-3, 2e4)
MAX_PAIRS = 40_000
MAX_COMPARED = 4_000_000
MAX_NAMED = 3
CAP_KEY = re.compile(
    r"(power|pwr)_?(limit|cap)(_?(m|u|micro)?w(atts?)?)?|pl[1-4]?(_?u?w)?|cap_?w|tdp(_?w)?"
)

Severity = Literal["refused", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """What a check found.

    ``check``: its short name. ``severity``: ``refused`` (not fit for fitting), ``warning`` or
    ``note``. ``rows``: int64, sorted indices into the Dataset's measurement dimension.
    ``text``: what was found, where, and what would do.
    """

    check: str
    severity: Severity
    rows: np.ndarray
    text: str


@dataclass(frozen=True)
class _Rows:
    """The rows of one site that can be fitted; arrays have one entry a row.

    ``kernel``, ``setting``, ``node``: int64 codes into the names and ``mhz``. ``values``: the
    natural logarithms of time (s), power (W) and energy (J).
    """

    index: np.ndarray
    kernel: np.ndarray
    kernels: list[str]
    params: list[str]
    setting: np.ndarray
    mhz: np.ndarray
    node: np.ndarray
    partition: np.ndarray
    repeat: np.ndarray
    start_unix_s: np.ndarray
    achieved_mhz: np.ndarray
    values: dict[str, np.ndarray]
    simulated: bool

    @property
    def cell(self) -> np.ndarray:
        """int64: the kernel at the setting, one number for both."""
        return self.kernel * len(self.mhz) + self.setting

    def where(self, kernel: int, setting: int) -> str:
        """A kernel and a setting for a message."""
        return f"{self.kernels[kernel]} at {setting_text(self.mhz[setting])}"


@dataclass(frozen=True)
class _Grid:
    """The medians of one quantity by kernel and setting, and how sure they are.

    ``y``: float64 (kernels, settings), logarithms, NaN where not measured. ``variance``: of
    each. ``df``: degrees of freedom of the noise they come from.
    """

    y: np.ndarray
    variance: np.ndarray
    df: float


def check(dataset: xr.Dataset, site: str) -> list[Finding]:
    """Everything about a site's measurements that stands against fitting them, worst first.

    Takes the Dataset of a store (dimension ``measurement``) and looks at the rows of ``site``
    with status ok, a positive time (s) and a positive energy (J); none of them: no findings.
    """
    rows = _rows_of(dataset, site)
    if not len(rows.index):
        return []
    power_w, labels = _provenance(dataset, rows)
    found = _identical(rows)
    found += _energy_against_power(rows, power_w)
    found += _plausible(rows)
    found += _power_caps(rows, labels)
    found += _clocks_not_held(rows)
    residual, sigma, df = _repeat_noise(rows)
    found += _outliers(rows, residual, sigma, df)
    found += _order(rows, residual, sigma)
    grids = {name: _grid(rows, name, sigma[name], df) for name in ("time", "power")}
    found += _name_only(rows, grids)
    found += _against_the_clock(rows, grids)
    worst_first: tuple[Severity, ...] = ("refused", "warning", "note")
    return sorted(found, key=lambda f: worst_first.index(f.severity))


def describe(finding: Finding, dataset: xr.Dataset, limit: int = 5) -> list[str]:
    """The first ``limit`` rows of a finding, a line each: kernel, setting, repeat, point id."""
    lines = []
    for row in finding.rows[:limit]:
        one = {
            name: dataset[name].values[row]
            for name in ("kernel", "params", "core_mhz", "mem_mhz", "repeat", "node", "point_id")
            if name in dataset
        }
        kernel = kernel_name(str(one["kernel"]), str(one.get("params", "")))
        text = f"{kernel} at {setting_text((float(one['core_mhz']), float(one['mem_mhz'])))}"
        text += f", repeat {int(one['repeat'])}" if "repeat" in one else ""
        text += f", node {one['node']}" if one.get("node") else ""
        lines.append(text + (f" ({one['point_id']})" if "point_id" in one else ""))
    if len(finding.rows) > limit:
        lines.append(f"and {len(finding.rows) - limit} further rows")
    return lines


def _rows_of(dataset: xr.Dataset, site: str) -> _Rows:
    time_s, energy_j = dataset["time_s"].values, dataset["energy_j"].values
    ok = (dataset["site"].values == site) & (dataset["status"].values == "ok")
    index = np.flatnonzero(ok & (time_s > 0) & (energy_j > 0))

    def column(name: str, missing: Any) -> np.ndarray:
        if name in dataset:
            return np.asarray(dataset[name].values[index])
        return np.full(len(index), missing)

    kernel_code, kernels = pd.factorize(column("kernel", ""))
    params_code, params = pd.factorize(column("params", "{}"))
    ranks_code, ranks = pd.factorize(column("ranks", 1))
    code, kinds = pd.factorize(
        (kernel_code * len(params) + params_code) * max(len(ranks), 1) + ranks_code
    )
    pairs, which_ranks = np.divmod(kinds, max(len(ranks), 1))
    which = [divmod(int(pair), max(len(params), 1)) for pair in pairs]
    names = [kernel_name(str(kernels[k]), str(params[p])) for k, p in which]
    if len(ranks) > 1:
        names = [f"{name} ranks={ranks[r]}" for name, r in zip(names, which_ranks, strict=True)]
    mhz = np.column_stack([column("core_mhz", np.nan), column("mem_mhz", np.nan)]).astype(float)
    settings, setting = np.unique(np.nan_to_num(mhz, nan=-1.0), axis=0, return_inverse=True)
    achieved = [column(f"{name}_mhz_achieved", np.nan) for name in ("core", "mem")]
    log_time, log_energy = np.log(time_s[index]), np.log(energy_j[index])
    return _Rows(
        index.astype(np.int64),
        code.astype(np.int64),
        names,
        [str(params[p]) for _, p in which],
        setting.reshape(-1).astype(np.int64),
        np.where(settings < 0, np.nan, settings),
        pd.factorize(column("node", ""))[0],
        pd.factorize(column("partition", ""))[0],
        column("repeat", 0).astype(np.int64),
        column("start_unix_s", 0.0).astype(float),
        np.column_stack(achieved).astype(float),
        {"time": log_time, "power": log_energy - log_time, "energy": log_energy},
        bool(column("simulated", False).any()),
    )


def _provenance(dataset: xr.Dataset, rows: _Rows) -> tuple[np.ndarray, dict[str, list[str]]]:
    """The mean power (W) kept beside the energy, NaN without; and labels by name, "" without."""
    power_w = np.full(len(rows.index), np.nan)
    labels: dict[str, list[str]] = {}
    if "provenance" not in dataset:
        return power_w, labels
    texts = dataset["provenance"].values[rows.index]
    for i, text in enumerate(texts):
        if '"power_w"' not in text and '"labels"' not in text:
            continue
        try:
            kept = json.loads(text)
        except ValueError:
            continue
        of_row = kept.get("labels", {})
        try:
            power_w[i] = float(kept.get("power_w", of_row.get("power_w", np.nan)))
        except (TypeError, ValueError):
            power_w[i] = np.nan
        for name, value in of_row.items():
            labels.setdefault(name, [""] * len(texts))[i] = str(value)
    return power_w, labels


def _named(items: list[str]) -> str:
    more = len(items) - MAX_NAMED
    return "; ".join(items[:MAX_NAMED]) + (f"; and {more} more" if more > 0 else "")


# The same thing twice


def _identical(rows: _Rows) -> list[Finding]:
    key = np.column_stack([rows.cell, rows.partition, rows.node, rows.repeat])
    _, group, size = np.unique(key, axis=0, return_inverse=True, return_counts=True)
    twice = np.flatnonzero(size[group.reshape(-1)] > 1)
    found = []
    if len(twice):
        first = [rows.where(rows.kernel[i], rows.setting[i]) for i in twice[:: max(size.max(), 2)]]
        found.append(
            Finding(
                "duplicates",
                "warning",
                rows.index[twice],
                f"{len(twice)} rows are the same kernel, parameters, setting, node and repeat as "
                f"another ({_named(first)}); number them in repeat, or keep one of each",
            )
        )
    # Without noise, what is simulated with equal counts is equal by design.
    return found if rows.simulated else found + _copies(rows)


def _copies(rows: _Rows) -> list[Finding]:
    """Series (a kernel's repeat on a node) whose time and energy are another's, bit for bit."""
    series_key = np.column_stack([rows.kernel, rows.partition, rows.node, rows.repeat])
    keys, series = np.unique(series_key, axis=0, return_inverse=True)
    series = series.reshape(-1)
    order = np.lexsort([series, rows.values["energy"], rows.values["time"], rows.setting])
    same = np.ones(len(order) - 1, bool)
    for values in (rows.setting, rows.values["time"], rows.values["energy"]):
        same &= values[order[1:]] == values[order[:-1]]
    a, b = order[:-1][same], order[1:][same]
    distinct = series[a] != series[b]
    a, b = a[distinct], b[distinct]
    if not len(a):
        return []
    n_settings = np.bincount(series)
    pairs, pair, agreed = np.unique(
        np.column_stack([series[a], series[b]]), axis=0, return_inverse=True, return_counts=True
    )
    pair = pair.reshape(-1)
    # Coarse readings agree by chance here and there, but not at half of the settings.
    copied = (agreed >= 2) & (2 * agreed >= n_settings[pairs].min(1))
    if not copied.any():
        return []
    from scipy import sparse  # noqa: PLC0415
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    graph = sparse.coo_matrix(
        (np.ones(copied.sum()), pairs[copied].T), shape=(len(keys), len(keys))
    )
    _, component = connected_components(graph, directed=False)
    taken = copied[pair]
    found = []
    for each in np.unique(component[pairs[copied][:, 0]]):
        mine = taken & (component[series[a]] == each)
        members = np.unique(np.concatenate([a[mine], b[mine]]))
        who = [
            f"{rows.kernels[keys[s, 0]]}, repeat {keys[s, 3]}" for s in np.unique(series[members])
        ]
        found.append(
            Finding(
                "duplicates",
                "warning",
                rows.index[members],
                f"time and energy are the same to the last bit at "
                f"{len(np.unique(rows.setting[members]))} settings: {_named(who)}; one was "
                f"measured and listed again, keep one of them",
            )
        )
    return found


# Energy, power and time


def _energy_against_power(rows: _Rows, power_w: np.ndarray) -> list[Finding]:
    known = np.flatnonzero(power_w > 0)
    ratio = np.exp(rows.values["power"][known]) / power_w[known]
    wrong = np.abs(np.log(ratio)) > RELEVANT
    if not wrong.any():
        return []
    bad = known[wrong]
    usual = float(np.median(ratio[wrong]))
    one_factor = len(bad) > 2 and np.abs(np.log(ratio[wrong] / usual)).max() < RELEVANT
    named = [
        f"{rows.where(rows.kernel[i], rows.setting[i])}: {np.exp(rows.values['energy'][i]):.4g} J, "
        f"but {power_w[i] * np.exp(rows.values['time'][i]):.4g} J by power times time"
        for i in bad[:MAX_NAMED]
    ]
    cause = (
        f"always by a factor of {usual:.4g}: one of the units is wrong, give it its factor"
        if one_factor
        else "find out which of the two was measured, and drop the other"
    )
    return [
        Finding(
            "energy",
            "warning",
            rows.index[bad],
            f"in {len(bad)} rows energy is not power times time ({_named(named)}); {cause}",
        )
    ]


def _plausible(rows: _Rows) -> list[Finding]:
    power_w = float(np.exp(np.median(rows.values["power"])))
    if PLAUSIBLE_W[0] <= power_w <= PLAUSIBLE_W[1]:
        return []
    return [
        Finding(
            "units",
            "warning",
            rows.index,
            f"energy over time is {power_w:.3g} W in the median, which no node draws; check the "
            f"units of energy_j and time_s (mJ? ms?) and import with their factors",
        )
    ]


# Clocks


def _power_caps(rows: _Rows, labels: dict[str, list[str]]) -> list[Finding]:
    """A sweep over power caps: the clocks move with the load, and no model of clocks fits."""
    caps: dict[str, np.ndarray] = {}
    for name in {key for text in set(rows.params) for key in _keys(text)}:
        if _is_cap(name):
            of_kernel = np.array([str(_keys(text).get(name, "")) for text in rows.params], object)
            caps[name] = of_kernel[rows.kernel]
    caps |= {name: np.array(of, object) for name, of in labels.items() if _is_cap(name)}
    swept = {
        name: sorted(set(values.tolist()) - {""})
        for name, values in caps.items()
        if len(set(values.tolist()) - {""}) > 1
    }
    off = _off_nominal(rows)
    still = len(rows.mhz) == 1
    remedy = "sweep locked clocks instead, or import the achieved clocks as core_mhz (and mem_mhz)"
    if swept:
        name, values = next(iter(swept.items()))
        having = np.flatnonzero(caps[name] != "")
        what = f"{name} was swept ({len(values)} values: {', '.join(values[:4])}...)"
        if still or off.any():
            why = "the clocks were not" if still else "the achieved clocks are not the nominal ones"
            return [
                Finding(
                    "power caps",
                    "refused",
                    rows.index[having],
                    f"{what} and {why}: under a cap the clock follows the load, so no energy can "
                    f"be told by clock; {remedy}",
                )
            ]
        return [
            Finding(
                "power caps",
                "warning",
                rows.index[having],
                f"{what} beside the clocks: under a cap a nominal clock need not be held; import "
                f"the achieved clocks as core_mhz, or keep the rows of the highest cap",
            )
        ]
    if still:
        spread = _spread_at_one_setting(rows)
        if spread:
            return [
                Finding(
                    "power caps",
                    "refused",
                    rows.index,
                    f"all {len(rows.index)} rows are at one setting "
                    f"({setting_text(rows.mhz[0])}), yet {spread}: something else was swept, as "
                    f"power caps are; {remedy}",
                )
            ]
        own = rows.achieved_mhz[:, 0]
        own = own[np.isfinite(own)]
        if own.size and np.ptp(own) > HELD_CLOCK * own.max():
            return [
                Finding(
                    "power caps",
                    "refused",
                    rows.index,
                    f"all rows are at one nominal setting, but the achieved core clock runs from "
                    f"{own.min():g} to {own.max():g} MHz; {remedy}",
                )
            ]
    return []


def _keys(params: str) -> dict[str, Any]:
    try:
        values = json.loads(params) if params else {}
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


def _is_cap(name: str) -> bool:
    return CAP_KEY.fullmatch(name.lower().replace("-", "_").replace(" ", "_")) is not None


def _spread_at_one_setting(rows: _Rows) -> str:
    """How power varies within kernels where nothing is said to vary; empty where it hardly does.

    Noise alone neither makes a slower run draw less every time, nor leaves steps in the power
    with several rows on each, nor goes up or down from row to row.
    """
    frame = pd.DataFrame({"kernel": rows.kernel, **rows.values})
    wide, slower, ordered, stepped = [], [], [], []
    for _, each in frame.groupby("kernel"):
        if len(each) < 6:
            continue
        power = each["power"].to_numpy()
        away = power - np.median(power)
        wide.append(MAD_TO_SIGMA * float(np.median(np.abs(away))))
        stepped.append(_steps(np.sort(power)))
        rank = each[["time", "power"]].rank()
        slower.append(float(np.corrcoef(rank["time"], rank["power"])[0, 1]) < -0.8)
        ordered.append(np.mean(np.diff(power) ** 2) < 0.25 * np.mean(away**2))
    if not wide or float(np.median(wide)) < UNKNOWN_NOISE:
        return ""
    varies = f"power varies by {100 * float(np.median(wide)):.0f} % within kernels"
    for seen, share, how in (
        (stepped, 0.5, "in steps"),
        (slower, 0.25, "against the run time"),
        (ordered, 0.5, "from row to row in one direction"),
    ):
        if sum(seen) > share * len(seen):
            return f"{varies}, {how}"
    return ""


def _steps(power: np.ndarray) -> bool:
    """Whether sorted values lie on levels of two or more, far apart for what lies on them."""
    gaps = np.diff(power)
    cuts = np.flatnonzero(gaps > max(UNKNOWN_NOISE, 3.0 * float(np.median(gaps)))) + 1
    levels = [level for level in np.split(power, cuts) if len(level) > 1]
    if len(levels) < 2 or sum(map(len, levels)) < 0.8 * len(power):
        return False
    within = np.sqrt(np.mean(np.concatenate([(level - level.mean()) ** 2 for level in levels])))
    return bool(gaps[cuts - 1].min() > 3.0 * within)


def _off_nominal(rows: _Rows) -> np.ndarray:
    nominal = rows.mhz[rows.setting]
    with np.errstate(invalid="ignore"):
        return np.asarray((np.abs(rows.achieved_mhz / nominal - 1.0) > HELD_CLOCK).any(1))


def _clocks_not_held(rows: _Rows) -> list[Finding]:
    off = np.flatnonzero(_off_nominal(rows))
    if not len(off):
        return []
    named = []
    for i in off[:MAX_NAMED]:
        reached = setting_text(rows.achieved_mhz[i])
        named.append(f"{rows.where(rows.kernel[i], rows.setting[i])} ran at {reached}")
    return [
        Finding(
            "clocks",
            "warning",
            rows.index[off],
            f"in {len(off)} rows the achieved clock is more than {100 * HELD_CLOCK:.0f} % from "
            f"the nominal one ({_named(named)}"
            + ("; and more" if len(off) > MAX_NAMED else "")
            + "); import the achieved clocks as core_mhz and mem_mhz",
        )
    ]


# Noise


def _limit(n_compared: int, df: float) -> float:
    # scipy.special: scipy.stats takes a second to import.
    tail = 0.5 * FALSE_ALARM / max(n_compared, 1)
    return float(-special.stdtrit(min(max(df, 1.0), 1e6), tail))


def _sigma(differences: np.ndarray, group: np.ndarray, n_groups: int) -> tuple[np.ndarray, float]:
    """Noise by group from differences of unit weight, never below that of all; and its df."""
    if not len(differences):
        return np.full(n_groups, UNKNOWN_NOISE), 0.0
    size = np.abs(differences)
    overall = max(MAD_TO_SIGMA * float(np.median(size)), NOISE_FLOOR)
    own = pd.Series(size).groupby(group).agg(["median", "size"])
    sigma = np.full(n_groups, overall)
    enough = own[own["size"] >= OWN_NOISE_FROM]
    codes = enough.index.to_numpy(dtype=np.int64)
    sigma[codes] = np.maximum(overall, MAD_TO_SIGMA * enough["median"].to_numpy())
    return sigma, MAD_EFFICIENCY * len(differences)


def _repeat_noise(
    rows: _Rows,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], float]:
    """Each row's distance from its repeats' median, and the noise of each kernel, by quantity.

    What a node always adds (its leakage, its meter's scale) is taken off first: it is no noise.
    """
    by_cell = pd.DataFrame(rows.values).groupby(rows.cell, sort=False)
    medians = by_cell.transform("median")
    order = np.lexsort([rows.repeat, rows.start_unix_s, rows.node, rows.cell])
    alike = rows.cell[order[1:]] == rows.cell[order[:-1]]
    alike &= rows.node[order[1:]] == rows.node[order[:-1]]
    residual, sigma, df = {}, {}, 0.0
    for name, values in rows.values.items():
        away = values - medians[name].to_numpy()
        if rows.node.any():
            away = away - pd.Series(away).groupby(rows.node).transform("median").to_numpy()
        residual[name] = away
        steps = (values[order[1:]] - values[order[:-1]])[alike] / np.sqrt(2.0)
        group = rows.kernel[order[1:]][alike]
        sigma[name], df = _sigma(steps, group, len(rows.kernels))
    return residual, sigma, df


def _outliers(
    rows: _Rows, residual: dict[str, np.ndarray], sigma: dict[str, np.ndarray], df: float
) -> list[Finding]:
    size = np.bincount(rows.cell)[rows.cell]
    judged = size > 1
    if not judged.any() or not df:
        return []
    away = residual["energy"]
    # A row is far from a median also because more than half of the others are off the other way.
    # Of two repeats each is half of their distance from it, and neither is the right one.
    spread = np.where(size == 2, np.sqrt(0.5), np.sqrt(1.0 + 1.0 / ((size + 1) // 2)))
    limit = _limit(int(judged.sum()), df) * sigma["energy"][rows.kernel] * spread
    bad = np.flatnonzero(judged & (np.abs(away) > np.maximum(limit, RELEVANT)))
    if not len(bad):
        return []
    worst = bad[np.argsort(-np.abs(away[bad]))]
    named = [
        f"{rows.where(rows.kernel[i], rows.setting[i])}, repeat {rows.repeat[i]} "
        f"({100 * np.expm1(away[i]):+.0f} %)"
        for i in worst
    ]
    return [
        Finding(
            "outliers",
            "warning",
            rows.index[bad],
            f"the energy of {len(bad)} rows is far from what their repeats say: {_named(named)}; "
            f"measure these points again, or leave the rows out",
        )
    ]


def _order(
    rows: _Rows, residual: dict[str, np.ndarray], sigma: dict[str, np.ndarray]
) -> list[Finding]:
    """A level that changes in the order of measuring, by node: the sum of distances runs off.

    For repeats in random order the running sum is a Brownian bridge; where its maximum lies,
    the level changed.
    """
    found = []
    repeated = (np.bincount(rows.cell)[rows.cell] > 1) & (rows.start_unix_s > 0)
    nodes = np.unique(rows.node[repeated])
    for name in ("time", "power"):
        for node in nodes:
            mine = np.flatnonzero(repeated & (rows.node == node))
            if len(mine) < 10:
                continue
            mine = mine[np.argsort(rows.start_unix_s[mine], kind="stable")]
            scale = sigma[name][rows.kernel[mine]]
            # One outlier is not a change of level.
            away = np.clip(residual[name][mine] / scale, -3.0, 3.0)
            away = away - away.mean()
            run = np.abs(np.cumsum(away)) / np.sqrt(len(mine))
            at = int(np.argmax(run[:-1])) + 1
            if run[at - 1] <= special.kolmogi(FALSE_ALARM / (2 * len(nodes))):
                continue
            before, after = residual[name][mine[:at]], residual[name][mine[at:]]
            step = float(np.median(after) - np.median(before))
            if abs(step) < RELEVANT:
                continue
            shorter = mine[at:] if 2 * at >= len(mine) else mine[:at]
            i = int(mine[at])
            found.append(
                Finding(
                    "order",
                    "warning",
                    np.sort(rows.index[shorter]),
                    f"{name} changes by about {100 * np.expm1(step):+.1f} % in the course of "
                    f"measuring on one node, from {rows.where(rows.kernel[i], rows.setting[i])}, "
                    f"repeat {rows.repeat[i]} on; look for heat or other work there, and measure "
                    f"the {len(shorter)} rows on the shorter side of it again",
                )
            )
    return found


# Settings beside one another


def _log_mhz(rows: _Rows) -> np.ndarray:
    return np.asarray(np.log(rows.mhz))


def _lines(rows: _Rows, measured: np.ndarray | None = None) -> list[tuple[int, np.ndarray]]:
    """(domain, settings in order of its clock) for each clock of the other domain; of all
    settings, or of those ``measured``."""
    lines = []
    for domain in (0, 1):
        known = np.isfinite(rows.mhz[:, domain])
        if measured is not None:
            known &= measured
        other = np.nan_to_num(rows.mhz[:, 1 - domain], nan=-1.0)
        for level in np.unique(other[known]):
            line = np.flatnonzero(known & (other == level))
            if len(line) > 1:
                lines.append((domain, line[np.argsort(rows.mhz[line, domain])]))
    return lines


def _bends(rows: _Rows, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How far each cell lies from the straight line between its kernel's cells next to it, in
    units of one cell's noise; and its kernel. Both float64 and int64 (bends,)."""
    x = _log_mhz(rows)
    bends, kernels = [np.zeros(0)], [np.zeros(0, np.int64)]
    measured, pattern = np.unique(np.isfinite(y), axis=0, return_inverse=True)
    for i, settings in enumerate(measured):
        mine = np.flatnonzero(pattern.reshape(-1) == i)
        for domain, line in _lines(rows, settings):
            a, b, c = line[:-2], line[1:-1], line[2:]
            w = (x[b, domain] - x[a, domain]) / (x[c, domain] - x[a, domain])
            of_mine = y[mine]
            bend = of_mine[:, b] - (1 - w) * of_mine[:, a] - w * of_mine[:, c]
            bends.append((bend / np.sqrt(1.0 + (1 - w) ** 2 + w**2)).ravel())
            kernels.append(np.repeat(mine, len(b)))
    return np.concatenate(bends), np.concatenate(kernels)


def _grid(rows: _Rows, name: str, sigma: np.ndarray, df: float) -> _Grid:
    shape = (len(rows.kernels), len(rows.mhz))
    cells = pd.Series(rows.values[name]).groupby(rows.cell).agg(["median", "size"])
    y, n = np.full(shape, np.nan), np.ones(shape)
    at = np.unravel_index(cells.index.to_numpy(), shape)
    y[at], n[at] = cells["median"].to_numpy(), cells["size"].to_numpy()
    smooth, smooth_df = _sigma(*_bends(rows, y), shape[0])
    if not smooth_df and df:
        smooth = np.zeros(shape[0])
    repeated = np.zeros(shape) if not df else sigma[:, None] ** 2 / n
    # A median is less sure than a mean: pi/2 in its variance.
    variance = np.maximum(repeated * np.where(n > 2, np.pi / 2, 1.0), smooth[:, None] ** 2)
    sure = [each for each in (df, smooth_df) if each]
    return _Grid(y, variance, min(sure) if sure else np.inf)


def _name_only(rows: _Rows, grids: dict[str, _Grid]) -> list[Finding]:
    """Settings side by side between which no kernel's time or power changes, though others do.

    The change that a kernel shows between the ends of the line, in proportion to the step, is
    what a real step would show. A step is in name only when the share of that change which is
    seen, over all kernels and both quantities, is surely below :data:`NAME_ONLY`, and no kernel
    alone shows a change.
    """
    x = _log_mhz(rows)
    ones: dict[tuple[int, tuple[float, ...]], list[np.ndarray]] = {}
    lines = _lines(rows)
    for domain in (0, 1):
        mine = [line for of, line in lines if of == domain]
        # A clock in name only is that at every clock of the other domain; or it is capped at some.
        steps: dict[tuple[float, float], list[tuple[np.ndarray, int]]] = {}
        for line in mine:
            for i, pair in enumerate(pairwise(rows.mhz[line, domain].tolist())):
                steps.setdefault(pair, []).append((line, i))
        everywhere = {pair for pair, of in steps.items() if _flat(grids, of, x[:, domain])}
        for line in mine:
            clocks = rows.mhz[line, domain].tolist()
            flat = [
                pair in everywhere or _flat(grids, [(line, i)], x[:, domain])
                for i, pair in enumerate(pairwise(clocks))
            ]
            for group in np.split(line, np.flatnonzero(~np.array(flat)) + 1):
                if len(group) > 1:
                    same = tuple(rows.mhz[group, domain].tolist())
                    ones.setdefault((domain, same), []).append(group)
    found = []
    for (domain, clocks), settings in ones.items():
        members = np.flatnonzero(np.isin(rows.setting, np.concatenate(settings)))
        other = sorted({float(rows.mhz[line[0], 1 - domain]) for line in settings})
        at = (
            f" at {('core', 'memory')[1 - domain]} {', '.join(f'{mhz:g}' for mhz in other)} MHz"
            if np.isfinite(other).all()
            else ""
        )
        found.append(
            Finding(
                "clocks",
                "warning",
                rows.index[members],
                f"{('core', 'memory')[domain]} clocks {', '.join(f'{c:g}' for c in clocks)} MHz"
                f"{at} are one: time and power of every kernel agree there; import the achieved "
                f"clocks, or keep one of these settings",
            )
        )
    return found


def _flat(grids: dict[str, _Grid], steps: list[tuple[np.ndarray, int]], x: np.ndarray) -> bool:
    """Whether the step from the i-th setting of a line to the next changes nothing, on any of
    the lines. ``x``: the logarithm of the clock by setting."""
    line, i = steps[0]
    width = float(x[line[i + 1]] - x[line[i]])
    if width < RELEVANT:
        return False
    seen, expected, of_seen, of_expected = [], [], [], []
    nothing, response = [], []
    for grid in grids.values():
        first, last, low, high = (
            np.array([line[k] for line, k in each])
            for each in (
                [(line, 0) for line, _ in steps],
                [(line, -1) for line, _ in steps],
                steps,
                [(line, i + 1) for line, i in steps],
            )
        )
        share = width / (x[last] - x[first])
        change = grid.y[:, high] - grid.y[:, low]
        whole = grid.y[:, last] - grid.y[:, first]
        known = np.isfinite(change) & np.isfinite(whole)
        if not known.any():
            return False
        of_change = (grid.variance[:, high] + grid.variance[:, low])[known]
        of_whole = grid.variance[:, last] + grid.variance[:, first]
        limit = _limit(len(of_change) * len(line), grid.df)
        if (np.abs(change[known]) > limit * np.sqrt(of_change)).any():
            return False
        seen.append(change[known])
        expected.append((whole * share)[known])
        of_seen.append(of_change)
        of_expected.append((of_whole * share**2)[known])
        nothing.append((np.abs(whole[known]) <= limit * np.sqrt(of_whole[known])).all())
        total = np.sum(1.0 / of_change)
        response.append(abs(np.sum(change[known] / of_change) / total) + limit / np.sqrt(total))
    if all(nothing):  # nothing on the whole line: would the least answer have been seen?
        return bool(sum(response) < MIN_RESPONSE * width)
    o, e, of_o, of_e = (np.concatenate(each) for each in (seen, expected, of_seen, of_expected))
    information = float(np.sum((e**2 - of_e) / of_o))
    if information <= 0:
        return False
    share_seen = float(np.sum(e * o / of_o)) / information
    return abs(share_seen) + 2.0 / np.sqrt(information) < NAME_ONLY


def _dominating(rows: _Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of settings (lower, higher): no clock of the second is lower; and the logarithm of
    the largest clock ratio. Of very many pairs, the closest."""
    x = np.nan_to_num(_log_mhz(rows), nan=-np.inf)
    n = len(x)
    lower, higher, ratio = [], [], []
    nearest = max(MAX_PAIRS // n, 2)
    for i in range(n):
        above = np.flatnonzero((x >= x[i]).all(1) & (np.arange(n) != i))
        with np.errstate(invalid="ignore"):
            rise = np.nan_to_num(x[above] - x[i], nan=0.0)
        # A clock that one of the two leaves as found says nothing about the other.
        comparable = np.isfinite(rise).all(1)
        above, most = above[comparable], rise[comparable].max(1, initial=0.0)
        if len(above) > nearest:
            close = np.argsort(most, kind="stable")[:nearest]
            above, most = above[close], most[close]
        lower.append(np.full(len(above), i))
        higher.append(above)
        ratio.append(most)
    return np.concatenate(lower), np.concatenate(higher), np.concatenate(ratio)


def _against_the_clock(rows: _Rows, grids: dict[str, _Grid]) -> list[Finding]:
    """Cells whose power is lower, or time longer, than at lower clocks; or time shorter than
    the clocks' ratio permits.

    Of two cells at odds, the one at odds with more others is named, and then the one without
    which the rest runs smoother. A cell that is in line with its neighbours all the same is not
    a bad row but the way of the machine: those are found together.
    """
    lower, higher, ratio = _dominating(rows)
    found = []
    for name, grid in grids.items():
        least = -ratio if name == "time" else np.zeros(len(ratio))
        most = np.zeros(len(ratio)) if name == "time" else np.full(len(ratio), np.inf)
        compared = int(np.isfinite(grid.y).sum()) * max(len(lower) // len(rows.mhz), 1)
        limit = _limit(compared, grid.df)
        bad: list[tuple[int, int]] = []
        smooth: list[tuple[int, int]] = []
        block = max(MAX_COMPARED // max(len(lower), 1), 1)
        for k in range(0, len(grid.y), block):
            y, variance = grid.y[k : k + block], grid.variance[k : k + block]
            rise = y[:, higher] - y[:, lower]
            slack = np.maximum(limit * np.sqrt(variance[:, higher] + variance[:, lower]), RELEVANT)
            at_odds = np.fmax(least - rise, rise - most) > slack
            for i in np.flatnonzero(at_odds.any(1)):
                left = y[i].copy()
                for setting in _fewest(rows, left, lower[at_odds[i]], higher[at_odds[i]]):
                    spike = _off_line(rows, left, variance[i], setting, limit)
                    (bad if spike else smooth).append((k + int(i), setting))
                    if spike:  # it says nothing about its neighbours
                        left[setting] = np.nan
        if bad:
            found.append(_bad_cells(rows, grid, name, sorted(bad)))
        if smooth:
            found.append(_smooth_cells(rows, name, sorted(smooth)))
    return found


def _fewest(rows: _Rows, y: np.ndarray, lower: np.ndarray, higher: np.ndarray) -> list[int]:
    """The settings without which no pair is at odds, the worst first: greedily, few."""
    named: list[int] = []
    left = np.ones(len(lower), bool)
    y = y.copy()
    while left.any():
        ends = np.concatenate([lower[left], higher[left]])
        count = np.bincount(ends, minlength=len(y))
        candidates = np.flatnonzero(count == count.max())
        rough = [_roughness(rows, y, int(c)) for c in candidates] if len(candidates) > 1 else [0.0]
        worst = int(candidates[int(np.argmin(rough))])
        named.append(worst)
        y[worst] = np.nan
        left &= (lower != worst) & (higher != worst)
    return named


def _off_line(rows: _Rows, y: np.ndarray, variance: np.ndarray, setting: int, limit: float) -> bool:
    """Whether a cell is not what its two nearest neighbours say, on any line that has them."""
    x = _log_mhz(rows)
    for domain, line in _lines(rows, np.isfinite(y)):
        if setting not in line or len(line) < 3:
            continue
        known = line[line != setting]
        at = int(np.searchsorted(x[known, domain], x[setting, domain]))
        first = min(max(at - 1, 0), len(known) - 2)
        a, b = known[first], known[first + 1]
        share = (x[setting, domain] - x[a, domain]) / (x[b, domain] - x[a, domain])
        away = abs(y[setting] - (1 - share) * y[a] - share * y[b])
        spread = variance[setting] + (1 - share) ** 2 * variance[a] + share**2 * variance[b]
        if away <= max(limit * np.sqrt(spread), RELEVANT):
            return False
    return True


def _roughness(rows: _Rows, y: np.ndarray, without: int) -> float:
    """How bent the lines through a setting are when it is left out."""
    x = _log_mhz(rows)
    bent = 0.0
    for domain in (0, 1):
        other = rows.mhz[:, 1 - domain]
        same = (other == other[without]) | (np.isnan(other) & np.isnan(other[without]))
        line = np.flatnonzero(same & np.isfinite(y) & np.isfinite(x[:, domain]))
        line = line[line != without]
        line = line[np.argsort(x[line, domain])]
        near = int(np.searchsorted(x[line, domain], x[without, domain]))
        line = line[max(near - 3, 0) : near + 3]
        if len(line) > 2:
            slopes = np.diff(y[line]) / np.diff(x[line, domain])
            bent += float(np.abs(np.diff(slopes)).sum())
    return bent


def _members(rows: _Rows, cells: list[tuple[int, int]]) -> np.ndarray:
    return np.flatnonzero(np.isin(rows.cell, [k * len(rows.mhz) + s for k, s in cells]))


def _smooth_cells(rows: _Rows, name: str, cells: list[tuple[int, int]]) -> Finding:
    members = _members(rows, cells)
    kernels = sorted({rows.kernels[k] for k, _ in cells})
    what = {
        "power": "power falls as the clocks rise, and not at one setting alone: a cap or heat may "
        "have throttled them; check the achieved clocks",
        "time": "time follows the clocks otherwise than a roofline can (faster than their ratio, "
        "or slower though they rise), and not at one setting alone; predicted times will be off "
        "by that",
    }[name]
    return Finding(
        name,
        "warning" if name == "power" else "note",
        rows.index[members],
        f"in {len(kernels)} of {len(rows.kernels)} kernels ({_named(kernels)}) {what}",
    )


def _bad_cells(rows: _Rows, grid: _Grid, name: str, cells: list[tuple[int, int]]) -> Finding:
    members = _members(rows, cells)
    unit = {"time": "s", "power": "W"}[name]
    named = []
    for k, s in cells[:MAX_NAMED]:
        beside = _neighbours(rows, grid.y[k], s)
        values = " and ".join(f"{np.exp(grid.y[k, b]):.4g}" for b in beside)
        named.append(
            f"{rows.where(k, s)} ({np.exp(grid.y[k, s]):.4g} {unit}"
            + (f" beside {values} {unit})" if values else ")")
        )
    what = {
        "power": "power falls though the clocks rise",
        "time": "time is not between what it is at neighbouring clocks and that times the "
        "clocks' ratio",
    }[name]
    more = f"; and {len(cells) - MAX_NAMED} more" if len(cells) > MAX_NAMED else ""
    n_kernels = len({k for k, _ in cells})
    return Finding(
        name,
        "warning",
        rows.index[members],
        f"{what}: {len(members)} rows of {n_kernels} of {len(rows.kernels)} kernels are out of "
        f"line with their neighbours: {'; '.join(named)}{more}; measure them again, or leave "
        f"them out",
    )


def _neighbours(rows: _Rows, y: np.ndarray, setting: int) -> list[int]:
    """The settings next to one, on a line where it has one on either side if there is any."""
    best: list[int] = []
    for _, line in _lines(rows, np.isfinite(y)):
        if setting in line:
            at = int(np.flatnonzero(line == setting)[0])
            beside = [*line[max(at - 1, 0) : at], *line[at + 1 : at + 2]]
            best = beside if len(beside) > len(best) else best
    return best
