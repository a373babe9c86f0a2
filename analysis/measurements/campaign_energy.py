"""The energy, in kWh, and node-hours of a site's measurements; and the cost and emissions of a kWh,
constant or by the hour of the day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.measurements.provenance import estimated_energies
from dvfs.dataset import Columns, complete_rows
from dvfs.groups import Groups
from dvfs.texts import Texts

J_PER_KWH = 3.6e6
DAY_H = 24


@dataclass(frozen=True, kw_only=True)
class EnergyFactor:
    """The cost or emissions of a kWh at a site.

    ``of``: ``cost`` or ``CO2e``. ``unit``: a currency, or kg CO2e. ``per_kwh``: one value, or 24,
    one for each hour of the day from midnight, in the time zone UTC plus ``utc_offset_h``.
    ``source``: empty, and ``year`` None, if the store does not state it.
    """

    of: str
    unit: str
    per_kwh: Sequence[float]
    source: str = ""
    year: int | None = None
    utc_offset_h: float = 0.0

    @property
    def key(self) -> str:
        """The name of its column, with the unit."""
        return f"{self.of.lower()}_{self.unit.split()[0]}"

    @property
    def by_hour(self) -> bool:
        """Whether the factor depends on the hour of the day."""
        return len(self.per_kwh) > 1

    def over(self, start_unix_s: np.ndarray, duration_s: np.ndarray) -> np.ndarray:
        """The mean factor over intervals, per kWh, for energy spread evenly over them. NaN if the
        factor depends on the hour and the start or the duration is unknown.

        ``start_unix_s``: float64 (n,), not positive or NaN if unknown. ``duration_s``: float64
        (n,), s.
        """
        if not self.by_hour:
            return np.full(len(start_unix_s), float(self.per_kwh[0]))
        begin_h = np.mod(start_unix_s / 3600.0 + self.utc_offset_h, DAY_H)
        length_h = np.maximum(duration_s / 3600.0, 1e-6)
        until_hour = np.concatenate([[0.0], np.cumsum(self.per_kwh)])

        def until(hour: np.ndarray) -> np.ndarray:
            days, rest = np.divmod(hour, DAY_H)
            within = np.interp(rest, np.arange(DAY_H + 1), until_hour)
            return np.asarray(days * until_hour[-1] + within)

        mean = (until(begin_h + length_h) - until(begin_h)) / length_h
        return np.asarray(np.where(start_unix_s > 0, mean, np.nan))

    def __str__(self) -> str:
        values = (
            f"{DAY_H} values by the hour (UTC{self.utc_offset_h:+g} h) of"
            if self.by_hour
            else f"{self.per_kwh[0]:g}"
        )
        source = self.source or "source not stated"
        year = "" if self.year is None else f", {self.year}"
        return f"{values} {self.unit}/kWh ({source}{year})"


@dataclass(frozen=True, kw_only=True)
class CampaignEnergy:
    """The complete measurements of a site. All arrays have one entry a measurement.

    ``rows``: the label of each kernel -> int64, the rows of its measurements. ``iterations``:
    float64, in all windows. ``energy_kwh``: float64, of these, NaN if not measured. ``duration_s``:
    float64, of all windows. ``node_h``: float64, their node-hours, NaN if the nodes are unknown.
    ``start_unix_s``: float64, NaN or not positive if unknown. ``estimated``: bool, whether the
    energy is an estimate, not measured.
    """

    rows: Mapping[str, np.ndarray]
    iterations: np.ndarray
    energy_kwh: np.ndarray
    duration_s: np.ndarray
    node_h: np.ndarray
    start_unix_s: np.ndarray
    estimated: np.ndarray


def campaign_energy(columns: Columns, site: str) -> CampaignEnergy | None:
    """The energies of a site's complete measurements in a store; None if it has none."""
    rows = np.flatnonzero(complete_rows(columns, site))
    if not len(rows):
        return None
    iterations, time_s, energy_j, start_unix_s = (
        columns[name][rows].astype(float)
        for name in ("iterations", "time_s", "energy_j", "start_unix_s")
    )
    kernels, kernel_of = columns.kernels
    groups = Groups(kernel_of[rows])
    duration_s = time_s * iterations
    return CampaignEnergy(
        rows={
            kernels[i].label: rows_of_kernel
            for i, rows_of_kernel in zip(groups.codes.tolist(), groups.rows(), strict=True)
        },
        iterations=iterations,
        energy_kwh=np.where(energy_j > 0, energy_j, np.nan) * iterations / J_PER_KWH,
        duration_s=duration_s,
        node_h=duration_s / 3600.0 * node_counts(columns.texts("node")[rows]),
        start_unix_s=start_unix_s,
        estimated=estimated_energies(columns, rows) != "",
    )


def node_counts(nodes: Texts) -> np.ndarray:
    """The number of nodes in each text, which joins their names by +; NaN for an empty text."""
    counts = [name.count("+") + 1.0 if name else np.nan for name in nodes.values]
    return nodes.array(np.float64, counts)
