"""Variants of a space that were never measured: their time and energy, and the best of them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.choice.objectives import TIME, Objective
from analysis.choice.objectives import objective as objective_of
from analysis.choice.variant_prices import fit_times
from analysis.costs.linear_cost import LinearCost, at_clocks
from analysis.costs.stencil_time import near_least
from analysis.measurements.observations import FitError
from analysis.measurements.variants import CLOCKS, MeasuredVariants, rest_of
from campaign.plan.campaign_file import Campaign, read_campaign
from campaign.plan.sweep import Sweep, swept
from campaign.variants.models import Energies, variants_of
from campaign.variants.stated_terms import stated_terms
from dvfs.errors import ArgumentError, known_names
from dvfs.input_files import Source
from dvfs.setting import Setting, clock_columns
from kernels.registry import find_kernel
from kernels.space import WHERE
from sites.clocks.slurm import slurm_flags
from sites.site_file import Site
from sites.site_reading import find_site, read_site

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from campaign.store.layout import Store
    from dvfs.dataset import Columns


NEAR = 0.10
MOST_NEAR = 200
"""Variants near the best that a result lists."""


@dataclass(frozen=True, kw_only=True)
class SpacePick:
    """The best variant and setting of one problem, as predicted.

    ``variants``: of the space; ``settings``: at which they were predicted; ``measured``: how many
    variants the time's prices come from, and ``time_error_pct`` their root mean square error.
    ``params``: of the variant. ``energy_j`` and ``time_s`` of one iteration; an energy is NaN where
    the store has no fit. ``near``: the parameters of the variants that are at this setting within
    10 % of the best, the best first, at most 200; ``near_count``: how many there are.
    """

    kernel: str
    problem: Mapping[str, Any]
    variants: int
    settings: int
    measured: int
    time_error_pct: float
    params: Mapping[str, Any]
    setting: Setting
    energy_j: float
    time_s: float
    slurm: str
    near_count: int
    near: tuple[Mapping[str, Any], ...]

    def as_dict(self) -> dict[str, Any]:
        """An entry of ``campaign predict --space --json``."""
        numbers = {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in vars(self).items()
            if name != "setting"
        }
        return numbers | self.setting.as_dict() | {"near": [dict(variant) for variant in self.near]}


@dataclass(frozen=True, kw_only=True)
class SpacePredictions:
    """The picks of every problem that a campaign file's spaces declare, at one site."""

    site: str
    simulated: bool
    objective: str
    fit: str | None
    """The fit that energies are from; None where they are not predicted."""
    picks: tuple[SpacePick, ...]

    def as_dict(self) -> dict[str, Any]:
        """``campaign predict --space --json``."""
        return {
            "site": self.site,
            "simulated": self.simulated,
            "objective": self.objective,
            "fit": self.fit,
            "picks": [pick.as_dict() for pick in self.picks],
        }

    def to_pandas(self) -> pd.DataFrame:
        """The picks, a row each."""
        import pandas as pd  # noqa: PLC0415

        return pd.json_normalize([pick.as_dict() | {"near": None} for pick in self.picks])

    def _repr_html_(self) -> str:
        return str(self.to_pandas()._repr_html_())  # type: ignore[operator]


def predict_space(
    store: Store,
    scalars: xr.Dataset | Columns,
    site: str,
    path: Path,
    *,
    energies: Callable[[], Energies],
    objective: str = "energy",
    kernel: str | None = None,
) -> SpacePredictions:
    """Predict every variant of a campaign file's spaces at every setting that the store has
    measured variants of that kernel at, and pick.

    ``energies``: asked for where the objective is not the time.

    Raises:
        FileError: the campaign file is wrong, or does not name the site.
        ArgumentError: no kernel of it has a space.
        FitError: the store has no measured variants of a kernel, or the energies cannot be known.
    """
    judged_by = objective_of(objective)
    known = None if judged_by == TIME else energies()
    campaign, own_site, sweeps = _spaces(path, site, kernel)
    picks = []
    measured: dict[str, MeasuredVariants] = {}
    for sweep in sweeps:
        label = sweep.entry.label or sweep.entry.kernel
        try:
            if label not in measured:
                measured[label] = variants_of(store, scalars, site, label)
        except FitError as error:
            raise FitError(
                f"{error}; measure some of its variants first: campaign tune {path} --store "
                f"{store.root}"
            ) from None
        picks += _picks(sweep, campaign.tuned[label], measured[label], own_site, known, judged_by)
    return SpacePredictions(
        site=site,
        simulated=own_site.is_simulated,
        objective=objective,
        fit=None if known is None else known.name,
        picks=tuple(picks),
    )


