"""The checks of the origins of measurements: unproven clocks, estimated or replayed energies, and
different set-ups.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from analysis.measurements.provenance import UNPROVEN, estimated_energies
from analysis.quality.finding import Finding, first_named
from analysis.quality.rows import Rows
from dvfs.dataset import RECORDED_PREFIX, Columns

CLOCK_PROOF = "clock proof"
ENERGY_ORIGIN = "energy origin"


def unproven_clocks(rows: Rows) -> Iterator[Finding]:
    """A finding of the rows with unproven clocks, if the site has several settings.

    All these rows may have run at one clock: their differences are then no effect of the clock.
    """
    unproven = np.flatnonzero(rows.clock_proof == UNPROVEN)
    if not len(unproven) or len(rows.mhz) < 2:
        return
    settings = [rows.setting_text(s) for s in np.unique(rows.setting[unproven])]
    n_kernels = len(np.unique(rows.kernel[unproven]))
    yield Finding(
        CLOCK_PROOF,
        "refused",
        rows.index[unproven],
        f"nothing showed at which clocks {len(unproven)} of {len(rows.index)} rows ran "
        f"({n_kernels} kernels; {first_named(settings)}), so these settings may be one and the "
        f"same; see `campaign doctor` for what can read or set the clocks, or accept them as "
        f"they were asked for with --accept-unproven (results will say so)",
    )


def estimated(columns: Columns, rows: Rows) -> Iterator[Finding]:
    """A finding of the rows with estimated energies: a fit of them would model the estimate."""
    origins = estimated_energies(columns, rows.index)
    bad = np.flatnonzero(origins != "")
    if not len(bad):
        return
    reasons = first_named(sorted(set(origins[bad].tolist())))
    yield Finding(
        ENERGY_ORIGIN,
        "refused",
        rows.index[bad],
        f"the energies of {len(bad)} of {len(rows.index)} rows are estimated, not measured "
        f"({reasons}); measure them with a meter, or accept them with --accept-unproven "
        "(results will say so)",
    )


def recorded_energies(columns: Columns, rows: Rows) -> Iterator[Finding]:
    """A finding of the rows whose energy comes from a channel of the meter ``recorded``."""
    meters = columns.texts("meters")
    replayed = meters.array(bool, [_is_replayed(str(text)) for text in meters.values])[rows.index]
    if not replayed.any():
        return
    yield Finding(
        "meter",
        "warning",
        rows.index[replayed],
        f"in {replayed.sum()} rows the energy is replayed from a recording (meter recorded): "
        "it is of the machine and the moment of that recording, and no measurement of these "
        "kernels; use it for rehearsals only",
    )


def _is_replayed(meters: str) -> bool:
    if RECORDED_PREFIX not in meters:
        return False
    return any(
        RECORDED_PREFIX in name and isinstance(channel, dict) and channel.get("counts", True)
        for name, channel in json.loads(meters).items()
    )


def mixed_setups(columns: Columns, site: str) -> list[Finding]:
    """A warning that names the differences between the set-ups of a site's rows.

    The columns' attribute ``mixtures`` is the JSON of a list of ``{"site", "setups", "text",
    "differences": [{"key", "values": [[value, measurements], ...]}]}``, one for each site with
    measurements under several set-ups.
    """
    return [
        Finding(
            "mixed set-ups",
            "warning",
            np.zeros(0, np.int64),  # no row is the cause
            f"{mixture['text']}. Where that changes time or energy, fit each in a store of its own",
        )
        for mixture in json.loads(columns.attrs.get("mixtures", "[]"))
        if mixture["site"] == site
    ]
