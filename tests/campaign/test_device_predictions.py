"""``predict --space`` without a store: tiles on a device by its constants and printed equations."""

from __future__ import annotations

import tomllib
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from analysis.costs.stencil_time import Machine, stencil_time
from kernels.cuda.stencils.counted import count_tiles
from kernels.stencils.counts import count_stencil
from kernels.stencils.params import StencilParams
from tests.commands import answers, prints, refuses

ROOT = Path(__file__).parents[2]
K20C = ROOT / "examples" / "k20c-tiles.toml"
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
def test_the_pick_is_the_least_over_all_tiles_and_tiles_at_a_time(site, tmp_path):
    file = tmp_path / "c.toml"
    file.write_text(SPACE)
    shown = answers("predict", "--site", site, "--space", file)
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
                time_s = stencil_time(
                    machine, points["g2d"], [2048, 2048], 512, [wide, deep], high, at_a_time
                ).time_s
                times[high, wide, deep, at_a_time] = float(time_s)
    best = min(times, key=times.__getitem__)
    names = ("tile_t", "tile_1", "tile_2", "tiles_at_a_time")
    assert tuple(pick["params"][name] for name in names) == best
    assert pick["time_s"] == pytest.approx(times[best], rel=1e-12)
    of_tile = {}
    for tile, time_s in times.items():
        of_tile[tile[:3]] = min(time_s, of_tile.get(tile[:3], np.inf))
    assert pick["near_count"] == sum(t <= 1.1 * times[best] for t in of_tile.values())
    assert "nothing was measured" in prints("predict", "--site", site, "--space", file)


ENERGY_J = {
    "dram_word_j": 2.2e-9, "shared_word_j": 2.23e-10, "sp_add_j": 5.3e-11, "sp_mul_j": 3.7e-11,
    "int_add_j": 7.2e-11, "int_max_j": 4.8e-11,
}  # fmt: skip
"""Prajapati 2019, Table B.2, by microbenchmarks."""


def tile_j(stencil: str, own: dict[str, int]) -> float:
    """Joules of a tile by B.6 and section B.6.2, over its points."""
    e, t, s = ENERGY_J, own["tile_t"], own["tile_1"]
    words, shared = e["dram_word_j"], e["shared_word_j"]
    if stencil == "sw":
        parts = 4.25 * (s + t) * words + (s * t + 5 * t * s / own["subtile"]) * shared
        return (parts + 5 * s * t * (e["int_add_j"] + e["int_max_j"])) / (s * t)
    if stencil == "j1d":
        parts = 2 * (2 * t + s) * words + 4 * (2 * s + 4 * t * s / own["subtile"]) * shared
        return (parts + s * t * (2 * e["sp_add_j"] + e["sp_mul_j"])) / (s * t)
    points = own["tile_2"] * t * (2 * s + t - 2) / 2
    parts = 2 * own["tile_2"] * (s + 2 * t) * words + 6 * points * shared
    return (parts + points * (4 * e["sp_add_j"] + e["sp_mul_j"])) / points


def test_the_pick_of_least_energy_is_the_least_of_all_tiles():
    picks = {
        p["problem"]["stencil"]: p
        for p in answers("predict", "--space", K20C, "--objective", "energy")["picks"]
    }
    given = {e["params"]["stencil"]: e for e in tomllib.loads(K20C.read_text())["kernels"]}
    assert set(picks) == {"sw", "j1d", "j2d"}
    for stencil, pick in picks.items():
        params, space = given[stencil]["params"], dict(given[stencil]["space"])
        rules = [rule.replace("//", "/") for rule in space.pop("where", [])]
        points = params["size_1"] * params["steps"]
        energies = {}
        for values in product(*space.values()):
            own = dict(zip(space, values, strict=True))
            if all(eval(rule, {}, own) for rule in rules):
                # Of j2d the identity N V = S1 T (S2 + tT) of B.4 and B.5.
                all_points = points * (
                    (params["size_2"] + own["tile_t"]) if stencil == "j2d" else 1
                )
                energies[values] = all_points * tile_j(stencil, own)
        best = min(energies, key=energies.__getitem__)
        assert tuple(pick["params"].values()) == best
        assert pick["energy_j"] == pytest.approx(energies[best], rel=1e-12)
        assert pick["time_s"] is None
        assert pick["variants"] == len(energies)
        near = sum(e <= 1.1 * energies[best] for e in energies.values())
        assert pick["near_count"] == near
    assert "dynamic energy alone" in prints("predict", "--space", K20C, "--objective", "energy")


