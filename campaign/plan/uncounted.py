"""Commands whose operations nobody counts, and what follows from that."""

from __future__ import annotations

import json

from campaign.plan.plan import Plan


def uncounted_commands(plan: Plan) -> list[str]:
    """The names of the commands that have neither ``counts`` nor ``reports_counts``, sorted."""
    instances = {
        (entry.label, entry.params)
        for part in plan.points.parts
        for entry in part.inputs
        if entry.kernel == "command"
    }
    return sorted(
        {
            label
            for label, params in instances
            if not (values := json.loads(params)).get("counts") and not values.get("reports_counts")
        }
    )


def uncounted_text(labels: list[str]) -> str:
    """What follows for these commands, in sentences."""
    return (
        f"{', '.join(labels)}: no operation counts. The fit gives each such command coefficients "
        f"of its own, so that it is predicted at settings, but does not help to find the cost of "
        f"an operation, and has no place in rooflines. To change that: counts = {{ dp = ... }}, "
        f"reports_counts = true, or hardware counters of the site"
    )
