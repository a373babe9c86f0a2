"""The fits that a store keeps, one a site: ``fits/SITE.json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from campaign.store.layout import DamagedStore, Store, writing
from campaign.store.site_record import site_file_name
from sites.errors import WithRemedy

if TYPE_CHECKING:
    from analysis.energy.fitted import Fit


class NoKeptFit(WithRemedy):
    """The store has no fit of a site, or its file is not one. The remedy is the command."""


def fitted_sites(store: Store) -> list[str]:
    """The sites that the store has a fit of, sorted."""
    return sorted(unquote(path.stem) for path in store.fits.glob("*.json"))


def keep_fit(store: Store, fit: Fit) -> None:
    """Keep a site's fit, in place of an earlier one."""
    from analysis.energy.fit_file import as_kept  # noqa: PLC0415

    with writing(store):
        store.write_json(f"fits/{site_file_name(fit.site)}", as_kept(fit))


def read_fit_json(store: Store, site: str) -> Any:
    """What the store keeps of a site's fit, unchecked.

    Raises:
        NoKeptFit: there is none.
    """
    try:
        kept = store.read_json(f"fits/{site_file_name(site)}")
    except DamagedStore:
        raise not_a_fit(store, site, "it cannot be read") from None
    if kept is None:
        raise NoKeptFit(f"{store.root}: has no fit of site {site!r}", _refit(store, site))
    return kept


def read_fit(store: Store, site: str) -> Fit:
    """The fit that the store keeps of a site.

    Raises:
        NoKeptFit: there is none, or its file is not one.
    """
    from analysis.energy.fit_file import NoFit, fit_of  # noqa: PLC0415

    try:
        return fit_of(read_fit_json(store, site))
    except NoFit as error:
        raise not_a_fit(store, site, str(error)) from None


def not_a_fit(store: Store, site: str, why: str) -> NoKeptFit:
    """The error for a file that should hold a fit and does not."""
    path = store.fits / site_file_name(site)
    return NoKeptFit(f"{path}: is not a fit ({why})", _refit(store, site))


def _refit(store: Store, site: str) -> str:
    return f"run: campaign fit {store.root} --site {site}"
