"""Machines as papers print them: peak rates, energies and constant power."""

from __future__ import annotations

from analysis.rooflines.roofline import Roofline

# Choi & Vuduc 2012, Table 3 (peak GFLOP/s, GB/s) and Table 4 (pJ per flop, pJ per byte, W); the
# last two machines are of Choi & Vuduc 2013 (slides).
PLATFORMS = {
    ("GTX 580", "sp"): (1581.06, 192.4, 99.7, 513.0, 122.0),
    ("GTX 580", "dp"): (197.63, 192.4, 212.0, 513.0, 122.0),
    ("GTX 680", "sp"): (3532.8, 192.2, 43.2, 437.5, 66.37),
    ("GTX 680", "dp"): (147.2, 192.2, 262.9, 437.5, 66.37),
    ("i7-950", "sp"): (106.56, 25.6, 371.0, 795.0, 122.0),
    ("i7-950", "dp"): (53.28, 25.6, 670.0, 795.0, 122.0),
    ("OMAP 4460", "sp"): (9.6, 3.2, 16.85, 814.7, 3.5),
    ("OMAP 4460", "dp"): (3.6, 3.2, 280.15, 814.7, 3.5),
    ("i3-3217U", "sp"): (57.7, 25.6, 14.72, 417.7, 16.52),
    ("i3-3217U", "dp"): (28.8, 25.6, 24.297, 417.7, 16.52),
}
FERMI = (515.0, 144.0, 25.0, 360.0, 0.0)
"""Choi & Vuduc 2012, Table 2, by Keckler et al.; no constant power is known."""


def from_peaks(
    gop_s: float,
    gb_s: float,
    eps_op_pj: float,
    eps_mem_pj: float,
    constant_w: float,
    operation: str = "sp",
    memory: str = "dram",
) -> Roofline:
    """The roofline of a platform as papers print it.

    ``gop_s``, ``gb_s``: peak rates, 1e9 operations and 1e9 bytes per second, whose inverses are
    the taus (section 4.2); ``eps_op_pj``, ``eps_mem_pj``: pJ per operation and per byte;
    ``constant_w``: pi_0, W.
    """
    return Roofline(
        operation=operation,
        memory=memory,
        tau_op_s=1e-9 / gop_s,
        tau_mem_s=1e-9 / gb_s,
        eps_op_j=eps_op_pj * 1e-12,
        eps_mem_j=eps_mem_pj * 1e-12,
        constant_w=constant_w,
    )
