"""Rows made ready to be fitted again and again: each form, without some settings, or reweighted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from analysis.energy.curves import NO_CURVES, Curves, at_voltage
from analysis.energy.forms import Form
from analysis.energy.models import ESTIMATED
from analysis.energy.normal_equations import (
    NormalEquations,
    normal_equations,
    settings_of,
    solve,
)
from analysis.energy.terms.registry import design_matrix, model_terms
from analysis.energy.terms.term import Term
from analysis.energy.voltage import curve_numbers, estimate_curves, neighbouring_knees
from analysis.measurements.cells import kernel_numbers
from analysis.measurements.observations import Observations


@dataclass(frozen=True, kw_only=True)
class Training:
    """The rows of one form, with their sums.

    ``data``: with the voltages of the form, 1 where they are estimated. ``columns``: float64
    (rows, p), the shared terms' joules; ``block``: int64 (rows,), each row's setting in the
    equations, -1 for a row that is left out; ``number``: int64 (rows,), its kernel there, -1 with
    counts; ``mhz``: float64 (S, 2).
    """

    form: Form
    data: Observations
    terms: list[Term]
    dropped: list[dict[str, str]]
    equations: NormalEquations
    columns: np.ndarray
    block: np.ndarray
    number: np.ndarray
    mhz: np.ndarray

    @property
    def estimated(self) -> bool:
        """Whether the form's voltages are estimated."""
        return self.form.voltage in ESTIMATED

    @property
    def numbers(self) -> int:
        """How many numbers are estimated: coefficients and those of the curves."""
        curves = curve_numbers(self.form.voltage, self.mhz) if self.estimated else 0
        return len(self.terms) + curves

    @property
    def rows(self) -> np.ndarray:
        """The rows that are not left out, int64."""
        return np.flatnonzero(self.block >= 0)

    def by_setting(self, values: np.ndarray) -> np.ndarray:
        """The mean of ``values``, float64 (rows,), over the rows of each setting: (S,)."""
        place = self.block + 1
        n = np.bincount(place)[1:]
        return np.asarray(np.bincount(place, values)[1:] / n)


@dataclass(frozen=True)
class FormSolution:
    """A form's coefficients, in the equations' order, and its curves."""

    value: np.ndarray
    curves: Curves


def prepare(data: Observations, form: Form, weight: np.ndarray | None = None) -> Training:
    """Make ``data`` ready for a form; ``weight``: float64 (rows,), 1 by default."""
    data = at_voltage(data, form.voltage)
    terms, dropped = model_terms(data, form.model, form.voltage in ESTIMATED)
    columns = design_matrix(data, [term for term in terms if term.pays_for != "kernel"])
    equations = normal_equations(data, terms, weight, columns)
    return Training(
        form=form,
        data=data,
        terms=terms,
        dropped=dropped,
        equations=equations,
        columns=columns,
        block=settings_of(data)[1],
        number=kernel_numbers(data, equations.kernels),
        mhz=data.mhz[equations.settings],
    )


class PreparedRows:
    """Rows that are fitted again and again without some of their settings: their sums by setting
    are made once for each form."""

    def __init__(self, data: Observations) -> None:
        self._data = data
        self._of_form: dict[Form, Training] = {}

    def part(self, data: Observations, form: Form) -> Training | None:
        """``prepare(data, form)`` by these sums: it has all rows, and those that ``data`` lacks are
        left out. None where ``data`` is no part of these sums.

        ``data``: some of the rows, in their order. They are a part of the sums where they are all
        rows of their settings, and have the terms that all rows have.
        """
        if data.settings is not self._data.settings:
            return None
        if form not in self._of_form:
            self._of_form[form] = prepare(self._data, form)
        whole = self._of_form[form]
        kept = np.isin(whole.equations.settings, np.flatnonzero(np.bincount(data.setting)))
        block = np.where(kept, np.cumsum(kept) - 1, -1)[whole.block]
        data = at_voltage(data, form.voltage)
        terms, dropped = model_terms(data, form.model, form.voltage in ESTIMATED)
        if np.count_nonzero(block >= 0) != len(data) or terms != whole.terms:
            return None
        return replace(
            whole,
            dropped=dropped,
            equations=whole.equations.of_settings(kept),
            block=block,
            mhz=whole.mhz[kept],
        )


