"""The parameters of a kernel and their descriptions, for help and documentation."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pydantic import BaseModel

from kernels.kernel import Kernel


def field_texts(model: type[BaseModel]) -> dict[str, str]:
    """Field -> the text below it, on one line, including the fields of the model's base classes.

    Read from the source when the documentation is written, so that importing a model costs nothing.
    """
    texts: dict[str, str] = {}
    for kind in model.__mro__:
        if not issubclass(kind, BaseModel) or kind is BaseModel:
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
        of_class = [node.body for node in tree.body if isinstance(node, ast.ClassDef)]
        for field, text in pairwise(of_class[0]):
            match field, text:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(said))),
                ):
                    texts.setdefault(name, " ".join(said.split()))
    return texts


@dataclass(frozen=True)
class ParameterDescription:
    """A parameter of a kernel.

    ``values``: the allowed values, in words; ``default``: None too where it is ``required``.
    """

    name: str
    description: str
    values: str
    required: bool
    default: Any


def parameters_of(kernel: Kernel) -> tuple[ParameterDescription, ...]:
    """A kernel's parameters, in the order of their declaration."""
    schemas = kernel.params.model_json_schema()["properties"]
    texts = field_texts(kernel.params)
    return tuple(
        ParameterDescription(
            name,
            texts[name],
            _allowed_values(schemas[name]),
            field.is_required(),
            None if field.is_required() else field.default,
        )
        for name, field in kernel.params.model_fields.items()
    )


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
        kind, *bounds = _allowed_values(schema["items"]).split(" ", 1)
        return " ".join([f"list of {kind}s", *bounds])
    if schema["type"] == "object":
        (of_names,) = schema["patternProperties"].values()
        return f"table of class to {_allowed_values(of_names)}"
    limits = [f">= {schema['minimum']:,}"] if "minimum" in schema else []
    limits += [f"<= {schema['maximum']:,}"] if "maximum" in schema else []
    return " ".join([str(schema["type"]), " and ".join(limits)]).strip()
