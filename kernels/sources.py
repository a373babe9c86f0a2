"""The identity of a kernel: a hash of the code that it runs.

The hash covers the syntax trees of all definitions that the kernel's definition reaches by name, in
any module, and the CUDA sources that these name, without comments, docstrings and positions in
files. So an edit of other definitions in the same files does not change it. In doubt, code counts:
a name counts anywhere in a definition; of a module that is used as a value, or imported under a
name that only a run knows, everything counts; and so do the statements of an imported module that
bind no name, and the functions that a decorator registers.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from kernels.registry import KERNELS

ROOT = Path(__file__).parents[1]
PACKAGES = ("kernels", "dvfs")
"""The packages whose code counts; for a kernel of an installed package, that package counts
too."""
HASH_CHARS = 12
KEEPS_NO_FUNCTION = {
    *("cache", "cached_property", "contextmanager", "dataclass", "field_validator", "guvectorize"),
    *("intrinsic", "jit", "lru_cache", "model_validator", "njit", "override", "runtime_checkable"),
    *("total_ordering", "vectorize", "wraps"),
}
"""Decorators that do not register the function or class: it runs only where its name is used."""
EVERYTHING, EFFECTS = "*", ""
"""Stand-ins for a definition's name: all of a module; its statements that bind no name."""
C_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)

Node = tuple[str, str]
"""(module, name that it defines)."""


@dataclass(frozen=True)
class Module:
    """A module's statements. ``defined``: name -> the statements that bind it; ``effects``: the
    statements with other effects. ``imported``: name -> the dotted name that it refers to."""

    name: str
    is_package: bool
    defined: dict[str, list[ast.stmt]] = field(default_factory=dict)
    effects: list[ast.stmt] = field(default_factory=list)
    imported: dict[str, str] = field(default_factory=dict)


@functools.cache
def kernel_identity(name: str) -> str:
    """The identity of a registered kernel: :data:`HASH_CHARS` hex digits of a SHA-256.

    Raises:
        KeyError: there is no such kernel.
    """
    digest = hashlib.sha256()
    for module, reached in sorted(reached_by(name)):
        for text in _texts(module, reached):
            digest.update(f"{module}:{reached}\0{text}\0".encode())
    return digest.hexdigest()[:HASH_CHARS]


@functools.cache
def reached_by(name: str) -> frozenset[Node]:
    """The definitions that a registered kernel reaches, as (module, name); :data:`EFFECTS` stands
    for a module's statements that bind no name.

    Raises:
        KeyError: there is no such kernel.
    """
    module, _, attribute = KERNELS[name].partition(":")
    found: set[Node] = set()
    ahead: list[Node] = [*_resolved(module, attribute)]
    while ahead:
        node = ahead.pop()
        if node not in found:
            found.add(node)
            ahead += _next(node)
    return frozenset(node for node in found if node[1] != EVERYTHING)


def _next(node: Node) -> Iterator[Node]:
    """The definitions that a definition reaches directly."""
    name, defined = node
    module = _module(name)
    if module is None:
        return
    parts = name.split(".")
    for count in range(1, len(parts) + 1):  # the packages that contain it run first
        yield ".".join(parts[:count]), EFFECTS
    if defined == EVERYTHING:
        yield from ((name, other) for other in module.defined)
    if defined == EFFECTS:
        for target in module.imported.values():
            yield from ((found, EFFECTS) for found in _modules_of(target))
    for _, target in _references(name, defined):
        yield from _targets(target)


def _texts(name: str, defined: str) -> Iterator[str]:
    """The definition's text without comments and docstrings, and what its names refer to."""
    module = _module(name)
    if module is None:
        return
    for statement in _statements(module, defined):
        yield _text(statement)
    yield from (f"{used} = {target}" for used, target in sorted(_references(name, defined)))
    for source in sorted(_cuda_sources(module, defined)):
        yield _without_comments(source.read_text(encoding="utf-8"))


def _statements(module: Module, defined: str) -> list[ast.stmt]:
    return module.effects if defined == EFFECTS else module.defined.get(defined, [])


@functools.cache
def _references(name: str, defined: str) -> frozenset[tuple[str, str]]:
    """(name, the dotted name that it refers to) of everything that a definition may use."""
    module = _module(name)
    assert module is not None  # noqa: S101
    found: set[tuple[str, str]] = set()
    for statement in _statements(module, defined):
        imported = dict(module.imported)
        for node in ast.walk(statement):
            if isinstance(node, ast.Import | ast.ImportFrom):
                local = _imported(module, node)
                imported |= local
                found |= set(local.items())  # for its effects, even if no name of it is used
        in_chains: set[int] = set()
        for node in ast.walk(statement):  # the outermost attribute of a chain comes first
            if isinstance(node, ast.Attribute) and id(node) not in in_chains:
                chain = [node.attr]
                inner = node.value
                while isinstance(inner, ast.Attribute):
                    in_chains.add(id(inner))
                    chain.insert(0, inner.attr)
                    inner = inner.value
                if isinstance(inner, ast.Name) and inner.id in imported:
                    in_chains.add(id(inner))
                    dotted = ".".join([imported[inner.id], *chain])
                    found.add((".".join([inner.id, *chain]), dotted))
            elif isinstance(node, ast.Name) and id(node) not in in_chains:
                if node.id in imported:
                    found.add((node.id, imported[node.id]))
                elif node.id in module.defined and node.id != defined:
                    found.add((node.id, f"{name}.{node.id}"))
            elif isinstance(node, ast.Call) and _is_dynamic_import(node):
                package = name if module.is_package else name.rpartition(".")[0]
                found |= {(inside, inside) for inside in _modules_in(package)}
    return frozenset(found)


