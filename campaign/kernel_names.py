"""The names of a campaign's kernels for people."""

from __future__ import annotations

from analysis.measurements.kernels import kernel_instances, short_labels
from campaign.plan.plan import Plan


def kernel_names(plan: Plan) -> dict[tuple[str, str], str]:
    """(label, parameters as JSON) -> the kernel's name: its label, and what differs among the
    campaign's kernels of this label."""
    inputs = {(one.label, one.params) for part in plan.points.parts for one in part.inputs}
    instances = kernel_instances(inputs)
    short = short_labels(instances.values())
    return {pair: short[instance.label] for pair, instance in instances.items()}
