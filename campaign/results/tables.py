"""The results that the Python interface returns: frozen dataclasses that convert to a table, JSON
and a notebook's HTML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from dvfs.setting import AS_FOUND, AXES, Setting

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from analysis.choice.candidates import SettingCandidates
    from analysis.choice.pick import Pick
    from analysis.energy.fit_summary import FitSummary
    from analysis.energy.fitted import Fit
    from analysis.predict.site import PosteriorCheck
    from campaign.results.fits import FitSource
    from campaign.store.mixtures import Mixture
    from campaign.store.states import PartitionStatus


def html_table(frame: pd.DataFrame, title: str) -> str:
    """A table below its title, as HTML."""
    return f"<p>{escape(title)}</p>\n{frame.to_html(float_format='{:.4g}'.format, na_rep='-')}"


def simulated_mark(simulated: bool) -> str:
    """The end of a title, which marks simulated results."""
    return " (simulated)" if simulated else ""


@dataclass(frozen=True)
class SiteFinding:
    """A finding of a check of a site's measurements.

    ``finding``: ``check`` (its name), ``severity`` (``refused``: no fit can be true to these
    measurements; ``warning``; ``note``), ``text`` and ``kernels``. ``examples``: the first affected
    rows, a line each; ``point_ids``: the ids of all affected rows.
    """

    site: str
    finding: Mapping[str, Any]
    examples: tuple[str, ...]
    point_ids: tuple[str, ...]

    @property
    def refuses(self) -> bool:
        """Whether no fit can be true to these measurements."""
        return bool(self.finding["severity"] == "refused")

    def as_dict(self) -> dict[str, Any]:
        """An entry of ``findings`` of ``campaign fit --json``."""
        return dict(self.finding)

    def text_for_people(self) -> str:
        """The finding in a sentence, and the first rows, a line each."""
        severity = "cannot be used for a fit" if self.refuses else self.finding["severity"]
        first = f"{self.site}: {severity}: {self.finding['check']}: {self.finding['text']}"
        return "\n".join([first, *(f"    {line}" for line in self.examples)])


@dataclass(frozen=True)
class FitResult:
    """A fit, the findings of the checks of its measurements, and its source."""

    fit: Fit
    findings: tuple[SiteFinding, ...]
    source: FitSource
    variant_prices: tuple[Mapping[str, Any], ...] = ()
    """The prices that predict variants (:func:`campaign.variants.models.variant_prices`)."""
    check: PosteriorCheck | None = None
    """How well the posterior, from which picks come, predicts settings left out; None with fewer
    than three settings, or where the fit started from another site's."""

    @property
    def summary(self) -> FitSummary:
        """The fit without the arrays that predictions need."""
        from analysis.energy.fit_summary import FitSummary  # noqa: PLC0415

        prices = {"variant_prices": list(self.variant_prices)}
        return FitSummary.model_validate(self.fit.as_dict() | prices)

    def as_dict(self) -> dict[str, Any]:
        """``campaign fit --json``."""
        prices = {"variant_prices": list(self.variant_prices)} if self.variant_prices else {}
        return (
            self.fit.as_dict()
            | prices
            | {
                "findings": [finding.as_dict() for finding in self.findings],
                "fit": self.source.as_dict(),
                "posterior_check": None
                if self.check is None
                else asdict(self.check) | {"worst": self.check.worst.as_dict()},
            }
        )

    def to_pandas(self) -> pd.DataFrame:
        """The coefficients, a row each: ``name``, ``value``, ``low``, ``high`` (95 %), ``unit``."""
        return _coefficient_frame(self.summary)

    def _repr_html_(self) -> str:
        return html_table(self.to_pandas(), _fit_title(self.summary))


@dataclass(frozen=True)
class Coefficients:
    """A kept fit's coefficients; ``as_json``: the fit's file without the arrays for predictions."""

    summary: FitSummary
    as_json: Mapping[str, Any]
    source: FitSource

    def to_pandas(self) -> pd.DataFrame:
        """The coefficients, a row each: ``name``, ``value``, ``low``, ``high`` (95 %), ``unit``."""
        return _coefficient_frame(self.summary)

    def _repr_html_(self) -> str:
        return html_table(self.to_pandas(), _fit_title(self.summary))


