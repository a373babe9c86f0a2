"""The planned points that are still to be measured, and the outcome of a run."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from campaign.launch.interrupts import INTERRUPTED
from campaign.plan.plan import Plan
from campaign.plan.point import Point
from campaign.store.measurement import will_be_tried_again
from campaign.store.states import NEVER, State
from dvfs.dataset import CLOCK_UNPROVEN, COMPLETE, OK


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of a run: the numbers of planned points by state.

    ``ok`` and ``clock_unproven``: the measured ones, by status. ``given_up``: "site/partition" ->
    why this run measured no more of its points. ``max_node_hours``: the limit of the run, None
    without one.
    """

    planned: int
    ok: int
    clock_unproven: int
    failed: int
    left: int
    interrupted: bool
    given_up: Mapping[str, str] = field(default_factory=dict)
    max_node_hours: float | None = None

    @property
    def limit_reached(self) -> bool:
        """Whether ``max_node_hours`` has ended the run."""
        return limit_text(self.max_node_hours) in self.given_up.values()

    @property
    def measured(self) -> int:
        """The number of measured points."""
        return self.ok + self.clock_unproven

    @property
    def complete(self) -> bool:
        """Whether every planned point is measured."""
        return self.measured == self.planned

    @property
    def exit_code(self) -> int:
        """The exit code of the run."""
        if self.interrupted:
            return INTERRUPTED
        return 0 if self.complete else 1

    def sentence(self, store: str, resume: str) -> str:
        """The outcome in one line. ``resume``: the command that continues the campaign."""
        end = "complete" if self.complete else "not complete"
        if self.interrupted:
            end = "interrupted; run it again to continue"
        elif self.limit_reached:
            end += (
                f"; {limit_text(self.max_node_hours)}; to go on, allow more: {resume} "
                f"--max-node-hours HOURS"
            )
        elif self.given_up:
            end += f"; given up: {', '.join(self.given_up)}; fix the cause and run it again"
        elif self.failed:
            end += (
                f"; see: campaign status {shlex.quote(store)}; then fix the cause and run: "
                f"{resume}{limit_option(self.max_node_hours)} --retry-failed"
            )
        elif self.left:
            end += "; run it again to continue"
        unproven = f" (ok {self.ok}, clock unproven {self.clock_unproven})"
        return (
            f"{self.measured} of {self.planned} points measured"
            f"{unproven * bool(self.clock_unproven)}, {self.failed} failed, {self.left} left: {end}"
        )


def limit_option(max_node_hours: float | None) -> str:
    """The option of ``run`` that sets a limit, after a blank; empty without a limit."""
    return "" if max_node_hours is None else f" --max-node-hours {max_node_hours:.12g}"


def limit_text(max_node_hours: float | None) -> str:
    """The sentence that a limit is reached."""
    return f"{limit_option(max_node_hours).strip()} is reached"


def missing_points(
    plan: Plan, state: Mapping[str, State], retry_failed: bool
) -> list[tuple[Point, int]]:
    """(point, number of the attempt) of all planned points that are still to be measured."""
    missing = []
    for point in plan.points:
        status, attempt = state.get(point.id, NEVER)
        if status in COMPLETE:
            continue
        if retry_failed or will_be_tried_again(status, attempt, plan.campaign.retries.max):
            missing.append((point, attempt))
    return missing


def outcome(
    plan: Plan,
    state: Mapping[str, State],
    interrupted: bool,
    given_up: Mapping[str, str] | None = None,
    max_node_hours: float | None = None,
) -> Outcome:
    """Count the planned points by their state in the store."""
    count = Counter(state.get(p.id, NEVER)[0] for p in plan.points)
    planned, measured = len(plan.points), sum(count[status] for status in COMPLETE)
    n_left = len(missing_points(plan, state, False))
    return Outcome(
        planned=planned,
        ok=count[OK],
        clock_unproven=count[CLOCK_UNPROVEN],
        failed=planned - measured - n_left,
        left=n_left,
        interrupted=interrupted and measured < planned,
        given_up=dict(given_up or {}),
        max_node_hours=max_node_hours,
    )
