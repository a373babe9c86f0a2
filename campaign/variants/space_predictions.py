"""Predictions of time and energy for all variants of a space, and the best variant."""

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
from dvfs.dataset import complete_rows
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

    from campaign.store.layout import Store
    from dvfs.dataset import Columns


THREADS = "threads"
"""The parameter that :func:`~campaign.variants.stated_terms.stated_terms` divides terms by."""
MOST_NEAR = 200
"""The most variants near the best that a result lists."""


@dataclass(frozen=True, kw_only=True)
class SpacePick:
    """The best variant and setting of one problem, as predicted.

    ``variants``: their number in the space; ``settings``: the number of settings; ``measured``: the
    number of measured pairs of variant and setting that give the prices of time, and
    ``time_error_pct`` the root mean square error there. ``params``: of the variant. ``energy_j``
    and ``time_s``: of one iteration; the energy is NaN where the store has no fit. ``near``: the
    parameters of the variants within 10 % of the best at this setting, the best first, at most
    200; ``near_count``: their number.
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
    """The name of the fit that predicts energies; None where they are not predicted."""
    picks: tuple[SpacePick, ...]
    why_stale: str = ""
    """Why the fit is not of the measurements that the store has now; empty if it is."""
    unproven_clocks: bool = False
    """Whether nothing showed the clocks of some measurements that times are predicted from."""

    def as_dict(self) -> dict[str, Any]:
        """``campaign predict --space --json``."""
        return {
            "site": self.site,
            "simulated": self.simulated,
            "objective": self.objective,
            "fit": self.fit,
            **({"fit_stale": self.why_stale} if self.why_stale else {}),
            **({"unproven_clocks": True} if self.unproven_clocks else {}),
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
    columns: Columns,
    site: str,
    path: Path,
    *,
    energies: Callable[[], Energies],
    objective: str,
    kernel: str | None,
) -> SpacePredictions:
    """Predict every variant of a campaign file's spaces at each setting with measured variants of
    the kernel, and pick the best.

    ``energies``: returns the inputs to predict energies; called where the objective is not time.

    Raises:
        FileError: the campaign file is wrong, or does not name the site.
        ArgumentError: no kernel of the file has a space.
        FitError: the store has no measured variants of a kernel, or energies cannot be predicted.
    """
    goal = objective_of(objective)
    energy_inputs = None if goal == TIME else energies()
    campaign, site_file, sweeps = _spaces(path, site, kernel)
    picks = []
    measured: dict[str, MeasuredVariants] = {}
    for sweep in sweeps:
        label = sweep.entry.label or sweep.entry.kernel
        try:
            if label not in measured:
                # An imported store has no space; the file's own says what its problems are.
                space = campaign.tuned[label]
                measured[label] = variants_of(store, columns, site, label, space=space)
            _check_ranks(columns, site, label, sweep.entry.ranks)
        except FitError as error:
            raise FitError(
                f"{error}; measure some of its variants first: campaign tune {path} --store "
                f"{store.root}"
            ) from None
        picks += _picks(
            sweep, campaign.tuned[label], measured[label], site_file, energy_inputs, goal
        )
    return SpacePredictions(
        site=site,
        simulated=site_file.is_simulated,
        objective=objective,
        fit=None if energy_inputs is None else energy_inputs.name,
        picks=tuple(picks),
        why_stale="" if energy_inputs is None else energy_inputs.why_stale,
        unproven_clocks=any(own.unproven_clocks for own in measured.values()),
    )


def _check_ranks(columns: Columns, site: str, label: str, ranks: int) -> None:
    """Raise FitError if the kernel was measured with other ranks than a campaign file gives it."""
    of_kernel = complete_rows(columns, site) & (columns["kernel"] == label)
    measured = columns["ranks"][of_kernel]
    for other in measured[measured != ranks][:1].tolist():
        raise FitError(
            f"{label} was measured at {site} with {other} ranks on each node, and the campaign "
            f"file has ranks = {ranks}, which is another kernel"
        )


def _spaces(path: Path, site: str, kernel: str | None) -> tuple[Campaign, Site, list[Sweep]]:
    """The campaign, its site named ``site``, and its sweeps with a space."""
    campaign, source = read_campaign(path)
    site_file = _site_of(campaign, source, path, site)
    chosen = [
        (index, entry)
        for index, entry in enumerate(campaign.kernels)
        if entry.space is not None and kernel in (None, entry.label or entry.kernel)
    ]
    if not chosen:
        with_space = [
            entry.label or entry.kernel for entry in campaign.kernels if entry.space is not None
        ]
        if kernel is not None and with_space:
            remedy = known_names(kernel, with_space, "the file has spaces for")
            raise ArgumentError(f"--kernel: unknown kernel {kernel!r}; {remedy}")
        raise ArgumentError(f"--space: {path} has no kernel with a space; add [kernels.space]")
    return campaign, site_file, [swept(entry, index, source, site_file) for index, entry in chosen]


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
    goal: Objective,
) -> list[SpacePick]:
    """The pick of each problem of a sweep."""
    kernel = find_kernel(sweep.entry.kernel)
    params = [json.loads(text) for text in sweep.params]
    terms = stated_terms(sweep.entry.kernel, sweep.params, shares=True)
    if not terms:
        raise FitError(
            f"{sweep.entry.kernel} does not state what its time is a sum of, so variants that "
            f"were not measured cannot be predicted; search for the best: campaign tune"
        )
    prices = fit_times(measured, intervals=False)
    declared = [name for name in sweep.entry.space or {} if name != WHERE]
    settings = sorted(set(measured.settings))
    problems: dict[str, list[int]] = {}
    for index, variant in enumerate(params):
        fixed = rest_of(variant, tuned, texts_only=False)
        problems.setdefault(json.dumps(fixed, sort_keys=True), []).append(index)
    picks = []
    for text, members in problems.items():
        problem = json.loads(text)
        price = _price(prices, measured, problem, sweep)
        rows = np.array(members)
        stated = {name: values[rows] for name, values in terms.items()}
        _check_priced(price, stated, measured, problem, [params[index] for index in members])
        n_ranks = sweep.entry.ranks * site.nodes_per_point
        counts: dict[str, np.ndarray] = {}  # of all ranks, as the store has them
        for name in set(stated) & set(kernel.classes):
            site_class = site.class_of(name)
            counts[site_class] = counts.get(site_class, 0.0) + n_ranks * stated[name]
        time_s = np.stack([price.of(_terms_at(stated, measured, setting)) for setting in settings])
        energy_j = np.full(time_s.shape, np.nan)
        if energies is not None:
            for s, setting in enumerate(settings):
                energy_j[s] = energies.at_setting_j(counts, time_s[s], setting)
        # Flat: an objective relative to the least takes that of all variants at all settings.
        scores = goal.score(energy_j.ravel(), time_s.ravel()).reshape(time_s.shape)
        s, best = divmod(int(np.nanargmin(scores)), len(members))
        near_rows = rows[near_least(scores[s])].tolist()
        picks.append(
            SpacePick(
                kernel=measured.kernel,
                problem=problem,
                variants=len(members),
                settings=len(settings),
                measured=price.n,
                time_error_pct=price.error * 100.0,
                params=_declared_values(params[members[best]], declared),
                setting=settings[s],
                energy_j=float(energy_j[s, best]),
                time_s=float(time_s[s, best]),
                slurm=slurm_flags(settings[s], site.clocks.device),
                near_count=len(near_rows),
                near=tuple(
                    _declared_values(params[index], declared) for index in near_rows[:MOST_NEAR]
                ),
            )
        )
    return picks


def _declared_values(params: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: params[name] for name in names}


def _price(
    prices: Sequence[LinearCost | None],
    measured: MeasuredVariants,
    problem: Mapping[str, Any],
    sweep: Sweep,
) -> LinearCost:
    """The prices of a problem's family; FitError where no variant of the family was measured."""
    texts = {name: value for name, value in problem.items() if isinstance(value, str)}
    for family, price in zip(measured.families, prices, strict=True):
        if family == texts and price is not None:
            return price
    families = "; ".join(" ".join(map(str, family.values())) for family in measured.families)
    raise FitError(
        f"{measured.site} has measured no variant of {sweep.entry.kernel} "
        f"{' '.join(texts.values())}; it has: {families}. Measure some of its variants first: "
        f"campaign tune"
    )


