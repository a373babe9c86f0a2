"""A fit's summary: what ``campaign fit --json`` prints, and a store's JSON file has.

Imports no NumPy, so that ``campaign coefficients`` starts quickly.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationError,
    model_validator,
)

from analysis.energy.models import without_surface

NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=2**53)]


class Part(BaseModel):
    """A part of a fit's file; unknown keys are ignored."""

    model_config = ConfigDict(strict=True, frozen=True)


class Coefficient(Part):
    """A coefficient with its unit and 95 % interval; None where there is no interval."""

    name: str
    value: FiniteFloat
    unit: str
    low: FiniteFloat | None
    high: FiniteFloat | None

    @property
    def is_lumped(self) -> bool:
        """Whether the coefficient is of a single kernel without counts."""
        return self.name.startswith(("a[", "b["))


class Dropped(Part):
    """A term that the fit left out, and why."""

    name: str
    why: str


class Outlier(Part):
    """A measurement far from the model.

    Fits of early versions have a kernel's label alone, without name and parameters.
    """

    kernel: str
    params: dict[str, Any] = Field(default_factory=dict)
    label: str
    setting: str
    energy_j: FiniteFloat
    predicted_j: FiniteFloat
    deviations: FiniteFloat

    @model_validator(mode="before")
    @classmethod
    def _has_a_label(cls, outlier: Any) -> Any:
        if isinstance(outlier, dict) and "label" not in outlier and "kernel" in outlier:
            return outlier | {"label": outlier["kernel"]}
        return outlier


class Confounded(Part):
    """Terms that these measurements cannot separate, and the measurements that would."""

    terms: list[str]
    remedy: str


class RelativeCurve(Part):
    """An estimated voltage curve: relative volts by clock."""

    mhz: list[FiniteFloat]
    relative_v: list[FiniteFloat]


def _date(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("must be a date and time with its zone")
    return text


class Kept(Part):
    """What a store adds to a fit: its date (ISO 8601), the program's version, the request, a hash
    of its measurements, the sizes of the files from which they were read, and the domains of the
    site's classes (None in fits of earlier versions)."""

    created: Annotated[str, AfterValidator(_date)]
    version: str
    request: dict[str, str | bool]
    data_id: str
    files: dict[str, int]
    classes: dict[str, str] | None = None


class VariantPrices(Part):
    """The prices that predict a kernel's variants (:mod:`analysis.choice.variant_prices`).

    ``of``: time or energy. ``family``: for times, the text parameters that these variants share.
    For energies: the clocks (MHz), and the error of the ``tested`` variants.
    """

    kernel: str
    family: dict[str, Any]
    of: str
    n: Count
    error_pct: FiniteFloat
    inseparable: list[list[str]]
    prices: list[Coefficient]
    core_mhz: FiniteFloat | None = None
    mem_mhz: FiniteFloat | None = None
    tested: int = 0
    test_error_pct: FiniteFloat | None = None


class Like(Part):
    """The difference from the site whose fit this one started from
    (:class:`analysis.energy.fitted.Likeness`)."""

    site: str
    spread_pct: NotNegative
    most_spread_pct: NotNegative
    error_pct: NotNegative | None
    as_it_is_error_pct: NotNegative
    alone_error_pct: NotNegative | None


class FitSummary(Part):
    """A fit without the data that predictions need."""

    site: str
    simulated: bool
    model: Annotated[str, AfterValidator(without_surface)]
    voltage: str
    n: Count
    n_settings: Count
    freedom: NotNegative | None = None
    """None in fits of earlier versions, and in those that start from a known site's fit."""
    condition_number: FiniteFloat | None
    dropped: list[Dropped]
    coefficients: list[Coefficient]
    voltage_curves: dict[str, RelativeCurve] = Field(default_factory=dict)
    why: str
    robust: bool
    outliers: list[Outlier]
    confounded: list[Confounded]
    unproven_clocks: bool = False
    stated_clocks: bool = False
    estimated_energies: bool = False
    like: Like | None = None
    variant_prices: list[VariantPrices] = Field(default_factory=list)
    kept: Kept | None = None
    """None in fits of earlier versions."""

    @property
    def degrees_of_freedom(self) -> float:
        """Of Student's t in the intervals; infinite (Gaussian) where a known site's fit was the
        start."""
        if self.like is not None:
            return math.inf
        return self.freedom or max(self.n_settings - 1, 1)


NOT_IN_SUMMARY = (
    "terms",
    "deviations",
    "deviations_with_choice",
    "freedom",
    "covariance",
    "covariance_with_choice",
    "curves",
    "surface",
    "refits",
    "discrepancy",
    "kept",
)


def summary_json(stored: dict[str, Any]) -> dict[str, Any]:
    """Return a fit's file without the data that predictions need: ``coefficients --json``."""
    shown = {name: value for name, value in stored.items() if name not in NOT_IN_SUMMARY}
    return shown | {"model": without_surface(stored["model"])}


def first_error(error: ValidationError) -> str:
    """Return the first error in a fit's JSON, with its position."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    return ": ".join([*map(str, first["loc"]), message])
