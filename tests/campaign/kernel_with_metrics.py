"""A kernel whose run knows more about its variant than its parameters say."""

from __future__ import annotations

import time
from collections.abc import Mapping

from kernels.host.ranks import Team
from kernels.kernel import Counts, Kernel, Params


class WaitParams(Params):
    """None."""


class Waiting:
    """Waits a millisecond."""

    def __init__(self, params: WaitParams, team: Team) -> None:
        self.waited = 0

    def run(self, iterations: int) -> None:
        for _ in range(iterations):
            time.sleep(1e-3)
        self.waited += iterations

    def counts(self) -> Counts:
        return {}

    def metrics(self) -> Mapping[str, float]:
        return {"registers": 40, "blocks": 3}

    def check(self) -> None:
        assert self.waited

    def close(self) -> None:
        """Nothing is kept."""


waiting = Kernel(
    name="waiting",
    summary="waits",
    counted="nothing",
    classes=(),
    params=WaitParams,
    counts=lambda params: {},
    metrics=lambda params: {"shared_bytes": 512, "blocks": 1},
    prepare=Waiting,
)
