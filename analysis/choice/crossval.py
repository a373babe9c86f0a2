"""Cross-validation: the model's error on energy out of fold, and what its picks lose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from analysis.energy.fit import fit
from analysis.energy.models import AUTO
from analysis.measurements.observations import CantFit, Observations, kernel_names, pooled
from analysis.rooflines.roofline import fastest_setting
from analysis.time.class_roofline import fit_class_roofline
from analysis.time.kernel_roofline import fit_time

SCHEMES = (
    "leave-one-setting-out",
    "holdout",
    "kfold:K",
    "leave-one-kernel-out",
    "leave-one-node-out",
    "leave-one-site-out",
)
TIMES = ("measured", "predicted", "profile")
SEED = 20140519
RESAMPLES = 2000
RESAMPLED_FROM = 10
"""From how many kernels on a mean's interval is found by resampling them."""


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
    time_error_pct: np.ndarray
    """Of the times that the model was given, over the predicted rows; 0 where measured."""
    cases: list[CaseLoss]

    @property
    def choosers(self) -> dict[str, Chooser]:
        """The model's picks, race to halt and a random setting."""
        return decide(self.cases)

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
            "time_mape_pct": float(self.time_error_pct.mean()),
            "decision": {"cases": len(self.cases), "time": self.time}
            | {name: vars(chooser) for name, chooser in self.choosers.items()},
            "against_race_to_halt": vars(contest(self.cases)),
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
    same rows, ``profile`` a time from the kernel's counts and its time at the fastest setting.

    Raises:
        CantFit: an unknown scheme, or one that these measurements can't carry.
    """
    if time not in TIMES:
        raise CantFit(f"unknown time {time!r}; known: {', '.join(TIMES)}")
    predicted_j = np.full(len(data), np.nan)
    predicted_s = np.full(len(data), np.nan)
    n_folds = 0
    chosen: Counter[tuple[str, str]] = Counter()
    for test in _folds(data, scheme, train):
        training, held_out = data.take(~test), data.take(test)
        if scheme == "leave-one-kernel-out" and not data.has_counts.all():
            raise CantFit("leave-one-kernel-out needs operation counts; these kernels have none")
        found = fit(training, model, voltage, robust=robust, intervals=False)
        chosen[found.model, found.voltage] += 1
        if time == "predicted":
            held_out = _with_predicted_time(training, held_out)
        elif time == "profile":
            held_out = _with_profile_time(data, training, held_out)
        predicted_s[test] = held_out.time_s
        foreseen = _foreseen(training, held_out)
        predicted_j[np.flatnonzero(test)[foreseen]] = found.energy_j(held_out)[foreseen]
        n_folds += 1
    return _judged(data, scheme, predicted_j, predicted_s, n_folds, chosen, time)


def _judged(
    data: Observations,
    scheme: str,
    predicted_j: np.ndarray,
    predicted_s: np.ndarray,
    n_folds: int,
    chosen: Counter[tuple[str, str]],
    time: str,
) -> CrossValidation:
    known = np.flatnonzero(np.isfinite(predicted_j))
    if not len(known):
        raise CantFit("no fold could be predicted; measure more settings, or kernels with counts")
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
        np.abs(predicted_j[known] / data.energy_j[known] - 1.0) * 100.0,
        np.abs(predicted_s[known] / data.time_s[known] - 1.0) * 100.0,
        case_losses(data, predicted_j),
    )


def _foreseen(training: Observations, held_out: Observations) -> np.ndarray:
    """bool (rows,): kernels with counts, and those without that the training rows have, too."""
    known = set(training.kernel.tolist())
    return held_out.has_counts | np.array([k in known for k in held_out.kernel.tolist()], bool)


def leave_one_site_out(
    sites: Sequence[Observations], model: str = AUTO, voltage: str = AUTO, robust: bool = False
) -> CrossValidation:
    """Fit on all sites but one in turn, and predict that one: do they share a model?

    A kernel without counts is predicted where another site measured it under the same name.

    Raises:
        CantFit: fewer than two sites, or sites that know voltages in different ways.
    """
    if len(sites) < 2:
        raise CantFit("leave-one-site-out needs two sites or more")
    if len({data.voltage for data in sites}) > 1:
        known = ", ".join(f"{data.site}: {data.voltage}" for data in sites)
        raise CantFit(f"these sites' voltages can't be taken together ({known})")
    data, place = pooled(sites)
    predicted_j = np.full(len(data), np.nan)
    chosen: Counter[tuple[str, str]] = Counter()
    for i in range(len(sites)):
        training, held_out = data.take(place != i), data.take(place == i)
        found = fit(training, model, voltage, robust=robust, intervals=False)
        chosen[found.model, found.voltage] += 1
        foreseen = _foreseen(training, held_out)
        predicted_j[np.flatnonzero(place == i)[foreseen]] = found.energy_j(held_out.take(foreseen))
    # A kernel of one name is a case of its own at each site.
    by_site = np.array([f"{sites[i].site}: {k}" for i, k in zip(place, data.kernel, strict=True)])
    instances = {
        label: replace(data.instance(kernel), label=label)
        for label, kernel in zip(by_site.tolist(), data.kernel.tolist(), strict=True)
    }
    named = replace(data, kernel=by_site.astype(object), instances=instances)
    return _judged(
        named, "leave-one-site-out", predicted_j, data.time_s, len(sites), chosen, TIMES[0]
    )


def _with_predicted_time(training: Observations, held_out: Observations) -> Observations:
    times = fit_time(training)
    time_s = np.empty(len(held_out))
    for kernel in kernel_names(held_out):
        mine = held_out.kernel == kernel
        time_s[mine] = times.time_s(kernel, held_out.core_mhz[mine], held_out.mem_mhz[mine])
    return replace(held_out, time_s=time_s)


def _with_profile_time(
    data: Observations, training: Observations, held_out: Observations
) -> Observations:
    """The times of each held-out kernel from its counts and its time at the fastest setting.

    That one time is the kernel's profile: it alone is taken from the rows held out.
    """
    ceilings = fit_class_roofline(training)
    base = fastest_setting(training)
    time_s = np.full(len(held_out), np.nan)
    for kernel in kernel_names(held_out):
        profile = data.take((data.kernel == kernel) & (data.setting == base))
        if not len(profile):
            continue
        mine = held_out.kernel == kernel
        time_s[mine] = ceilings.time_s(
            {name: float(values[0]) for name, values in profile.counts.items()},
            float(profile.time_s.mean()),
            data.settings[base],
            held_out.core_mhz[mine],
            held_out.mem_mhz[mine],
        )
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
    elif scheme == "leave-one-site-out":
        raise CantFit("leave-one-site-out needs two sites or more")
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


@dataclass(frozen=True, kw_only=True)
class CaseLoss:
    """What each chooser's setting costs one kernel above its best measured setting, in %.

    ``kernel``, ``params``, ``label``: as :class:`~analysis.measurements.kernels.KernelInstance`.
    ``random_pct``, ``most_pct``: over all its settings, the mean and the most;
    ``random_exact``: how likely a random setting is the best.
    """

    kernel: str
    params: Mapping[str, Any]
    label: str
    model_pct: float
    race_to_halt_pct: float
    random_pct: float
    most_pct: float
    random_exact: float


def case_losses(data: Observations, predicted_j: np.ndarray) -> list[CaseLoss]:
    """What the picks by ``predicted_j`` (rows,) lose, kernel by kernel.

    A case is a kernel that was measured at two settings or more; repeats are averaged, and rows
    without a prediction (NaN) left out. A pick loses what its measured energy has above the
    lowest measured energy of the kernel. Race to halt takes the fastest measured setting.
    """
    known = np.isfinite(predicted_j)
    data, predicted_j = data.take(known), predicted_j[known]
    found = []
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
        found.append(
            CaseLoss(
                **data.instance(kernel).as_dict(),
                model_pct=float(over_pct[np.argmin(guessed_j)]),
                race_to_halt_pct=float(over_pct[np.argmin(time_s)]),
                random_pct=float(over_pct.mean()),
                most_pct=float(over_pct.max()),
                random_exact=float(np.mean(over_pct == 0.0)),
            )
        )
    return found


def decide(cases: Sequence[CaseLoss]) -> dict[str, Chooser]:
    """The model's picks beside race to halt and a random setting; empty without cases."""
    if not cases:
        return {}
    choosers = {}
    for name in ("model", "race_to_halt"):
        lost = np.array([getattr(case, f"{name}_pct") for case in cases])
        choosers[name] = Chooser(float(lost.mean()), float(lost.max()), float(np.sum(lost == 0.0)))
    choosers["random"] = Chooser(
        float(np.mean([case.random_pct for case in cases])),
        max(case.most_pct for case in cases),
        float(np.sum([case.random_exact for case in cases])),
    )
    return choosers


