"""What each scheme of cross-validation leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from analysis.choice.losses import SEED
from analysis.measurements.observations import FitError, Observations, setting_text
from dvfs.names import unknown_name
from dvfs.setting import Setting

SCHEMES = (
    "leave-one-setting-out",
    "leave-one-core-clock-out",
    "leave-one-memory-clock-out",
    "holdout",
    "kfold:K",
    "leave-one-kernel-out",
    "leave-one-node-out",
    "leave-one-site-out",
)
OTHER_SCHEMES = ("few:M", "leave-one-variant-out", "variants-kfold:K")
"""Schemes of :mod:`analysis.choice.few_crossval` and :mod:`analysis.choice.variant_crossval`."""


def folds(data: Observations, scheme: str, train: Sequence[Setting] | None) -> Iterator[np.ndarray]:
    """bool masks (rows,) of the rows that each fold of a scheme predicts.

    ``train``: for ``holdout``, the settings to fit on; without it a random half.

    Raises:
        FitError: an unknown scheme, or one that these measurements do not allow.
    """
    present = np.unique(data.setting)
    if scheme == "leave-one-setting-out":
        # All limits of a pair of clocks: a limit that is not reached leaves the same setting.
        at = [data.settings[s] for s in present]
        of_clocks = len({setting.clocks for setting in at}) > 1
        groups: dict[Setting, list[int]] = {}
        for s, setting in zip(present.tolist(), at, strict=True):
            without = replace(setting, power_limit_w=None)
            groups.setdefault(without if of_clocks else setting, []).append(s)
        if len(groups) < 2:
            raise FitError("leave-one-setting-out needs measurements at two settings or more")
        yield from (np.isin(data.setting, group) for group in groups.values())
    elif scheme in ("leave-one-core-clock-out", "leave-one-memory-clock-out"):
        domain = scheme.split("-")[2]
        mhz = data.mhz[data.setting, ("core", "memory").index(domain)]
        clocks = np.unique(mhz[np.isfinite(mhz)])
        if len(clocks) < 2:
            raise FitError(f"{scheme} needs measurements at two {domain} clocks or more")
        yield from (mhz == clock for clock in clocks)
    elif scheme == "holdout":
        yield _holdout(data, present, train)
    elif scheme == "leave-one-kernel-out":
        yield from (data.kernel == number for number in np.unique(data.kernel))
    elif scheme == "leave-one-node-out":
        nodes = np.array([] if data.node is None else sorted(set(data.node.tolist()) - {""}))
        if len(nodes) < 2:
            raise FitError("leave-one-node-out needs measurements of two named nodes or more")
        yield from (data.node == node for node in nodes)
    elif scheme.startswith("kfold:"):
        parts = _parts(data, scheme)
        fold = np.random.default_rng(SEED).permutation(len(data)) % parts
        yield from (fold == k for k in range(parts))
    elif scheme == "leave-one-site-out":
        raise FitError("leave-one-site-out needs two sites or more")
    else:
        near = "leave-one-setting-out" if scheme == "leave-one-out" else scheme
        text = unknown_name("scheme", near, (*SCHEMES, *OTHER_SCHEMES))
        raise FitError(text.replace(repr(near), repr(scheme), 1))


def _parts(data: Observations, scheme: str) -> int:
    """The number K of ``kfold:K``."""
    text = scheme.removeprefix("kfold:")
    parts = int(text) if text.isdigit() else 0
    if len(data) < 2:
        raise FitError(f"{scheme} needs two measurements or more; there is one")
    if not 2 <= parts <= len(data):
        raise FitError(
            f"found {scheme!r}; kfold:K divides the {len(data)} measurements of {data.site} into "
            f"K folds: give a whole number K from 2 to {len(data)}"
        )
    return parts


def _holdout(
    data: Observations, present: np.ndarray, train: Sequence[Setting] | None
) -> np.ndarray:
    if train is None:
        # At random: every second one in order would be one memory clock of two.
        half = -(-len(present) // 2)
        chosen = np.random.default_rng(SEED).permutation(present)[:half]
    else:
        stray = [setting for setting in train if setting not in data.settings]
        if stray:
            raise FitError(
                f"holdout trains on {setting_text(stray[0])}, which was not measured; "
                f"a measured setting is {data.settings[-1].option_text}"
            )
        chosen = np.array([data.settings.index(setting) for setting in train])
    test = ~np.isin(data.setting, chosen)
    if not test.any():
        raise FitError("holdout leaves no setting to predict; train on fewer")
    return test
