"""The rooflines of a site at a setting that a user names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from analysis.rooflines.at_setting import CapTooLow, NoPairs, rooflines_at
from analysis.rooflines.roofline import fastest_setting
from campaign.errors import BadArgument
from dvfs.setting import Setting

if TYPE_CHECKING:
    from analysis.energy.fitted import Fit
    from analysis.measurements.observations import Observations

SHOWN = 16
"""Settings that an error names."""


def site_rooflines(
    data: Observations, fit: Fit | None, setting: Setting | str | None, cap_w: float | None
) -> dict[str, Any]:
    """What ``campaign roofline --json`` prints; ``setting``: by default the fastest.

    Raises:
        BadArgument: the setting was not measured, or not by kernels of varied intensity; or the
            cap is too low.
    """
    index = fastest_setting(data) if setting is None else _setting_index(data, setting)
    try:
        return rooflines_at(data, index, fit, cap_w)
    except NoPairs as error:
        raise BadArgument(f"{data.site}: {error}") from None
    except CapTooLow as error:
        raise BadArgument(f"--cap-w: {error}") from None


def _setting_index(data: Observations, setting: Setting | str) -> int:
    wanted = setting.replace(" ", "") if isinstance(setting, str) else _setting_option(setting)
    known = [_setting_option(pair) for pair in data.settings]
    if wanted in known:
        return known.index(wanted)
    raise BadArgument(
        f"--setting: found {wanted!r}; must be one that {data.site} was measured at: "
        f"{' '.join(known[:SHOWN])}{' ...' if len(known) > SHOWN else ''}"
    )


def _setting_option(setting: Setting) -> str:
    return ",".join(f"{mhz:g}" for mhz in setting.clocks if mhz is not None) or "as-found"
