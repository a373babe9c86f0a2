"""Comparison of two stores, or of two parts of one: changed times, energies and set-ups."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.comparison.changes import (
    ALPHA,
    Change,
    SiteComparison,
    common_sites,
    compare_site,
    with_adjusted,
)
from analysis.measurements.observations import setting_text, site_names
from analysis.ties import highest
from campaign.store.mixtures import is_known, value_text, values_that_matter
from campaign.store.records import read_contents
from campaign.store.setups import Record, SetupUse, setup_uses
from campaign.store.tables import read_columns
from dvfs.dataset import Columns, is_complete
from dvfs.errors import ArgumentError, unknown_name
from dvfs.setting import NUMBERS, Setting, axis_values, distinct_settings
from dvfs.texts import Texts

if TYPE_CHECKING:
    from campaign.store.layout import Store

INFORMATIVE = {
    "node.os_kernel": ("node", "os_kernel"),
    "versions.commit": ("versions", "commit"),
    "versions.python": ("versions", "python"),
}
"""Values that may change within a campaign, and whose changes a comparison names."""


@dataclass(frozen=True)
class SetupChange:
    """A key of the set-ups whose values differ: (value, measurements) before and after."""

    site: str
    key: str
    before: tuple[tuple[Any, int], ...]
    after: tuple[tuple[Any, int], ...]

    def __str__(self) -> str:
        sides = (
            ", ".join(f"{value_text(value)} ({points})" for value, points in side)
            for side in (self.before, self.after)
        )
        return f"{self.site}: {self.key}: {' -> '.join(sides)}"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The result of :func:`compare_stores`. ``before``, ``after``: names of the compared parts."""

    before: str
    after: str
    sites: tuple[SiteComparison, ...]
    changes: tuple[Change, ...]
    setup_changes: tuple[SetupChange, ...]

    def regressions(self, above_pct: float = 0.0) -> list[Change]:
        """The significant increases of time or energy by more than ``above_pct``."""
        return [
            change
            for change in self.changes
            if change.significant and change.change_pct > above_pct
        ]

    def as_dict(self) -> dict[str, Any]:
        """``campaign compare --json``."""
        return {
            "before": self.before,
            "after": self.after,
            "alpha": ALPHA,
            "correction": "Benjamini-Hochberg within sites, kernels and points, alpha / 3 each",
            "sites": [asdict(site) for site in self.sites],
            "setup_changes": [asdict(change) for change in self.setup_changes],
            "changes": [change.as_dict() for change in self.changes],
        }

    def to_pandas(self) -> pd.DataFrame:
        """The changes, a row each."""
        return pd.DataFrame([change.as_dict() for change in self.changes])


@dataclass(frozen=True)
class _Side:
    """Measurements to compare: the rows of a store where ``rows`` (bool) is true."""

    store: Store
    columns: Columns
    rows: np.ndarray
    name: str


def compare_stores(
    store: Store,
    other: Store | None = None,
    *,
    before: str | None = None,
    after: str | None = None,
    sites: Sequence[str] | None = None,
    alike_nodes: bool = False,
) -> Comparison:
    """Compare two stores or, without ``other``, two parts of one.

    ``before``, ``after``: the parts of one store, each a date (UTC; measured before it, or since)
    or the beginnings of set-ups' ids separated by commas; where only one is given, the other part
    has all other measurements. ``sites``: two sites of one store instead, see
    :func:`_compare_sites`. ``alike_nodes``: see :func:`analysis.comparison.changes.compare_site`.

    Raises:
        ArgumentError: no site or point is in common, or the parts are not given correctly.
        DamagedStoreError: a store cannot be read.
    """
    if sites:
        if other is not None or before or after:
            raise ArgumentError("--site divides one store: give no second one, --before or --after")
        return _compare_sites(_whole(store), sites)
    if other is not None and (before or after):
        raise ArgumentError(
            "--before and --after divide one store: give one store, or none of them"
        )
    sides = _parts(store, before, after) if other is None else [_whole(store), _whole(other)]
    first, second = sides
    summaries, changes, setups = [], [], []
    for site in common_sites(first.columns, second.columns):
        summary, site_changes = compare_site(
            first.columns, second.columns, site, first.rows, second.rows, alike_nodes=alike_nodes
        )
        if summary.common:
            summaries.append(replace(summary, notes=(*summary.notes, *_undated(sides, site))))
            changes += site_changes
            setups += _setup_changes(site, *([_setup_uses(side, site) for side in sides]))
    if not summaries:
        has = [", ".join(site_names(side.columns)) or "none" for side in sides]
        raise ArgumentError(
            f"{first.name} and {second.name} have no measured point in common (site, partition, "
            f"kernel, parameters and setting; sites: {has[0]}; {has[1]}); name two stores that the "
            f"same campaign file was measured into"
        )
    return Comparison(
        before=first.name,
        after=second.name,
        sites=tuple(summaries),
        changes=tuple(with_adjusted(changes)),
        setup_changes=tuple(setups),
    )


