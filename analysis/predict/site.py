"""The posterior of a site: from its measurements, every kernel at every setting.

The model's two coordinates of a setting are its clocks. Where only power limits differ, the limit
takes the place of the core clock, which it throttles. A profile multiplies the core clock by the
speed of kernels under it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from analysis.choice.losses import Predicted, comparable, highest_clocks
from analysis.choice.objectives import Objective
from analysis.energy.models import NOT_KNOWN
from analysis.measurements.observations import (
    FitError,
    Observations,
    first_rows,
    kernel_names,
    kernel_numbers,
    setting_text,
)
from analysis.predict.covariance import Prior
from analysis.predict.kernel_mixture import energies_and_times, everywhere
from analysis.predict.posterior import Posterior
from analysis.predict.power_limits import PowerLimits
from analysis.ties import first_least, time_noise
from dvfs.setting import NUMBERS, Setting, Volts, clock_columns, number_columns

FEWEST = 6
"""With so many settings some can be hidden: the others show how kernels depend on clocks."""
FEWEST_CHECKED = 3
LEAST_FEATURE = 1e-4
LEAST_HELD = 0.85
"""With a smaller share of energies in their 95 % intervals a site is unlike the devices that the
model knows."""
GROUPS = 8
"""The number of groups of settings, each left out in turn; with fewer settings each is a group."""
SEED = 19840101
LIKE_LEVELS = 0.1, 0.05
"""The overall difference of a site's times and powers from those of a site like it, after its fit:
standard deviations of logarithms."""
LIKE_DEVICE = 0.1
"""The same for the numbers of their devices (:mod:`analysis.predict.population`)."""


def coordinates(settings: Sequence[Setting], data: Observations) -> np.ndarray:
    """Return the model's core and memory clocks of settings, float64 (settings, 2), NaN for none.

    These are the clocks, or the power limits where all clocks are equal. The first is multiplied by
    the profile's speed, as the clock under a profile is not known (:func:`profile_speeds`).
    """
    core_mhz, mem_mhz = clock_columns(settings).T
    limit_w = number_columns(settings)[:, NUMBERS.index("power_limit_w")]
    if len({setting.clocks for setting in settings}) == 1 and not np.isnan(limit_w).all():
        # Without a limit a device has its default one, the highest.
        core_mhz = np.where(np.isnan(limit_w), np.nanmax(limit_w), limit_w)
        mem_mhz = np.full(len(settings), np.nan)
    speeds = profile_speeds(data)
    if len(speeds) > 1:
        usual = float(np.exp(np.mean(np.log(list(speeds.values())))))
        speed = [speeds.get(setting.profile, usual) for setting in settings]
        core_mhz = np.where(np.isnan(core_mhz), 1.0, core_mhz) * np.array(speed)
    return np.column_stack([core_mhz, mem_mhz])


def profile_speeds(data: Observations) -> dict[str | None, float]:
    """Return profile -> relative speed of kernels under it, 1 for the fastest: exp(b_p) by least
    squares of log t = a_kc - b_p over the rows of kernels k at the clocks and limits c."""
    profiles = sorted({setting.profile or "" for setting in data.settings})
    if len(profiles) < 2:
        return dict.fromkeys([name or None for name in profiles], 1.0)
    without_profile = [replace(setting, profile=None) for setting in data.settings]
    number = {setting: i for i, setting in enumerate(dict.fromkeys(without_profile))}
    clocks = np.array([number[setting] for setting in without_profile])
    group = data.kernel * len(number) + clocks[data.setting]
    _, group = np.unique(group, return_inverse=True)
    rows = np.bincount(group)
    index = np.array([profiles.index(setting.profile or "") for setting in data.settings])
    has_profile = (index[data.setting] == p for p in range(len(profiles)))
    columns = np.column_stack([-np.log(data.time_s), *has_profile])
    means = np.stack([np.bincount(group, column) / rows for column in columns.T], axis=1)
    speed, *profile = (columns - means[group]).T
    log_speed = np.linalg.lstsq(np.stack(profile, axis=1), speed, rcond=None)[0]
    relative = np.exp(log_speed - log_speed.max()).tolist()
    return {
        name or None: relative_speed
        for name, relative_speed in zip(profiles, relative, strict=True)
    }


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A trial of picks on K measured kernels, of which some measurements are hidden, G times.

    ``log_j``, ``log_s``: log energies and log times, (G, K, S), predicted where hidden;
    ``measured_log_j``, ``measured_log_s``, (K, S), NaN where not measured. ``closed``: bool (G, S),
    settings that are hidden for all kernels.
    """

    settings: Sequence[Setting]
    log_j: np.ndarray
    log_s: np.ndarray
    measured_log_j: np.ndarray
    measured_log_s: np.ndarray
    closed: np.ndarray

    def _above(self, objective: Objective) -> np.ndarray:
        """Return each setting's score above the kernel's least, (K, S), NaN where unknown."""
        score = _score(objective, self.measured_log_j, self.measured_log_s)
        return np.asarray(score / np.nanmin(score, axis=1, keepdims=True) - 1.0)

    def best_single(self, objective: Objective) -> Setting:
        """Return the setting that is best on average over these kernels."""
        above = self._above(objective)
        measured = np.isfinite(above)
        kernels, is_compared = comparable(measured)
        total = np.where(measured, above, 0.0)[kernels].sum(axis=0)
        mean = total / np.maximum(measured[kernels].sum(axis=0), 1)
        return self.settings[int(first_least(np.where(is_compared, 1.0 + mean, np.inf)))]

    def lost_pct(self, objective: Objective) -> dict[str, float]:
        """Return the mean losses of the model's picks, of the best single setting of the other
        kernels and of the highest clocks, in % of the score; NaN where some kernel was not measured
        there.

        The best single setting is chosen by :func:`~analysis.choice.losses.comparable`: a setting
        of few kernels may have been measured because it is good for these.
        """
        above = self._above(objective)
        kernels, measured = np.arange(len(above)), np.isfinite(above)
        lost: dict[str, list[np.ndarray]] = {"model": [], "best_single": [], "highest_clocks": []}
        top = highest_clocks(self.settings)
        for log_j, log_s, closed in zip(self.log_j, self.log_s, self.closed, strict=True):
            score = np.where(measured, _score(objective, log_j, log_s), np.inf)
            lost["model"].append(above[kernels, first_least(score.T)])
            counted, is_compared = comparable(measured & ~closed)
            counted_above = np.where(measured & counted[:, None], above, 0.0)
            count = measured[counted].sum(axis=0) - (measured & counted[:, None])
            mean_of_others = (counted_above.sum(axis=0) - counted_above) / np.maximum(count, 1)
            single = np.where(measured & is_compared & (count > 0), mean_of_others, np.inf)
            lost["best_single"].append(
                np.where(
                    np.isfinite(single.min(axis=1)),
                    above[kernels, first_least(1.0 + single.T)],
                    np.nan,
                )
            )
            lost["highest_clocks"].append(
                np.full(len(above), np.nan) if top is None else above[:, top]
            )
        return {name: 100.0 * float(np.mean(losses)) for name, losses in lost.items()}


