"""Every kind of term by its name, and a model's terms for given rows."""

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
    """The term that a fit's JSON names; ``kind``: a key of :data:`KINDS`.

    Raises:
        ValueError: the kind has no term of such a domain.
    """
    if domain not in KINDS[kind].domains:
        raise ValueError(f"a term of kind {kind} in domain {domain!r}")
    return KINDS[kind](domain, of)


def model_terms(
    data: Observations, model: str, estimated: bool
) -> tuple[list[Term], list[dict[str, str]]]:
    """The terms that these observations can have, and those left out with the reason.

    A term is left out when its column is the same as another's by construction: then one of
    the two stands for both, and ``dropped`` says which. With ``estimated`` voltages those vary
    that are estimated (:func:`analysis.energy.curves.voltage_varies`).
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
        of_kind, without = KINDS[kind].terms_for(data, Varying(volts, mhz))
        terms += of_kind
        dropped += without
    return terms, dropped


def _varies(values: np.ndarray) -> bool:
    if not len(values):
        return False
    least, most = np.fmin.reduce(values), np.fmax.reduce(values)  # NaN where all are
    return bool(most - least > 1e-9 * max(abs(least), abs(most)))


def design_matrix(data: Observations, terms: Sequence[Term]) -> np.ndarray:
    """float64 (rows, terms): joules that one unit of each coefficient adds to each row.

    Raises:
        FitError: a class of operations that a term pays for is not counted.
    """
    columns = np.zeros((len(data), len(terms)))
    for i, term in enumerate(terms):
        columns[:, i] = term.column(data)
    return columns


def sparse_design_matrix(data: Observations, terms: Sequence[Term]) -> sparse.csr_array:
    """:func:`design_matrix` without its zeros: columns of kernels have entries in their rows alone.

    Raises:
        FitError: a class of operations that a term pays for is not counted.
    """
    places: dict[type[Term], list[int]] = {}
    for i, term in enumerate(terms):
        places.setdefault(type(term), []).append(i)
    blocks = [kind.columns(data, [terms[i] for i in at]) for kind, at in places.items()]
    order = np.argsort(np.concatenate([np.zeros(0, np.int64), *places.values()]))
    empty = sparse.coo_array((len(data), 0))
    return sparse.hstack([empty, *blocks], format="csc")[:, order].tocsr()
