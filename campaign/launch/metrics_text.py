"""A snapshot as OpenMetrics text, which the textfile collector of Prometheus' node exporter reads.

That collector reads the older text format (prometheus/node_exporter, issue 1988), so that this
text is valid in both: gauges only, without timestamps, and ``# UNIT`` and ``# EOF`` are comments
to the older one. All files in a collector's folder share one name space: the label ``store`` keeps
the samples of two campaigns apart.
"""

from __future__ import annotations

from collections.abc import Iterator

from campaign.launch.snapshot import ENDED, SUBMITTED, PartitionSnapshot, Snapshot

PREFIX = "dvfs_campaign"

Sample = tuple[dict[str, str], float]
"""Labels and value."""


def metrics_text(snapshot: Snapshot) -> str:
    """The snapshot as OpenMetrics text."""
    own = {"campaign": snapshot.campaign, "store": snapshot.store}
    running = snapshot.phase not in (SUBMITTED, ENDED)
    spent_s = snapshot.written_unix_s - snapshot.began_unix_s
    parts = [(own | _labels(partition), partition) for partition in snapshot.partitions]
    families: list[tuple[str, str, str, list[Sample]]] = [
        ("running", "", "Whether the driver runs.", [(own, float(running))]),
        (
            "written_timestamp_seconds",
            "seconds",
            "When the driver wrote this, in Unix time; it is gone where this stops.",
            [(own, snapshot.written_unix_s)],
        ),
        ("run_seconds", "seconds", "How long this run has taken.", [(own, spent_s)]),
        (
            "points",
            "",
            "Planned points by state.",
            [
                (labels | {"state": state}, float(count))
                for labels, part in parts
                for state, count in (
                    ("done", part.done),
                    ("failed", part.failed),
                    ("left", part.left),
                )
            ],
        ),
        (
            "run_energy_joules",
            "joules",
            "Energy of the points that this run measured.",
            [(labels, part.energy_j) for labels, part in parts if part.energy_j is not None],
        ),
        (
            "spent_node_hours",
            "hours",
            "Node-hours that all runs have spent, as far as is known.",
            [(labels, part.node_hours) for labels, part in parts if part.node_hours is not None],
        ),
        (
            "max_node_hours",
            "hours",
            "Node-hours at which the run stops.",
            [(own, limit) for limit in [snapshot.max_node_hours] if limit is not None],
        ),
        (
            "workers",
            "",
            "Workers that are connected.",
            [(labels, float(part.now.workers)) for labels, part in parts if part.now],
        ),
        (
            "jobs",
            "",
            "Jobs in the queue of Slurm by state.",
            [
                (labels | {"state": state}, float(count))
                for labels, part in parts
                if part.slurm and part.now and not part.now.silent
                for state, count in (("running", part.now.running), ("pending", part.now.pending))
            ],
        ),
        (
            "pending_seconds",
            "seconds",
            "How long the longest pending job has been pending.",
            [
                (labels, part.now.pending_s)
                for labels, part in parts
                if part.slurm and part.now and part.now.pending
            ],
        ),
    ]
    lines = (line for family in families if family[3] for line in _family(*family))
    return "\n".join((*lines, "# EOF", ""))


def _labels(partition: PartitionSnapshot) -> dict[str, str]:
    return {
        "site": partition.site,
        "partition": partition.partition,
        "simulated": str(partition.simulated).lower(),
    }


def _family(name: str, unit: str, text: str, samples: list[Sample]) -> Iterator[str]:
    full = f"{PREFIX}_{name}"
    yield f"# TYPE {full} gauge"
    if unit:
        yield f"# UNIT {full} {unit}"
    yield f"# HELP {full} {text}"
    for labels, value in samples:
        inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{full}{{{inside}}} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
