"""Registries: the module or object behind a name in a campaign or site file.

An installed package adds names by entry points in its pyproject.toml:

    [project.entry-points."dvfs_campaign.meters"]
    wattmeter = "my_package.wattmeter"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dvfs.errors import UserError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PREFIX = "dvfs_campaign."


class DuplicateNameError(UserError):
    """Two packages register one name."""


class LoadError(UserError):
    """An entry point of an installed package cannot be imported."""


class Registry(MutableMapping[str, str]):
    """Name -> location, ``module`` or ``module:attribute``. Nothing is imported before
    :meth:`load`, and installed packages are searched at the first use.

    Args:
        group: the group of entry points that adds names, after ``dvfs_campaign.``.
        ours: this project's names and their locations.

    ``checked``: name -> location, found by an earlier process; :meth:`load` uses it first.
    """

    def __init__(self, group: str, ours: Mapping[str, str]) -> None:
        self.checked: dict[str, str] = {}
        self._group = PREFIX + group
        self._ours = ours

    def __getitem__(self, name: str) -> str:
        return self._names[name]

    def __setitem__(self, name: str, where: str) -> None:
        self._names[name] = where

    def __delitem__(self, name: str) -> None:
        del self._names[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def packages(self) -> dict[str, str]:
        """Name -> the installed package that registers it."""
        return self._found[1]

    @property
    def _names(self) -> dict[str, str]:
        return self._found[0]

    @cached_property
    def _found(self) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        """(name -> location, name -> package, name registered twice -> both packages)."""
        names = dict(self._ours)
        packages: dict[str, str] = {}
        twice: dict[str, str] = {}
        for entry in _installed():
            if entry.group != self._group:
                continue
            package = "?" if entry.dist is None else entry.dist.name
            first = packages.get(entry.name, "dvfs-campaign")
            if entry.name not in names:
                names[entry.name] = entry.value
                packages[entry.name] = package
            elif (first, names[entry.name]) != (package, entry.value):
                twice[entry.name] = f"{first} and {package}"
        return names, packages, twice

    def load(self, name: str) -> Any:
        """Import the module or object of a name.

        Raises:
            KeyError: there is no such name.
            DuplicateNameError: two packages register it.
            LoadError: the import of an installed package's object fails.
        """
        if name not in self.checked and name in self._found[2]:
            raise DuplicateNameError(
                f"two packages have a {name!r}: {self._found[2][name]}", "uninstall one of them"
            )
        module, _, attribute = (self.checked.get(name) or self[name]).partition(":")
        try:
            imported = import_module(module)
            return getattr(imported, attribute) if attribute else imported
        except Exception as error:
            if name not in self.packages:
                raise
            raise LoadError(
                f"{name!r} of the package {self.packages[name]} cannot be loaded: {error}",
                "correct that package, or uninstall it",
            ) from error


@cache
def _installed() -> tuple[EntryPoint, ...]:
    """The entry points of all this project's groups. A search of the installed packages takes 5 ms,
    and the import of ``importlib.metadata`` as long."""
    from importlib.metadata import entry_points  # noqa: PLC0415

    installed = entry_points()
    groups = [name for name in installed.groups if name.startswith(PREFIX)]
    return tuple(entry for name in groups for entry in installed.select(group=name))
