"""Fits of a site's measurements, alone or starting from the fit of a similar site, and their files
in a store: ``fits/SITE.json`` (the site's default fit) and ``fits/SITE@NAME.json`` (a fit with a
name)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from analysis.energy.models import NOT_KNOWN, FormRequest, without_surface
from campaign.store.layout import DamagedStoreError, Store, writing
from campaign.store.site_record import (
    has_site_record,
    read_site_record,
    recorded_sites,
    site_file_name,
)
from dvfs.errors import ArgumentError, UserError, did_you_mean, known_names
from dvfs.setting import Volts

if TYPE_CHECKING:
    from analysis.energy.fit_summary import FitSummary
    from analysis.energy.fitted import Fit
    from analysis.measurements.observations import Observations
    from dvfs.dataset import Columns


DEFAULT = "default"
"""The name of the fit that is used where none is named."""
HASHED_COLUMNS = ("core_mhz", "mem_mhz", "core_v", "mem_v", "time_s", "energy_j")
"""The columns that :func:`data_id` hashes, in addition to the points' ids."""


UNPROVEN_CLOCKS = "clocks unproven: nothing showed that the settings differ"
STATED_CLOCKS = "clocks as stated by the imported table"
ESTIMATED_ENERGIES = "energies estimated, not measured"


class NoKeptFitError(UserError):
    """The store has no such fit of a site, or its file is not a fit. The remedy is a command."""


@dataclass(frozen=True)
class Request(FormRequest):
    """The options of a fit."""

    like: str = ""
    """The site whose fit this one started from; empty for none."""

    def __str__(self) -> str:
        """As the options of ``campaign fit``."""
        robust = ", --robust" if self.robust else ""
        like = f", --like {self.like}" if self.like else ""
        return f"--model {self.model}, --voltage {self.voltage}{robust}{like}"

    def differences(self, earlier: Request) -> tuple[str, str]:
        """The options in which two requests differ: as in ``earlier``, and as in this one."""
        pairs = [
            (f"--{name} {getattr(earlier, name)}", f"--{name} {getattr(self, name)}")
            for name in ("model", "voltage")
            if getattr(earlier, name) != getattr(self, name)
        ]
        if earlier.robust != self.robust:
            texts = {True: "--robust", False: "no --robust"}
            pairs.append((texts[earlier.robust], texts[self.robust]))
        if earlier.like != self.like:
            sites = (earlier.like, self.like)
            named = [f"--like {site}" if site else "no --like" for site in sites]
            pairs.append((named[0], named[1]))
        was, now = zip(*pairs, strict=True)
        return ", ".join(was), ", ".join(now)


@dataclass(frozen=True, kw_only=True)
class FitSource:
    """The fit that a result is from.

    ``created``: date and time as ISO 8601; ``version``: of this package; ``data_id``: the
    :func:`data_id` of its measurements. They are None for fits that an earlier version kept.
    ``stale``: whether the store's measurements of the site, or the domains of its classes, have
    changed since, None where that is unknown. ``unproven_clocks``, ``stated_clocks``,
    ``estimated_energies``: as in the fit.
    """

    site: str
    name: str
    model: str
    voltage: str
    simulated: bool
    n: int
    created: str | None
    version: str | None
    data_id: str | None
    stale: bool | None
    unproven_clocks: bool
    stated_clocks: bool
    estimated_energies: bool
    store: str = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """``fit`` in JSON output."""
        return {name: value for name, value in asdict(self).items() if name != "store"}

    @property
    def made(self) -> str:
        """When the fit was made, for people."""
        if self.created is None:
            return "made by an earlier version"
        when = datetime.fromisoformat(self.created)
        return f"made {when:%Y-%m-%d %H:%M} {when.tzname()}"

    def __str__(self) -> str:
        """A line for people."""
        text = (
            f"fit {self.name}: model {self.model}, voltage {self.voltage}, {self.n} measurements, "
            f"{self.made}"
        )
        parts = [text, *self.about_data, *([self.why_stale] if self.stale else [])]
        return "; ".join(parts)

    @property
    def about_data(self) -> tuple[str, ...]:
        """What is doubtful about the clocks and energies of its measurements, a phrase each."""
        return (
            *((UNPROVEN_CLOCKS,) if self.unproven_clocks else ()),
            *((STATED_CLOCKS,) if self.stated_clocks else ()),
            *((ESTIMATED_ENERGIES,) if self.estimated_energies else ()),
        )

    @property
    def why_stale(self) -> str:
        """Why the fit is stale, and the command that makes it again."""
        named = "" if self.name == DEFAULT else f" --name {self.name}"
        return (
            f"the store's measurements, or the domains of its classes, have changed since; fit "
            f"again: campaign fit {self.store} --site {self.site}{named}"
        )