def _spaces(path: Path, site: str, kernel: str | None) -> tuple[Campaign, Site, list[Sweep]]:
    """The campaign, its site of this name, and the sweeps with a space."""
    campaign, source = read_campaign(path)
    of_site = _site_of(campaign, source, path, site)
    chosen = [
        (place, entry)
        for place, entry in enumerate(campaign.kernels)
        if entry.space is not None and kernel in (None, entry.label or entry.kernel)
    ]
    if not chosen:
        having = [
            entry.label or entry.kernel for entry in campaign.kernels if entry.space is not None
        ]
        if kernel is not None and having:
            known = known_names(kernel, having, "the file has spaces for")
            raise ArgumentError(f"--kernel: unknown kernel {kernel!r}; {known}")
        raise ArgumentError(f"--space: {path} has no kernel with a space; add [kernels.space]")
    return campaign, of_site, [swept(entry, place, source, of_site) for place, entry in chosen]


def _site_of(campaign: Campaign, source: Source, path: Path, name: str) -> Site:
    names = []
    for entry in campaign.sites:
        site = read_site(find_site(entry.site, path.parent))
        names.append(site.name)
        if site.name == name:
            return site
    raise source.error(
        ("sites",), f"the sites are {', '.join(names)}, and not {name}", "add it to [[sites]]"
    )


def _picks(
    sweep: Sweep,
    tuned: Sequence[str],
    measured: MeasuredVariants,
    site: Site,
    energies: Energies | None,
    judged_by: Objective,
) -> list[SpacePick]:
    """The pick of each problem of a sweep."""
    kernel = find_kernel(sweep.entry.kernel)
    params = [json.loads(text) for text in sweep.params]
    stated = stated_terms(sweep.entry.kernel, sweep.params)
    if not stated:
        raise FitError(
            f"{sweep.entry.kernel} does not state what its time is a sum of, so variants that "
            f"were not measured cannot be predicted; search for the best: campaign tune"
        )
    fitted = fit_times(measured, intervals=False)
    own_names = [name for name in sweep.entry.space or {} if name != WHERE]
    settings = sorted(set(measured.settings))
    problems: dict[str, list[int]] = {}
    for place, variant in enumerate(params):
        rest = rest_of(variant, tuned, texts_only=False)
        problems.setdefault(json.dumps(rest, sort_keys=True), []).append(place)
    picks = []
    for text, places in problems.items():
        problem = json.loads(text)
        price = _price(fitted, measured, problem, sweep)
        rows = np.array(places)
        columns = {name: column[rows] for name, column in stated.items()}
        counts: dict[str, np.ndarray] = {}
        for name in set(columns) & set(kernel.classes):
            own_class = site.class_of(name)
            counts[own_class] = counts.get(own_class, 0.0) + columns[name]
        time_s = np.stack([price.of(_at(columns, measured, pair)) for pair in settings])
        energy_j = np.full(time_s.shape, np.nan)
        if energies is not None:
            for number, pair in enumerate(settings):
                energy_j[number] = energies.at_setting_j(counts, time_s[number], pair)
        scores = judged_by.score(energy_j, time_s)
        number, best = divmod(int(np.nanargmin(scores)), len(places))
        near = rows[near_least(scores[number], NEAR)].tolist()
        picks.append(
            SpacePick(
                kernel=measured.kernel,
                problem=problem,
                variants=len(places),
                settings=len(settings),
                measured=price.n,
                time_error_pct=price.error * 100.0,
                params=_own(params[places[best]], own_names),
                setting=settings[number],
                energy_j=float(energy_j[number, best]),
                time_s=float(time_s[number, best]),
                slurm=slurm_flags(settings[number], site.clocks.device),
                near_count=len(near),
                near=tuple(_own(params[place], own_names) for place in near[:MOST_NEAR]),
            )
        )
    return picks


def _own(params: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: params[name] for name in names}


def _price(
    fitted: Sequence[LinearCost | None],
    measured: MeasuredVariants,
    problem: Mapping[str, Any],
    sweep: Sweep,
) -> LinearCost:
    """The prices of a problem's family; FitError where none of it was measured."""
    texts = {name: value for name, value in problem.items() if isinstance(value, str)}
    for family, price in zip(measured.families, fitted, strict=True):
        if family == texts and price is not None:
            return price
    had = "; ".join(" ".join(map(str, family.values())) for family in measured.families)
    raise FitError(
        f"{measured.site} has measured no variant of {sweep.entry.kernel} "
        f"{' '.join(texts.values())}; it has: {had}. Measure some of its variants first: campaign "
        f"tune"
    )


def _at(
    columns: Mapping[str, np.ndarray], measured: MeasuredVariants, setting: Setting
) -> dict[str, np.ndarray]:
    n = len(next(iter(columns.values())))
    clocks = dict(zip(CLOCKS, np.repeat(clock_columns([setting]).T, n, axis=1), strict=True))
    return at_clocks(columns, clocks, highest=measured.highest)
