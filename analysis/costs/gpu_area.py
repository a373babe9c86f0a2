"""The area of a GPU from what it is built of (Prajapati 2019, appendix C: C.4 to C.7).

Sizes of memories are in kB of 1,024 bytes, areas in mm2. C.6 as printed counts the intercept of the
second-level cache once for the chip; the printed area of the GTX 980's, 98.25 mm2, has it once for
each processor, and so has this module.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True, kw_only=True)
class AreaModel:
    """The constants of C.6, in mm2: of a vector unit's logic and registers, of a processor's
    on-chip memory, its share of both caches and its overhead. Each memory has a part that does not
    depend on its size (``_mm2``) and one for each kB (``_kb_mm2``). ``register_kb`` are of a vector
    unit, ``l1_kb`` and the first-level cache's constants of a pair of processors, ``l2_kb`` of a
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
"""C.7, whose coefficients are cut off: its 7.317 holds the parts of all memories that do not depend
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
        *(np.asarray(given, float) for given in (processors, lanes, on_chip_kb))
    )
    registers = model.register_kb_mm2 * model.register_kb + model.register_mm2
    pair = model.l1_kb_mm2 * model.l1_kb + model.l1_mm2
    own_caches = pair / 2 + model.l2_kb_mm2 * model.l2_kb + model.l2_mm2 if caches else 0.0
    return {
        "vector units": n * wide * model.vector_unit_mm2,
        "registers": n * wide * registers,
        "on-chip memory": n * (model.on_chip_kb_mm2 * kb + model.on_chip_mm2),
        "caches": n * own_caches,
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
