"""The model's residuals, as a smooth surface over the settings of each kernel.

Real machines do things that no term of the model describes: a hotter chip leaks more, units that
wait are gated or are not. The residual changes smoothly from one setting to its neighbours, so
it can be predicted at a setting between them. It is a Gaussian process over the logarithms of both
clocks (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, chapter 2; as the
discrepancy of a physical model: Kennedy and O'Hagan, J. R. Stat. Soc. B 63, 2001): first one
surface that all kernels share, then each kernel's own deviation from it. Far from any measured
setting both fade to zero, and the model's terms stand alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.measurements.observations import Observations, kernel_names
from analysis.ties import first_least

REACHES = (0.15, 0.3, 0.6, 1.2)
"""Correlation lengths that are tried, in units of the measured range of each log clock."""
NOISES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Variances of the noise that are tried, relative to the surface's."""
MIN_SETTINGS = 5
"""With fewer settings measured a surface is no more than the settings themselves."""


class ResidualCells:
    """The cells of a set of rows, each a kernel at a setting.

    ``block``: int64 (rows,), each row's setting; ``mhz``: float64 (S, 2), the settings.
    """

    def __init__(self, data: Observations, block: np.ndarray, mhz: np.ndarray) -> None:
        self.kernels = kernel_names(data)
        code = {kernel: i for i, kernel in enumerate(self.kernels)}
        self.number = np.array([code[kernel] for kernel in data.kernel.tolist()], np.int64)
        self.block, self.mhz = block, mhz
        self.size = (len(mhz), len(self.kernels))
        self.cell = block * self.size[1] + self.number
        self.n = np.bincount(self.cell, minlength=self.size[0] * self.size[1])

    def means(self, residual: np.ndarray) -> np.ndarray:
        """float64 (S, K): the rows' residuals by cell, repeats averaged, NaN where none is."""
        total = np.bincount(self.cell, residual, len(self.n))
        with np.errstate(invalid="ignore"):
            return np.asarray((total / self.n).reshape(self.size))

    def predicted(self, residual: np.ndarray, known: np.ndarray) -> np.ndarray:
        """The rows' residuals (rows,) from those at the settings that are ``known`` (S,) alone."""
        surface = _shaped(self.mhz[known], self.kernels, self.means(residual)[known])
        if surface is None:
            return np.zeros(len(residual))
        shared, own = surface.at_settings(self.mhz)
        return np.asarray((shared[:, None] + own)[self.block, self.number])


@dataclass(frozen=True)
class Surface:
    """Relative residuals of a model at the settings that it was fitted on.

    ``mhz``: float64 (S, 2), the settings; ``kernels``: the K names; ``residual``: float64 (S, K),
    measured over predicted energy less 1, repeats averaged, NaN where not measured. ``shape``
    and ``own_shape``: (reach, noise) of the shared surface and of the kernels' deviations.
    """

    mhz: np.ndarray
    kernels: list[str]
    residual: np.ndarray
    shape: tuple[float, float]
    own_shape: tuple[float, float]

    def at(self, data: Observations) -> np.ndarray:
        """The predicted relative residual of each row: float64 (rows,).

        A kernel that was not measured has the shared surface alone.
        """
        settings = np.unique(data.setting)
        mhz = data.mhz[settings]
        shared, own = self.at_settings(mhz)
        row = np.searchsorted(settings, data.setting)
        column = {kernel: i for i, kernel in enumerate(self.kernels)}
        number = np.array([column.get(kernel, -1) for kernel in data.kernel.tolist()])
        residual = shared[row]
        known = number >= 0
        residual[known] += own[row[known], number[known]]
        return residual

    def at_settings(self, mhz: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """At settings (M, 2): (M,) of the shared surface, (M, K) of the kernels' deviations."""
        scaled, wanted = scaled_clocks(self.mhz, mhz)
        mean = known_mean(self.residual)
        shared = smoother(scaled, wanted, self.shape) @ mean
        own = np.zeros((len(mhz), len(self.kernels)))
        deviation = self.residual - mean[:, None]
        for there, columns in patterns(deviation):
            weights = smoother(scaled[there], wanted, self.own_shape)
            own[:, columns] = weights @ deviation[np.ix_(there, columns)]
        return shared, own


def fit_surface(data: Observations, predicted_j: np.ndarray) -> Surface | None:
    """The surface of the residuals of ``predicted_j`` (rows,); None with too few settings."""
    settings, block = np.unique(data.setting, return_inverse=True)
    mhz = data.mhz[settings]
    cells = ResidualCells(data, block, mhz)
    residual = relative_residual(data.energy_j, predicted_j)
    return _shaped(mhz, cells.kernels, cells.means(residual))


def relative_residual(energy_j: np.ndarray, predicted_j: np.ndarray) -> np.ndarray:
    """Measured over predicted energy less 1, float64 (rows,); 0 where nothing was predicted."""
    known = predicted_j > 0
    return np.where(known, energy_j / np.where(known, predicted_j, 1.0) - 1.0, 0.0)


def _shaped(mhz: np.ndarray, kernels: list[str], cells: np.ndarray) -> Surface | None:
    """The surface of shapes under which the cells (S, K) are the likeliest; None if too few."""
    if len(mhz) < MIN_SETTINGS:
        return None
    mean = known_mean(cells)
    shape, own_shape = likeliest(scaled_clocks(mhz, mhz)[0], [mean[:, None], cells - mean[:, None]])
    return Surface(mhz, kernels, cells, shape, own_shape)


def known_mean(cells: np.ndarray) -> np.ndarray:
    """The mean of each row's finite numbers: float64 (rows,), NaN where there is none."""
    there = np.isfinite(cells)
    # Twice as quick as numpy.nanmean, and it is taken in every fold.
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(there, cells, 0.0).sum(axis=1) / there.sum(axis=1))


