"""Read a TOML file into a pydantic model; say of every error its file, line, key and remedy."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

KeyPath = tuple[str | int, ...]
Model = TypeVar("Model", bound="FileModel")


class FileModel(BaseModel):
    """A table of a TOML file: unknown keys are errors, and values keep their types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class BadFile(Exception):
    """Something in an input file is wrong: where, what was found, what would do."""


class Source:
    """The text of a TOML file, and where in it each key stands."""

    def __init__(self, path: Path | str, text: str) -> None:
        self.path = str(path)
        self.text = text

    def line_of(self, key: KeyPath) -> int | None:
        """The line on which the statement that holds ``key`` begins, or None.

        The shortest run of leading lines that parses and holds the key ends with that
        statement; it begins after the longest shorter run that parses. So the parser itself
        says where statements end, whatever strings and arrays they span.
        """
        lines = self.text.splitlines()
        begins = 0
        for n in range(1, len(lines) + 1):
            try:
                table = tomllib.loads("\n".join(lines[:n]))
            except tomllib.TOMLDecodeError:
                continue
            if _holds(table, key):
                blank = (k for k in range(begins, n) if lines[k].strip()[:1] not in ("", "#"))
                return next(blank, begins) + 1
            begins = n
        return None

    def error(self, key: KeyPath, found: str, remedy: str) -> BadFile:
        """The error for what was ``found`` at ``key``, at the line of it or of its parent."""
        for length in range(len(key), -1, -1):
            line = self.line_of(key[:length]) if length else None
            if line is not None:
                break
        where = f"{self.path}:{line}" if line is not None else self.path
        return BadFile(f"{where}: {dotted(key)}: {found}; {remedy}")


def _holds(table: Any, key: KeyPath) -> bool:
    for part in key:
        if isinstance(part, int):
            if not isinstance(table, list) or part >= len(table):
                return False
        elif not isinstance(table, dict) or part not in table:
            return False
        table = table[part]
    return True


def dotted(key: KeyPath) -> str:
    """``("kernel", 1, "params")`` as a person would write it: ``kernel[1].params``."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the file"


def read_text(path: Path) -> str:
    """The text of an input file, or :class:`BadFile` with the reason."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadFile(f"{path}: no such file; check the path") from None
    except IsADirectoryError:
        raise BadFile(f"{path}: is a directory; name a file in it") from None
    except OSError as error:
        raise BadFile(f"{path}: can't be read ({error.strerror}); check its permissions") from None
    except UnicodeDecodeError:
        raise BadFile(f"{path}: is not UTF-8 text; save it as UTF-8") from None


def parse(path: Path | str, text: str, model: type[Model]) -> tuple[Model, Source]:
    """Check the text of a TOML file against a model.

    Raises:
        BadFile: not TOML, or not what the model asks for; the first error is reported whole,
            with the number of further ones.
    """
    source = Source(path, text)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadFile(f"{path}: is not TOML: {error}; mend that line") from None
    try:
        return model.model_validate(table), source
    except ValidationError as errors:
        raise _first_error(source, errors, model) from None


def _first_error(source: Source, errors: ValidationError, model: type[BaseModel]) -> BadFile:
    found = errors.errors()
    first = found[0]
    key = tuple(part for part in first["loc"] if not _is_tag(part, source))
    value = repr(first["input"])
    value = value if len(value) <= 60 else value[:57] + "..."
    match first["type"]:
        case "extra_forbidden":
            known = sorted(_fields_at(model, key[:-1]))
            close = difflib.get_close_matches(str(key[-1]), known, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            what, remedy = "unknown key", f"{hint}known here: {', '.join(known) or 'none'}"
        case "missing":
            what, remedy = "missing", "give it a value"
        case "value_error":
            text = str(first["ctx"]["error"])
            what, _, remedy = text.partition("; ")
            remedy = remedy or "mend it"
        case _:
            message = first["msg"].removeprefix("Input should be ")
            what, remedy = f"found {value}", f"must be {message[:1].lower()}{message[1:]}"
    error = source.error(key, what, remedy)
    if len(found) > 1:
        more = len(found) - 1
        return BadFile(f"{error} (and {more} further error{'s' if more > 1 else ''})")
    return error


def _is_tag(part: str | int, source: Source) -> bool:
    """Whether pydantic put this part in itself, to name a member of a union."""
    return isinstance(part, str) and ("[" in part or part in _UNION_TAGS)


_UNION_TAGS = {"str", "int", "float", "bool", "constrained-str"}


def _fields_at(model: type[BaseModel], key: Sequence[str | int]) -> set[str]:
    """The keys that are known in the table at ``key``, as far as the model tells."""
    kinds: list[Any] = [model]
    for part in key:
        below: list[Any] = []
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                for name, field in kind.model_fields.items():
                    if part in (name, field.alias):
                        below += _members(field.annotation)
            elif get_origin(kind) in (list, tuple):
                below += _members(get_args(kind)[0])
            elif get_origin(kind) in (dict, Mapping):
                below += _members(get_args(kind)[1])
        kinds = below
    names: set[str] = set()
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            names |= {field.alias or name for name, field in kind.model_fields.items()}
    return names


def _members(kind: Any) -> list[Any]:
    if get_origin(kind) in (Union, UnionType):
        return [member for each in get_args(kind) for member in _members(each)]
    return [kind]
