"""The domains that meters measure, and which contain which."""

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

``node``: all that the node's supply gives. ``module``: a superchip with its memory (GH200, or a
Jetson's whole module). ``psys``: what Intel's platform counter covers. ``package``: a CPU socket;
``dram``: its memory; ``gpu``: a whole accelerator with its memory. ``board``: what else is on a
board, such as its regulators and its input and output chips; ``network``: its adapters.
"""


def contains(outer: str, inner: str) -> bool:
    """Whether the energy of domain ``inner`` is part of that of ``outer``, at any depth."""
    return any(inner == each or contains(each, inner) for each in CONTAINS.get(outer, ()))
