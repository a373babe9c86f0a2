"""The content of a report, before it is laid out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from analysis.choice.candidates import SettingCandidates
from analysis.choice.crossval import CrossValidation
from analysis.choice.pick import Pick
from analysis.choice.variants import VariantStudy
from analysis.energy.applications import ApplicationEnergy
from analysis.energy.fitted import Fit
from analysis.energy.models import FormRequest
from analysis.measurements.campaign_energy import CampaignEnergy, EnergyFactor
from analysis.measurements.hardware_counters import KernelCounters
from analysis.measurements.measurement_levels import AspectLevel
from analysis.measurements.observations import Observations, kernel_names
from analysis.measurements.phase_energy import PhaseSplit
from analysis.measurements.power_trace import PowerTrace
from analysis.report.trust import Remark
from analysis.rooflines.roofline import RoofFraction, roof_fractions
from dvfs.setting import Setting


@dataclass(frozen=True, kw_only=True)
class MeasurementCounts:
    """The numbers of a site's measurements.

    ``ok``: complete points; ``clock_unproven``: those of them with unproven clocks. ``failed``:
    class of failure -> points; ``left``: planned points that are not measured yet;
    ``without_energy``: complete points without an energy from a meter. ``node_hours``: the text of
    the node-hours spent; empty if no run has measured. ``energy_j``: of all iterations in the
    windows of complete points.
    """

    ok: int
    failed: Mapping[str, int] = field(default_factory=dict)
    left: int = 0
    without_energy: int = 0
    clock_unproven: int = 0
    kernels: int
    settings: int
    nodes: list[str]
    meters: list[str]
    """The text of each channel, with its domain and period, and its nodes if there are several."""
    node_hours: str = ""
    energy_j: float = 0.0


@dataclass(frozen=True)
class StoredFit:
    """A fit in a store. ``form``: the options that refit its form. ``made``: the text of its time.
    ``stale``: whether the measurements have changed since, None if unknown. ``keep``: show the fit
    even if it is stale."""

    fit: Fit
    form: FormRequest
    name: str
    made: str
    stale: bool | None
    keep: bool


class ListedOrder(NamedTuple):
    """The order of kernels (their labels) and settings in a campaign file, in which figures number
    them; empty if the file lists none."""

    kernels: Sequence[str] = ()
    settings: Sequence[Setting] = ()


@dataclass(frozen=True, kw_only=True)
class SiteReport:
    """One site of a report.

    ``data``: the rows with an energy, or None; ``timing``: the rows of a site without energies
    (``energy_j`` is NaN), None if there is ``data``. ``why_no_fit``: the reason if there is no fit.
    ``notes``: further results that are missing, and why. ``slurm``: a kernel's label -> the srun
    options that request its pick. ``phases``: measured energy of the kernels that mark phases.
    ``trace``: power against time of one measurement. ``counters``: results of hardware counters.
    ``listed``: the campaign file's order. ``setting``: of the figures at one setting, None for the
    fastest. ``all_kernels``: the rows of all kernels, whose best rates are the roofs, if the report
    shows some alone. ``fit_origin``: the description of the fit. ``remarks``: limits on the
    reliability of the results. ``applications``: their energies by the fit of the microbenchmarks
    alone. ``variants``: the study of each kernel with variants. ``energy``: of the measurements,
    None if nothing was measured; ``factors``: cost and emissions of a kWh, if the site's file
    states them. ``levels``: the levels of power measurement, empty if nothing was measured or the
    machine is simulated.
    """

    site: str
    simulated: bool
    measured: MeasurementCounts
    data: Observations | None = None
    why_no_fit: str = ""
    fit: Fit | None = None
    fit_origin: str = ""
    remarks: list[Remark] = field(default_factory=list)
    crossvals: list[CrossValidation] = field(default_factory=list)
    picks: list[Pick] = field(default_factory=list)
    candidates: Mapping[str, SettingCandidates] = field(default_factory=dict)
    slurm: Mapping[str, str] = field(default_factory=dict)
    timing: Observations | None = None
    notes: list[str] = field(default_factory=list)
    phases: list[PhaseSplit] = field(default_factory=list)
    trace: PowerTrace | None = None
    counters: list[KernelCounters] = field(default_factory=list)
    listed: ListedOrder = field(default_factory=ListedOrder)
    setting: Setting | None = None
    applications: list[ApplicationEnergy] = field(default_factory=list)
    variants: list[VariantStudy] = field(default_factory=list)
    energy: CampaignEnergy | None = None
    factors: Sequence[EnergyFactor] = ()
    levels: Sequence[AspectLevel] = ()
    all_kernels: Observations | None = None

    @property
    def observed(self) -> Observations | None:
        """The rows with times: ``data``, else ``timing``."""
        return self.timing if self.data is None else self.data

    @property
    def roofs(self) -> list[RoofFraction]:
        """The fraction of the roof of each shown kernel with operation counts, by label."""
        if self.observed is None:
            return []
        shown = set(kernel_names(self.observed))
        roofs = roof_fractions(self.observed if self.all_kernels is None else self.all_kernels)
        return [roof for roof in roofs if roof.label in shown]


@dataclass(frozen=True)
class ReportContent:
    """A report. ``created``: date and time, as text."""

    title: str
    store_name: str
    created: str
    sites: list[SiteReport]
