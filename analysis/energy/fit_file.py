"""The JSON file of a fit in a store, checked when it is read."""

from __future__ import annotations

from typing import Annotated, Any, Self

import numpy as np
from pydantic import AfterValidator, Field, ValidationError, model_validator

from analysis.energy.curves import Curves, VoltageCurve
from analysis.energy.fit_summary import FitSummary, Part, first_error
from analysis.energy.fitted import Fit, deviations_of, finite
from analysis.energy.likeness import Likeness
from analysis.energy.terms.registry import KINDS, term_of

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Matrix = Annotated[list[list[float]], Field(min_length=1)]


def _known_kind(kind: str) -> str:
    if kind not in KINDS:
        raise ValueError(f"unknown kind of term {kind!r}; known: {', '.join(KINDS)}")
    return kind


class _Term(Part):
    name: str
    kind: Annotated[str, AfterValidator(_known_kind)]
    domain: str
    of: str

    @model_validator(mode="after")
    def _is_a_term(self) -> Self:
        if (name := term_of(self.kind, self.domain, self.of).name) != self.name:
            raise ValueError(f"a term that is called {self.name!r} must be called {name!r}")
        return self


class _Curves(Part):
    core: list[list[Positive]]
    mem: list[list[Positive]]

    @model_validator(mode="after")
    def _rise(self) -> Self:
        for curve in (self.core, self.mem):
            if len(curve) != 2 or len(curve[0]) != len(curve[1]) or not curve[0]:
                raise ValueError("a curve must be as many volts as MHz")
            if (np.diff(curve[0]) <= 0).any():
                raise ValueError("the MHz of a curve must rise")
        return self


class _KeptFit(FitSummary):
    """A fit's file as :func:`as_kept` returns it: the summary, and what predictions need."""

    terms: list[_Term]
    deviations: Matrix | None = None
    deviations_with_choice: Matrix | None = None
    covariance: Matrix | None = None
    """Earlier versions stored covariances in place of deviations."""
    covariance_with_choice: Matrix | None = None
    curves: _Curves

    @model_validator(mode="after")
    def _sizes_agree(self) -> Self:
        if [term.name for term in self.terms] != [
            coefficient.name for coefficient in self.coefficients
        ]:
            raise ValueError("the terms must be those of the coefficients")
        columns = {len(self.terms)}
        for deviations, covariance in (
            (self.deviations, self.covariance),
            (self.deviations_with_choice, self.covariance_with_choice),
        ):
            if (deviations is None) == (covariance is None):
                raise ValueError("either deviations or a covariance must be there")
            if deviations is not None and columns != set(map(len, deviations)):
                raise ValueError("deviations must have a column for each term")
            if covariance is not None and columns != {len(covariance), *map(len, covariance)}:
                raise ValueError("a covariance must have a row and a column for each term")
        return self


class NoFitError(Exception):
    """A file is not a fit; the text says where it is wrong."""


def as_kept(fitted: Fit) -> dict[str, Any]:
    """Return a fit as the JSON that a store has; :func:`fit_of` reads it."""
    return fitted.as_dict() | {
        "terms": [term.as_dict() for term in fitted.terms],
        "deviations": fitted.deviations.tolist(),
        "deviations_with_choice": fitted.deviations_with_choice.tolist(),
        "freedom": finite(fitted.freedom),
        "curves": _kept_curves(fitted.curves),
    }


def _kept_curves(curves: Curves) -> dict[str, list[list[float]]]:
    return {
        name: [curve.mhz.tolist(), curve.volt.tolist()]
        for name, curve in (("core", curves.core), ("mem", curves.mem))
    }


def _curves_of(curves: _Curves) -> Curves:
    core, mem = (VoltageCurve(*np.array(curve)) for curve in (curves.core, curves.mem))
    return Curves(core, mem, np.zeros(0))


def _deviations(
    deviations: list[list[float]] | None, covariance: list[list[float]] | None
) -> np.ndarray:
    return np.array(deviations) if covariance is None else deviations_of(np.array(covariance))


def fit_of(stored: object) -> Fit:
    """Return the fit from the JSON of :func:`as_kept`, without the forms that were compared.

    Raises:
        NoFitError: the JSON is not a fit.
    """
    if not isinstance(stored, dict):
        raise NoFitError("must be an object")
    try:
        summary = _KeptFit.model_validate(stored)
    except ValidationError as error:
        raise NoFitError(first_error(error)) from None

    def column(name: str) -> np.ndarray:
        return np.array([getattr(coefficient, name) for coefficient in summary.coefficients], float)

    return Fit(
        site=summary.site,
        simulated=summary.simulated,
        model=summary.model,
        voltage=summary.voltage,
        n=summary.n,
        n_settings=summary.n_settings,
        terms=[term_of(term.kind, term.domain, term.of) for term in summary.terms],
        value=column("value"),
        low=column("low"),
        high=column("high"),
        deviations=_deviations(summary.deviations, summary.covariance),
        deviations_with_choice=_deviations(
            summary.deviations_with_choice, summary.covariance_with_choice
        ),
        freedom=summary.degrees_of_freedom,
        condition_number=np.inf if summary.condition_number is None else summary.condition_number,
        dropped=[dropped.model_dump() for dropped in summary.dropped],
        curves=_curves_of(summary.curves),
        why=summary.why,
        robust=summary.robust,
        outliers=[outlier.model_dump() for outlier in summary.outliers],
        confounded=[group.model_dump() for group in summary.confounded],
        unproven_clocks=summary.unproven_clocks,
        stated_clocks=summary.stated_clocks,
        estimated_energies=summary.estimated_energies,
        like=None if summary.like is None else Likeness(**summary.like.model_dump()),
    )
