"""The area of a GPU from its components (Prajapati 2019, appendix C: C.4 to C.7).

Sizes of memories are in kB of 1,024 bytes, areas in mm2. C.6 as printed counts the intercept of the
second-level cache once for the chip. This module counts it once for each processor, as the printed
area of that cache in the GTX 980, 98.25 mm2, does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True, kw_only=True)
class AreaModel:
    """The constants of C.6, in mm2: of a vector unit's logic and registers, and of a processor's
    on-chip memory, share of both caches and overhead. Each memory has a part that is independent of
    its size (``_mm2``) and one for each kB (``_kb_mm2``). ``register_kb`` is per vector unit,
    ``l1_kb`` and the first-level cache's constants are per pair of processors, ``l2_kb`` is per
    processor."""

    vector_unit_mm2: float
    register_mm2: float
    register_kb_mm2: float
    on_chip_mm2: float
    on_chip_kb_mm2: float
    l1_mm2: float
    l1_kb_mm2: float
    l2_mm2: float
    l2_kb_mm2: float
    overhead_mm2: float
    register_kb: float = 2.0
    l1_kb: float = 48.0
    l2_kb: float = 128.0


MAXWELL_28NM = AreaModel(
    vector_unit_mm2=0.04282,
    register_mm2=0.001947,
    register_kb_mm2=0.004305,
    on_chip_mm2=0.09281,
    on_chip_kb_mm2=0.01565,
    l1_mm2=0.08204,
    l1_kb_mm2=0.1604,
    l2_mm2=0.7685,
    l2_kb_mm2=0.04197,
    overhead_mm2=6.4156,
)
"""Section C.2.2: NVIDIA's Maxwell in TSMC's 28 nm."""
MAXWELL_28NM_ROUNDED = replace(
    MAXWELL_28NM,
    vector_unit_mm2=0.0447,
    register_mm2=0.0,
    register_kb_mm2=0.0043,
    on_chip_mm2=0.0,
    on_chip_kb_mm2=0.015,
    l1_kb_mm2=0.16,
    l2_kb_mm2=0.041,
    overhead_mm2=7.317 - 0.08204 / 2 - 0.7685,
)
"""C.7, with truncated coefficients: its 7.317 includes the parts of all memories that do not depend
on their sizes."""
AREA_MODELS = {"maxwell-28nm": MAXWELL_28NM, "maxwell-28nm-rounded": MAXWELL_28NM_ROUNDED}


def area_parts_mm2(
    processors: ArrayLike,
    lanes: ArrayLike,
    on_chip_kb: ArrayLike,
    caches: bool = True,
    model: AreaModel = MAXWELL_28NM,
) -> dict[str, np.ndarray]:
    """The parts of :func:`gpu_area_mm2`, arrays of one shape: ``vector units`` (without their
    registers), ``registers``, ``on-chip memory``, ``caches`` and ``overhead``."""
    n, wide, kb = np.broadcast_arrays(
        *(np.asarray(values, float) for values in (processors, lanes, on_chip_kb))
    )
    registers = model.register_kb_mm2 * model.register_kb + model.register_mm2
    l1_pair = model.l1_kb_mm2 * model.l1_kb + model.l1_mm2
    cache_mm2 = l1_pair / 2 + model.l2_kb_mm2 * model.l2_kb + model.l2_mm2 if caches else 0.0
    return {
        "vector units": n * wide * model.vector_unit_mm2,
        "registers": n * wide * registers,
        "on-chip memory": n * (model.on_chip_kb_mm2 * kb + model.on_chip_mm2),
        "caches": n * cache_mm2,
        "overhead": n * model.overhead_mm2,
    }


def gpu_area_mm2(
    processors: ArrayLike,
    lanes: ArrayLike,
    on_chip_kb: ArrayLike,
    caches: bool = True,
    model: AreaModel = MAXWELL_28NM,
) -> np.ndarray:
    """The area of a chip with ``processors`` of ``lanes`` vector units and ``on_chip_kb`` of
    memory each (C.6), with or without caches."""
    parts = area_parts_mm2(processors, lanes, on_chip_kb, caches, model)
    return np.asarray(sum(parts.values()))
