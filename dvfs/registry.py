"""Registries: what a name in a campaign or site file stands for, here or in an installed package.

A package adds names by entry points, in its pyproject.toml:

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
    """Two packages give one name to different things."""


class LoadError(UserError):
    """What an installed package gives cannot be imported."""


class Registry(MutableMapping[str, str]):
    """Name -> where the thing is, ``module`` or ``module:attribute``. It is imported when it is
    asked for, and the installed packages are looked at when a name is.

    Args:
        group: the group of entry points that adds names, after ``dvfs_campaign.``.
        ours: this project's names.

    ``checked``: name -> where, of names that an earlier process looked up; :meth:`load` takes them.
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
        """Name -> the installed package that gives it."""
        return self._found[1]

    @property
    def _names(self) -> dict[str, str]:
        return self._found[0]

    @cached_property
    def _found(self) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        """All names, those of packages, and those that two packages give."""
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
        """The module or the object of a name.

        Raises:
            KeyError: there is no such name.
            DuplicateNameError: two packages give it.
            LoadError: the package that gives it fails as it is imported.
        """
        if name not in self.checked and name in self._found[2]:
            raise DuplicateNameError(
                f"two packages have a {name!r}: {self._found[2][name]}", "uninstall one of them"
            )
        module, _, attribute = (self.checked.get(name) or self[name]).partition(":")
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
    """The entry points of all our groups. One look at all that is installed takes 5 ms, and the
    import as much."""
    from importlib.metadata import entry_points  # noqa: PLC0415

    found = entry_points()
    ours = [found.select(group=group) for group in found.groups if group.startswith(PREFIX)]
    return tuple(entry for group in ours for entry in group)
