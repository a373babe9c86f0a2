"""A fit as a store keeps it: JSON, and checked when it is read."""

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
    """What is read of :func:`as_kept`: the summary, and what predictions are computed from."""

    terms: list[_Term]
    deviations: Matrix | None = None
    deviations_with_choice: Matrix | None = None
    covariance: Matrix | None = None
    """Of fits of earlier versions, in place of the deviations; with the choice as well."""
    covariance_with_choice: Matrix | None = None
    curves: _Curves

    @model_validator(mode="after")
    def _sizes_agree(self) -> Self:
        if [term.name for term in self.terms] != [one.name for one in self.coefficients]:
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
    """What should be a fit is none; the text says where it is wrong."""


def as_kept(fitted: Fit) -> dict[str, Any]:
    """What a store keeps of a fit, as JSON; :func:`fit_of` makes the same fit of it."""
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


def _curves_of(read: _Curves) -> Curves:
    core, mem = (VoltageCurve(*np.array(curve)) for curve in (read.core, read.mem))
    return Curves(core, mem, np.zeros(0))


def _deviations(
    deviations: list[list[float]] | None, covariance: list[list[float]] | None
) -> np.ndarray:
    return np.array(deviations) if covariance is None else deviations_of(np.array(covariance))


def fit_of(kept: object) -> Fit:
    """The fit of :func:`as_kept`, without the forms that were compared.

    Raises:
        NoFitError: it is not what :func:`as_kept` gives.
    """
    if not isinstance(kept, dict):
        raise NoFitError("must be an object")
    try:
        read = _KeptFit.model_validate(kept)
    except ValidationError as error:
        raise NoFitError(first_error(error)) from None

    def column(name: str) -> np.ndarray:
        return np.array([getattr(one, name) for one in read.coefficients], float)

    return Fit(
        site=read.site,
        simulated=read.simulated,
        model=read.model,
        voltage=read.voltage,
        n=read.n,
        n_settings=read.n_settings,
        terms=[term_of(term.kind, term.domain, term.of) for term in read.terms],
        value=column("value"),
        low=column("low"),
        high=column("high"),
        deviations=_deviations(read.deviations, read.covariance),
        deviations_with_choice=_deviations(
            read.deviations_with_choice, read.covariance_with_choice
        ),
        freedom=read.degrees_of_freedom,
        condition_number=np.inf if read.condition_number is None else read.condition_number,
        dropped=[dropped.model_dump() for dropped in read.dropped],
        curves=_curves_of(read.curves),
        why=read.why,
        robust=read.robust,
        outliers=[outlier.model_dump() for outlier in read.outliers],
        confounded=[group.model_dump() for group in read.confounded],
        unproven_clocks=read.unproven_clocks,
        stated_clocks=read.stated_clocks,
        estimated_energies=read.estimated_energies,
        like=None if read.like is None else Likeness(**read.like.model_dump()),
    )