@dataclass(frozen=True)
class Contest:
    """What race to halt loses more than the model's picks, kernel by kernel.

    ``verdict``: ``model`` or ``race_to_halt`` where the 95 % interval of the mean leaves out 0,
    else ``open``: these measurements can't tell the two apart.
    """

    mean_gain_pct: float
    low_pct: float
    high_pct: float
    verdict: str


def contest(cases: Sequence[CaseLoss]) -> Contest:
    """The model against race to halt; the interval by resampling kernels, with few by t."""
    gain = np.array([case.race_to_halt_pct - case.model_pct for case in cases])
    mean = float(gain.mean()) if len(gain) else 0.0
    if len(gain) < 2:
        return Contest(mean, -np.inf, np.inf, "open")
    half = stats.t.ppf(0.975, len(gain) - 1) * float(gain.std(ddof=1)) / np.sqrt(len(gain))
    low, high = mean - half, mean + half
    if len(gain) >= RESAMPLED_FROM:
        drawn = np.random.default_rng(SEED).integers(len(gain), size=(RESAMPLES, len(gain)))
        low, high = np.percentile(gain[drawn].mean(axis=1), [2.5, 97.5])
    verdict = "model" if low > 0 else "race_to_halt" if high < 0 else "open"
    return Contest(mean, float(low), float(high), verdict)
