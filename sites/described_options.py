"""The options of a meter or a clock control, as its module describes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any


def check_module_options(module: ModuleType, options: Mapping[str, Any]) -> None:
    """Check options by a module's ``ABOUT`` and, where it has one, its ``parse_options``.

    Raises:
        ValueError: an unknown option, or one with a wrong value.
    """
    module.ABOUT.check_options(options)
    parse = getattr(module, "parse_options", None)
    if parse is not None:
        parse(options)


def list_option(
    options: Mapping[str, Any],
    name: str,
    expected: str,
    fits: Callable[[Any], bool] = lambda element: True,
) -> list[Any] | None:
    """An option that is a list of elements that fit; None where it is not given.

    Raises:
        ValueError: it is something else or empty; the message says what is ``expected``.
    """
    value = options.get(name)
    if value is None:
        return None
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    if not is_list or not value or not all(map(fits, value)):
        raise ValueError(f"{name} is {expected}, not {value!r}")
    return list(value)


def seconds_option(options: Mapping[str, Any], name: str, default_s: float) -> float:
    """An option that is a time above 0.

    Raises:
        ValueError: it is not such a number.
    """
    value = options.get(name, default_s)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 3600:
        raise ValueError(f"{name} is a number of seconds above 0 and below 3600, not {value!r}")
    return float(value)
