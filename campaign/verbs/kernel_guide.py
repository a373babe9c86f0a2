"""Guides to kernels: what a person must know to put one into a campaign file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dvfs.dataset import class_unit
from dvfs.errors import ArgumentError, unknown_name
from kernels.classes import CLASSES
from kernels.kernel import Kernel
from kernels.parameters import ParameterDescription, parameters_of
from kernels.registry import KERNELS, find_kernel

EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "sp_fma": {"level": "dram", "ops_per_word": [1, 8, 64]},
    "gpu_fma": {"number": ["sp", "dp"], "level": "dram", "ops_per_word": [1, 8, 64]},
    "gpu_dgemm": {"n": 8192, "blk_n": [64, 96], "blk_k": [16, 32]},
    "gpu_gemm": {"number": ["dp", "bf16"], "n": [4096, 8192]},
    "gpu_load": {"level": ["shared", "l1", "l2", "dram"]},
    "gpu_chase": {"level": ["l2", "dram"], "chains": [1, 512]},
    "gpu_mma": {"number": ["half", "bf16"], "data": ["random", "zeros"]},
    "gpu_sfu": {"ops_per_value": [0, 1, 4, 16]},
    "dp_fma": {"level": "dram", "ops_per_word": [1, 8, 64]},
    "int_mad": {"level": "l2", "ops_per_word": [1, 8, 64]},
    "fmm": {"n": [100_000, 1_000_000], "digits": 4},
    "fmm_u": {"tile": [1, 2, 4]},
    "gpu_fmm": {"n": [262_144, 2_097_152], "digits": 4},
    "gpu_fmm_u": {"precision": "double", "root": ["newton1", "cubic"], "tile": [1, 2, 4]},
    "dgemm": {"n": 1920, "mr": [8, 16, 24], "kc": [192, 256, 384]},
    "chain": {
        "sizes": [500_000, 64, 64, 64],
        "order": "(A1A2)A3",
        "fused": ["", "1-2"],
    },
    "stencil": {
        "stencil": "j2d",
        "size_1": 4096,
        "size_2": 4096,
        "steps": 32,
        "tiling": "hexagonal",
        "tile_t": [8, 16],
        "tile_1": [8, 16],
        "tile_2": 1024,
    },
    "gpu_stencil": {
        "stencil": "j2d",
        "size_1": 8192,
        "size_2": 8192,
        "steps": 256,
        "tile_t": [4, 8, 16],
        "tile_1": [8, 16],
        "tile_2": 96,
    },
    "cuda_stencil": {
        "stencil": "j2d",
        "size_1": 4096,
        "size_2": 4096,
        "steps": 1024,
        "tiling": "hexagonal",
        "tile_t": [8, 16],
        "tile_1": [8, 16],
        "tile_2": 64,
    },
    "cuda_dgemm": {"n": 4096, "blk_n": [64, 80, 96], "blk_k": [16, 32]},
    "command": {"argv": ["/bin/sleep", "1"], "counts": {"dp": 1e9}},
    "idle": {"sleep_s": 1.0},
}
"""Kernel -> parameters of its example. Other kernels get their required parameters."""
SIMULATED_AT = {"cuda_dgemm": "tesla-k20x", "cuda_stencil": "gtx-980"}
"""Kernel without a program -> a built-in site that simulates it."""
LONGEST_LINE = 96
"""The most characters of an example's line: 100 columns without the indentation on the screen."""
LEVEL = "level"
"""The parameter of kernels whose arrays are sized by the node's caches."""


@dataclass(frozen=True, kw_only=True)
class KernelGuide:
    """The guide to a kernel. ``classes``: class -> (meaning, unit) of its count in an iteration.
    ``needs``: what a node must have, in sentences. ``example``: TOML, a part of a campaign file.
    ``package``: the installed package of the kernel, None for this project's kernels.
    """

    name: str
    package: str | None
    summary: str
    counted: str
    classes: Mapping[str, tuple[str, str]]
    parameters: tuple[ParameterDescription, ...]
    needs: tuple[str, ...]
    example: str

    def as_dict(self) -> dict[str, Any]:
        """``campaign kernels NAME --json``."""
        fields = asdict(self)
        fields["classes"] = {
            name: {"meaning": meaning, "unit": unit}
            for name, (meaning, unit) in self.classes.items()
        }
        return fields


def kernel_guides() -> list[KernelGuide]:
    """The guides to all kernels, in the order of the registry."""
    return [_guide(find_kernel(name)) for name in KERNELS]


def kernel_guide(name: str) -> KernelGuide:
    """The guide to one kernel.

    Raises:
        ArgumentError: there is no kernel of this name.
    """
    if name not in KERNELS:
        raise ArgumentError(unknown_name("kernel", name, KERNELS))
    return _guide(find_kernel(name))


def _guide(kernel: Kernel) -> KernelGuide:
    parameters = parameters_of(kernel)
    return KernelGuide(
        name=kernel.name,
        package=KERNELS.packages.get(kernel.name),
        summary=kernel.summary,
        counted=kernel.counted,
        classes={name: (CLASSES.get(name, ""), class_unit(name)) for name in kernel.classes},
        parameters=parameters,
        needs=tuple(_needs(kernel, parameters)),
        example=_example(kernel, parameters),
    )


def _needs(kernel: Kernel, parameters: tuple[ParameterDescription, ...]) -> list[str]:
    if kernel.prepare is None:
        return [
            f"a simulated machine with its classes, such as {SIMULATED_AT[kernel.name]}: it has no "
            f"program"
        ]
    needs = ["a meter for energies; without one, times are measured alone", *kernel.needs]
    if not kernel.needs and any(parameter.name == LEVEL for parameter in parameters):
        needs.append("the sizes of the node's caches, which are read in /sys/devices/system/cpu")
    if "numba" in kernel.imports:
        needs.append("Numba, and a writable directory for machine code (NUMBA_CACHE_DIR)")
    if "counts" in kernel.params.model_fields:
        needs.append(
            "counts, or reports_counts = true, for the cost of an operation and for rooflines; "
            "without them the fit gives it coefficients of its own"
        )
        needs.append(
            "with reports_counts: after each run, a JSON object of class to number, such as "
            '{"dp": 4.2e12, "dram": 1.9e12}, in the file that CAMPAIGN_COUNTS_FILE names'
        )
    return needs


def _example(kernel: Kernel, parameters: tuple[ParameterDescription, ...]) -> str:
    """A ``[[kernels]]`` table of a campaign file."""
    schemas = kernel.params.model_json_schema()["properties"]
    required = {p.name: _some_value(schemas[p.name]) for p in parameters if p.required}
    values = {**required, **EXAMPLES.get(kernel.name, {})}
    lines = ["[[kernels]]", f"kernel = {_toml(kernel.name)}"]
    if kernel.name == "command":
        lines.append('label = "my-solver"')
    inline = f"params = {_toml(values)}"
    if len(inline) > LONGEST_LINE:  # TOML allows no line break within an inline table
        return "\n".join([*lines, "[kernels.params]", *_assignments(values)])
    return "\n".join([*lines, *([inline] if values else [])])


def _assignments(values: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_toml(value)}" for key, value in values.items()]


def _some_value(schema: Mapping[str, Any]) -> Any:
    if "enum" in schema:
        return list(schema["enum"])
    return {"string": "text", "boolean": True}.get(schema.get("type", ""), schema.get("minimum", 1))


def _toml(value: Any) -> str:
    """A value of plain types as TOML."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(_assignments(value)) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)
