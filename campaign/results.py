"""The Python interface: open a store, and ask it what the command line asks.

    >>> from campaign.results import open_store
    >>> store = open_store("campaign-demo/store")
    >>> store.fit("jetson-tk1")
    >>> store.predict("jetson-tk1").to_pandas()

Everything that is heavy is imported where it is used, so that what reads a JSON file alone
answers at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign import fits
from campaign.errors import BadArgument
from campaign.result_tables import (
    Coefficients,
    Cost,
    CostsAtSetting,
    CrossvalResult,
    FitResult,
    Prediction,
    Predictions,
    RooflineResult,
    SiteFinding,
    Status,
)
from campaign.slurm_flags import slurm_flags
from campaign.store import layout
from campaign.store.site_record import SiteRecord, read_site_record

if TYPE_CHECKING:
    import xarray as xr

    from analysis.energy.fitted import Fit
    from analysis.measurements.observations import Observations

Setting = tuple[float, float]
"""(core MHz, memory MHz); NaN where a site has no such clock."""
EXAMPLES = 3
"""Rows that are named of what a check finds."""


@dataclass(frozen=True)
class Results:
    """A store as its reader sees it. Open one with :func:`open_store`."""

    store: layout.Store

    @property
    def path(self) -> Path:
        """The store's folder."""
        return self.store.root

    @cached_property
    def dataset(self) -> xr.Dataset:
        """All measurements, and their traces' samples, which are read when they are used.

        See :func:`campaign.store.dataset.open_dataset` for its dimensions.
        """
        from campaign.store.dataset import open_dataset  # noqa: PLC0415

        return open_dataset(self.store)

    @cached_property
    def scalars(self) -> xr.Dataset:
        """:attr:`dataset` without traces, in memory."""
        from campaign.store.dataset import read_scalars  # noqa: PLC0415

        return read_scalars(self.store)

    @property
    def sites(self) -> list[str]:
        """The sites that the store has measurements of, sorted."""
        from analysis.measurements.observations import site_names  # noqa: PLC0415

        return site_names(self.scalars)

    def status(self, verify: bool = False) -> Status:
        """What is done, failed and left. ``verify``: read all traces too, and name damaged ones."""
        from campaign.store.states import store_status  # noqa: PLC0415

        now = store_status(self.store)
        damage = list(now.damage)
        if verify:
            from campaign.store.verify import damaged_traces  # noqa: PLC0415

            damage += damaged_traces(self.store)
        return Status(tuple(now.partitions), now.failures, tuple(now.flags.values()), tuple(damage))

    def site_record(self, site: str) -> SiteRecord:
        """What the store knows of a site beside its measurements."""
        return read_site_record(self.store, site)

    def observations(self, site: str) -> Observations:
        """A site's measurements as the model takes them.

        Raises:
            CantFit: the site is not in the store, or none of its measurements has an energy.
        """
        from analysis.measurements.observations import observations  # noqa: PLC0415

        return observations(self.scalars, site, self.site_record(site).classes)

    def findings(self, site: str) -> tuple[SiteFinding, ...]:
        """What the checks of a site's measurements find."""
        return site_findings(self.scalars, site)

    def fit(
        self, site: str, model: str = "auto", voltage: str = "auto", robust: bool = False
    ) -> FitResult:
        """Fit the energy model to a site's measurements, and keep the fit in the store.

        ``model`` and ``voltage``: names of :mod:`analysis.energy.forms`; ``auto`` chooses by
        cross-validation. ``robust``: measurements far from the model count less (Huber).

        Raises:
            BadArgument: no fit can be true to these measurements.
            CantFit: there are too few measurements, or the names are unknown.
        """
        from analysis.energy.fit import fit  # noqa: PLC0415

        data, findings = self._data_to_fit(site)
        made = fit(data, model, voltage, robust=robust)
        fits.keep_fit(self.store, made)
        return FitResult(made, findings)

    def _data_to_fit(self, site: str) -> tuple[Observations, tuple[SiteFinding, ...]]:
        findings = self.findings(site)
        for finding in findings:
            if finding.refuses:
                raise BadArgument(f"{site}: {finding.finding['text']}")
        return self.observations(site), findings

    @property
    def fitted_sites(self) -> list[str]:
        """The sites that the store has a fit of, sorted."""
        return fits.fitted_sites(self.store)

    def kept_fit(self, site: str) -> Fit:
        """The fit that the store keeps of a site.

        Raises:
            NoKeptFit: there is none.
        """
        return fits.read_fit(self.store, site)

    def coefficients(self, site: str) -> Coefficients:
        """The coefficients of the fit that the store keeps of a site. Reads one JSON file.

        Raises:
            NoKeptFit: there is none.
        """
        from pydantic import ValidationError  # noqa: PLC0415

        from analysis.energy.fit_summary import (  # noqa: PLC0415
            FitSummary,
            first_error,
            summary_json,
        )

        kept = fits.read_fit_json(self.store, site)
        try:
            return Coefficients(FitSummary.model_validate(kept), summary_json(kept))
        except ValidationError as error:
            raise fits.not_a_fit(self.store, site, first_error(error)) from None

    def costs(
        self, site: str, core_mhz: float | None = None, mem_mhz: float | None = None
    ) -> CostsAtSetting:
        """What operations and time cost at a setting, by the fit that the store keeps.

        Raises:
            NoKeptFit: there is no fit.
            BadArgument: not one setting of known voltage is at these clocks.
        """
        fit, volts = self.kept_fit(site), self.setting_volts(site)
        wanted = tuple(math.nan if mhz is None else mhz for mhz in (core_mhz, mem_mhz))
        matches = [
            pair
            for pair in volts
            if all(math.isnan(w) or w == mhz for w, mhz in zip(wanted, pair, strict=True))
        ]
        if len(matches) != 1:
            among = sorted(matches or volts)
            known = " ".join(f"{core:g},{mem:g}" for core, mem in among[:8])
            asked = " ".join(
                f"{option} {mhz:g}"
                for option, mhz in zip(("--core-mhz", "--mem-mhz"), wanted, strict=True)
                if not math.isnan(mhz)
            )
            fits_what = "fits several settings" if matches else "is at no setting of known voltage"
            raise BadArgument(
                f"{site}: {asked} {fits_what}; give --core-mhz and --mem-mhz of one of: "
                f"{known}{' ...' if len(among) > 8 else ''}"
            )
        return _setting_costs(fit, matches[0], volts[matches[0]])

    def costs_by_setting(self, site: str) -> list[CostsAtSetting]:
        """:meth:`costs` at every setting that was measured."""
        fit, volts = self.kept_fit(site), self.setting_volts(site)
        settings = self.observations(site).settings
        return [_setting_costs(fit, pair, volts[pair]) for pair in settings]

    def setting_volts(self, site: str) -> dict[Setting, tuple[float, float]]:
        """The voltages of every setting that was measured or is legal, where they are known."""
        from analysis.choice.legal_settings import known_volts  # noqa: PLC0415

        return known_volts(self.observations(site), self.site_record(site).legal)

    def crossval(
        self,
        site: str | Sequence[str],
        scheme: str = "leave-one-setting-out",
        *,
        model: str = "auto",
        voltage: str = "auto",
        robust: bool = False,
        time: str = "measured",
        train: Sequence[Setting] | None = None,
        objective: str = "energy",
    ) -> CrossvalResult:
        """Cross-validate a site's model; several sites for ``leave-one-site-out``.

        ``train``: the settings that a holdout fits on. ``time``: the run time that the model is
        given: ``measured``, ``predicted`` or ``profile``. ``objective``: what the picks minimise
        and are judged by, as for :meth:`predict`.

        Raises:
            BadArgument: arguments that do not go together, or no fit can be true to these
                measurements.
            CantFit: there are too few measurements, or the scheme is unknown.
        """
        from analysis.choice.crossval import cross_validate, leave_one_site_out  # noqa: PLC0415

        sites = [site] if isinstance(site, str) else list(site)
        over_sites = scheme == "leave-one-site-out"
        if len(sites) > 1 and not over_sites:
            raise BadArgument("--site: several sites need --scheme leave-one-site-out")
        if over_sites and time != "measured":
            raise BadArgument("--time: leave-one-site-out uses measured times only")
        if train and scheme != "holdout":
            raise BadArgument("--train needs --scheme holdout")
        data = [self._data_to_fit(name)[0] for name in sites]
        if over_sites:
            return CrossvalResult(
                leave_one_site_out(data, model, voltage, robust=robust, objective=objective)
            )
        return CrossvalResult(
            cross_validate(
                data[0],
                scheme,
                model,
                voltage=voltage,
                robust=robust,
                time=time,
                train=train,
                objective=objective,
            )
        )

    def predict(
        self,
        site: str,
        *,
        kernel: str | None = None,
        objective: str = "energy",
        max_slowdown: float | None = None,
        max_power_w: float | None = None,
        all_settings: bool = False,
        profile: str | Path | None = None,
    ) -> Predictions:
        """The best setting for each kernel by the fit that the store keeps.

        ``kernel``: a kernel's name, its label with parameters, or its short name in a table.
        ``objective``: ``energy``, ``time``, ``edp``, ``ed2p`` or ``weighted:ALPHA``.
        ``max_slowdown``: at most this fraction slower than the fastest setting. ``all_settings``:
        legal settings that were not measured as well. ``profile``: a profile file's application
        instead of the measured kernels.

        Raises:
            NoKeptFit: there is no fit.
            BadArgument: a limit is not positive, or there is no such kernel.
            CantFit: no setting of any kernel keeps the limits, or the objective is unknown.
        """
        from campaign.picking import (  # noqa: PLC0415
            application_candidates,
            kernel_candidates,
            picks_within_limits,
        )

        if max_slowdown is not None and not max_slowdown >= 0:
            raise BadArgument("--max-slowdown: must be 0 or more, such as 0.05 for 5 %")
        if max_power_w is not None and not max_power_w > 0:
            raise BadArgument("--max-power-w: must be more than 0, such as 150 for 150 W")
        fit, data = self.kept_fit(site), self.observations(site)
        volts = self.setting_volts(site) if all_settings else None
        warnings: list[str] = []
        if profile is not None:
            one, warnings = application_candidates(Path(profile), fit, data, volts)
            among = [one]
        else:
            among = kernel_candidates(fit, data, kernel, volts)
        picks, without = picks_within_limits(among, objective, max_slowdown, max_power_w)
        device = self.site_record(site).device
        return Predictions(
            site=site,
            simulated=fit.simulated,
            model=fit.model,
            objective=objective,
            max_slowdown=max_slowdown,
            max_power_w=max_power_w,
            predictions=tuple(
                Prediction(pick, fit.simulated, slurm_flags(pick.core_mhz, pick.mem_mhz, device))
                for pick in picks
            ),
            without_pick=tuple(without),
            warnings=tuple(warnings),
        )

    def policy(self, site: str, path: str | Path, **limits: Any) -> Predictions:
        """:meth:`predict`, whose picks are also written to a policy file for a cluster."""
        predictions = self.predict(site, **limits)
        predictions.write_policy(path)
        return predictions

    def roofline(
        self, site: str, setting: Setting | str | None = None, cap_w: float | None = None
    ) -> RooflineResult:
        """Balances in time and energy at a setting, and whether racing to halt pays there.

        ``setting``: (core MHz, memory MHz), or as ``--setting`` takes it; by default the fastest.
        ``cap_w``: also what a cap on power would do.
        Energies are those of the kept fit, else of the regression at this setting.

        Raises:
            BadArgument: the setting was not measured, or not by kernels of varied intensity.
        """
        from analysis.rooflines.at_setting import CapTooLow, NoPairs, rooflines_at  # noqa: PLC0415
        from analysis.rooflines.roofline import fastest_setting  # noqa: PLC0415

        data = self.observations(site)
        index = fastest_setting(data) if setting is None else _setting_index(data, setting)
        try:
            fit = self.kept_fit(site)
        except fits.NoKeptFit:
            fit = None
        try:
            return RooflineResult(rooflines_at(data, index, fit, cap_w))
        except NoPairs as error:
            raise BadArgument(f"{site}: {error}") from None
        except CapTooLow as error:
            raise BadArgument(f"--cap-w: {error}") from None

    def report(self, path: str | Path) -> Path:
        """Write the report that a person reads, one HTML file; its path.

        Raises:
            CannotDo: the file cannot be written.
        """
        from campaign.reporting import write_report  # noqa: PLC0415

        return write_report(self.store, Path(path))

    def figures(
        self, folder: str | Path, site: str | None = None, cap_w: float | None = None
    ) -> list[Path]:
        """Write every figure and table as files for a paper; their paths.

        ``site``: one site (default: all, each in a folder of its own). ``cap_w``: draw a cap on
        power into the rooflines.

        Raises:
            CantFit: a cap at or below the constant power.
            OSError: a file cannot be written.
        """
        from campaign.reporting import report_content, write_figures  # noqa: PLC0415

        content = report_content(self.store, site)
        return [file.path for file in write_figures(content, Path(folder), cap_w)]


