"""The checks of power limits: swept under another name, or exceeded."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from analysis.quality.clocks import HELD_CLOCK, off_nominal
from analysis.quality.finding import Finding
from analysis.quality.noise import MAD_TO_SIGMA, UNKNOWN_NOISE
from analysis.quality.rows import Rows

CAP_KEY = re.compile(
    r"(power|pwr)_?(limit|cap)(_?(m|u|micro)?w(atts?)?)?|pl[1-4]?(_?u?w)?|cap_?w|tdp(_?w)?"
)


def power_caps(rows: Rows, labels: dict[str, list[str]]) -> Iterator[Finding]:
    """A finding of a sweep over power limits that are not in ``power_limit_w``: clocks follow the
    load, and rows of different limits would count as repeats of one setting."""
    caps: dict[str, np.ndarray] = {}
    for name in {key for kernel in rows.instances for key in kernel.params}:
        if _is_cap(name):
            of_kernel = np.array(
                [str(kernel.params.get(name, "")) for kernel in rows.instances], object
            )
            caps[name] = of_kernel[rows.kernel]
    caps |= {name: np.array(values, object) for name, values in labels.items() if _is_cap(name)}
    distinct = {name: sorted(set(values.tolist()) - {""}) for name, values in caps.items()}
    swept = {name: values for name, values in distinct.items() if len(values) > 1}
    off = off_nominal(rows)
    fixed = len(rows.settings) == 1
    remedy = "import it as power_limit_w, and the clocks that were read as core_mhz_achieved"
    if swept:
        name, values = next(iter(swept.items()))
        capped = np.flatnonzero(caps[name] != "")
        refused = fixed or bool(off.any())
        beside = "the clocks were not" if fixed else "the achieved clocks are not the nominal ones"
        effect = (
            f"and {beside}: under a cap the clock follows the load, so energy cannot be given by "
            f"clock"
            if refused
            else "beside the clocks: under a cap the nominal clock may not be reached"
        )
        yield Finding(
            "power caps",
            "refused" if refused else "warning",
            rows.index[capped],
            f"{name} was swept ({len(values)} values: {', '.join(values[:4])}...) {effect}; "
            f"{remedy}",
        )
        return
    ran_mhz = rows.achieved_mhz[:, 0]
    # If the achieved clocks were read and differ, rows count at these.
    if fixed and not (np.isfinite(ran_mhz).all() and np.ptp(ran_mhz) > HELD_CLOCK * ran_mhz.max()):
        spread = _spread_at_one_setting(rows)
        if spread:
            yield Finding(
                "power caps",
                "refused",
                rows.index,
                f"all {len(rows.index)} rows are at one setting "
                f"({rows.setting_text(0)}), yet {spread}: something else was swept, such "
                f"as a power cap; {remedy}",
            )


OVER_LIMIT = 1.02
"""The ratio of mean power to limit up to which the excess may be the meter's error."""


OTHER_UNIT = (1 / 300, 10.0)
"""The range of the median power over limit, beyond which one of the two is in a wrong unit."""


def limits_not_kept(rows: Rows) -> Iterator[Finding]:
    """A finding of rows that draw more than their power limit: a limit is a request, and measured
    power counts. Limits in another unit than the power are refused."""
    ratio = np.exp(rows.values["power"]) / rows.limit_w
    valid = np.flatnonzero(np.isfinite(ratio))
    median = float(np.median(ratio[valid])) if len(valid) else 1.0
    if not OTHER_UNIT[0] < median < OTHER_UNIT[1]:
        yield Finding(
            "power limit",
            "refused",
            rows.index[valid],
            f"rows draw {median:.3g} times their power limit (the median of {len(valid)}): the "
            f"limits must be in W, and energies in J",
        )
        return
    above = np.flatnonzero(ratio > OVER_LIMIT)
    if not len(above):
        return
    worst = above[np.argmax(ratio[above])]
    limited = int(np.isfinite(rows.limit_w).sum())
    yield Finding(
        "power limit",
        "note",
        rows.index[above],
        f"{len(above)} of {limited} rows draw more than their power limit, by up to "
        f"{100.0 * (ratio[worst] - 1.0):.0f} % "
        f"({rows.where(rows.kernel[worst], rows.setting[worst])}); what was measured counts",
    )


def _is_cap(name: str) -> bool:
    return CAP_KEY.fullmatch(name.lower().replace("-", "_").replace(" ", "_")) is not None


def _spread_at_one_setting(rows: Rows) -> str:
    """How power varies within kernels at one setting, as text; empty if the cause may be noise.

    Noise alone does not make every slower run draw less, forms no steps with several rows on each,
    and does not rise or fall from row to row.
    """
    import pandas as pd  # noqa: PLC0415  (few tables have one setting)

    frame = pd.DataFrame({"kernel": rows.kernel, **rows.values})
    spreads, slower, ordered, stepped = [], [], [], []
    for _, kernel_rows in frame.groupby("kernel"):
        if len(kernel_rows) < 6:
            continue
        power = kernel_rows["power"].to_numpy()
        deviation = power - np.median(power)
        spreads.append(MAD_TO_SIGMA * float(np.median(np.abs(deviation))))
        stepped.append(_steps(np.sort(power)))
        rank = kernel_rows[["time", "power"]].rank()
        with np.errstate(invalid="ignore"):  # equal times correlate with nothing
            slower.append(float(np.corrcoef(rank["time"], rank["power"])[0, 1]) < -0.8)
        ordered.append(np.mean(np.diff(power) ** 2) < 0.25 * np.mean(deviation**2))
    if not spreads or float(np.median(spreads)) < UNKNOWN_NOISE:
        return ""
    varies = f"power varies by {100 * float(np.median(spreads)):.0f} % within kernels"
    for evidence, share, pattern in (
        (stepped, 0.5, "in steps"),
        (slower, 0.25, "against the run time"),
        (ordered, 0.5, "from row to row in one direction"),
    ):
        if sum(evidence) > share * len(evidence):
            return f"{varies}, {pattern}"
    return ""


def _steps(power: np.ndarray) -> bool:
    """Whether sorted values form two or more levels that are far apart compared to their widths."""
    gaps = np.diff(power)
    cuts = np.flatnonzero(gaps > max(UNKNOWN_NOISE, 3.0 * float(np.median(gaps)))) + 1
    levels = [level for level in np.split(power, cuts) if len(level) > 1]
    if len(levels) < 2 or sum(map(len, levels)) < 0.8 * len(power):
        return False
    within = np.sqrt(np.mean(np.concatenate([(level - level.mean()) ** 2 for level in levels])))
    return bool(gaps[cuts - 1].min() > 3.0 * within)
