"""The terms that a kernel states for a variant's time, which is a sum of priced terms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernels.registry import KERNELS, find_kernel


def stated_metrics(kernel: str) -> tuple[str, ...]:
    """The metrics that a kernel of the registry names as timed; empty for any other kernel."""
    return find_kernel(kernel).timed if kernel in KERNELS else ()


SHARE = " / threads"
"""Ends the name of one thread's share of a term."""


def stated_terms(
    kernel: str, params: Sequence[str], *, shares: bool = False
) -> dict[str, np.ndarray]:
    """Term -> its number in one iteration of each variant (n,): the counts, the metrics that the
    kernel names as timed, and where variants differ in their threads the share of one thread.
    Empty where the kernel names no metric, or is not in the registry.

    ``params``: each variant's parameters, as JSON. ``shares``: also where they do not differ.
    """
    if not stated_metrics(kernel):
        return {}
    registered = find_kernel(kernel)
    assert registered.metrics is not None  # noqa: S101
    rows, threads = [], []
    for text in params:
        validated = registered.params.model_validate_json(text)
        metrics = registered.metrics(validated)
        rows.append(
            dict(registered.counts(validated) or {})
            | {name: metrics[name] for name in registered.timed}
        )
        threads.append(float(getattr(validated, "threads", 1)))
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: np.array([row.get(name, 0.0) for row in rows]) for name in names}
    if shares or len(set(threads)) > 1:
        of_one = {f"{name}{SHARE}": column / threads for name, column in columns.items()}
        columns |= of_one
    return columns