def _score(objective: Objective, log_j: np.ndarray, log_s: np.ndarray) -> np.ndarray:
    measured = np.isfinite(log_j)
    energy_j, time_s = (
        np.exp(np.where(measured, log, np.nanmax(log, axis=1, keepdims=True)))
        for log in (log_j, log_s)
    )
    return np.where(measured, objective.score(energy_j.T, time_s.T).T, np.nan)


@dataclass(frozen=True, kw_only=True)
class SitePosterior:
    """The posterior of the kernels ``labels`` (K) at ``settings`` (S).

    ``repeats``: int64 (K, S), the number of measurements of each cell. ``posterior``: at these
    settings, then at those of a site like it; with ``limits`` at the clocks from which the settings
    follow. ``under_limit``: (2, K, S), the measured log times and log powers under a limit, NaN
    elsewhere. ``noise``: variances of one log time, log power and log energy about its cell's mean,
    the first two 0 without repeats. ``counts``: operations by class, (K, C), NaN where not known;
    ``uses_counts``: whether the posterior uses rates of operations.
    """

    labels: list[str]
    settings: list[Setting]
    repeats: np.ndarray
    posterior: Posterior
    noise: tuple[float, float, float]
    counts: np.ndarray
    uses_counts: bool = False
    limits: PowerLimits | None = None
    under_limit: np.ndarray | None = None

    def _at_settings(
        self, log_j: np.ndarray, log_s: np.ndarray, kernels: Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return log energies and log times at the settings, (S, n), from those of ``posterior``;
        the n columns are ``kernels``, or draws of one kernel."""
        if self.limits is None or self.under_limit is None:
            return log_j[: len(self.settings)], log_s[: len(self.settings)]
        mean = self.posterior.mean[kernels].T
        L = self.posterior.settings
        predicted = np.array(self.limits.apply(mean[:L], mean[L : 2 * L]))
        difference = self.under_limit[:, kernels].swapaxes(1, 2) - predicted
        difference = np.where(np.isnan(difference), 0.0, difference)
        log_s, log_w = difference + self.limits.apply(log_s, log_j - log_s)
        return log_s + log_w, log_s

    @property
    def rough_time(self) -> float:
        """The rough standard deviation of a single log time: all of it counts as noise of times
        that were measured once."""
        return float(np.sqrt(self.posterior.prior.rough[0]))

    def score_noise(self, exponents: np.ndarray) -> np.ndarray:
        """Return the variance of one measurement's log score about its cell's mean, float64 (n,).

        ``exponents``: (2, n), of its energy and its time in the score.
        """
        time, power, energy = self.noise
        covariance = (energy - time - power) / 2.0
        if not time + power:  # no repeats: the two are taken to be independent
            (time, power), covariance = self.posterior.prior.noise, 0.0
        of_power, of_time = exponents[0], exponents.sum(axis=0)
        return np.asarray(
            of_time**2 * time + of_power**2 * power + 2.0 * of_time * of_power * covariance
        )

    def draws(self) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """Yield each kernel's label with draws of its energies (J) and times (s), (S, draws)."""
        for k, log_j, log_s in self.posterior.draws():
            energy_j, time_s = map(np.exp, self._at_settings(log_j, log_s, [k]))
            yield self.labels[k], energy_j, time_s

    @cached_property
    def _medians(self) -> tuple[np.ndarray, np.ndarray]:
        every = range(len(self.labels))
        log_j, log_s = self.posterior.log_j.T, self.posterior.log_s.T
        log_j, log_s = self._at_settings(log_j, log_s, every)
        return np.exp(log_j.T), np.exp(log_s.T)

    @property
    def energy_j(self) -> np.ndarray:
        """The median energies, J, float64 (K, S)."""
        return self._medians[0]

    @property
    def time_s(self) -> np.ndarray:
        """The median times, s, float64 (K, S)."""
        return self._medians[1]

    def of_rows(self, data: Observations) -> Predicted:
        """Return the median energies and times of rows; NaN for kernels without data."""
        row, column = cells_of(data, self.labels, self.settings)
        has_cells = np.isfinite(self.posterior.z).any(axis=1)[row]
        return Predicted(
            np.where(has_cells, self.energy_j[row, column], np.nan),
            np.where(has_cells, self.time_s[row, column], np.nan),
        )

    def cells(self, data: Observations) -> SiteCells:
        """Return measurements of the same kernels and settings, for :meth:`from_cells`."""
        at_settings = CellLogs.from_rows(data, self.labels, self.settings).sums
        if self.limits is None:
            return SiteCells(at_settings, at_settings)
        run_at = CellLogs.from_rows(self.limits.rows(data), self.labels, self.limits.clocks)
        return SiteCells(run_at.sums, at_settings)

    def from_cells(self, cells: SiteCells, timed: SiteCells | None = None) -> SitePosterior:
        """Return the posterior from other ``cells`` of the same kernels and settings, and from the
        times alone of ``timed``; the prior's hyperparameters stay fixed."""
        (log_s, log_w), repeats = cells.run_at.means(), cells.run_at.repeats
        if timed is not None:
            timed_log_s, _ = timed.run_at.means()
            log_s = np.where(np.isnan(log_s), timed_log_s, log_s)
        prior = replace(self.posterior.prior, features=np.zeros(0))
        posterior = Posterior.conditioned(
            prior, np.hstack([log_s, log_w]), _noise_of_means(self.noise, repeats)
        )
        if self.uses_counts:
            posterior = _with_counts(posterior, self.counts)
        return replace(
            self,
            repeats=cells.at_settings.repeats,
            posterior=posterior,
            under_limit=None
            if self.limits is None
            else _under_limit(cells.at_settings, self.settings),
        )

    @cached_property
    def trials(self) -> dict[str, Trial]:
        """Label -> trial of picks for such a kernel, where there is one.

        There is none at a site with power limits at several clocks. For a kernel with few settings,
        where others have all: each of these, predicted from the same cells
        (:mod:`analysis.predict.kernel_mixture`). Else, where :data:`FEWEST` settings or more were
        measured, but not all: the kernels measured there, with some of these settings hidden.
        """
        conditional, S = self.posterior.conditional, len(self.settings)
        tried: dict[str, Trial] = {}
        if self.limits is not None:
            return tried
        for pattern, (_, left_out) in zip(
            conditional.patterns, self.posterior.mixtures, strict=True
        ):
            if left_out is None:
                continue
            whole = everywhere(conditional)
            true = energies_and_times(conditional, conditional.z[whole])
            predicted = true + left_out.log_means - left_out.true
            predicted = np.where(np.tile(pattern.both(S), 2), true, predicted)
            trial = Trial(
                settings=self.settings,
                log_j=predicted[None, :, :S],
                log_s=predicted[None, :, S:],
                measured_log_j=true[:, :S],
                measured_log_s=true[:, S:],
                closed=np.zeros((1, S), bool),
            )
            tried |= {self.labels[k]: trial for k in pattern.kernels.tolist()}
        untried = [label for label in self.labels if label not in tried]
        if untried and (self.repeats == 0).any() and (by_setting := self._settings_hidden()):
            tried |= dict.fromkeys(untried, by_setting)
        return tried

    def _settings_hidden(self) -> Trial | None:
        """Return the trial of all kernels at the measured settings, each group of settings
        predicted from the others; None with fewer settings than :data:`FEWEST`."""
        present = np.flatnonzero((self.repeats > 0).any(axis=0))
        if len(present) < FEWEST or len(self.settings) < self.posterior.settings:
            return None
        hidden, measured, log_j, log_s, _ = self._left_out(present)
        return Trial(
            settings=[self.settings[s] for s in present],
            log_j=log_j,
            log_s=log_s,
            measured_log_j=measured[0],
            measured_log_s=measured[1],
            closed=hidden,
        )

    def _left_out(
        self, present: np.ndarray
    ) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray], np.ndarray, np.ndarray, np.ndarray]:
        """Predict groups of the settings ``present`` (n,), each left out for all kernels.

        Return which settings are left out, bool (G, n); measured log energies and log times,
        (K, n), NaN where not measured; the same, predicted where left out, (G, K, n) each; and half
        the widths of the 95 % intervals of log energies.
        """
        S, n = self.posterior.settings, len(present)
        columns = np.concatenate([present, present + S])
        z, noise = self.posterior.z[:, columns], self.posterior.noise
        noise = None if noise is None else noise[:, columns]
        prior = replace(self.posterior.prior, features=np.zeros(0)).take(present)
        measured = z[:, :n] + z[:, n:], z[:, :n]
        order = np.random.default_rng(SEED).permutation(n)
        hidden = np.array([order % GROUPS == group for group in range(min(GROUPS, n))])
        predicted = np.empty((3, len(hidden), *measured[0].shape))
        for g, is_hidden in enumerate(hidden):
            posterior = Posterior.conditioned(
                prior, np.where(np.tile(is_hidden, 2), np.nan, z), noise
            )
            predicted[0, g] = np.where(is_hidden, posterior.log_j, measured[0])
            predicted[1, g] = np.where(is_hidden, posterior.log_s, measured[1])
            predicted[2, g] = posterior.energy_reach()
        predicted[:, :, np.isnan(measured[0])] = np.nan
        return hidden, measured, *predicted

    def check(self) -> PosteriorCheck | None:
        """Compare measured energies with predictions that leave out their settings; None with fewer
        than three settings."""
        settings = self.settings if self.limits is None else self.limits.clocks
        powers = self.posterior.z[:, self.posterior.settings :][:, : len(settings)]
        present = np.flatnonzero(np.isfinite(powers).any(axis=0))
        if len(present) < FEWEST_CHECKED:
            return None
        hidden, (measured, _), log_j, _, reach = self._left_out(present)
        error = measured - log_j
        is_judged = hidden[:, None] & np.isfinite(error)
        total = np.expm1(np.where(is_judged, error, 0.0)).sum(axis=(0, 1))
        mean_error = total / is_judged.sum(axis=(0, 1))
        worst = int(np.argmax(np.abs(mean_error)))
        return PosteriorCheck(
            cases=int(is_judged.sum()),
            held=float(np.mean((np.abs(error) <= reach)[is_judged])),
            error_pct=100.0 * float(np.mean(np.abs(np.expm1(error[is_judged])))),
            worst=settings[present[worst]],
            worst_pct=100.0 * float(mean_error[worst]),
        )


