"""The kernels by name: one line each. A kernel's module is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from kernels.kernel import Kernel

KERNELS = {
    "sp_fma": "kernels.microbench.fma:sp_fma",
    "dp_fma": "kernels.microbench.fma:dp_fma",
    "int_mad": "kernels.microbench.integer:int_mad",
    "load": "kernels.microbench.load:load",
    "chase": "kernels.microbench.chase:chase",
    "fmm": "kernels.fmm.kernel:fmm",
    "fmm_u": "kernels.fmm_u.kernel:fmm_u",
    "command": "kernels.command:command",
    "idle": "kernels.idle:idle",
}


def find_kernel(name: str) -> Kernel:
    """The kernel registered as ``name``; KeyError if there is none."""
    module, _, attribute = KERNELS[name].partition(":")
    kernel: Kernel = getattr(import_module(module), attribute)
    return kernel


@dataclass(frozen=True)
class ParameterDescription:
    """A parameter of a kernel.

    ``values``: the values allowed, in words; ``default``: None also where it is ``required``.
    """

    name: str
    description: str
    values: str
    required: bool
    default: Any


@dataclass(frozen=True)
class KernelDescription:
    """What help and documentation say about a kernel.

    ``counted``: what it counts, in words; ``classes``: each class of operations that it may count.
    """

    name: str
    summary: str
    counted: str
    classes: tuple[str, ...]
    parameters: tuple[ParameterDescription, ...]


def describe(name: str) -> KernelDescription:
    """The description of the kernel registered as ``name``; KeyError if there is none."""
    kernel = find_kernel(name)
    schemas = kernel.params.model_json_schema()["properties"]
    parameters = tuple(
        ParameterDescription(
            field_name,
            field.description or "",
            _allowed_values(schemas[field_name]),
            field.is_required(),
            None if field.is_required() else field.default,
        )
        for field_name, field in kernel.params.model_fields.items()
    )
    return KernelDescription(
        kernel.name, kernel.summary, kernel.counted, kernel.classes, parameters
    )


def describe_all() -> tuple[KernelDescription, ...]:
    """The descriptions of all kernels, in the order of the registry."""
    return tuple(describe(name) for name in KERNELS)


def _allowed_values(schema: Mapping[str, Any]) -> str:
    """The values that a JSON schema allows, in words."""
    if "anyOf" in schema:
        return " or ".join(
            _allowed_values(option) for option in schema["anyOf"] if option.get("type") != "null"
        )
    if "enum" in schema:
        return ", ".join(str(value) for value in schema["enum"])
    if "const" in schema:
        return str(schema["const"])
    if schema["type"] == "array":
        return f"list of {_allowed_values(schema['items'])}s"
    if schema["type"] == "object":
        (of_names,) = schema["patternProperties"].values()
        return f"table of class to {_allowed_values(of_names)}"
    limits = [f">= {schema['minimum']:,}"] if "minimum" in schema else []
    limits += [f"<= {schema['maximum']:,}"] if "maximum" in schema else []
    return " ".join([str(schema["type"]), " and ".join(limits)]).strip()
