"""M2L of gpu_fmm by transforms, and the tiles of its products, by NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.cuda.fmm import spectra
from kernels.cuda.fmm.arrays import arrays_of, matrices_of
from kernels.cuda.fmm.kernel import GpuFmmParams, check_potentials
from kernels.cuda.fmm.plan import SPECTRA, make_plan
from kernels.cuda.fmm.product import SIDE, make_product
from kernels.cuda.fmm.spectra import (
    Slabs,
    cut,
    far_offsets,
    kept_frequencies,
    operator_spectra,
    transforms,
)
from kernels.fmm.operators.surfaces import INNER, surface_grid, surface_points
from kernels.fmm.operators.translation_matrices import build_operators
from tests.kernels.cuda.test_fmm_whole import by_numpy, evaluated


@pytest.mark.parametrize("order", [4, 7])
def test_the_transforms_are_those_of_fft(order: int) -> None:
    """A surface's densities to their spectrum, slab by slab; and back, to the same densities."""
    n = 2 * order - 1
    slabs = Slabs(count=2, frequencies=-(-((n**3 + 1) // 2) // 128) * 64)
    forward, backward = transforms(order, slabs)
    grid = surface_grid(order)
    densities = np.random.default_rng(order).normal(size=(3, len(grid)))
    padded = np.zeros((3, n, n, n))
    x, y, z = grid.T
    padded[:, z, y, x] = densities
    right = np.fft.fftn(padded, axes=(1, 2, 3)).reshape(3, -1)
    kept = kept_frequencies(order)
    computed = [np.ascontiguousarray(densities @ part).view(complex) for part in forward]
    spectrum = np.concatenate(computed, axis=1)
    np.testing.assert_allclose(spectrum[:, : len(kept)], right[:, kept], atol=1e-11)
    assert not spectrum[:, len(kept) :].any()
    back = sum(part.view(float) @ m for part, m in zip(computed, backward, strict=True))
    np.testing.assert_allclose(back, densities, atol=1e-12)


def test_one_frequency_of_each_pair_is_kept() -> None:
    """With their negatives they are all n^3, and only 0 is its own."""
    for order in (3, 6):
        n = 2 * order - 1
        kept = kept_frequencies(order)
        z, y, x = kept // n**2, kept // n % n, kept % n
        negative = (-z % n * n + -y % n) * n + -x % n
        assert sorted([*kept, *negative]) == sorted([*range(n**3), 0])


def test_m2l_by_transforms_is_m2l_by_matrices() -> None:
    """For every offset of cells that do not touch: potentials from source to target."""
    order = 5
    slabs = cut(order, 1000, 8)
    (forward,), (backward,) = transforms(order, slabs)
    (operators,) = operator_spectra(
        build_operators("laplace", order, np.float64).table, order, slabs
    )
    ring = surface_points(order, INNER)
    densities = np.random.default_rng(0).normal(size=len(ring))
    spectrum = (densities @ forward).view(complex)
    assert len(operators) == len(far_offsets()) == 7**3 - 3**3
    for operator, at in zip(operators, far_offsets(), strict=True):
        cells = np.array([at % 7, at // 7 % 7, at // 49]) - 3
        apart = np.linalg.norm(ring[:, None] + 2.0 * cells - ring[None], axis=2)
        potentials = (spectrum * operator.view(complex)).view(float) @ backward
        np.testing.assert_allclose(potentials, (1 / apart) @ densities, rtol=1e-10, atol=1e-12)


def test_slabs_give_the_same_potentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of one slice: as many slabs as slices, whose arrays are smaller."""
    params = GpuFmmParams(n=601, q=40, digits=3, distribution="sphere")
    whole = make_plan(601, 40, 3, "sphere", params.direct, params.cells)
    monkeypatch.setattr(spectra, "SLAB_BYTES", 0)
    make_plan.cache_clear()
    cut_up = make_plan(601, 40, 3, "sphere", params.direct, params.cells)
    make_plan.cache_clear()
    assert (whole.slabs.count, cut_up.slabs) == (1, Slabs(count=3, frequencies=64))
    assert [step.phase for step in cut_up.steps].count("v") == 9
    for name in SPECTRA:
        assert arrays_of(cut_up)[name].shape == (cut_up.rows, 128)
    one, several = (evaluated(plan, by_numpy) for plan in (whole, cut_up))
    np.testing.assert_allclose(several, one, rtol=1e-10, atol=1e-10)
    check_potentials(cut_up, several, 3)


def test_spectra_of_a_large_tree_are_cut_to_the_limit() -> None:
    """Ten digits, 300,000 nodes: below the limit; of a small tree in one slab."""
    slabs = cut(13, 300_001, 8)
    assert slabs.count > 1
    assert 2 * 300_001 * 8 * slabs.columns <= spectra.SLAB_BYTES
    assert slabs.count * slabs.frequencies >= (25**3 + 1) // 2
    assert cut(13, 100, 8).count == 1


def test_the_matrices_are_smaller_than_one_for_each_offset() -> None:
    """The spectra and both transforms, of six digits: a dense matrix for each offset is larger."""
    params = GpuFmmParams(n=600, q=40, digits=6)
    plan = make_plan(600, 40, 6, "uniform", params.direct, params.cells)
    matrices = matrices_of(plan)
    of_m2l = sum(matrices[name].nbytes for name in ("forward", "backward", "m2l"))
    assert of_m2l < 0.2 * 316 * 8 * plan.columns**2


def test_products_are_those_of_numpy() -> None:
    """Tiles, from a list of terms in any order: kinds of more and of fewer rows than a tile."""
    rng = np.random.default_rng(1)
    rows_ = rng.permutation(200)[:120]
    kinds = rng.choice([3, 5, 9], 120, p=[0.1, 0.5, 0.4])
    scales = 1.0 / kinds
    pairs = rng.permutation([(at, m) for at in range(120) for m in range(7) if rng.random() < 0.4])
    terms = np.column_stack([pairs, rng.integers(0, 200, len(pairs))])
    made = make_product(rows_, kinds, scales, terms, 200)
    assert made.tiles.rows_out.shape == (1 + 2 + 2, SIDE)
    matrices, given = rng.normal(size=(7, 4, 4)), rng.normal(size=(201, 4))
    given[200] = 0
    right = np.zeros((201, 4))
    for at, matrix, source in terms:
        right[rows_[at]] += scales[at] * given[source] @ matrices[matrix]
    computed = np.zeros((201, 4))
    tiles = made.tiles
    for tile, to in enumerate(tiles.rows_out):
        for entry in range(tiles.begins[tile], tiles.begins[tile + 1]):
            matrix = matrices[tiles.operator_of[entry]]
            computed[to] += made.scales[tile] * given[tiles.rows_in[entry]] @ matrix
    np.testing.assert_allclose(computed, right, atol=1e-12)
    assert tiles.begins[-1] == len(tiles.operator_of) == len(tiles.rows_in)