def _is_dynamic_import(call: ast.Call) -> bool:
    called = call.func.attr if isinstance(call.func, ast.Attribute) else call.func
    return (called if isinstance(called, str) else getattr(called, "id", "")) in (
        "import_module",
        "__import__",
    )


def _targets(dotted: str) -> Iterator[Node]:
    """The definitions that a dotted name refers to; none where its package does not count."""
    modules = _modules_of(dotted)
    if not modules:
        return
    rest = dotted.removeprefix(modules[-1]).removeprefix(".")
    yield from ((name, EFFECTS) for name in modules)
    yield from _resolved(modules[-1], rest.partition(".")[0] or EVERYTHING)


def _resolved(name: str, attribute: str) -> Iterator[Node]:
    """The definition of a module's attribute, which the module may import."""
    module = _module(name)
    if module is None or attribute in module.defined or attribute == EVERYTHING:
        yield name, attribute
    elif attribute in module.imported:
        yield from _targets(module.imported[attribute])
    elif "__getattr__" in module.defined:
        yield name, "__getattr__"
    else:
        yield name, EVERYTHING


def _modules_of(dotted: str) -> list[str]:
    """The modules that a dotted name begins with, the outermost first."""
    parts = dotted.split(".")
    names = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
    return [name for name in names if _module(name) is not None]


def _modules_in(package: str) -> list[str]:
    root = _root(package.partition(".")[0]) or ROOT
    folder = root.joinpath(*package.split("."))
    paths = (path.relative_to(root).with_suffix("") for path in folder.rglob("*.py"))
    return [".".join(path.parts) for path in paths if path.name != "__init__"]


@functools.cache
def _root(package: str) -> Path | None:
    """The folder of a package or a module whose code counts; None for any other."""
    if package in PACKAGES:
        return ROOT
    installed = {re.split("[.:]", KERNELS[name])[0] for name in KERNELS.packages}
    spec = find_spec(package) if package in installed else None
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parents[1 if spec.submodule_search_locations else 0]


@functools.cache
def _module(name: str) -> Module | None:
    """A module whose code counts; None for any other, or where it has no file."""
    root = _root(name.partition(".")[0])
    if root is None:
        return None
    path = root.joinpath(*name.split("."))
    files = [path / "__init__.py", path.with_suffix(".py")]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        return None
    module = Module(name, file == files[0])
    for statement in ast.parse(file.read_bytes()).body:
        _add(module, statement)
    return module


def _add(module: Module, statement: ast.stmt) -> None:
    """Add a statement to a module's definitions, effects or imports."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        module.imported.update(_imported(module, statement))
        if any(alias.name == "*" for alias in statement.names):
            module.effects.append(statement)
    elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        module.defined.setdefault(statement.name, []).append(statement)
        if not all(_decorator(node) in KEEPS_NO_FUNCTION for node in statement.decorator_list):
            module.effects.append(statement)
    elif isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
        for inner in statement.body:
            _add(module, inner)
    elif not _is_text(statement):
        names = {
            node.id
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        for name in names:
            module.defined.setdefault(name, []).append(statement)
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or not names:
            module.effects.append(statement)


def _decorator(node: ast.expr) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _imported(module: Module, statement: ast.Import | ast.ImportFrom) -> dict[str, str]:
    """Name that an import binds -> the dotted name that it refers to."""
    if isinstance(statement, ast.Import):
        first = {name.name.partition(".")[0] for name in statement.names if not name.asname}
        return {name: name for name in first} | {
            alias.asname or alias.name: alias.name for alias in statement.names
        }
    package = module.name.split(".")[: None if module.is_package else -1]
    base = package[: len(package) - statement.level + 1] if statement.level else []
    source = ".".join([*base, *filter(None, [statement.module])])
    return {alias.asname or alias.name: f"{source}.{alias.name}" for alias in statement.names}


def _is_text(statement: ast.stmt) -> bool:
    """Whether a statement is a docstring, of any kind of definition."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _text(node: object) -> str:
    """A syntax tree as text that does not depend on the version of Python: without positions,
    docstrings and empty fields."""
    if isinstance(node, list):
        kept = [item for item in node if not (isinstance(item, ast.stmt) and _is_text(item))]
        return f"[{','.join(map(_text, kept))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = (
        f"{name}={_text(value)}"
        for name, value in ast.iter_fields(node)
        if value is not None and value != [] and name not in ("kind", "type_comment")
    )
    return f"{type(node).__name__}({','.join(fields)})"


def _cuda_sources(module: Module, defined: str) -> set[Path]:
    """The CUDA sources that a definition names, in the folder of its module."""
    parts = module.name.split(".")
    root = _root(parts[0]) or ROOT
    folder = root.joinpath(*parts[: None if module.is_package else -1])
    constants = (
        node.value
        for statement in _statements(module, defined)
        for node in ast.walk(statement)
        if isinstance(node, ast.Constant) and str(node.value).endswith(".cu")
    )
    return {path for name in constants if (path := folder / str(name)).is_file()}


def _without_comments(text: str) -> str:
    """C++ without comments, blank lines, and space at the ends of lines."""
    code = C_COMMENT.sub(lambda match: match[1] or " ", text)
    return "\n".join(line.strip() for line in code.splitlines() if line.strip())
