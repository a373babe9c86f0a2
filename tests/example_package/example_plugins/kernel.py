"""A kernel that waits."""

from __future__ import annotations

import time

from kernels.host.ranks import Team
from kernels.kernel import Counts, Kernel, Params

WAIT_S = 0.001


class WaitParams(Params):
    """How long it waits."""

    times: int = 1
    """how often it waits for a millisecond"""


def count(params: WaitParams) -> Counts:
    return {"waits": float(params.times)}


class Prepared:
    def __init__(self, params: WaitParams, team: Team) -> None:
        self.params = params

    def run(self, iterations: int) -> None:
        time.sleep(WAIT_S * self.params.times * iterations)

    def counts(self) -> Counts:
        return count(self.params)

    def check(self) -> None:
        """There is no result."""

    def close(self) -> None:
        """There is nothing to release."""


waits = Kernel(
    name="waits",
    summary="waits for milliseconds",
    counted="waits",
    classes=("waits",),
    params=WaitParams,
    counts=count,
    prepare=Prepared,
)
