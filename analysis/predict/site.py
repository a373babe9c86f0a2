"""The posterior of a site: its measurements in, every kernel at every setting out.

It takes for the two clocks of a setting the clocks where these differ. A limit that alone was swept
takes the core clock's place, which it throttles; a profile multiplies it by how fast kernels ran
under it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from analysis.choice.losses import Predicted, comparable, highest_clocks
from analysis.choice.objectives import Objective
from analysis.energy.models import KNOWN
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
"""So many settings are enough to hide some of them: the others say how kernels go with clocks."""
FEWEST_CHECKED = 3
LEAST_FEATURE = 1e-4
LEAST_HELD = 0.85
"""A smaller share of energies in their 95 % intervals says that a site is unlike the devices that
the model knows."""
GROUPS = 8
"""Of settings, each left out in turn; with fewer each setting is one."""
SEED = 19840101
LIKE_LEVELS = 0.1, 0.05
"""How far times and powers of a site are from those of one like it as a whole, after its fit:
standard deviations of logarithms."""
LIKE_DEVICE = 0.1
"""And the numbers of their devices (:mod:`analysis.predict.population`)."""


def coordinates(settings: Sequence[Setting], data: Observations) -> np.ndarray:
    """What the model takes for the core and the memory clock, float64 (settings, 2), NaN for none.

    The clocks, or where these are one pair, the power limits; the first of them times the speed of
    the profile, for what a profile does to the clock is not known (:func:`profile_speeds`).
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
    """Profile -> how fast kernels ran under it, 1 for the fastest: exp(b_p) of the least squares
    log t = a_kc - b_p over the rows of kernels k at the clocks and limits c."""
    profiles = sorted({one.profile or "" for one in data.settings})
    if len(profiles) < 2:
        return dict.fromkeys([name or None for name in profiles], 1.0)
    others = [replace(one, profile=None) for one in data.settings]
    number = {one: i for i, one in enumerate(dict.fromkeys(others))}
    group = data.kernel * len(number) + np.array([number[one] for one in others])[data.setting]
    _, group = np.unique(group, return_inverse=True)
    rows = np.bincount(group)
    of = np.array([profiles.index(one.profile or "") for one in data.settings])[data.setting]
    columns = np.column_stack([-np.log(data.time_s), *(of == p for p in range(len(profiles)))])
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
    """Picks tried where it is known what is best: K measured kernels, of which some measurements
    are hidden, G times.

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
        """How far each setting's score is above the kernel's least, (K, S), NaN where unknown."""
        score = _score(objective, self.measured_log_j, self.measured_log_s)
        return np.asarray(score / np.nanmin(score, axis=1, keepdims=True) - 1.0)

    def best_single(self, objective: Objective) -> Setting:
        """The setting that is best on average over these kernels."""
        above = self._above(objective)
        known = np.isfinite(above)
        kernels, among = comparable(known)
        total = np.where(known, above, 0.0)[kernels].sum(axis=0)
        mean = total / np.maximum(known[kernels].sum(axis=0), 1)
        return self.settings[int(first_least(np.where(among, 1.0 + mean, np.inf)))]

    def lost_pct(self, objective: Objective) -> dict[str, float]:
        """What the model's picks lose, the best single setting of the other kernels and the
        highest clocks: means in % of the score; NaN where some kernel was not measured there.

        The best single setting is chosen by :func:`~analysis.choice.losses.comparable`: a setting
        of few kernels may have been measured because it is good for these.
        """
        above = self._above(objective)
        kernels, known = np.arange(len(above)), np.isfinite(above)
        lost: dict[str, list[np.ndarray]] = {"model": [], "best_single": [], "highest_clocks": []}
        top = highest_clocks(self.settings)
        for log_j, log_s, closed in zip(self.log_j, self.log_s, self.closed, strict=True):
            score = np.where(known, _score(objective, log_j, log_s), np.inf)
            lost["model"].append(above[kernels, first_least(score.T)])
            counted, among = comparable(known & ~closed)
            of_counted = np.where(known & counted[:, None], above, 0.0)
            count = known[counted].sum(axis=0) - (known & counted[:, None])
            others = (of_counted.sum(axis=0) - of_counted) / np.maximum(count, 1)
            single = np.where(known & among & (count > 0), others, np.inf)
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
        return {name: 100.0 * float(np.mean(of)) for name, of in lost.items()}


def _score(objective: Objective, log_j: np.ndarray, log_s: np.ndarray) -> np.ndarray:
    known = np.isfinite(log_j)
    energy_j, time_s = (
        np.exp(np.where(known, log, np.nanmax(log, axis=1, keepdims=True)))
        for log in (log_j, log_s)
    )
    return np.where(known, objective.score(energy_j.T, time_s.T).T, np.nan)


@dataclass(frozen=True, kw_only=True)
class SitePosterior:
    """The posterior of the kernels ``labels`` (K) at ``settings`` (S), and how often each was
    measured there, int64 (K, S).

    ``posterior``: of these settings, and then of those of a site like it; with ``limits``, of the
    clocks by which these follow, and ``under_limit``, (2, K, S), has the measured log times and log
    powers under a limit, NaN elsewhere. ``noise``: variances of
    one log time, log power and log energy about its cell's, the first two 0 where no repeats show
    them. ``counts``: operations by class, (K, C), NaN where not known; ``uses_counts``: whether
    rates of operations say something of kernels' times and powers.
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
        """Log energies and log times at the settings, (S, n), of those of the posterior; ``n`` are
        ``kernels``, or draws of one."""
        if self.limits is None or self.under_limit is None:
            return log_j[: len(self.settings)], log_s[: len(self.settings)]
        mean = self.posterior.mean[kernels].T
        L = self.posterior.settings
        said = np.array(self.limits.apply(mean[:L], mean[L : 2 * L]))
        off = self.under_limit[:, kernels].swapaxes(1, 2) - said
        log_s, log_w = np.where(np.isnan(off), 0.0, off) + self.limits.apply(log_s, log_j - log_s)
        return log_s + log_w, log_s

    @property
    def rough_time(self) -> float:
        """The standard deviation of what is each log time's own: all of it counts as noise of
        times that were measured once."""
        return float(np.sqrt(self.posterior.prior.rough[0]))

    def draws(self) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """Each kernel's label, and draws of its energies (J) and times (s), (S, draws) each."""
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
        """The median energies and times of rows; NaN of kernels of which nothing is known."""
        row, column = cells_of(data, self.labels, self.settings)
        known = np.isfinite(self.posterior.z).any(axis=1)[row]
        return Predicted(
            np.where(known, self.energy_j[row, column], np.nan),
            np.where(known, self.time_s[row, column], np.nan),
        )

    def cells(self, data: Observations) -> SiteCells:
        """Measurements of the same kernels and settings, for :meth:`from_cells`."""
        at_settings = CellLogs.from_rows(data, self.labels, self.settings)
        if self.limits is None:
            return SiteCells(at_settings, at_settings)
        run_at = CellLogs.from_rows(self.limits.rows(data), self.labels, self.limits.clocks)
        return SiteCells(run_at, at_settings)

    def from_cells(self, cells: SiteCells, timed: SiteCells | None = None) -> SitePosterior:
        """From other measurements of the same kernels and settings, and of ``timed`` the times
        alone; the prior's sizes are held."""
        (log_s, log_w), repeats = cells.run_at.means(), cells.run_at.repeats
        if timed is not None:
            also, _ = timed.run_at.means()
            log_s = np.where(np.isnan(log_s), also, log_s)
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
        """Label -> how picks for a kernel like it do, where that can be tried.

        None at a site with power limits at several clocks. A kernel with few settings beside
        others with all: each of these from the same cells
        (:mod:`analysis.predict.kernel_mixture`). Else, where some of the settings were measured,
        and :data:`FEWEST` or more: the kernels measured there, some of these settings hidden.
        """
        given, S = self.posterior.given, len(self.settings)
        tried: dict[str, Trial] = {}
        if self.limits is not None:
            return tried
        for pattern, (_, left_out) in zip(given.patterns, self.posterior.mixtures, strict=True):
            if left_out is None:
                continue
            whole = everywhere(given)
            true = energies_and_times(given, given.z[whole])
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
        rest = [label for label in self.labels if label not in tried]
        if rest and (self.repeats == 0).any() and (by_setting := self._settings_hidden()):
            tried |= dict.fromkeys(rest, by_setting)
        return tried

    def _settings_hidden(self) -> Trial | None:
        """All kernels at the measured settings, each group of which is predicted from the others;
        None with fewer settings than :data:`FEWEST`."""
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
        """Groups of the settings ``present`` (n,), each left out for all kernels.

        Which are left out, bool (G, n); measured log energies and log times, (K, n), NaN where
        there is none; the same predicted where they are left out, (G, K, n) each; and half the
        widths of the 95 % intervals of log energies.
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
        for g, out in enumerate(hidden):
            some = Posterior.conditioned(prior, np.where(np.tile(out, 2), np.nan, z), noise)
            predicted[0, g] = np.where(out, some.log_j, measured[0])
            predicted[1, g] = np.where(out, some.log_s, measured[1])
            predicted[2, g] = some.energy_reach()
        predicted[:, :, np.isnan(measured[0])] = np.nan
        return hidden, measured, *predicted

    def check(self) -> PosteriorCheck | None:
        """How measured energies compare with what is said of them without their settings; None
        with fewer than three settings."""
        settings = self.settings if self.limits is None else self.limits.clocks
        powers = self.posterior.z[:, self.posterior.settings :][:, : len(settings)]
        present = np.flatnonzero(np.isfinite(powers).any(axis=0))
        if len(present) < FEWEST_CHECKED:
            return None
        hidden, (measured, _), log_j, _, reach = self._left_out(present)
        away = measured - log_j
        known = hidden[:, None] & np.isfinite(away)
        off = np.expm1(np.where(known, away, 0.0)).sum(axis=(0, 1)) / known.sum(axis=(0, 1))
        worst = int(np.argmax(np.abs(off)))
        return PosteriorCheck(
            cases=int(known.sum()),
            held=float(np.mean((np.abs(away) <= reach)[known])),
            error_pct=100.0 * float(np.mean(np.abs(np.expm1(away[known])))),
            worst=settings[present[worst]],
            worst_pct=100.0 * float(off[worst]),
        )


@dataclass(frozen=True)
class PosteriorCheck:
    """Groups of settings left out, and their energies predicted: how many ``cases`` there are,
    which share of them is ``held`` by their 95 % intervals, and the mean relative error. ``worst``:
    the setting where the measured energies of all kernels are most above or below the predicted
    ones on average, by ``worst_pct``."""

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
        """For people."""
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
    """Of all kernels of ``data``, and of ``kernels`` that it may lack, at the settings of
    ``volts``, which holds the measured ones.

    Repeats are means of logarithms, with the variance of a mean by the scatter of all repeats.
    ``like``: measurements of a site of the same chip or family, and the voltages of its settings:
    these are further settings of the same machine, but that the site differs from it
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
    (log_s, log_w), repeats, noise = cells.means(), cells.repeats, cells.noise()
    mhz, known = coordinates(settings, data), data.voltage in KNOWN
    all_volts = [volts[one] for one in settings]
    means = repeats
    if like is not None:
        others = sorted(like[1])
        there = CellLogs.from_rows(like[0], labels, others)
        log_s, log_w = map(np.hstack, zip((log_s, log_w), there.means(), strict=True))
        means, other_noise = np.hstack([repeats, there.repeats]), there.noise()
        mhz = np.vstack([mhz, coordinates(others, like[0])])
        if not known and set(settings) <= set(others):
            all_volts = [like[1][one] for one in settings]
            known = True
        all_volts += [like[1][one] for one in others]
        known = known and like[0].voltage in KNOWN
        noise = (*np.maximum(noise[:2], other_noise[:2]), noise[2] or other_noise[2])
    posterior = Posterior.of(
        mhz,
        np.hstack([log_s, log_w]),
        volts=np.array(all_volts) if known else None,
        noise=_noise_of_means(noise, means),
    )
    if like is not None:
        prior = posterior.prior
        prior = replace(prior, more=_difference(prior, len(settings)))
        posterior = Posterior.conditioned(prior, posterior.z, posterior.noise)
    noise = (noise[0], noise[1], noise[2] or posterior.noise_once)
    counts = _counts([data, *([like[0]] if like else [])], labels)
    found = SitePosterior(
        labels=labels,
        settings=settings,
        repeats=repeats,
        posterior=posterior,
        noise=noise,
        counts=counts,
    )
    with_counts = _with_counts(posterior, counts)
    if _predicts_better(with_counts, posterior):
        found = replace(found, posterior=with_counts, uses_counts=True)
    return found