def _compare_sites(whole: _Side, sites: Sequence[str]) -> Comparison:
    """Compare two sites of a store: kernels of equal parameters at the common settings, or where
    there are none at the highest setting of each. The nodes of a site are treated as equal.
    Set-ups are not compared, because all of them differ."""
    names = site_names(whole.columns)
    if len(set(sites)) != 2 or len(sites) != 2:
        raise ArgumentError(f"--site: found {', '.join(sites)}; give it for two sites")
    for site in sites:
        if site not in names:
            raise ArgumentError(f"--site: {unknown_name('site', site, names)}")
    name = f"{sites[1]} over {sites[0]}"
    row_sites = whole.columns["site"]
    rows = [whole.rows & (row_sites == site) for site in sites]
    columns = whole.columns
    settings, setting = distinct_settings(*axis_values(columns, np.arange(len(row_sites))))
    nowhere = Texts.same("", len(row_sites))
    note = "each site's nodes are taken for equal"
    if all(side.any() for side in rows) and not np.isin(setting[rows[0]], setting[rows[1]]).any():
        tops = [_highest(settings, setting[side], columns["time_s"][side]) for side in rows]
        rows = [side & (setting == top) for side, top in zip(rows, tops, strict=True)]
        texts = [setting_text(settings[top]) for top in tops]
        note += f"; no setting is common: {sites[0]} at {texts[0]}, {sites[1]} at {texts[1]}"
        unset = np.broadcast_to(np.nan, len(row_sites))
        columns = columns.replaced({**dict.fromkeys(NUMBERS, unset), "profile": nowhere})
    columns = columns.replaced({"site": Texts.same(name, len(row_sites)), "partition": nowhere})
    summary, changes = compare_site(columns, columns, name, *rows, alike_nodes=True)
    if not summary.common:
        raise ArgumentError(
            f"{sites[0]} and {sites[1]} have no kernel of equal parameters in common; "
            f"compare their coefficients: campaign coefficients {whole.name} --site {sites[0]} "
            f"--site {sites[1]}"
        )
    return Comparison(
        before=sites[0],
        after=sites[1],
        sites=(replace(summary, notes=(note, *summary.notes)),),
        changes=tuple(with_adjusted(changes)),
        setup_changes=(),
    )


def _highest(settings: Sequence[Setting], setting: np.ndarray, time_s: np.ndarray) -> int:
    """The index of the highest setting. ``setting``: each row's index into ``settings``, int64
    (rows,); ``time_s``: (rows,)."""
    rows = np.bincount(setting, minlength=len(settings))
    mean_s = np.bincount(setting, time_s, len(settings)) / np.maximum(rows, 1)
    return highest(settings, rows > 0, mean_s)


def _whole(store: Store) -> _Side:
    columns = read_columns(store)
    return _Side(store, columns, is_complete(columns["status"]), str(store.root))


def _parts(store: Store, before: str | None, after: str | None) -> list[_Side]:
    whole = _whole(store)
    if before is None and after is None:
        raise ArgumentError(
            f"{store.root}: found one store; name a second one, or divide this one by the date of "
            f"a change (--after 2026-03-01) or by set-ups: {_setups_text(whole)}"
        )
    options = [
        (name, text) for name, text in (("before", before), ("after", after)) if text is not None
    ]
    divisions = {name: _chosen(whole, text, name) for name, text in options}
    remaining = next(remaining_rows for _, remaining_rows in divisions.values())
    rows_before, rows_after = (
        divisions.get(name, (remaining, remaining))[0] & whole.rows for name in ("before", "after")
    )
    if (rows_before & rows_after).any():
        raise ArgumentError("--before and --after have measurements in common")
    return [
        _Side(store, whole.columns, rows_before, f"{store.root} before {before or after}"),
        _Side(store, whole.columns, rows_after, f"{store.root} after {after or before}"),
    ]


