"""Printed costs of tiled stencils, beside tables computed apart and the kernel's geometry."""

from __future__ import annotations

import csv
import time
from math import ceil
from pathlib import Path

import numpy as np
import pytest

from analysis.costs.stencil_time import (
    Machine,
    PredictionError,
    fits,
    near_least,
    overhead_s,
    stencil_time,
    tile_bytes,
)
from analysis.costs.tile_energy import stencil_energy_j, tile_count, tile_energy_j, tile_points
from kernels.stencils.shapes import hexagonal

DATA = Path(__file__).parents[1] / "data" / "prajapati2019"
GIGABYTES_PER_WORD = 4e-9


def rows(name: str) -> list[dict[str, str]]:
    with (DATA / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def machine_of(gpu: str) -> Machine:
    """Tables A.2 and A.3."""
    sizes = {row["parameter"]: row[gpu] for row in rows("tableA2_gpu_config")}
    seconds = {row["parameter"]: float(row[gpu]) for row in rows("tableA3_microbenchmarks")}
    return Machine(
        processors=int(sizes["nSM"]),
        lanes=int(sizes["nV"]),
        on_chip_bytes=float(sizes["MSM"]) * 1024,
        block_bytes=48 * 1024,
        blocks=int(sizes["MTBSM"]),
        seconds_per_word=seconds["L"] * GIGABYTES_PER_WORD,
        barrier_s=seconds["tau_sync"],
        launch_s=seconds["T_sync"],
    )


@pytest.mark.parametrize("row", rows("derived_timemodel_reference"), ids=lambda row: row["stencil"])
def test_the_printed_time_is_that_of_a_table_computed_apart(row: dict[str, str]) -> None:
    machine = machine_of(row["machine"])
    column = f"{row['machine']}_s_per_iteration_per_vector_unit"
    of_point = {own["benchmark"]: float(own[column]) for own in rows("tableA4_citer")}
    iteration_s = of_point[row["stencil"]]
    size, steps = float(row["S1=S2"]), float(row["T"])
    tiles, tile_t, k = [float(row["tS1"]), float(row["tS2"])], float(row["tT"]), float(row["k"])
    given = (machine, iteration_s, [size, size], steps, tiles, tile_t, k)
    printed, corrected = stencil_time(*given, "printed"), stencil_time(*given)
    assert printed.wavefronts == float(row["Nw"])
    assert printed.tiles == float(row["w_A6"])
    assert corrected.tiles == float(row["w_exact_pitch"])
    assert tile_bytes(tiles, tile_t) == float(row["Mtile_bytes"])
    assert fits(machine, tiles, tile_t, k)
    assert printed.transfer_s == pytest.approx(float(row["m_prime_s"]), rel=1e-8)
    assert printed.compute_s == pytest.approx(float(row["c_s"]), rel=1e-8)
    assert printed.time_s == pytest.approx(float(row["Talg_literal_s"]), rel=1e-8)


def plain_time_s(machine, iteration_s, sizes, steps, tiles, tile_t, k, form):
    """The equations once more, number by number."""
    axes, wide = len(sizes), tiles[0]
    pitch = 2 * wide + tile_t - 2
    if form == "printed":
        pitch = wide + tile_t if axes == 3 else 2 * wide + tile_t
    across = ceil(sizes[0] / pitch)
    inner, sub = 1, 1.0
    for size, tile in zip(sizes[1:], tiles[1:], strict=True):
        inner *= tile
        sub *= (size + tile_t) / tile
    sub = ceil(sub)
    m_io = 2 * inner * (wide + 2 * tile_t)
    m = m_io * machine.seconds_per_word + 2 * machine.barrier_s
    c = tile_t * machine.barrier_s
    for points in range(wide, wide + tile_t - 1, 2):
        c += 2 * iteration_s * ceil(points * inner / machine.lanes)
    if axes == 1:
        of_k = m + c + (k - 1) * max(m, c)
    else:
        of_k = (m + c) * sub if k == 1 else m + k * max(m, c) * sub
    wavefront = of_k * ceil(ceil(across / k) / machine.processors)
    if form == "corrected":
        wavefront = max(wavefront, across * sub * m_io * machine.seconds_per_word)
    return 2 * ceil(steps / tile_t) * (wavefront + machine.launch_s)


@pytest.mark.parametrize("form", ["printed", "corrected"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_both_forms_equal_plain_numbers_in_arrays_of_any_shape(axes: int, form: str) -> None:
    machine = machine_of("GTX980")
    rng = np.random.default_rng(axes)
    sizes, tiles = rng.integers(1, 5000, (40, axes)), rng.integers(1, 200, (40, axes))
    steps, high, k = rng.integers(1, 900, 40), 2 * rng.integers(1, 30, 40), rng.integers(1, 9, 40)
    got = stencil_time(machine, 3e-8, sizes, steps, tiles, high, k, form).time_s
    of_rows = zip(
        sizes.tolist(), steps.tolist(), tiles.tolist(), high.tolist(), k.tolist(), strict=True
    )
    expected = [plain_time_s(machine, 3e-8, *row, form) for row in of_rows]
    assert got == pytest.approx(expected, rel=1e-12)
    square = stencil_time(machine, 3e-8, sizes[:, None], 64, tiles[None], high, 2, form).time_s
    assert square.shape == (40, 40)
    assert (
        square[3, 5] == stencil_time(machine, 3e-8, sizes[3], 64, tiles[5], high[5], 2, form).time_s
    )


def test_the_corrected_form_never_beats_the_memory_and_loses_no_work() -> None:
    """With one lane, one processor and no transfers, it is at least the time of all points."""
    free = Machine(
        processors=1,
        lanes=1,
        on_chip_bytes=1e9,
        block_bytes=1e9,
        blocks=1,
        seconds_per_word=0.0,
        barrier_s=0.0,
        launch_s=0.0,
    )
    rng = np.random.default_rng(0)
    tiles, high = rng.integers(1, 40, (200, 2)), 2 * rng.integers(1, 16, 200)
    ideal = 512 * 512 * 64  # one point after the other (8.3)
    assert (stencil_time(free, 1.0, [512, 512], 64, tiles, high).time_s >= ideal).all()
    assert stencil_time(free, 1.0, [512, 512], 64, [1, 32], 2, form="printed").time_s < 0.7 * ideal


def test_overhead_has_the_factor_that_the_printed_one_lacks() -> None:
    machine = machine_of("GTX980")
    given = (machine, 3e-8, [4096, 2048], 100, [8, 64], 16)
    assert overhead_s(*given, "printed") == pytest.approx(3e-8 * 4096 * 100 / 16)
    assert overhead_s(*given) == pytest.approx(overhead_s(*given, "printed") * 2048 / (64 * 16))


ENERGY_COLUMNS = {"A": "microbenchmark_model_A", "B": "regression_model_B"}
ENERGY_NAMES = {
    "egs": "dram",
    "esr": "shared",
    "ef_add": "sp_add",
    "ef_multiply": "sp_mul",
    "ei_add": "int_add",
    "ei_max": "int_max",
}


def energies_of(model: str) -> dict[str, float]:
    """Table B.2."""
    table = rows("tableB2_energy_parameters")
    return {
        ENERGY_NAMES[row["parameter"]]: float(row[ENERGY_COLUMNS[model]])
        for row in table
        if row["parameter"] in ENERGY_NAMES
    }


@pytest.mark.parametrize("row", rows("derived_energy_reference"), ids=lambda row: row["stencil"])
def test_the_energy_of_a_tile_is_that_of_a_table_computed_apart(row: dict[str, str]) -> None:
    numbers = {
        name: float(value) for name, value in (part.split("=") for part in row["tile"].split(";"))
    }
    first = numbers.get("tS", numbers.get("tS1"))
    tiles = [first, numbers["tS2"]] if "tS2" in numbers else [first]
    got = tile_energy_j(
        row["stencil"].lower(),
        energies_of(row["model"]),
        tiles,
        numbers["tT"],
        numbers.get("sS", 1),
    )
    assert got == pytest.approx(float(row["Etile_J"]), rel=1e-8)


def test_tiles_times_their_points_are_all_points_of_the_skewed_grid() -> None:
    """N_tile V_tile = S1 T (S2 + tT); and a tile's points are those of the kernel's hexagons."""
    for tile_1, tile_t in ((1, 2), (8, 16), (13, 6), (40, 24)):
        tiles = [tile_1, 32]
        count = tile_count("j2d", [4096, 1000], 512, tiles, tile_t)
        points = tile_points("j2d", tiles, tile_t)
        assert count * points == pytest.approx(4096 * 512 * (1000 + tile_t))
        wavefront = list(hexagonal(10_000, 4 * tile_t, tile_1, tile_t))[3]
        assert wavefront.lengths[3].sum() * 32 == points


def test_static_energy_is_added() -> None:
    energies = energies_of("A")
    dynamic = tile_energy_j("sw", energies, [128], 128, 8) * tile_count(
        "sw", [1024], 512, [128], 128
    )
    total = stencil_energy_j("sw", energies, 48.0, 2.0, [1024], 512, [128], 128, 8)
    assert total == pytest.approx(96.0 + dynamic)


def test_those_near_the_least_come_in_order() -> None:
    assert near_least([3.0, 1.0, np.nan, 1.1, 1.05, 1.2]).tolist() == [1, 4, 3]
    assert near_least([np.nan, np.nan]).tolist() == []


def test_18_000_tiles_of_10_sizes_take_half_a_second() -> None:
    """The processor's time: other work on the machine does not count."""
    rng = np.random.default_rng(0)
    tiles, high = rng.integers(1, 200, (18_000, 2)), 2 * rng.integers(1, 33, 18_000)
    sizes = np.linspace(1024, 8192, 10).round()[:, None, None] * np.ones(2)
    began = time.process_time()
    got = stencil_time(machine_of("GTX980"), 3e-8, sizes, 1024, tiles, high, 2).time_s
    assert time.process_time() - began < 0.5
    assert got.shape == (10, 18_000)


WRONG = [
    ({"tile_t": 3}, "tile_t: found 3, and hexagons need an even one"),
    ({"sizes": [0, 64]}, "sizes: found 0, and each must be at least 1"),
    ({"steps": 0}, "steps: found 0"),
    ({"tiles": [8, 0.5]}, "tiles: found 0.5"),
]


@pytest.mark.parametrize(("own", "message"), WRONG)
def test_what_cannot_be_predicted_is_refused(own: dict[str, object], message: str) -> None:
    given = {"sizes": [64, 64], "steps": 8, "tiles": [8, 32], "tile_t": 4} | own
    with pytest.raises(PredictionError, match=message):
        stencil_time(machine_of("GTX980"), 3e-8, **given)


def test_a_tile_that_is_too_large_does_not_fit_and_unknown_stencils_have_no_energy() -> None:
    machine = machine_of("GTX980")
    assert fits(machine, [[8, 64], [200, 256]], 16).tolist() == [True, False]
    assert not fits(machine, [8, 64], 16, k=7)
    assert fits(machine, [8, 8], 2, k=[machine.blocks, machine.blocks + 1]).tolist() == [
        True,
        False,
    ]
    with pytest.raises(PredictionError, match="no energy model for stencil 'h3d'"):
        tile_energy_j("h3d", energies_of("A"), [8, 32], 16)
    with pytest.raises(PredictionError, match="energies: int_add is missing; sw needs it"):
        tile_energy_j("sw", {"dram": 1.0, "shared": 1.0}, [8], 16)