@dataclass(frozen=True)
class OperationCost:
    """The cost of one operation of a class, or of time, at a setting, with its 95 % interval."""

    name: str
    value: float
    unit: str
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class CostsAtSetting:
    """The coefficients at one setting (Choi & Vuduc 2016, Table I), by the fit ``fit``. Voltages
    are None where the fit assumed V = 1, and relative where it estimated them."""

    site: str
    simulated: bool
    fit: FitSource
    setting: Setting
    core_v: float | None
    mem_v: float | None
    costs: tuple[OperationCost, ...]

    def as_dict(self) -> dict[str, Any]:
        """``campaign coefficients --core-mhz ... --json``."""
        values = asdict(self) | {"fit": self.fit.as_dict()} | self.setting.as_dict()
        del values["setting"]
        return values

    def to_pandas(self) -> pd.DataFrame:
        """The costs, a row each."""
        import pandas as pd  # noqa: PLC0415

        return pd.DataFrame([asdict(cost) for cost in self.costs])

    def _repr_html_(self) -> str:
        from analysis.measurements.observations import setting_text  # noqa: PLC0415

        title = f"{self.site} at {setting_text(self.setting)}"
        return html_table(self.to_pandas(), title + simulated_mark(self.simulated))


@dataclass(frozen=True)
class Prediction:
    """A pick with the Slurm flags that request its setting. ``slurm_cannot_set``: the clock that
    srun has no option for, such as ``mem_mhz``; empty where it can set all."""

    pick: Pick
    simulated: bool
    slurm: str
    slurm_cannot_set: str

    def as_dict(self) -> dict[str, Any]:
        """An entry of ``campaign predict --json``; a clock that a site does not have is None."""
        fields: dict[str, Any] = {}
        for name, value in vars(self.pick).items():
            if name == "setting":
                fields |= self.pick.setting.as_dict()
            elif name == "best_single":
                single = self.pick.best_single or AS_FOUND
                fields |= {f"best_single_{axis}": value for axis, value in single.as_dict().items()}
            else:
                fields[name] = value
        return fields | {
            "params": dict(self.pick.params),
            "simulated": self.simulated,
            "slurm": self.slurm,
            "slurm_cannot_set": self.slurm_cannot_set,
        }


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """The picks of a site's kernels, by an objective and within limits.

    ``fit``: the source of the picks; ``data_id``: of the site's measurements
    (:func:`campaign.results.fits.data_id`); ``clock_unproven``: how many of these have that status.
    """

    site: str
    simulated: bool
    fit: FitSource
    data_id: str
    clock_unproven: int
    objective: str
    max_slowdown: float | None
    max_power_w: float | None
    predictions: tuple[Prediction, ...]
    without_pick: tuple[str, ...]
    """A line for each kernel that has no setting within the limits."""
    warnings: tuple[str, ...] = ()
    """What is doubtful about the profile or the fit, a line each."""
    device: Literal["cpu", "gpu"]
    """The device whose clocks the settings are."""
    candidates: Mapping[str, SettingCandidates] = field(repr=False)
    """Label -> the settings that the pick was chosen from, with their predictions."""

    def as_dicts(self) -> list[dict[str, Any]]:
        """``campaign predict --json``."""
        common: dict[str, Any] = {"fit": self.fit.as_dict()}
        common |= {"warnings": list(self.warnings)} if self.warnings else {}
        return [prediction.as_dict() | common for prediction in self.predictions]

    def to_pandas(self) -> pd.DataFrame:
        """The picks, a row each; ``params`` is a dictionary."""
        import pandas as pd  # noqa: PLC0415

        return pd.DataFrame([prediction.as_dict() for prediction in self.predictions])

    def to_xarray(self) -> xr.Dataset:
        """The picks along the dimension ``kernel``, with the kernels' labels as coordinate."""
        frame = (
            self.to_pandas().drop(columns=["kernel", "params"]).rename(columns={"label": "kernel"})
        )
        return frame.set_index("kernel").to_xarray().assign_attrs(site=self.site)

    def _repr_html_(self) -> str:
        shown = ["label", *AXES, "saving_pct", "slowdown_pct", "slurm"]
        title = f"{self.site}: least {self.objective}{simulated_mark(self.simulated)}"
        return html_table(self.to_pandas().filter(items=shown), title)


