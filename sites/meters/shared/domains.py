"""The domains that meters measure, and which domains contain which."""

from __future__ import annotations

CONTAINS: dict[str, tuple[str, ...]] = {
    "node": ("module", "psys", "package", "dram", "gpu", "board", "network"),
    "module": ("package", "dram", "gpu"),
    "psys": ("package", "dram"),
    "package": ("core", "uncore"),
    "gpu": ("gpu-memory",),
    "dram": (),
    "core": (),
    "uncore": (),
    "gpu-memory": (),
    "board": (),
    "network": (),
}
"""Domain -> the domains whose energy is part of its own.

``node``: everything that the node's power supply feeds. ``module``: a superchip with its memory
(GH200, or a Jetson's whole module). ``psys``: what Intel's platform counter covers. ``package``: a
CPU socket; ``dram``: its memory; ``gpu``: a whole accelerator with its memory. ``board``: the rest
of a board, such as regulators and I/O chips; ``network``: network adapters.
"""


def contains(outer: str, inner: str) -> bool:
    """Whether the energy of domain ``inner`` is part of that of ``outer``, at any depth."""
    return any(inner == part or contains(part, inner) for part in CONTAINS.get(outer, ()))
