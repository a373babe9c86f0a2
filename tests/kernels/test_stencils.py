"""Tiled stencils: the geometry by brute force over points, results bit for bit, exact counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from kernels.host.ranks import Team
from kernels.host.worker_threads import WorkerThreads
from kernels.kernel import ResultError
from kernels.stencils.counts import count_stencil, inner_pieces, stencil_metrics, wavefronts
from kernels.stencils.kernel import PreparedStencil, align, plain_steps, stencil
from kernels.stencils.params import StencilParams
from kernels.stencils.shapes import Wavefront, hexagonal, pieces, skewed, subdivided
from kernels.stencils.stencils import GAP, MATCH, MISMATCH, STENCILS

MOST = {1: 40, 2: 14, 3: 8}
"""Points of an axis in random cases."""


def points_of(wavefront: Wavefront, tile: int) -> list[tuple[int, int]]:
    """(step, point) of a tile, in the order in which they run."""
    rows = zip(wavefront.steps[tile], wavefront.lows[tile], wavefront.highs[tile], strict=True)
    return [(int(step), point) for step, low, high in rows for point in range(low, high)]


def tile_points(all_of: Iterator[Wavefront]) -> Iterator[list[list[tuple[int, int]]]]:
    for wavefront in all_of:
        yield [points_of(wavefront, tile) for tile in range(len(wavefront.steps))]


def moved(tile: set[tuple[int, int]], size: int, steps: int) -> tuple[int, int]:
    """Points that a tile reads from outside, and that it writes for others: by sets."""
    read = {
        (t - 1, near)
        for t, s in tile
        for near in (s - 1, s, s + 1)
        if 0 <= near < size and (t - 1, near) not in tile
    }
    written = {
        (t, s)
        for t, s in tile
        if t == steps
        or any(0 <= near < size and (t + 1, near) not in tile for near in (s - 1, s, s + 1))
    }
    return len(read), len(written)


def covered_in_order(all_of: Iterator[Wavefront], size: int, steps: int) -> None:
    """Every point once; its inputs before it, in the same tile or in an earlier wavefront."""
    done: set[tuple[int, int]] = set()
    for tiles in tile_points(all_of):
        before = set(done)
        for points in tiles:
            own: set[tuple[int, int]] = set()
            for t, s in points:
                for near in (s - 1, s, s + 1):
                    if t > 1 and 0 <= near < size:
                        assert (t - 1, near) in before or (t - 1, near) in own
                own.add((t, s))
            assert len(own) == len(points)
            assert not own & done
            done |= own
    assert len(done) == size * steps


@pytest.mark.parametrize("tile_t", range(2, 25, 2))
def test_a_hexagon_has_the_papers_area_and_moves_its_words(tile_t: int) -> None:
    """Area tT (2 tS + tT - 2) / 2, inputs tS + 2 tT, outputs tS + 2 tT - 2, pitch 2 tS + tT - 2
    (Prajapati 2019, B.6.3; its A.5 and A.8 print two more), for all tS to 40."""
    for tile_1 in range(1, 41):
        pitch = 2 * tile_1 + tile_t - 2
        all_of = list(hexagonal(8 * pitch, 4 * tile_t, tile_1, tile_t))
        middle = all_of[3]
        tile = points_of(middle, 3)
        assert len(tile) == tile_t * pitch // 2
        assert set(np.diff(middle.lows[1:-1, 0])) == {pitch}
        # In a row of three points, the middle one is needed on both sides and counts once.
        written = tile_1 + 2 * tile_t - 2 - (tile_1 == 1)
        assert moved(set(tile), 8 * pitch, 4 * tile_t) == (tile_1 + 2 * tile_t, written)


def test_wavefronts_of_hexagons_are_as_many_as_the_paper_says() -> None:
    """A.3: 2 ceil(T / tT) + epsilon, epsilon = 0 if 0 < T - floor(T / tT) tT <= tT / 2, else 1."""
    for tile_t in range(2, 25, 2):
        for steps in range(1, 60):
            epsilon = 0 if 0 < steps % tile_t <= tile_t // 2 else 1
            expected = 2 * -(-steps // tile_t) + epsilon
            assert len(list(hexagonal(50, steps, 3, tile_t))) == expected


def test_tiles_cover_time_and_first_axis_once_each_point_after_its_inputs() -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        size, steps, tile_1 = (int(n) for n in rng.integers(1, 30, 3))
        tile_t = int(rng.integers(1, 10))
        covered_in_order(hexagonal(size, steps, tile_1, 2 * tile_t), size, steps)
        covered_in_order(skewed(size, steps, tile_1, tile_t), size, steps)
        subtile = int(rng.integers(1, 12))
        cut = (subdivided(own, subtile) for own in skewed(size, steps, tile_1, tile_t))
        covered_in_order(cut, size, steps)


def test_pieces_cover_an_inner_axis_once_at_every_row_after_their_neighbours() -> None:
    rng = np.random.default_rng(1)
    for size, tile, rows in rng.integers(1, 20, (200, 3)).tolist():
        lows, highs = pieces(size, tile, rows)
        owner = np.full((rows, size), -1)
        for piece, row in np.ndindex(*lows.shape):
            part = owner[row, lows[piece, row] : highs[piece, row]]
            assert (part == -1).all()
            part[:] = piece
        assert (owner >= 0).all()
        for row in range(1, rows):  # an input of a later piece would not be there yet
            for shift in (-1, 0, 1):
                near = np.clip(np.arange(size) + shift, 0, size - 1)
                assert (owner[row - 1, near] <= owner[row]).all()


def test_tiles_cover_two_and_three_axes_once_each_point_after_its_inputs() -> None:
    """Box by box in the order of the loops: tile, piece of each inner axis, row. A point's inputs
    are there before it, from an earlier wavefront or the same tile."""
    rng = np.random.default_rng(2)
    for name, count in (("j2d", 40), ("j3d", 25)):
        axes = STENCILS[name].dimensions
        for _ in range(count):
            sizes = rng.integers(1, 13 if axes == 2 else 8, axes).tolist()
            tiles = rng.integers(1, 9, axes).tolist()
            steps = int(rng.integers(1, 13))
            params = StencilParams(
                stencil=name,
                steps=steps,
                tiling="hexagonal",
                tile_t=2 * int(rng.integers(1, 5)),
                **{f"size_{axis + 1}": size for axis, size in enumerate(sizes)},
                **{f"tile_{axis + 1}": tile for axis, tile in enumerate(tiles)},
            )
            owner = np.full((steps + 1, *sizes, 2), -1)  # wavefront and tile
            for number, own in enumerate(wavefronts(params)):
                inner = inner_pieces(params, own.steps.shape[1])
                for tile in range(len(own.steps)):
                    for piece in np.ndindex(*(len(lows) for lows, _ in inner)):
                        for row, step in enumerate(own.steps[tile].tolist()):
                            box = [slice(own.lows[tile, row], own.highs[tile, row])]
                            for (lows, highs), part in zip(inner, piece, strict=True):
                                box.append(slice(lows[part, row], highs[part, row]))
                            if all(side.stop > side.start for side in box):
                                take(owner, step, box, (number, tile))
            assert (owner[1:] >= 0).all()


def take(owner: np.ndarray, step: int, box: list[slice], by: tuple[int, int]) -> None:
    """Let a tile have a box of points, none of which is taken, and all of whose inputs are."""
    assert (owner[(step, *box)] == -1).all()
    owner[(step, *box)] = by
    if step == 1:
        return
    for axis, side in enumerate(box):
        wide = list(box)
        wide[axis] = slice(max(side.start - 1, 0), side.stop + 1)
        inputs = owner[(step - 1, *wide)]
        same_tile = (inputs == by).all(axis=-1)
        assert ((inputs[..., 0] >= 0) & ((inputs[..., 0] < by[0]) | same_tile)).all()


def by_numpy(name: str, grid: np.ndarray, steps: int) -> np.ndarray:
    """The formulas once more, on whole arrays, rounded in the same order."""
    number = grid.dtype.type
    now = grid.copy()
    inside = (slice(1, -1),) * grid.ndim

    def near(axis: int, by: int) -> np.ndarray:
        return np.roll(now, -by, axis)[inside]

    for _ in range(steps):
        c, last = now[inside], grid.ndim - 1
        w, e = near(last, -1), near(last, 1)
        n, s = near(last - 1, -1), near(last - 1, 1)
        f, b = near(0, -1), near(0, 1)
        twice = number(2) * c
        match name:
            case "j1d":
                new = number(1 / 3) * (w + c + e)
            case "j2d":
                new = number(0.2) * (c + n + s + w + e)
            case "h2d":
                new = c + number(0.125) * (n - twice + s) + number(0.125) * (w - twice + e)
            case "l2d":
                new = number(0.5) * c + number(0.125) * ((n + s) + (w + e))
            case "g2d":
                squares = ((n - c) ** 2 + (s - c) ** 2) + ((w - c) ** 2 + (e - c) ** 2)
                new = number(0.25) + number(0.5) * c + number(0.0625) * squares
            case "j3d":
                new = number(1 / 7) * (c + ((f + b) + (n + s) + (w + e)))
            case "h3d":
                new = c + number(0.125) * (f - twice + b)
                new = new + number(0.125) * (n - twice + s) + number(0.125) * (w - twice + e)
            case "l3d":
                new = number(0.5) * c + number(1 / 12) * ((f + b) + (n + s) + (w + e))
        now[inside] = new
    return now


def drawn(rng: np.random.Generator, name: str) -> StencilParams:
    """A random variant of a random problem; tiles may be larger than the grid."""
    dimensions = STENCILS[name].dimensions
    sizes = rng.integers(1, MOST[dimensions] + 1, dimensions).tolist()
    tilings = ["untiled", "hexagonal", "skewed"][: 3 if dimensions == 1 else 2]
    tiling = str(rng.choice(tilings, p=[0.1, *[0.9 / (len(tilings) - 1)] * (len(tilings) - 1)]))
    own: dict[str, int] = {}
    if tiling != "untiled":
        half = int(rng.integers(1, 8))
        own = {"tile_t": 2 * half if tiling == "hexagonal" else half}
        tiles = rng.integers(1, int(1.3 * MOST[dimensions]), dimensions).tolist()
        own |= {f"tile_{axis + 1}": tile for axis, tile in enumerate(tiles)}
        if tiling == "skewed":
            own["subtile"] = int(rng.integers(0, 9))
    return StencilParams(
        stencil=name,
        **{f"size_{axis + 1}": size for axis, size in enumerate(sizes)},
        steps=int(rng.integers(1, 14)),
        precision=str(rng.choice(["single", "double"])),
        tiling=tiling,
        threads=int(rng.integers(1, 3)),
        **own,
    )


def counted_run(params: StencilParams) -> dict[str, float]:
    """What the loops do, counted as they would run, tile by tile and piece by piece."""
    name = STENCILS[params.stencil]
    item = 4 if params.precision == "single" else 8
    inner = int(np.prod(params.sizes[1:]))
    count: Counter[str] = Counter()
    kind = params.precision.replace("single", "sp").replace("double", "dp")
    for wavefront in wavefronts(params):
        count["launch"] += 1
        for tile in range(len(wavefront.steps)):
            own = set(points_of(wavefront, tile))
            count["dram"] += sum(moved(own, params.size_1, params.steps)) * inner * item
        run = subdivided(wavefront, params.subtile) if params.subtile else wavefront
        sides = [(np.zeros((1, run.steps.shape[1])), np.ones((1, run.steps.shape[1])))] * 2
        sides = [*inner_pieces(params, run.steps.shape[1]), *sides][:2]
        for tile, two, three in np.ndindex(len(run.steps), len(sides[0][0]), len(sides[1][0])):
            rows = 0
            for row in range(run.steps.shape[1]):
                wide = int(run.lengths[tile, row])
                deep, inmost = (
                    int(highs[at, row] - lows[at, row])
                    for at, (lows, highs) in zip((two, three), sides, strict=True)
                )
                points = wide * deep * inmost
                rows += points > 0
                count[f"{kind}_add"] += points * name.additions
                count[f"{kind}_mul"] += points * name.multiplications
                count["l1"] += points * (name.loads + 1) * item
                if points:
                    starts = {1: 1, 2: wide, 3: wide * deep}[params.dimensions]
                    count["loops"] += starts
            count["barrier"] += rows + 2 * (rows > 0)
            count["tiles"] += rows > 0
    return dict(count)


def variants(count: int, seed: int) -> Iterator[StencilParams]:
    """``count`` random variants, of all stencils in turn."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        yield drawn(rng, list(STENCILS)[number % len(STENCILS)])


