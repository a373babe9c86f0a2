"""Estimating the discrepancy: settings predicted by refits that lack half of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from analysis.energy.discrepancy import Discrepancy, beyond_measured, shrunk
from analysis.energy.surface import (
    ResidualCells,
    Surface,
    clock_distance,
    matern,
    patterns,
    relative_residual,
)
from analysis.energy.training import FormSolution, Training, predict, solve_form

FEWEST_FOR_HALVES = 8
"""With fewer settings one at a time is left out: half of them would be too few to fit."""
PAIRS = 8
"""Random halves of the settings, each with the other half."""
SEED = 19820101
ROUGH_SHARES = (0.001, 0.01, 0.03, 0.1, 0.3, 0.6, 1.0)
"""Shares of the discrepancy's variance that are tried for what neighbours do not have in common."""
REACHES = (0.5, 1.0)
"""Reaches of the rest that are tried, in units of the measured range of each log clock."""
OFFSET = 4.0
"""Variance of a kernel's offset relative to the discrepancy's: savings do not depend on it."""


def kept_settings(n: int) -> np.ndarray:
    """Which of n settings each refit keeps: bool (refits, n)."""
    if n < FEWEST_FOR_HALVES:
        return ~np.eye(n, dtype=bool)
    rng = np.random.default_rng(SEED)
    halves = np.array([rng.permutation(n) % 2 == 0 for _ in range(PAIRS)])
    return np.concatenate([halves, ~halves])


def estimate_discrepancy(
    training: Training,
    solution: FormSolution,
    without_each: Sequence[FormSolution],
    surface: Surface | None,
) -> Discrepancy:
    """The discrepancy of the fit ``solution``; ``without_each``: refits without each setting.

    ``surface``: that of the whole fit, whose shapes every refit's surface takes over.
    """
    cells = ResidualCells(training.data, training.block, training.mhz)
    kept = kept_settings(len(training.mhz))
    solutions = without_each
    if len(training.mhz) >= FEWEST_FOR_HALVES:
        solutions = [solve_form(training, half.astype(float), solution) for half in kept]
    residual = _residuals(training, solutions, cells, surface, kept)
    far = clock_distance(training.mhz, training.mhz, training.mhz)
    # Errors beyond the clocks that a refit has are of another kind: see beyond_measured.
    amid = np.array(
        [~beyond_measured(training.mhz, of, training.form.voltage).any(axis=0) for of in kept]
    )
    wanted = ~kept & (amid if (~kept & amid).any() else True)
    judged = np.isfinite(residual) & wanted[:, :, None]
    least = np.inf
    chosen, scaled = (1.0, 1.0), np.full(residual.shape, np.nan)
    for rough, reach in itertools.product(ROUGH_SHARES, REACHES) if judged.any() else ():
        away, growth = _kriged(residual, kept, matern(far, reach), rough)
        square = np.mean(away[judged] ** 2 / growth[judged])
        lost = float(np.log(max(square, 1e-300)) + np.log(growth[judged]).mean())
        if lost < least:
            least, chosen = lost, (rough, reach)
            scaled = np.where(judged, away / np.sqrt(growth), np.nan)
    return _variances(scaled, residual, kept, cells, training, *chosen)


def _variances(
    scaled: np.ndarray,
    residual: np.ndarray,
    kept: np.ndarray,
    cells: ResidualCells,
    training: Training,
    rough: float,
    reach: float,
) -> Discrepancy:
    """The discrepancy from errors out of fold that were ``scaled`` to one variance (B, S, K)."""
    known = np.isfinite(scaled)
    n_cells = np.maximum(known.any(axis=0).sum(axis=0), 1)
    n_kernels = known.shape[2]
    setting = _mean(scaled, known, 2)
    own = np.where(known, scaled - setting[:, :, None], 0.0)
    own_variance, scale = 0.0, np.ones(n_kernels)
    if n_kernels > 1 and known.any():
        own_variance = float((own**2).sum()) / known.sum() * n_kernels / (n_kernels - 1)
        if own_variance > 0:
            by_kernel = (own**2).sum(axis=(0, 1)) / np.maximum(known.sum(axis=(0, 1)), 1)
            scale = shrunk(by_kernel, n_cells)
            scale = scale / scale.mean()
    there = known.any(axis=2)
    shared = float(np.mean(setting[there] ** 2)) - own_variance / n_kernels if there.any() else 0.0
    shared = max(shared, 0.0)
    n_settings = int(there.any(axis=0).sum())
    freedom = max(int(n_cells.sum()) - n_settings - n_kernels + 1, 1)
    parts = shared**2 / max(n_settings - 1, 1) + own_variance**2 / freedom
    out = np.isfinite(residual) & ~kept[:, :, None]
    offset = _mean(np.moveaxis(residual, 2, 0), np.moveaxis(out, 2, 0), (1, 2))
    return Discrepancy(
        kernel=float(offset.var(ddof=1)) if n_kernels > 1 else 0.0,
        setting=shared,
        own=own_variance,
        freedom=float((shared + own_variance) ** 2 / parts) if parts > 0 else 1e6,
        scale=dict(zip(cells.kernels, scale.tolist(), strict=True)),
        noise=_noise(training, cells),
        rough=rough,
        reach=reach,
    )


