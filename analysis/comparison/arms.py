"""What a change of settings did to jobs that ran: policy jobs beside control jobs, by ratios.

Jobs of one user and input are alike, so they are compared with each other (a *block*), and users
need not all gain the same, so the interval is one over users (*clusters*):

    log y_i = block_i + d * policy_i + s * start_i + error_i

d is the log of the ratio policy / control, s a drift with time. Least squares after each block's
means are taken off. The interval is by leaving out each cluster in turn (the jackknife CV3 of
MacKinnon, Nielsen & Webb 2023), with Student's t of as many degrees of freedom as the effective
number of clusters less one (Carter, Schnepel & Steigerwald 2017). Where all jobs are of one
cluster they count as independent, and the interval holds for that cluster alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

FEWEST_FOR_DRIFT = 20
"""From so many jobs on, a drift with time is fitted."""
FEWEST_CLUSTERS = 4
LEVEL = 0.95


@dataclass(frozen=True)
class ArmChange:
    """The change of a quantity by the policy, in % of what control jobs take: the estimate and its
    95 % interval. ``log_std``, ``freedom``: the standard error of the logarithm of the ratio, and
    the degrees of freedom of its t. The jobs are those in blocks that have both arms."""

    change_pct: float
    low_pct: float
    high_pct: float
    log_std: float
    freedom: float
    policy_jobs: int
    control_jobs: int

    @property
    def jobs(self) -> int:
        """Of both arms."""
        return self.policy_jobs + self.control_jobs

    def p_at_most(self, limit_pct: float) -> float:
        """The one-sided p of a true change of at most ``limit_pct``, in % and above -100."""
        gap = np.log1p(self.change_pct / 100.0) - np.log1p(limit_pct / 100.0)
        if self.log_std == 0.0:
            return float(gap <= 0.0)
        return float(special.stdtr(self.freedom, -gap / self.log_std))


def change_between_arms(
    value: np.ndarray,
    policy: np.ndarray,
    block: np.ndarray,
    cluster: np.ndarray,
    start_s: np.ndarray,
) -> ArmChange | None:
    """Compare the two arms of jobs.

    Args:
        value: float64 (jobs,), energies or times, above 0.
        policy: bool (jobs,), whether a job is of the policy's arm.
        block: int64 (jobs,), which jobs are alike; a block is in one cluster.
        cluster: int64 (jobs,), whose jobs may differ in what they gain.
        start_s: float64 (jobs,), when a job began.

    Returns:
        None where no block has both arms and a job to spare.
    """
    block = np.unique(block, return_inverse=True)[1]
    treated = np.bincount(block, policy)
    size = np.bincount(block)
    usable = ((treated > 0) & (treated < size))[block]
    if usable.sum() < 3 or usable.sum() - len(set(block[usable])) < 2:
        return None
    block = np.unique(block[usable], return_inverse=True)[1]
    cluster = np.unique(cluster[usable], return_inverse=True)[1]
    columns = [policy[usable].astype(float)]
    n, blocks, clusters = len(block), int(block.max()) + 1, int(cluster.max()) + 1
    if n - blocks >= FEWEST_FOR_DRIFT:
        columns.append(start_s[usable] - start_s[usable].mean())
    x = np.column_stack([_within(column, block) for column in columns])
    if np.linalg.matrix_rank(x / np.maximum(np.abs(x).max(axis=0), 1e-300)) < x.shape[1]:
        x = x[:, :1]  # all began at one time, or the arms at two: no drift can be told apart
    y = _within(np.log(value[usable]), block)
    products = _by_cluster(x[:, :, None] * x[:, None, :], cluster, clusters)
    moments = _by_cluster(x * y[:, None], cluster, clusters)
    whole, moment = products.sum(axis=0), moments.sum(axis=0)
    slope = np.linalg.solve(whole, moment)
    informative = products[:, 0, 0] > 0.0
    share = products[informative, 0, 0] / whole[0, 0]
    if clusters < FEWEST_CLUSTERS:
        freedom = float(n - blocks - x.shape[1])
        residual = y - x @ slope
        variance = residual @ residual / freedom * np.linalg.inv(whole)[0, 0]
    else:
        freedom = max(1.0 / float(share @ share) - 1.0, 1.0)
        without = [
            np.linalg.lstsq(whole - products[g], moment - moments[g], rcond=None)[0][0]
            for g in range(clusters)
        ]
        variance = (clusters - 1) / clusters * float(np.sum((np.array(without) - slope[0]) ** 2))
    std = float(np.sqrt(variance))
    reach = float(special.stdtrit(freedom, (1.0 + LEVEL) / 2.0)) * std
    low, middle, high = (
        float(np.expm1(d)) * 100.0 for d in (slope[0] - reach, slope[0], slope[0] + reach)
    )
    return ArmChange(
        middle,
        low,
        high,
        std,
        freedom,
        int(policy[usable].sum()),
        int((~policy[usable]).sum()),
    )


def _within(values: np.ndarray, block: np.ndarray) -> np.ndarray:
    """Values less the mean of their block."""
    mean = np.bincount(block, values) / np.bincount(block)
    return np.asarray(values - mean[block])


def _by_cluster(values: np.ndarray, cluster: np.ndarray, clusters: int) -> np.ndarray:
    """The sum over the rows of each cluster: (jobs, ...) to (clusters, ...)."""
    total = np.zeros((clusters, *values.shape[1:]))
    np.add.at(total, cluster, values)
    return total
