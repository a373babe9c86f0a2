"""Where the energy goes: the model's joules by class of operation, by domain and by phase.

The split of Choi & Vuduc 2016, figures 4, 6 and 7: eq. 9 is a sum, so each of its terms is a part
of the predicted energy, and parts of one class, domain or phase add up to that of the class,
domain or phase. Nothing is measured here; the parts of a row sum to the fit's prediction of it.
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
    """Predicted energies of rows by part: ``energy_j``, float64 (rows, parts), J, the parts as
    ``names`` has them."""

    names: list[str]
    energy_j: np.ndarray

    @property
    def share(self) -> np.ndarray:
        """Of each row's prediction, float64 (rows, parts); NaN where that is 0."""
        whole = self.energy_j.sum(axis=1, keepdims=True)
        nothing = np.full(self.energy_j.shape, np.nan)
        return np.asarray(np.divide(self.energy_j, whole, out=nothing, where=whole > 0))


def term_energy_j(fitted: Fit, data: Observations) -> xr.Dataset:
    """Joules of each of the model's terms in each row: eq. 9 before it is summed.

    Returns:
        ``energy_j``, float64 (row, term), attribute ``units`` J; the coordinate ``term`` holds
        the coefficients' names. The sum over ``term`` is ``fitted.energy_j(data)``.
    """
    parts = Parts([term.name for term in fitted.terms], fitted.parts_j(data))
    return _dataset(parts, "term", data)


def by_class(fitted: Fit, data: Observations) -> xr.Dataset:
    """Joules by what they are spent on (Choi & Vuduc 2016, figures 4 and 6).

    The classes of operations as the fit names them, ``core`` and ``memory`` for the lumped terms
    of kernels without counts, ``clock`` for the clock trees, ``constant`` for the power that no
    operation pays.

    Returns:
        ``energy_j``, float64 (row, part), J, and ``share``, float64 (row, part), its fraction of
        the row's prediction; NaN where a row's prediction is 0.
    """
    return _dataset(class_parts(fitted, data), "part", data)


def class_parts(fitted: Fit, data: Observations) -> Parts:
    """The arrays of :func:`by_class`: xarray takes longer to import than a page to draw."""
    return _grouped(fitted, data, lambda term: term.part)


def by_domain(fitted: Fit, data: Observations) -> xr.Dataset:
    """Joules by domain: ``core`` and ``memory`` for operations, ``constant`` for what time costs.

    Returns:
        ``energy_j`` (J) and ``share``, float64 (row, domain), as :func:`by_class` has them.
    """
    parts = _grouped(fitted, data, lambda term: term.domain_part, DOMAINS)
    return _dataset(parts, "domain", data)


def by_kind(fitted: Fit, data: Observations) -> xr.Dataset:
    """Joules by ``computation``, ``data`` and ``constant`` power (Choi & Vuduc 2016, figure 7).

    A class that is counted in bytes moves data; every other one is computation. A lumped
    term counts as what its domain mostly does: the core's as computation, the memory's as data.

    Returns:
        ``energy_j`` (J) and ``share``, float64 (row, kind), as :func:`by_class` has them.
    """
    return _dataset(kind_parts(fitted, data), "kind", data)


def kind_parts(fitted: Fit, data: Observations) -> Parts:
    """The arrays of :func:`by_kind`."""
    return _grouped(fitted, data, lambda term: term.nature, KINDS)


def by_phase(fitted: Fit, data: Observations, phase: np.ndarray) -> xr.Dataset:
    """Joules by phase of an application, and by class within each (Choi & Vuduc 2016, section IV).

    ``phase``: (rows,), each row's label; rows of one label are summed, and repeats of a kernel
    at a setting count as often as they stand in ``data``.

    Returns:
        ``energy_j``, float64 (phase, part), J, phases in the order in which they first stand,
        and ``share``, its fraction of the whole sum.

    Raises:
        ValueError: not one label a row.
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
    """The terms' joules summed by group; groups in ``order``, else in that of the terms."""
    joules = fitted.sparse_parts_j(data)
    groups = [group_of(term) for term in fitted.terms]
    names = [name for name in order if name in groups] if order else list(dict.fromkeys(groups))
    if not order:  # what time pays for last, and constant power at the end of every bar
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
