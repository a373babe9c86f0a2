"""The search for the chip that runs a workload of stencils best (``campaign codesign``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from analysis.choice.fronts import pareto_front
from analysis.costs.codesign import (
    BestTiles,
    Designs,
    Energies,
    StencilWork,
    best_tiles,
    by_weight,
    designs_of,
    scores,
    totals,
    weighted,
)
from analysis.costs.gpu_area import AREA_MODELS, AreaModel, area_parts_mm2, gpu_area_mm2
from analysis.costs.stencil_time import Constants
from campaign.codesign.study_file import DESIGN, Study, Work, read_study, space_columns
from dvfs.errors import ArgumentError, reason
from dvfs.files import write_output
from dvfs.input_files import Source
from kernels.kernel import ParameterError
from kernels.stencils.params import check_hexagon

WORKLOAD = "workload"
GIGA = 1e9
COSTS = {"time": "time_s", "energy": "energy_j", "edp": "edp_j_s"}
"""Objective -> the column of its values."""


@dataclass(frozen=True, kw_only=True)
class BestDesign:
    """The best design for a stencil, or for the whole workload, with its ``area_mm2``; the time,
    energy (NaN without energies) and GFLOP/s over all problems; and the tile and k of each problem.
    ``parts_mm2``: the area by part."""

    processors: int
    lanes: int
    on_chip_kb: float
    area_mm2: float
    time_s: float
    energy_j: float
    gflop_per_s: float
    tiles: tuple[Mapping[str, Any], ...]
    parts_mm2: Mapping[str, float]

    def as_dict(self) -> dict[str, Any]:
        """An entry of ``campaign codesign --json``."""
        values = dict(vars(self))
        values["energy_j"] = None if np.isnan(self.energy_j) else self.energy_j
        return values | {"tiles": [dict(tile) for tile in self.tiles]}


@dataclass(frozen=True, kw_only=True, eq=False)
class Codesign:
    """The result of a study.

    ``costs``: float64 (designs, stencils), the value of the objective over a stencil's problems;
    ``time_s``: likewise the time. ``best``: the best design by stencil, and for ``workload``.
    ``front``: indices of the designs that no other beats in both area and the workload's cost.
    ``existing``: existing chips, with their areas with and without caches, and the workload's time
    and cost on them.
    """

    study: Study
    designs: Designs
    stencils: tuple[str, ...]
    weights: tuple[float, ...]
    costs: np.ndarray
    time_s: np.ndarray
    best: Mapping[str, BestDesign]
    front: np.ndarray
    existing: tuple[Mapping[str, Any], ...]

    def row(self, index: int) -> dict[str, Any]:
        """A design with the workload's time and cost on it."""
        values: dict[str, Any] = {
            name: column[index].item() for name, column in vars(self.designs).items()
        }
        columns = {"time_s": self.time_s, COSTS[self.study.objective]: self.costs}
        return values | {
            name: float(weighted(column[[index]], self.weights)[0])
            for name, column in columns.items()
        }

    def shares(self) -> list[dict[str, Any]]:
        """The best designs at other weights; see :func:`analysis.costs.codesign.by_weight`."""
        return [
            {"stencil": self.stencils[share.stencil], "low": share.low, "high": share.high}
            | {name: getattr(self.designs, name)[share.design].item() for name in DESIGN}
            for share in by_weight(self.costs, self.weights)
        ]

    def as_dict(self) -> dict[str, Any]:
        """``campaign codesign --json``."""
        return {
            "name": self.study.name,
            "form": self.study.form,
            "objective": self.study.objective,
            "designs": len(self.designs),
            "best": {name: design.as_dict() for name, design in self.best.items()},
            "pareto": [self.row(place) for place in self.front.tolist()],
            "existing": [dict(design) for design in self.existing],
            "weights": self.shares() if len(self.stencils) > 1 else [],
        }


