"""The kinds of terms by name, and a model's terms for given rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from analysis.energy.curves import voltage_varies
from analysis.energy.models import MODELS
from analysis.energy.terms.clock_tree import ClockTreeTerm
from analysis.energy.terms.constant import ConstantTerm
from analysis.energy.terms.leakage import LeakageTerm
from analysis.energy.terms.lumped import LumpedTerm
from analysis.energy.terms.operations import OperationTerm
from analysis.energy.terms.term import CORE, MEM, Term, Varying
from analysis.measurements.observations import Observations
from dvfs.setting import clock_columns

KINDS: dict[str, type[Term]] = {
    kind.kind: kind
    for kind in (
        OperationTerm,
        LumpedTerm,
        LeakageTerm,
        ConstantTerm,
        ClockTreeTerm,
    )
}


def term_of(kind: str, domain: str, of: str) -> Term:
    """Return the term that a fit's JSON names; ``kind``: a key of :data:`KINDS`.

    Raises:
        ValueError: the kind has no term of this domain.
    """
    if domain not in KINDS[kind].domains:
        raise ValueError(f"a term of kind {kind} in domain {domain!r}")
    return KINDS[kind](domain, of)


def model_terms(
    data: Observations, model: str, estimated: bool
) -> tuple[list[Term], list[dict[str, str]]]:
    """Return the terms of a model for these observations, and those left out with the reason.

    A term is left out where its column equals another's by construction: one term then stands for
    both, and the reason names it. With ``estimated`` voltages, the estimated ones vary
    (:func:`analysis.energy.curves.voltage_varies`).
    """
    mhz = {CORE: _varies(data.core_mhz), MEM: _varies(data.mem_mhz)}
    if estimated:
        clocks = [data.settings[s] for s in np.unique(data.setting)]
        volts = dict(zip((CORE, MEM), voltage_varies(clock_columns(clocks)), strict=True))
    else:
        volts = {CORE: _varies(data.core_v), MEM: _varies(data.mem_v)}
    terms: list[Term] = []
    dropped: list[dict[str, str]] = []
    for kind in MODELS[model]:
        kind_terms, left_out = KINDS[kind].terms_for(data, Varying(volts, mhz))
        terms += kind_terms
        dropped += left_out
    return terms, dropped


def _varies(values: np.ndarray) -> bool:
    if not len(values):
        return False
    least, most = np.fmin.reduce(values), np.fmax.reduce(values)  # NaN where all are
    return bool(most - least > 1e-9 * max(abs(least), abs(most)))


def design_matrix(data: Observations, terms: Sequence[Term]) -> np.ndarray:
    """Return float64 (rows, terms): joules that one unit of each coefficient adds to each row.

    Raises:
        FitError: no row counts a term's class of operations.
    """
    columns = np.zeros((len(data), len(terms)))
    for i, term in enumerate(terms):
        columns[:, i] = term.column(data)
    return columns


def sparse_design_matrix(data: Observations, terms: Sequence[Term]) -> sparse.csr_array:
    """Return :func:`design_matrix` as a sparse array.

    Raises:
        FitError: no row counts a term's class of operations.
    """
    positions: dict[type[Term], list[int]] = {}
    for i, term in enumerate(terms):
        positions.setdefault(type(term), []).append(i)
    blocks = [
        kind.columns(data, [terms[i] for i in indices]) for kind, indices in positions.items()
    ]
    order = np.argsort(np.concatenate([np.zeros(0, np.int64), *positions.values()]))
    empty = sparse.coo_array((len(data), 0))
    return sparse.hstack([empty, *blocks], format="csc")[:, order].tocsr()