def _check_priced(
    price: LinearCost,
    terms: Mapping[str, np.ndarray],
    measured: MeasuredVariants,
    problem: Mapping[str, Any],
    members: Sequence[Mapping[str, Any]],
) -> None:
    """Raise FitError where variants of a problem take what no measured variant of its family took,
    so that it has no price: a term, or another number of threads than the only one measured.

    ``terms``: of the ``members``, the parameters of the problem's variants.
    """
    remedy = "measure such variants, or leave them out of the space"
    priced = {term.partition(" / ")[0] for term in price.terms}
    for name, values in terms.items():
        if " / " not in name and name not in priced and np.any(values != 0):
            raise FitError(
                f"no variant of {measured.kernel} that was measured at {measured.site} has any "
                f"{name}, so its time is not known; variants of the space have some: {remedy}"
            )
    texts = {name: value for name, value in problem.items() if isinstance(value, str)}
    family = measured.families.index(texts)
    of_family = {measured.variant[row] for row in np.flatnonzero(measured.family == family)}
    threads = {measured.instances[i].params.get(THREADS, 1) for i in of_family}
    others = sorted({params.get(THREADS, 1) for params in members} - threads)
    if len(threads) == 1 and others:
        raise FitError(
            f"{measured.kernel} was measured at {measured.site} with {THREADS} = {min(threads)} "
            f"alone, and variants of the space have {', '.join(map(str, others))}: {remedy}"
        )


def _terms_at(
    terms: Mapping[str, np.ndarray], measured: MeasuredVariants, setting: Setting
) -> dict[str, np.ndarray]:
    n = len(next(iter(terms.values())))
    clocks = dict(zip(CLOCKS, np.repeat(clock_columns([setting]).T, n, axis=1), strict=True))
    return at_clocks(terms, clocks, highest=measured.highest)