def scaled_clocks(mhz: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both sets of settings as log clocks, 0 to 1 over the range of the first."""
    low, span = np.zeros(2), np.ones(2)
    logs = [np.log(np.where(np.isfinite(clocks), clocks, 1.0)) for clocks in (mhz, wanted)]
    low = logs[0].min(axis=0)
    span = np.ptp(logs[0], axis=0)
    span[span == 0] = 1.0
    return (logs[0] - low) / span, (logs[1] - low) / span


def _square_distance(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    core, mem = (one[:, None, i] - other[None, :, i] for i in range(2))
    return np.asarray(core * core + mem * mem)


def correlation(one: np.ndarray, other: np.ndarray, reach: float) -> np.ndarray:
    """The squared exponential of settings in scaled log clocks, (M, 2) and (N, 2): (M, N)."""
    return np.asarray(np.exp(-0.5 * _square_distance(one, other) / reach**2))


def clock_distance(one: np.ndarray, other: np.ndarray, mhz: np.ndarray) -> np.ndarray:
    """Between settings (M, 2) and (N, 2) in log clocks: float64 (M, N). The unit is the range of
    the clocks ``mhz``, float64 (S, 2)."""
    scaled = [scaled_clocks(mhz, settings)[1] for settings in (one, other)]
    return np.asarray(np.sqrt(_square_distance(*scaled)))


def matern(distance: np.ndarray, reach: float) -> np.ndarray:
    """Matérn's correlation of order 3/2, of a process that has a slope everywhere but no curvature
    (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, eq. 4.17)."""
    scaled = np.sqrt(3.0) * distance / reach
    return np.asarray((1.0 + scaled) * np.exp(-scaled))


def smoother(at: np.ndarray, wanted: np.ndarray, shape: tuple[float, float]) -> np.ndarray:
    """(M, S): how much each residual at ``at`` counts for the surface at each ``wanted``."""
    reach, noise = shape
    held = correlation(at, at, reach)
    held[np.diag_indices(len(held))] += noise
    solved = np.linalg.solve(held, correlation(at, wanted, reach))
    return np.asarray(solved.T)


def patterns(values: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(rows that are there, columns that have just these rows): kernels measured alike."""
    there = np.isfinite(values)
    if there.all():
        yield np.arange(len(values)), np.arange(values.shape[1])
        return
    kinds, kind = np.unique(there.T, axis=0, return_inverse=True)
    for i, rows in enumerate(kinds):
        if rows.any():
            yield np.flatnonzero(rows), np.flatnonzero(kind.reshape(-1) == i)


def likeliest(
    scaled: np.ndarray,
    values: list[np.ndarray],
    tried_reaches: Sequence[float] = REACHES,
    tried_noises: Sequence[float] = NOISES,
) -> list[tuple[float, float]]:
    """For each of ``values`` (S, columns) the (reach, noise) with the highest marginal likelihood.

    The size of the surface is taken at its best for each pair: with R the correlation plus the
    noise, log L = -(n log(sum v' R^-1 v / n) + sum log det R) / 2 up to a constant, n numbers in
    all columns together.
    """
    tried = (len(tried_reaches), len(tried_noises))
    spectra: dict[bytes, tuple[np.ndarray, np.ndarray]] = {}
    shapes = []
    for columns_of in values:
        square, log_det, n = np.zeros(tried), np.zeros(tried), 0
        for there, columns in patterns(columns_of):
            if there.tobytes() not in spectra:
                reaches = np.array(tried_reaches)[:, None, None]
                held = np.exp(-0.5 * _square_distance(scaled[there], scaled[there]) / reaches**2)
                spread, axes = np.linalg.eigh(held)
                noisy = np.maximum(spread, 0.0)[:, None, :] + np.array(tried_noises)[:, None]
                spectra[there.tobytes()] = (noisy, axes.transpose(0, 2, 1))
            noisy, axes = spectra[there.tobytes()]
            part = columns_of[np.ix_(there, columns)]
            along = axes @ part
            square += (np.einsum("rsc,rsc->rs", along, along)[:, None, :] / noisy).sum(axis=2)
            log_det += np.log(noisy).sum(axis=2) * len(columns)
            n += part.size
        likelihood = -(n * np.log(np.maximum(square, 1e-300) / max(n, 1)) + log_det) / 2
        reach, noise = map(int, np.unravel_index(int(first_least(-likelihood.ravel())), tried))
        shapes.append((tried_reaches[reach], tried_noises[noise]))
    return shapes
