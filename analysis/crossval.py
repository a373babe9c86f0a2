"""Cross-validation: the model's error on energy out of fold, and what its picks lose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analysis.fit import fit
from analysis.forms import AUTO
from analysis.observations import CantFit, Observations, kernel_names
from analysis.time_model import fit_time

SCHEMES = (
    "leave-one-setting-out",
    "holdout",
    "kfold:K",
    "leave-one-kernel-out",
    "leave-one-node-out",
)
SEED = 20140519


@dataclass(frozen=True)
class Chooser:
    """What somebody's choice of settings loses against the best measured one, over all cases."""

    mean_lost_pct: float
    max_lost_pct: float
    exact: float
    """In how many cases the choice was the best (expected, for a random one)."""


@dataclass(frozen=True)
class CrossValidation:
    """A model judged out of fold.

    ``predicted_j``: float64 (rows,), each row predicted by the model fitted without it; NaN
    where no fold predicted it.
    """

    site: str
    simulated: bool
    scheme: str
    model: str
    voltage: str
    chosen: list[dict[str, Any]]
    """The forms that the folds chose, and in how many; ``model`` and ``voltage`` are the first."""
    time: str
    n: int
    n_folds: int
    predicted_j: np.ndarray
    error_pct: np.ndarray
    cases: int
    choosers: dict[str, Chooser]

    def as_dict(self) -> dict[str, Any]:
        """``campaign crossval --json``."""
        error = self.error_pct
        return {
            "site": self.site,
            "simulated": self.simulated,
            "scheme": self.scheme,
            "model": self.model,
            "voltage": self.voltage,
            "chosen": self.chosen,
            "n": self.n,
            "n_folds": self.n_folds,
            "mape_pct": float(error.mean()),
            "std_pct": float(error.std(ddof=1)) if error.size > 1 else 0.0,
            "min_pct": float(error.min()),
            "max_pct": float(error.max()),
            "decision": {"cases": self.cases, "time": self.time}
            | {name: vars(chooser) for name, chooser in self.choosers.items()},
        }


def cross_validate(
    data: Observations,
    scheme: str,
    model: str = AUTO,
    time: str = "measured",
    train: Sequence[tuple[float, float]] | None = None,
    voltage: str = AUTO,
    robust: bool = False,
) -> CrossValidation:
    """Fit without each fold in turn, and predict the fold.

    What ``model`` and ``voltage`` leave open is chosen anew in each fold, from its own rows
    alone; so are voltages that are estimated.

    ``scheme``: one of :data:`SCHEMES`. ``train``: for ``holdout``, the settings to fit on (the
    rest is predicted); without it a random half. ``time``: ``measured`` gives the model
    the measured time of what it predicts, ``predicted`` the time of a time model fitted on the
    same rows.

    Raises:
        CantFit: an unknown scheme, or one that these measurements can't carry.
    """
    if time not in ("measured", "predicted"):
        raise CantFit(f"unknown time {time!r}; known: measured, predicted")
    predicted_j = np.full(len(data), np.nan)
    n_folds = 0
    chosen: Counter[tuple[str, str]] = Counter()
    for test in _folds(data, scheme, train):
        training, held_out = data.take(~test), data.take(test)
        if scheme == "leave-one-kernel-out" and not data.has_counts.all():
            raise CantFit("leave-one-kernel-out needs operation counts; these kernels have none")
        found = fit(training, model, voltage, robust, intervals=False)
        chosen[found.model, found.voltage] += 1
        if time == "predicted":
            held_out = _with_predicted_time(training, held_out)
        predicted_j[test] = found.energy_j(held_out)
        n_folds += 1
    known = np.flatnonzero(np.isfinite(predicted_j))
    if not len(known):
        raise CantFit("no fold could be predicted; measure more settings")
    error_pct = np.abs(predicted_j[known] / data.energy_j[known] - 1.0) * 100.0
    cases, choosers = decide(data.take(known), predicted_j[known])
    (model, voltage), _ = chosen.most_common(1)[0]
    return CrossValidation(
        data.site,
        data.simulated,
        scheme,
        model,
        voltage,
        [
            {"model": model, "voltage": voltage, "folds": folds}
            for (model, voltage), folds in chosen.most_common()
        ],
        time,
        len(known),
        n_folds,
        predicted_j,
        error_pct,
        cases,
        choosers,
    )


