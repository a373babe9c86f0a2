"""What operations and time cost at a setting, by a fit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from analysis.energy.fitted import costs_at
from campaign.results.tables import CostsAtSetting, OperationCost
from dvfs.errors import ArgumentError
from dvfs.setting import Setting, Volts

if TYPE_CHECKING:
    from analysis.energy.fitted import Fit
    from campaign.results.fits import FitSource

SHOWN = 8
"""Settings that an error names."""


def costs_at_clocks(
    fit: Fit,
    source: FitSource,
    volts: Volts,
    core_mhz: float | None,
    mem_mhz: float | None,
) -> CostsAtSetting:
    """The costs at the setting of these clocks; None where any clock will do.

    ``volts``: the core and memory voltage of every known setting.

    Raises:
        ArgumentError: not one setting of known voltage is at these clocks.
    """
    wanted = (core_mhz, mem_mhz)
    volts = {Setting(*setting.numbers[:3]): of for setting, of in volts.items()}
    given = [k for k, mhz in enumerate(wanted) if mhz is not None]
    matches = [setting for setting in volts if all(setting.clocks[k] == wanted[k] for k in given)]
    if len(matches) != 1:
        if matches and len(given) == 1:
            name = ("--mem-mhz", "--core-mhz")[given[0]]
            others = [setting.clocks[1 - given[0]] for setting in sorted(matches)]
            raise ArgumentError(
                f"{fit.site}: several settings have these clocks; also give {name}: "
                f"{', '.join(dict.fromkeys(map(_clock_text, others)))}"
            )

        def distance(setting: Setting) -> float:
            clocks = ((wanted[k], setting.clocks[k]) for k in given)
            return sum(
                abs(math.log(mhz / known_mhz)) for mhz, known_mhz in clocks if mhz and known_mhz
            )

        among = sorted(matches or volts)
        known = " ".join(map(_option_text, among[:SHOWN]))
        asked = " ".join(
            f"{option} {mhz:g}"
            for option, mhz in zip(("--core-mhz", "--mem-mhz"), wanted, strict=True)
            if mhz is not None
        )
        fits_what = "fits several settings"
        if not matches and among:
            nearest = _option_text(min(among, key=distance))
            fits_what = f"is at no setting of known voltage; the nearest is {nearest}"
        raise ArgumentError(
            f"{fit.site}: {asked} {fits_what}; give --core-mhz and --mem-mhz of one of: "
            f"{known}{' ...' if len(among) > SHOWN else ''}"
        )
    return setting_costs(fit, source, matches[0], volts[matches[0]])


def _clock_text(mhz: float | None) -> str:
    return "as found" if mhz is None else f"{mhz:g}"


def _option_text(setting: Setting) -> str:
    return ",".join(_clock_text(mhz) for mhz in setting.clocks)


def setting_costs(
    fit: Fit, source: FitSource, setting: Setting, volts: tuple[float, float]
) -> CostsAtSetting:
    """The costs at a setting of known voltages."""
    costs = costs_at(fit, setting, *volts)
    rows = [
        OperationCost(f"energy_{name}", value, "pJ", low, high)
        for name, (value, low, high) in costs.operation_pj.items()
    ]
    power_w, low_w, high_w = costs.constant_w
    rows.append(OperationCost("constant_power", power_w, "W", low_w, high_w))
    return CostsAtSetting(
        site=fit.site,
        simulated=fit.simulated,
        fit=source,
        setting=setting,
        core_v=costs.core_v,
        mem_v=costs.mem_v,
        costs=tuple(rows),
    )