def fit_file_name(site: str, name: str = DEFAULT) -> str:
    """The file name of a site's fit. No quoted name contains an ``@``."""
    file = site_file_name(site)
    return file if name == DEFAULT else f"{Path(file).stem}@{quote(name, safe='')}.json"


def kept_fits(store: Store) -> list[tuple[str, str]]:
    """(site, name) of every fit that the store keeps, sorted by site, the default fit first."""
    stems = [Path(file).stem.partition("@") for file in store.json_names("fits")]
    names = {
        (unquote(site), unquote(name) if separator else DEFAULT) for site, separator, name in stems
    }
    return sorted(names, key=lambda pair: (pair[0], pair[1] != DEFAULT, pair[1]))


def keep_fit(
    store: Store,
    fit: Fit,
    name: str,
    request: Request,
    data: str,
    variant_prices: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Keep a fit; it replaces an earlier fit of this name. ``data``: the :func:`data_id`;
    ``variant_prices``: from :func:`campaign.variants.models.variant_prices`."""
    from importlib.metadata import version  # noqa: PLC0415

    from analysis.energy.fit_file import as_kept  # noqa: PLC0415

    origin = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": version("dvfs-campaign"),
        "request": asdict(request),
        "data_id": data,
        "files": _data_files(store),
        "classes": _classes(store, fit.site),
    }
    fit_json = as_kept(fit) | ({"variant_prices": list(variant_prices)} if variant_prices else {})
    with writing(store):
        store.write_json(f"fits/{fit_file_name(fit.site, name)}", fit_json | {"kept": origin})


def check_replaceable(store: Store, site: str, name: str, request: Request) -> None:
    """Refuse to replace a fit that has other options: its picks may be in use.

    Raises:
        ArgumentError: the store keeps a fit of this name with other options.
    """
    try:
        earlier = request_of(read_fit_json(store, site, name))
    except NoKeptFitError:
        return
    if earlier is not None and earlier != request:
        was, now = request.differences(earlier)
        raise ArgumentError(
            f"{site}: a fit {name!r} made with {was} exists; this one has {now}. Keep both "
            f"with --name NAME, or overwrite it with --replace"
        )


def request_of(fit_json: Any) -> Request | None:
    """The options of a kept fit; None where its file does not show them.

    Earlier versions did not keep the options, but did keep the forms that were compared, if any.
    """
    try:
        origin = fit_json.get("kept")
        if origin is not None:
            options = origin["request"]
            return Request(**options | {"model": without_surface(options["model"])})
        if fit_json["tried"]:
            return Request(robust=fit_json["robust"])
        if fit_json["why"] != "the model and the voltage were given":
            return None
        known_volts = fit_json["voltage"] not in NOT_KNOWN
        model = without_surface(fit_json["model"])
        return Request(model, "known" if known_volts else fit_json["voltage"], fit_json["robust"])
    except (AttributeError, KeyError, TypeError):
        return None


def kept_form(store: Store, site: str, name: str = DEFAULT) -> FormRequest:
    """The options that refit the kept fit's form; all defaults where the store has no default fit.

    These are the options of the kept fit. Where it started from another site's fit, or its file
    does not show them, they name the form that it has.

    Raises:
        NoKeptFitError: there is no fit of this name, and the name is not ``default``.
    """
    try:
        fit = read_fit(store, site, name)
    except NoKeptFitError:
        if name == DEFAULT:
            return FormRequest()
        raise
    request = request_of(read_fit_json(store, site, name))
    if request is not None and not request.like:
        return FormRequest(request.model, request.voltage, request.robust)
    known_volts = fit.voltage not in NOT_KNOWN
    return FormRequest(fit.model, "known" if known_volts else fit.voltage, fit.robust)


def read_fit_json(store: Store, site: str, name: str = DEFAULT) -> Any:
    """The JSON of a kept fit, unchecked.

    Raises:
        NoKeptFitError: there is none.
    """
    try:
        fit_json = store.read_json(f"fits/{fit_file_name(site, name)}")
    except DamagedStoreError as error:
        why = str(error.__context__ or "its file is missing, or has no checksum")
        raise not_a_fit(store, site, name, why) from None
    if fit_json is None:
        fit_names = [stored for fitted_site, stored in kept_fits(store) if fitted_site == site]
        sites = sorted({fitted_site for fitted_site, _ in kept_fits(store)})
        if not fit_names and sites and not has_site_record(store, site):
            raise NoKeptFitError(
                f"{store.root}: has no fit of site {site!r}",
                known_names(site, sites, "it has fits of"),
            )
        similar_site = did_you_mean(site, recorded_sites(store))
        if similar_site and not fit_names and not has_site_record(store, site):
            raise NoKeptFitError(f"{store.root}: has no site {site!r}", similar_site.rstrip())
        similar_fit = did_you_mean(name, fit_names).rstrip()
        if similar_fit:
            problem = f"{store.root}: has no fit {name!r} of site {site!r}"
            raise NoKeptFitError(problem, f"{similar_fit} It has: {', '.join(fit_names)}")
        which = "fit" if name == DEFAULT and not fit_names else f"fit {name!r}"
        has = f" (it has: {', '.join(fit_names)})" if fit_names else ""
        raise NoKeptFitError(
            f"{store.root}: has no {which} of site {site!r}{has}", _command(store, site, name)
        )
    return fit_json


def read_fit(store: Store, site: str, name: str = DEFAULT) -> Fit:
    """The fit of a site that the store keeps under ``name``.

    Raises:
        NoKeptFitError: there is none, or its file is not a fit.
    """
    from analysis.energy.fit_file import NoFitError, fit_of  # noqa: PLC0415

    try:
        return fit_of(read_fit_json(store, site, name))
    except NoFitError as error:
        raise not_a_fit(store, site, name, str(error)) from None


def read_summary(store: Store, site: str, name: str = DEFAULT) -> tuple[FitSummary, Any]:
    """A kept fit without the arrays that predictions need, and the JSON of its file.

    Raises:
        NoKeptFitError: there is none, or its file is not a fit.
    """
    from pydantic import ValidationError  # noqa: PLC0415

    from analysis.energy.fit_summary import FitSummary, first_error  # noqa: PLC0415

    fit_json = read_fit_json(store, site, name)
    try:
        return FitSummary.model_validate(fit_json), fit_json
    except ValidationError as error:
        raise not_a_fit(store, site, name, first_error(error)) from None


def fit_source(
    store: Store, summary: FitSummary, name: str, columns: Callable[[], Columns]
) -> FitSource:
    """The source of a summary's fit. ``columns``: reads the store; it is called only where the
    store's files have changed since the fit."""
    origin = summary.kept
    stale = None
    if origin is not None:
        classes = _classes(store, summary.site)
        stale = None not in (origin.classes, classes) and origin.classes != classes
        if not stale and origin.files != _data_files(store):
            stale = origin.data_id != data_id(columns(), summary.site)
    return FitSource(
        site=summary.site,
        name=name,
        model=summary.model,
        voltage=summary.voltage,
        simulated=summary.simulated,
        n=summary.n,
        created=origin.created if origin else None,
        version=origin.version if origin else None,
        data_id=origin.data_id if origin else None,
        stale=stale,
        unproven_clocks=summary.unproven_clocks,
        stated_clocks=summary.stated_clocks,
        estimated_energies=summary.estimated_energies,
        store=str(store.root),
    )


def data_id(columns: Columns, site: str) -> str:
    """A hash of a site's measurements without failures: 12 hexadecimal digits.

    It depends on their points, clocks, voltages, times and energies, but not on their order.
    """
    import hashlib  # noqa: PLC0415

    import numpy as np  # noqa: PLC0415

    from campaign.store.generation import STATE, id_order  # noqa: PLC0415
    from dvfs.dataset import FAILURES  # noqa: PLC0415

    sites, status = columns.texts("site"), columns.texts("status")
    at_site = sites.array(bool, [name == site for name in sites.values])
    failed = status.array(bool, [name in FAILURES for name in status.values])
    rows = np.flatnonzero(at_site & ~failed)
    ids = columns["point_id"][rows].astype(STATE["id"])
    order = id_order(ids)
    rows = rows[order]
    lines = np.strings.add(ids[order], b"\n").tobytes().replace(b"\0", b"")
    hasher = hashlib.sha256(lines[:-1])
    for name in HASHED_COLUMNS:
        hasher.update(columns[name][rows].astype("<f8").tobytes())
    return hasher.hexdigest()[:12]


def _classes(store: Store, site: str) -> dict[str, str] | None:
    """The domains of a site's classes, by its record; None where that is damaged."""
    with suppress(DamagedStoreError):
        return read_site_record(store, site).classes
    return None


def _data_files(store: Store) -> dict[str, int]:
    """The newest index, as 0, and the journals -> size: while these do not change, neither do the
    measurements."""
    files = {f"index/{max((path.name for path in store.index.glob('[0-9]*')), default='')}": 0}
    for path in store.journal_paths():
        with suppress(FileNotFoundError):  # compacted and removed meanwhile
            files[path.name] = path.stat().st_size
    return files


def not_a_fit(store: Store, site: str, name: str, why: str) -> NoKeptFitError:
    """The error for a file that should hold a fit but does not."""
    path = store.fits / fit_file_name(site, name)
    return NoKeptFitError(f"{path}: is not a fit ({why})", _command(store, site, name))


def _command(store: Store, site: str, name: str) -> str:
    named = "" if name == DEFAULT else f" --name {name}"
    return f"run: campaign fit {store.root} --site {site}{named}"


@dataclass(frozen=True)
class KnownSite:
    """The site that a fit starts from: its fit, its measurements, and the voltages of its
    settings."""

    fit: Fit
    data: Observations
    volts: Volts

    def scaled_to(self, fit: Fit) -> tuple[Observations, Volts]:
        """The measurements with their energies scaled to the site of ``fit``, which started from
        this site's fit, and the voltages of the measured settings."""
        present = {self.data.settings[s] for s in set(self.data.setting.tolist())}
        ratio = fit.energy_j(self.data) / self.fit.energy_j(self.data)
        data = replace(self.data, energy_j=self.data.energy_j * ratio)
        return data, {s: v for s, v in self.volts.items() if s in present}


def check_like(site: str, request: Request) -> None:
    """Refuse a ``like`` that cannot be used.

    Raises:
        ArgumentError: ``like`` is given with other options, or names the site itself.
    """
    if request.like == site:
        raise ArgumentError(f"--like: names the site {site} itself; name another one")
    if request.like and request != Request(like=request.like):
        raise ArgumentError(
            f"--like: the model and the voltages come from the fit of {request.like}; leave "
            f"--model, --voltage and --robust out"
        )
