"""The options of a meter or a clock control, as its module describes them."""

from __future__ import annotations

from collections.abc import Mapping
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
