"""The breakdown of predicted energy: joules by class of operation, by domain and by phase.

The split of Choi & Vuduc 2016, figures 4, 6 and 7: eq. 9 is a sum, so each of its terms is a part
of the predicted energy, and the terms of one class, domain or phase add up. Nothing is measured
here; the parts of a row sum to its predicted energy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from analysis.energy.fitted import Fit
from analysis.energy.terms.term import COMPUTATION, CONSTANT, DATA, Term
from analysis.measurements.observations import Observations

if TYPE_CHECKING:
    import xarray as xr

DOMAINS = ("core", "memory", CONSTANT)
KINDS = (COMPUTATION, DATA, CONSTANT)


@dataclass(frozen=True)
class Parts:
    """Predicted energies of rows by part: ``energy_j``, float64 (rows, parts), J; ``names``: of
    the parts."""

    names: list[str]
    energy_j: np.ndarray

    @property
    def share(self) -> np.ndarray:
        """The shares of each row's predicted energy, float64 (rows, parts); NaN where it is 0."""
        whole = self.energy_j.sum(axis=1, keepdims=True)
        nothing = np.full(self.energy_j.shape, np.nan)
        return np.asarray(np.divide(self.energy_j, whole, out=nothing, where=whole > 0))


def term_energy_j(fitted: Fit, data: Observations) -> xr.Dataset:
    """Return the joules of each of the model's terms in each row: the summands of eq. 9.

    Returns:
        ``energy_j``, float64 (row, term), attribute ``units`` J; the coordinate ``term`` holds
        the coefficients' names. The sum over ``term`` is ``fitted.energy_j(data)``.
    """
    parts = Parts([term.name for term in fitted.terms], fitted.parts_j(data))
    return _dataset(parts, "term", data)


def by_class(fitted: Fit, data: Observations) -> xr.Dataset:
    """Return the joules by class of operations (Choi & Vuduc 2016, figures 4 and 6).

    The parts are the fit's classes of operations, ``core`` and ``memory`` for the lumped terms of
    kernels without counts, ``clock`` for the clock trees, and ``constant`` for constant power.

    Returns:
        ``energy_j``, float64 (row, part), J, and ``share``, float64 (row, part), its fraction of
        the row's prediction; NaN where a row's prediction is 0.
    """
    return _dataset(class_parts(fitted, data), "part", data)


def class_parts(fitted: Fit, data: Observations) -> Parts:
    """Return the arrays of :func:`by_class`, without importing xarray, which is slow."""
    return _grouped(fitted, data, lambda term: term.part)


def by_domain(fitted: Fit, data: Observations) -> xr.Dataset:
    """Return the joules by domain: ``core``, ``memory``, and ``constant`` for terms of time.

    Returns:
        ``energy_j`` (J) and ``share``, float64 (row, domain), as in :func:`by_class`.
    """
    parts = _grouped(fitted, data, lambda term: term.domain_part, DOMAINS)
    return _dataset(parts, "domain", data)


def by_kind(fitted: Fit, data: Observations) -> xr.Dataset:
    """Return the joules by ``computation``, ``data`` and ``constant`` power (Choi & Vuduc 2016,
    figure 7).

    A class that is counted in bytes moves data; every other class is computation. A lumped term of
    the core counts as computation, one of the memory as data.

    Returns:
        ``energy_j`` (J) and ``share``, float64 (row, kind), as in :func:`by_class`.
    """
    return _dataset(kind_parts(fitted, data), "kind", data)


def kind_parts(fitted: Fit, data: Observations) -> Parts:
    """Return the arrays of :func:`by_kind`."""
    return _grouped(fitted, data, lambda term: term.nature, KINDS)


def by_phase(fitted: Fit, data: Observations, phase: np.ndarray) -> xr.Dataset:
    """Return the joules by phase of an application, and by class within each (Choi & Vuduc 2016,
    section IV).

    ``phase``: (rows,), each row's label. All rows of a label are summed, repeats included.

    Returns:
        ``energy_j``, float64 (phase, part), J, phases in the order of their first rows, and
        ``share``, its fraction of the total.

    Raises:
        ValueError: ``phase`` does not have one label for each row.
    """
    import xarray as xr  # noqa: PLC0415

    labels = np.asarray(phase)
    if labels.shape != (len(data),):
        raise ValueError(
            f"phase needs one label a row: its shape is {labels.shape}, there are {len(data)} rows"
        )
    parts = class_parts(fitted, data)
    names = list(dict.fromkeys(labels.tolist()))
    joules = np.array([parts.energy_j[labels == name].sum(axis=0) for name in names])
    whole = joules.sum()
    share = joules / whole if whole > 0 else np.full(joules.shape, np.nan)
    dims = ("phase", "part")
    return xr.Dataset(
        {"energy_j": (dims, joules, {"units": "J"}), "share": (dims, share, {"units": "1"})},
        {"phase": names, "part": parts.names},
        {"site": data.site, "simulated": data.simulated},
    )


def _grouped(
    fitted: Fit,
    data: Observations,
    group_of: Callable[[Term], str],
    order: Sequence[str] = (),
) -> Parts:
    """Return the terms' joules summed by group; groups in ``order``, else in the terms' order."""
    joules = fitted.sparse_parts_j(data)
    groups = [group_of(term) for term in fitted.terms]
    names = [name for name in order if name in groups] if order else list(dict.fromkeys(groups))
    if not order:  # terms of time last, and constant power at the end of every bar
        by_time = {group_of(term) for term in fitted.terms if term.pays_for == "time"}
        names.sort(key=lambda name: (name == CONSTANT, name in by_time))
    member = np.array([[group == name for name in names] for group in groups], float)
    return Parts(names, joules @ member)


def _dataset(parts: Parts, dim: str, data: Observations) -> xr.Dataset:
    import xarray as xr  # noqa: PLC0415

    dims = ("row", dim)
    return xr.Dataset(
        {
            "energy_j": (dims, parts.energy_j, {"units": "J"}),
            "share": (dims, parts.share, {"units": "1"}),
        },
        {
            "kernel": ("row", data.labels),
            "core_mhz": ("row", data.core_mhz, {"units": "MHz"}),
            "mem_mhz": ("row", data.mem_mhz, {"units": "MHz"}),
            dim: parts.names,
        },
        {"site": data.site, "simulated": data.simulated},
    )
