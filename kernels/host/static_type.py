"""Values that are known when a loop is compiled: each is a type to Numba.

A function that takes such a value is compiled once for each :meth:`name`; what the value says is
decided while instructions are emitted, so that the loops hold no trace of it.
"""

# Numba's extension points take what Numba hands them.
# mypy: disable-error-code="no-untyped-def,attr-defined,misc,type-arg"

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import NativeValue, models, register_model, typeof_impl, unbox


class StaticType(types.Dummy):
    """The type of a value; ``value`` is the value itself."""

    def __init__(self, value: Any) -> None:
        self.value = value
        super().__init__(f"Static({type(value).__name__},{value.name()})")


register_model(StaticType)(models.OpaqueModel)


@unbox(StaticType)
def _unbox_static(kind, value, context):
    return NativeValue(context.context.get_dummy_value())


def static(kind: type) -> type:
    """Let the values of a class, which has ``name()``, be known when loops are compiled."""
    typeof_impl.register(kind)(lambda value, context: StaticType(value))
    return kind
