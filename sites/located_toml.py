"""Read a TOML file into a pydantic model; every error names its file, line, key and remedy."""

from __future__ import annotations

import contextlib
import difflib
import json
import re
import tomllib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

KeyPath = tuple[str | int, ...]
Model = TypeVar("Model", bound="FileModel")
MAX_DEPTH = 64
"""The deepest nesting of tables and lists, and the most parts of a key; our files need ten."""
MAX_MESSAGE_CHARS = 3000
_TOKEN = re.compile(
    r'''"""(?:[^\\]|\\.)*?"{3,5}|'{3}.*?'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|#[^\n]*|[][{}\n]''',
    re.DOTALL,
)
"""The tokens that show where a statement of a valid TOML file ends."""
_LONG_KEY = re.compile(
    rf"""(?<![\w.-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{MAX_DEPTH}}}"""
)


class FileModel(BaseModel):
    """A table of a TOML file: unknown keys are errors, and values keep their types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class BadFile(Exception):
    """Something in an input file is wrong. Its text is ``place: what; remedy``.

    Args:
        what: what was found.
        remedy: what would be right.
        place: the file, its line and the key, as far as they are known.

    The attributes and the message hold no control characters, and are of bounded length, whatever
    the file contains.
    """

    def __init__(self, what: str, remedy: str = "", place: str = "") -> None:
        message = f"{place}: {what}" if place else what
        super().__init__(_printable(f"{message}; {remedy}" if remedy else message))
        self.what = _printable(what)
        self.remedy = _printable(remedy)


class NoSuchFile(BadFile):
    """The input file does not exist."""


class BadValue(ValueError):
    """What a model's validator raises: what was found, and what would be right."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")
        self.what = what
        self.remedy = remedy


def matching(pattern: str, remedy: str) -> AfterValidator:
    """Require that a string matches a pattern as a whole; ``remedy`` says it for a person."""
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if compiled.fullmatch(value) is None:
            shown = repr(value)
            raise BadValue(f"found {shown if len(shown) <= 60 else shown[:57] + '...'}", remedy)
        return value

    return AfterValidator(check)


def _printable(text: str) -> str:
    """``text`` with control characters escaped, and its middle left out where it is very long."""
    text = "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode()
        for c in text[: 2 * MAX_MESSAGE_CHARS] + text[2 * MAX_MESSAGE_CHARS :][-1000:]
    )
    if len(text) > MAX_MESSAGE_CHARS:
        text = f"{text[: MAX_MESSAGE_CHARS - 1000]} ... {text[-900:]}"
    return text


class Source:
    """The text of a TOML file, and the line of each of its keys."""

    def __init__(self, path: Path | str, text: str) -> None:
        self.path = str(path)
        self.text = text

    def line_of(self, key: KeyPath) -> int | None:
        """The line on which the statement that holds ``key`` begins, or None.

        The shortest run of leading statements that holds the key ends with that statement.
        """
        statements = _statements(self.text)
        index = bisect_left(
            statements, True, key=lambda s: _holds(tomllib.loads(self.text[: s[1]]), key)
        )
        if index == len(statements):
            return None
        return self.text.count("\n", 0, statements[index][0]) + 1

    def error(self, key: KeyPath, what: str, remedy: str) -> BadFile:
        """The error for ``what`` was found at ``key``, with the line of the key or its parent."""
        for length in range(len(key), -1, -1):
            line = self.line_of(key[:length]) if length else None
            if line is not None:
                break
        where = f"{self.path}:{line}" if line is not None else self.path
        return BadFile(what, remedy, f"{where}: {dotted(key)}")


