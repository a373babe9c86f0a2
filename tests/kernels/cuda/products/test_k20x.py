"""The GPU's matrix product: what it counts, and what the simulated Tesla K20X makes of it."""

from __future__ import annotations

import csv
import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from campaign.plan.plan import Plan, make_plan
from dvfs.setting import Setting
from kernels.cuda.processor import TESLA_K20X
from kernels.cuda.products.k20x import (
    LATENCY_CYCLES,
    LINE_CYCLES,
    CudaDgemmParams,
    count_tiles,
    launch_metrics,
)
from sites.simulated.machine import constant_w, iteration_s
from sites.site_reading import BUILT_IN_SITES, read_site
from tests.commands import refuses

ROOT = Path(__file__).parents[4]
DEFAULT = Setting(732.0, 2600.0)
SITE = read_site(ROOT / BUILT_IN_SITES / "tesla-k20x.toml")
N = 4096


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(ROOT / "examples/k20x-dgemm.toml")


@pytest.fixture(scope="module")
def table_2() -> list[dict[str, float]]:
    """Table II of Anzt et al. 2015."""
    with (ROOT / "tests/data/anzt2015/table-2.csv").open() as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return [{k: float(v) for k, v in row.items() if k != "arc"} for row in rows]


def variant(row: dict[str, float], **changed: int) -> CudaDgemmParams:
    own = {name: int(row[name]) for name in CudaDgemmParams.model_fields if name in row}
    return CudaDgemmParams(**{"n": N} | own | changed)


def simulated(params: CudaDgemmParams) -> tuple[float, float]:
    """s and J of one product at the board's default clocks, without noise."""
    counts = count_tiles(params)
    time_s = iteration_s(SITE, counts, DEFAULT)
    (core_v, mem_v), pj = SITE.volts(DEFAULT), SITE.simulated.energy_pj_per_v2
    dynamic_j = sum(
        n * 1e-12 * pj[name] * (mem_v if name == "dram" else core_v) ** 2
        for name, n in counts.items()
    )
    return time_s, dynamic_j + constant_w(SITE, DEFAULT) * time_s


def test_the_example_has_the_kernels_of_table_2(plan, table_2) -> None:
    variants = {tuple(json.loads(text).items()) for text in plan.spaces[0].params}
    assert len(variants) == 1446
    assert len(table_2) == 14
    for row in table_2:
        assert tuple(sorted(variant(row).model_dump().items())) in variants
    assert plan.sites["tesla-k20x"].is_simulated


def test_the_simulated_board_is_near_table_2(table_2) -> None:
    flops = 2.0 * N**3
    for row in table_2:
        time_s, energy_j = simulated(variant(row))
        assert flops / time_s / 1e9 == pytest.approx(row["gflops"], rel=0.1)
        assert flops / energy_j / 1e9 == pytest.approx(row["gflops_per_w"], rel=0.04)


def test_variants_spread_as_in_the_paper(plan) -> None:
    """Section 3.1: the mean rate is 567 GFLOP/s; section 3.6: four occupancies, and the kernels of
    low occupancy cost the least energy. The board's limit is 235 W."""
    variants = [CudaDgemmParams.model_validate_json(text) for text in plan.spaces[0].params]
    time_s, energy_j = np.array([simulated(params) for params in variants]).T
    assert (2.0 * N**3 / time_s / 1e9).mean() == pytest.approx(567, rel=0.05)
    assert (energy_j / time_s).max() < 235
    occupancy = np.array([launch_metrics(params)["occupancy"] for params in variants])
    levels = np.unique(occupancy)
    assert levels.tolist() == [0.125, 0.25, 0.375, 0.5]
    mean_j = [energy_j[occupancy == level].mean() for level in levels]
    assert max(mean_j[:2]) < min(mean_j[2:])
    # The fastest is not the one that costs least.
    assert time_s[energy_j.argmin()] > 1.05 * time_s.min()


