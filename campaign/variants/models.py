"""Models of a kernel's variants: cross-validation, prices in a fit, and predictions."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
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
from analysis.measurements.variants import (
    KernelVariants,
    MeasuredVariants,
    measured_variants,
    refuse_other_work,
)
from campaign.store.planned import planned_kernels
from campaign.variants.stated_terms import stated_metrics, stated_terms
from campaign.variants.study import kernels_at, tuned_parameters
from dvfs.dataset import complete_rows, count_columns
from dvfs.errors import ArgumentError
from dvfs.kernel_instance import KernelInstance
from dvfs.setting import Setting, Volts

if TYPE_CHECKING:
    import pandas as pd

    from analysis.energy.fitted import Fit
    from analysis.measurements.observations import Observations
    from campaign.store.layout import Store
    from dvfs.dataset import Columns


FOLDS = 50
"""The most folds of variants in predictions of measured variants: more would take long."""


@dataclass(frozen=True, kw_only=True)
class Energies:
    """The inputs to predict energies: a fit and its ``name``, the site's measurements, and voltages
    by setting. ``why_stale``: why the fit is not of the measurements that the store has now, with
    the remedy; empty if it is."""

    name: str
    fit: Fit
    data: Observations
    volts: Volts
    why_stale: str = ""

    def at_setting_j(
        self,
        counts: Mapping[str, np.ndarray],
        time_s: np.ndarray,
        setting: Setting,
    ) -> np.ndarray:
        """The energies (n,) of variants at a setting; see
        :func:`analysis.choice.variant_prices.energies_j`.

        Raises:
            FitError: the fit lacks a class, or no voltage is known at the setting.
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
    columns: Columns,
    site: str,
    kernel: str | None = None,
    problem: Mapping[str, str] | None = None,
    *,
    space: Collection[str] | None = None,
) -> MeasuredVariants:
    """The measured variants of a kernel; where none is named, of the only kernel with variants.

    ``space``: the parameters that make a kernel's variants (default: those of the space that the
    store's campaign declares).

    Raises:
        ArgumentError: no kernel is named, and there is not exactly one with variants.
        FitError: see :func:`analysis.measurements.variants.measured_variants`.
    """
    tuned = tuned_parameters(store)
    if kernel is None:
        kernels = kernels_at(columns, site)
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
        return stated or _counts(columns, site, instances)

    names = tuned.get(kernel, ()) if space is None else space
    return measured_variants(columns, site, kernel, terms, tuned=names, problem=problem)


def registered_name(store: Store, kernel: str) -> str:
    """The name in the registry of a kernel of the store, which may have a label there."""
    planned = planned_kernels(store).get(kernel)
    return kernel if planned is None else planned.registered


def _counts(
    columns: Columns, site: str, instances: Sequence[KernelInstance]
) -> dict[str, np.ndarray]:
    """Class -> counts (variants,), for the classes that all variants have counts of."""
    kernels, kernel_of_row = columns.kernels
    rows = np.flatnonzero(columns["site"] == site)
    numbers, firsts = np.unique(kernel_of_row[rows], return_index=True)
    labels = [kernels[number].label for number in numbers.tolist()]
    first_row = dict(zip(labels, rows[firsts].tolist(), strict=True))
    variant_rows = [first_row[instance.label] for instance in instances]
    counts = {
        name: columns[column][variant_rows].astype(float)
        for name, column in count_columns(columns).items()
    }
    return {name: values for name, values in counts.items() if np.isfinite(values).all()}


def crossvalidate_variants(
    store: Store,
    columns: Columns,
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
    """See :meth:`campaign.results.Results.crossval_variants`. ``usable_data``: returns the site's
    measurements for the energy model; called only where there are energies."""
    if time not in ("measured", "predicted"):
        raise ArgumentError("--time: must be measured or predicted with a scheme over variants")
    variants = variants_of(store, columns, site, kernel, problem)
    if not problem and variants.kernel not in tuned_parameters(store):
        is_kernel = columns["kernel"] == variants.kernel
        refuse_other_work(columns, np.flatnonzero(complete_rows(columns, site) & is_kernel))
    data: Observations | None = None
    if objective_of(objective) != TIME or np.isfinite(variants.energy_j).any():
        data = usable_data()
    result = cross_validate_variants(variants, data, scheme, objective=objective, time=time, **fit)
    return VariantCrossvalResult(result)


def predicted_costs(
    store: Store,
    columns: Columns,
    variants: KernelVariants,
    energies: Callable[[], Energies | None],
) -> dict[str, tuple[float, float]]:
    """Label -> predicted time (s) and energy (J) of measured variants. The time is predicted from
    the other variants, the energy from that time by a kept fit; NaN without a fit. Empty for a
    kernel that does not state its terms, or was measured under power limits or profiles.

    ``energies``: returns the inputs from a kept fit, or None.
    """
    if not stated_metrics(registered_name(store, variants.kernel)):
        return {}
    problem = {name: value_text(value) for name, value in variants.problem.items()}
    try:
        measured = variants_of(store, columns, variants.site, variants.kernel, problem)
    except FitError:  # under power limits or profiles
        return {}
    if len(measured.instances) < FEWEST:
        return {}
    at_setting = np.array([setting == variants.setting for setting in measured.settings])
    time_s = np.full(len(measured), np.nan)
    for fold in folds(len(measured.instances), f"{KFOLD}{min(len(measured.instances), FOLDS)}"):
        test = fold[measured.variant]
        time_s[test] = times_without(measured, test)[test]
    energy_j = np.full(len(measured), np.nan)
    inputs = energies()
    if inputs is not None and np.isfinite(time_s[at_setting]).all():
        counts = {name: column[at_setting] for name, column in measured.counts.items()}
        with suppress(FitError):  # the fit is of other kernels
            energy_j[at_setting] = inputs.at_setting_j(counts, time_s[at_setting], variants.setting)
    return {
        measured.instances[measured.variant[row]].label: (float(time_s[row]), float(energy_j[row]))
        for row in np.flatnonzero(at_setting).tolist()
    }


def variant_prices(store: Store, columns: Columns, site: str) -> list[dict[str, Any]]:
    """The prices that predict variants of a site's kernels, as a fit's file keeps them: for each
    kernel that has a space and states its terms, the prices of each family's times, and those of
    energies at one setting."""
    records: list[dict[str, Any]] = []
    tuned = tuned_parameters(store)
    for kernel in kernels_at(columns, site):
        if kernel not in tuned or not stated_metrics(registered_name(store, kernel)):
            continue
        try:
            variants = variants_of(store, columns, site, kernel)
        except FitError:
            continue
        for family, cost in zip(variants.families, fit_times(variants), strict=True):
            if cost is not None:
                records.append(
                    {"kernel": kernel, "family": dict(family), "of": "time"}
                    | price_record(cost, "s")
                )
        energies = fit_energies(variants)
        if energies is not None:
            records.append(
                {"kernel": kernel, "family": {}, "of": "energy"}
                | energies.setting.as_dict()
                | {"tested": energies.tested, "test_error_pct": energies.test_error_pct}
                | price_record(energies.cost, "J")
            )
    return records
