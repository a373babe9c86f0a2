"""The matrix product: right for every variant, exact counts, and reasons for what is refused."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from kernels.fmm.counts.machine import DEFAULT_MACHINE, MachineModel
from kernels.host.ranks import Team
from kernels.kernel import ResultError
from kernels.products.counts import count_product
from kernels.products.kernel import DgemmParams, Matrices, PreparedProduct, dgemm
from kernels.products.variants import Variant, blocks

TILES = [(4, 1, 1), (8, 6, 3), (12, 4, 2), (24, 8, 8), (16, 12, 1)]
"""mr, nr and unroll, which are compiled: vectors of 4 and of 8, whole and in part."""
ORDERS = (29, 31, 37, 43, 53, 59, 61, 97)
"""Primes, which no tile divides."""


def random_params(rng: random.Random) -> DgemmParams:
    n, (mr, nr, unroll) = rng.choice(ORDERS), rng.choice(TILES)
    return DgemmParams(
        n=n,
        mr=mr,
        nr=nr,
        unroll=unroll,
        mc=mr * rng.randint(1, 1 + n // mr),
        kc=rng.randint(1, n + 9),
        nc=rng.choice([None, nr * rng.randint(1, 1 + n // nr)]),
        threads=rng.choice([1, 1, 1, 2, 3, 5]),
    )


def added(params: DgemmParams, matrices: Matrices) -> np.ndarray:
    """C after one product."""
    prepared = PreparedProduct(params, matrices)
    prepared.close()
    return matrices.square()[2]


# Results


def test_any_variant_is_right_where_no_tile_divides() -> None:
    """500 variants, all of C, by NumPy."""
    rng, matrices = random.Random(18), {n: Matrices.random(n, n) for n in ORDERS}
    for _ in range(500):
        params = random_params(rng)
        a, b, c = matrices[params.n].square()
        right = c + a @ b
        computed = added(params, matrices[params.n])
        np.testing.assert_allclose(computed, right, rtol=0, atol=1e-9, err_msg=repr(params))
        c[:] = a  # so that sums stay small


@pytest.mark.parametrize(("mr", "nr", "unroll"), TILES)
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_reaches_its_row_or_column_and_no_other(
    mr: int, nr: int, unroll: int, special: float
) -> None:
    """At the edges, where slivers are filled with zeros: 0 times infinity must stay outside."""
    n = 37
    params = DgemmParams(n=n, mr=mr, nr=nr, unroll=unroll, mc=mr, kc=10, nc=nr)
    for row, column in ((n - 1, n - 1), (0, n - 1), (20, 3)):
        for name in ("a", "b"):
            matrices = Matrices.random(n, 0)
            a, b, c = matrices.square()
            (a if name == "a" else b)[row, column] = special
            # By the definition, without a BLAS: the special number meets no zero.
            right = c + (a[:, :, None] * b[None]).sum(axis=1)
            reached = np.zeros((n, n), bool)
            reached[(row, slice(None)) if name == "a" else (slice(None), column)] = True
            computed = added(params, matrices)
            assert (~np.isfinite(computed) == reached).all()
            np.testing.assert_allclose(computed, right, rtol=0, atol=1e-12)


@pytest.mark.parametrize("threads", [1, 3])
def test_orders_zero_and_one(threads: int) -> None:
    assert added(DgemmParams(n=0, threads=threads), Matrices.random(0, 0)).shape == (0, 0)
    matrices = Matrices.random(1, 0)
    a, b, c = (float(m[0, 0]) for m in matrices.square())
    assert added(DgemmParams(n=1, threads=threads), matrices)[0, 0] == pytest.approx(c + a * b)
    for n in (0, 1):
        prepared = dgemm.prepare(DgemmParams(n=n, threads=threads), Team())
        prepared.run(2)
        prepared.check()
        assert prepared.counts()["dp"] == 2 * n
        prepared.close()


def test_a_wrong_number_is_reported() -> None:
    matrices = Matrices.random(59, 0)
    prepared = PreparedProduct(DgemmParams(n=59, threads=2), matrices)
    prepared.run(3)
    prepared.check()
    c = matrices.square()[2]
    for wrong in (c[40, 7] + 1e-8, np.nan):
        before, c[40, 7] = c[40, 7], wrong
        with pytest.raises(ResultError, match="row 40 of C"):
            prepared.check()
        c[40, 7] = before
    prepared.check()
    prepared.close()


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 6, 7, 12])
@pytest.mark.parametrize("n", [0, 5, 97, 240])
def test_the_threads_blocks_are_all_of_c(n: int, threads: int) -> None:
    times = np.zeros((n, n), int)
    parts = blocks(n, threads, Variant())
    for part in parts:
        times[part.row : part.last_row, part.column : part.last_column] += 1
    assert len(parts) == threads
    assert (times == 1).all()


# Counts


def numbers_moved(n: int, v: Variant) -> int:
    """Numbers loaded and stored, by walking through the loops."""
    moved, nc = 0, v.nc or n
    for j0 in range(0, n, nc):
        for k0 in range(0, n, v.kc):
            depth, j1 = min(v.kc, n - k0), min(j0 + nc, n)
            slivers_b = len(range(j0, j1, v.nr))
            moved += depth * (j1 - j0) + depth * slivers_b * v.nr
            for i0 in range(0, n, v.mc):
                i1 = min(i0 + v.mc, n)
                slivers_a = len(range(i0, i1, v.mr))
                moved += depth * (i1 - i0) + depth * slivers_a * v.mr
                moved += slivers_a * slivers_b * depth * (v.mr + v.nr)
                moved += 2 * (i1 - i0) * (j1 - j0)
    return moved


def test_every_byte_is_counted_once() -> None:
    rng = random.Random(3)
    for _ in range(100):
        params = random_params(rng)
        variant = params.variant()
        counts = count_product(params.n, 1, variant, DEFAULT_MACHINE)
        assert counts.pop("dp") == 2 * params.n**3
        assert sum(counts.values()) == 8 * numbers_moved(params.n, variant), params


def test_the_level_that_serves_follows_from_the_size_of_the_caches() -> None:
    """From the memory at least the matrices, once each, unless a cache holds them all; a larger
    cache never adds bytes to the memory's."""
    n, variant = 960, DgemmParams(n=960).variant()
    sizes = [1 << k for k in range(10, 28)]
    drams = []
    for size in sizes:
        machine = MachineModel(caches=(("l1", min(size, 32 << 10)), ("l2", size)))
        drams.append(count_product(n, 1, variant, machine).get("dram", 0.0))
    assert drams == sorted(drams, reverse=True)
    assert drams[-1] == 0
    assert min(d for d in drams if d) >= 2 * 8 * n * n  # A and B, by the packing
    # With the packed parts in the caches: A, B, and C once for each panel of B.
    packed_fits = MachineModel(caches=(("l1", 32 << 10), ("l2", 10 << 20)))
    dram = count_product(n, 1, variant, packed_fits)["dram"]
    assert dram == 8 * n * n * (2 + 4)


