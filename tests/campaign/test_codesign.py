"""Studies of chips: areas against the thesis, and the best design against plain loops."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.choice.fronts import pareto_front
from analysis.costs.codesign import (
    Energies,
    StencilWork,
    best_tiles,
    by_weight,
    designs_of,
    weighted,
)
from analysis.costs.gpu_area import MAXWELL_28NM_ROUNDED, area_parts_mm2, gpu_area_mm2
from analysis.costs.stencil_time import (
    Constants,
    Machine,
    stencil_time,
    tile_bytes,
)
from analysis.figures.codesign import front_figure
from analysis.figures.figure import Figure
from campaign.codesign.designs import run_study, write_study_figures
from campaign.verbs.command_line import main
from tests.commands import answers, prints

DATA = Path(__file__).parents[1] / "data" / "prajapati2019"
EXAMPLE = Path(__file__).parents[2] / "examples" / "codesign-maxwell.toml"
ON_CHIP_KB = [12, 24, 36, 48, 96, 144, 192, 240, 288, 336, 384, 432, 480]


def rows(name: str) -> list[dict[str, str]]:
    with (DATA / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_areas_are_the_thesis() -> None:
    printed = {
        row["block"]: float(row["die_measured_mm2"]) for row in rows("appC_area_memory_validation")
    }
    assert len(printed) == 3
    gtx_980 = area_parts_mm2(16, 128, 96)
    recomputed = [float(row["model_recomputed_mm2"]) for row in rows("appC_area_memory_validation")]
    l2, l1, shared = recomputed
    assert math.isclose(float(gtx_980["caches"]), l2 + 8 * l1, rel_tol=1e-9)
    assert math.isclose(float(gtx_980["on-chip memory"]), 16 * shared, rel_tol=1e-9)
    by_case = {row["case"]: float(row["recomputed_mm2"]) for row in rows("appC_area_totals")}
    titan_x = 24, 128, 96
    areas = {
        "GTX980 published": gpu_area_mm2(16, 128, 96),
        "TitanX model": gpu_area_mm2(*titan_x),
        "TitanX model via printed C.7": gpu_area_mm2(*titan_x, model=MAXWELL_28NM_ROUNDED),
        "GTX980 without caches": gpu_area_mm2(16, 128, 96, caches=False),
        "TitanX without caches": gpu_area_mm2(*titan_x, caches=False),
    }
    assert areas.keys() == by_case.keys()
    for case, area_mm2 in areas.items():
        # The CSV has four to five digits behind the point.
        assert math.isclose(float(area_mm2), by_case[case], rel_tol=1e-6), case


def test_areas_of_table_c2() -> None:
    table = rows("tableC2_workload_sensitivity")
    assert len(table) == 6
    for row in table:
        chip = int(row["nSM"]), int(row["nV"]), float(row["MSM_kB"])
        assert int(gpu_area_mm2(*chip, caches=False)) == int(row["area_mm2"])
        rounded = float(gpu_area_mm2(*chip, caches=False, model=MAXWELL_28NM_ROUNDED))
        assert abs(rounded / float(row["area_mm2"]) - 1) < 0.01


def test_how_many_designs_there_are() -> None:
    columns = np.meshgrid(np.arange(2, 33, 2), np.arange(32, 2049, 32), ON_CHIP_KB, indexing="ij")
    every = designs_of(*(column.ravel() for column in columns), caches=False)
    inside = (every.area_mm2 >= 200) & (every.area_mm2 <= 650)
    assert inside.sum() == 3737
    assert (inside & (every.on_chip_kb >= 48)).sum() == 2852
    assert ((every.area_mm2 >= 425) & (every.area_mm2 <= 450)).sum() == 225


def drawn(rng: np.random.Generator, axes: int) -> dict[str, Any]:
    """A random design, stencil, problems, tiles and constants."""
    count = int(rng.integers(3, 30))
    tiles = {"tile_t": 2 * rng.integers(1, 9, count)}
    tiles |= {f"tile_{axis + 1}": rng.integers(1, 40, count) for axis in range(axes)}
    number = int(rng.integers(1, 4))
    steps = rng.integers(1, 400, number)
    return {
        "work": StencilWork(
            name="any",
            axes=axes,
            iteration_s=float(rng.uniform(1e-9, 1e-7)),
            flops=5.0,
            weight=1.0,
            sizes=rng.integers(1, 2000 if axes < 3 else 300, number),
            steps=steps,
            often=np.ones(number),
            iteration_j=float(rng.uniform(0, 1e-9)),
        ),
        "tiles": tiles,
        "constants": Constants(
            seconds_per_word=float(rng.uniform(1e-12, 1e-9)),
            barrier_s=float(rng.uniform(0, 1e-8)),
            launch_s=float(rng.uniform(0, 1e-5)),
            block_bytes=float(rng.integers(8, 49)) * 1024,
            blocks=int(rng.integers(1, 33)),
        ),
    }


def plain(
    chip: tuple[int, int, float], area_mm2: float, given: dict[str, Any], pay: Energies, form: str
) -> dict[int, list[tuple[float, float]]]:
    """Problem -> (seconds, joules) of every tile and k that fits, by the equations one by one."""
    work, tiles, constants = given["work"], given["tiles"], given["constants"]
    machine = Machine(
        processors=chip[0],
        lanes=chip[1],
        on_chip_bytes=chip[2] * 1024,
        **vars(constants),
    )
    costs: dict[int, list[tuple[float, float]]] = {}
    for problem, (size, steps) in enumerate(zip(work.sizes, work.steps, strict=True)):
        costs[problem] = []
        for row, high in enumerate(tiles["tile_t"].tolist()):
            tile = [tiles[f"tile_{axis + 1}"][row] for axis in range(work.axes)]
            needed = float(tile_bytes(tile, high))
            for k in range(1, constants.blocks + 1):
                if needed > constants.block_bytes or k * needed > machine.on_chip_bytes:
                    continue
                sizes = [size] * work.axes
                own = stencil_time(machine, work.iteration_s, sizes, steps, tile, high, k, form)
                moved = own.wavefronts * own.tiles * own.subtiles * own.words
                power_w = pay.constant_w + pay.constant_w_per_mm2 * area_mm2
                energy_j = power_w * own.time_s + pay.word_j * moved
                energy_j += work.iteration_j * float(size) ** work.axes * steps
                costs[problem].append((float(own.time_s), float(energy_j)))
    return costs


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("objective", ["time", "energy", "edp"])
def test_the_best_tile_is_that_of_a_plain_loop(axes: int, objective: str) -> None:
    rng = np.random.default_rng(axes)
    for number in range(2):
        given, form = drawn(rng, axes), ("corrected", "printed")[number % 2]
        pay = Energies(
            constant_w=float(rng.uniform(0, 50)),
            constant_w_per_mm2=float(rng.uniform(0, 0.2)),
            word_j=float(rng.uniform(0, 1e-8)),
        )
        count = 4
        designs = designs_of(
            rng.integers(1, 5, count), rng.integers(1, 3, count) * 32, rng.integers(1, 200, count)
        )
        found = best_tiles(designs, **given, form=form, objective=objective, energies=pay)
        for row in range(count):
            chip = tuple(
                getattr(designs, name)[row] for name in ("processors", "lanes", "on_chip_kb")
            )
            costs = plain(chip, designs.area_mm2[row], given, pay, form)
            for problem, every in costs.items():
                own = found.time_s[row, problem], found.energy_j[row, problem]
                if not every:
                    assert (found.tile[row, problem], own[0]) == (-1, np.inf)
                    continue

                def cost(pair: tuple[float, float]) -> float:
                    return {"time": pair[0], "energy": pair[1]}.get(objective, pair[0] * pair[1])

                assert math.isclose(cost(own), min(map(cost, every)), rel_tol=1e-12)
                assert any(math.isclose(own[0], time_s, rel_tol=1e-12) for time_s, _ in every)


def test_front_and_weights_are_those_of_plain_loops() -> None:
    rng = np.random.default_rng(2)
    area, cost = rng.integers(1, 40, 200).astype(float), rng.integers(1, 40, 200).astype(float)
    front = pareto_front(area, cost)
    beaten = [
        any((area <= area[i]) & (cost <= cost[i]) & ((area < area[i]) | (cost < cost[i])))
        for i in range(200)
    ]
    assert {(area[i], cost[i]) for i in front} == {
        (area[i], cost[i]) for i in range(200) if not beaten[i]
    }
    costs, weights = rng.random((50, 3)), (1.0, 2.0, 3.0)
    shares = by_weight(costs, weights)
    for stencil in range(3):
        own = [row for row in shares if row.stencil == stencil]
        assert (own[0].low, own[-1].high) == (0.0, 1.0)
        for row in own:
            for share in (row.low, row.high):
                mixed = np.array(weights) / (sum(weights) - weights[stencil]) * (1 - share)
                mixed[stencil] = share
                assert row.design == int(np.argmin(costs @ mixed))


def test_a_design_on_which_a_stencil_does_not_fit_is_best_only_where_that_has_no_weight() -> None:
    """Costs by hand: stencil 1 fits on design 1 alone; stencil 0 costs least on design 2."""
    costs = np.array([[3.0, np.inf], [2.0, 5.0], [1.0, np.inf]])
    assert weighted(costs, (1.0, 0.0)).tolist() == [3.0, 2.0, 1.0]
    assert weighted(costs, (1.0, 2.0)).tolist() == [np.inf, 12.0, np.inf]
    for weights, expected in (
        ((1.0, 2.0), [(0, 1, 0.0, 0.99), (0, 2, 1.0, 1.0), (1, 2, 0.0, 0.0), (1, 1, 0.01, 1.0)]),
        ((1.0, 0.0), [(0, 2, 1.0, 1.0), (1, 2, 0.0, 0.0), (1, 1, 0.01, 1.0)]),
    ):
        found = [(row.stencil, row.design, row.low, row.high) for row in by_weight(costs, weights)]
        assert found == expected


def test_a_stencil_without_weight_does_not_choose_the_chip(tmp_path: Path) -> None:
    """With 1 kB a tile of l3d does not fit: its time there is infinite."""
    text = STUDY.replace("[425, 450]", "[1, 2000]").replace("flops = 8", "flops = 8\nweight = 0")
    text = text.partition("[[existing]]")[0]
    for name in ("processors", "lanes", "on_chip_kb"):
        few = {"processors": [2, 8], "lanes": [128], "on_chip_kb": [1, 96]}[name]
        text = re.sub(rf"^{name} = .*$", f"{name} = {few}", text, flags=re.MULTILINE)
    text += '[[workload]]\nstencil = "j1d"\niteration_s = 3e-8\nflops = 5\nsizes = [[4096, 1024]]\n'
    path = tmp_path / "study.toml"
    path.write_text(text, encoding="utf-8")
    result = run_study(path)
    of_l3d, of_j1d = result.time_s.T
    assert np.isinf(of_l3d).any() and np.isfinite(of_j1d).all()
    assert result.best["workload"].time_s == result.best["j1d"].time_s == of_j1d.min()
    assert [row["time_s"] for row in result.as_dict()["pareto"]] == of_j1d[result.front].tolist()


def test_a_single_stencil_s_weight_counts_in_all_times(tmp_path: Path) -> None:
    text = STUDY.replace("flops = 8", "flops = 8\nweight = 2").replace("[425, 450]", "[1, 2000]")
    for name, only in (("processors", 16), ("lanes", 128), ("on_chip_kb", 96)):
        text = re.sub(rf"^{name} = .*$", f"{name} = {only}", text, flags=re.MULTILINE)
    path = tmp_path / "study.toml"
    path.write_text(text, encoding="utf-8")
    result = run_study(path)  # of one design, the chip that exists
    times = result.best["workload"].time_s, result.existing[0]["time_s"], result.row(0)["time_s"]
    assert times == pytest.approx([2 * result.best["l3d"].time_s] * 3)
    assert result.best["workload"].gflop_per_s == pytest.approx(result.best["l3d"].gflop_per_s)


STUDY = """\
name = "small"
form = "printed"
[area]
caches = false
range_mm2 = [425, 450]
[machine]
seconds_per_word = 2.944e-11
barrier_s = 7.96e-10
launch_s = 9.24e-7
[machine.space]
processors = "2 : 32 : 2"
lanes = "32 : 2048 : 32"
on_chip_kb = [12, 24, 36, 48, 96, 144, 192, 240, 288, 336, 384, 432, 480]
[tiles]
tile_1 = [1, 2, 4, 8, 16, 32]
tile_2 = [32, 64, 128, 256]
tile_3 = "2 : 32 : 2"
tile_t = [2, 4, 8, 16, 32]
[[workload]]
stencil = "l3d"
iteration_s = 1.36e-7
flops = 8
sizes = [[384, 128], [512, 256], [640, 640, 2.0]]
[[existing]]
name = "gtx-980"
processors = 16
lanes = 128
on_chip_kb = 96
"""


def test_the_printed_form_finds_a_design_of_table_c2(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(STUDY, encoding="utf-8")
    result = run_study(path)
    best = result.best["l3d"]
    (printed,) = (
        row for row in rows("tableC2_workload_sensitivity") if row["code"] == "Laplacian3D"
    )
    chip = best.processors, best.lanes, best.on_chip_kb
    assert chip == (int(printed["nSM"]), int(printed["nV"]), float(printed["MSM_kB"]))
    assert best == result.best["workload"]
    points = 384**3 * 128 + 512**3 * 256 + 2 * 640**3 * 640
    assert math.isclose(best.gflop_per_s, 8e-9 * points / best.time_s)
    printed_json = answers("codesign", path, "-o", tmp_path / "figures")
    assert printed_json["designs"] == 225
    assert printed_json["best"]["l3d"]["lanes"] == 896
    assert [tile["tile_t"] for tile in printed_json["best"]["l3d"]["tiles"]] == [2, 2, 2]
    assert (
        printed_json["existing"][0]["area_mm2"]
        > printed_json["existing"][0]["area_without_caches_mm2"]
    )
    assert (tmp_path / "figures" / "codesign_front.svg").read_text().startswith("<?xml")
    assert "l3d                8    896  96  446.7" in prints("codesign", path)


def test_energy_as_the_objective(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    energy = "[energy]\nconstant_w_per_mm2 = 0.2\nword_j = 1e-9\n"
    text = STUDY.replace('form = "printed"', 'objective = "edp"') + energy
    path.write_text(text, encoding="utf-8")
    result = run_study(path)
    best = result.best["workload"]
    assert best.energy_j * best.time_s <= result.costs.min() * (1 + 1e-12)
    assert best.energy_j > 0.2 * best.area_mm2 * best.time_s
    front = [result.row(place)["edp_j_s"] for place in result.front.tolist()]
    assert front == sorted(front, reverse=True)
    assert front[-1] == pytest.approx(best.energy_j * best.time_s)
    chip = result.existing[0]
    assert chip["edp_j_s"] > 0 and chip["edp_j_s"] != pytest.approx(chip["time_s"])
    text = prints("codesign", path)
    assert text.count("edp_j_s") == 2 and f"{front[-1]:.4g}" in text


def test_the_figure_s_front_is_of_the_times_that_it_shows(tmp_path: Path, monkeypatch) -> None:
    """With energy as the objective, that of the table is another one."""
    energy = "[energy]\nconstant_w = 1000.0\nconstant_w_per_mm2 = 5.0\nword_j = 1e-9\n"
    path = tmp_path / "study.toml"
    text = STUDY.replace('form = "printed"', 'objective = "energy"').replace("[425", "[20")
    path.write_text(text + energy, encoding="utf-8")
    result = run_study(path)
    drawn: list[tuple[Any, ...]] = []

    def noted(*given: Any) -> Figure:
        drawn.append(given)
        return front_figure(*given)

    monkeypatch.setattr("analysis.figures.codesign.front_figure", noted)
    write_study_figures(result, tmp_path)
    ((area_mm2, time_s, front, *_),) = drawn
    assert front.tolist() != result.front.tolist()
    for row in front:
        assert not ((area_mm2 <= area_mm2[row]) & (time_s < time_s[row])).any()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "[425, 450]",
            "[5, 10]",
            "area.range_mm2: no design has 5 to 10 mm2",
        ),
        ("[425, 450]", "[450, 425]", "range_mm2: the first must be the smaller one"),
        (
            "tile_t = [2",
            "tile_t = [3",
            "tiles.tile_t: found 3; with hexagonal tiling it must be even, such as 2 or 4",
        ),
        (
            "tile_3 =",
            "tile_4 =",
            ":14: tiles: has no tile_3; declare tile_t, tile_1",
        ),
        ("[1, 2, 4, 8, 16, 32]", "[0]", ":14: tiles: a value of 0 or less"),
        ("tile_t = [2", "tile_t = [2000", "no tile of l3d fits on any design"),
        ("flops = 8", "flops = 8\nweight = 0", "all weights are 0"),
        ("caches = false", "cache = false", ":4: area.cache: unknown key; did you mean 'caches'"),
        ('form = "printed"', 'form = "exact"', ":2: form: found 'exact'"),
        ('form = "printed"', 'objective = "edp"', "needs the table [energy]"),
        ('stencil = "l3d"', 'stencil = "x3d"', ":20: workload[0].stencil: found 'x3d'"),
        ("[512, 256]", "[512, 0]", "points and steps are whole numbers from 1"),
        ("[512, 256]", "[512]", "found [512]; must be [points, steps] or [points, steps, how"),
        ("640, 2.0]", "640, 0.0]", "found [640, 640, 0.0]; how often must be above 0"),
        (
            "[[existing]]",
            '[[workload]]\nstencil = "l3d"\niteration_s = 1.0\nflops = 1\nsizes = [[8, 8]]\n'
            "[[existing]]",
            "a stencil stands twice; list its sizes together",
        ),
        (
            'processors = "2',
            'processors = "0',
            "space.processors: a value of 0 or less",
        ),
        ('lanes = "32 :', 'lanes = "32 ;', ":12: machine.space.lanes:"),
        (
            'lanes = "32 : 2048 : 32"',
            'lanes = "2048 / processors"',
            "lanes: a value of 341.333, and it must be whole; round it: a // b, ceil(a / b)",
        ),
        ("tile_2 = [32,", "tile_2 = [32.5,", "tiles.tile_2: a value of 32.5, and it must be"),
        ("[area]", '[area]\nmodel = "maxwell"', ":4: area.model: found 'maxwell'"),
    ],
)
def test_wrong_studies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, message: str
) -> None:
    path = tmp_path / "study.toml"
    assert old in STUDY
    text = STUDY.replace(old, new, 1)
    if "2000" in new:
        text = text.replace("[2000, 4, 8, 16, 32]", "[2000]")
    path.write_text(text, encoding="utf-8")
    assert main(["codesign", str(path)]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
