"""Fitting the energy model: non-negative least squares on relative error, with intervals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import special

from analysis.energy.arrow_factor import ArrowColumns
from analysis.energy.choosing import FormChoice, choose
from analysis.energy.curves import at_voltage
from analysis.energy.fitted import CONFIDENCE, Fit
from analysis.energy.forms import Form, forms
from analysis.energy.intervals import (
    choosing_without_each_setting,
    coefficient_deviations,
    node_deviations,
    without_each_setting,
)
from analysis.energy.models import AUTO
from analysis.energy.remarks import inseparable, outliers
from analysis.energy.terms.registry import design_matrix
from analysis.energy.terms.term import MEM
from analysis.energy.training import (
    FormSolution,
    PreparedRows,
    Training,
    column_lengths,
    predict,
    prepare,
    solve_form,
)
from analysis.measurements.observations import FitError, Observations, by_clocks

HUBER = 1.345
"""Huber's constant: 95 % efficient where the errors are normal."""
ROBUST_ROUNDS = 12
ROUNDING = 1e-12
"""Of the measured energies: a coefficient that is worth less is 0 but for rounding."""


def fit(
    data: Observations,
    model: str = AUTO,
    voltage: str = AUTO,
    *,
    robust: bool = False,
    intervals: bool = True,
    part_of: PreparedRows | None = None,
) -> Fit:
    """Fit a site's coefficients.

    Minimises sum(w (E_predicted / E_measured - 1)^2) over coefficients >= 0, so that a kernel of
    a millijoule counts as much as one of a kilojoule. Where the measurements bring uncertainties
    of their own, w falls with them; ``robust`` also lowers w for rows far from the model (Huber).
    ``model`` and ``voltage``: names of :mod:`analysis.energy.models`; what they leave open is
    chosen by cross-validation (:func:`analysis.energy.choosing.choose`). With ``auto``, known
    voltages are not used where they ask for more coefficients than there are rows.

    Intervals and covariance come from leaving whole settings out: what the runs of one setting
    have in common (its true voltage, its temperature) is not averaged away by repeating them.
    Without each setting the form is chosen again, so that the intervals include the uncertainty
    of the choice. Where columns depend on each other exactly, the values are those with the least
    sum of (x_i |a_i|)^2 (:mod:`analysis.energy.arrow_solver`), and an interval has every value with
    which the model predicts the same. With three nodes or more, what the runs of a node have in
    common is added. ``part_of``: rows that include ``data``; their sums by setting are not made
    again.

    Raises:
        FitError: an unknown model or voltage, or fewer rows than terms.
    """
    if not len(data):
        raise FitError("no measurement is left to fit; measure more kernels or settings")
    data = by_clocks(data)
    candidates = forms(data, model, voltage)
    choice, weight = _chosen(data, candidates, robust, part_of)
    training, solution = choice.training, choice.solution
    if len(data) < len(training.terms):
        text = f"{len(training.terms)} coefficients cannot be fitted to {len(data)} measurements"
        if voltage == AUTO and choice.form.voltage == "known":
            # With V = 1 a kernel without counts has one coefficient in place of two.
            without = fit(data, model, "unit", robust=robust, intervals=intervals)
            if len(data) > len(without.terms):
                why = f"the voltages are not used, as with them {text}; {without.why}"
                return replace(without, why=why)
        raise FitError(f"{text}; measure more settings or kernels")
    length = column_lengths(training, solution)
    there = np.flatnonzero(length > 0).tolist()
    place = {training.equations.terms[i].name: i for i in there}
    dropped = training.dropped + [
        {"name": term.name, "why": "no measurement has any of it"}
        for term in training.terms
        if term.name not in place
    ]
    terms = [term for term in training.terms if term.name in place]
    order = np.array([place[term.name] for term in terms])
    value = solution.value[order]
    least = most = value
    deviations = with_choice = np.full((1, len(terms)), np.nan)
    condition_number, freedom = np.nan, np.inf
    confounded = []
    if intervals:
        of_nodes, freedom = node_deviations(choice, data, weight)
        left_out = without_each_setting(training, solution)
        by_setting = np.stack([without.value for without in left_out])
        chosen_again = choosing_without_each_setting(choice, by_setting, candidates, data, weight)
        deviations, with_choice = (
            np.vstack([coefficient_deviations(values), of_nodes])[:, order]
            for values in (by_setting, chosen_again)
        )
        columns, numbers = _columns(training, solution)
        factor = columns.factor()
        condition_number = factor.condition_number()
        lengths = columns.lengths()
        lengths[lengths == 0] = 1.0
        ends = factor.equally_good(solution.value[numbers] * lengths)
        least, most = ((end / lengths)[np.searchsorted(numbers, order)] for end in ends)
        q = columns.shared.shape[1]
        shared = [training.equations.terms[i] for i in numbers[:q]]
        confounded = inseparable(shared, columns.shared / lengths[:q])
    reach = special.stdtrit(freedom, (1 + CONFIDENCE) / 2) * np.sqrt((with_choice**2).sum(axis=0))
    high = np.maximum(value + reach, most)
    # What rounding leaves of a 0 is 0.
    high = np.where(high * length[order] < ROUNDING, 0.0, high)
    return Fit(
        site=data.site,
        simulated=data.simulated,
        model=choice.form.model,
        voltage=data.voltage if choice.form.voltage == "known" else choice.form.voltage,
        n=len(data),
        n_settings=len(training.mhz),
        terms=terms,
        value=value,
        low=np.maximum(np.minimum(value - reach, least), 0.0),
        high=high,
        deviations=deviations,
        deviations_with_choice=with_choice,
        condition_number=condition_number,
        dropped=dropped,
        curves=solution.curves,
        tried=choice.tried,
        why=choice.why,
        robust=robust,
        outliers=outliers(data, predict(training, [solution])[training.rows]) if intervals else [],
        confounded=confounded,
        unproven_clocks=data.unproven_clocks,
        stated_clocks=data.stated_clocks,
        estimated_energies=data.estimated_energies,
    )


