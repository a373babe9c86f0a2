"""Chains of products, run: against NumPy, in every order, fused pair and tile."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from pydantic import ValidationError

from kernels.host.ranks import Team
from kernels.kernel import ResultError
from kernels.products import chain_run, multiply_chain
from kernels.products.chain_kernel import ChainParams, PreparedChain, chain, count_chain
from kernels.products.chain_plan import Node

LIMIT = 1e-12


def drawn(rng: np.random.Generator, sizes: tuple[int, ...]) -> list[np.ndarray]:
    return [rng.standard_normal(shape) for shape in pairwise(sizes)]


def relative(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).max() / np.abs(other).max())


@pytest.mark.parametrize(
    ("sizes", "on_chip"),
    [
        ((200000, 16, 16, 16), None),
        ((300, 40, 2000, 30, 500), None),
        ((17, 900, 33, 700, 5), 1000),
        ((1, 3000, 1000, 1), None),
        ((130, 131, 132, 133, 134, 135), 2000),
    ],
)
def test_chains_are_numpys(
    sizes: tuple[int, ...], on_chip: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_run, "SMALL_OPS", 0)
    monkeypatch.setattr(chain_run, "FEWEST_RESULT_ROWS", 0)
    matrices = drawn(np.random.default_rng(1), sizes)
    ours = multiply_chain(matrices, on_chip)
    again = multiply_chain([np.asfortranarray(own) for own in matrices], on_chip)
    assert relative(ours, np.linalg.multi_dot(matrices)) < LIMIT
    assert np.array_equal(ours, again)
    kept = ours.copy()
    multiply_chain(drawn(np.random.default_rng(2), sizes), on_chip)
    assert np.array_equal(ours, kept)  # a later call leaves an earlier result alone


def test_what_numpy_does_with_other_arrays() -> None:
    rng = np.random.default_rng(3)
    single = [rng.standard_normal(shape).astype(np.float32) for shape in ((300, 200), (200, 300))]
    assert multiply_chain([*single, single[0]]).dtype == np.float32
    mixed = [single[0], single[1].astype(np.float64), single[0]]
    assert np.array_equal(multiply_chain(mixed), np.linalg.multi_dot(mixed))
    vector = [np.ones(300), single[0], single[1], np.ones(300)]
    assert multiply_chain(vector) == np.linalg.multi_dot(vector)
    empty = [np.ones((400, 0)), np.ones((0, 500)), np.ones((500, 600))]
    assert np.array_equal(multiply_chain(empty), np.zeros((400, 600)))
    for wrong in ([], [np.ones((3, 3))], [np.ones((300, 200)), np.ones((300, 200))]):
        with pytest.raises(ValueError, match=r".") as ours:
            multiply_chain(wrong)
        with pytest.raises(ValueError, match=r".") as theirs:
            np.linalg.multi_dot(wrong)
        assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_pass_through(
    value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_run, "SMALL_OPS", 0)
    matrices = drawn(np.random.default_rng(4), (2000, 31, 30, 33))
    matrices[0][1999, 30] = value
    matrices[2][0, 32] = value
    with np.errstate(invalid="ignore"):
        ours, theirs = multiply_chain(matrices), np.linalg.multi_dot(matrices)
    assert np.array_equal(np.isnan(ours), np.isnan(theirs))
    assert np.array_equal(np.isfinite(ours), np.isfinite(theirs))


def test_every_order_fused_pair_and_tile() -> None:
    rng = np.random.default_rng(5)
    orders = {
        "((A1A2)A3)A4": ["", "1-2", "1-3"],
        "(A1(A2A3))A4": ["", "2-3", "1-3"],
        "(A1A2)(A3A4)": ["", "1-2", "3-4"],
        "A1((A2A3)A4)": ["", "2-3", "2-4"],
        "A1(A2(A3A4))": ["", "3-4", "2-4"],
    }
    for order, fused in ((order, own) for order, every in orders.items() for own in every):
        sizes = [int(size) for size in rng.integers(1, 90, 5)]
        on_chip = int(rng.integers(20, 4000))
        tile = {"tile_x": 0, "tile_y": 0}
        if rng.random() < 0.5:
            tile = {name: int(rng.integers(1, 70)) for name in tile}
        params = ChainParams(sizes=sizes, order=order, fused=fused, on_chip=on_chip, **tile)
        prepared = PreparedChain(params)
        right = np.linalg.multi_dot(prepared._matrices)
        assert relative(prepared._product, right) < LIMIT, (order, fused, sizes, tile)
        prepared.run(2)
        prepared.check()
        prepared._matrices[0][0, 0] += 1e-9 * 90
        with pytest.raises(ResultError, match="row 0 of the product is wrong"):
            prepared.check()
        prepared.close()


def test_a_long_tile_of_the_right_matrix() -> None:
    params = ChainParams(sizes=(5007, 1501, 20, 30), order="(A1A2)A3")
    assert (params.nodes[0].kept, params.nodes[0].tile_x) == ("right operand", 1501)
    prepared = PreparedChain(params)
    assert relative(prepared._product, np.linalg.multi_dot(prepared._matrices)) < LIMIT


@pytest.mark.parametrize("on_chip", [0, 1, 300, 65536])
@pytest.mark.parametrize("tile", [(1, 1), (7, 900), (900, 7), (300, 300)])
@pytest.mark.parametrize("side", ["left", "right"])
def test_buffers_have_room_for_all_that_loops_write(
    side: str, tile: tuple[int, int], on_chip: int
) -> None:
    """Numbers beyond a buffer's end would be read back as they were written."""
    node = Node(first=1, last=3, split=1, fused=side, tile_x=tile[0], tile_y=tile[1])
    buffers = chain_run.Buffers.of(*chain_run.needed_numbers([node]))
    sizes = (1000, 900, 900, 1000)
    variants, shapes = chain_run.fused_shapes(side, sizes, tile, on_chip)
    for place, (variant, (mr, nr, wide, deep, _)) in enumerate(zip(variants, shapes, strict=True)):
        assert (mr, nr) == (variant.mr, variant.nr)
        assert wide % mr == 0
        assert len(buffers.tile) >= mr * nr
        assert len(buffers.rows) >= nr * deep
        packed = buffers.between if (side, place) == ("right", 1) else buffers.packed
        assert len(packed) >= wide * deep
    assert len(buffers.between) >= tile[0] * tile[1]


