"""Rows made ready to be fitted again and again: each form, without some settings, or reweighted."""

from __future__ import annotations

from dataclasses import dataclass

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
    equations; ``number``: int64 (rows,), its kernel there, -1 with counts; ``mhz``: float64
    (S, 2).
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
    training: Training, solution: FormSolution, rows: np.ndarray | None = None
) -> np.ndarray:
    """Predicted joules of ``rows`` (int64, by default all) of the training's own: float64."""
    equations, columns, block = training.equations, training.columns, training.block
    number, volts = training.number, (training.data.core_v, training.data.mem_v)
    if rows is not None:
        columns, block, number = columns[rows], block[rows], number[rows]
        volts = (volts[0][rows], volts[1][rows])
    size = len(equations.shared)
    if not training.estimated and not equations.kernels:
        return np.asarray(columns @ solution.value[:size])
    core_v = solution.curves.core.at(training.mhz[:, 0])
    mem_v = solution.curves.mem.at(training.mhz[:, 1])
    factor = core_v[:, None] ** equations.core_power * mem_v[:, None] ** equations.mem_power
    coefficients = factor * solution.value[:size]
    energy_j: np.ndarray = np.einsum("ij,ij->i", columns, coefficients[block])
    own = solution.value[size:].reshape(-1, 2)
    lumped = np.flatnonzero(number >= 0)
    if len(lumped):
        of, at = number[lumped], block[lumped]
        energy_j[lumped] += own[of, 0] * (volts[0][lumped] * core_v[at]) ** 2
        energy_j[lumped] += own[of, 1] * (volts[1][lumped] * mem_v[at]) ** 2
    return energy_j
