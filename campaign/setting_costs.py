"""What operations and time cost at a setting, by a fit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from analysis.energy.fitted import costs_at
from campaign.errors import BadArgument
from campaign.result_tables import Cost, CostsAtSetting

if TYPE_CHECKING:
    from analysis.energy.fitted import Fit
    from campaign.fits import FitSource

Pair = tuple[float, float]
SHOWN = 8
"""Settings that an error names."""


def costs_at_clocks(
    fit: Fit,
    source: FitSource,
    volts: Mapping[Pair, Pair],
    core_mhz: float | None,
    mem_mhz: float | None,
) -> CostsAtSetting:
    """The costs at the setting of these clocks; None where any clock will do.

    ``volts``: (core MHz, memory MHz) -> (core V, memory V) of every known setting.

    Raises:
        BadArgument: not one setting of known voltage is at these clocks.
    """
    wanted = tuple(math.nan if mhz is None else mhz for mhz in (core_mhz, mem_mhz))
    matches = [
        pair
        for pair in volts
        if all(math.isnan(w) or w == mhz for w, mhz in zip(wanted, pair, strict=True))
    ]
    if len(matches) != 1:
        given = [k for k, mhz in enumerate(wanted) if not math.isnan(mhz)]
        if matches and len(given) == 1:
            name = ("--mem-mhz", "--core-mhz")[given[0]]
            others = sorted({pair[1 - given[0]] for pair in matches})
            raise BadArgument(
                f"{fit.site}: several settings have these clocks; also give {name}: "
                f"{', '.join(f'{mhz:g}' for mhz in others)}"
            )

        def distance(pair: Pair) -> float:
            return sum(abs(math.log(wanted[k] / pair[k])) for k in given if wanted[k] > 0)

        among = sorted(matches or volts)
        known = " ".join(f"{core:g},{mem:g}" for core, mem in among[:SHOWN])
        asked = " ".join(
            f"{option} {mhz:g}"
            for option, mhz in zip(("--core-mhz", "--mem-mhz"), wanted, strict=True)
            if not math.isnan(mhz)
        )
        fits_what = "fits several settings"
        if not matches and among:
            core, mem = min(among, key=distance)
            fits_what = f"is at no setting of known voltage; the nearest is {core:g},{mem:g}"
        raise BadArgument(
            f"{fit.site}: {asked} {fits_what}; give --core-mhz and --mem-mhz of one of: "
            f"{known}{' ...' if len(among) > SHOWN else ''}"
        )
    return setting_costs(fit, source, matches[0], volts[matches[0]])


def setting_costs(fit: Fit, source: FitSource, pair: Pair, volts: Pair) -> CostsAtSetting:
    """The costs at a setting of known voltages."""
    costs = costs_at(fit, *pair, *volts)
    rows = [
        Cost(f"energy_{name}", value, "pJ", low, high)
        for name, (value, low, high) in costs.operation_pj.items()
    ]
    power_w, low_w, high_w = costs.constant_w
    rows.append(Cost("constant_power", power_w, "W", low_w, high_w))
    return CostsAtSetting(
        site=fit.site,
        simulated=fit.simulated,
        fit=source,
        core_mhz=pair[0],
        mem_mhz=pair[1],
        core_v=costs.core_v,
        mem_v=costs.mem_v,
        costs=tuple(rows),
    )
