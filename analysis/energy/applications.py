"""Energies of applications predicted by the fit of microbenchmarks, and their errors.

Choi & Vuduc 2012, section 5.3, predict the energy of some 390 variants of one loop of the fast
multipole method (FMM_U) from microbenchmarks: 32 % off, always too low, as only flops and bytes
were counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.energy.fit import fit
from analysis.energy.fitted import Fit
from analysis.energy.models import AUTO
from analysis.measurements.observations import FitError, Observations, rows_by_kernel
from dvfs.dataset import moves_data
from dvfs.kernel_instance import KernelInstance
from dvfs.setting import Setting

ARITHMETIC = ("sp", "dp", "int")
FEWEST = 2
"""Applications with fewer variants are not shown by variant."""


@dataclass(frozen=True, kw_only=True)
class VariantEnergy:
    """One variant of an application at one setting, means of ``n`` measurements, J.

    ``predicted_j``: by the microbenchmarks' fit, NaN where it lacks a class that the variant
    counts, or the setting's voltage. ``without_integers_j``: the same without the energy of
    integer operations.
    """

    kernel: KernelInstance
    setting: Setting
    n: int
    measured_j: float
    predicted_j: float
    without_integers_j: float

    @property
    def error_pct(self) -> float:
        """Relative error of the prediction, signed, %."""
        return 100.0 * (self.predicted_j / self.measured_j - 1.0)

    @property
    def error_without_integers_pct(self) -> float:
        """The same without the energy of integer operations."""
        return 100.0 * (self.without_integers_j / self.measured_j - 1.0)


@dataclass(frozen=True, kw_only=True)
class ApplicationEnergy:
    """The variants of one application, and the fit of the microbenchmarks that predicts them."""

    name: str
    site: str
    simulated: bool
    fitted: Fit
    variants: list[VariantEnergy]

    @property
    def errors_pct(self) -> np.ndarray:
        """Signed relative errors of the predicted variants, %: float64."""
        errors = np.array([variant.error_pct for variant in self.variants])
        return np.asarray(errors[np.isfinite(errors)])


def application_energies(
    data: Observations, model: str = AUTO, voltage: str = AUTO
) -> list[ApplicationEnergy]:
    """Return the applications with two or more variants, predicted with their measured times.

    A microbenchmark counts at most one class of arithmetic and one of bytes; an application has a
    kernel that counts more. Empty without applications or microbenchmarks.

    Raises:
        FitError: the microbenchmarks do not allow a fit.
    """
    names = {
        data.instance(label).name
        for label, rows in rows_by_kernel(data)
        if not _is_single(data, rows)
    }
    name_of = np.array([data.instance(label).name for label in data.kernels], object)
    row_names = name_of[data.kernel]
    counted = data.has_counts
    micro = counted & ~np.isin(name_of, list(names))[data.kernel]
    if not names or not micro.any():
        return []
    training = data.take(micro)
    fitted = fit(training, model, voltage, intervals=False)
    fitted_classes = {name for name, n in training.counts.items() if (np.nan_to_num(n) > 0).any()}
    shown = []
    for name in sorted(names):
        variants = _variants(data.take(counted & (row_names == name)), fitted, fitted_classes)
        if len({variant.kernel.label for variant in variants}) >= FEWEST:
            shown.append(
                ApplicationEnergy(
                    name=name,
                    site=data.site,
                    simulated=data.simulated,
                    fitted=fitted,
                    variants=variants,
                )
            )
    return shown


def _is_single(data: Observations, rows: np.ndarray) -> bool:
    """Return whether a kernel's rows count at most one class of arithmetic and one of bytes."""
    classes = [n for n, values in data.counts.items() if (np.nan_to_num(values[rows]) > 0).any()]
    arithmetic = [name for name in classes if name in ARITHMETIC]
    return len(arithmetic) <= 1 and sum(map(moves_data, classes)) <= 1


def _variants(data: Observations, fitted: Fit, fitted_classes: set[str]) -> list[VariantEnergy]:
    """Return each kernel at each setting; ``fitted_classes``: counted in the fit's rows."""
    parts_j = fitted.parts_j(data)
    for name, values in data.counts.items():
        if name not in fitted_classes:
            parts_j[np.nan_to_num(values) > 0] = np.nan
    integers = [i for i, term in enumerate(fitted.terms) if term.of == "int"]
    predicted_j = parts_j.sum(axis=1)
    without_j = predicted_j - parts_j[:, integers].sum(axis=1)
    rows = []
    for label, kernel_rows in rows_by_kernel(data):
        for setting in np.unique(data.setting[kernel_rows]):
            at_setting = kernel_rows[data.setting[kernel_rows] == setting]
            rows.append(
                VariantEnergy(
                    kernel=data.instance(label),
                    setting=data.settings[setting],
                    n=len(at_setting),
                    measured_j=float(data.energy_j[at_setting].mean()),
                    predicted_j=float(predicted_j[at_setting].mean()),
                    without_integers_j=float(without_j[at_setting].mean()),
                )
            )
    return rows


def energies_or_why(
    data: Observations, model: str, voltage: str
) -> tuple[list[ApplicationEnergy], str]:
    """Return :func:`application_energies`, or the reason why the microbenchmarks allow no fit."""
    try:
        return application_energies(data, model, voltage), ""
    except FitError as error:
        return [], f"No energy of applications by the microbenchmarks' fit: {error}."
