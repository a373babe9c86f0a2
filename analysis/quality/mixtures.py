"""Measurements of a site that were made in several ways: by another protocol, another site file,
another version of the kernels. The store compares the records of how they were made."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from analysis.quality.finding import Finding

if TYPE_CHECKING:
    import xarray as xr

    from dvfs.dataset import Columns


def mixed_setups(dataset: xr.Dataset | Columns, site: str) -> list[Finding]:
    """A warning that names what differs between the set-ups of a site's rows.

    The Dataset's attribute ``mixtures`` is the JSON of a list of ``{"site", "setups", "text",
    "differences": [{"key", "values": [[value, measurements], ...]}]}``: a site that it names has
    measurements under several set-ups.
    """
    return [
        Finding(
            "mixed set-ups",
            "warning",
            np.zeros(0, np.int64),  # no row is the cause
            f"{mixture['text']}. Where that changes time or energy, fit each in a store of its own",
        )
        for mixture in json.loads(dataset.attrs.get("mixtures", "[]"))
        if mixture["site"] == site
    ]
