"""gpu_chase without a GPU: its machine code counted, its hops compiled for the host."""

from __future__ import annotations

import ctypes
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from kernels.cuda.microbench.chase import (
    CHASE,
    HOPS,
    HOPS_PER_TRIP,
    L1_CHAINS,
    LINE_BYTES,
    NEAR_LINES,
    PLACE,
    GpuChaseParams,
    chain_lines,
    chase_source,
    count_hops,
    expected,
    random_orders,
)
from tests.kernels.cuda.on_host import ARCHITECTURES, compiled_together, host_library

LEVELS = ("shared", "l1", "l2", "dram")
BYTES = {"shared": 4, "l1": 4, "l2": 32, "dram": 32}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_machine_code_executes_what_is_counted(architecture: str, tmp_path: Path) -> None:
    """The loads of the loop of hops, each of 4 bytes that wait for the one before."""
    sets = [GpuChaseParams(level=level, chains=3) for level in LEVELS]
    functions = [(chase_source(params), CHASE) for params in sets]
    code = compiled_together(functions, architecture, tmp_path)
    for level, params, (function, use) in zip(LEVELS, sets, code, strict=True):
        assert use.spilled_bytes == 0
        assert use.shared_bytes == NEAR_LINES * LINE_BYTES * (level == "shared")
        loop = function.loops[-1]
        executed = Counter(one.name for one in function.instructions if loop.holds(one.at))
        loads = {name: n for name, n in executed.items() if name.startswith(("LDS", "LDG"))}
        (name,) = loads
        assert name == {"shared": "LDS", "l1": "LDG.E.STRONG.SM"}.get(level, "LDG.E.STRONG.GPU")
        assert HOPS[level] % HOPS_PER_TRIP == 0
        hops = loads[name] * (HOPS[level] // HOPS_PER_TRIP) * params.chains
        assert count_hops(params) == {level: float(hops * BYTES[level])}


@pytest.mark.parametrize(("level", "lines"), [("shared", NEAR_LINES), ("l1", 63), ("dram", 1001)])
def test_the_chains_end_where_numpy_says(host_folder: Path, level: str, lines: int) -> None:
    chains, trips = 3, 70
    source = chase_source(GpuChaseParams(level=level, chains=chains))
    library = host_library(source, "chase_host.cpp", host_folder)
    orders = random_orders(chains, lines, 4)
    links = np.full((chains, lines, LINE_BYTES // 4), 0xFFFF_FFFF, PLACE)
    places = expected(orders, 0)
    library.link_on_host(
        ctypes.c_void_p(links.ctypes.data), ctypes.c_void_p(orders.ctypes.data),
        ctypes.c_int(lines), ctypes.c_int(chains),
    )  # fmt: skip
    # Along the links, every line is visited once before the first one comes again.
    for chain in range(chains):
        place, seen = 0, set()
        while place not in seen:
            seen.add(place)
            place = int(links[chain, place // LINE_BYTES, 0])
        assert place == 0
        assert len(seen) == lines
    for run in (1, 2):
        library.on_host(
            ctypes.c_void_p(places.ctypes.data), ctypes.c_void_p(links.ctypes.data),
            ctypes.c_int(lines), ctypes.c_int(chains), ctypes.c_longlong(trips),
        )  # fmt: skip
        assert (places == expected(orders, run * trips * HOPS_PER_TRIP)).all()
        assert (places != expected(orders, 0)).any()


def test_chains_fill_their_level_and_never_end_where_they_began() -> None:
    l2 = 50 << 20
    for level in LEVELS:
        for chains in (1, 7, 512):
            lines = chain_lines(GpuChaseParams(level=level, chains=chains), l2)
            total = lines * LINE_BYTES * chains
            assert lines % 2 == 1
            assert HOPS[level] % lines != 0
            if level == "l2":
                assert 0.95 * l2 / 4 < total <= l2 / 4
            elif level == "dram":
                assert 0.99 * (1 << 30) < total <= 1 << 30
            else:
                assert total == chains * 63 * 128
    assert L1_CHAINS * NEAR_LINES * LINE_BYTES < 64 << 10
    assert chain_lines(GpuChaseParams(level="l2", chains=1000), 4 << 20) < NEAR_LINES


def test_orders_are_random_permutations() -> None:
    orders = random_orders(3, 501, 7)
    assert (np.sort(orders, axis=1) == np.arange(501)).all()
    assert (orders != random_orders(3, 501, 8)).mean() > 0.9
    assert (orders[0] != orders[1]).mean() > 0.9
    assert (np.abs(np.diff(orders.astype(int), axis=1)) == 1).mean() < 0.05


def test_wrong_parameters_are_refused() -> None:
    with pytest.raises(ValidationError, match="chains"):
        GpuChaseParams(level="l2", chains=0)
    with pytest.raises(ValidationError, match="level"):
        GpuChaseParams(level="l3")
