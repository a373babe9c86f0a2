"""Read a TOML file into a pydantic model; say of every error its file, line, key and remedy."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

KeyPath = tuple[str | int, ...]
Model = TypeVar("Model", bound="FileModel")
MAX_DEPTH = 64
"""Tables and lists in one another, and parts of a key: nothing that we read has more than ten."""
MAX_MESSAGE_CHARS = 3000
_TOKEN = re.compile(
    r'''"""(?:[^\\]|\\.)*?"{3,5}|'{3}.*?'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|#[^\n]*|[][{}\n]''',
    re.DOTALL,
)
"""What tells where a statement of a right TOML file ends: texts, comments, brackets and lines."""
_LONG_KEY = re.compile(
    rf"""(?<![\w.-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{MAX_DEPTH}}}"""
)


class FileModel(BaseModel):
    """A table of a TOML file: unknown keys are errors, and values keep their types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class BadFile(Exception):
    """Something in an input file is wrong: where, what was found, what would do.

    What the file holds is in the message, but neither without end nor as orders to a terminal.
    """

    def __init__(self, message: str) -> None:
        text = "".join(
            c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode()
            for c in message[: 2 * MAX_MESSAGE_CHARS] + message[2 * MAX_MESSAGE_CHARS :][-1000:]
        )
        if len(text) > MAX_MESSAGE_CHARS:
            text = f"{text[: MAX_MESSAGE_CHARS - 1000]} ... {text[-900:]}"
        super().__init__(text)


class Source:
    """The text of a TOML file, and where in it each key stands."""

    def __init__(self, path: Path | str, text: str) -> None:
        self.path = str(path)
        self.text = text

    def line_of(self, key: KeyPath) -> int | None:
        """The line on which the statement that holds ``key`` begins, or None.

        The shortest run of leading statements that holds the key ends with that one.
        """
        found = _statements(self.text)
        at = bisect_left(found, True, key=lambda s: _holds(tomllib.loads(self.text[: s[1]]), key))
        return self.text.count("\n", 0, found[at][0]) + 1 if at < len(found) else None

    def error(self, key: KeyPath, found: str, remedy: str) -> BadFile:
        """The error for what was ``found`` at ``key``, at the line of it or of its parent."""
        for length in range(len(key), -1, -1):
            line = self.line_of(key[:length]) if length else None
            if line is not None:
                break
        where = f"{self.path}:{line}" if line is not None else self.path
        return BadFile(f"{where}: {dotted(key)}: {found}; {remedy}")


def _statements(text: str) -> list[tuple[int, int]]:
    """Where each statement of a right TOML text begins and ends."""
    found, begin, depth = [], 0, 0
    for token in _TOKEN.finditer(text):
        if token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth -= 1
        elif token[0] == "\n" and depth == 0:
            found.append((begin, token.end()))
            begin = token.end()
    found.append((begin, len(text)))
    return [s for s in found if text[slice(*s)].lstrip()[:1] not in ("", "#")]


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
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            shown = part if part.isprintable() and part else json.dumps(part)
            text += f".{shown}" if text else shown
    return text or "the file"


def read_text(path: Path) -> str:
    """The text of an input file, or :class:`BadFile` with the reason."""
    try:
        return path.read_text(encoding="utf-8-sig")  # spreadsheets write a byte order mark
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
    # The parser's time grows with the square of a key's parts.
    long_key = _LONG_KEY.search(text)
    if long_key:
        line = text.count("\n", 0, long_key.start()) + 1
        raise BadFile(f"{path}:{line}: a key of more than {MAX_DEPTH} parts; mend that line")
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadFile(f"{path}: is not TOML: {error}; mend that line") from None
    except RecursionError:
        raise BadFile(f"{path}: lists or tables are nested too deeply; mend the file") from None
    except ValueError as error:  # a number of more digits than Python reads
        raise BadFile(f"{path}: is not TOML: {str(error).partition(';')[0]}; mend it") from None
    _check_values(source, table)
    try:
        return model.model_validate(table), source
    except ValidationError as errors:
        raise _first_error(source, errors, model) from None


def _check_values(source: Source, table: dict[str, Any]) -> None:
    """Refuse what no model could take: whole numbers beyond 64 bits, and too deep nesting."""
    stack: list[tuple[KeyPath, Any]] = [((), table)]
    while stack:
        key, value = stack.pop()
        if isinstance(value, dict | list):
            if len(key) >= MAX_DEPTH:
                raise source.error(key[:1], "lists or tables nested too deeply", "mend it")
            each = value.items() if isinstance(value, dict) else enumerate(value)
            stack += [((*key, part), below) for part, below in each]
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise source.error(key, "a whole number of more than 64 bits", "give a smaller one")


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
