"""Where the energy goes: the model's joules by class of operation, by domain and by phase.

The split of Choi & Vuduc 2016, figures 4, 6 and 7: eq. 9 is a sum, so each of its terms is a part
of the predicted energy, and parts of one class, domain or phase add up to that of the class,
domain or phase. Nothing is measured here; the parts of a row sum to the fit's prediction of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import xarray as xr

from analysis.energy.fitted import Fit
from analysis.energy.terms.term import COMPUTATION, CONSTANT, DATA, Term
from analysis.measurements.observations import Observations

DOMAINS = ("core", "memory", CONSTANT)
KINDS = (COMPUTATION, DATA, CONSTANT)


def term_energy_j(fitted: Fit, data: Observations) -> xr.Dataset:
    """Joules of each of the model's terms in each row: eq. 9 before it is summed.

    Returns:
        ``energy_j``, float64 (row, term), attribute ``units`` J; the coordinate ``term`` holds
        the coefficients' names. The sum over ``term`` is ``fitted.energy_j(data)``.
    """
    joules = fitted.parts_j(data)
    return _dataset(joules, "term", [term.name for term in fitted.terms], data)


def by_class(fitted: Fit, data: Observations) -> xr.Dataset:
    """Joules by what they are spent on (Choi & Vuduc 2016, figures 4 and 6).

    The classes of operations as the fit names them, ``core`` and ``memory`` for the lumped terms
    of kernels without counts, ``clock`` for the clock trees, ``constant`` for the power that no
    operation pays.

    Returns:
        ``energy_j``, float64 (row, part), J, and ``share``, float64 (row, part), its fraction of
        the row's prediction; NaN where a row's prediction is 0.
    """
    return _grouped(fitted, data, lambda term: term.part, "part")


def by_domain(fitted: Fit, data: Observations) -> xr.Dataset:
    """Joules by domain: ``core`` and ``memory`` for operations, ``constant`` for what time costs.

    Returns:
        ``energy_j`` (J) and ``share``, float64 (row, domain), as :func:`by_class` has them.
    """
    return _grouped(fitted, data, lambda term: term.domain_part, "domain", DOMAINS)


def by_kind(fitted: Fit, data: Observations) -> xr.Dataset:
    """Joules by ``computation``, ``data`` and ``constant`` power (Choi & Vuduc 2016, figure 7).

    A class that is counted in bytes moves data; every other one is computation. A lumped
    term counts as what its domain mostly does: the core's as computation, the memory's as data.

    Returns:
        ``energy_j`` (J) and ``share``, float64 (row, kind), as :func:`by_class` has them.
    """
    return _grouped(fitted, data, lambda term: term.nature, "kind", KINDS)


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
    labels = np.asarray(phase)
    if labels.shape != (len(data),):
        raise ValueError(
            f"phase needs one label a row: its shape is {labels.shape}, there are {len(data)} rows"
        )
    parts = by_class(fitted, data)
    names = list(dict.fromkeys(labels.tolist()))
    joules = np.array([parts["energy_j"].values[labels == name].sum(axis=0) for name in names])
    whole = joules.sum()
    share = joules / whole if whole > 0 else np.full(joules.shape, np.nan)
    dims = ("phase", "part")
    return xr.Dataset(
        {"energy_j": (dims, joules, {"units": "J"}), "share": (dims, share, {"units": "1"})},
        {"phase": names, "part": parts["part"].values},
        {"site": data.site, "simulated": data.simulated},
    )


def _grouped(
    fitted: Fit,
    data: Observations,
    group_of: Callable[[Term], str],
    dim: str,
    order: Sequence[str] = (),
) -> xr.Dataset:
    """The terms' joules summed by group; groups in ``order``, else in that of the terms."""
    joules = fitted.sparse_parts_j(data)
    groups = [group_of(term) for term in fitted.terms]
    names = [name for name in order if name in groups] if order else list(dict.fromkeys(groups))
    if not order:  # what time pays for last, and constant power at the end of every bar
        by_time = {group_of(term) for term in fitted.terms if term.pays_for == "time"}
        names.sort(key=lambda name: (name == CONSTANT, name in by_time))
    member = np.array([[group == name for name in names] for group in groups], float)
    return _dataset(joules @ member, dim, names, data)


def _dataset(joules: np.ndarray, dim: str, names: Sequence[str], data: Observations) -> xr.Dataset:
    whole = joules.sum(axis=1, keepdims=True)
    share = np.divide(joules, whole, out=np.full(joules.shape, np.nan), where=whole > 0)
    dims = ("row", dim)
    return xr.Dataset(
        {"energy_j": (dims, joules, {"units": "J"}), "share": (dims, share, {"units": "1"})},
        {
            "kernel": ("row", data.labels),
            "core_mhz": ("row", data.core_mhz, {"units": "MHz"}),
            "mem_mhz": ("row", data.mem_mhz, {"units": "MHz"}),
            dim: list(names),
        },
        {"site": data.site, "simulated": data.simulated},
    )