@dataclass(frozen=True)
class PosteriorCheck:
    """The check of energies predicted without their settings: the number of ``cases``, the share
    ``held`` by their 95 % intervals, and the mean relative error. ``worst``: the setting where the
    measured energies of all kernels differ most from the predicted ones on average, by
    ``worst_pct``."""

    cases: int
    held: float
    error_pct: float
    worst: Setting
    worst_pct: float

    @property
    def is_unlike(self) -> bool:
        """Whether the site is unlike the devices that the model knows."""
        return self.held < LEAST_HELD

    @property
    def text(self) -> str:
        """The check in words."""
        return (
            f"settings left out: {self.cases} energies are predicted with an error of "
            f"{self.error_pct:.2f} %, {100.0 * self.held:.0f} % of them within their 95 % "
            f"interval; the worst setting is {setting_text(self.worst)} ({self.worst_pct:+.1f} % "
            f"measured)"
        )


def site_posterior(
    data: Observations,
    volts: Volts,
    like: tuple[Observations, Volts] | None = None,
    kernels: Sequence[str] = (),
) -> SitePosterior:
    """Return the posterior of all kernels of ``data``, and of ``kernels``, which it may lack, at
    the settings of ``volts``, which has the measured ones.

    Repeats are averaged as logarithms; the scatter of all repeats gives the variance of a mean.
    ``like``: measurements of a site of the same chip or family, and the voltages of its settings.
    These count as further settings of the same machine, with a difference between the two
    (:data:`LIKE_LEVELS`, :data:`LIKE_DEVICE`).

    Raises:
        ValueError: nothing was measured.
    """
    settings = sorted(volts)
    labels = sorted({*kernel_names(data), *kernels, *(kernel_names(like[0]) if like else ())})
    limits = PowerLimits.of(settings, data)
    if limits is not None:
        if like is not None:
            raise FitError(f"--like: {data.site} has power limits at several clocks; leave it out")
        return _under_limits(data, volts, labels, limits)
    cells = CellLogs.from_rows(data, labels, settings)
    (log_s, log_w), repeats, noise = cells.sums.means(), cells.sums.repeats, cells.noise()
    mhz, volts_known = coordinates(settings, data), data.voltage not in NOT_KNOWN
    all_volts = [volts[setting] for setting in settings]
    means = repeats
    if like is not None:
        like_settings = sorted(like[1])
        like_cells = CellLogs.from_rows(like[0], labels, like_settings)
        log_s, log_w = map(np.hstack, zip((log_s, log_w), like_cells.sums.means(), strict=True))
        means, like_noise = np.hstack([repeats, like_cells.sums.repeats]), like_cells.noise()
        mhz = np.vstack([mhz, coordinates(like_settings, like[0])])
        if not volts_known and set(settings) <= set(like_settings):
            all_volts = [like[1][setting] for setting in settings]
            volts_known = True
        all_volts += [like[1][setting] for setting in like_settings]
        volts_known = volts_known and like[0].voltage not in NOT_KNOWN
        noise = (*np.maximum(noise[:2], like_noise[:2]), noise[2] or like_noise[2])
    posterior = Posterior.of(
        mhz,
        np.hstack([log_s, log_w]),
        volts=np.array(all_volts) if volts_known else None,
        noise=_noise_of_means(noise, means),
    )
    if like is not None:
        prior = posterior.prior
        prior = replace(prior, more=_difference(prior, len(settings)))
        posterior = Posterior.conditioned(prior, posterior.z, posterior.noise)
    noise = (noise[0], noise[1], noise[2] or posterior.noise_once)
    counts = _counts([data, *([like[0]] if like else [])], labels)
    site = SitePosterior(
        labels=labels,
        settings=settings,
        repeats=repeats,
        posterior=posterior,
        noise=noise,
        counts=counts,
    )
    with_counts = _with_counts(posterior, counts)
    if _predicts_better(with_counts, posterior):
        site = replace(site, posterior=with_counts, uses_counts=True)
    return site


