"""Predictions of stencil tiles on a device without measurements, from equations and its constants.

The equations are from Prajapati 2019: time in appendix A
(:mod:`analysis.costs.stencil_time`) and energy in appendix B
(:mod:`analysis.costs.tile_energy`). The constants are in the site file's ``[device]``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analysis.costs.stencil_time import (
    Form,
    Machine,
    PredictionError,
    fits,
    near_least,
    stencil_time,
)
from analysis.costs.tile_energy import NEEDED, stencil_energy_j
from campaign.plan.campaign_file import KernelEntry, read_campaign
from campaign.plan.sweep import place_of, space_variants
from campaign.variants.space_predictions import MOST_NEAR, SpacePick, SpacePredictions
from dvfs.errors import ArgumentError, known_names
from dvfs.input_files import FileError
from dvfs.setting import AS_FOUND
from kernels.kernel import ParameterError
from kernels.stencils.params import AXES, axes_of, check_hexagon
from kernels.stencils.stencils import STENCILS
from sites.site_file import Site
from sites.site_reading import built_in_sites, find_site, read_site

KERNELS = ("cuda_stencil", "stencil")
CONSTANTS = ("processors", "lanes", "on_chip_bytes", "block_bytes", "blocks")
SECONDS = {"seconds_per_word": "word_s", "barrier_s": "barrier_s", "launch_s": "launch_s"}
TILES = ("tile_1", "tile_2", "tile_3")
AT_A_TIME = "tiles_at_a_time"
OBJECTIVES = ("time", "energy")
HEXAGONAL = "hexagonal"
TILING = {"sw": "orthogonal", "j1d": "skewed", "j2d": HEXAGONAL}
"""Stencil -> the tiling that the equations of its energy cover."""
ENERGIES = {
    "dram": "dram_word_j",
    "shared": "shared_word_j",
    **{name: f"{name}_j" for name in ("sp_add", "sp_mul", "int_add", "int_max")},
}
"""Class -> the name of the device's constant: the energy of a word or an operation, in J."""
STATIC_W = "static_w"


@dataclass(frozen=True)
class Question:
    """What to predict. ``objective``: minimise time or energy. ``form``: of the equations of time.
    ``at_a_time``: tiles on a processor at a time, None for the best power of two that fits."""

    objective: str
    form: Form
    at_a_time: int | None


def predict_on_device(
    path: Path, site_name: str | None, kernel: str | None, question: Question
) -> SpacePredictions:
    """Predict the tiles of least time or energy for each stencil that a campaign file's spaces
    declare.

    A pick has the space's parameters and the number of tiles on a processor at a time. Where the
    constants or equations of a stencil's time are missing, its energy is the dynamic energy alone,
    and its time NaN.

    Raises:
        FileError: the campaign or the site file is wrong, or a constant is missing.
        ArgumentError: no kernel has a space that these equations cover.
    """
    campaign, source = read_campaign(path)
    name = site_name or campaign.sites[0].site
    site = read_site(find_site(name, path.parent))
    picks = []
    for index, entry in enumerate(campaign.kernels):
        if entry.space is None or entry.kernel not in KERNELS or kernel not in (None, entry.kernel):
            continue
        for fixed, space in space_variants(entry, index, source, site):
            try:
                picks.append(_pick(entry, fixed, space.values(), len(space), site, question))
            except ParameterError as error:
                place = place_of(error.parameter, entry, index)
                raise source.error(place, error.what, error.remedy) from None
            except PredictionError as error:
                raise source.error(("kernels", index, "space"), str(error), "") from None
    space_kernels = [e.kernel for e in campaign.kernels if e.space is not None]
    usable = sorted({name for name in space_kernels if name in KERNELS})
    if kernel is not None and usable and not picks:
        unknown = f"unknown kernel {kernel!r}"
        raise ArgumentError(
            f"--kernel: {unknown}; {known_names(kernel, usable, 'the file has spaces for')}"
        )
    if not picks:
        raise ArgumentError(
            f"--space: {path} has no space of {' or '.join(KERNELS)}; without a store only "
            f"hexagonal tiles can be predicted; for other kernels name a store with "
            f"measured variants"
        )
    return SpacePredictions(
        site=site.name,
        simulated=site.is_simulated,
        objective=question.objective,
        fit=None,
        picks=tuple(picks),
    )


