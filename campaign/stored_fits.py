"""The fits of a store's sites: made, kept, and read again, with what operations cost by them.

The second part of :class:`campaign.results.Results`. Everything that is heavy is imported where it
is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from campaign import fits
from campaign.result_tables import Coefficients, CostsAtSetting, FitResult, SiteFinding
from campaign.stored_measurements import StoredMeasurements
from dvfs.setting import Setting

if TYPE_CHECKING:
    from analysis.energy.fitted import Fit
    from analysis.measurements.observations import Observations
    from campaign.fitting import KnownSite


class StoredFits(StoredMeasurements):
    """A store's measurements, and the fits to them that it keeps."""

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

        ``model`` and ``voltage``: names of :mod:`analysis.energy.forms`; ``auto`` chooses by
        cross-validation. ``robust``: measurements far from the model count less (Huber). ``like``:
        a site of the same chip or family, whose default fit this one starts from
        (:mod:`analysis.energy.known_site`); the model is then that one's.
        ``name``: what the fit is kept as, ``default`` being the one that is used where none is
        named. It takes the place of an earlier one that was asked for in the same way; of another
        one only with ``replace``. ``accept_unproven``: unproven clocks are taken as
        they were asked for, which the fit keeps.

        Raises:
            BadArgument: no fit can be true to these measurements, or the store keeps a fit of
                this name that was asked for otherwise, or ``like`` goes with other options.
            NoKeptFit: the store has no fit of the site ``like``.
            CantFit: there are too few measurements, or the names are unknown.
        """
        from analysis.choice.candidates import measured_volts  # noqa: PLC0415
        from analysis.predict.site import site_posterior  # noqa: PLC0415
        from campaign.fitting import check_like, fitted  # noqa: PLC0415
        from campaign.variant_models import variant_prices  # noqa: PLC0415

        request = fits.Request(model, voltage, robust, like or "")
        check_like(site, request)
        known = self.known_site(like) if like else None
        if not replace:
            fits.check_replaceable(self.store, site, name, request)
        data, findings = self.usable_data(site, accept_unproven)
        made = fitted(data, request, known)
        check = site_posterior(data, measured_volts(data)).check() if known is None else None
        prices = variant_prices(self.store, self.scalars, site)
        fits.keep_fit(self.store, made, name, request, fits.data_id(self.scalars, site), prices)
        return FitResult(made, findings, self.fit_source(site, name), tuple(prices), check)

    def known_site(self, site: str) -> KnownSite:
        """A site that the fit of another one may start from.

        Raises:
            NoKeptFit: the store has no default fit of it.
        """
        from campaign.fitting import KnownSite  # noqa: PLC0415

        kept = self.kept_fit(site)
        return KnownSite(kept, self.observations(site), self.setting_volts(site))

    def usable_data(
        self, site: str, accept_unproven: bool
    ) -> tuple[Observations, tuple[SiteFinding, ...]]:
        """A site's measurements for the energy model, and what the checks find.

        Raises:
            BadArgument: no fit can be true to them.
            CantFit: none has an energy.
        """
        from campaign.findings import usable_findings  # noqa: PLC0415

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
        """The fit that the store keeps of a site under a name.

        Raises:
            NoKeptFit: there is none.
        """
        return fits.read_fit(self.store, site, name)

    def fit_source(self, site: str, name: str = fits.DEFAULT) -> fits.FitSource:
        """When a kept fit was made, of what, and whether the measurements are other ones now.

        Raises:
            NoKeptFit: there is none.
        """
        summary, _ = fits.read_summary(self.store, site, name)
        return fits.fit_source(self.store, summary, name, lambda: self.scalars)

    def coefficients(self, site: str, name: str = fits.DEFAULT) -> Coefficients:
        """The coefficients of a fit that the store keeps. Reads one JSON file.

        Raises:
            NoKeptFit: there is none.
        """
        from analysis.energy.fit_summary import summary_json  # noqa: PLC0415

        summary, kept = fits.read_summary(self.store, site, name)
        source = fits.fit_source(self.store, summary, name, lambda: self.scalars)
        return Coefficients(summary, summary_json(kept) | {"fit": source.as_dict()}, source)

    def costs(
        self,
        site: str,
        core_mhz: float | None = None,
        mem_mhz: float | None = None,
        fit: str = fits.DEFAULT,
    ) -> CostsAtSetting:
        """What operations and time cost at a setting, by the fit of this name.

        Raises:
            NoKeptFit: there is no fit.
            BadArgument: not one setting of known voltage is at these clocks.
        """
        from campaign.setting_costs import costs_at_clocks  # noqa: PLC0415

        kept, source = self.kept_fit(site, fit), self.fit_source(site, fit)
        return costs_at_clocks(kept, source, self.setting_volts(site), core_mhz, mem_mhz)

    def costs_by_setting(self, site: str, fit: str = fits.DEFAULT) -> list[CostsAtSetting]:
        """:meth:`costs` at every setting that was measured."""
        from campaign.setting_costs import setting_costs  # noqa: PLC0415

        kept, source = self.kept_fit(site, fit), self.fit_source(site, fit)
        volts = self.setting_volts(site)
        settings = self.observations(site).settings
        return [setting_costs(kept, source, pair, volts[pair]) for pair in settings]

    def setting_volts(self, site: str) -> dict[Setting, tuple[float, float]]:
        """The voltages of every setting that was measured or is legal, where they are known."""
        from analysis.choice.legal_settings import known_volts  # noqa: PLC0415

        return known_volts(self.observations(site), self.site_record(site).legal)
