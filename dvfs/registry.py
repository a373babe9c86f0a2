"""Registries: what a name in a campaign or site file stands for, here or in an installed package.

A package adds names by entry points, in its pyproject.toml:

    [project.entry-points."dvfs_campaign.meters"]
    wattmeter = "my_package.wattmeter"
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from dvfs.errors import UserError

PREFIX = "dvfs_campaign."


class DuplicateNameError(UserError):
    """Two packages give one name to different things."""


class LoadError(UserError):
    """What an installed package gives cannot be imported."""


class Registry(dict[str, str]):
    """Name -> where the thing is, ``module`` or ``module:attribute``. It is imported when it is
    asked for.

    Args:
        group: the group of entry points that adds names, after ``dvfs_campaign.``.
        ours: this project's names.

    ``packages``: name -> the installed package that gives it.
    """

    def __init__(self, group: str, ours: Mapping[str, str]) -> None:
        super().__init__(ours)
        self.packages: dict[str, str] = {}
        self._twice: dict[str, str] = {}
        for entry in _installed():
            if entry.group != PREFIX + group:
                continue
            package = "?" if entry.dist is None else entry.dist.name
            first = self.packages.get(entry.name, "dvfs-campaign")
            if entry.name not in self:
                self[entry.name] = entry.value
                self.packages[entry.name] = package
            elif (first, self[entry.name]) != (package, entry.value):
                self._twice[entry.name] = f"{first} and {package}"

    def load(self, name: str) -> Any:
        """The module or the object of a name.

        Raises:
            KeyError: there is no such name.
            DuplicateNameError: two packages give it.
            LoadError: the package that gives it fails as it is imported.
        """
        if name in self._twice:
            raise DuplicateNameError(
                f"two packages have a {name!r}: {self._twice[name]}", "uninstall one of them"
            )
        module, _, attribute = self[name].partition(":")
        try:
            found = import_module(module)
            return getattr(found, attribute) if attribute else found
        except Exception as error:
            if name not in self.packages:
                raise
            raise LoadError(
                f"{name!r} of the package {self.packages[name]} cannot be loaded: {error}",
                "correct that package, or uninstall it",
            ) from error


@cache
def _installed() -> tuple[EntryPoint, ...]:
    """The entry points of all our groups. One look at all that is installed takes 5 ms."""
    found = entry_points()
    ours = [found.select(group=group) for group in found.groups if group.startswith(PREFIX)]
    return tuple(entry for group in ours for entry in group)
