"""A fit's summary: what ``campaign fit --json`` prints, as it stands in a store's JSON file.

Imports no NumPy, so that ``campaign coefficients`` answers at once.
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
    """A part of a fit's file; other keys than those named are ignored."""

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
        """Whether it is one kernel's own, as kernels without counts have them."""
        return self.name.startswith(("a[", "b["))


class Dropped(Part):
    """A term that the fit left out, and why."""

    name: str
    why: str


class Outlier(Part):
    """A measurement far from the model.

    Fits written before kernels were their names and parameters name a kernel by its label alone.
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
    """Terms that these measurements cannot separate, and which measurements would."""

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
    """What a store adds to a fit: when it was made (ISO 8601), by which version, what it was asked
    for, a hash of its measurements, and the sizes of the files that they were read from."""

    created: Annotated[str, AfterValidator(_date)]
    version: str
    request: dict[str, str | bool]
    data_id: str
    files: dict[str, int]


class VariantPrices(Part):
    """What the variants of a kernel are predicted from (:mod:`analysis.choice.variant_prices`).

    ``of``: time or energy. ``family``: the parameters that are texts, of the variants of a time's
    prices. Of energies: at which clocks (MHz), and the error of the ``tested`` variants.
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
    """How far a site is from the one whose fit this one started from
    (:class:`analysis.energy.fitted.Likeness`)."""

    site: str
    spread_pct: NotNegative
    most_spread_pct: NotNegative
    error_pct: NotNegative | None
    as_it_is_error_pct: NotNegative
    alone_error_pct: NotNegative | None


class FitSummary(Part):
    """A fit without what predictions are computed from."""

    site: str
    simulated: bool
    model: Annotated[str, AfterValidator(without_surface)]
    voltage: str
    n: Count
    n_settings: Count
    freedom: NotNegative | None = None
    """None of fits that an earlier version kept, and of those from a known site's."""
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
    """None of fits that an earlier version kept."""

    @property
    def degrees_of_freedom(self) -> float:
        """Of Student's t in the intervals; those from a known site's fit are Gaussian."""
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


def summary_json(kept: dict[str, Any]) -> dict[str, Any]:
    """A fit's file without what predictions are computed from: ``coefficients --json``."""
    shown = {name: value for name, value in kept.items() if name not in NOT_IN_SUMMARY}
    return shown | {"model": without_surface(kept["model"])}


def first_error(error: ValidationError) -> str:
    """The first thing that is wrong with a fit's JSON, with its place in it."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    what = first["msg"].removeprefix("Value error, ")
    return ": ".join([*map(str, first["loc"]), what])
