"""``predict --space`` without a store: tiles on a device by its constants and printed equations."""

from __future__ import annotations

import json
import tomllib
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from analysis.costs.stencil_time import Machine, stencil_time_s
from campaign.verbs.command_line import main
from kernels.cuda.stencils.counted import count_tiles
from kernels.stencils.counts import count_stencil
from kernels.stencils.params import StencilParams

ROOT = Path(__file__).parents[2]
SPACE = """
name = "tiles"
[[sites]]
site = "gtx-980"
[[kernels]]
kernel = "cuda_stencil"
params = { stencil = "g2d", size_1 = 2048, size_2 = 2048, steps = 512, tiling = "hexagonal" }
[kernels.space]
tile_t = [4, 8, 16]
tile_1 = [4, 16]
tile_2 = [32, 96, 128]
"""
TABLES = {  # Prajapati 2019, Tables A.2 to A.4; Table A.3's L is of 10^9 bytes
    "gtx-980": (16, 7.36e-3, 7.96e-10, 9.24e-7, {"j2d": 3.39e-8, "g2d": 6.09e-8, "h3d": 1.55e-7}),
    "titan-x": (24, 5.42e-3, 6.74e-10, 9.00e-7, {"j2d": 3.83e-8, "g2d": 7.60e-8, "h3d": 1.64e-7}),
}


def refusal(capsys, *words):
    assert main([*map(str, words)]) == 2
    text = capsys.readouterr().err
    assert "Traceback" not in text
    return text


@pytest.mark.parametrize("site", TABLES)
def test_the_constants_are_those_of_the_tables(site):
    device = tomllib.loads((ROOT / f"sites/builtin/{site}.toml").read_text())["device"]
    processors, per_gb_s, barrier_s, launch_s, points = TABLES[site]
    assert device["processors"] == processors
    assert (device["lanes"], device["blocks"], device["on_chip_bytes"]) == (128, 32, 96 * 1024)
    assert device["word_s"] == pytest.approx(4 * per_gb_s / 1e9)
    assert (device["barrier_s"], device["launch_s"]) == (barrier_s, launch_s)
    assert {name: device[f"{name}_s"] for name in points} == points


@pytest.mark.parametrize("site", TABLES)
def test_the_pick_is_the_least_over_all_tiles_and_tiles_at_a_time(site, tmp_path, capsys):
    file = tmp_path / "c.toml"
    file.write_text(SPACE)
    assert main(["predict", "--site", site, "--space", str(file), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["site"], shown["objective"], shown["fit"]) == (site, "time", None)
    (pick,) = shown["picks"]
    processors, per_gb_s, barrier_s, launch_s, points = TABLES[site]
    machine = Machine(
        processors=processors, lanes=128, on_chip_bytes=98304, block_bytes=49152, blocks=32,
        seconds_per_word=4 * per_gb_s / 1e9, barrier_s=barrier_s, launch_s=launch_s,
    )  # fmt: skip
    times = {}
    for high, wide, deep in product((4, 8, 16), (4, 16), (32, 96, 128)):
        store = 8 * (wide + high + 1) * (deep + high + 1)
        for at_a_time in (1, 2, 4, 8, 16, 32):
            if store <= 49152 and store * at_a_time <= 98304:
                time_s = stencil_time_s(
                    machine, points["g2d"], [2048, 2048], 512, [wide, deep], high, at_a_time
                )
                times[high, wide, deep, at_a_time] = float(time_s)
    best = min(times, key=times.__getitem__)
    names = ("tile_t", "tile_1", "tile_2", "tiles_at_a_time")
    assert tuple(pick["params"][name] for name in names) == best
    assert pick["time_s"] == pytest.approx(times[best], rel=1e-12)
    of_tile = {}
    for tile, time_s in times.items():
        of_tile[tile[:3]] = min(time_s, of_tile.get(tile[:3], np.inf))
    assert pick["near_count"] == sum(t <= 1.1 * times[best] for t in of_tile.values())
    assert main(["predict", "--site", site, "--space", str(file)]) == 0
    assert "nothing was measured" in capsys.readouterr().out


def test_a_gpu_counts_what_the_host_counts_with_shared_memory_in_place_of_the_cache():
    params = StencilParams(
        stencil="h2d", size_1=40, size_2=50, steps=9, tiling="hexagonal", tile_t=4, tile_1=3,
        tile_2=20,
    )  # fmt: skip
    host, device = count_stencil(params), count_tiles(params)
    assert device.pop("shared") == host.pop("l1")
    assert device == host


@pytest.mark.parametrize(
    ("old", "new", "site", "text"),
    [
        ("tile_t = [4, 8, 16]", "tile_t = [3]", "gtx-980", "kernels[0].space.tile_t: found 3; "
         "with hexagonal tiling it must be even, such as 2 or 4"),
        ("[32, 96, 128]", "[40000]", "gtx-980", "no tile of the space fits into 49152 bytes"),
        ("size_1 = 2048", "size_1 = 0", "gtx-980", "sizes: found 0"),
        ('"g2d"', '"j1d"', "gtx-980", "has no device.j1d_s"),
        ("tile_2 = [32, 96, 128]", "", "gtx-980", "tile_2 is missing"),
        ('"hexagonal"', '"untiled"', "gtx-980", "the equations are for hexagonal tiles"),
        ("", "", "localhost", "localhost: has no device.processors"),
        ("cuda_stencil", "sp_fma", "gtx-980", "has no space of cuda_stencil or stencil"),
    ],
)  # fmt: skip
def test_what_the_equations_are_not_for_is_refused(old, new, site, text, tmp_path, capsys):
    file = tmp_path / "c.toml"
    file.write_text(SPACE.replace(old, new))
    assert text in refusal(capsys, "predict", "--site", site, "--space", file)


def test_a_store_or_a_space_is_needed(capsys):
    assert "missing: the store (S)" in refusal(capsys, "predict", "--site", "gtx-980")
