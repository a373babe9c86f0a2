"""The Python interface: open a store, and ask it what the command line asks.

    >>> from campaign.results import open_store
    >>> store = open_store("campaign-demo/store")
    >>> store.fit("jetson-tk1")
    >>> store.predict("jetson-tk1").to_pandas()

Everything that is heavy is imported where it is used, so that what reads a JSON file alone
answers at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.energy.models import AUTO, Form
from campaign import fits
from campaign.crossval_results import CrossvalResult, FewCrossvalResult
from campaign.result_tables import Predictions, RooflineResult
from campaign.store import layout
from campaign.stored_fits import StoredFits
from dvfs.setting import Setting

if TYPE_CHECKING:
    from campaign.comparison import Comparison
    from campaign.space_picks import SpacePredictions
    from campaign.variant_models import Energies, VariantCrossvalResult
    from campaign.variant_study import VariantResult


class Results(StoredFits):
    """A store as its reader sees it: its measurements, the fits to them, and what follows from
    both. Open one with :func:`open_store`."""

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

        ``model``, ``voltage``, ``robust``: as for :meth:`fit`; where none is given, what the kept
        fit of the name ``fit`` was asked for (several sites: all chosen). ``train``: the settings
        that a holdout fits on. ``time``: the run time that both are given: ``measured``,
        ``predicted`` or ``profile``. ``objective``: what the picks minimise and are judged by, as
        for :meth:`predict`. ``fitted_on``: fit on that store's measurements of the site, and
        predict those of this one. ``accept_unproven``: as for :meth:`fit`.

        Raises:
            BadArgument: arguments that do not go together, or no fit can be true to these
                measurements.
            NoKeptFit: there is no fit of this name, which is not the default one's.
            CantFit: there are too few measurements, or the scheme is unknown.
        """
        from campaign.crossvalidation import crossvalidate  # noqa: PLC0415

        sites = [site] if isinstance(site, str) else list(site)
        elsewhere = fitted_on.usable_data(sites[0], accept_unproven)[0] if fitted_on else None
        return crossvalidate(
            [self.usable_data(name, accept_unproven)[0] for name in sites],
            scheme,
            time=time,
            train=train,
            objective=objective,
            fitted_on=elsewhere,
            form=(fitted_on or self).form(sites, fit, model, voltage, robust),
        )

    def form(
        self,
        sites: Sequence[str],
        fit: str,
        model: str | None = None,
        voltage: str | None = None,
        robust: bool | None = None,
    ) -> Form:
        """What the fits of a cross-validation are asked for: see :meth:`crossval`."""
        if (model, voltage, robust) != (None, None, None) or len(sites) > 1:
            return Form(model or AUTO, voltage or AUTO, bool(robust))
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
        """What picks lose where all kernels were measured at ``settings`` settings (all of them
        where None), and with ``new`` a new one at so few.

        ``options``: ``draws`` and ``objective``.

        Raises:
            CantFit: there are too few measurements (:mod:`analysis.choice.few_crossval`).
        """
        from analysis.choice.few_crossval import few_cross_validate  # noqa: PLC0415

        data, _ = self.usable_data(site, accept_unproven)
        made = few_cross_validate(data, settings, new, **options)
        return FewCrossvalResult(made, data.unproven_clocks)

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
        """Predict each variant of a kernel by models fitted without it, and judge picks by them.

        ``model``, ``voltage``, ``robust``, ``fit``: as for :meth:`crossval`. ``options``:
        ``scheme``, ``kernel``, ``problem``, ``objective`` and ``time``, as the command line has
        them.

        Raises:
            BadArgument, CantFit: see :mod:`campaign.variant_models`.
        """
        from campaign.variant_models import crossvalidate_variants  # noqa: PLC0415

        return crossvalidate_variants(
            self.store,
            self.scalars,
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

        By the posterior of its measurements (:mod:`analysis.predict.site`), and of those of the
        site that the fit of the name ``fit`` started from.

        ``kernel``: a kernel's name, its label with parameters, or its short name in a table.
        ``objective``: ``energy``, ``time``, ``edp``, ``ed2p`` or ``weighted:ALPHA``.
        ``max_slowdown``: at most this fraction slower than the fastest setting. ``all_settings``:
        legal settings that were not measured as well. ``profile``: a profile file's application
        instead of the measured kernels. ``accept_unproven``: as for :meth:`fit`, where the fit
        was made without.

        Raises:
            NoKeptFit: there is no fit.
            BadArgument: a wrong limit, no such kernel, or unproven clocks.
            CantFit: no setting of any kernel keeps the limits, or the objective is unknown.
        """
        from campaign import picking  # noqa: PLC0415

        picking.check_limits(max_slowdown, max_power_w)
        kept, data = self.kept_fit(site, fit), self.observations(site)
        source = self.fit_source(site, fit)
        if data.unproven_clocks and not kept.unproven_clocks:
            self.usable_data(site, accept_unproven)
            source = replace(source, unproven_clocks=True)
        volts = self.setting_volts(site) if all_settings else None
        like = None
        if kept.like is not None and (kept.like.site, fits.DEFAULT) in self.kept_fits:
            like = self.known_site(kept.like.site).measured_as(kept)
        among, warnings = picking.asked_candidates(data, kernel, profile, volts, like)
        if kept.like is not None and kept.like.warning:
            warnings.append(kept.like.warning)
        picks, without = picking.picks_within_limits(
            among, objective, max_slowdown, max_power_w, data
        )
        device = self.site_record(site).device
        return Predictions(
            site=site,
            simulated=kept.simulated,
            fit=source,
            data_id=fits.data_id(self.scalars, site),
            clock_unproven=picking.clock_unproven(self.scalars, site),
            objective=objective,
            max_slowdown=max_slowdown,
            max_power_w=max_power_w,
            predictions=picking.with_flags(picks, kept.simulated, device),
            without_pick=tuple(without),
            warnings=tuple(warnings),
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

        Times follow from the measured variants of the kernel, energies from the kept fit of this
        name.

        Raises:
            BadFile, BadArgument, CantFit: see :func:`campaign.space_predictions.predict_space`.
            NoKeptFit: there is no fit, and the objective is not the time.
        """
        from campaign.space_predictions import predict_space  # noqa: PLC0415

        return predict_space(
            self.store,
            self.scalars,
            site,
            Path(space),
            energies=lambda: self._energies(site, fit),
            objective=objective,
            kernel=kernel,
        )

    def _energies(self, site: str, fit: str) -> Energies:
        from campaign.variant_models import Energies  # noqa: PLC0415

        return Energies(
            name=fit,
            fit=self.kept_fit(site, fit),
            data=self.observations(site),
            volts=self.setting_volts(site),
        )

    def variants(
        self,
        site: str,
        kernel: str | None = None,
        *,
        problem: Mapping[str, Any] | None = None,
        setting: Setting | None = None,
    ) -> VariantResult:
        """The study of a kernel's variants; see :func:`campaign.variant_study.study_variants`."""
        from campaign.variant_models import predicted_costs  # noqa: PLC0415
        from campaign.variant_study import study_variants  # noqa: PLC0415

        def energies() -> Energies | None:
            kept = (site, fits.DEFAULT) in self.kept_fits
            return self._energies(site, fits.DEFAULT) if kept else None

        return study_variants(
            self.store,
            self.scalars,
            site,
            kernel,
            problem,
            setting,
            lambda variants: predicted_costs(self.store, self.scalars, variants, energies),
        )

    def policy(self, site: str, path: str | Path, **limits: Any) -> Predictions:
        """:meth:`predict`, whose picks are also written to a policy file for a cluster."""
        predictions = self.predict(site, **limits)
        predictions.write_policy(path)
        return predictions

    def roofline(
        self,
        site: str,
        setting: Setting | str | None = None,
        cap_w: float | None = None,
        fit: str | None = None,
    ) -> RooflineResult:
        """Balances in time and energy at a setting, and whether fast is efficient there.

        ``setting``: also as ``--setting`` takes it; by default the fastest. ``cap_w``: also what a
        cap on power would do. ``fit``: the name of the kept fit that energies are of; None: the
        default one, or the regression at this setting where there is none.

        Raises:
            NoKeptFit: there is no fit of this name.
            BadArgument: the setting was not measured, or not by kernels of varied intensity.
        """
        from campaign.site_rooflines import site_rooflines  # noqa: PLC0415

        kept = source = None
        if fit is not None or (site, fits.DEFAULT) in self.kept_fits:
            name = fit or fits.DEFAULT
            kept, source = self.kept_fit(site, name), self.fit_source(site, name)
        shown = site_rooflines(self.observations(site), kept, setting, cap_w)
        return RooflineResult(shown | {"fit": source and source.as_dict()}, source)

    def compare(
        self,
        other: Results | None = None,
        *,
        before: str | None = None,
        after: str | None = None,
        alike_nodes: bool = False,
    ) -> Comparison:
        """What changed from this store to ``other``; or from one part of this one to another.

        ``before``, ``after``: a date (UTC), or begins of set-ups' ids with commas.
        ``alike_nodes``: take all nodes for equal.

        Raises:
            BadArgument: nothing is in common, or the parts are not parts.
        """
        from campaign.comparison import compare_stores  # noqa: PLC0415

        return compare_stores(
            self.store,
            None if other is None else other.store,
            before=before,
            after=after,
            alike_nodes=alike_nodes,
        )

    def report(
        self,
        path: str | Path,
        fit: str = fits.DEFAULT,
        train: Sequence[Setting] | None = None,
    ) -> Path:
        """Write the report that a person reads, one HTML file; its path.

        ``fit``: the name of the kept fits that it shows. ``train``: the settings that its holdout
        fits on; by default a random half.

        Raises:
            BadArgument: the file cannot be written.
            CantFit: a site was not measured at a setting of ``train``.
        """
        from campaign.reporting import write_report  # noqa: PLC0415

        return write_report(self.store, Path(path), fit, train)

    def figures(
        self,
        folder: str | Path,
        site: str | None = None,
        cap_w: float | None = None,
        fit: str = fits.DEFAULT,
        formats: Sequence[str] = ("svg", "pdf", "png"),
    ) -> list[Path]:
        """Write every figure and table as files for a paper; their paths.

        ``site``: one site (default: all, each in a folder of its own). ``cap_w``: draw a cap on
        power into the rooflines. ``fit``: the name of the kept fits to show. ``formats``: of the
        figures.

        Raises:
            CantFit: a cap at or below the constant power.
            NoKeptFit: no site has a fit of this name.
            OSError: a file cannot be written.
        """
        from campaign.reporting import report_content, write_figures  # noqa: PLC0415

        content = report_content(self.store, site, fit)
        return [file.path for file in write_figures(content, Path(folder), cap_w, formats)]


def open_store(path: str | Path) -> Results:
    """Open a store to read what is in it, and to fit it.

    Raises:
        NotAStore: there is no store at ``path``, or it has another format.
    """
    return Results(layout.open_store(Path(path)))
