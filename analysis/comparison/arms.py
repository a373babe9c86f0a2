"""The effect of a policy on jobs: the ratio of policy jobs to control jobs, with its interval.

Jobs of one user and input are similar, so they are compared with each other (a *block*). Users may
differ in their gain, so the interval is over users (*clusters*):

    log y_i = block_i + d * policy_i + s * start_i + error_i

d is the log of the ratio policy / control, s a drift with time. They are fitted by least squares
after each block's mean is subtracted. The interval is the jackknife over clusters (CV3 of
MacKinnon, Nielsen & Webb 2023), with Student's t of as many degrees of freedom as the effective
number of clusters less one (Carter, Schnepel & Steigerwald 2017). With fewer than
:data:`FEWEST_CLUSTERS` clusters, jobs count as independent, and the interval holds for these
clusters alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

FEWEST_FOR_DRIFT = 20
"""The fewest jobs less blocks for which a drift with time is fitted."""
FEWEST_CLUSTERS = 4
LEVEL = 0.95


@dataclass(frozen=True)
class ArmChange:
    """The change of a quantity by the policy, in % of the control jobs' value: the estimate and its
    95 % interval. ``log_std``, ``freedom``: the standard error of the logarithm of the ratio, and
    the degrees of freedom of its t. The jobs are those in blocks with both arms."""

    change_pct: float
    low_pct: float
    high_pct: float
    log_std: float
    freedom: float
    policy_jobs: int
    control_jobs: int

    @property
    def jobs(self) -> int:
        """The number of jobs of both arms."""
        return self.policy_jobs + self.control_jobs

    def p_at_most(self, limit_pct: float) -> float:
        """The one-sided p of a true change of at most ``limit_pct``, in %, above -100."""
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
        block: int64 (jobs,), the group of similar jobs; a block is in one cluster.
        cluster: int64 (jobs,), the group of jobs with the same gain, such as a user.
        start_s: float64 (jobs,), the start time of a job.

    Returns:
        None if too few jobs are in blocks with both arms.
    """
    block = np.unique(block, return_inverse=True)[1]
    policy_jobs = np.bincount(block, policy)
    size = np.bincount(block)
    usable = ((policy_jobs > 0) & (policy_jobs < size))[block]
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
        x = x[:, :1]  # the drift cannot be separated: one start time, or one for each arm
    y = _within(np.log(value[usable]), block)
    products = _by_cluster(x[:, :, None] * x[:, None, :], cluster, clusters)
    moments = _by_cluster(x * y[:, None], cluster, clusters)
    total, moment = products.sum(axis=0), moments.sum(axis=0)
    slope = np.linalg.solve(total, moment)
    informative = products[:, 0, 0] > 0.0
    share = products[informative, 0, 0] / total[0, 0]
    if clusters < FEWEST_CLUSTERS:
        freedom = float(n - blocks - x.shape[1])
        residual = y - x @ slope
        variance = residual @ residual / freedom * np.linalg.inv(total)[0, 0]
    else:
        freedom = max(1.0 / float(share @ share) - 1.0, 1.0)
        refits = [
            np.linalg.lstsq(total - products[g], moment - moments[g], rcond=None)[0][0]
            for g in range(clusters)
        ]
        variance = (clusters - 1) / clusters * float(np.sum((np.array(refits) - slope[0]) ** 2))
    std = float(np.sqrt(variance))
    half_width = float(special.stdtrit(freedom, (1.0 + LEVEL) / 2.0)) * std
    low, middle, high = (
        float(np.expm1(d)) * 100.0 for d in (slope[0] - half_width, slope[0], slope[0] + half_width)
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
    """The values less the means of their blocks."""
    mean = np.bincount(block, values) / np.bincount(block)
    return np.asarray(values - mean[block])


def _by_cluster(values: np.ndarray, cluster: np.ndarray, clusters: int) -> np.ndarray:
    """The sum over the rows of each cluster: (jobs, ...) to (clusters, ...)."""
    total = np.zeros((clusters, *values.shape[1:]))
    np.add.at(total, cluster, values)
    return total
