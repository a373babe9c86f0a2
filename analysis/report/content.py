"""The content of a report, before it is laid out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
from analysis.measurements.observations import Observations
from analysis.measurements.phase_energy import PhaseSplit
from analysis.measurements.power_trace import PowerTrace
from analysis.report.trust import Remark
from dvfs.setting import Setting


@dataclass(frozen=True, kw_only=True)
class MeasurementCounts:
    """How much of a site has been measured.

    ``ok``: complete points, of which those of ``clock_unproven`` have unproven clocks.
    ``failed``: class of failure -> points; ``left``: planned points that are not measured yet;
    ``without_energy``: complete points for which no meter gave an energy. ``node_hours``: those
    that were spent, for people; empty where no run has measured. ``energy_j``: what all iterations
    in the windows of complete points took, NaN where nothing was measured.
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
    """Each channel as a person reads it, with its domain and period, and of several nodes those
    that have it."""
    node_hours: str = ""
    energy_j: float = math.nan


@dataclass(frozen=True)
class StoredFit:
    """A fit that a store keeps. ``form``: what another fit is to be asked for, to be like it.
    ``made``: when, for people. ``stale``: whether the measurements
    are other ones now, None where that is not known. ``keep``: show it even then."""

    fit: Fit
    form: FormRequest
    name: str
    made: str
    stale: bool | None
    keep: bool


@dataclass(frozen=True)
class ListedOrder:
    """The order in which a campaign file lists kernels (their labels) and settings; empty where it
    lists none. Figures number them in this order."""

    kernels: Sequence[str] = ()
    settings: Sequence[Setting] = ()


@dataclass(frozen=True, kw_only=True)
class SiteReport:
    """One site of a report.

    ``data``: the rows with an energy, None where there are none; ``timing``: the rows of a site
    without energies (``energy_j`` is NaN), None where ``data`` is there. ``why_no_fit`` gives the
    reason where there is no fit. ``notes``: what else could not be done, and why. ``slurm``: a
    kernel's label -> the srun options that request its pick. ``phases``: measured energy by phase
    of the kernels that mark their phases. ``trace``: power against time of one measurement.
    ``counters``: what hardware counters showed. ``listed``: the campaign file's order. ``setting``:
    that of figures of one, None for the fastest. ``fit_origin``: which fit it is. ``remarks``: what
    limits how far the results can be trusted. ``applications``: their energies by the fit of the
    microbenchmarks alone. ``variants``: the study of each kernel that has variants. ``energy``:
    what its measurements took, None where nothing was measured; ``factors``: what a kWh costs and
    emits there, as far as the site's file states it. ``levels``: the levels of power measurement
    that they reach, empty where nothing was measured or the machine is simulated.
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
    listed: ListedOrder = ListedOrder()
    setting: Setting | None = None
    applications: list[ApplicationEnergy] = field(default_factory=list)
    variants: list[VariantStudy] = field(default_factory=list)
    energy: CampaignEnergy | None = None
    factors: Sequence[EnergyFactor] = ()
    levels: Sequence[AspectLevel] = ()


@dataclass(frozen=True)
class ReportContent:
    """A whole report. ``created``: date and time, as text."""

    title: str
    store_name: str
    created: str
    sites: list[SiteReport]
