"""Compile-time values of loops: to Numba, each value is a type.

A function that takes such a value is compiled once for each result of the value's ``name()``. The
value is used while instructions are emitted; the compiled loops do not test it.
"""

# Numba's extension points have untyped arguments.
# mypy: disable-error-code="no-untyped-def,attr-defined,misc,type-arg"

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import NativeValue, models, register_model, typeof_impl, unbox


class StaticType(types.Dummy):
    """The type of one value, its attribute ``value``."""

    def __init__(self, value: Any) -> None:
        self.value = value
        super().__init__(f"Static({type(value).__name__},{value.name()})")


register_model(StaticType)(models.OpaqueModel)


@unbox(StaticType)
def _unbox_static(kind, value, context):
    return NativeValue(context.context.get_dummy_value())


def static(kind: type) -> type:
    """Make the instances of a class with a method ``name()`` compile-time values."""
    typeof_impl.register(kind)(lambda value, context: StaticType(value))
    return kind