@dataclass(frozen=True)
class RooflineResult:
    """Rooflines at one setting; ``shown`` is ``campaign roofline --json``.

    ``source``: the fit that gives the energies, None where a regression gives them.
    """

    shown: Mapping[str, Any]
    source: FitSource | None

    def as_dict(self) -> dict[str, Any]:
        """``campaign roofline --json``."""
        return dict(self.shown)

    def to_pandas(self) -> pd.DataFrame:
        """A row for each pair of classes: peaks, energies, balances and the verdict."""
        import pandas as pd  # noqa: PLC0415

        return pd.DataFrame(self.shown["pairs"])

    def _repr_html_(self) -> str:
        names = ["operation", "memory", "time_balance", "effective_balance", "verdict"]
        title = self.shown.get("site") or self.shown["platform"]
        return html_table(self.to_pandas()[names], title)


@dataclass(frozen=True)
class Status:
    """The points done, failed and left in a store.

    ``failures``: class of failure -> (number of attempts, text of the last). ``flags``: (number of
    measurements, an example) of each flag. ``damage``: a line for each damaged file. ``mixtures``:
    the differences of sites whose measurements were made in several ways.
    """

    partitions: tuple[PartitionStatus, ...]
    failures: Mapping[str, tuple[int, str]]
    flags: tuple[tuple[int, str], ...]
    damage: tuple[str, ...]
    mixtures: tuple[Mixture, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether no planned point failed or is left."""
        planned = [row for row in self.partitions if row.in_plan]
        return all(row.failed == row.left == 0 for row in planned)

    def rows(self) -> list[dict[str, Any]]:
        """The partitions, a row each: points by state, seconds until the end, and node-hours spent
        (None: unknown), which are a lower bound unless ``node_hours_complete``."""
        from campaign.launch.snapshot import seconds_to_end  # noqa: PLC0415

        return [
            {
                "site": row.site,
                "partition": row.partition,
                "planned": row.planned,
                "done": row.done,
                "clock_unproven": row.clock_unproven,
                "failed": row.failed,
                "left": row.left,
                "waiting": row.waiting,
                "seconds_to_end": seconds_to_end(row.latest_unix_s, row.left) if row.left else 0.0,
                "node_hours": row.spent.node_hours if row.spent else None,
                "node_hours_complete": bool(row.spent and row.spent.complete),
            }
            for row in self.partitions
        ]

    def as_dict(self) -> dict[str, Any]:
        """``campaign status --json``."""
        attempts = {name: count for name, (count, _) in self.failures.items()}
        return {
            "partitions": self.rows(),
            "failed_attempts": attempts,
            "damage": list(self.damage),
            "mixtures": [mixture.as_dict() for mixture in self.mixtures],
        }

    def to_pandas(self) -> pd.DataFrame:
        """:meth:`rows` as a DataFrame."""
        import pandas as pd  # noqa: PLC0415

        return pd.DataFrame(self.rows())

    def _repr_html_(self) -> str:
        return html_table(self.to_pandas(), "complete" if self.complete else "not complete")


def _coefficient_frame(summary: FitSummary) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415

    names = ["name", "value", "low", "high", "unit"]
    rows = [[getattr(entry, name) for name in names] for entry in summary.coefficients]
    return pd.DataFrame(rows, columns=names)


def _fit_title(summary: FitSummary) -> str:
    return (
        f"{summary.site}: model {summary.model}, voltage {summary.voltage}, {summary.n} "
        f"measurements{simulated_mark(summary.simulated)}"
    )