def test_with_a_time_the_static_energy_is_added(tmp_path):
    """A GTX 980 with the energies of another GPU: the tile of the least energy of both parts."""
    site = (ROOT / "sites/builtin/gtx-980.toml").read_text()
    more = "".join(f"{name} = {value}\n" for name, value in ENERGY_J.items())
    site = site.replace("[device]\n", f"[device]\nstatic_w = 48.0\n{more}")
    (tmp_path / "gpu.toml").write_text(site.replace('name = "gtx-980"', 'name = "gpu"'))
    file = tmp_path / "c.toml"
    space = SPACE.replace("[4, 8, 16]", "[2, 4, 8]").replace("[4, 16]", "[1, 4]")
    file.write_text(space.replace("g2d", "j2d").replace('"gtx-980"', '"gpu.toml"'))
    words = ["predict", "--space", str(file), "--tiles-at-a-time", "2"]
    energies_j = {}
    for form in ("corrected", "printed"):
        (pick,) = answers(*words, "--objective", "energy", "--form", form)["picks"]
        machine = Machine(
            processors=16, lanes=128, on_chip_bytes=98304, block_bytes=49152, blocks=32,
            seconds_per_word=4 * 7.36e-3 / 1e9, barrier_s=7.96e-10, launch_s=9.24e-7,
        )  # fmt: skip
        energies = {}
        for high, wide, deep in product((2, 4, 8), (1, 4), (32, 96, 128)):
            if 16 * (wide + high + 1) * (deep + high + 1) > 98304:
                continue
            time_s = stencil_time(
                machine, 3.39e-8, [2048, 2048], 512, [wide, deep], high, 2, form
            ).time_s
            dynamic_j = tile_j("j2d", {"tile_t": high, "tile_1": wide, "tile_2": deep})
            dynamic_j *= 2048 * 512 * (2048 + high)
            energies[high, wide, deep] = 48.0 * float(time_s) + dynamic_j, float(time_s)
        best = min(energies, key=energies.__getitem__)
        names = ("tile_t", "tile_1", "tile_2", "tiles_at_a_time")
        assert tuple(pick["params"][name] for name in names) == (*best, 2)
        assert (pick["energy_j"], pick["time_s"]) == pytest.approx(energies[best], rel=1e-12)
        energies_j[form] = pick["energy_j"]
    assert energies_j["printed"] < energies_j["corrected"]  # it leaves out a part of the work


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--site", "gtx-980", "--objective", "energy"], "gtx-980: has no device.dram_word_j"),
        (["--objective", "edp"], "only time or energy"),
        (["--objective", "time"], "the equations are for hexagonal tiles"),
        (["--objective", "energy", "--tiles-at-a-time", "0"], "must be 1 or more"),
    ],
)
def test_what_energies_need_is_named(words, text):
    assert text in refuses("predict", "--space", K20C, *words)


def test_a_form_is_of_predictions_without_a_store():
    assert "needs --space" in refuses("predict", "S", "--form", "printed")


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
def test_what_the_equations_are_not_for_is_refused(old, new, site, text, tmp_path):
    file = tmp_path / "c.toml"
    file.write_text(SPACE.replace(old, new))
    assert text in refuses("predict", "--site", site, "--space", file)


def test_a_store_or_a_space_is_needed():
    assert "missing: the store (S)" in refuses("predict", "--site", "gtx-980")
