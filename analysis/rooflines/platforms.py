"""Machines from papers, for comparison: peak rates, energies and constant power.

Their numbers are in ``platforms.toml``. As in Choi & Vuduc 2012, section 4.2, an operation's time
is the inverse of the manufacturer's peak rate.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from analysis.rooflines.at_setting import line_as_dict
from analysis.rooflines.greenup import Trade
from analysis.rooflines.roofline import Roofline

MEMORY = "dram"


@dataclass(frozen=True)
class Operation:
    """One class of operations of a platform.

    ``gop_s``: stated peak, 1e9 operations/s; ``eps_pj``: pJ per operation; ``attained_gop_s`` and
    ``attained_gb_s``: the best of the papers' microbenchmarks in this class, NaN where not printed.
    """

    gop_s: float
    eps_pj: float
    attained_gop_s: float = math.nan
    attained_gb_s: float = math.nan


@dataclass(frozen=True, kw_only=True)
class Issue:
    """The instruction issue of a GPU's ``processors`` at ``ghz``: ``units`` scalar instructions a
    cycle by ``schedulers``, only one of which issues roots, to ``root_units``."""

    processors: int
    ghz: float
    units: int
    root_units: int
    schedulers: int

    def peak_flop_s(self, multiply_adds: int, others: int, roots: int) -> float:
        """The refined peak of a mix of instructions (Choi & Vuduc 2012, section 5.4), flop/s: while
        one scheduler issues roots, the others issue instructions other than multiply-adds."""
        root_cycles = roots * self.units / self.root_units
        spare = self.units * (self.schedulers - 1) / self.schedulers
        flops = self.units * (2 * multiply_adds + others) + (self.root_units + spare) * root_cycles
        per_cycle = flops / (multiply_adds + others + root_cycles)
        return per_cycle * self.processors * self.ghz * 1e9


@dataclass(frozen=True, kw_only=True)
class Platform:
    """A machine with the numbers that a paper prints.

    ``gb_s``: stated peak of memory, GB/s; ``eps_mem_pj``: pJ per byte; ``constant_w``: pi_0, W;
    ``tdp_w``: stated thermal design power, W, NaN where not printed; ``issue``: or None;
    ``caches_pj``: level -> pJ per byte.
    """

    name: str
    model: str
    source: str
    operations: Mapping[str, Operation]
    gb_s: float
    eps_mem_pj: float
    constant_w: float
    tdp_w: float = math.nan
    caches_pj: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    issue: Issue | None = None

    def line(self, operation: str) -> Roofline:
        """The rooflines of a class of operations, on bytes of memory."""
        peak = self.operations[operation]
        return Roofline(
            operation=operation,
            memory=MEMORY,
            tau_op_s=1e-9 / peak.gop_s,
            tau_mem_s=1e-9 / self.gb_s,
            eps_op_j=1e-12 * peak.eps_pj,
            eps_mem_j=1e-12 * self.eps_mem_pj,
            constant_w=self.constant_w,
        )


def _read(name: str, row: dict[str, Any]) -> Platform:
    operations = {op: Operation(**numbers) for op, numbers in row["operations"].items()}
    issue = {"issue": Issue(**row["issue"])} if "issue" in row else {}
    return Platform(name=name, **row | {"operations": operations} | issue)


_TABLE = (files("analysis.rooflines") / "platforms.toml").read_text(encoding="utf-8")
PLATFORMS = {name: _read(name, row) for name, row in tomllib.loads(_TABLE).items()}


def platform_rooflines(
    platform: Platform, cap_w: float | None = None, trades: Sequence[Trade] = ()
) -> dict[str, Any]:
    """Every roofline of a platform: ``campaign roofline --platform NAME --json``.

    Raises:
        CapError: a cap that is not above the constant power.
    """
    pairs = []
    for name, peak in platform.operations.items():
        line = platform.line(name)
        attained = {
            "attained_gop_s": peak.attained_gop_s,
            "attained_op_pct": 100.0 * peak.attained_gop_s / peak.gop_s,
            "attained_gb_s": peak.attained_gb_s,
            "attained_mem_pct": 100.0 * peak.attained_gb_s / platform.gb_s,
        }
        pairs.append(line_as_dict(line, cap_w, trades) | attained)
    return {
        "platform": platform.name,
        "model": platform.model,
        "source": platform.source,
        "note": platform.note,
        "tdp_w": platform.tdp_w,
        "simulated": False,
        "pairs": pairs,
        "caches_pj": dict(platform.caches_pj),
    }


def platform_summaries() -> list[dict[str, Any]]:
    """One row a built-in platform: ``campaign roofline --platform --json``."""
    return [
        {
            "platform": platform.name,
            "model": platform.model,
            "operations": list(platform.operations),
            "source": platform.source,
        }
        for platform in PLATFORMS.values()
    ]
