"""A store as its reader sees it: one method for each question, with the code of most methods in a
module of this folder.

Heavy modules are imported where they are used: a method that only reads a JSON file answers at
once.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.energy.models import AUTO, FormRequest
from campaign.results import fits
from campaign.results.tables import (
    Coefficients,
    CostsAtSetting,
    FitResult,
    Predictions,
    RooflineResult,
    SiteFinding,
    Status,
)
from campaign.store import layout
from campaign.store.layout import Store
from campaign.store.site_record import SiteRecord, read_site_record
from dvfs.errors import ArgumentError, reason
from dvfs.files import write_output
from dvfs.setting import Setting

if TYPE_CHECKING:
    import xarray as xr

    from analysis.energy.fitted import Fit
    from analysis.measurements.observations import Observations
    from analysis.rooflines.greenup import Trade
    from campaign.results.comparison import Comparison
    from campaign.results.crossval import CrossvalResult, FewCrossvalResult
    from campaign.results.failures import Failures
    from campaign.results.measurement import ShownMeasurement
    from campaign.results.policies import PolicyDraft
    from campaign.variants.models import Energies, VariantCrossvalResult
    from campaign.variants.space_predictions import SpacePredictions
    from campaign.variants.study import VariantResult
    from dvfs.dataset import Columns


@dataclass(frozen=True)
class Results:
    """A store as its reader sees it: its measurements, the fits to them, and what follows from
    both. Open one with :func:`open_store`."""

    store: Store

    @property
    def path(self) -> Path:
        """The store's folder."""
        return self.store.root

    @cached_property
    def dataset(self) -> xr.Dataset:
        """All measurements with the samples of their traces, which are read on first use.

        See :func:`campaign.store.dataset.open_dataset` for its dimensions.
        """
        from campaign.store.dataset import open_dataset  # noqa: PLC0415

        return open_dataset(self.store)

    @cached_property
    def scalars(self) -> xr.Dataset:
        """:attr:`dataset` without traces, in memory."""
        from campaign.store.dataset import scalars_of  # noqa: PLC0415

        return scalars_of(self.columns)

    @cached_property
    def columns(self) -> Columns:
        """:attr:`scalars` as NumPy arrays, read without xarray."""
        from campaign.store.tables import read_columns  # noqa: PLC0415

        return read_columns(self.store)

    def trace(self, point_id: str, channel: str | None = None) -> xr.DataArray:
        """One measurement's trace along ``time`` (s), in the unit of its attribute ``units``.

        ``channel``: optional where the measurement has only one channel.

        Raises:
            ArgumentError: there is no such measurement, or no or more than one such trace.
        """
        from campaign.store.dataset import trace_of  # noqa: PLC0415

        return trace_of(self.dataset, point_id, channel)

    def measurement(self, point: str) -> ShownMeasurement:
        """Everything that the store has of one measurement. ``point``: the point's id, or the
        beginning of one.

        Raises:
            ArgumentError: there is no such measurement, or several.
        """
        from campaign.results.measurement import shown_measurement  # noqa: PLC0415

        return shown_measurement(self.store, point)

    @cached_property
    def sites(self) -> list[str]:
        """The sites that the store has measurements of, sorted."""
        from analysis.measurements.observations import site_names  # noqa: PLC0415

        return site_names(self.columns)

    def only_site(self, site: str | None = None) -> str:
        """Return ``site``, or the only site of the store where ``site`` is None.

        Raises:
            ArgumentError: ``site`` is None, and the store has several sites or none.
        """
        if site is not None:
            return site
        if len(self.sites) == 1:
            return self.sites[0]
        if not self.sites:
            raise ArgumentError(
                f"{self.path}: has no measurements; run a campaign, or import a table"
            )
        named = " or ".join(f"--site {site}" for site in self.sites[:6])
        raise ArgumentError(f"{self.path}: has {len(self.sites)} sites; name one: {named}")

    def status(self, verify: bool = False) -> Status:
        """The points done, failed and left. ``verify``: also read every file, traces included, and
        name the damaged files and those that do not belong to a store."""
        from campaign.store.states import store_status  # noqa: PLC0415

        states = store_status(self.store)
        damage = list(states.damage)
        if verify:
            from campaign.store.verify import damaged_files, damaged_traces  # noqa: PLC0415

            texts = [*damaged_files(self.store), *damaged_traces(self.store)]
            damage += [text for text in texts if text not in damage]
        return Status(
            tuple(states.partitions),
            states.failures,
            tuple(states.flags.values()),
            tuple(damage),
            tuple(states.mixtures),
        )

    def iteration_times(self, site: str, partition: str) -> dict[tuple[str, str], float]:
        """(kernel, parameters as JSON) -> the median time of one iteration, in s: over the
        measurements on the partition, where there are none at the site, else over all."""
        from dvfs.dataset import is_complete  # noqa: PLC0415

        complete = is_complete(self.columns["status"])
        at_site = complete & (self.columns["site"] == site)
        medians: dict[tuple[str, str], float] = {}
        for rows in (complete, at_site, at_site & (self.columns["partition"] == partition)):
            names = ("kernel", "params", "time_s")
            lists = [self.columns[name][rows].tolist() for name in names]
            times: dict[tuple[str, str], list[float]] = {}
            for kernel, params, time_s in zip(*lists, strict=True):
                if math.isfinite(time_s):
                    times.setdefault((kernel, params), []).append(time_s)
            medians |= {pair: statistics.median(values) for pair, values in times.items()}
        return medians

    def point_times(self) -> dict[tuple[str, str], dict[tuple[str, str], float]]:
        """(site, partition) -> (kernel, parameters as JSON) -> the median time from the start of a
        point to that of the next one on its node, in s."""
        names = ("site", "partition", "node", "start_unix_s", "kernel", "params")
        lists = [self.columns[name].tolist() for name in names]
        rows = sorted(row for row in zip(*lists, strict=True) if row[2] and row[3] > 0)
        gaps: dict[tuple[str, str], dict[tuple[str, str], list[float]]] = {}
        for (*place, start_s, kernel, params), (*next_place, next_s, _, _) in pairwise(rows):
            if place == next_place:
                gaps_by_kernel = gaps.setdefault((place[0], place[1]), {})
                gaps_by_kernel.setdefault((kernel, params), []).append(next_s - start_s)
        return {
            partition: {pair: statistics.median(values) for pair, values in by_kernel.items()}
            for partition, by_kernel in gaps.items()
        }

    def failures(self, kernel: str | None = None, node: str | None = None) -> Failures:
        """The failed attempts by kernel, reason and node; only those of ``kernel`` and on ``node``
        where these are named.

        Raises:
            ArgumentError: no attempt of this kernel, or on this node, has failed.
        """
        from campaign.results.failures import grouped_failures  # noqa: PLC0415

        return grouped_failures(self.store, kernel, node)

    def site_record(self, site: str) -> SiteRecord:
        """The store's record of a site: what it has of the site besides measurements."""
        return read_site_record(self.store, site)

    def observations(self, site: str) -> Observations:
        """A site's measurements as the model's input.

        Raises:
            FitError: the site is not in the store, or none of its measurements has an energy.
        """
        from analysis.measurements.observations import observations  # noqa: PLC0415

        record = self.site_record(site)
        return observations(self.columns, site, record.classes, record.legal)

    def findings(self, site: str) -> tuple[SiteFinding, ...]:
        """The findings of the checks of a site's measurements."""
        from campaign.results.findings import site_findings  # noqa: PLC0415

        return site_findings(self.columns, site)

    def fit(
        self,
        site: str,
        model: str = "auto",
        voltage: str = "auto",
        robust: bool = False,
        *,
        like: str | None = None,
        name: str = fits.DEFAULT,
        replace: bool = False,
        accept_unproven: bool = False,
    ) -> FitResult:
        """Fit the energy model to a site's measurements, and keep the fit in the store.

        ``model`` and ``voltage``: names of :mod:`analysis.energy.fitted`; ``auto`` chooses by
        cross-validation. ``robust``: measurements far from the model count less (Huber). ``like``:
        a site of the same chip or family. This fit starts from the default fit of that site and
        has its model (:mod:`analysis.energy.known_site`).
        ``name``: the name of the fit in the store; ``default`` is used where none is named. It
        replaces an earlier fit of the name that has the same options; one with other options only
        with ``replace``. ``accept_unproven``: use requested clocks that nothing proves, and
        estimated energies; the fit records that.

        Raises:
            ArgumentError: no fit can be true to these measurements; the store keeps a fit of this
                name with other options; or ``like`` is given with other options.
            NoKeptFitError: the store has no fit of the site ``like``.
            FitError: there are too few measurements, or the names are unknown.
        """
        from analysis.energy.fit import fit as fit_model  # noqa: PLC0415
        from analysis.energy.known_site import fit_like  # noqa: PLC0415
        from analysis.measurements.observations import measured_volts  # noqa: PLC0415
        from analysis.predict.site import site_posterior  # noqa: PLC0415
        from campaign.variants.models import variant_prices  # noqa: PLC0415

        request = fits.Request(model, voltage, robust, like or "")
        fits.check_like(site, request)
        like_site = self.known_site(like) if like else None
        if not replace:
            fits.check_replaceable(self.store, site, name, request)
        data, findings = self.usable_data(site, accept_unproven)
        check = None
        if like_site is None:
            new_fit = fit_model(data, model, voltage, robust=robust)
            check = site_posterior(data, measured_volts(data)).check()
        else:
            new_fit = fit_like(data, like_site.fit, like_site.data, like_site.volts)
        prices = variant_prices(self.store, self.columns, site)
        fits.keep_fit(self.store, new_fit, name, request, fits.data_id(self.columns, site), prices)
        return FitResult(new_fit, findings, self.fit_source(site, name), tuple(prices), check)

    def known_site(self, site: str) -> fits.KnownSite:
        """A site from which the fit of another site can start.

        Raises:
            NoKeptFitError: the store has no default fit of this site.
        """
        return fits.KnownSite(
            self.kept_fit(site), self.observations(site), self.setting_volts(site)
        )

    def usable_data(
        self, site: str, accept_unproven: bool
    ) -> tuple[Observations, tuple[SiteFinding, ...]]:
        """A site's measurements for the energy model, and what the checks find.

        Raises:
            ArgumentError: no fit can be true to them.
            FitError: none has an energy.
        """
        from campaign.results.findings import usable_findings  # noqa: PLC0415

        return self.observations(site), usable_findings(self.findings(site), accept_unproven)

    @property
    def fitted_sites(self) -> list[str]:
        """The sites that the store has a fit of, sorted."""
        return sorted({site for site, _ in self.kept_fits})

    @property
    def kept_fits(self) -> list[tuple[str, str]]:
        """(site, name) of every fit that the store keeps."""
        return fits.kept_fits(self.store)

    def kept_fit(self, site: str, name: str = fits.DEFAULT) -> Fit:
        """The fit of a site that the store keeps under ``name``.

        Raises:
            NoKeptFitError: there is none.
        """
        return fits.read_fit(self.store, site, name)

    def fit_source(self, site: str, name: str = fits.DEFAULT) -> fits.FitSource:
        """When a kept fit was made, from which data, and whether the store's data have changed.

        Raises:
            NoKeptFitError: there is none.
        """
        summary, _ = fits.read_summary(self.store, site, name)
        return fits.fit_source(self.store, summary, name, lambda: self.columns)

    def coefficients(self, site: str, name: str = fits.DEFAULT) -> Coefficients:
        """The coefficients of a fit that the store keeps. Reads two JSON files.

        Raises:
            NoKeptFitError: there is none.
        """
        from analysis.energy.fit_summary import summary_json  # noqa: PLC0415

        summary, fit_json = fits.read_summary(self.store, site, name)
        source = fits.fit_source(self.store, summary, name, lambda: self.columns)
        return Coefficients(summary, summary_json(fit_json) | {"fit": source.as_dict()}, source)

    def costs(
        self,
        site: str,
        core_mhz: float | None = None,
        mem_mhz: float | None = None,
        fit: str = fits.DEFAULT,
    ) -> CostsAtSetting:
        """The cost of operations and of time at a setting, by the fit named ``fit``.

        Raises:
            NoKeptFitError: there is no fit.
            ArgumentError: no setting of known voltage has these clocks, or several have.
        """
        from campaign.results.costs import costs_at_clocks  # noqa: PLC0415

        stored_fit, source = self.kept_fit(site, fit), self.fit_source(site, fit)
        known = self.observations(site).mem_volts_known
        volts = self.setting_volts(site)
        return costs_at_clocks(stored_fit, source, volts, core_mhz, mem_mhz, known)

    def costs_by_setting(self, site: str, fit: str = fits.DEFAULT) -> list[CostsAtSetting]:
        """:meth:`costs` at every setting that was measured."""
        from campaign.results.costs import setting_costs  # noqa: PLC0415

        stored_fit, source = self.kept_fit(site, fit), self.fit_source(site, fit)
        volts, data = self.setting_volts(site), self.observations(site)
        return [
            setting_costs(stored_fit, source, pair, volts[pair], data.mem_volts_known)
            for pair in data.settings
        ]

    def setting_volts(self, site: str) -> dict[Setting, tuple[float, float]]:
        """Setting -> core and memory voltage, for the measured and legal settings whose voltages
        are known."""
        from analysis.choice.candidates import known_volts  # noqa: PLC0415

        return known_volts(self.observations(site), self.site_record(site).legal)

    def crossval(
        self,
        site: str | Sequence[str],
        scheme: str = "leave-one-setting-out",
        *,
        model: str | None = None,
        voltage: str | None = None,
        robust: bool | None = None,
        time: str = "measured",
        train: Sequence[Setting] | None = None,
        objective: str = "energy",
        fitted_on: Results | None = None,
        fit: str = fits.DEFAULT,
        accept_unproven: bool = False,
    ) -> CrossvalResult:
        """Cross-validate a site's fit and picks; several sites for ``leave-one-site-out``.

        ``model``, ``voltage``, ``robust``: as for :meth:`fit`; where none is given, the options of
        the kept fit named ``fit`` (several sites: ``auto``). ``train``: the settings that a holdout
        fits on. ``time``: the run time used by the fit and the picks: ``measured``, ``predicted``
        or ``profile``. ``objective``: what the picks minimise and are judged by, as for
        :meth:`predict`. ``fitted_on``: fit on that store's measurements of the site, and predict
        those of this store. ``accept_unproven``: as for :meth:`fit`.

        Raises:
            ArgumentError: arguments that exclude each other, or no fit can be true to these
                measurements.
            NoKeptFitError: there is no fit named ``fit``, and that is not ``default``.
            FitError: there are too few measurements, or the scheme is unknown.
        """
        from campaign.results.crossval import crossvalidate  # noqa: PLC0415

        if fitted_on is not None and fitted_on.path.resolve() == self.path.resolve():
            raise ArgumentError(
                "--fitted-on: names the store itself, whose measurements would be fitted on and "
                "predicted; name another store, or a --scheme"
            )
        sites = [site] if isinstance(site, str) else list(site)
        training_data = fitted_on.usable_data(sites[0], accept_unproven)[0] if fitted_on else None
        return crossvalidate(
            [self.usable_data(name, accept_unproven)[0] for name in sites],
            scheme,
            time=time,
            train=train,
            objective=objective,
            fitted_on=training_data,
            form=(fitted_on or self).form(sites, fit, model, voltage, robust),
        )

    def form(
        self,
        sites: Sequence[str],
        fit: str,
        model: str | None = None,
        voltage: str | None = None,
        robust: bool | None = None,
    ) -> FormRequest:
        """The options of the fits of a cross-validation: see :meth:`crossval`."""
        if (model, voltage, robust) != (None, None, None) or len(sites) > 1:
            return FormRequest(model or AUTO, voltage or AUTO, bool(robust))
        return fits.kept_form(self.store, sites[0], fit)

    def crossval_few(
        self,
        site: str,
        settings: int | None,
        new: int | None = None,
        *,
        accept_unproven: bool = False,
        **options: Any,
    ) -> FewCrossvalResult:
        """What the picks lose where each kernel is measured at only ``settings`` settings (None:
        all). ``new``: judge the picks of a new kernel, measured at only this many of these.

        ``options``: ``draws`` and ``objective``.

        Raises:
            FitError: there are too few measurements (:mod:`analysis.choice.few_crossval`).
        """
        from analysis.choice.few_crossval import few_cross_validate  # noqa: PLC0415
        from campaign.results.crossval import FewCrossvalResult  # noqa: PLC0415

        data, _ = self.usable_data(site, accept_unproven)
        result = few_cross_validate(data, settings, new, **options)
        return FewCrossvalResult(result, data.unproven_clocks)

    def crossval_variants(
        self,
        site: str,
        *,
        model: str | None = None,
        voltage: str | None = None,
        robust: bool | None = None,
        fit: str = fits.DEFAULT,
        accept_unproven: bool = False,
        **options: Any,
    ) -> VariantCrossvalResult:
        """Predict each variant of a kernel by models fitted without it, and judge the picks.

        ``model``, ``voltage``, ``robust``, ``fit``: as for :meth:`crossval`. ``options``:
        ``scheme``, ``kernel``, ``problem``, ``objective`` and ``time``, as on the command line.

        Raises:
            ArgumentError, FitError: see :mod:`campaign.variants.models`.
        """
        from campaign.variants.models import crossvalidate_variants  # noqa: PLC0415

        return crossvalidate_variants(
            self.store,
            self.columns,
            site,
            lambda: self.usable_data(site, accept_unproven)[0],
            **vars(self.form([site], fit, model, voltage, robust)),
            **options,
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
        fit: str = fits.DEFAULT,
        accept_unproven: bool = False,
    ) -> Predictions:
        """The best setting for each kernel of a site.

        Picks come from the posterior given the site's measurements (:mod:`analysis.predict.site`),
        and those of the site that the fit named ``fit`` started from, if any.

        ``kernel``: a kernel's name, its label with parameters, or its short name in a table.
        ``objective``: ``energy``, ``time``, ``edp``, ``ed2p`` or ``weighted:ALPHA``.
        ``max_slowdown``: at most this fraction slower than the fastest setting. ``all_settings``:
        also legal settings that were not measured. ``profile``: pick for the application of a
        profile file instead of the measured kernels. ``accept_unproven``: as for :meth:`fit`,
        where the fit was made without it.

        Raises:
            NoKeptFitError: there is no fit.
            ArgumentError: a wrong limit, no such kernel, or unproven clocks.
            FitError: no setting of any kernel keeps the limits, or the objective is unknown.
        """
        from campaign.results import predictions as picking  # noqa: PLC0415

        picking.check_limits(max_slowdown, max_power_w)
        stored_fit, data = self.kept_fit(site, fit), self.observations(site)
        source = self.fit_source(site, fit)
        unproven = data.unproven_clocks and not stored_fit.unproven_clocks
        estimated = data.estimated_energies and not stored_fit.estimated_energies
        if unproven or estimated:
            self.usable_data(site, accept_unproven)
            source = replace(
                source,
                unproven_clocks=source.unproven_clocks or unproven,
                estimated_energies=source.estimated_energies or estimated,
            )
        volts = self.setting_volts(site) if all_settings else None
        like_site = None
        if stored_fit.like is not None and (stored_fit.like.site, fits.DEFAULT) in self.kept_fits:
            like_site = self.known_site(stored_fit.like.site).scaled_to(stored_fit)
        # Few measurements may not allow the form of the site that the fit started from.
        alone = stored_fit.like is None
        form = fits.kept_form(self.store, site, fit) if alone else FormRequest()
        candidates, warnings = picking.asked_candidates(
            data, kernel, profile, volts, like_site, form
        )
        if stored_fit.like is not None and stored_fit.like.warning:
            warnings.append(stored_fit.like.warning)
        picks, without_pick = picking.picks_within_limits(
            candidates, objective, max_slowdown, max_power_w, data
        )
        device = self.site_record(site).device
        return Predictions(
            site=site,
            simulated=stored_fit.simulated,
            fit=source,
            data_id=fits.data_id(self.columns, site),
            clock_unproven=picking.clock_unproven(self.columns, site),
            objective=objective,
            max_slowdown=max_slowdown,
            max_power_w=max_power_w,
            predictions=picking.with_flags(picks, stored_fit.simulated, device),
            without_pick=tuple(without_pick),
            warnings=tuple(warnings),
            device=device,
            candidates={entry.label: entry for entry in candidates},
        )

    def predict_space(
        self,
        site: str,
        space: str | Path,
        *,
        kernel: str | None = None,
        objective: str = "energy",
        fit: str = fits.DEFAULT,
    ) -> SpacePredictions:
        """The best of the variants that a campaign file's spaces declare, measured or not.

        Times are predicted from the measured variants of the kernel, energies by the fit ``fit``.

        Raises:
            FileError, ArgumentError, FitError: see :mod:`campaign.variants.space_predictions`.
            NoKeptFitError: there is no fit, and ``objective`` is not ``time``.
        """
        from campaign.variants.space_predictions import predict_space  # noqa: PLC0415

        return predict_space(
            self.store,
            self.columns,
            site,
            Path(space),
            energies=lambda: self._energies(site, fit),
            objective=objective,
            kernel=kernel,
        )

    def _energies(self, site: str, fit: str) -> Energies:
        from campaign.variants.models import Energies  # noqa: PLC0415

        source = self.fit_source(site, fit)
        return Energies(
            name=fit,
            fit=self.kept_fit(site, fit),
            data=self.observations(site),
            volts=self.setting_volts(site),
            why_stale=source.why_stale if source.stale else "",
        )

    def variants(
        self,
        site: str,
        kernel: str | None = None,
        *,
        problem: Mapping[str, Any] | None = None,
        setting: Setting | None = None,
    ) -> VariantResult:
        """The study of a kernel's variants; see :func:`campaign.variants.study.study_variants`."""
        from campaign.variants.models import predicted_costs  # noqa: PLC0415
        from campaign.variants.study import study_variants  # noqa: PLC0415

        def energies() -> Energies | None:
            has_fit = (site, fits.DEFAULT) in self.kept_fits
            return self._energies(site, fits.DEFAULT) if has_fit else None

        result = study_variants(
            self.store,
            self.columns,
            site,
            kernel,
            problem,
            setting,
            lambda variants: predicted_costs(self.store, self.columns, variants, energies),
        )
        if all(math.isnan(variant.predicted_j) for variant in result.study.variants):
            return result
        source = self.fit_source(site)
        return replace(result, why_stale=source.why_stale if source.stale else "")

    def policy(self, site: str, limits: Mapping[str, Any], **options: Any) -> PolicyDraft:
        """The picks of :meth:`predict` within ``limits`` as a policy that a cluster applies.

        ``options``: of :func:`campaign.results.policies.draft_policy`, with what it raises.
        """
        from campaign.results.policies import draft_policy  # noqa: PLC0415

        return draft_policy(self.predict(site, **limits), **options)

    def roofline(
        self,
        site: str,
        setting: Setting | str | None = None,
        cap_w: float | None = None,
        fit: str | None = None,
        trades: Sequence[Trade] = (),
    ) -> RooflineResult:
        """Balances in time and energy at a setting, and whether fast is efficient there.

        ``setting``: a setting, or its text as for ``--setting``; by default the fastest.
        ``cap_w``: also compute the effect of a cap on power. ``fit``: the kept fit that gives the
        energies; None: the default fit, or a regression at this setting where there is none.
        ``trades``: also compute the effect of these changes of an algorithm.

        Raises:
            NoKeptFitError: there is no fit of this name.
            ArgumentError: the setting was not measured, or not by kernels of varied intensity.
        """
        from campaign.results.rooflines import site_rooflines  # noqa: PLC0415

        stored_fit = source = None
        if fit is not None or (site, fits.DEFAULT) in self.kept_fits:
            name = fit or fits.DEFAULT
            stored_fit, source = self.kept_fit(site, name), self.fit_source(site, name)
        data = self.observations(site)
        rooflines = site_rooflines(data, stored_fit, setting, cap_w, trades)
        extra = {
            "fit": source and source.as_dict(),
            "estimated_energies": data.estimated_energies,
        }
        return RooflineResult(rooflines | extra, source)

    def compare(
        self,
        other: Results | None = None,
        *,
        before: str | None = None,
        after: str | None = None,
        sites: Sequence[str] | None = None,
        alike_nodes: bool = False,
    ) -> Comparison:
        """What changed from this store to ``other``, or between two parts of this store.

        ``before``, ``after``: the parts, each a date (UTC), or the beginnings of set-ups' ids
        separated by commas. ``sites``: two sites as the parts. ``alike_nodes``: treat all nodes as
        equal.

        Raises:
            ArgumentError: nothing is in common, or the parts are not given correctly.
        """
        from campaign.results.comparison import compare_stores  # noqa: PLC0415

        return compare_stores(
            self.store,
            None if other is None else other.store,
            before=before,
            after=after,
            sites=sites,
            alike_nodes=alike_nodes,
        )

    def report(
        self,
        path: str | Path,
        fit: str = fits.DEFAULT,
        train: Sequence[Setting] | None = None,
    ) -> Path:
        """Write the report, one HTML file, and return its path.

        ``fit``: the name of the kept fits to show. ``train``: the settings that the holdout fits
        on; by default a random half.

        Raises:
            ArgumentError: the file cannot be written.
            FitError: a site was not measured at a setting of ``train``.
        """
        from analysis.report.page import render  # noqa: PLC0415
        from campaign.results.report import report_content  # noqa: PLC0415

        path = Path(path)
        page = render(report_content(self.store, fit_name=fit, train=train))
        try:
            write_output(path, page)
        except OSError as error:
            raise ArgumentError(
                f"{path}: the report cannot be written ({reason(error, path)}); name another file"
            ) from None
        return path

    def report_tables(self, fit: str = fits.DEFAULT) -> list[dict[str, Any]]:
        """The tables of the report as plain JSON types, one dictionary for each site: its name,
        whether its numbers are simulated, what a kWh costs and emits there, and name -> caption and
        rows of each table. NaN stands for a missing value. ``fit``: as for :meth:`report`.

        Raises:
            NoKeptFitError: no site has a fit of this name.
        """
        from analysis.report.site_figures import site_sheets  # noqa: PLC0415
        from analysis.report.tables import as_records  # noqa: PLC0415
        from campaign.results.report import report_content  # noqa: PLC0415

        return [
            {
                "site": site.site,
                "simulated": site.simulated,
                "energy_factors": [asdict(factor) for factor in site.factors],
                "tables": {
                    sheet.name: {"caption": sheet.caption, "rows": as_records(sheet)}
                    for sheet in site_sheets(site)
                },
            }
            for site in report_content(self.store, fit_name=fit).sites
        ]

    def figures(
        self,
        folder: str | Path,
        site: str | None = None,
        cap_w: float | None = None,
        fit: str = fits.DEFAULT,
        formats: Sequence[str] = ("svg", "pdf", "png"),
        kernels: Sequence[str] = (),
        fitted_on: Results | None = None,
    ) -> list[Path]:
        """Write every figure and table as a file for a paper, and return the paths.

        ``site``: one site (default: all, each in its own folder). ``cap_w``: a cap on power to draw
        into the rooflines. ``fit``: the name of the kept fits to show. ``formats``: the figures'
        file formats. ``kernels``: the names of the kernels to show (default: all). ``fitted_on``:
        fit on that store's measurements of the other kernels instead.

        Raises:
            FitError: a cap at or below the constant power.
            NoKeptFitError: no site has a fit of this name.
            OSError: a file cannot be written.
        """
        from campaign.results.report import report_content, write_figures  # noqa: PLC0415

        content = report_content(
            self.store,
            site,
            fit,
            kernels=kernels,
            fitted_on=None if fitted_on is None else fitted_on.store,
        )
        return [file.path for file in write_figures(content, Path(folder), cap_w, formats)]


def open_store(path: str | Path) -> Results:
    """Open a store to read what is in it, and to fit it.

    Raises:
        NotAStoreError: there is no store at ``path``, or it has another format.
    """
    return Results(layout.open_store(Path(path)))
