"""The breakdown of predicted energy: joules by class of operation, by kind and by phase.

The split of Choi & Vuduc 2016, figures 4, 6 and 7: eq. 9 is a sum, so each of its terms is a part
of the predicted energy, and the terms of one class, kind or phase add up. Nothing is measured
here; the parts of a row sum to its predicted energy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.energy.fitted import Fit
from analysis.energy.terms.term import COMPUTATION, CONSTANT, DATA, Term
from analysis.measurements.observations import Observations

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


def class_parts(fitted: Fit, data: Observations) -> Parts:
    """The joules of each row by class of operations (Choi & Vuduc 2016, figures 4 and 6).

    The parts are the fit's classes of operations, ``core`` and ``memory`` for the lumped terms of
    kernels without counts, ``clock`` for the clock trees, and ``constant`` for constant power.
    """
    return _grouped(fitted, data, lambda term: term.part)


def kind_parts(fitted: Fit, data: Observations) -> Parts:
    """The joules of each row by ``computation``, ``data`` and ``constant`` power (Choi & Vuduc
    2016, figure 7).

    A class that is counted in bytes moves data; every other class is computation. A lumped term of
    the core counts as computation, one of the memory as data.
    """
    return _grouped(fitted, data, lambda term: term.nature, KINDS)


def phase_parts(fitted: Fit, data: Observations, phase: np.ndarray) -> tuple[list[str], Parts]:
    """The phases of an application, in the order of their first rows, and the joules of each by
    class (Choi & Vuduc 2016, section IV).

    ``phase``: (rows,), each row's label. All rows of a label are summed, repeats included.
    """
    parts = class_parts(fitted, data)
    phases = list(dict.fromkeys(phase.tolist()))
    joules = np.array([parts.energy_j[phase == name].sum(axis=0) for name in phases])
    return phases, Parts(parts.names, joules)


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
