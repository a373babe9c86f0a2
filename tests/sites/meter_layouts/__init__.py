"""The cases of the contract tests of meters: every meter on trees of files that change.

Each module here has ``LAYOUTS``, a list of :class:`tests.sites.meter_layouts.layout.Layout`; a new
meter is one new module.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from tests.sites.meter_layouts.layout import Layout


def all_layouts() -> list[Layout]:
    """Every layout of every module."""
    names = [module.name for module in pkgutil.iter_modules(__path__) if module.name != "layout"]
    return [one for name in names for one in import_module(f"{__name__}.{name}").LAYOUTS]
