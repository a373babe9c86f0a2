"""The imports between this project's files, drawn from their syntax: also those inside a function
and those for types only."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

Graph = dict[str, set[str]]


def is_in(name: str, part: str) -> bool:
    """Whether the dotted name ``name`` is ``part`` or inside it."""
    return name == part or name.startswith(part + ".")


def files_by_module(root: Path, packages: Iterable[str]) -> dict[str, Path]:
    """Module name -> its file, for every Python file of ``packages`` under ``root``."""
    files = {}
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            parts = list(path.relative_to(root).with_suffix("").parts)
            if parts[-1] == "__init__":
                parts.pop()
            files[".".join(parts)] = path
    return files


def imported_names(module: str, path: Path) -> set[str]:
    """Every dotted name that a file imports. ``from a import b`` gives ``a.b``, since only the
    file system says whether ``b`` is a module. A constant argument of ``import_module`` counts."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    names = set()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        match node:
            case ast.Import(names=aliases):
                names.update(alias.name for alias in aliases)
            case ast.ImportFrom(module=source, names=aliases, level=level):
                start = package[: len(package) - level + 1] if level else []
                base = ".".join([*start, *filter(None, [source])])
                names.update(f"{base}.{alias.name}" for alias in aliases)
            case ast.Call(
                func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                names.add(name)
    return names


def import_graph(files: Mapping[str, Path]) -> tuple[Graph, Graph]:
    """Module -> the modules of ``files`` that it imports, and module -> the top-level packages
    from elsewhere that it imports. Who imports a module imports the packages that it is in, too,
    since Python runs their ``__init__.py`` first."""
    inside: Graph = {module: set() for module in files}
    outside: Graph = {module: set() for module in files}
    for module, path in files.items():
        for name in imported_names(module, path):
            parts = name.split(".")
            prefixes = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
            ours = sorted(prefixes & files.keys())
            inside[module].update(package for package in ours if not is_in(module, package))
            if ours:
                inside[module].add(ours[-1])
            else:
                outside[module].add(parts[0])
    return inside, outside


def circles(graph: Graph) -> list[list[str]]:
    """The groups of modules that import one another (strongly connected components, Tarjan 1972),
    and single modules that import themselves."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = low[module] = len(order)
        stack.append(module)
        for target in sorted(graph[module]):
            if target not in order:
                visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], order[target])
        if low[module] == order[module]:
            first = stack.index(module)
            group = sorted(stack[first:])
            del stack[first:]
            if len(group) > 1 or module in graph[module]:
                groups.append(group)

    for module in sorted(graph):
        if module not in order:
            visit(module)
    return sorted(groups)
