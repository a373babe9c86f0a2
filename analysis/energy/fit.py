"""Fitting the energy model: non-negative least squares on relative error, the choice of a form, and
intervals.

A form is chosen by cross-validation of the fitted rows, by the one-standard-error rule. Every form
predicts each group of settings from a fit without that group. The best form has the least mean
relative error; the fit takes the simplest form whose error is at most one standard error larger
(Breiman, Friedman, Olshen and Stone, Classification and Regression Trees, 1984, section 3.4.3). The
standard error is of the difference between the two forms, over settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from analysis.costs.linear_cost import grouped
from analysis.energy.arrow_solver import mean_errors, row_products
from analysis.energy.curves import NO_CURVES, Curves, at_voltage
from analysis.energy.fitted import CONFIDENCE, Fit, Form, TriedForm, forms
from analysis.energy.models import AUTO, ESTIMATED
from analysis.energy.normal_equations import (
    ArrowColumns,
    NormalEquations,
    normal_equations,
    settings_of,
    solve,
)
from analysis.energy.terms.registry import design_matrix, model_terms
from analysis.energy.terms.term import MEM, Term
from analysis.energy.voltage import curve_numbers, estimate_curves, neighbouring_knees
from analysis.measurements.observations import (
    FitError,
    Observations,
    by_clocks,
    kernel_numbers,
    setting_text,
)
from dvfs.groups import Groups
from dvfs.setting import Setting

GROUPS = 8
"""The number of folds; with fewer settings each setting is a fold."""
SEED = 19840101
NEGLIGIBLE_PCT = 0.01
"""A smaller difference of errors counts as none: on noise-free data it is rounding."""
MIN_SETTINGS = 3
"""With fewer settings no form can be cross-validated. The fit then takes all terms, as every
synchronous chip has a clock tree and unneeded coefficients come out as 0, and the simplest
voltage."""
MIN_SETTINGS_FOR_INTERVALS = 3
MIN_NODES_FOR_INTERVALS = 3
OUT_OF_REACH = 3.0
"""A form that is more than so many standard errors behind the best is not tried again when a
setting is left out."""
OUTLIER_DEVIATIONS = 6.0
"""A row farther from the model than so many robust standard deviations is an outlier: one row in
500 million by chance."""
ALIKE = 0.03
"""Columns of length 1 with a smaller singular value cannot be separated: for two columns, a
correlation above 0.999."""
PART_OF_DIRECTION = 0.15
HUBER = 1.345
"""Huber's constant: 95 % efficient where the errors are normal."""
ROBUST_ROUNDS = 12
ROUNDING = 1e-12
"""A coefficient that adds a smaller share to the measured energies is rounding of 0."""


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
    a millijoule counts as much as one of a kilojoule. The weight w is less for measurements with
    larger uncertainties; ``robust`` also lowers w for rows far from the model (Huber).
    ``model`` and ``voltage``: names of :mod:`analysis.energy.models`; cross-validation chooses what
    they leave open (:func:`choose`). With ``auto``, known voltages are not used where they need
    more coefficients than there are rows.

    Intervals and covariance come from leaving whole settings out: repeats do not average out the
    errors that the runs of one setting share (its true voltage, its temperature). Without each
    setting the form is chosen again, so that the intervals include the uncertainty of the choice.
    Where columns depend on each other exactly, the values have the least sum of (x_i |a_i|)^2
    (:mod:`analysis.energy.arrow_solver`), and an interval has all values with the same predictions.
    With three nodes or more, the errors that the runs of a node share are added. ``part_of``: rows
    that include ``data``, whose sums by setting are reused.

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
    nonzero = np.flatnonzero(length > 0).tolist()
    index = {training.equations.terms[i].name: i for i in nonzero}
    dropped = training.dropped + [
        {"name": term.name, "why": "no measurement has any of it"}
        for term in training.terms
        if term.name not in index
    ]
    terms = [term for term in training.terms if term.name in index]
    order = np.array([index[term.name] for term in terms])
    value = solution.value[order]
    least = most = value
    deviations = with_choice = np.full((1, len(terms)), np.nan)
    condition_number, freedom = np.nan, np.inf
    confounded = []
    if intervals:
        by_node, freedom = node_deviations(choice, data, weight)
        left_out = without_each_setting(training, solution)
        by_setting = np.stack([without.value for without in left_out])
        chosen_again = choosing_without_each_setting(choice, by_setting, candidates, data, weight)
        deviations, with_choice = (
            np.vstack([coefficient_deviations(values), by_node])[:, order]
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
        confounded = inseparable(shared, factor.of_shared)
    reach = special.stdtrit(freedom, (1 + CONFIDENCE) / 2) * np.sqrt((with_choice**2).sum(axis=0))
    high = np.maximum(value + reach, most)
    # Values that are only rounding are 0.
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
        freedom=freedom,
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
    """Return the columns of the fit, each row divided by its energy, and the indices of their terms
    in the equations. Shared columns of zeros are left out."""
    equations, rows = training.equations, training.rows
    data, columns = training.data.take(rows), training.columns[rows]
    if training.estimated:
        data = at_voltage(data, training.form.voltage, solution.curves)
        columns = design_matrix(data, equations.shared)
    filled = np.flatnonzero(columns.any(axis=0))
    has_mem = any(term.pays_for == "kernel" and term.domain == MEM for term in training.terms)
    lumped = np.column_stack([data.core_v**2, data.mem_v**2 * has_mem])
    energy_j = data.energy_j[:, None]
    arrow = ArrowColumns(
        columns[:, filled] / energy_j,
        lumped / energy_j,
        training.number[rows],
        len(equations.kernels),
    )
    kernels = np.arange(len(equations.shared), len(equations.terms))
    return arrow, np.concatenate([filled, kernels])


def _chosen(
    data: Observations, candidates: list[Form], robust: bool, part_of: PreparedRows | None
) -> tuple[FormChoice, np.ndarray | None]:
    """Return the chosen form with its solution, and the rows' weights, None for equal weights."""
    choice = choose(data, candidates, part_of=part_of)
    has_uncertainty = bool(np.isfinite(data.energy_std_j).any())
    if not (has_uncertainty or robust):
        return choice, None
    weight = np.ones(len(data))
    for _ in range(ROBUST_ROUNDS if robust else 2):
        predicted_j = predict(choice.training, [choice.solution])[choice.training.rows]
        residual = predicted_j / data.energy_j - 1.0
        new_weight = _measurement_weight(data, residual) if has_uncertainty else np.ones(len(data))
        if robust:
            deviation = np.abs(residual) * np.sqrt(new_weight)
            spread = float(np.median(deviation)) / special.ndtri(0.75)
            beyond = deviation > HUBER * spread
            new_weight[beyond] *= HUBER * spread / deviation[beyond]
        settled = bool(np.max(np.abs(new_weight - weight)) < 1e-3)
        weight = new_weight
        if settled:
            break
        training = prepare(data, choice.form, weight)
        solution = solve_form(training, None, choice.solution)
        choice = replace(choice, training=training, solution=solution)
    return choice, weight


def _measurement_weight(data: Observations, residual: np.ndarray) -> np.ndarray:
    """Return weights from the measurements' relative uncertainties, 1 for the surest.

    A residual's variance is the model's plus the measurement's. The model's is the residuals' mean
    square less the measurements' mean variance. A row without an uncertainty has the median.
    """
    row_variance = (data.energy_std_j / data.energy_j) ** 2
    row_variance = np.where(np.isfinite(row_variance), row_variance, np.nanmedian(row_variance))
    model_variance = max(float(np.mean(residual**2) - np.mean(row_variance)), 0.0)
    variance = model_variance + np.maximum(row_variance, 1e-12)
    return np.asarray(variance.min() / variance)


@dataclass(frozen=True, kw_only=True)
class Training:
    """The rows of one form, with their sums.

    ``data``: with the voltages of the form, 1 where they are estimated. ``columns``: float64
    (rows, p), the shared terms' joules; ``block``: int64 (rows,), the index of each row's setting
    in the equations, -1 for a row that is left out; ``number``: int64 (rows,), the index of its
    kernel in the equations, -1 for a kernel with counts; ``mhz``: float64 (S, 2).
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
        """The number of estimated values: coefficients and parameters of the curves."""
        curves = curve_numbers(self.form.voltage, self.mhz) if self.estimated else 0
        return len(self.terms) + curves

    @property
    def rows(self) -> np.ndarray | slice:
        """An index of the rows that are not left out; a slice, which copies nothing, of all."""
        included = self.block >= 0
        return slice(None) if included.all() else np.flatnonzero(included)


@dataclass(frozen=True)
class FormSolution:
    """A form's coefficients, in the equations' order, and its curves."""

    value: np.ndarray
    curves: Curves


def prepare(data: Observations, form: Form, weight: np.ndarray | None = None) -> Training:
    """Return the rows of a form; ``weight``: float64 (rows,), 1 by default."""
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
    """Rows that are fitted many times without some settings; each form sums them up once."""

    def __init__(self, data: Observations) -> None:
        self._data = data
        self._conditions = _distinct_conditions(data)
        self._of_form: dict[Form, Training] = {}

    def part(self, data: Observations, form: Form) -> Training | None:
        """Return ``prepare(data, form)`` from these sums, with the other rows marked as left out;
        None where ``data`` cannot be taken from these sums.

        ``data``: some of the rows, in their order. They must be all rows of their settings, and
        have the terms that all rows have.
        """
        if data.settings is not self._data.settings:
            return None
        if form not in self._of_form:
            self._of_form[form] = prepare(self._data, form)
        whole = self._of_form[form]
        is_present = np.bincount(data.setting, minlength=len(data.settings)) > 0
        included = is_present[whole.equations.settings]
        block = np.where(included, np.cumsum(included) - 1, -1)[whole.block]
        conditions = self._conditions.take(is_present[self._conditions.setting])
        conditions = at_voltage(conditions, form.voltage)
        terms, dropped = model_terms(conditions, form.model, form.voltage in ESTIMATED)
        if np.count_nonzero(block >= 0) != len(data) or terms != whole.terms:
            return None
        return replace(
            whole,
            dropped=dropped,
            equations=whole.equations.of_settings(included),
            block=block,
            mhz=whole.mhz[included],
        )


def _distinct_conditions(data: Observations) -> Observations:
    """Return a row of each kernel at each setting, where all rows of such a cell have the same
    clocks, voltages and counts; else all rows."""
    groups = Groups(data.kernel * len(data.settings) + data.setting)
    first = groups.by_row(groups.firsts)
    columns = (data.core_mhz, data.mem_mhz, data.core_v, data.mem_v, *data.counts.values())
    is_same = all(np.array_equal(values, values[first], equal_nan=True) for values in columns)
    return data.take(groups.firsts) if is_same else data


def solve_form(
    training: Training,
    weight: np.ndarray | None = None,
    start: FormSolution | None = None,
    other_knees: bool = False,
) -> FormSolution:
    """Return the coefficients, and the curves where the form estimates them.

    ``weight`` (S,): how often each setting counts; ``start``: the solution of a similar problem.
    With ``other_knees`` the search also starts from the knees next to those of ``start``: slower,
    but it seldom ends in a local minimum.
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
    training: Training, solutions: Sequence[FormSolution], chosen: np.ndarray | None = None
) -> np.ndarray:
    """Return predicted joules of the training's rows, float64 (rows,). Values of rows that are left
    out have no meaning.

    ``chosen``: int64 (S,), the solution that predicts each setting; by default the first.
    """
    equations = training.equations
    size = len(equations.shared)
    chosen = np.zeros(len(training.mhz), np.int64) if chosen is None else chosen
    value = np.array([solution.value for solution in solutions])
    core_v, mem_v = (
        volts[chosen, np.arange(len(chosen))] for volts in _curves_at(training, solutions)
    )
    factor = core_v[:, None] ** equations.core_power * mem_v[:, None] ** equations.mem_power
    coefficients = factor * value[chosen, :size]
    energy_j: np.ndarray = row_products(training.columns, training.block, coefficients)
    lumped = np.flatnonzero(training.number >= 0)
    if len(lumped):
        block = training.block[lumped]
        kernel_value = value[:, size:].reshape(len(solutions), -1, 2)[
            chosen[block], training.number[lumped]
        ]
        energy_j[lumped] += kernel_value[:, 0] * (training.data.core_v[lumped] * core_v[block]) ** 2
        energy_j[lumped] += kernel_value[:, 1] * (training.data.mem_v[lumped] * mem_v[block]) ** 2
    return energy_j


