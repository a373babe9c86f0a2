"""A kernel that does nothing for a given time: for idle power, and for the cost of a launch."""

from __future__ import annotations

import time
from typing import Annotated

from pydantic import Field

from kernels.host.ranks import Team
from kernels.kernel import Counts, Kernel, Params


class IdleParams(Params):
    """The time that the kernel sleeps."""

    sleep_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """seconds to sleep in one iteration"""


class _Idle:
    def __init__(self, params: IdleParams) -> None:
        self.params = params

    def run(self, iterations: int) -> None:
        if self.params.sleep_s:
            time.sleep(self.params.sleep_s * iterations)

    def counts(self) -> Counts:
        return {}

    def check(self) -> None:
        """There is no result."""

    def close(self) -> None:
        """There is nothing to release."""


def _prepare(params: IdleParams, team: Team) -> _Idle:
    return _Idle(params)


idle = Kernel(
    name="idle",
    summary="does nothing for a given time",
    counted="nothing",
    classes=(),
    params=IdleParams,
    counts=lambda params: {},
    prepare=_prepare,
)
