"""Machines as papers print them, for comparison: peak rates, energies and constant power.

Choi & Vuduc 2012, tables 2 to 5 and section 4.2, and Choi & Vuduc 2013 (slides). As in section 4.2,
an operation's time is the inverse of the peak rate that the manufacturer states.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analysis.rooflines.at_setting import line_as_dict
from analysis.rooflines.roofline import Roofline

MEMORY = "dram"
PAPER = "Choi & Vuduc 2012, tables 3 to 5"
SLIDES = "Choi & Vuduc 2013 (slides)"


class UnknownPlatform(ValueError):
    """A name that no platform has; the text lists the names."""


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
class Platform:
    """A machine as a paper prints it.

    ``gb_s``: stated peak of memory, GB/s; ``eps_mem_pj``: pJ per byte; ``constant_w``: pi_0, W;
    ``tdp_w``: stated thermal design power, W, NaN where not printed;
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

    def line(self, operation: str) -> Roofline:
        """The rooflines of a class of operations, on bytes of memory."""
        of = self.operations[operation]
        return Roofline(
            operation=operation,
            memory=MEMORY,
            tau_op_s=1e-9 / of.gop_s,
            tau_mem_s=1e-9 / self.gb_s,
            eps_op_j=1e-12 * of.eps_pj,
            eps_mem_j=1e-12 * self.eps_mem_pj,
            constant_w=self.constant_w,
        )


PLATFORMS = {
    platform.name: platform
    for platform in (
        Platform(
            name="gtx-580",
            model="NVIDIA GeForce GTX 580 (Fermi)",
            source=PAPER,
            operations={
                "sp": Operation(1581.06, 99.7, 1400.0, 168.0),
                "dp": Operation(197.63, 212.0, 196.0, 170.0),
            },
            gb_s=192.4,
            eps_mem_pj=513.0,
            constant_w=122.0,
            tdp_w=244.0,
            caches_pj={"l1": 149.0, "l2": 257.0},
        ),
        Platform(
            name="gtx-680",
            model="NVIDIA GeForce GTX 680 (Kepler)",
            source=PAPER,
            operations={
                "sp": Operation(3532.8, 43.2, 3000.0, 147.0),
                "dp": Operation(147.2, 262.9, 148.0, 147.0),
            },
            gb_s=192.2,
            eps_mem_pj=437.5,
            constant_w=66.37,
            tdp_w=190.0,
            caches_pj={"shared": 51.0, "l2": 195.0},
        ),
        Platform(
            name="i7-950",
            model="Intel Core i7-950 (Nehalem)",
            source=PAPER,
            operations={
                "sp": Operation(106.56, 371.0, 99.4, 18.7),
                "dp": Operation(53.28, 670.0, 49.7, 18.9),
            },
            gb_s=25.6,
            eps_mem_pj=795.0,
            constant_w=122.0,
            tdp_w=130.0,
        ),
        Platform(
            name="omap-4460",
            model="TI OMAP 4460 (Cortex A9)",
            source=SLIDES,
            operations={"sp": Operation(9.6, 16.85), "dp": Operation(3.6, 280.15)},
            gb_s=3.2,
            eps_mem_pj=814.7,
            constant_w=3.5,
            tdp_w=0.6,
        ),
        Platform(
            name="i3-3217u",
            model="Intel Core i3-3217U (Ivy Bridge)",
            source=SLIDES,
            operations={"sp": Operation(57.7, 14.72), "dp": Operation(28.8, 24.297)},
            gb_s=25.6,
            eps_mem_pj=417.7,
            constant_w=16.52,
            tdp_w=17.0,
        ),
        Platform(
            name="fermi-keckler",
            model="NVIDIA Fermi, energies by Keckler et al.",
            source="Choi & Vuduc 2012, table 2",
            note="no constant power is known; the paper takes it as 0",
            operations={"dp": Operation(515.0, 25.0)},
            gb_s=144.0,
            eps_mem_pj=360.0,
            constant_w=0.0,
        ),
    )
}


def find_platform(name: str) -> Platform:
    """The platform of a name.

    Raises:
        UnknownPlatform: there is none.
    """
    if name.lower() not in PLATFORMS:
        raise UnknownPlatform(f"found {name!r}; must be one of {', '.join(PLATFORMS)}")
    return PLATFORMS[name.lower()]


def platform_rooflines(platform: Platform, cap_w: float | None = None) -> dict[str, Any]:
    """Every roofline of a platform: ``campaign roofline --platform NAME --json``.

    Raises:
        CapTooLow: a cap that is not above the constant power.
    """
    pairs = []
    for name, of in platform.operations.items():
        line = platform.line(name)
        attained = {
            "attained_gop_s": of.attained_gop_s,
            "attained_op_pct": 100.0 * of.attained_gop_s / of.gop_s,
            "attained_gb_s": of.attained_gb_s,
            "attained_mem_pct": 100.0 * of.attained_gb_s / platform.gb_s,
        }
        pairs.append(line_as_dict(line, cap_w) | attained)
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


def platform_summaries(platforms: Sequence[Platform]) -> list[dict[str, Any]]:
    """One row a platform: ``campaign roofline --platform --json``."""
    return [
        {
            "platform": platform.name,
            "model": platform.model,
            "operations": list(platform.operations),
            "source": platform.source,
        }
        for platform in platforms
    ]
