"""The cost of operations and of time at a setting, by a fit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from analysis.energy.fitted import costs_at
from analysis.energy.models import ESTIMATED
from campaign.results.tables import CostsAtSetting, OperationCost
from dvfs.errors import ArgumentError
from dvfs.setting import Setting, Volts

if TYPE_CHECKING:
    from analysis.energy.fitted import Fit
    from campaign.results.fits import FitSource

SHOWN = 8
"""The number of settings that an error names."""


def costs_at_clocks(
    fit: Fit,
    source: FitSource,
    volts: Volts,
    core_mhz: float | None,
    mem_mhz: float | None,
    mem_volts_known: bool,
) -> CostsAtSetting:
    """The costs at the setting with these clocks; None stands for any clock.

    ``volts``: the core and memory voltage of every setting whose voltages are known;
    ``mem_volts_known``: see :func:`setting_costs`.

    Raises:
        ArgumentError: no setting of known voltage has these clocks, or several have.
    """
    clocks_mhz = (core_mhz, mem_mhz)
    volts = {Setting(*setting.numbers[:3]): voltages for setting, voltages in volts.items()}
    axes = [k for k, mhz in enumerate(clocks_mhz) if mhz is not None]
    matches = [
        setting for setting in volts if all(setting.clocks[k] == clocks_mhz[k] for k in axes)
    ]
    if len(matches) != 1:
        if matches and len(axes) == 1:
            name = ("--mem-mhz", "--core-mhz")[axes[0]]
            other_mhz = [setting.clocks[1 - axes[0]] for setting in sorted(matches)]
            raise ArgumentError(
                f"{fit.site}: several settings have these clocks; also give {name}: "
                f"{', '.join(dict.fromkeys(map(_clock_text, other_mhz)))}"
            )

        def distance(setting: Setting) -> float:
            pairs = ((clocks_mhz[k], setting.clocks[k]) for k in axes)
            return sum(abs(math.log(mhz / near_mhz)) for mhz, near_mhz in pairs if mhz and near_mhz)

        settings = sorted(matches or volts)
        options = " ".join(map(_option_text, settings[:SHOWN]))
        requested = " ".join(
            f"{option} {mhz:g}"
            for option, mhz in zip(("--core-mhz", "--mem-mhz"), clocks_mhz, strict=True)
            if mhz is not None
        )
        problem = "fits several settings"
        if not matches and settings:
            nearest = _option_text(min(settings, key=distance))
            problem = f"is at no setting of known voltage; the nearest is {nearest}"
        raise ArgumentError(
            f"{fit.site}: {requested} {problem}; give --core-mhz and --mem-mhz of one of: "
            f"{options}{' ...' if len(settings) > SHOWN else ''}"
        )
    return setting_costs(fit, source, matches[0], volts[matches[0]], mem_volts_known)


def _clock_text(mhz: float | None) -> str:
    return "as found" if mhz is None else f"{mhz:g}"


def _option_text(setting: Setting) -> str:
    return ",".join(_clock_text(mhz) for mhz in setting.clocks)


def setting_costs(
    fit: Fit,
    source: FitSource,
    setting: Setting,
    volts: tuple[float, float],
    mem_volts_known: bool,
) -> CostsAtSetting:
    """The costs at a setting. ``volts``: its core and memory voltage; ``mem_volts_known``: whether
    the measurements have memory voltages."""
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
        core_v=None if fit.voltage == "unit" else costs.core_v,
        mem_v=costs.mem_v if mem_volts_known or fit.voltage in ESTIMATED else None,
        costs=tuple(rows),
    )
