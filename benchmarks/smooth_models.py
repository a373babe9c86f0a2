"""Log energies by models that know no physics, from those of some settings or cells.

What the benchmarks of few measurements compare with: a quadratic of both log clocks and a Gaussian
process over them, which kernels share, and each kernel's deviations. K kernels at S settings.
"""

from __future__ import annotations

import itertools

import numpy as np

SHRINK = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
SHARES, LEVEL = (0.01, 0.1, 1.0), 100.0
"""Of a kernel's own deviations in what all kernels have in common; the variance of its level."""
REACHES, NOISES = (0.3, 0.6, 1.2, 2.4), (1e-4, 1e-3, 1e-2, 0.1, 1.0)


def places(mhz):
    """Log clocks, 0 to 1 over the range of the settings: (S, 1 or 2)."""
    logs = np.log(mhz[:, np.isfinite(mhz).all(axis=0)])
    span = np.ptp(logs, axis=0)
    return ((logs - logs.min(axis=0)) / np.where(span > 0, span, 1.0))[:, span > 0]


def quadratic_columns(place):
    """The columns of a quadratic, (S, 3 or 6)."""
    columns = [np.ones(len(place)), *place.T]
    columns += [place[:, i] * place[:, j] for i in range(place.shape[1]) for j in range(i + 1)]
    return np.column_stack(columns)


def by_quadratic(place, log_j, few):
    """Log energies (K, S) predicted from those at the few settings."""
    x = quadratic_columns(place)

    def predicted(known, shrink):
        y = log_j[:, known]
        mean = y.mean(axis=0)
        penalty = 1e-6 * np.eye(x.shape[1])
        penalty[0, 0] = 0.0
        at = x[known]
        shared = np.linalg.solve(at.T @ at + penalty, at.T @ mean)
        own_penalty = np.diag([1e-9] + [shrink] * (x.shape[1] - 1))
        own = np.linalg.solve(at.T @ at + own_penalty, at.T @ (y - mean).T)
        return (x @ shared)[None] + (x @ own).T

    errors = []
    for shrink in SHRINK:
        left_out = [
            predicted(np.delete(few, i), shrink)[:, few[i]] - log_j[:, few[i]]
            for i in range(len(few))
        ]
        errors.append(np.mean(np.square(left_out)))
    return predicted(few, SHRINK[int(np.argmin(errors))])


def by_process(place, log_j, few):
    """The same, by Gaussian processes: the mean over kernels, and each kernel's deviation."""
    y = log_j[:, few]
    level = y.mean(axis=1, keepdims=True)
    mean = (y - level).mean(axis=0)
    result = np.repeat(level, len(place), axis=1)
    for rows, of_all in ((mean[None], True), (y - level - mean, False)):
        best = None
        for reach in REACHES:
            near = np.exp(-((place[:, None] - place) ** 2).sum(axis=2) / (2 * reach**2))
            for noise in NOISES:
                held = near[np.ix_(few, few)] + noise * np.eye(len(few))
                inverse = np.linalg.inv(held)
                scale = np.einsum("ij,jk,ik->", rows, inverse, rows) / rows.size
                likely = (
                    -rows.size * np.log(max(scale, 1e-300)) - len(rows) * np.linalg.slogdet(held)[1]
                )
                if best is None or likely > best[0]:
                    best = (likely, rows @ inverse @ near[few])
        result = result + (best[1] if not of_all else best[1][0])
    return result


def joint(log_j, cells, of_all, own, noises):
    """Log energies (K, S) from some cells, bool (K, S), by a Gaussian process.

    Its covariance is (S, S) ``of_all`` kernels, and as much ``own``, each of some, the likeliest
    taken; with one of ``noises``. Kernels have levels of their own.
    """
    kernel, setting = np.nonzero(cells)
    same = kernel[:, None] == kernel
    y = log_j[cells]
    level = (np.bincount(kernel, y) / np.bincount(kernel))[:, None]
    best = None
    for (shared, mine), noise in itertools.product(zip(of_all, own, strict=True), noises):
        held = shared[np.ix_(setting, setting)] + same * (mine[np.ix_(setting, setting)] + LEVEL)
        held = held + noise * np.eye(len(y))
        root = np.linalg.cholesky(held)
        solved = np.linalg.solve(root.T, np.linalg.solve(root, y - level[kernel, 0]))
        scale = float((y - level[kernel, 0]) @ solved) / len(y)
        likely = -0.5 * len(y) * np.log(scale) - np.log(np.diag(root)).sum()
        if best is None or likely > best[0]:
            best = likely, shared, mine, solved
    _, shared, mine, solved = best
    by_kernel = np.zeros(cells.shape)
    by_kernel[kernel, setting] = solved
    return level + shared @ by_kernel.sum(axis=0) + by_kernel @ (mine + LEVEL)


def joint_process(place, log_j, cells):
    """By a smooth process."""
    square = ((place[:, None] - place) ** 2).sum(axis=2)
    near = [np.exp(-square / (2 * reach**2)) for reach in REACHES for _ in SHARES]
    return joint(log_j, cells, near, [s * n for s, n in zip(SHARES * 4, near, strict=True)], NOISES)


def joint_quadratic(place, log_j, cells):
    """By a quadratic, with deviations of each kernel from its coefficients."""
    x = quadratic_columns(place)[:, 1:]
    of_all = [10.0 * x @ x.T] * len(SHARES)
    return joint(log_j, cells, of_all, [share * x @ x.T for share in SHARES], NOISES)
