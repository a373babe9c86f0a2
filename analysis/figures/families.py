"""Families of kernels: names that belong together, and the order in which a person reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from analysis.measurements.kernels import KernelInstance

OTHERS = "others"


def kernel_families(kernels: Sequence[KernelInstance]) -> dict[str, str]:
    """Label -> the kernel's family: its name without parameters.

    Where most kernels have a name of their own, the family is what stands before the name's first
    underscore or space. Families of a single kernel go together when there are several.
    """
    first = {kernel.label: kernel.name for kernel in kernels}
    if len(set(first.values())) > max(len(kernels) // 2, 8):
        first = {
            kernel.label: re.split(r"[ _]", kernel.name, maxsplit=1)[0] or kernel.name
            for kernel in kernels
        }
    sizes = {name: list(first.values()).count(name) for name in set(first.values())}
    alone = [name for name, size in sizes.items() if size == 1]
    if len(alone) > 3:
        return {k: OTHERS if name in alone else name for k, name in first.items()}
    return first


def family_order(names: Iterable[str]) -> list[str]:
    """Families by name, the others last."""
    return sorted(names, key=lambda name: (name == OTHERS, natural(name)))


def natural(text: str) -> list[tuple[int, float, str]]:
    """A key that sorts ``x=8`` before ``x=16``."""
    return [
        (0, float(part), "") if part.isdecimal() else (1, 0.0, part)
        for part in re.split(r"(\d+)", text)
    ]
