"""Searches played on the measurements of a store, where every candidate has been measured."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from analysis.choice.objectives import objective as objective_of
from analysis.measurements.observations import distinct_kernels, refuse_other_ranks
from analysis.measurements.problems import check_one_problem, of_problem
from analysis.search.candidates import Candidates
from analysis.search.play import play, score
from analysis.search.strategies import STRATEGIES
from campaign.variants.choosing import BATCH
from campaign.variants.problems import candidate_columns, candidate_terms
from campaign.variants.stated_terms import stated_terms
from dvfs.dataset import is_complete
from dvfs.errors import ArgumentError, unknown_name
from dvfs.extras import explain_missing
from dvfs.kernel_instance import dataset_kernels
from dvfs.setting import axis_values, distinct_settings

if TYPE_CHECKING:
    import xarray as xr

    from dvfs.dataset import Columns

SHOWN_AFTER = (25, 50, 100, 200, 400, 800)


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What searches have lost. ``mean_lost_pct``: strategy -> what the best that it had found was
    above the best of all, in %, a mean over the trials, after each number of ``measurements``;
    infinite where a trial had found none. ``failed``: of the ``candidates``."""

    site: str
    kernel: str
    simulated: bool
    objective: str
    candidates: int
    failed: int
    trials: int
    measurements: tuple[int, ...]
    mean_lost_pct: dict[str, tuple[float, ...]]

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return dict(vars(self))


def replay(
    scalars: xr.Dataset | Columns,
    site: str,
    *,
    kernel: str | None = None,
    problem: Mapping[str, str] | None = None,
    tuned: Mapping[str, Sequence[str]] | None = None,
    objective: str = "energy",
    budget: int = 200,
    trials: int = 20,
    strategies: Sequence[str] | None = None,
    show: Callable[[int], None] = lambda count: None,
) -> Replay:
    """Play each strategy ``trials`` times, with other seeds, on a kernel's measurements.

    ``scalars``: a store's Dataset without traces. ``problem``: parameter -> value as text, for
    those that say what is computed; ``tuned``: kernel -> the others, where they are known.
    ``show`` is called with how many trials have been played.

    Raises:
        ArgumentError: no such site, kernel or strategy, or nothing to search.
        FitError: no such objective or problem, several problems, or a kernel that was measured with
            different numbers of ranks.
        MissingExtraError: a strategy needs scikit-learn, which is not installed.
    """
    asked = objective_of(objective)
    names = list(strategies or STRATEGIES)
    for name in names:
        if name not in STRATEGIES:
            raise ArgumentError(f"--strategy: {unknown_name('strategy', name, STRATEGIES)}")
    for option, value in (("--budget", budget), ("--trials", trials)):
        if value < 1:
            raise ArgumentError(f"{option}: found {value}; must be 1 or more")
    rows, kernel = _rows(scalars, site, kernel)
    known = dataset_kernels(scalars)
    instances = [known[kernel, params] for params in np.asarray(scalars["params"])[rows].tolist()]
    kept = of_problem(instances, problem or {})
    rows, instances = rows[kept], [instances[i] for i in kept]
    if kernel in (tuned or {}):
        check_one_problem(instances, (tuned or {})[kernel])
    done = np.flatnonzero(is_complete(np.asarray(scalars["status"])[rows]))
    labels = [instances[i].label for i in done]
    refuse_other_ranks(scalars, rows[done], *distinct_kernels(labels))
    candidates, costs = measured_candidates(scalars, rows)
    scores = score(asked, costs)
    if not np.isfinite(scores).any():
        times = np.isfinite(costs[:, 1]).any()
        raise ArgumentError(
            f"--replay: no energy of {kernel} at {site} was measured; use --objective time"
            if times
            else f"--replay: no measurement of {kernel} at {site} has succeeded"
        )
    budget = min(budget, len(candidates))
    shown = (*(n for n in SHOWN_AFTER if n < budget), budget)
    at = np.array(shown) - 1
    lost: dict[str, tuple[float, ...]] = {}
    with explain_missing(), _processes() as run:
        for name in names:
            played = []
            one = partial(
                _play, candidates, costs, objective_name=objective, strategy=name, budget=budget
            )
            for trial in run(one, range(trials)):
                played.append(trial[at])
                show(len(lost) * trials + len(played))
            lost[name] = tuple((np.mean(played, axis=0) * 100.0).tolist())
    return Replay(
        site=site,
        kernel=kernel,
        simulated=bool(np.asarray(scalars["simulated"])[rows].any()),
        objective=asked.title,
        candidates=len(candidates),
        failed=int(np.isnan(scores).sum()),
        trials=trials,
        measurements=shown,
        mean_lost_pct=lost,
    )