def _statements(text: str) -> list[tuple[int, int]]:
    """Where each statement of a valid TOML text begins and ends."""
    spans, begin, depth = [], 0, 0
    for token in _TOKEN.finditer(text):
        if token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth -= 1
        elif token[0] == "\n" and depth == 0:
            spans.append((begin, token.end()))
            begin = token.end()
    spans.append((begin, len(text)))
    return [span for span in spans if text[slice(*span)].lstrip()[:1] not in ("", "#")]


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
        with readable(path):
            return path.read_text(encoding="utf-8-sig")  # spreadsheets write a byte order mark
    except UnicodeDecodeError:
        raise BadFile("is not UTF-8 text", "save it as UTF-8", str(path)) from None


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Around code that reads an input file: turns OSError into :class:`BadFile`."""
    try:
        yield
    except FileNotFoundError:
        raise NoSuchFile("no such file", "check the path", str(path)) from None
    except IsADirectoryError:
        raise BadFile("is a directory", "name a file in it", str(path)) from None
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        raise BadFile(what, "check its permissions", str(path)) from None


def parse(path: Path | str, text: str, model: type[Model]) -> tuple[Model, Source]:
    """Check the text of a TOML file against a model.

    Raises:
        BadFile: not TOML, or not what the model requires; the first error is reported in full,
            with the number of further errors.
    """
    source = Source(path, text)
    # The parser's time grows with the square of a key's parts.
    long_key = _LONG_KEY.search(text)
    if long_key:
        line = text.count("\n", 0, long_key.start()) + 1
        what = f"a key of more than {MAX_DEPTH} parts"
        raise BadFile(what, "correct that line", f"{path}:{line}")
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadFile(f"is not TOML: {error}", "correct that line", str(path)) from None
    except RecursionError:
        what = "lists or tables are nested too deeply"
        raise BadFile(what, "use fewer levels", str(path)) from None
    except ValueError as error:  # a number with more digits than Python reads
        # Python's remedy, after the semicolon, is for programmers.
        what = f"is not TOML: {str(error).partition(';')[0]}"
        raise BadFile(what, "correct it", str(path)) from None
    _check_values(source, table)
    try:
        return model.model_validate(table), source
    except ValidationError as errors:
        raise _first_error(source, errors, model) from None


def _check_values(source: Source, table: dict[str, Any]) -> None:
    """Refuse integers beyond 64 bits and nesting that is too deep."""
    stack: list[tuple[KeyPath, Any]] = [((), table)]
    while stack:
        key, value = stack.pop()
        if isinstance(value, dict | list):
            if len(key) >= MAX_DEPTH:
                raise source.error(
                    key[:1], "lists or tables are nested too deeply", "use fewer levels"
                )
            items = value.items() if isinstance(value, dict) else enumerate(value)
            stack += [((*key, part), item) for part, item in items]
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise source.error(key, "a whole number of more than 64 bits", "give a smaller one")


def _first_error(source: Source, errors: ValidationError, model: type[BaseModel]) -> BadFile:
    details = errors.errors()
    first = details[0]
    key = tuple(part for part in first["loc"] if not _is_tag(part, source))
    value = repr(first["input"])
    value = value if len(value) <= 60 else value[:57] + "..."
    match first["type"]:
        case "extra_forbidden":
            known = sorted(_fields_at(model, key[:-1]))
            close = difflib.get_close_matches(str(key[-1]), known, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            what, remedy = "unknown key", f"{hint}Known keys: {', '.join(known) or 'none'}"
        case "missing":
            what, remedy = "missing", _missing_remedy(key, model)
        case "value_error":
            error = first["ctx"]["error"]
            what, remedy = getattr(error, "what", str(error)), getattr(error, "remedy", "")
        case _:
            what, remedy = f"found {value}", value_remedy(first, model, key)
    more = len(details) - 1
    if more:
        remedy += f" (and {more} more error{'s' if more > 1 else ''}, shown when this one is fixed)"
    return source.error(key, what, remedy.strip())


def value_remedy(error: ErrorDetails, model: type[BaseModel], key: KeyPath | None = None) -> str:
    """What a value should be that pydantic refuses, for a person. ``key``: without union tags."""
    match error["type"]:
        case "tuple_type" | "list_type":
            items = [
                member
                for kind in _kinds_at(model, error["loc"] if key is None else key)
                if get_origin(kind) in (list, tuple)
                for member in _members(get_args(kind)[0])
            ]
            noun = next((_noun(item) for item in items), "")
            value = error["input"]
            is_one_string = noun == " of strings" and isinstance(value, str)
            example = f", such as [{json.dumps(value)}]" if is_one_string else ""
            return f"must be a list{noun}{example}"
        case "too_short":
            return f"must have at least {error['ctx']['min_length']}"
        case _:
            message = error["msg"].removeprefix("Input should be ")
            return f"must be {message[:1].lower()}{message[1:]}"


def _noun(kind: Any) -> str:
    """What the items of a list are, as a phrase after "a list"."""
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return " of tables"
    if get_origin(kind) in (list, tuple):
        return " of lists"
    return {str: " of strings", int: " of numbers", float: " of numbers"}.get(kind, "")


def _missing_remedy(key: KeyPath, model: type[BaseModel]) -> str:
    """How to add what is missing at ``key``: a table, a table of a list, or a value."""
    name = ".".join(str(part) for part in key if isinstance(part, str))
    for kind in _kinds_at(model, key):
        if _noun(kind) == " of tables":
            return f"add a table [{name}]"
        if get_origin(kind) in (list, tuple) and _noun(get_args(kind)[0]) == " of tables":
            return f"add a table [[{name}]]"
        if get_origin(kind) in (dict, Mapping) and _noun(get_args(kind)[1]) == " of tables":
            return f"add a table [{name}.NAME]"
    return "give it a value"


def _is_tag(part: str | int, source: Source) -> bool:
    """Whether pydantic added this part of a location, to name a member of a union."""
    return isinstance(part, str) and ("[" in part or part in _UNION_TAGS)


_UNION_TAGS = {"str", "int", "float", "bool", "constrained-str"}


def _fields_at(model: type[BaseModel], key: Sequence[str | int]) -> set[str]:
    """The keys that the model has in the table at ``key``."""
    names: set[str] = set()
    for kind in _kinds_at(model, key):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            names |= {field.alias or name for name, field in kind.model_fields.items()}
    return names


def _kinds_at(model: type[BaseModel], key: Sequence[str | int]) -> list[Any]:
    """The types that the model allows at ``key``."""
    kinds: list[Any] = [model]
    for part in key:
        kinds_of_part: list[Any] = []
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                for name, field in kind.model_fields.items():
                    if part in (name, field.alias):
                        kinds_of_part += _members(field.annotation)
            elif get_origin(kind) in (list, tuple):
                kinds_of_part += _members(get_args(kind)[0])
            elif get_origin(kind) in (dict, Mapping):
                kinds_of_part += _members(get_args(kind)[1])
        kinds = kinds_of_part
    return kinds


def _members(kind: Any) -> list[Any]:
    if get_origin(kind) in (Union, UnionType):
        return [member for part in get_args(kind) for member in _members(part)]
    return [kind]


def built_in_files(folder: str) -> dict[str, Path]:
    """Name -> path of the TOML files in a folder of this project, given as ``room/folder``."""
    room, _, below = folder.partition("/")
    return {path.stem: path for path in sorted(Path(str(files(room)), below).glob("*.toml"))}


def find_file(name: str, beside: Path, folder: str, what: str) -> Path:
    """The path of a file that another names: of a built-in in ``folder``, or beside the other.

    Raises:
        BadFile: it is neither.
    """
    if name.endswith(".toml"):
        return beside / name
    built_in = built_in_files(folder)
    if name in built_in:
        return built_in[name]
    kind = what.rsplit(maxsplit=1)[-1]
    raise BadFile(
        f"unknown {what} {name!r}",
        f"name a {kind} file (ending in .toml) or one of: {', '.join(built_in)}",
    )
