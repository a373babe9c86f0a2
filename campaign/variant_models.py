"""Models of a kernel's variants, as a user asks for them: cross-validated, kept, and applied."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from analysis.choice.objectives import TIME
from analysis.choice.objectives import objective as objective_of
from analysis.choice.variant_crossval import (
    LEAVE_ONE_OUT,
    VariantCrossValidation,
    cross_validate_variants,
)
from analysis.dataset import COUNT_PREFIX
from analysis.measurements.kernels import KernelInstance
from analysis.measurements.variant_costs import MeasuredVariants, measured_variants
from campaign.errors import BadArgument
from campaign.plan.campaign_file import Campaign
from campaign.stated_terms import stated_terms
from campaign.variant_study import tuned_parameters

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from analysis.measurements.observations import Observations
    from campaign.store.layout import Store


@dataclass(frozen=True)
class VariantCrossvalResult:
    """A cross-validation over variants."""

    crossval: VariantCrossValidation

    def as_dict(self) -> dict[str, Any]:
        """``campaign crossval --scheme leave-one-variant-out --json``."""
        return self.crossval.as_dict()

    def to_pandas(self) -> pd.DataFrame:
        """A row for each problem, in the layout of Prajapati 2019, Table B.3."""
        import pandas as pd  # noqa: PLC0415

        return pd.json_normalize(self.as_dict()["problems"])

    def _repr_html_(self) -> str:
        return str(self.to_pandas()._repr_html_())  # type: ignore[operator]


def variants_of(
    store: Store,
    scalars: xr.Dataset,
    site: str,
    kernel: str | None = None,
    problem: Mapping[str, str] | None = None,
) -> MeasuredVariants:
    """The measured variants of a kernel, of the only one with variants where none is named.

    Raises:
        BadArgument: none is named and there are several, or none.
        CantFit: see :func:`analysis.measurements.variant_costs.measured_variants`.
    """
    tuned = tuned_parameters(store)
    if kernel is None:
        mine = scalars["site"].values == site
        kernels = sorted(set(scalars["kernel"].values[mine].tolist()))
        tunable = [name for name in kernels if name in tuned] or kernels
        if len(tunable) != 1:
            raise BadArgument(f"--kernel: {site} has several; name one: {', '.join(tunable)}")
        kernel = tunable[0]
    name = registered_name(store, kernel)

    def terms(instances: Sequence[KernelInstance]) -> Mapping[str, np.ndarray]:
        texts = [json.dumps(dict(instance.params)) for instance in instances]
        try:
            stated = stated_terms(name, texts)
        except ValidationError:  # measured by a version with other parameters, or imported
            stated = {}
        return stated or _counts(scalars, site, kernel, instances)

    return measured_variants(
        scalars, site, kernel, terms, tuned=tuned.get(kernel, ()), problem=problem
    )


def registered_name(store: Store, kernel: str) -> str:
    """The kernel of the registry that a name in the store stands for, which may be a label."""
    plan = store.read_json("campaign.json") or {}
    try:
        entries = Campaign.model_validate(plan.get("campaign")).kernels
    except ValidationError:  # no plan, or that of another version
        return kernel
    return {entry.label or entry.kernel: entry.kernel for entry in entries}.get(kernel, kernel)


def _counts(
    scalars: xr.Dataset, site: str, kernel: str, instances: Sequence[KernelInstance]
) -> dict[str, np.ndarray]:
    """The counts that the store has of variants, those of all of them."""
    from analysis.measurements.kernels import dataset_kernels  # noqa: PLC0415

    known = dataset_kernels(scalars)
    mine = (scalars["site"].values == site) & (scalars["kernel"].values == kernel)
    rows = np.flatnonzero(mine)
    first: dict[str, int] = {}
    for row, params in zip(rows.tolist(), scalars["params"].values[rows].tolist(), strict=True):
        first.setdefault(known[kernel, params].label, row)
    places = [first[instance.label] for instance in instances]
    names = [str(name) for name in scalars.data_vars if str(name).startswith(COUNT_PREFIX)]
    columns = {
        name.removeprefix(COUNT_PREFIX): scalars[name].values[places].astype(float)
        for name in sorted(names)
    }
    return {name: column for name, column in columns.items() if np.isfinite(column).all()}


def crossvalidate_variants(
    store: Store,
    scalars: xr.Dataset,
    site: str,
    usable_data: Callable[[], Observations],
    scheme: str = LEAVE_ONE_OUT,
    *,
    kernel: str | None = None,
    problem: Mapping[str, str] | None = None,
    objective: str = "energy",
    time: str = "measured",
    **fit: Any,
) -> VariantCrossvalResult:
    """See :meth:`campaign.results.Results.crossval_variants`. ``usable_data``: the site's
    measurements for the energy model, asked for where there are energies."""
    if time not in ("measured", "predicted"):
        raise BadArgument("--time: measured or predicted with a scheme over variants")
    variants = variants_of(store, scalars, site, kernel, problem)
    data: Observations | None = None
    if objective_of(objective) != TIME or np.isfinite(variants.energy_j).any():
        data = usable_data()
    made = cross_validate_variants(variants, data, scheme, objective=objective, time=time, **fit)
    return VariantCrossvalResult(made)
