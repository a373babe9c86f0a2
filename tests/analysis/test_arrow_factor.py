"""What rows determine, found kernel by kernel, against dense decompositions of the whole matrix."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from analysis.energy.breakdown import class_parts
from analysis.energy.fit import fit
from analysis.energy.fit_file import as_kept
from analysis.energy.fitted import Fit
from analysis.energy.normal_equations import ArrowColumns
from analysis.measurements.observations import Observations
from tests.analysis.synthetic import grid_observations


def columns(seed: int, n_kernels: int, q: int, repeats: int, shape: str) -> ArrowColumns:
    """``shape``: what two columns of a kernel, or the shared ones, have to do with each other."""
    rng = np.random.default_rng(seed)
    kernel = np.repeat(np.arange(-1, n_kernels), repeats)
    kernel = rng.permutation(kernel)
    n = len(kernel)
    own = 10.0 ** rng.uniform(-3, 3) * rng.uniform(0.2, 1.0, (n, 2))
    shared = rng.uniform(0.1, 1.0, (n, q))
    if shape == "one each":
        own[:, 1] = 0.0
    if shape == "alike":
        own[kernel % 2 == 0, 1] = 2.5 * own[kernel % 2 == 0, 0]
    if shape == "nearly alike":
        own[:, 1] = own[:, 0] * (1.0 + 1e-6 * rng.uniform(-1, 1, n))
    if shape == "shared alike":
        shared[:, -1] = 3.0 * shared[:, 0]
    if shape == "shared of kernels":
        own[kernel == 0, 1] = own[kernel == 0, 0]
        shared[:, -1] = np.where(kernel >= 0, own.sum(axis=1), float(n_kernels == 0))
    own[kernel < 0] = 0.0
    return ArrowColumns(shared, own, kernel, n_kernels)


def dense(arrow: ArrowColumns) -> np.ndarray:
    own = np.zeros((len(arrow.kernel), arrow.n_kernels, 2))
    mine = np.flatnonzero(arrow.kernel >= 0)
    own[mine, arrow.kernel[mine]] = arrow.lumped[mine]
    return np.hstack([arrow.shared, own.reshape(len(own), -1)])


SHAPES = ("any", "one each", "alike", "nearly alike", "shared alike", "shared of kernels")


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n_kernels=st.integers(0, 6),
    q=st.integers(1, 4),
    repeats=st.integers(1, 9),
    shape=st.sampled_from(SHAPES),
)
def test_the_condition_number_is_that_of_the_whole_matrix(seed, n_kernels, q, repeats, shape):
    arrow = columns(seed, n_kernels, q, repeats, shape)
    matrix = dense(arrow)
    length = np.linalg.norm(matrix, axis=0)
    np.testing.assert_allclose(arrow.lengths(), length, rtol=1e-12)
    unit = matrix[:, length > 0] / length[length > 0]
    expected = np.zeros(unit.shape[1])
    expected[: min(unit.shape)] = np.linalg.svd(unit, compute_uv=False)
    condition = expected[0] / max(expected[-1], 1e-300)
    found = arrow.factor().condition_number()
    # The smallest singular value of a matrix is only determined to rounding of its largest.
    assert np.isinf(found) == (condition > 1e9)
    assert np.isinf(found) or found == pytest.approx(condition, rel=1e-9 + 1e-15 * condition)


def extremes(matrix: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """By linear programs over all numbers >= 0 with which the rows sum to the same."""
    low, high = value.copy(), value.copy()
    for i in range(len(value)):
        for sign, side in ((1.0, low), (-1.0, high)):
            cost = np.zeros(len(value))
            cost[i] = sign
            answer = linprog(cost, A_eq=matrix, b_eq=matrix @ value, bounds=(0, None))
            assert answer.success
            side[i] = answer.x[i]
    return low, high


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "nearly alike"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_numbers_that_explain_the_rows_as_well_by_brute_force(seed, shape):
    arrow = columns(seed, 4, 3, 6, shape)
    matrix = dense(arrow)
    length = np.where(arrow.lengths() > 0, arrow.lengths(), 1.0)
    value = np.random.default_rng(seed).uniform(0.2, 2.0, len(length)) * (arrow.lengths() > 0)
    value[4] = 0.0
    used = arrow.lengths() > 0
    found = arrow.factor().equally_good(value)
    expected = extremes((matrix / length)[:, used], value[used])
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one[used], other, rtol=1e-6, atol=1e-6)
    moved = found[1] > found[0] * (1 + 1e-6) + 1e-6
    assert moved.any() == (shape in ("alike", "shared alike", "shared of kernels"))


def test_a_large_table_takes_no_matrix_of_rows_by_kernels():
    """200,000 rows of 20,000 kernels: the dense matrix would be 64 GB."""
    rng = np.random.default_rng(1)
    kernel = np.repeat(np.arange(20_000), 10)
    own, shared = rng.uniform(0.2, 1.0, (len(kernel), 2)), rng.uniform(0.2, 1.0, (len(kernel), 3))
    factor = ArrowColumns(shared, own, kernel, 20_000).factor()
    assert 1.0 < factor.condition_number() < 1e6


def test_a_fit_of_kernels_without_counts_takes_less_memory_than_rows_by_kernels():
    """Also what it predicts; a dense matrix of rows by coefficients would be 41 MB."""
    data = grid_observations(1, kernels=400, counted=0.0, repeats=2, noise=0.05)

    def whole(data: Observations) -> Fit:
        fitted = fit(data, "choi", "known")
        class_parts(fitted, data)
        json.dumps(as_kept(fitted))
        return fitted

    whole(grid_observations(1, counted=0.0, noise=0.05))  # imported and compiled once
    tracemalloc.start()
    try:
        fitted = whole(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(fitted.terms) == 803
    assert peak < 0.2 * len(data) * 803 * 8
    np.testing.assert_allclose(fitted.energy_j(data), data.energy_j, rtol=0.1)
