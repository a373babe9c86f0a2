"""Study files, which declare chips and a workload of stencils (``campaign codesign``)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from dvfs.input_files import BadValueError, FileModel, Source, read_file
from kernels.space import SpaceError, read_space, variants
from kernels.stencils.stencils import STENCILS
from sites.site_file import Name, NotNegative, Positive

Whole = Annotated[int, Field(ge=1, le=1 << 24)]


def _two_or_three(value: list[int | float]) -> list[int | float]:
    if not 2 <= len(value) <= 3:
        raise BadValueError(
            f"found {value}", "must be [points, steps] or [points, steps, how often]"
        )
    return value


Problem = Annotated[list[int | float], AfterValidator(_two_or_three)]
DESIGN = ("processors", "lanes", "on_chip_kb")
TILE = ("tile_t", "tile_1", "tile_2", "tile_3")


class AreaConstants(FileModel):
    """The area of a GPU's parts; see :class:`analysis.costs.gpu_area.AreaModel`."""

    vector_unit_mm2: NotNegative
    """of a vector unit's logic"""
    register_mm2: NotNegative
    """of its registers, whatever their size"""
    register_kb_mm2: NotNegative
    """of a kB of registers"""
    on_chip_mm2: NotNegative
    """of a processor's on-chip memory, whatever its size"""
    on_chip_kb_mm2: NotNegative
    """of a kB of on-chip memory"""
    l1_mm2: NotNegative = 0.0
    """of the first-level cache of two processors, whatever its size"""
    l1_kb_mm2: NotNegative = 0.0
    """of a kB of it"""
    l2_mm2: NotNegative = 0.0
    """of a processor's part of the second-level cache, whatever its size"""
    l2_kb_mm2: NotNegative = 0.0
    """of a kB of it"""
    overhead_mm2: NotNegative
    """of all else, for each processor"""
    register_kb: NotNegative = 2.0
    """registers of a vector unit, in kB"""
    l1_kb: NotNegative = 48.0
    """first-level cache of two processors, in kB"""
    l2_kb: NotNegative = 128.0
    """second-level cache of a processor, in kB"""


class Area(FileModel):
    """How large a design is, and how large it may be."""

    model: Literal["maxwell-28nm", "maxwell-28nm-rounded"] = "maxwell-28nm"
    """the name of an area model"""
    constants: AreaConstants | None = None
    """constants in place of the model's"""
    caches: bool = True
    """whether designs have caches"""
    range_mm2: Annotated[list[Positive], Field(min_length=2, max_length=2)]
    """least and largest area of a design"""

    @model_validator(mode="after")
    def _ordered(self) -> Area:
        if self.range_mm2[0] > self.range_mm2[1]:
            raise ValueError("range_mm2: the first must be the smaller one")
        return self


class StudyMachine(FileModel):
    """What all designs have in common, and the space of designs."""

    seconds_per_word: Positive
    """seconds of a word of 4 bytes to or from memory, of the whole device"""
    barrier_s: NotNegative
    """seconds of a barrier of a block"""
    launch_s: NotNegative
    """seconds of a launch"""
    block_kb: Positive = 48.0
    """kB of on-chip memory that a block can have"""
    blocks: Annotated[int, Field(ge=1, le=64)] = 32
    """the most blocks on a processor at a time"""
    space: dict[str, Any]
    """processors, lanes (vector units of each) and on_chip_kb"""


class Work(FileModel):
    """A stencil of the workload."""

    stencil: Literal["j1d", "j2d", "h2d", "l2d", "g2d", "j3d", "h3d", "l3d"]
    """the stencil"""
    iteration_s: Positive
    """seconds of a point on a vector unit"""
    flops: NotNegative
    """flops of a point"""
    weight: NotNegative = 1.0
    """how much the stencil counts"""
    sizes: Annotated[list[Problem], Field(min_length=1, max_length=1000)]
    """problems: [points along each axis, steps], or with how often as a third number"""
    iteration_j: NotNegative = 0.0
    """J of a point"""

    @model_validator(mode="after")
    def _whole_sizes(self) -> Work:
        for size in self.sizes:
            if not all(isinstance(length, int) and 1 <= length <= 1 << 24 for length in size[:2]):
                raise ValueError(f"sizes: found {size}; points and steps are whole numbers from 1")
            if len(size) == 3 and not size[2] > 0:
                raise ValueError(f"sizes: found {size}; how often must be above 0")
        return self

    @property
    def axes(self) -> int:
        """Axes of space."""
        return STENCILS[self.stencil].dimensions


class Existing(FileModel):
    """A chip that exists, shown beside the designs."""

    name: Name
    """its name"""
    processors: Whole
    """its processors (SMs)"""
    lanes: Whole
    """vector units of each"""
    on_chip_kb: Positive
    """on-chip memory of each, in kB"""


class EnergyConstants(FileModel):
    """What a design's energy is a sum of, beside iteration_j of each stencil."""

    constant_w: NotNegative = 0.0
    """constant power of a chip, in W"""
    constant_w_per_mm2: NotNegative = 0.0
    """constant power of each mm2 of it, in W"""
    word_j: NotNegative = 0.0
    """J of a word to or from memory"""


class Study(FileModel):
    """A study file, checked. Read it with :func:`read_study`."""

    name: Name
    """the study's name"""
    form: Literal["corrected", "printed"] = "corrected"
    """the form of the equations of time"""
    objective: Literal["time", "energy", "edp"] = "time"
    """what the best design makes least; energy and edp need [energy]"""
    area: Area
    """how large a design is, and may be"""
    machine: StudyMachine
    """what all designs share, and the space of designs"""
    tiles: dict[str, Any]
    """tile_t (even), tile_1, tile_2 and, for three axes, tile_3"""
    workload: Annotated[list[Work], Field(min_length=1)]
    """the stencils"""
    existing: list[Existing] = Field(default_factory=list)
    """chips that exist"""
    energy: EnergyConstants | None = None
    """what energies are computed from"""

    @model_validator(mode="after")
    def _can_be_weighed(self) -> Study:
        if not any(work.weight for work in self.workload):
            raise ValueError("workload: all weights are 0; give one of the stencils a weight")
        names = [work.stencil for work in self.workload]
        if len(set(names)) < len(names):
            raise ValueError("workload: a stencil stands twice; list its sizes together")
        if self.objective != "time" and self.energy is None:
            raise ValueError(f"objective {self.objective!r} needs the table [energy]")
        return self


def read_study(path: Path) -> tuple[Study, Source]:
    """Read and check a study file.

    Raises:
        FileError: the file cannot be read, or is not a study.
    """
    return read_file(path, Study)


def space_columns(
    table: dict[str, Any], key: tuple[str, ...], needed: tuple[str, ...], source: Source
) -> dict[str, np.ndarray]:
    """Parameter -> its values (n,) at the points of a space, which ``table`` declares.

    Raises:
        FileError: the table is not a space, lacks one of ``needed``, or its conditions refuse all.
    """
    try:
        space = read_space(table, (), ())
        missing = [name for name in needed if name not in space.parameters]
        unknown = [name for name in space.parameters if name not in (*DESIGN, *TILE)]
        if missing or unknown:
            problem = f"has no {missing[0]}" if missing else f"unknown parameter {unknown[0]!r}"
            raise source.error(key, problem, f"declare {', '.join(needed)}")
        return variants(space, {}, {}).values()
    except SpaceError as error:
        position = [part for part in (error.key, error.condition) if part not in ("", None)]
        raise source.error((*key, *position), error.what, error.remedy) from None