def _play(
    candidates: Candidates,
    costs: np.ndarray,
    seed: int,
    *,
    objective_name: str,
    strategy: str,
    budget: int,
) -> np.ndarray:
    """A trial in a process of its own, to which no function of an objective can be sent."""
    asked = objective_of(objective_name)
    return play(candidates, costs, asked, strategy, budget=budget, batch=BATCH, seed=seed)


@contextmanager
def _processes() -> Iterator[Callable[..., Iterator[np.ndarray]]]:
    """A ``map`` over a process for each core."""
    cores = len(psutil.Process().cpu_affinity())
    with ProcessPoolExecutor(
        cores, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)
    ) as pool:
        try:
            yield pool.map
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _rows(scalars: xr.Dataset | Columns, site: str, kernel: str | None) -> tuple[np.ndarray, str]:
    """The rows of a site's kernel, the only one where none is named, and its name."""
    of_site = np.asarray(scalars["site"]) == site if "site" in scalars else np.zeros(0, bool)
    if not of_site.any():
        sites = sorted(set(np.asarray(scalars["site"]).tolist())) if "site" in scalars else []
        raise ArgumentError(f"--site: {unknown_name('site', site, sites)}")
    kernels = sorted(set(np.asarray(scalars["kernel"])[of_site].tolist()))
    if kernel is None:
        if len(kernels) > 1:
            raise ArgumentError(f"--kernel: {site} has several; name one: {', '.join(kernels)}")
        kernel = kernels[0]
    if kernel not in kernels:
        raise ArgumentError(f"--kernel: {unknown_name('kernel', kernel, kernels)}")
    return np.flatnonzero(of_site & (np.asarray(scalars["kernel"]) == kernel)), kernel


def measured_candidates(
    scalars: xr.Dataset | Columns, rows: np.ndarray
) -> tuple[Candidates, np.ndarray]:
    """The candidates that ``rows`` measured, in a fixed order, and the energy (J) and time (s) of
    each: (N, 2), means over repeats; NaN where all have failed."""
    params = np.asarray(scalars["params"])[rows].tolist()
    distinct, of = distinct_settings(*axis_values(scalars, rows))
    keys = [(text, distinct[place]) for text, place in zip(params, of.tolist(), strict=True)]
    known = sorted(set(keys))
    place = {key: i for i, key in enumerate(known)}
    at = np.array([place[key] for key in keys])
    done = is_complete(np.asarray(scalars["status"])[rows])
    costs = np.empty((len(known), 2))
    for column, name in enumerate(("energy_j", "time_s")):
        values = np.asarray(scalars[name])[rows]
        used = done & np.isfinite(values)
        with np.errstate(invalid="ignore"):
            costs[:, column] = np.bincount(at[used], values[used], len(known)) / np.bincount(
                at[used], minlength=len(known)
            )
    variants = [json.loads(text) for text, _ in known]
    settings = [setting for _, setting in known]
    each_own = np.arange(len(known))
    stated = stated_terms(np.asarray(scalars["kernel"])[rows[0]], [text for text, _ in known])
    candidates = Candidates(
        candidate_columns(variants, each_own, settings),
        candidate_terms(stated, each_own, settings),
    )
    return candidates, costs