def _with_predicted_time(training: Observations, held_out: Observations) -> Observations:
    times = fit_time(training)
    time_s = np.empty(len(held_out))
    for kernel in kernel_names(held_out):
        mine = held_out.kernel == kernel
        time_s[mine] = times.time_s(kernel, held_out.core_mhz[mine], held_out.mem_mhz[mine])
    return replace(held_out, time_s=time_s)


def _folds(
    data: Observations, scheme: str, train: Sequence[tuple[float, float]] | None
) -> Iterator[np.ndarray]:
    """bool masks (rows,) of the rows that each fold predicts."""
    present = np.unique(data.setting)
    if scheme == "leave-one-setting-out":
        if len(present) < 2:
            raise CantFit("leave-one-setting-out needs measurements at two settings or more")
        yield from (data.setting == s for s in present)
    elif scheme == "holdout":
        yield _holdout(data, present, train)
    elif scheme == "leave-one-kernel-out":
        yield from (data.kernel == kernel for kernel in kernel_names(data))
    elif scheme == "leave-one-node-out":
        nodes = np.array([] if data.node is None else sorted(set(data.node.tolist()) - {""}))
        if len(nodes) < 2:
            raise CantFit("leave-one-node-out needs measurements of two named nodes or more")
        yield from (data.node == node for node in nodes)
    elif scheme.startswith("kfold:"):
        folds = int(scheme.removeprefix("kfold:")) if scheme[6:].isdigit() else 0
        if not 2 <= folds <= len(data):
            raise CantFit(f"kfold:K needs a whole K from 2 to {len(data)}; found {scheme!r}")
        fold = np.random.default_rng(SEED).permutation(len(data)) % folds
        yield from (fold == k for k in range(folds))
    else:
        raise CantFit(f"unknown scheme {scheme!r}; known: {', '.join(SCHEMES)}")


def _holdout(
    data: Observations, present: np.ndarray, train: Sequence[tuple[float, float]] | None
) -> np.ndarray:
    if train is None:
        # At random: every second one in order would be one memory clock of two.
        half = -(-len(present) // 2)
        chosen = np.random.default_rng(SEED).permutation(present)[:half]
    else:
        at = {setting: i for i, setting in enumerate(data.settings)}
        stray = [pair for pair in train if tuple(pair) not in at]
        if stray:
            raise CantFit(f"holdout trains on {stray[0]}, which was not measured")
        chosen = np.array([at[pair[0], pair[1]] for pair in train])
    test = ~np.isin(data.setting, chosen)
    if not test.any():
        raise CantFit("holdout leaves no setting to predict; train on fewer")
    return test


def decide(data: Observations, predicted_j: np.ndarray) -> tuple[int, dict[str, Chooser]]:
    """What the picks by ``predicted_j`` lose, beside race to halt and a random setting.

    A case is a kernel that was measured at two settings or more; repeats are averaged. A pick
    loses what its measured energy has above the lowest measured energy of the kernel.
    """
    lost: dict[str, list[float]] = {"model": [], "race_to_halt": [], "random": []}
    worst_random: list[float] = []
    exact_random = 0.0
    for kernel in kernel_names(data):
        mine = data.kernel == kernel
        settings, index = np.unique(data.setting[mine], return_inverse=True)
        if len(settings) < 2:
            continue
        n = np.bincount(index)
        measured_j, time_s, guessed_j = (
            np.bincount(index, values[mine]) / n
            for values in (data.energy_j, data.time_s, predicted_j)
        )
        over_pct = (measured_j / measured_j.min() - 1.0) * 100.0
        lost["model"].append(float(over_pct[np.argmin(guessed_j)]))
        lost["race_to_halt"].append(float(over_pct[np.argmin(time_s)]))
        lost["random"].append(float(over_pct.mean()))
        worst_random.append(float(over_pct.max()))
        exact_random += float(np.mean(over_pct == 0.0))
    cases = len(lost["model"])
    if not cases:
        return 0, {}
    choosers = {
        name: Chooser(float(np.mean(each)), float(np.max(each)), float(np.sum(np.equal(each, 0))))
        for name, each in lost.items()
    }
    choosers["random"] = Chooser(float(np.mean(lost["random"])), max(worst_random), exact_random)
    return cases, choosers