def run_study(path: Path) -> Codesign:
    """Read a study file, and evaluate every design with every tile.

    Raises:
        FileError: the file is wrong, no design is in the range, or no tile fits on any design.
    """
    study, source = read_study(path)
    model = _area_model(study)
    space = space_columns(study.machine.space, ("machine", "space"), DESIGN, source)
    for name in DESIGN:
        if (space[name] <= 0).any():
            raise source.error(("machine", "space", name), "a value of 0 or less", "leave it out")
    for name in DESIGN[:2]:
        _check_whole(space[name], ("machine", "space", name), source)
    whole = designs_of(*(space[name] for name in DESIGN), caches=study.area.caches, model=model)
    low, high = study.area.range_mm2
    in_range = np.flatnonzero((whole.area_mm2 >= low) & (whole.area_mm2 <= high))
    if not len(in_range):
        raise source.error(
            ("area", "range_mm2"),
            f"no design has {low:g} to {high:g} mm2; those of the space have "
            f"{whole.area_mm2.min():.0f} to {whole.area_mm2.max():.0f}",
            "change the range, or the space",
        )
    designs = whole.take(in_range)
    works = [_work(entry) for entry in study.workload]
    existing = designs_of(
        *(np.array([getattr(gpu, name) for gpu in study.existing]) for name in DESIGN),
        caches=study.area.caches,
        model=model,
    )
    every_tile = [_tiles(study, entry, source) for entry in study.workload]
    searched, searched_existing = [], []
    for index, (work, tiles) in enumerate(zip(works, every_tile, strict=True)):
        searched.append(_search_tiles(study, designs, work, tiles))
        if len(existing):
            searched_existing.append(_search_tiles(study, existing, work, tiles))
        if (searched[-1].tile < 0).all():
            raise source.error(
                ("workload", index),
                f"no tile of {work.name} fits on any design",
                "declare smaller ones under [tiles]",
            )
    times, costs = _times_and_costs(study, searched, works)
    stencils = tuple(work.name for work in works)
    weights = tuple(work.weight for work in works)
    found = list(zip(works, searched, every_tile, strict=True))
    weights_of = dict(zip(stencils, np.eye(len(works)).tolist(), strict=True)) | {WORKLOAD: weights}
    return Codesign(
        study=study,
        designs=designs,
        stencils=stencils,
        weights=weights,
        costs=costs,
        time_s=times,
        best={
            name: _best_design(study, designs, costs, of_stencils, found)
            for name, of_stencils in weights_of.items()
        },
        front=pareto_front(designs.area_mm2, weighted(costs, weights)),
        existing=_existing(study, existing, searched_existing, works) if len(existing) else (),
    )


def _area_model(study: Study) -> AreaModel:
    if study.area.constants is None:
        return AREA_MODELS[study.area.model]
    return AreaModel(**study.area.constants.model_dump())


def _work(entry: Work) -> StencilWork:
    sizes = [[*size, 1.0][:3] for size in entry.sizes]
    points, steps, often = (np.array(column) for column in zip(*sizes, strict=True))
    return StencilWork(
        name=entry.stencil,
        axes=entry.axes,
        iteration_s=entry.iteration_s,
        flops=entry.flops,
        weight=entry.weight,
        sizes=points,
        steps=steps,
        often=often.astype(float),
        iteration_j=entry.iteration_j,
    )


def _tiles(study: Study, entry: Work, source: Source) -> dict[str, np.ndarray]:
    """The distinct tiles of a stencil, without the parameters of axes that it lacks."""
    needed = ("tile_t", *(f"tile_{axis + 1}" for axis in range(entry.axes)))
    columns = space_columns(study.tiles, ("tiles",), needed, source)
    distinct = np.unique(np.stack([columns[name] for name in needed], axis=1), axis=0)
    if (distinct < 1).any():
        raise source.error(("tiles",), "a value of 0 or less", "tiles are 1 or more")
    for name in needed:
        _check_whole(columns[name], ("tiles", name), source)
    for tile_t in np.unique(distinct[:, 0]).astype(int).tolist():
        try:
            check_hexagon(tile_t)
        except ParameterError as error:
            raise source.error(("tiles", "tile_t"), error.what, error.remedy) from None
    return dict(zip(needed, distinct.astype(np.int64).T, strict=True))


def _check_whole(values: np.ndarray, key: tuple[str, ...], source: Source) -> None:
    """Refuse values of a space that are not whole numbers."""
    if len(broken := values[values % 1 != 0]):
        raise source.error(
            key, f"a value of {broken[0]:g}, and it must be whole", "round it: a // b, ceil(a / b)"
        )


def _search_tiles(
    study: Study, designs: Designs, work: StencilWork, tiles: dict[str, np.ndarray]
) -> BestTiles:
    machine = study.machine
    constants = Constants(
        seconds_per_word=machine.seconds_per_word,
        barrier_s=machine.barrier_s,
        launch_s=machine.launch_s,
        block_bytes=machine.block_kb * 1024,
        blocks=machine.blocks,
    )
    energies = None if study.energy is None else Energies(**study.energy.model_dump())
    return best_tiles(
        designs,
        work,
        tiles,
        constants,
        form=study.form,
        objective=study.objective,
        energies=energies,
    )


