"""What a kernel states that a variant's time is a sum of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.costs.linear_cost import at_clocks
from kernels.registry import KERNELS, find_kernel


def stated_metrics(kernel: str) -> tuple[str, ...]:
    """The metrics that a kernel of the registry names as timed; none of any other kernel."""
    return find_kernel(kernel).timed if kernel in KERNELS else ()


def stated_terms(kernel: str, params: Sequence[str]) -> dict[str, np.ndarray]:
    """Term -> its number in one iteration of each variant (n,): the counts, those metrics that the
    kernel names as timed, and where variants differ in their threads the share of one of them.
    Empty where the kernel names no metric, or is not one of the registry's.

    ``params``: each variant's parameters, as JSON.
    """
    if not stated_metrics(kernel):
        return {}
    found = find_kernel(kernel)
    assert found.metrics is not None  # noqa: S101
    rows, threads = [], []
    for text in params:
        checked = found.params.model_validate_json(text)
        metrics = found.metrics(checked)
        rows.append(
            dict(found.counts(checked) or {}) | {name: metrics[name] for name in found.timed}
        )
        threads.append(float(getattr(checked, "threads", 1)))
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: np.array([row.get(name, 0.0) for row in rows]) for name in names}
    return at_clocks(columns, {"threads": np.array(threads)})
