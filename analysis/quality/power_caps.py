"""The checks of power limits: swept under another name, and not kept."""

from __future__ import annotations

import re

import numpy as np

from analysis.quality.clocks import HELD_CLOCK, off_nominal
from analysis.quality.finding import Finding
from analysis.quality.noise import MAD_TO_SIGMA, UNKNOWN_NOISE
from analysis.quality.rows import Rows

CAP_KEY = re.compile(
    r"(power|pwr)_?(limit|cap)(_?(m|u|micro)?w(atts?)?)?|pl[1-4]?(_?u?w)?|cap_?w|tdp(_?w)?"
)


def power_caps(rows: Rows, labels: dict[str, list[str]]) -> list[Finding]:
    """A sweep over power limits that no column ``power_limit_w`` has: the clocks follow the load,
    and rows of different limits would count as repeats of one setting."""
    caps: dict[str, np.ndarray] = {}
    for name in {key for kernel in rows.instances for key in kernel.params}:
        if _is_cap(name):
            of_kernel = np.array(
                [str(kernel.params.get(name, "")) for kernel in rows.instances], object
            )
            caps[name] = of_kernel[rows.kernel]
    caps |= {name: np.array(of, object) for name, of in labels.items() if _is_cap(name)}
    swept = {
        name: sorted(set(values.tolist()) - {""})
        for name, values in caps.items()
        if len(set(values.tolist()) - {""}) > 1
    }
    off = off_nominal(rows)
    still = len(rows.settings) == 1
    remedy = "import it as power_limit_w, and the clocks that were read as core_mhz_achieved"
    if swept:
        name, values = next(iter(swept.items()))
        having = np.flatnonzero(caps[name] != "")
        what = f"{name} was swept ({len(values)} values: {', '.join(values[:4])}...)"
        if still or off.any():
            why = "the clocks were not" if still else "the achieved clocks are not the nominal ones"
            return [
                Finding(
                    "power caps",
                    "refused",
                    rows.index[having],
                    f"{what} and {why}: under a cap the clock follows the load, so energy "
                    f"cannot be given by clock; {remedy}",
                )
            ]
        return [
            Finding(
                "power caps",
                "warning",
                rows.index[having],
                f"{what} beside the clocks: under a cap the nominal clock may not be reached; "
                f"{remedy}",
            )
        ]
    read = rows.achieved_mhz[:, 0]
    # Rows count at the clocks that they ran at, where these were read and differ.
    if still and not (np.isfinite(read).all() and np.ptp(read) > HELD_CLOCK * read.max()):
        spread = _spread_at_one_setting(rows)
        if spread:
            return [
                Finding(
                    "power caps",
                    "refused",
                    rows.index,
                    f"all {len(rows.index)} rows are at one setting "
                    f"({rows.setting_text(0)}), yet {spread}: something else was swept, such "
                    f"as a power cap; {remedy}",
                )
            ]
    return []


OVER_LIMIT = 1.02
"""A mean power above the limit by less than this may be the meter's."""


OTHER_UNIT = (1 / 300, 10.0)
"""Power over limit, the median of all rows: beyond these one of the two is in another unit."""


def limits_not_kept(rows: Rows) -> list[Finding]:
    """Rows that draw more than their power limit: a limit is a request, and what was measured
    counts. Limits in another unit than the power are refused."""
    above = np.exp(rows.values["power"]) / rows.limit_w
    known = np.flatnonzero(np.isfinite(above))
    usual = float(np.median(above[known])) if len(known) else 1.0
    if not OTHER_UNIT[0] < usual < OTHER_UNIT[1]:
        return [
            Finding(
                "power limit",
                "refused",
                rows.index[known],
                f"rows draw {usual:.3g} times their power limit (the median of {len(known)}): the "
                f"limits must be in W, and energies in J",
            )
        ]
    off = np.flatnonzero(above > OVER_LIMIT)
    if not len(off):
        return []
    worst = off[np.argmax(above[off])]
    limited = int(np.isfinite(rows.limit_w).sum())
    return [
        Finding(
            "power limit",
            "note",
            rows.index[off],
            f"{len(off)} of {limited} rows draw more than their power limit, by up to "
            f"{100.0 * (above[worst] - 1.0):.0f} % "
            f"({rows.where(rows.kernel[worst], rows.setting[worst])}); what was measured counts",
        )
    ]


def _is_cap(name: str) -> bool:
    return CAP_KEY.fullmatch(name.lower().replace("-", "_").replace(" ", "_")) is not None


def _spread_at_one_setting(rows: Rows) -> str:
    """How power varies within kernels at one setting; empty where it hardly does.

    Noise alone neither makes a slower run draw less every time, nor leaves steps in the power
    with several rows on each, nor goes up or down from row to row.
    """
    import pandas as pd  # noqa: PLC0415  (few tables have one setting)

    frame = pd.DataFrame({"kernel": rows.kernel, **rows.values})
    wide, slower, ordered, stepped = [], [], [], []
    for _, of_kernel in frame.groupby("kernel"):
        if len(of_kernel) < 6:
            continue
        power = of_kernel["power"].to_numpy()
        away = power - np.median(power)
        wide.append(MAD_TO_SIGMA * float(np.median(np.abs(away))))
        stepped.append(_steps(np.sort(power)))
        rank = of_kernel[["time", "power"]].rank()
        with np.errstate(invalid="ignore"):  # equal times correlate with nothing
            slower.append(float(np.corrcoef(rank["time"], rank["power"])[0, 1]) < -0.8)
        ordered.append(np.mean(np.diff(power) ** 2) < 0.25 * np.mean(away**2))
    if not wide or float(np.median(wide)) < UNKNOWN_NOISE:
        return ""
    varies = f"power varies by {100 * float(np.median(wide)):.0f} % within kernels"
    for seen, share, how in (
        (stepped, 0.5, "in steps"),
        (slower, 0.25, "against the run time"),
        (ordered, 0.5, "from row to row in one direction"),
    ):
        if sum(seen) > share * len(seen):
            return f"{varies}, {how}"
    return ""


def _steps(power: np.ndarray) -> bool:
    """Whether sorted values lie on levels of two or more, far apart for what lies on them."""
    gaps = np.diff(power)
    cuts = np.flatnonzero(gaps > max(UNKNOWN_NOISE, 3.0 * float(np.median(gaps)))) + 1
    levels = [level for level in np.split(power, cuts) if len(level) > 1]
    if len(levels) < 2 or sum(map(len, levels)) < 0.8 * len(power):
        return False
    within = np.sqrt(np.mean(np.concatenate([(level - level.mean()) ** 2 for level in levels])))
    return bool(gaps[cuts - 1].min() > 3.0 * within)