def same_as_untiled(params: StencilParams, seed: int) -> None:
    """Bit for bit, tiled, untiled and by NumPy; after two iterations."""
    rng = np.random.default_rng(seed)
    prepared = PreparedStencil(params, seed)
    begin = prepared.grid.copy()
    prepared.run(1)
    right = plain_steps(params.stencil, np.stack([begin] * 2), params.steps)
    assert np.array_equal(prepared.grid, right)
    assert np.array_equal(by_numpy(params.stencil, begin, params.steps), right)
    assert 0 <= right.min() <= right.max() <= 1
    if rng.random() < 0.2:
        prepared.check()


def same_counts(params: StencilParams) -> None:
    counts = count_stencil(params) | stencil_metrics(params)
    del counts["tile_bytes"]
    expected = counted_run(params)
    assert counts == expected


def test_random_variants_equal_untiled_bit_for_bit_and_count_as_they_run() -> None:
    for seed, params in enumerate(variants(160, seed=0)):
        same_as_untiled(params, seed)
        same_counts(params)


def table(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The recurrence, cell by cell."""
    h = np.zeros((len(second) + 1, len(first) + 1), int)
    for t, i in np.ndindex(len(second), len(first)):
        score = MATCH if first[i] == second[t] else MISMATCH
        h[t + 1, i + 1] = max(0, h[t, i] + score, h[t, i + 1] + GAP, h[t + 1, i] + GAP)
    return h


def same_as_table(rng: np.random.Generator) -> None:
    size, steps = rng.integers(0, 25, 2).tolist()
    first, second = (rng.integers(0, 4, n, np.int32) for n in (size, steps))
    h = table(first, second)
    tile_1, tile_t, subtile, threads = (int(n) for n in rng.integers([1, 1, 0, 1], [30, 30, 12, 3]))
    tiled = {"tiling": "orthogonal", "tile_1": tile_1, "tile_t": tile_t, "subtile": subtile}
    for own in ({}, tiled):
        params = StencilParams(stencil="sw", size_1=size or 1, steps=steps or 1, **own)
        workers = WorkerThreads(threads)
        with workers.awake():
            row, column, best = align(first, second, params, workers)
        assert np.array_equal(row, h[-1, 1:])
        assert np.array_equal(column, h[1:, -1])
        assert best == h.max()


def test_sw_equals_a_plain_table_of_random_pairs() -> None:
    rng = np.random.default_rng(0)
    for _ in range(150):
        same_as_table(rng)


def test_sw_counts_its_cells_borders_and_diagonals() -> None:
    """A table of 10 by 7 in tiles of 4 by 3, two rows together: 3 x 3 tiles."""
    params = StencilParams(
        stencil="sw", size_1=10, steps=7, tiling="orthogonal", tile_1=4, tile_t=3, subtile=2
    )
    diagonals = words = 0
    for wide in (4, 4, 2):
        for high in (3, 3, 1):
            words += 3 * (wide + high) + 1
            parts = [min(2, high - begin) for begin in range(0, high, 2)]
            diagonals += sum(wide + part - 1 for part in parts)
    assert count_stencil(params) == {
        "int_add": 70 * 3,
        "int_max": 70 * 4,
        "l1": 70 * 8 * 4,
        "dram": words * 4,
        "barrier": diagonals + 2 * 9,
        "launch": 5,
    }
    assert stencil_metrics(params)["loops"] == diagonals


def test_sw_counts_of_random_tiles_are_sums_over_tiles() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        size, steps, tile_1, tile_t = rng.integers(1, 60, 4).tolist()
        subtile = int(rng.integers(0, 20))
        params = StencilParams(
            stencil="sw", size_1=size, steps=steps, tiling="orthogonal", tile_1=tile_1,
            tile_t=tile_t, subtile=subtile,
        )  # fmt: skip
        diagonals = words = tiles = 0
        for i in range(0, size, tile_1):
            for t in range(0, steps, tile_t):
                wide, high = min(tile_1, size - i), min(tile_t, steps - t)
                words += 3 * (wide + high) + 1
                tiles += 1
                together = min(subtile or tile_t, high)
                for begin in range(0, high, subtile or tile_t):
                    diagonals += wide + min(together, high - begin) - 1
        counts = count_stencil(params)
        assert counts["dram"] == words * 4
        assert counts["barrier"] == diagonals + 2 * tiles
        assert counts["int_max"] == size * steps * 4
        assert counts["launch"] == -(-size // tile_1) + -(-steps // tile_t) - 1


def test_a_wrong_value_in_the_checked_region_is_found() -> None:
    params = StencilParams(stencil="j2d", size_1=4, size_2=4, steps=1)
    prepared = stencil.prepare(params, Team())
    prepared.check()
    run = prepared.run

    def spoiled(iterations: int) -> None:
        run(iterations)
        prepared.grid[2, 2] += np.float32(1e-6)

    prepared.run = spoiled
    with pytest.raises(ResultError, match="j2d: another result than untiled"):
        prepared.check()


WRONG = [
    (
        {"stencil": "j2d", "size_1": 8},
        "size_2: 0 or missing, and stencil j2d needs it; give 1 or more",
    ),
    (
        {"stencil": "j1d", "size_2": 8},
        "size_2: stencil j1d has no axis 2; leave out size_2 and tile_2",
    ),
    ({"stencil": "j1d", "steps": 0}, "greater than or equal to 1"),
    ({"stencil": "j1d", "size_1": 0}, "greater than or equal to 1"),
    (
        {"stencil": "j1d", "tiling": "hexagonal", "tile_t": 3, "tile_1": 4},
        "tile_t: found 3; with hexagonal tiling it must be even, such as 2 or 4",
    ),
    (
        {"stencil": "j1d", "tiling": "hexagonal", "tile_t": 4},
        "tile_1: 0 or missing, and tiling 'hexagonal' needs it; give 1",
    ),
    (
        {"stencil": "j1d", "tiling": "orthogonal", "tile_t": 4, "tile_1": 4},
        "tiling: found 'orthogonal', which stencil j1d does not have; use untiled or hexagonal or "
        "skewed",
    ),
    ({"stencil": "sw", "tiling": "hexagonal", "tile_t": 4, "tile_1": 4}, "untiled or orthogonal"),
    (
        {"stencil": "sw", "precision": "double"},
        "precision: found 'double', and stencil sw has 32-bit integers",
    ),
    ({"stencil": "j1d", "tile_t": 4}, "tile_t: found 4, and tiling is 'untiled'; leave it out"),
    (
        {"stencil": "j1d", "tiling": "hexagonal", "tile_t": 4, "tile_1": 4, "subtile": 2},
        "subtile: found 2, and hexagons have none; leave it out",
    ),
    ({"stencil": "j3d", "size_2": 1 << 20, "size_3": 1 << 20}, "make a size smaller"),
]


@pytest.mark.parametrize(("own", "message"), WRONG)
def test_wrong_parameters_get_one_clear_message(own: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StencilParams(**({"size_1": 8, "steps": 4} | own))