def column_lengths(training: Training, solution: FormSolution) -> np.ndarray:
    """Return the length of each term's column, rows divided by their energy and weighted: float64,
    in the order of the equations' ``terms``."""
    equations = training.equations
    (core_v,), (mem_v,) = _curves_at(training, [solution])
    factor = core_v[:, None] ** equations.core_power * mem_v[:, None] ** equations.mem_power
    shared = (factor**2 * np.diagonal(equations.gram, axis1=1, axis2=2)).sum(axis=0)
    setting = np.searchsorted(equations.cell_end, np.arange(len(equations.kernel)), side="right")
    lumped = [
        np.bincount(equations.kernel, v[setting] ** 4 * gram, len(equations.kernels))
        for v, gram in zip(
            (core_v, mem_v), np.diagonal(equations.own_gram, axis1=1, axis2=2).T, strict=True
        )
    ]
    return np.asarray(np.sqrt(np.concatenate([shared, np.column_stack(lumped).ravel()])))


def _curves_at(
    training: Training, solutions: Sequence[FormSolution]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the core's and the memory's relative voltages by the curves of each solution, float64
    (solutions, S) each."""
    core_mhz, mem_mhz = training.mhz.T
    return (
        np.array([solution.curves.core.at(core_mhz) for solution in solutions]),
        np.array([solution.curves.mem.at(mem_mhz) for solution in solutions]),
    )


@dataclass(frozen=True)
class FormChoice:
    """The chosen form with its training and solution, and the forms tried."""

    form: Form
    training: Training
    solution: FormSolution
    tried: list[TriedForm]
    why: str


def choose(
    data: Observations,
    candidates: list[Form],
    weight: np.ndarray | None = None,
    part_of: PreparedRows | None = None,
) -> FormChoice:
    """Choose among the forms ``candidates``, the simplest first.

    ``weight``: float64 (rows,), 1 by default. ``part_of``: rows that include ``data``, whose sums
    are reused where all rows have equal weights. Candidates that estimate more numbers than there
    are rows are left out, unless all do.
    """
    sums = part_of if weight is None else None
    trainings = [
        (sums and sums.part(data, form)) or prepare(data, form, weight) for form in candidates
    ]
    if with_enough_rows := [t for t in trainings if t.numbers <= len(data)]:
        trainings = with_enough_rows
        candidates = [training.form for training in trainings]
    solutions = [solve_form(training) for training in trainings]
    n = len(trainings[0].equations.settings)
    if n < MIN_SETTINGS or len(candidates) == 1:
        index = next(
            i
            for i, form in reversed(list(enumerate(candidates)))
            if form.voltage == candidates[0].voltage
        )
        is_given = len(candidates) == 1
        why = (
            "the model and the voltage were given"
            if is_given
            else f"there are too few settings ({n}) to compare models, so all terms are used"
        )
        return FormChoice(candidates[index], trainings[index], solutions[index], [], why)
    groups = np.random.default_rng(SEED).permutation(n) % min(GROUPS, n)
    errors = [
        _errors(training, _out_of_fold(training, solution, groups))
        for training, solution in zip(trainings, solutions, strict=True)
    ]
    index, tried, why = _simplest_near_best(candidates, errors)
    return FormChoice(candidates[index], trainings[index], solutions[index], tried, why)


def _simplest_near_best(
    candidates: list[Form], errors: list[np.ndarray]
) -> tuple[int, list[TriedForm], str]:
    """Return the index of the first candidate within one standard error of the best, all candidates
    with their errors, and the reason."""
    means = np.array([error.mean() for error in errors])
    best = int(np.argmax(means <= means.min() + NEGLIGIBLE_PCT))
    tried = []
    for form, error in zip(candidates, errors, strict=True):
        behind = error - errors[best]
        std = float(behind.std(ddof=1) / np.sqrt(len(behind)))
        tried.append(TriedForm(form, float(error.mean()), float(behind.mean()), std))
    is_near = [t.behind_pct <= max(t.behind_std_pct, NEGLIGIBLE_PCT) for t in tried]
    chosen = is_near.index(True)
    simplest, lowest = tried[chosen], tried[best]
    name = f"{simplest.form.model} with voltage {simplest.form.voltage}"
    if chosen == best:
        why = (
            f"{name} has the smallest error on settings left out of the fit, "
            f"{simplest.error_pct:.2f} %, of the {len(tried)} models compared"
        )
    else:
        why = (
            f"{name} is the simplest model within one standard error of the best: its error on "
            f"settings left out is {simplest.error_pct:.2f} %, that of {lowest.form.model} with "
            f"voltage {lowest.form.voltage} {lowest.error_pct:.2f} % (standard error of the "
            f"difference {simplest.behind_std_pct:.2f})"
        )
    return chosen, tried, why


def _out_of_fold(training: Training, whole: FormSolution, groups: np.ndarray) -> np.ndarray:
    """Return predicted joules, float64 (rows,), each by the fit without the group of its setting.

    ``groups``: int64 (S,), 0 to G - 1, the group of each setting.
    """
    without = [
        solve_form(training, np.where(groups == group, 0.0, 1.0), whole)
        for group in range(int(groups.max()) + 1)
    ]
    return predict(training, without, groups)


def _errors(training: Training, predicted_j: np.ndarray) -> np.ndarray:
    """Return the mean relative error in % by setting, out of fold: float64 (S,)."""
    errors: np.ndarray = mean_errors(
        predicted_j, training.data.energy_j, training.block, len(training.mhz)
    )
    return errors * 100.0


def jackknife_deviations(left_out: np.ndarray) -> np.ndarray:
    """Return deviations (S, n) whose products sum to the jackknife's covariance of n numbers.

    sqrt((S - 1) / S) (x_-s - mean), from estimates float64 (S, n) without each of S settings
    (Efron & Tibshirani 1993, section 11.5).
    """
    n = len(left_out)
    return np.asarray((left_out - left_out.mean(axis=0)) * np.sqrt((n - 1) / n))


def coefficient_deviations(left_out: np.ndarray) -> np.ndarray:
    """Return deviations (S, p) whose products sum to the covariance of p coefficients, from
    coefficients float64 (S, p) without each setting (:func:`jackknife_deviations`); NaN with too
    few settings."""
    if len(left_out) < MIN_SETTINGS_FOR_INTERVALS:
        return np.full((1, left_out.shape[1]), np.nan)
    return jackknife_deviations(left_out)


def without_each_setting(training: Training, solution: FormSolution) -> list[FormSolution]:
    """Return S solutions, each without one setting, of the same form."""
    left_out = []
    for block in range(len(training.equations.settings)):
        weight = np.ones(len(training.equations.settings))
        weight[block] = 0.0
        left_out.append(solve_form(training, weight, solution, other_knees=True))
    return left_out


def choosing_without_each_setting(
    choice: FormChoice,
    same_form: np.ndarray,
    candidates: list[Form],
    data: Observations,
    weight: np.ndarray | None,
) -> np.ndarray:
    """Return the coefficients without each setting, the form chosen again: float64 (S, p).

    ``same_form``: float64 (S, p), the coefficients without each setting of the chosen form. A
    coefficient that the newly chosen form lacks is 0.
    """
    settings = choice.training.equations.settings
    contenders = [
        tried.form
        for tried in choice.tried
        if tried.form in candidates
        and tried.behind_pct <= max(OUT_OF_REACH * tried.behind_std_pct, NEGLIGIBLE_PCT)
    ]
    if len(contenders) < 2 or len(settings) <= MIN_SETTINGS:
        return same_form
    names = [term.name for term in choice.training.equations.terms]
    left_out = same_form.copy()
    for block, setting in enumerate(settings):
        rows = np.flatnonzero(data.setting != setting)
        chosen = choose(data.take(rows), contenders)
        if chosen.form == choice.form:
            continue
        training, solution = chosen.training, chosen.solution
        if weight is not None:
            training = prepare(data.take(rows), chosen.form, weight[rows])
            solution = solve_form(training, None, solution)
        terms = training.equations.terms
        values = {term.name: value for term, value in zip(terms, solution.value, strict=True)}
        left_out[block] = [values.get(name, 0.0) for name in names]
    return left_out


def node_deviations(
    choice: FormChoice, data: Observations, weight: np.ndarray | None
) -> tuple[np.ndarray, float]:
    """Return deviations (n, p) whose products sum to the part of the covariance by errors that the
    runs of a node share, and the degrees of freedom.

    The two-way sum of Cameron, Gelbach and Miller (J. Bus. Econ. Stat. 29, 2011): settings plus
    nodes less their crossings. No deviations (n = 0) with fewer than three named nodes. Rows that
    name no node are taken together, as if they were of one further node.
    """
    training, solution = choice.training, choice.solution
    empty = np.zeros((0, len(solution.value)))
    freedom = max(len(training.mhz) - 1, 1)
    nodes, node = np.unique(data.node.astype(str), return_inverse=True)
    named = int(np.count_nonzero(nodes != ""))
    if named < MIN_NODES_FOR_INTERVALS:
        return empty, freedom
    voltage_data = at_voltage(data, training.form.voltage, solution.curves)
    fixed = replace(training.form, voltage="known")
    signs, group_deviations = [], []
    for sign, group in ((1, node), (-1, node * len(data.settings) + data.setting)):
        _, number = np.unique(group, return_inverse=True)
        by_group = replace(
            voltage_data,
            setting=number.astype(np.int64),
            settings=[Setting(float(i)) for i in range(int(number.max()) + 1)],
        )
        prepared = prepare(by_group, fixed, weight)
        # These voltages may vary otherwise, but the terms must be the training's.
        if [t.name for t in prepared.equations.terms] != [t.name for t in training.equations.terms]:
            return empty, freedom
        left_out = without_each_setting(prepared, solution)
        deviations = coefficient_deviations(np.stack([without.value for without in left_out]))
        group_deviations.append(deviations)
        signs.append(np.full(len(deviations), float(sign)))
    # The estimate is a difference: in directions where it is negative, nodes share no error. It has
    # at most as many dimensions as there are groups.
    directions, triangle = np.linalg.qr(np.concatenate(group_deviations).T)
    spread, axes = np.linalg.eigh((triangle * np.concatenate(signs)) @ triangle.T)
    by_node = np.sqrt(np.maximum(spread, 0.0))[:, None] * (directions @ axes).T
    return by_node, min(freedom, named - 1)


def outliers(data: Observations, predicted_j: np.ndarray) -> list[dict[str, Any]]:
    """Return the rows far from the model, by a robust standard deviation of the residuals."""
    residual = np.log(np.maximum(predicted_j, 1e-300) / data.energy_j)
    centre = np.median(residual)
    spread = np.median(np.abs(residual - centre)) / special.ndtri(0.75)
    if not spread > 0:
        return []
    outlying = np.flatnonzero(np.abs(residual - centre) > OUTLIER_DEVIATIONS * spread)
    outlying = outlying[np.argsort(-np.abs(residual[outlying] - centre))]
    return [
        {
            **data.instance(data.kernels[data.kernel[i]]).as_dict(),
            "setting": setting_text(data.settings[data.setting[i]]),
            "energy_j": float(data.energy_j[i]),
            "predicted_j": float(predicted_j[i]),
            "deviations": float(np.abs(residual[i] - centre) / spread),
        }
        for i in outlying
    ]


def inseparable(terms: Sequence[Term], unit: np.ndarray) -> list[dict[str, Any]]:
    """Return groups of terms that these rows cannot separate, and measurements that would.

    ``unit``: float64 (any, terms), columns of length 1 in any orthonormal basis. A direction in
    which the coefficients can move without changing the predictions is a singular vector with a
    small singular value. Terms of single kernels are left out. Of several such directions only the
    space that they span is determined, so terms are grouped by the projection on it.
    """
    shared = [i for i, term in enumerate(terms) if term.pays_for != "kernel"]
    _, size, directions = np.linalg.svd(unit[:, shared], full_matrices=False)
    free = directions[size < ALIKE]
    linked = np.abs(free.T @ free) > PART_OF_DIRECTION**2
    part = np.flatnonzero(linked.diagonal())
    members = [
        [terms[shared[part[i]]] for i in group] for group in grouped(linked[np.ix_(part, part)])
    ]
    return [{"terms": [t.name for t in group], "remedy": _remedy(group)} for group in members]


def _remedy(members: Sequence[Term]) -> str:
    operations = [term for term in members if term.pays_for == "operation"]
    if len(operations) > 1:
        return f"measure kernels whose ratios of {' to '.join(t.of for t in operations)} differ"
    advice = [term.measure_to_separate for term in operations or members]
    return "measure " + "; and ".join(dict.fromkeys(text for text in advice if text))