@pytest.mark.parametrize("simd", [0, 1])
def test_requests_touch_the_lines_that_threads_touch(simd: int) -> None:
    """One block, one step, in which nothing overlaps: stalls are the waiting of that step."""
    shared = {"dim_m": 16, "dim_n": 16, "blk_m": 128, "blk_n": 128, "blk_k": 8, "n": 128}
    waits = {}
    for m_a, m_b in product((32, 64), (2, 4)):
        params = CudaDgemmParams(
            **shared, m_a=m_a, n_a=256 // m_a, m_b=m_b, n_b=256 // m_b, simd=simd
        )
        counts = count_tiles(params)
        lines = sum(
            len({(n, m // 16) for m, n in request})
            for rows, shape, columns in ((128, m_a, 8), (8, m_b, 128))
            for request in requests(rows, columns, shape, 1 + simd)
        )
        waits[m_a, m_b] = counts["stall"], lines
    (_, fewest), (_, most) = min(waits.values()), max(waits.values())
    assert fewest < most
    cycles = {stall - LINE_CYCLES * 14 * 16 * lines for stall, lines in waits.values()}
    assert max(cycles) - min(cycles) < 1e-3 * LATENCY_CYCLES


def requests(rows: int, columns: int, m: int, numbers: int):
    """The (row, column) that each warp's request loads of a stripe stored by columns, where m x n
    threads go along it and each takes ``numbers`` rows at a time."""
    n = 256 // m
    for row, column, warp in product(
        range(0, rows, m * numbers), range(0, columns, n), range(256 // 32)
    ):
        threads = range(32 * warp, 32 * warp + 32)
        yield [
            (row + t % m * numbers + i, column + t // m) for t in threads for i in range(numbers)
        ]


def test_bytes_are_those_that_blocks_load() -> None:
    """n that no tile divides, against loops over blocks and steps."""
    params = CudaDgemmParams(n=200)
    counts = count_tiles(params)
    requested = shared = 0
    for _ in product(range(0, 200, 64), range(0, 200, 96)):
        for _ in range(0, 200, 16):
            requested += 8 * (64 * 16 + 16 * 96)
            shared += 8 * (64 * 16 + 16 * 96)
            shared += sum(8 * (4 + 6) for _ in product(range(256), range(16)))
    assert counts["dp"] == 2 * 200**3
    assert counts["shared"] == shared
    assert counts["l2"] + counts["dram"] == requested + 16 * 200**2
    assert launch_metrics(params) == {"registers": 112, "shared_bytes": 20480, "occupancy": 0.25}


def test_stalls_are_added_to_the_time() -> None:
    busy = {"dp": 1e12, "shared": 1e12}
    longer_s = iteration_s(SITE, busy | {"stall": 14 * 732e6}, DEFAULT)
    assert longer_s - iteration_s(SITE, busy, DEFAULT) == pytest.approx(1.0)


REFUSED = [
    ({"dim_m": 48}, "m_a n_a = 256, and a block has 768 threads"),
    ({"dim_m": 15}, "240 threads in a block; use a multiple of 32"),
    ({"dim_m": 1024}, "16384 threads in a block"),
    ({"blk_m": 72}, "blk_m: found 72, not a multiple of dim_m, 16"),
    ({"blk_k": 24}, "blk_k: found 24, not a multiple of m_b, 16"),
    ({"simd": 1}, "blk_m: found 64, not a multiple of 2 m_a, 128"),
    ({"blk_k": 64}, "81920 bytes of shared memory in a block, and there are 49152"),
]


@pytest.mark.parametrize(("changed", "message"), REFUSED)
def test_a_variant_that_cannot_run_is_refused(changed: dict[str, int], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        CudaDgemmParams(**{"n": N} | changed)


def test_it_is_refused_where_nothing_is_simulated(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        'name = "c"\n[[sites]]\nsite = "localhost"\n'
        '[[kernels]]\nkernel = "cuda_dgemm"\nparams = { n = 64 }\n'
    )
    message = refuses("plan", path)
    assert "c.toml:5" in message
    assert "cuda_dgemm is counted only: there is no program that localhost could run" in message


def test_products_smaller_than_a_tile_are_counted() -> None:
    for n in (1, 15, 17):
        counts = count_tiles(CudaDgemmParams(n=n))
        assert min(counts.values()) >= 0
        assert counts["stall"] < 100 * TESLA_K20X.processors * (LATENCY_CYCLES + 2500)