def _columns(training: Training, solution: FormSolution) -> tuple[ArrowColumns, np.ndarray]:
    """The columns of the fit, each row divided by its energy, and their places among the
    equations' terms. Shared ones that are 0 are left out."""
    equations, rows = training.equations, training.rows
    data, columns = training.data.take(rows), training.columns[rows]
    if training.estimated:
        data = at_voltage(data, training.form.voltage, solution.curves)
        columns = design_matrix(data, equations.shared)
    filled = np.flatnonzero(columns.any(axis=0))
    has_mem = any(term.pays_for == "kernel" and term.domain == MEM for term in training.terms)
    own = np.column_stack([data.core_v**2, data.mem_v**2 * has_mem])
    energy_j = data.energy_j[:, None]
    arrow = ArrowColumns(
        columns[:, filled] / energy_j, own / energy_j, training.number[rows], len(equations.kernels)
    )
    kernels = np.arange(len(equations.shared), len(equations.terms))
    return arrow, np.concatenate([filled, kernels])


def _chosen(
    data: Observations, candidates: list[Form], robust: bool, part_of: PreparedRows | None
) -> tuple[FormChoice, np.ndarray | None]:
    """The form with its solution, and the rows' weights, None where all count the same."""
    choice = choose(data, candidates, part_of=part_of)
    known = data.energy_std_j is not None and bool(np.isfinite(data.energy_std_j).any())
    if not (known or robust):
        return choice, None
    weight = np.ones(len(data))
    for _ in range(ROBUST_ROUNDS if robust else 2):
        predicted_j = predict(choice.training, [choice.solution])[choice.training.rows]
        residual = predicted_j / data.energy_j - 1.0
        fresh = _own_weight(data, residual) if known else np.ones(len(data))
        if robust:
            deviation = np.abs(residual) * np.sqrt(fresh)
            spread = float(np.median(deviation)) / special.ndtri(0.75)
            far = deviation > HUBER * spread
            fresh[far] *= HUBER * spread / deviation[far]
        settled = bool(np.max(np.abs(fresh - weight)) < 1e-3)
        weight = fresh
        if settled:
            break
        training = prepare(data, choice.form, weight)
        solution = solve_form(training, None, choice.solution)
        choice = replace(choice, training=training, solution=solution)
    return choice, weight


def _own_weight(data: Observations, residual: np.ndarray) -> np.ndarray:
    """Weights from the measurements' own relative uncertainties, 1 for the surest.

    A residual's variance is the model's plus the measurement's own; the model's is what the
    residuals have beyond the measurements' (by moments). A row without one has the median.
    """
    assert data.energy_std_j is not None  # noqa: S101
    own = (data.energy_std_j / data.energy_j) ** 2
    own = np.where(np.isfinite(own), own, np.nanmedian(own))
    of_model = max(float(np.mean(residual**2) - np.mean(own)), 0.0)
    variance = of_model + np.maximum(own, 1e-12)
    return np.asarray(variance.min() / variance)
