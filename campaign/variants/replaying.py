"""Searches replayed on the measurements of a store that has measured every candidate."""

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
from analysis.measurements.observations import distinct_kernels, refuse_other_ranks, site_names
from analysis.measurements.problems import check_one_problem, of_problem
from analysis.measurements.variants import refuse_other_work
from analysis.search.candidates import Candidates
from analysis.search.play import play, score
from analysis.search.strategies import STRATEGIES
from campaign.variants.problems import candidates_of
from campaign.variants.stated_terms import stated_terms
from campaign.variants.study import kernels_at
from campaign.variants.tuning import BATCH
from dvfs.dataset import is_complete
from dvfs.errors import ArgumentError, unknown_name
from dvfs.extras import explain_missing
from dvfs.setting import axis_values, distinct_settings

if TYPE_CHECKING:
    from dvfs.dataset import Columns

SHOWN_AFTER = (25, 50, 100, 200, 400, 800)


@dataclass(frozen=True, kw_only=True)
class Replay:
    """The losses of searches. ``mean_lost_pct``: strategy -> how far its best candidate is above
    the best of all, in %, a mean over the trials, after each number of ``measurements``; infinite
    where a trial had no candidate yet. ``failed``: the number of ``candidates`` that failed."""

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
    columns: Columns,
    site: str,
    *,
    kernel: str | None,
    problem: Mapping[str, str] | None = None,
    tuned: Mapping[str, Sequence[str]],
    objective: str,
    budget: int,
    trials: int,
    strategies: Sequence[str] | None = None,
    show: Callable[[int], None] = lambda count: None,
) -> Replay:
    """Play each strategy ``trials`` times, with different seeds, on a kernel's measurements.

    ``columns``: a store's measurements. ``problem``: parameter -> value as text, of the
    parameters that say what is computed; ``tuned``: kernel -> the other parameters, where known.
    ``show``: called with the number of trials played.

    Raises:
        ArgumentError: no such site, kernel or strategy, or nothing to search.
        FitError: no such objective or problem, several problems, or a kernel that was measured with
            different numbers of ranks.
        MissingExtraError: a strategy needs scikit-learn, which is not installed.
    """
    goal = objective_of(objective)
    names = list(strategies or STRATEGIES)
    for name in names:
        if name not in STRATEGIES:
            raise ArgumentError(f"--strategy: {unknown_name('strategy', name, STRATEGIES)}")
    for option, value in (("--budget", budget), ("--trials", trials)):
        if value < 1:
            raise ArgumentError(f"{option}: found {value}; must be 1 or more")
    rows, kernel = _rows(columns, site, kernel)
    by_key = columns.kernels_by_pair
    instances = [by_key[kernel, params] for params in columns["params"][rows].tolist()]
    selected = of_problem(instances, problem or {})
    rows, instances = rows[selected], [instances[i] for i in selected]
    if kernel in tuned:
        check_one_problem(instances, tuned[kernel])
    complete = np.flatnonzero(is_complete(columns["status"][rows]))
    labels = [instances[i].label for i in complete]
    refuse_other_ranks(columns, rows[complete], *distinct_kernels(labels))
    if not problem and kernel not in (tuned or {}):
        refuse_other_work(columns, rows[complete])
    candidates, costs = measured_candidates(columns, rows)
    scores = score(goal, costs)
    if not np.isfinite(scores).any():
        times = np.isfinite(costs[:, 1]).any()
        raise ArgumentError(
            f"--replay: no energy of {kernel} at {site} was measured; use --objective time"
            if times
            else f"--replay: no measurement of {kernel} at {site} has succeeded"
        )
    budget = min(budget, len(candidates))
    measurements = (*(n for n in SHOWN_AFTER if n < budget), budget)
    steps = np.array(measurements) - 1
    mean_lost_pct: dict[str, tuple[float, ...]] = {}
    with explain_missing(), _processes() as run:
        for name in names:
            lost_by_trial = []
            play_trial = partial(
                _play, candidates, costs, objective_name=objective, strategy=name, budget=budget
            )
            for trial in run(play_trial, range(trials)):
                lost_by_trial.append(trial[steps])
                show(len(mean_lost_pct) * trials + len(lost_by_trial))
            mean_lost_pct[name] = tuple((np.mean(lost_by_trial, axis=0) * 100.0).tolist())
    return Replay(
        site=site,
        kernel=kernel,
        simulated=bool(columns["simulated"][rows].any()),
        objective=goal.title,
        candidates=len(candidates),
        failed=int(np.isnan(scores).sum()),
        trials=trials,
        measurements=measurements,
        mean_lost_pct=mean_lost_pct,
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
    """Play a trial in a worker process, to which an objective's functions cannot be sent."""
    goal = objective_of(objective_name)
    return play(candidates, costs, goal, strategy, budget=budget, batch=BATCH, seed=seed)


@contextmanager
def _processes() -> Iterator[Callable[..., Iterator[np.ndarray]]]:
    """A ``map`` over one process for each core."""
    cores = len(psutil.Process().cpu_affinity())
    with ProcessPoolExecutor(
        cores, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)
    ) as pool:
        try:
            yield pool.map
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _rows(columns: Columns, site: str, kernel: str | None) -> tuple[np.ndarray, str]:
    """The rows of a site's kernel and its name; without ``kernel``, of the only kernel."""
    sites = site_names(columns)
    if site not in sites:
        raise ArgumentError(f"--site: {unknown_name('site', site, sites)}")
    kernels = kernels_at(columns, site)
    if kernel is None:
        if len(kernels) > 1:
            raise ArgumentError(f"--kernel: {site} has several; name one: {', '.join(kernels)}")
        kernel = kernels[0]
    if kernel not in kernels:
        raise ArgumentError(f"--kernel: {unknown_name('kernel', kernel, kernels)}")
    return np.flatnonzero((columns["site"] == site) & (columns["kernel"] == kernel)), kernel


def measured_candidates(columns: Columns, rows: np.ndarray) -> tuple[Candidates, np.ndarray]:
    """The candidates of the measurements ``rows``, in a fixed order, and their energy (J) and time
    (s): (N, 2), means over repeats; NaN where all repeats failed."""
    params = columns["params"][rows].tolist()
    all_settings, setting_of_row = distinct_settings(*axis_values(columns, rows))
    keys = [
        (text, all_settings[s]) for text, s in zip(params, setting_of_row.tolist(), strict=True)
    ]
    distinct_keys = sorted(set(keys))
    index_of = {key: i for i, key in enumerate(distinct_keys)}
    candidate_of_row = np.array([index_of[key] for key in keys])
    complete = is_complete(columns["status"][rows])
    costs = np.empty((len(distinct_keys), 2))
    for column, name in enumerate(("energy_j", "time_s")):
        values = columns[name][rows]
        usable = complete & np.isfinite(values)
        with np.errstate(invalid="ignore"):
            costs[:, column] = np.bincount(
                candidate_of_row[usable], values[usable], len(distinct_keys)
            ) / np.bincount(candidate_of_row[usable], minlength=len(distinct_keys))
    variants = [json.loads(text) for text, _ in distinct_keys]
    settings = [setting for _, setting in distinct_keys]
    indices = np.arange(len(distinct_keys))
    stated = stated_terms(columns["kernel"][rows[0]], [text for text, _ in distinct_keys])
    return candidates_of(variants, stated, indices, settings), costs
