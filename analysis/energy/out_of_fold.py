"""Estimating the discrepancy: every setting predicted by the refit without it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.energy.discrepancy import Discrepancy, beyond_measured, share_beside, shrunk
from analysis.energy.refits import jackknife_deviations
from analysis.energy.surface import ResidualCells, Surface, relative_residual
from analysis.energy.training import FormSolution, Training, predict


def estimate_discrepancy(
    training: Training, solutions: Sequence[FormSolution], surface: Surface | None
) -> Discrepancy:
    """The variances from ``solutions``, the refits without each setting of ``training`` in turn.

    ``surface``: that of the whole fit, whose shapes every refit's surface takes over.
    """
    cells = ResidualCells(training.data, training.block, training.mhz)
    residual, jackknife, growth = _out_of_fold(training, solutions, cells, surface)
    known = np.isfinite(residual)
    n_settings, n_kernels = residual.shape
    kernel = _mean(residual, known, 0)
    setting = _mean(residual - kernel, known, 1)
    own = np.where(known, residual - kernel - setting[:, None], 0.0) / np.sqrt(1 + growth[:, 1:])
    setting = setting / np.sqrt(1 + growth[:, 0])
    freedom = max(int(known.sum()) - n_settings - n_kernels + 1, 1)
    own_variance = float((own**2).sum()) / freedom if n_kernels > 1 else 0.0
    shared = float((setting**2).sum()) / max(n_settings - 1, 1) - own_variance / n_kernels
    shared = max(shared, 0.0)
    scale = np.ones(n_kernels)
    if own_variance > 0:
        counted = np.maximum(known.sum(axis=0), 1)
        scale = shrunk((own**2).sum(axis=0) / counted * (known.sum() / freedom), counted)
        scale = scale / scale.mean()
    variance = shared * (1 + growth[:, :1]) + own_variance * scale * (1 + growth[:, 1:])
    centred = np.where(known, residual - kernel, 0.0)
    square = (centred**2)[known] * n_settings / max(n_settings - 1, 1)
    far = beyond_measured(training.mhz, np.ones(n_settings, bool), training.form.voltage)
    explained = jackknife + (far**2).sum(axis=0)[:, None]
    share = share_beside(square, explained[known], variance[known])
    whole = shared + own_variance
    parts = shared**2 / max(n_settings - 1, 1) + own_variance**2 / freedom
    return Discrepancy(
        kernel=float(kernel.var(ddof=1)) if n_kernels > 1 else 0.0,
        setting=shared * share,
        own=own_variance * share,
        freedom=float(whole**2 / parts) if parts > 0 else 1e6,
        scale=dict(zip(cells.kernels, scale.tolist(), strict=True)),
        noise=_noise(training, cells),
    )


def _out_of_fold(
    training: Training,
    solutions: Sequence[FormSolution],
    cells: ResidualCells,
    surface: Surface | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By setting and kernel (S, K): log residuals out of fold, NaN where none is, and the refits'
    variances (0 beside a surface); and the growth of both of a surface's variances (S, 2)."""
    data, block = training.data, training.block
    log_j = np.log(data.energy_j)
    residual, growth = np.full(cells.size, np.nan), np.zeros((cells.size[0], 2))
    logs = np.empty((len(solutions), len(data)))
    for s, solution in enumerate(solutions):
        predicted_j = predict(training, solution)
        with np.errstate(divide="ignore"):
            logs[s] = np.log(predicted_j)
        away = log_j - logs[s]
        if surface is not None:
            kept = np.arange(cells.size[0]) != s
            around = cells.means(relative_residual(data.energy_j, predicted_j))[kept]
            refit = Surface(
                training.mhz[kept], cells.kernels, around, surface.shape, surface.own_shape
            )
            here = training.mhz[s : s + 1]
            shared, own = refit.at_settings(here)
            away = away - np.log(np.maximum(1.0 + shared[0] + own[0], 0.01))[cells.number]
            growth[s] = [float(matrix[0, 0]) for matrix in refit.growth(here)]
        residual[s] = cells.means(np.where(block == s, away, 0.0))[s]
    residual[~np.isfinite(residual)] = np.nan
    jackknife = np.zeros(cells.size)
    if surface is None:
        deviation = jackknife_deviations(np.where(np.isfinite(logs), logs, log_j))
        jackknife = np.nan_to_num(cells.means((deviation**2).sum(axis=0)))
    return residual, jackknife, growth


def _mean(values: np.ndarray, known: np.ndarray, axis: int) -> np.ndarray:
    """The mean of the known values along an axis, 0 where there is none."""
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
