"""Tiles of stencils on a device that nothing was measured on: by equations and its constants.

The equations are those of Prajapati 2019, appendix A (:mod:`analysis.costs.stencil_time`, corrected
form); the constants stand in the site file's ``[device]``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from analysis.costs.stencil_time import Machine, PredictionError, fits, near_least, stencil_time_s
from campaign.plan.campaign_file import KernelEntry, read_campaign
from campaign.plan.sweep import place_of, space_variants
from campaign.variants.space_predictions import MOST_NEAR, NEAR, SpacePick, SpacePredictions
from dvfs.errors import ArgumentError
from dvfs.input_files import FileError
from dvfs.names import known_names
from dvfs.setting import AS_FOUND
from kernels.kernel import ParameterError
from kernels.stencils.params import AXES, check_hexagon
from kernels.stencils.stencils import STENCILS
from sites.site_file import Site
from sites.site_reading import built_in_sites, find_site, read_site

KERNELS = ("cuda_stencil", "stencil")
CONSTANTS = ("processors", "lanes", "on_chip_bytes", "block_bytes", "blocks")
SECONDS = {"seconds_per_word": "word_s", "barrier_s": "barrier_s", "launch_s": "launch_s"}
TILES = ("tile_1", "tile_2", "tile_3")
AT_A_TIME = "tiles_at_a_time"


def predict_on_device(
    path: Path, site_name: str | None = None, kernel: str | None = None
) -> SpacePredictions:
    """The tiles of least predicted time of each stencil that a campaign file's spaces declare.

    Besides the space's parameters a pick has the tiles that a processor works on at a time, the
    best power of two that fits.

    Raises:
        FileError: the campaign or the site file is wrong, or a constant is missing.
        ArgumentError: no kernel has a space that these equations are for.
    """
    campaign, source = read_campaign(path)
    name = site_name or campaign.sites[0].site
    site = read_site(find_site(name, path.parent))
    picks = []
    for index, entry in enumerate(campaign.kernels):
        if entry.space is None or entry.kernel not in KERNELS or kernel not in (None, entry.kernel):
            continue
        for given, found in space_variants(entry, index, source, site):
            try:
                columns = {
                    key: np.array(found.listed[key])[column] if key in found.listed else column
                    for key, column in found.columns.items()
                }
                picks.append(_pick(entry, given, columns, len(found), site))
            except ParameterError as error:
                place = place_of(error.parameter, entry, index)
                raise source.error(place, error.what, error.remedy) from None
            except PredictionError as error:
                raise source.error(("kernels", index, "space"), str(error), "") from None
    own_kernels = [e.kernel for e in campaign.kernels if e.space is not None]
    usable = sorted({name for name in own_kernels if name in KERNELS})
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
        site=site.name, simulated=site.is_simulated, objective="time", fit=None, picks=tuple(picks)
    )


def _pick(
    entry: KernelEntry,
    given: Mapping[str, Any],
    columns: Mapping[str, np.ndarray],
    count: int,
    site: Site,
) -> SpacePick:
    values = {**given, **columns}
    name = str(given.get("stencil", ""))
    if name not in STENCILS or given.get("tiling") != "hexagonal":
        raise PredictionError(
            f"found stencil {name or 'in the space'!r}, tiling {given.get('tiling')!r}: the "
            f"equations are for hexagonal tiles of {', '.join(STENCILS)}, given in params"
        )
    axes = STENCILS[name].dimensions
    missing = [own for own in (*AXES[:axes], "steps", "tile_t", *TILES[:axes]) if own not in values]
    if missing:
        raise PredictionError(f"{missing[0]} is missing: give it in params or in the space")
    machine, iteration_s = _machine(site, name)

    def column(own: str) -> np.ndarray:
        return np.broadcast_to(np.asarray(values[own], float), (count,))

    sizes = np.stack([column(own) for own in AXES[:axes]], axis=1)
    tiles = np.stack([column(own) for own in TILES[:axes]], axis=1)
    high, steps = column("tile_t"), column("steps")
    for tile_t in np.unique(high).astype(int).tolist():
        check_hexagon(tile_t)
    best_s, best_k = np.full(count, np.inf), np.ones(count)
    for power in range(int(math.log2(machine.blocks)) + 1):
        rows = np.flatnonzero(fits(machine, tiles, high, 2**power))
        if not len(rows):
            break
        own_s = stencil_time_s(
            machine, iteration_s, sizes[rows], steps[rows], tiles[rows], high[rows], 2**power
        )
        better = own_s < best_s[rows]
        best_s[rows[better]], best_k[rows[better]] = own_s[better], 2**power
    if not np.isfinite(best_s).any():
        raise PredictionError(
            f"no tile of the space fits into {machine.block_bytes:g} bytes (device.block_bytes): "
            f"declare smaller ones"
        )
    near = near_least(best_s, NEAR)

    def own(place: int) -> dict[str, Any]:
        params = {key: values_of[place].item() for key, values_of in columns.items()}
        return params | {AT_A_TIME: int(best_k[place])}

    best = int(near[0])
    return SpacePick(
        kernel=entry.label or entry.kernel,
        problem=dict(given),
        variants=count,
        settings=1,
        measured=0,
        time_error_pct=math.nan,
        params=own(best),
        setting=AS_FOUND,
        energy_j=math.nan,
        time_s=float(best_s[best]),
        slurm="",
        near_count=len(near),
        near=tuple(own(place) for place in near[:MOST_NEAR].tolist()),
    )


def _machine(site: Site, stencil: str) -> tuple[Machine, float]:
    """The device, and the seconds of a point on one of its vector units."""
    point_s = f"{stencil}_s"
    for name in (*CONSTANTS, *SECONDS.values(), point_s):
        if name not in site.device:
            having = [
                own
                for own in sorted(built_in_sites())
                if name in read_site(find_site(own, Path())).device
            ]
            raise FileError(
                f"has no device.{name}, which a prediction of {stencil} without measurements needs",
                f"built-in sites that have it: {', '.join(having) or 'none'}; in a site file of "
                f"your own, add it to [device]; or name a store with measured variants",
                site.name,
            )
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