def _under_limits(
    data: Observations, volts: Volts, labels: Sequence[str], limits: PowerLimits
) -> SitePosterior:
    """The posterior of a site with power limits at several clocks: that of the clocks run at."""
    found = site_posterior(limits.rows(data), limits.volts(volts), kernels=labels)
    cells = CellLogs.from_rows(data, labels, limits.settings)
    return replace(
        found,
        settings=list(limits.settings),
        repeats=cells.repeats,
        limits=limits,
        under_limit=_under_limit(cells, limits.settings),
    )


def _under_limit(cells: CellLogs, settings: Sequence[Setting]) -> np.ndarray:
    """The measured log times and log powers under a power limit, (2, K, S), NaN elsewhere."""
    limited = [setting.power_limit_w is not None for setting in settings]
    return np.where(limited, np.array(cells.means()), np.nan)


def site_time_noise(data: Observations, volts: Volts) -> dict[str, float]:
    """Kernel -> the relative standard deviation of one measurement of its time
    (:func:`analysis.ties.time_noise`), without repeats by the posterior."""
    noise = time_noise(data)
    if any(noise.values()):
        return noise
    return time_noise(data, site_posterior(data, volts).rough_time)


def cells_of(
    data: Observations, labels: Sequence[str], settings: Sequence[Setting]
) -> tuple[np.ndarray, np.ndarray]:
    """The kernel and the setting of each row, by their numbers."""
    place = {setting: i for i, setting in enumerate(settings)}
    column = np.array([place.get(one, -1) for one in data.settings])
    return kernel_numbers(data, labels), column[data.setting]