def _kriged(
    residual: np.ndarray, kept: np.ndarray, near: np.ndarray, rough: float
) -> tuple[np.ndarray, np.ndarray]:
    """What is left of residuals (B, S, K) at settings left out, given those that each refit kept.

    And the variance of that, (B, S, K), relative to the discrepancy's. ``near``: float64 (S, S),
    the correlation of settings; ``rough``: the share of the variance that settings do not share.
    """
    away, growth = residual.copy(), np.ones(residual.shape)
    whole = (1.0 - rough) * near + OFFSET
    for b, of in enumerate(kept):
        out = np.flatnonzero(~of)
        for rows, columns in patterns(np.where(of[:, None], residual[b], np.nan)):
            towards = whole[np.ix_(rows, out)]
            held = whole[np.ix_(rows, rows)] + rough * np.eye(len(rows))
            gain = np.linalg.solve(held, towards).T
            away[b][np.ix_(out, columns)] -= gain @ residual[b][np.ix_(rows, columns)]
            left = 1.0 + OFFSET - (gain * towards.T).sum(axis=1)
            growth[b][np.ix_(out, columns)] = left[:, None]
    return away, growth


def _residuals(
    training: Training,
    solutions: Sequence[FormSolution],
    cells: ResidualCells,
    surface: Surface | None,
    kept: np.ndarray,
) -> np.ndarray:
    """Log measured over predicted energy, by refit, setting and kernel: (B, S, K), else NaN."""
    data = training.data
    log_j = np.log(data.energy_j)
    residual = np.empty((len(solutions), *cells.size))
    for b, without in enumerate(solutions):
        predicted_j = predict(training, without)
        if surface is not None:
            around = cells.means(relative_residual(data.energy_j, predicted_j))[kept[b]]
            mhz = training.mhz[kept[b]]
            refit = Surface(mhz, cells.kernels, around, surface.shape, surface.own_shape)
            predicted_j = predicted_j * np.maximum(1.0 + refit.at(data), 0.01)
        with np.errstate(divide="ignore"):
            residual[b] = cells.means(log_j - np.log(predicted_j))
    residual[~np.isfinite(residual)] = np.nan
    return residual


def _mean(values: np.ndarray, known: np.ndarray, axis: int | tuple[int, ...]) -> np.ndarray:
    """The mean of the known values along axes, 0 where there is none."""
    total = np.where(known, values, 0.0).sum(axis=axis)
    return np.asarray(total / np.maximum(known.sum(axis=axis), 1))


def _noise(training: Training, cells: ResidualCells) -> dict[str, float]:
    """Kernel -> the variance of one log energy about its cell's mean; empty without repeats."""
    log_j = np.log(training.data.energy_j)
    within = log_j - cells.means(log_j)[cells.block, cells.number]
    n_kernels = cells.size[1]
    rows = np.bincount(cells.number, minlength=n_kernels)
    freedom = rows - (cells.n.reshape(cells.size) > 0).sum(axis=0)
    if not freedom.any():
        return {}
    total = np.bincount(cells.number, within**2, n_kernels)
    overall = float(total.sum() / freedom.sum())
    seen = freedom > 0
    factor = np.ones(n_kernels)
    factor[seen] = shrunk(total[seen] / freedom[seen], freedom[seen])
    return dict(zip(cells.kernels, (overall * factor).tolist(), strict=True))