def _times_and_costs(
    study: Study, searched: Sequence[BestTiles], works: Sequence[StencilWork]
) -> tuple[np.ndarray, np.ndarray]:
    """The times, and the values of the objective, of stencils on designs: (designs, stencils)."""
    times, energies = (
        np.stack(columns, axis=1) for columns in zip(*map(totals, searched, works), strict=True)
    )
    return times, scores(times, energies, study.objective)


def _best_design(
    study: Study,
    designs: Designs,
    costs: np.ndarray,
    weights: Sequence[float],
    found: Sequence[tuple[StencilWork, BestTiles, Mapping[str, np.ndarray]]],
) -> BestDesign:
    """The best design for stencils with these weights. ``costs``: of each, (designs, stencils);
    ``found``: each stencil with its best tiles, as indices into all its tiles."""
    row = int(np.argmin(weighted(costs, weights)))
    time_s = energy_j = flops = 0.0
    tiles: list[dict[str, Any]] = []
    for weight, (work, tiled, every_tile) in zip(weights, found, strict=True):
        if not weight:
            continue
        time_s += weight * float(tiled.time_s[row] @ work.often)
        energy_j += weight * float(tiled.energy_j[row] @ work.often)
        flops += weight * float(work.flops * work.points @ work.often)
        for problem in range(len(work.sizes)):
            chosen = tiled.tile[row, problem]
            tiles.append(
                {"stencil": work.name}
                | {"size": int(work.sizes[problem]), "steps": int(work.steps[problem])}
                | {name: int(column[chosen]) for name, column in every_tile.items()}
                | {"k": int(tiled.k[row, problem]), "time_s": float(tiled.time_s[row, problem])}
            )
    chip = {name: getattr(designs, name)[row].item() for name in DESIGN}
    model, caches = _area_model(study), study.area.caches
    parts = area_parts_mm2(
        chip["processors"], chip["lanes"], chip["on_chip_kb"], caches=caches, model=model
    )
    return BestDesign(
        **chip,
        area_mm2=float(designs.area_mm2[row]),
        time_s=time_s,
        energy_j=energy_j if study.energy is not None else np.nan,
        gflop_per_s=flops / time_s / GIGA,
        tiles=tuple(tiles),
        parts_mm2={name: float(part) for name, part in parts.items()},
    )


def _existing(
    study: Study,
    existing: Designs,
    searched: Sequence[BestTiles],
    works: Sequence[StencilWork],
) -> tuple[dict[str, Any], ...]:
    times, costs = _times_and_costs(study, searched, works)
    weights = [work.weight for work in works]
    chips = existing.processors, existing.lanes, existing.on_chip_kb
    area_mm2 = partial(gpu_area_mm2, *chips, model=_area_model(study))
    columns = {
        "area_mm2": area_mm2(caches=True),
        "area_without_caches_mm2": area_mm2(caches=False),
        "time_s": weighted(times, weights),
        COSTS[study.objective]: weighted(costs, weights),
    }
    return tuple(
        gpu.model_dump()
        | {name: float(column[row]) for name, column in columns.items()}
        | {"times_s": {work.name: float(times[row, i]) for i, work in enumerate(works)}}
        for row, gpu in enumerate(study.existing)
    )


def write_study_figures(result: Codesign, folder: Path) -> list[Path]:
    """Write the figures of a study as SVG (Prajapati 2019, figures C.3, C.4); return their paths.

    Raises:
        ArgumentError: the folder cannot be written.
    """
    from analysis.figures.codesign import area_figure, front_figure  # noqa: PLC0415
    from analysis.figures.paper import figure_files  # noqa: PLC0415

    designs, study = result.designs, result.study
    chips = zip(*(getattr(designs, name).tolist() for name in DESIGN), strict=True)
    names = [f"{n} x {lanes}, {kb:g} kB" for n, lanes, kb in chips]
    existing = {}
    for gpu in result.existing:
        existing[gpu["name"]] = (gpu["area_mm2"], gpu["time_s"])
        existing[f"{gpu['name']} without caches"] = (gpu["area_without_caches_mm2"], gpu["time_s"])
    time_s = weighted(result.time_s, result.weights)
    figures = [
        front_figure(
            designs.area_mm2,
            time_s,
            pareto_front(designs.area_mm2, time_s),  # result.front follows the objective
            names,
            existing,
            study.name,
        ),
        area_figure({name: design.parts_mm2 for name, design in result.best.items()}, study.name),
    ]
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for figure in figures:
            path = folder / f"{figure.name}.svg"
            write_output(path, figure_files(figure, False, ("svg",))["svg"])
            paths.append(path)
    except OSError as error:
        raise ArgumentError(
            f"{folder}: cannot be written ({reason(error, folder)}); name another folder"
        ) from error
    return paths