def solve_form(
    training: Training,
    weight: np.ndarray | None = None,
    start: FormSolution | None = None,
    other_knees: bool = False,
) -> FormSolution:
    """The coefficients, and the curves where they are estimated.

    ``weight`` (S,): how often each setting counts; ``start``: the solution of a similar problem.
    With ``other_knees`` the search also begins with the knees beside those of ``start``: slower,
    and seldom left in a minimum that is not the least.
    """
    equations = training.equations
    if not training.estimated:
        first = None if start is None else start.value
        return FormSolution(solve(equations, weight, start=first).value, NO_CURVES)
    family, mhz = training.form.voltage, training.mhz
    starts = [] if start is None else [start.curves.numbers]
    if start is not None and other_knees:
        starts += neighbouring_knees(family, mhz, start.curves.numbers)
    curves = estimate_curves(family, equations, mhz, weight, starts)
    core_v, mem_v = curves.core.at(mhz[:, 0]), curves.mem.at(mhz[:, 1])
    return FormSolution(solve(equations, weight, core_v, mem_v).value, curves)


def predict(
    training: Training, solutions: Sequence[FormSolution], of: np.ndarray | None = None
) -> np.ndarray:
    """Predicted joules of the training's rows, float64 (rows,). The values of rows that are left
    out mean nothing.

    ``of``: int64 (S,), which of the solutions predicts each setting; by default the first.
    """
    equations = training.equations
    size = len(equations.shared)
    of = np.zeros(len(training.mhz), np.int64) if of is None else of
    value = np.array([solution.value for solution in solutions])
    core_v, mem_v = (volts[of, np.arange(len(of))] for volts in _curves_at(training, solutions))
    factor = core_v[:, None] ** equations.core_power * mem_v[:, None] ** equations.mem_power
    coefficients = factor * value[of, :size]
    energy_j: np.ndarray = np.einsum("ij,ij->i", training.columns, coefficients[training.block])
    lumped = np.flatnonzero(training.number >= 0)
    if len(lumped):
        at = training.block[lumped]
        own = value[:, size:].reshape(len(solutions), -1, 2)[of[at], training.number[lumped]]
        energy_j[lumped] += own[:, 0] * (training.data.core_v[lumped] * core_v[at]) ** 2
        energy_j[lumped] += own[:, 1] * (training.data.mem_v[lumped] * mem_v[at]) ** 2
    return energy_j


def column_lengths(training: Training, solution: FormSolution) -> np.ndarray:
    """The root of the sum of squares of each term's column, each row divided by its energy and
    weighted: float64, in the order of the equations' ``terms``."""
    equations = training.equations
    (core_v,), (mem_v,) = _curves_at(training, [solution])
    factor = core_v[:, None] ** equations.core_power * mem_v[:, None] ** equations.mem_power
    shared = (factor**2 * np.diagonal(equations.gram, axis1=1, axis2=2)).sum(axis=0)
    setting = np.searchsorted(equations.cell_end, np.arange(len(equations.kernel)), side="right")
    own = [
        np.bincount(equations.kernel, v[setting] ** 4 * gram, len(equations.kernels))
        for v, gram in zip(
            (core_v, mem_v), np.diagonal(equations.own_gram, axis1=1, axis2=2).T, strict=True
        )
    ]
    return np.asarray(np.sqrt(np.concatenate([shared, np.column_stack(own).ravel()])))


def _curves_at(
    training: Training, solutions: Sequence[FormSolution]
) -> tuple[np.ndarray, np.ndarray]:
    """The core's and the memory's relative voltages by the curves of each solution, float64
    (solutions, S) each."""
    core_mhz, mem_mhz = training.mhz.T
    return (
        np.array([solution.curves.core.at(core_mhz) for solution in solutions]),
        np.array([solution.curves.mem.at(mem_mhz) for solution in solutions]),
    )