def open_store(path: str | Path) -> Results:
    """Open a store to read what is in it, and to fit it.

    Raises:
        NotAStore: there is no store at ``path``, or it has another format.
    """
    return Results(layout.open_store(Path(path)))


def site_findings(dataset: xr.Dataset, site: str) -> tuple[SiteFinding, ...]:
    """What the checks of a site's measurements find in a store's Dataset."""
    from analysis.quality import check, describe  # noqa: PLC0415

    return tuple(
        SiteFinding(
            site,
            finding.as_dict(),
            tuple(describe(finding, dataset, EXAMPLES)),
            tuple(dataset["point_id"].values[finding.rows].tolist()),
        )
        for finding in check(dataset, site)
    )


def _setting_costs(fit: Fit, pair: Setting, volts: Setting) -> CostsAtSetting:
    from analysis.energy.fitted import costs_at  # noqa: PLC0415

    costs = costs_at(fit, *pair, *volts)
    rows = [
        Cost(f"energy_{name}", value, "pJ", low, high)
        for name, (value, low, high) in costs.operation_pj.items()
    ]
    power_w, low_w, high_w = costs.constant_w
    rows.append(Cost("constant_power", power_w, "W", low_w, high_w))
    return CostsAtSetting(fit.site, fit.simulated, *pair, costs.core_v, costs.mem_v, tuple(rows))


def _setting_index(data: Observations, setting: Setting | str) -> int:
    wanted = setting.replace(" ", "") if isinstance(setting, str) else _setting_option(setting)
    known = [_setting_option(pair) for pair in data.settings]
    if wanted in known:
        return known.index(wanted)
    raise BadArgument(
        f"--setting: found {wanted!r}; must be one that {data.site} was measured at: "
        f"{' '.join(known[:16])}{' ...' if len(known) > 16 else ''}"
    )


def _setting_option(pair: Setting) -> str:
    return ",".join(f"{mhz:g}" for mhz in pair if not math.isnan(mhz)) or "as-found"
