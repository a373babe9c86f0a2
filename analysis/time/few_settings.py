"""Times of kernels that were measured at few settings: learned from the other kernels.

A kernel measured at one or two settings says little of how its time scales. Three predictions of
its log times are put together:

- its own roofline (:mod:`analysis.time.kernel_roofline`), from its few times alone;
- the rooflines that the kernels of its site share (:mod:`analysis.time.shared_rooflines`), from
  which it starts, and moves as its own times come in. Kernels count more whose mean power and
  rates of operations, at a setting where it was measured, are like its own;
- a regression over the kernels (:mod:`analysis.time.kernel_regression`) of log times relative to
  that at one of the few settings, on log power and log rates there and on the relative log times at
  the other few. It makes no assumption on how times scale, and knows nothing of clocks that were
  not measured, where the shared rooflines stand in.

Their weights are found on the others: each is taken as if it had been measured at the same few
settings, its times at the rest are predicted in the three ways, and the weights are those of the
least mean squared error of log times, none below 0 and all together 1 (stacking, Wolpert 1992;
Breiman 1996). The errors that are left of the others say how sure the predicted times are. Where
fewer than :data:`LEAST_OTHERS` kernels can be tried, the kernel's own roofline stays.

A kernel that was only profiled has one time and counts, but no power. It is compared with the
others by rates alone, and has a fourth prediction, from its counts
(:mod:`analysis.time.held_out_rooflines`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.measurements.cells import cell_means
from analysis.measurements.observations import Observations, kernel_names
from analysis.time.class_roofline import ClassRoofline
from analysis.time.held_out_rooflines import HeldOutRooflines, ProfiledRun
from analysis.time.kernel_regression import by_regression, log_rates, standardised
from analysis.time.kernel_roofline import SettingTimes, TimeModel, clock_ratios
from analysis.time.shared_rooflines import SharedRooflines, few_times, fit_shared
from analysis.time.stack_weights import (
    relative_errors,
    stack_weights,
    stacked_out_of_fold,
    surely_less,
)

MOST_SETTINGS = 8
"""A kernel with more settings than these has enough of its own."""
LEAST_OTHERS = 5
BANDWIDTHS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 5.0)
"""Of the weights of alike kernels, in mean squared standard deviations of what is compared."""
EVERYONE = 0.02
"""The part of the starting weights in which all kernels count alike."""


@dataclass(frozen=True)
class StackedTimes:
    """Predicted times of one kernel at M settings.

    ``time_s``: float64 (M,); ``root``: (M, M), whose products, summed over the first axis, are the
    covariance of log times.
    """

    time_s: np.ndarray
    root: np.ndarray


def few_setting_times(
    data: Observations,
    model: TimeModel,
    kernels: Sequence[str],
    core_mhz: np.ndarray,
    mem_mhz: np.ndarray,
) -> dict[str, StackedTimes]:
    """The times, at M settings, of those ``kernels`` that were measured at few settings.

    ``model``: all kernels' own rooflines. Kernels with more settings, and those for which too few
    others can be tried, are not in the result.
    """
    groups = few_groups(data, kernels)
    if not groups:
        return {}
    table = _Table.of(data, model)
    shared: SharedRooflines | None = None
    to = clock_ratios(core_mhz, mem_mhz, model.top_mhz)
    times: dict[str, StackedTimes] = {}
    for settings, labels in groups.items():
        others = table.others(settings)
        if len(others) < LEAST_OTHERS:
            continue
        shared = shared or fit_shared(table.log_s, *table.ratios)
        group = _Group(table, shared, model, np.array(settings), others)
        weights, errors = group.stacked()
        root = _square_root(errors[:, group.nearest(to)])
        rows = np.array([table.row[label] for label in labels])
        log_s = np.tensordot(weights, group.predicted(rows, to), 1)
        times |= {label: StackedTimes(np.exp(log_s[i]), root) for i, label in enumerate(labels)}
    return times


@dataclass(frozen=True)
class ProfileTimes(StackedTimes):
    """Those of a profiled kernel. ``error_pct``: what the times of the other kernels, predicted in
    the same way, are off by, the mean of their absolute values, in % of the time."""

    error_pct: float


def profile_stack(
    data: Observations,
    model: TimeModel,
    run: ProfiledRun,
    rooflines: HeldOutRooflines,
    core_mhz: np.ndarray,
    mem_mhz: np.ndarray,
) -> ProfileTimes | None:
    """The times, at M settings, of a kernel that was only profiled, learned from those of ``data``.

    ``data``: kernels with counts; ``model``: their own rooflines; ``rooflines``: of all their
    kernels. None where fewer than :data:`LEAST_OTHERS` were measured at the profile's setting.
    """
    if run.setting not in data.settings:
        return None
    setting = data.settings.index(run.setting)
    table = _Table.of(data, model)
    others = table.others([setting])
    if len(others) < LEAST_OTHERS:
        return None
    shared = fit_shared(table.log_s, *table.ratios)
    row, classes = len(table.log_s), list(data.counts)
    profiled = {row: (run, rooflines.whole)}
    for label, i in table.row.items():
        if i in others:
            counts = dict(zip(classes, table.counts[i].tolist(), strict=True))
            time_s = float(np.exp(table.log_s[i, setting]))
            profiled[i] = ProfiledRun(counts, time_s, run.setting), rooflines.without[label]
    counted = np.nan_to_num([run.counts.get(name, 0.0) for name in classes])
    table = table.with_row(setting, run.time_s, counted)
    group = _Group(table, shared, model, np.array([setting]), others, profiled)
    to = clock_ratios(core_mhz, mem_mhz, model.top_mhz)
    errors, hidden = group.errors()
    by_counts = errors[-1]
    weights, left_out = np.array([0.0, 0.0, 0.0, 1.0]), by_counts
    out_of_fold = stacked_out_of_fold(errors, hidden)
    if surely_less(relative_errors(out_of_fold, hidden), relative_errors(by_counts, hidden)):
        weights, left_out = stack_weights(errors[:, hidden]), out_of_fold
    log_s = np.tensordot(weights, group.predicted(np.array([row]), to), 1)[0]
    core, mem = table.at(np.array([setting]))
    here = (to[0] == core) & (to[1] == mem)
    root = left_out / np.sqrt(np.maximum(hidden.sum(axis=0), 1))
    return ProfileTimes(
        np.exp(log_s),
        _square_root(np.where(here, 0.0, root[:, group.nearest(to)])),
        100.0 * float(np.average(relative_errors(left_out, hidden), weights=hidden.sum(axis=1))),
    )


def few_groups(data: Observations, kernels: Sequence[str]) -> dict[tuple[int, ...], list[str]]:
    """Those of ``kernels`` that were measured at few of the settings, by these settings."""
    at: dict[str, set[int]] = {label: set() for label in kernels}
    for label, setting in zip(data.kernel.tolist(), data.setting.tolist(), strict=True):
        if label in at:
            at[label].add(setting)
    n = len(np.unique(data.setting))
    groups = defaultdict(list)
    for label, settings in at.items():
        if 0 < len(settings) <= min(MOST_SETTINGS, n - 1):
            groups[tuple(sorted(settings))].append(label)
    return groups


@dataclass(frozen=True, kw_only=True)
class _Table:
    """Kernels by settings: ``log_s``, ``log_w`` float64 (K, S), mean log time and power, NaN where
    not measured; ``modelled_log_s``: by their own rooflines; ``counts``: (K, classes);
    ``ratios``: f_top / f of both domains, (S,)."""

    row: Mapping[str, int]
    log_s: np.ndarray
    log_w: np.ndarray
    modelled_log_s: np.ndarray
    counts: np.ndarray
    ratios: tuple[np.ndarray, np.ndarray]

    @classmethod
    def of(cls, data: Observations, model: TimeModel) -> _Table:
        labels = kernel_names(data)
        row = {label: i for i, label in enumerate(labels)}
        number = [row[label] for label in data.kernel.tolist()]
        log_s = np.log(data.time_s)
        counts = np.zeros((len(labels), len(data.counts)))
        for i, values in enumerate(data.counts.values()):
            counts[number, i] = np.nan_to_num(values)
        mhz = data.mhz
        return cls(
            row=row,
            log_s=cell_means(data, labels, log_s),
            log_w=cell_means(data, labels, np.log(data.energy_j) - log_s),
            modelled_log_s=np.log(np.array([model.time_s(label, *mhz.T) for label in labels])),
            counts=counts,
            ratios=clock_ratios(mhz[:, 0], mhz[:, 1], model.top_mhz),
        )

    def others(self, settings: Sequence[int]) -> np.ndarray:
        """Rows of the kernels that were measured at all these settings, and at one more."""
        known = np.isfinite(self.log_s)
        inside = known[:, list(settings)].all(axis=1)
        return np.flatnonzero(inside & (known.sum(axis=1) > len(settings)))

    def with_row(self, setting: int, time_s: float, counts: np.ndarray) -> _Table:
        """With one more kernel, at the end, of which only its time there and its counts are
        known."""
        unknown = np.full((1, self.log_s.shape[1]), np.nan)
        log_s = unknown.copy()
        log_s[0, setting] = np.log(time_s)
        return replace(
            self,
            log_s=np.vstack([self.log_s, log_s]),
            log_w=np.vstack([self.log_w, unknown]),
            modelled_log_s=np.vstack([self.modelled_log_s, unknown]),
            counts=np.vstack([self.counts, counts]),
        )

    def at(self, settings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        core, mem = self.ratios
        return core[settings], mem[settings]


@dataclass(frozen=True)
class _Group:
    """Kernels that were measured at the same few ``settings``, and ``others`` to learn from.

    ``profiled``: row -> what is known of the kernel if it was only profiled, and the class roofline
    to predict it by; None where the kernels were measured, with their power."""

    table: _Table
    shared: SharedRooflines
    model: TimeModel
    settings: np.ndarray
    others: np.ndarray
    profiled: Mapping[int, tuple[ProfiledRun, ClassRoofline]] | None = None

    def predicted(self, rows: np.ndarray, to: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Log times of the kernels ``rows`` at M settings ``to``, float64 (3, rows, M): by their
        own rooflines, the shared ones, and the regression; of profiled ones (4, rows, M), the last
        by their counts. No kernel learns from itself."""
        log_s = self.table.log_s[np.ix_(rows, self.settings)]
        at = self.table.at(self.settings)
        own = np.array([self._own_roofline(times, to) for times in np.exp(log_s)])
        shared = few_times(self.shared, self._prior(rows), log_s, at, to)
        regression = shared.copy()
        same = (to[0][:, None] == self.table.ratios[0]) & (to[1][:, None] == self.table.ratios[1])
        same &= np.isfinite(self.table.log_s[self.others]).any(axis=0)
        there = same.any(axis=1)
        regression[:, there] = self._regression(rows)[:, same.argmax(axis=1)[there]]
        if self.profiled is None:
            return np.stack([own, shared, regression])
        mhz = [
            np.where(ratio > 0, top / np.where(ratio > 0, ratio, 1.0), np.nan)
            for top, ratio in zip(self.model.top_mhz, to, strict=True)
        ]
        runs = [self.profiled[row] for row in rows.tolist()]
        by_counts = np.array([run.log_s(roofline, *mhz) for run, roofline in runs])
        return np.stack([own, shared, regression, by_counts])

    def stacked(self) -> tuple[np.ndarray, np.ndarray]:
        """The weights of the predictions, tried on the others; and the errors of log times that
        are left, float64 (others, S), whose products, summed over the others, are their
        covariance."""
        errors, hidden = self.errors()
        weights = stack_weights(errors[:, hidden])
        # The weights were found on the same errors.
        free = np.maximum(hidden.sum(axis=0) - float(len(weights)), 1.0)
        return weights, np.tensordot(weights, errors, 1) / np.sqrt(free)

    def errors(self) -> tuple[np.ndarray, np.ndarray]:
        """What log times of the others, each taken as if it had been measured at these settings
        alone, are predicted wrong by, float64 (predictions, others, S); 0 where that cannot be
        known, and bool (others, S): where it can."""
        true = self.table.log_s[self.others]
        hidden = np.isfinite(true)
        hidden[:, self.settings] = False
        predicted = self.predicted(self.others, self.table.ratios)
        return np.where(hidden, predicted - np.nan_to_num(true), 0.0), hidden

    def nearest(self, to: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Of each setting of ``to`` (M,), the nearest one at which the others were tried."""
        known = np.isfinite(self.table.log_s[self.others]).any(axis=0)
        known[self.settings] = False
        tried = np.flatnonzero(known)
        core, mem = self.table.at(tried)
        distance = (to[0][:, None] - core) ** 2 + (to[1][:, None] - mem) ** 2
        return np.asarray(tried[distance.argmin(axis=1)])

    def _own_roofline(self, time_s: np.ndarray, to: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Log times of a kernel by its own roofline, fitted at these settings alone."""
        core, mem = self.table.at(self.settings)
        own = SettingTimes(time_s, np.arange(len(time_s)), core, mem)
        paced_s, _ = own.sums(self.model.exponent).fit()
        return np.log(self.model.ratio_times_s(np.array([paced_s]), *to)[0])

    def _regression(self, rows: np.ndarray) -> np.ndarray:
        """Log times (rows, S) by regression; those of one of the others without itself."""
        table, others, first = self.table, self.others, self._first()
        rest = self.settings[self.settings != first]
        relative = table.log_s[:, rest] - table.log_s[:, [first]]
        x = standardised(np.column_stack([self._features(), relative]), others)
        log_s = np.where(np.isfinite(table.log_s), table.log_s, table.modelled_log_s)[others]
        y = log_s - log_s[:, [first]]
        place = {row: i for i, row in enumerate(others.tolist())}
        itself = np.array([place.get(row, -1) for row in rows.tolist()])
        curves = by_regression(x[others], y, x[rows], itself)
        return np.asarray(table.log_s[rows][:, [first]] + curves)

    def _prior(self, rows: np.ndarray) -> np.ndarray:
        """Weights of the shares that each of ``rows`` starts from, float64 (rows, G)."""
        membership, others = self.shared.membership, self.others
        nobody = rows[:, None] == others
        features = standardised(self._features(), others)
        distance = ((features[others][:, None] - features[others]) ** 2).mean(axis=2)
        bandwidth = self._bandwidth(distance, membership[others])
        to_others = ((features[rows][:, None] - features[others]) ** 2).mean(axis=2)
        weight = _alike(to_others, bandwidth, nobody)
        everyone = _alike(np.zeros(nobody.shape), bandwidth, nobody)
        return np.asarray(((1.0 - EVERYONE) * weight + EVERYONE * everyone) @ membership[others])

    def _bandwidth(self, distance: np.ndarray, membership: np.ndarray) -> float:
        """That by which alike kernels predict the others' curves best, each without itself."""
        first = self._first()
        curves = membership @ self.shared.curves(*self.table.ratios)
        curves = curves - curves[:, [first]]
        nobody = np.eye(len(distance), dtype=bool)
        errors = [
            float(np.mean((_alike(distance, width, nobody) @ curves - curves) ** 2))
            for width in BANDWIDTHS
        ]
        return BANDWIDTHS[int(np.argmin(errors))]

    def _first(self) -> int:
        """The setting at which kernels are compared: the fastest of these."""
        mean = self.table.log_s[np.ix_(self.others, self.settings)].mean(axis=0)
        return int(self.settings[np.argmin(mean)])

    def _features(self) -> np.ndarray:
        """Log power, of kernels that were not only profiled, and log rates of operations, there:
        float64 (K, 1 + classes) or (K, classes)."""
        first = self._first()
        log_rate = log_rates(self.table.counts, np.exp(self.table.log_s[:, first]), self.others)
        if self.profiled is not None:
            return log_rate
        return np.column_stack([self.table.log_w[:, first], log_rate])


def _alike(distance: np.ndarray, bandwidth: float, nobody: np.ndarray) -> np.ndarray:
    """Weights (rows, others) that sum to 1, larger for nearer ones, 0 where ``nobody``."""
    with np.errstate(invalid="ignore"):
        least = np.where(nobody, np.inf, distance).min(axis=1, keepdims=True)
        weight = np.where(nobody, 0.0, np.exp((least - distance) / (2.0 * bandwidth)))
    return np.asarray(weight / weight.sum(axis=1, keepdims=True))


def _square_root(root: np.ndarray) -> np.ndarray:
    """(M, M), symmetric, with the same products, summed over the first axis, as ``root`` (R, M)."""
    spread, axes = np.linalg.eigh(root.T @ root)
    return np.asarray((axes * np.sqrt(np.maximum(spread, 0.0))) @ axes.T)
