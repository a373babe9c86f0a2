"""The STREAM triad, a = b + s c, in NumPy: two passes, in double precision."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from kernels.host.ranks import Team
from kernels.kernel import Counts, Kernel, Params, ResultError

SCALE = 3.0


class TriadParams(Params):
    """How long the arrays are."""

    n: int = Field(default=1 << 24, ge=1)
    """elements of each of the three arrays"""


def count_triad(params: TriadParams) -> Counts:
    """Two flops an element; 40 bytes: s c reads 8 and writes 8, b + a reads 16 and writes 8."""
    return {"dp": 2.0 * params.n, "dram": 40.0 * params.n}


class PreparedTriad:
    """The arrays of one rank."""

    def __init__(self, params: TriadParams, team: Team) -> None:
        random = np.random.default_rng(team.rank)
        self.params = params
        self.b, self.c = random.random(params.n), random.random(params.n)
        self.a = np.zeros(params.n)

    def run(self, iterations: int) -> None:
        for _ in range(iterations):
            np.multiply(self.c, SCALE, out=self.a)
            np.add(self.a, self.b, out=self.a)

    def counts(self) -> Counts:
        return count_triad(self.params)

    def check(self) -> None:
        if not np.array_equal(self.a, self.b + SCALE * self.c):
            raise ResultError("a is not b + s c")

    def close(self) -> None:
        del self.a, self.b, self.c


triad = Kernel(
    name="triad",
    summary="the STREAM triad in NumPy",
    counted="flops; bytes of main memory, without write allocation",
    classes=("dp", "dram"),
    params=TriadParams,
    counts=count_triad,
    prepare=PreparedTriad,
)