def test_counts() -> None:
    fused = ChainParams(sizes=[4096, 64, 64, 64], order="(A1A2)A3", fused="1-2")
    plain = ChainParams(sizes=[4096, 64, 64, 64], order="(A1A2)A3")
    counts = [count_chain(own) for own in (fused, plain)]
    assert counts[0]["dp"] == counts[1]["dp"] == 2 * 2 * 4096 * 64 * 64
    assert chain.metrics is not None
    words = [chain.metrics(own)["words"] for own in (fused, plain)]
    # Each matrix once, the small ones once for each block of rows; unfused the one between, too.
    blocks = -(-4096 // (65536 * 7 // 10 // 64))
    assert words[0] == 2 * 4096 * 64 + blocks * 2 * 64 * 64
    assert words[1] == 4 * 4096 * 64 + 2 * 64 * 64
    ours = chain.prepare
    assert ours is not None
    assert ours(fused, Team()).counts()["dp"] == counts[0]["dp"]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"sizes": [4, 5]}, "at least 3 items"),
        ({"sizes": [4, 0, 5]}, "greater than or equal to 1"),
        ({"order": "A1A2"}, "order: found 'A1A2'; must multiply A1 to A3 in this order"),
        ({"order": "(A2A1)A3"}, "must multiply A1 to A3 in this order"),
        ({"order": "(A1A2)A3)"}, "must multiply A1 to A3 in this order"),
        ({"order": "(A1*A2)A3"}, r"write it as \(A1A2\)A3"),
        ({"order": "(A1A2)A3", "fused": "2-3"}, "the products of this order are 1-2, 1-3"),
        ({"order": "(A1A2)A3", "fused": "1-3"}, "is the whole chain"),
        ({"order": "(A1A2)A3", "fused": "plan"}, "leave order out"),
        ({"tile_x": 3}, "both 0"),
    ],
)
def test_wrong_params(params: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ChainParams.model_validate({"sizes": [4, 5, 6, 7]} | params)


def test_a_product_is_fused_only_once() -> None:
    with pytest.raises(ValidationError, match="takes part in another fusing"):
        ChainParams(sizes=[4, 5, 6, 7, 8], order="((A1A2)A3)A4", fused="1-2,1-3")