def test_two_threads_count_what_both_do() -> None:
    """C, and the inner loops, once; A or B is packed by both."""
    one, two = (dict(dgemm.counts(DgemmParams(n=960, threads=t))) for t in (1, 2))
    assert one.pop("dp") == two.pop("dp")
    # Two blocks side by side: A is loaded and stored once more.
    assert sum(two.values()) - sum(one.values()) == 2 * 8 * 960**2


# Parameters


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"mr": 10},
            "mr: found 10, not a multiple of 4, the numbers in a 256-bit vector; use 8 or 12",
        ),
        ({"mr": 2}, "greater than or equal to 4"),
        ({"nr": 0}, "greater than or equal to 1"),
        ({"unroll": 0}, "greater than or equal to 1"),
        ({"mr": 16, "mc": 100}, "mc: found 100, not a multiple of mr, 16; use 96 or 112"),
        ({"mr": 16, "mc": 8}, "mc: found 8, not a multiple of mr, 16; use 16"),
        ({"nr": 6, "nc": 100}, "nc: found 100, not a multiple of nr, 6; use 96 or 102"),
        ({"kc": 0}, "greater than or equal to 1"),
        ({"mr": 240, "nr": 24}, "make 23040 multiply-adds .* at most 4096 are compiled"),
        ({"n": -1}, "greater than or equal to 0"),
        ({"threads": 0}, "greater than or equal to 1"),
        ({"tile": 8}, "Extra inputs are not permitted"),
    ],
)
def test_what_cannot_be_built_is_refused_with_a_reason(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says) as refused:
        DgemmParams(**{"n": 100, **given})
    assert refused.value.error_count() == 1
