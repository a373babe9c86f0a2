"""What a report says, before it is laid out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from analysis.choice.crossval import CrossValidation
from analysis.choice.pick import Candidates, Pick
from analysis.energy.fit import Fit
from analysis.measurements.observations import Observations
from analysis.measurements.phase_energy import PhaseSplit


@dataclass(frozen=True)
class Measured:
    """What there is of a site in the store, counted.

    ``failed``: class of failure -> points; ``left``: points planned and not measured;
    ``without_energy``: ok points that no meter gave an energy to.
    """

    ok: int
    failed: Mapping[str, int]
    left: int
    without_energy: int
    kernels: int
    settings: int
    nodes: list[str]
    meters: list[str]
    """Each channel as a person reads it, with its domain and period."""


@dataclass(frozen=True)
class SiteReport:
    """One site of a report.

    ``data`` are the rows with an energy, None where there are none; ``timing`` the rows of a
    site without energies, ``energy_j`` NaN, None where ``data`` is there. A fit, where there is
    none, is explained by ``why_no_fit``. ``notes`` say what else could not be done, and why.
    ``slurm``: label -> the srun options that ask for its pick. ``phases``: measured energy by
    phase, of the kernels that mark theirs.
    """

    site: str
    simulated: bool
    measured: Measured
    data: Observations | None
    why_no_fit: str = ""
    fit: Fit | None = None
    crossvals: list[CrossValidation] = field(default_factory=list)
    picks: list[Pick] = field(default_factory=list)
    candidates: Mapping[str, Candidates] = field(default_factory=dict)
    slurm: Mapping[str, str] = field(default_factory=dict)
    timing: Observations | None = None
    notes: list[str] = field(default_factory=list)
    phases: list[PhaseSplit] = field(default_factory=list)


@dataclass(frozen=True)
class ReportContent:
    """A whole report. ``created``: date and time, as text."""

    title: str
    store_name: str
    created: str
    sites: list[SiteReport]
