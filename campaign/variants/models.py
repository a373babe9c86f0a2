"""Models of a kernel's variants, as a user asks for them: cross-validated, kept, and applied."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from analysis.choice.objectives import TIME
from analysis.choice.objectives import objective as objective_of
from analysis.choice.variant_crossval import (
    FEWEST,
    KFOLD,
    LEAVE_ONE_OUT,
    VariantCrossValidation,
    cross_validate_variants,
    folds,
)
from analysis.choice.variant_prices import (
    energies_j,
    fit_energies,
    fit_times,
    price_record,
    times_without,
)
from analysis.measurements.observations import FitError, setting_text
from analysis.measurements.problems import value_text
from analysis.measurements.variants import KernelVariants, MeasuredVariants, measured_variants
from campaign.store.planned import planned_kernels
from campaign.variants.stated_terms import stated_metrics, stated_terms
from campaign.variants.study import tuned_parameters
from dvfs.dataset import COUNT_PREFIX
from dvfs.errors import ArgumentError
from dvfs.kernel_instance import KernelInstance
from dvfs.setting import Setting, Volts

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from analysis.energy.fitted import Fit
    from analysis.measurements.observations import Observations
    from campaign.store.layout import Store
    from dvfs.dataset import Columns


FOLDS = 50
"""In at most so many parts are variants left out where each of many would take long."""


@dataclass(frozen=True, kw_only=True)
class Energies:
    """What energies are predicted from: a fit and its ``name``, its measurements, and voltages by
    setting."""

    name: str
    fit: Fit
    data: Observations
    volts: Volts

    def at_setting_j(
        self,
        counts: Mapping[str, np.ndarray],
        time_s: np.ndarray,
        setting: Setting,
    ) -> np.ndarray:
        """The energies (n,) of variants at a setting; see
        :func:`analysis.choice.variant_prices.energies_j`.

        Raises:
            FitError: a class is not in the fit, or no voltage is known at the setting.
        """
        if setting not in self.volts:
            raise FitError(f"no voltage is known at {setting_text(setting)}; fit the site again")
        return energies_j(self.fit, self.data, counts, time_s, setting, self.volts[setting])


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
    scalars: xr.Dataset | Columns,
    site: str,
    kernel: str | None = None,
    problem: Mapping[str, str] | None = None,
) -> MeasuredVariants:
    """The measured variants of a kernel, of the only one with variants where none is named.

    Raises:
        ArgumentError: none is named and there are several, or none.
        FitError: see :func:`analysis.measurements.variants.measured_variants`.
    """
    tuned = tuned_parameters(store)
    if kernel is None:
        of_site = np.asarray(scalars["site"]) == site
        kernels = sorted(set(np.asarray(scalars["kernel"])[of_site].tolist()))
        tunable = [name for name in kernels if name in tuned] or kernels
        if len(tunable) != 1:
            raise ArgumentError(f"--kernel: {site} has several; name one: {', '.join(tunable)}")
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
    """The name in the registry of a kernel of the store, which may have a label there."""
    planned = planned_kernels(store).get(kernel)
    return kernel if planned is None else planned.registered


def _counts(
    scalars: xr.Dataset | Columns, site: str, kernel: str, instances: Sequence[KernelInstance]
) -> dict[str, np.ndarray]:
    """The counts that the store has of variants, those of all of them."""
    from dvfs.kernel_instance import dataset_kernels  # noqa: PLC0415

    known = dataset_kernels(scalars)
    of_kernel = (np.asarray(scalars["site"]) == site) & (np.asarray(scalars["kernel"]) == kernel)
    rows = np.flatnonzero(of_kernel)
    first: dict[str, int] = {}
    params_of = np.asarray(scalars["params"])[rows].tolist()
    for row, params in zip(rows.tolist(), params_of, strict=True):
        first.setdefault(known[kernel, params].label, row)
    places = [first[instance.label] for instance in instances]
    names = [str(name) for name in scalars if str(name).startswith(COUNT_PREFIX)]
    columns = {
        name.removeprefix(COUNT_PREFIX): np.asarray(scalars[name])[places].astype(float)
        for name in sorted(names)
    }
    return {name: column for name, column in columns.items() if np.isfinite(column).all()}


def crossvalidate_variants(
    store: Store,
    scalars: xr.Dataset | Columns,
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
        raise ArgumentError("--time: must be measured or predicted with a scheme over variants")
    variants = variants_of(store, scalars, site, kernel, problem)
    data: Observations | None = None
    if objective_of(objective) != TIME or np.isfinite(variants.energy_j).any():
        data = usable_data()
    made = cross_validate_variants(variants, data, scheme, objective=objective, time=time, **fit)
    return VariantCrossvalResult(made)


def predicted_costs(
    store: Store,
    scalars: xr.Dataset | Columns,
    variants: KernelVariants,
    energies: Callable[[], Energies | None],
) -> dict[str, tuple[float, float]]:
    """Label -> time and energy of measured variants as they are predicted: the time from all other
    variants, the energy from that time by a kept fit; NaN without one. Empty for a kernel that
    does not state its terms, or was measured where clocks alone do not say its costs.

    ``energies``: a kept fit, or None.
    """
    if not stated_metrics(registered_name(store, variants.kernel)):
        return {}
    problem = {name: value_text(value) for name, value in variants.problem.items()}
    try:
        rows = variants_of(store, scalars, variants.site, variants.kernel, problem)
    except FitError:  # under power limits or profiles
        return {}
    if len(rows.instances) < FEWEST:
        return {}
    at = np.array([setting == variants.setting for setting in rows.settings])
    time_s = np.full(len(rows), np.nan)
    for left_out in folds(len(rows.instances), f"{KFOLD}{min(len(rows.instances), FOLDS)}"):
        test = left_out[rows.variant]
        time_s[test] = times_without(rows, test)[test]
    energy_j = np.full(len(rows), np.nan)
    known = energies()
    if known is not None and np.isfinite(time_s[at]).all():
        counts = {name: rows.columns[name][at] for name in rows.counted}
        with suppress(FitError):  # the fit is of other kernels
            energy_j[at] = known.at_setting_j(counts, time_s[at], variants.setting)
    return {
        rows.instances[rows.variant[row]].label: (float(time_s[row]), float(energy_j[row]))
        for row in np.flatnonzero(at).tolist()
    }


def variant_prices(store: Store, scalars: xr.Dataset | Columns, site: str) -> list[dict[str, Any]]:
    """What the variants of a site's kernels are predicted from, as a fit's file keeps it: for each
    kernel that has a space and states its terms, the prices of each family's times, and those of
    energies at one setting."""
    kept: list[dict[str, Any]] = []
    of_site = np.asarray(scalars["site"]) == site
    kernels = set(np.asarray(scalars["kernel"])[of_site].tolist())
    for kernel in sorted(kernels & set(tuned_parameters(store))):
        if not stated_metrics(registered_name(store, kernel)):
            continue
        try:
            variants = variants_of(store, scalars, site, kernel)
        except FitError:
            continue
        for family, cost in zip(variants.families, fit_times(variants), strict=True):
            if cost is not None:
                kept.append(
                    {"kernel": kernel, "family": dict(family), "of": "time"}
                    | price_record(cost, "s")
                )
        energies = fit_energies(variants)
        if energies is not None:
            kept.append(
                {"kernel": kernel, "family": {}, "of": "energy"}
                | energies.setting.as_dict()
                | {"tested": energies.tested, "test_error_pct": energies.test_error_pct}
                | price_record(energies.cost, "J")
            )
    return kept