def _undated(sides: Sequence[_Side], site: str) -> list[str]:
    """A sentence with the number of measurements of a divided store that have no time and are in
    neither part; empty where there are none."""
    first, second = sides
    if first.store is not second.store:
        return []
    columns = first.columns
    in_neither = is_complete(columns["status"]) & ~first.rows & ~second.rows
    undated = in_neither & ~(columns["start_unix_s"] > 0)
    n = int((undated & (columns["site"] == site)).sum())
    return [f"{n} measurements without a time (start_unix_s) are in neither part"] if n else []


def _chosen(side: _Side, text: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The rows that a date or set-ups' ids select, and the other rows, bool (rows,). With a date,
    rows without a time are in neither."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        begins = tuple(part.strip() for part in text.split(",") if part.strip())
        setups = [str(setup) for setup in side.columns["setup"].tolist()]
        rows = np.array([bool(begins) and setup.startswith(begins) for setup in setups], bool)
        if not rows.any():
            raise ArgumentError(
                f"--{name}: found {text!r}; must be a date (2026-03-01, or 2026-03-01T12:00), or "
                f"the beginning of a set-up's id: {_setups_text(side)}"
            ) from None
        return rows, ~rows
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    start = side.columns["start_unix_s"]
    is_earlier = start < moment.timestamp()
    earlier, later = (start > 0) & is_earlier, (start > 0) & ~is_earlier
    return (earlier, later) if name == "before" else (later, earlier)


def _setups_text(side: _Side) -> str:
    """The set-ups of a store, each with its number of measurements and the time of the first."""
    frame = pd.DataFrame(
        {
            "setup": [str(setup) for setup in side.columns["setup"].tolist()],
            "start": side.columns["start_unix_s"],
        }
    )[side.rows]
    parts = []
    for name, rows in frame.sort_values("start").groupby("setup", sort=False):
        since = rows["start"].min()
        when = "" if not since > 0 else f" since {datetime.fromtimestamp(since, UTC):%F %H:%M}"
        parts.append(f"{str(name) or 'no record'} ({len(rows)} measurements{when})")
    return ", ".join(parts) or "none"


def _setup_uses(side: _Side, site: str) -> list[SetupUse]:
    """The set-ups of a side's measurements of a site, with their numbers of measurements."""
    at_site = side.rows & (side.columns["site"] == site)
    points = Counter(str(setup) for setup in side.columns["setup"][at_site].tolist())
    uses, _ = setup_uses(side.store, points, read_contents(side.store).tail.setups)
    return [use for use in uses if use.site == site and use.id in points]


def _setup_changes(
    site: str, before: Sequence[SetupUse], after: Sequence[SetupUse]
) -> list[SetupChange]:
    """The keys whose values differ between two sets of set-ups."""
    sides = [[(_named_values(use.record), use.points) for use in uses] for uses in (before, after)]
    changes = []
    for key in dict.fromkeys(key for side in sides for values, _ in side for key in values):
        counted = [_counted(side, key) for side in sides]
        if set(counted[0]) != set(counted[1]) and all(counted):
            first, second = (
                tuple((json.loads(value), points) for value, points in values.items())
                for values in counted
            )
            changes.append(SetupChange(site, key, first, second))
    return changes


def _counted(uses: Sequence[tuple[Mapping[str, Any], int]], key: str) -> Counter[str]:
    """Each value of a key, as JSON, with its number of measurements."""
    counted: Counter[str] = Counter()
    for values, points in uses:
        if key in values or (key not in INFORMATIVE and is_known(values, key)):
            counted[json.dumps(values.get(key), sort_keys=True)] += points
    return counted


def _named_values(record: Record) -> dict[str, Any]:
    values = values_that_matter(record)
    for key, (table, name) in INFORMATIVE.items():
        if name in record.get(table, {}):
            values[key] = record[table][name]
    return values