@dataclass(frozen=True)
class CellLogs:
    """Rows by kernel and setting: ``of``, int64 (rows,), each row's place in a table of ``shape``
    (K, S); ``log_s``, ``log_w``: their log times and log powers, (rows,)."""

    of: np.ndarray
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

    def take(self, rows: np.ndarray) -> CellLogs:
        """Some of the rows, by mask or index."""
        return CellLogs(self.of[rows], self.shape, self.log_s[rows], self.log_w[rows])

    @cached_property
    def repeats(self) -> np.ndarray:
        """How often each cell was measured, (K, S)."""
        return np.bincount(self.of, minlength=math.prod(self.shape)).reshape(self.shape)

    def means(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean log times and log powers, (K, S), NaN where a cell was not measured."""
        return self._mean(self.log_s), self._mean(self.log_w)

    def noise(self) -> tuple[float, float, float]:
        """Variances of one log time, log power and log energy, 0 without repeats."""
        freedom = int((self.repeats - 1)[self.repeats > 1].sum())
        if not freedom:
            return 0.0, 0.0, 0.0
        of_time, of_power, of_energy = (
            float(((log - self._mean(log).ravel()[self.of]) ** 2).sum()) / freedom
            for log in (self.log_s, self.log_w, self.log_s + self.log_w)
        )
        return of_time, of_power, of_energy

    def _mean(self, log: np.ndarray) -> np.ndarray:
        total = np.bincount(self.of, log, math.prod(self.shape)).reshape(self.shape)
        with np.errstate(invalid="ignore"):
            return np.asarray(total / self.repeats)


@dataclass(frozen=True)
class SiteCells:
    """Rows by kernel and setting: ``run_at``, by the clocks that they ran at where these follow
    from a power limit; ``at_settings``, by the settings asked for."""

    run_at: CellLogs
    at_settings: CellLogs

    def take(self, rows: np.ndarray) -> SiteCells:
        """Some of the rows, by mask or index."""
        at_settings = self.at_settings.take(rows)
        if self.run_at is self.at_settings:
            return SiteCells(at_settings, at_settings)
        return SiteCells(self.run_at.take(rows), at_settings)


def _noise_of_means(noise: tuple[float, float, float], repeats: np.ndarray) -> np.ndarray | None:
    """Variances of the means of log times and log powers, (K, 2S); None without repeats."""
    if not noise[2]:
        return None
    n = np.maximum(repeats, 1)
    return np.hstack([noise[0] / n, noise[1] / n])


def _counts(sites: Sequence[Observations], labels: Sequence[str]) -> np.ndarray:
    """Operations by class, (K, C), of one row of each kernel."""
    names = sorted({name for data in sites for name in data.counts})
    counts = np.full((len(labels), len(names)), np.nan)
    for data in reversed(sites):
        row = first_rows(data, labels).max(axis=1)
        for c, name in enumerate(names):
            if name in data.counts:
                counts[row >= 0, c] = data.counts[name][row[row >= 0]]
    return counts


def log_rates(rate: np.ndarray, highest: np.ndarray) -> np.ndarray:
    """log(1 + 20 rate / highest), which tells small rates of operations apart and may be 0: (K, C),
    ``highest`` (C,)."""
    return np.asarray(np.log1p(20.0 * rate / np.maximum(highest, 1e-300)))


def _with_counts(posterior: Posterior, counts: np.ndarray) -> Posterior:
    """With the rates of operations of kernels as further things that are known of them.

    A rate is at the fastest of the settings where most kernels' times are known
    (:func:`log_rates`).
    """
    S = posterior.settings
    z, log_s = posterior.z[:, : 2 * S], posterior.log_s
    known = np.isfinite(z[:, :S]).sum(axis=0)
    mean = np.where(known == known.max(), log_s.mean(axis=0), np.inf)
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


def _predicts_better(one: Posterior, other: Posterior) -> bool:
    """Whether one posterior predicts the kernels measured everywhere better, by the cells that
    kernels with few have; not where that cannot be tried."""
    densities = [
        sum(left.log_density_of_energies.mean() for _, left in of.mixtures if left is not None)
        for of in (one, other)
    ]
    return bool(densities[0] > densities[1])


def _difference(prior: Prior, n_site: int) -> np.ndarray:
    """The covariance of how far the first ``n_site`` settings are from those of a like site."""
    S = len(prior.parts.distance)
    here = np.tile(np.arange(S) < n_site, 2).astype(float)
    time = (np.arange(2 * S) < S).astype(float)
    of_time, of_power = LIKE_LEVELS
    level = of_time**2 * np.outer(time, time) + of_power**2 * np.outer(1 - time, 1 - time)
    slopes = prior.physics.slopes
    return np.asarray(np.outer(here, here) * (level + LIKE_DEVICE**2 * slopes @ slopes.T))