def _under_limits(
    data: Observations, volts: Volts, labels: Sequence[str], limits: PowerLimits
) -> SitePosterior:
    """Return the posterior of a site with power limits at several clocks, by the clocks run at."""
    site = site_posterior(limits.rows(data), limits.volts(volts), kernels=labels)
    cells = CellLogs.from_rows(data, labels, limits.settings).sums
    return replace(
        site,
        settings=list(limits.settings),
        repeats=cells.repeats,
        limits=limits,
        under_limit=_under_limit(cells, limits.settings),
    )


def _under_limit(cells: CellSums, settings: Sequence[Setting]) -> np.ndarray:
    """Return measured log times and log powers under a power limit, (2, K, S), NaN elsewhere."""
    limited = [setting.power_limit_w is not None for setting in settings]
    return np.where(limited, np.array(cells.means()), np.nan)


def site_time_noise(data: Observations, volts: Volts) -> dict[str, float]:
    """Return kernel -> relative standard deviation of one measurement of its time
    (:func:`analysis.ties.time_noise`), without repeats from the posterior."""
    noise = time_noise(data)
    if any(noise.values()):
        return noise
    return time_noise(data, site_posterior(data, volts).rough_time)


def cells_of(
    data: Observations, labels: Sequence[str], settings: Sequence[Setting]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the kernel and the setting of each row, as indices in ``labels`` and ``settings``."""
    index = {setting: i for i, setting in enumerate(settings)}
    column = np.array([index.get(setting, -1) for setting in data.settings])
    return kernel_numbers(data, labels), column[data.setting]


@dataclass(frozen=True)
class CellLogs:
    """Rows by kernel and setting: ``cell``, int64 (rows,), each row's index in a table of ``shape``
    (K, S); ``log_s``, ``log_w``: log times and log powers, (rows,)."""

    cell: np.ndarray
    shape: tuple[int, int]
    log_s: np.ndarray
    log_w: np.ndarray

    @classmethod
    def from_rows(
        cls, data: Observations, labels: Sequence[str], settings: Sequence[Setting]
    ) -> CellLogs:
        kernel, setting = cells_of(data, labels, settings)
        log_s = np.log(data.time_s)
        log_w = np.log(data.energy_j / data.time_s)
        return cls(kernel * len(settings) + setting, (len(labels), len(settings)), log_s, log_w)

    @cached_property
    def sums(self) -> CellSums:
        """The sums over the rows of each cell."""
        size = math.prod(self.shape)
        weights = (None, self.log_s, self.log_w)
        sums = (np.bincount(self.cell, weight, size).reshape(self.shape) for weight in weights)
        return CellSums(*sums)

    def noise(self) -> tuple[float, float, float]:
        """Return variances of one log time, log power and log energy, 0 without repeats."""
        repeats, (mean_s, mean_w) = self.sums.repeats, self.sums.means()
        freedom = int((repeats - 1)[repeats > 1].sum())
        if not freedom:
            return 0.0, 0.0, 0.0
        time = self.log_s - mean_s.ravel()[self.cell]
        power = self.log_w - mean_w.ravel()[self.cell]
        time_variance, power_variance, energy_variance = (
            float((deviation**2).sum()) / freedom for deviation in (time, power, time + power)
        )
        return time_variance, power_variance, energy_variance


@dataclass(frozen=True)
class CellSums:
    """Sums over the rows of each cell, (K, S): ``repeats``, int64, their number; ``log_s``,
    ``log_w``: their log times and log powers."""

    repeats: np.ndarray
    log_s: np.ndarray
    log_w: np.ndarray

    def means(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean log times and log powers, (K, S), NaN where a cell was not measured."""
        n = np.where(self.repeats > 0, self.repeats, np.nan)
        return self.log_s / n, self.log_w / n

    def __sub__(self, part: CellSums) -> CellSums:
        """Return the sums without some of the rows."""
        return CellSums(
            self.repeats - part.repeats, self.log_s - part.log_s, self.log_w - part.log_w
        )


@dataclass(frozen=True)
class SiteCells:
    """Rows by kernel and setting: ``run_at``, by the clocks run at where these follow from a power
    limit; ``at_settings``, by the requested settings."""

    run_at: CellSums
    at_settings: CellSums

    def __sub__(self, part: SiteCells) -> SiteCells:
        """Return the cells without some of the rows."""
        return SiteCells(self.run_at - part.run_at, self.at_settings - part.at_settings)


def _noise_of_means(noise: tuple[float, float, float], repeats: np.ndarray) -> np.ndarray | None:
    """Return variances of means of log times and log powers, (K, 2S); None without repeats."""
    if not any(noise[:2]):  # the third is known without repeats too
        return None
    n = np.maximum(repeats, 1)
    return np.hstack([noise[0] / n, noise[1] / n])


def _counts(sites: Sequence[Observations], labels: Sequence[str]) -> np.ndarray:
    """Return operations by class, (K, C), from one row of each kernel."""
    names = sorted({name for data in sites for name in data.counts})
    counts = np.full((len(labels), len(names)), np.nan)
    for data in reversed(sites):
        row = first_rows(data, labels).max(axis=1)
        for c, name in enumerate(names):
            if name in data.counts:
                counts[row >= 0, c] = data.counts[name][row[row >= 0]]
    return counts


def log_rates(rate: np.ndarray, highest: np.ndarray) -> np.ndarray:
    """Return log(1 + 20 rate / highest), (K, C), which separates small rates of operations and
    allows 0; ``highest``: (C,)."""
    return np.asarray(np.log1p(20.0 * rate / np.maximum(highest, 1e-300)))


def _with_counts(posterior: Posterior, counts: np.ndarray) -> Posterior:
    """Return the posterior with the kernels' rates of operations as features.

    The rates are at the fastest of the settings where the times of most kernels are known
    (:func:`log_rates`).
    """
    S = posterior.settings
    z, log_s = posterior.z[:, : 2 * S], posterior.log_s
    n_known = np.isfinite(z[:, :S]).sum(axis=0)
    mean = np.where(n_known == n_known.max(), log_s.mean(axis=0), np.inf)
    rate = counts / np.exp(log_s[:, [int(first_least(np.exp(mean)))]])
    rate[~np.isfinite(z).any(axis=1)] = np.nan
    rate = rate[:, np.isfinite(rate).any(axis=0)]
    if not rate.size:
        return posterior
    feature = log_rates(rate, np.nanmax(rate, axis=0))
    feature -= np.nanmean(feature, axis=0)
    variance = np.nanmean(feature**2, axis=0)
    varied = variance > LEAST_FEATURE
    prior = replace(posterior.prior, features=variance[varied])
    noise = posterior.noise
    if noise is not None:
        noise = np.hstack([noise[:, : 2 * S], np.zeros((len(z), varied.sum()))])
    return Posterior.conditioned(prior, np.hstack([z, feature[:, varied]]), noise)


def _predicts_better(posterior: Posterior, rival: Posterior) -> bool:
    """Return whether ``posterior`` predicts the kernels measured everywhere better than ``rival``,
    each from the cells of a kernel with few; False where that cannot be tried."""
    densities = [
        sum(
            left_out.log_density_of_energies.mean()
            for _, left_out in candidate.mixtures
            if left_out is not None
        )
        for candidate in (posterior, rival)
    ]
    return bool(densities[0] > densities[1])


def _difference(prior: Prior, n_site: int) -> np.ndarray:
    """Return the covariance of the difference between the first ``n_site`` settings, the site's,
    and the others, those of a site like it."""
    S = len(prior.parts.distance)
    of_site = np.tile(np.arange(S) < n_site, 2).astype(float)
    time = (np.arange(2 * S) < S).astype(float)
    time_sd, power_sd = LIKE_LEVELS
    level = time_sd**2 * np.outer(time, time) + power_sd**2 * np.outer(1 - time, 1 - time)
    slopes = prior.physics.slopes
    return np.asarray(np.outer(of_site, of_site) * (level + LIKE_DEVICE**2 * slopes @ slopes.T))