def _pick(
    entry: KernelEntry,
    fixed: Mapping[str, Any],
    columns: Mapping[str, np.ndarray],
    count: int,
    site: Site,
    question: Question,
) -> SpacePick:
    name, tiling = str(fixed.get("stencil", "")), fixed.get("tiling")
    energy = question.objective == "energy"
    found = f"found stencil {name or 'in the space'!r}, tiling {tiling!r}"
    if energy and TILING.get(name) != tiling:
        covered = ", ".join(f"{tiles} tiles of {stencil}" for stencil, tiles in TILING.items())
        raise PredictionError(
            f"{found}: the equations of energy are for {covered}, given in params"
        )
    if not energy and (name not in STENCILS or tiling != HEXAGONAL):
        covered = ", ".join(STENCILS)
        raise PredictionError(
            f"{found}: the equations are for hexagonal tiles of {covered}, given in params"
        )
    values, axes = {**fixed, **columns}, axes_of(name)
    missing = [
        parameter
        for parameter in (*AXES[:axes], "steps", "tile_t", *TILES[:axes])
        if parameter not in values
    ]
    if missing:
        raise PredictionError(f"{missing[0]} is missing: give it in params or in the space")

    def column(parameter: str, default: float = math.nan) -> np.ndarray:
        return np.broadcast_to(np.asarray(values.get(parameter, default), float), (count,))

    tiles = Tiles(
        sizes=np.stack([column(parameter) for parameter in AXES[:axes]], axis=1),
        steps=column("steps"),
        tiles=np.stack([column(parameter) for parameter in TILES[:axes]], axis=1),
        tile_t=column("tile_t"),
        subtile=column("subtile", 1.0),
    )
    time_s, at_a_time = np.full(count, math.nan), np.full(count, math.nan)
    if not energy or (tiling == HEXAGONAL and f"{name}_s" in site.device):
        time_s, at_a_time = _times(tiles, name, site, question)
    energy_j = np.full(count, math.nan)
    if energy:
        energy_j = _energies(tiles, name, site, time_s)
    costs = energy_j if energy else time_s
    near_rows = near_least(costs)

    def variant(row: int) -> dict[str, Any]:
        params = {key: values[row].item() for key, values in columns.items()}
        if math.isnan(at_a_time[row]):
            return params
        return params | {AT_A_TIME: int(at_a_time[row])}

    best = int(near_rows[0])
    return SpacePick(
        kernel=entry.label or entry.kernel,
        problem=dict(fixed),
        variants=count,
        settings=1,
        measured=0,
        time_error_pct=math.nan,
        params=variant(best),
        setting=AS_FOUND,
        energy_j=float(energy_j[best]),
        time_s=float(time_s[best]),
        slurm="",
        near_count=len(near_rows),
        near=tuple(variant(row) for row in near_rows[:MOST_NEAR].tolist()),
    )


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """The sizes of all variants, in points and steps: float64 (variants,); ``sizes`` and ``tiles``:
    (variants, axes)."""

    sizes: np.ndarray
    steps: np.ndarray
    tiles: np.ndarray
    tile_t: np.ndarray
    subtile: np.ndarray


def _times(
    tiles: Tiles, name: str, site: Site, question: Question
) -> tuple[np.ndarray, np.ndarray]:
    """The time of each variant, in s, infinite where it does not fit; and its tiles at a time."""
    machine, iteration_s = _machine(site, name)
    for tile_t in np.unique(tiles.tile_t).astype(int).tolist():
        check_hexagon(tile_t)
    best_s, best_k = np.full(len(tiles.steps), np.inf), np.ones(len(tiles.steps))
    powers = [2**power for power in range(int(math.log2(machine.blocks)) + 1)]
    for k in powers if question.at_a_time is None else [question.at_a_time]:
        rows = np.flatnonzero(fits(machine, tiles.tiles, tiles.tile_t, k))
        if not len(rows):
            break
        times_s = stencil_time(
            machine,
            iteration_s,
            tiles.sizes[rows],
            tiles.steps[rows],
            tiles.tiles[rows],
            tiles.tile_t[rows],
            k,
            question.form,
        ).time_s
        better = times_s < best_s[rows]
        best_s[rows[better]], best_k[rows[better]] = times_s[better], k
    if not np.isfinite(best_s).any():
        at_a_time = question.at_a_time or 1
        raise PredictionError(
            f"no tile of the space fits into {machine.block_bytes:g} bytes (device.block_bytes)"
            + (f", {at_a_time} at a time" if at_a_time > 1 else "")
            + ": declare smaller ones"
        )
    return best_s, best_k


def _energies(tiles: Tiles, name: str, site: Site, time_s: np.ndarray) -> np.ndarray:
    """The energy of each variant, in J; without the static energy where its time is NaN."""
    timed = bool(np.isfinite(time_s).any())
    _check_constants(
        site, [ENERGIES[constant] for constant in NEEDED[name]] + [STATIC_W] * timed, "energy"
    )
    energies = {constant: float(site.device[ENERGIES[constant]]) for constant in NEEDED[name]}
    static_w = float(site.device[STATIC_W]) if timed else 0.0
    return stencil_energy_j(
        name,
        energies,
        static_w,
        time_s if timed else 0.0,
        tiles.sizes,
        tiles.steps,
        tiles.tiles,
        tiles.tile_t,
        tiles.subtile,
    )


def _check_constants(site: Site, names: Iterable[str], quantity: str) -> None:
    """Refuse a site whose device lacks one of these constants. ``quantity``: for the message."""
    for name in names:
        if name not in site.device:
            usable = [
                built_in
                for built_in in sorted(built_in_sites())
                if name in read_site(find_site(built_in, Path())).device
            ]
            raise FileError(
                f"has no device.{name}, which a prediction of {quantity} without measurements "
                f"needs",
                f"built-in sites that have it: {', '.join(usable) or 'none'}; in a site file of "
                f"your own, add it to [device]; or name a store with measured variants",
                site.name,
            )


def _machine(site: Site, stencil: str) -> tuple[Machine, float]:
    """The device, and the time of a point on one of its vector units, in s."""
    point_s = f"{stencil}_s"
    _check_constants(site, (*CONSTANTS, *SECONDS.values(), point_s), stencil)
    numbers = site.device
    machine = Machine(
        processors=int(numbers["processors"]),
        lanes=int(numbers["lanes"]),
        on_chip_bytes=float(numbers["on_chip_bytes"]),
        block_bytes=float(numbers["block_bytes"]),
        blocks=int(numbers["blocks"]),
        **{name: float(numbers[key]) for name, key in SECONDS.items()},
    )
    return machine, float(numbers[point_s])
