"""Read a TOML file into a pydantic model; every error names its file, line, key and remedy."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import tomllib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import ErrorDetails

from dvfs.errors import UserError, did_you_mean, known_names
from dvfs.files import MAX_BYTES, NotRegularError, TooLargeError, read_input
from dvfs.printable import printable

Model = TypeVar("Model", bound="FileModel")
MAX_DEPTH = 64
"""The greatest depth of nested tables and lists, and the most parts of a key; ten are needed."""
MAX_TOML_BYTES = 64 << 20
"""The limit of a TOML file: finding the error in a larger one would take long."""
MAX_MESSAGE_CHARS = 3000
MOST_ERRORS = 12
"""The most errors of a file in a message."""
MOST_SEARCHED_CHARS = 50_000
"""Only the first error of a longer file is shown: finding a line takes long."""
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

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class FileError(UserError):
    """An input file is wrong. The message is ``place: what; remedy``, with a line for each further
    error.

    Args:
        what: the value or state that was found.
        remedy: how to correct it.
        place: the file, and the line and key if known.
        others: further errors of the same file.
        unlisted: the number of errors beyond ``others``.

    The attributes and the message contain no control characters and have bounded lengths, whatever
    the file contains.
    """

    def __init__(
        self,
        what: str,
        remedy: str = "",
        place: str = "",
        others: Sequence[FileError] = (),
        unlisted: int = 0,
    ) -> None:
        message = f"{place}: {what}" if place else what
        lines = [f"{message}; {remedy}" if remedy else message]
        lines += [f"  {error}" for error in others]
        if unlisted:
            lines.append(f"  and {unlisted} more error{'s'[: unlisted != 1]}")
        super().__init__(_shortened("\n".join(lines)))
        self.place = place
        self.others = others
        self.unlisted = unlisted
        self.what = _shortened(what)
        self.remedy = _shortened(remedy)


def _joined(errors: Sequence[FileError], unlisted: int = 0) -> FileError:
    """One error that lists these errors and those in their ``others``; ``unlisted``: the number of
    further ones."""
    listed = [single for error in errors for single in (error, *error.others)]
    unlisted += sum(error.unlisted for error in errors) + max(len(listed) - MOST_ERRORS, 0)
    first, *others = (FileError(e.what, e.remedy, e.place) for e in listed[:MOST_ERRORS])
    return FileError(first.what, first.remedy, first.place, others, unlisted)


def raise_all(errors: Sequence[FileError]) -> None:
    """Raise one error that lists all of these; return if there are none."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise _joined(errors)


def errors_of(checks: Iterable[Callable[[], None]]) -> list[FileError]:
    """Run every check, and return the errors that they raise."""
    errors = []
    for check in checks:
        try:
            check()
        except FileError as error:
            errors.append(error)
    return errors


class MissingFileError(FileError):
    """The input file does not exist."""


class BadValueError(ValueError):
    """An error of a model's validator: what was found, and the remedy. ``key``: relative to the
    validator's key."""

    def __init__(self, what: str, remedy: str, key: KeyPath = ()) -> None:
        super().__init__(f"{what}; {remedy}")
        self.key = key
        self.what = what
        self.remedy = remedy


def matching(pattern: str, remedy: str) -> AfterValidator:
    """A validator: the whole string must match a pattern; ``remedy`` says so in words."""
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if compiled.fullmatch(value) is None:
            raise BadValueError(f"found {_short_repr(value)}", remedy)
        return value

    return AfterValidator(check)


def _short_repr(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def known_in(names: Collection[str], what: str) -> AfterValidator:
    """Require that a string is one of the names of ``what``; they are looked at with each value."""

    def check(value: str) -> str:
        if value not in names:
            raise BadValueError(f"unknown {what} {value!r}", known_names(value, sorted(names)))
        return value

    return AfterValidator(check)


def _shortened(text: str) -> str:
    """``text`` with control characters escaped, and without its middle if it is very long."""
    text = text[: 2 * MAX_MESSAGE_CHARS] + text[2 * MAX_MESSAGE_CHARS :][-1000:]
    text = printable(text, kept="\n\t")
    if len(text) > MAX_MESSAGE_CHARS:
        text = f"{text[: MAX_MESSAGE_CHARS - 1000]} ... {text[-900:]}"
    return text


class Source:
    """The text of a TOML file, and the line of each of its keys."""

    def __init__(self, path: Path | str, text: str) -> None:
        self.path = str(path)
        self.text = text

    def line_of(self, key: KeyPath) -> int | None:
        """The first line of the statement that defines ``key``, or None.

        A bisection: the shortest prefix of statements that defines the key ends with it.
        """
        statements = _statements(self.text)
        index = bisect_left(
            statements, True, key=lambda s: _holds(tomllib.loads(self.text[: s[1]]), key)
        )
        if index == len(statements):
            return None
        return self.text.count("\n", 0, statements[index][0]) + 1

    def place(self, key: KeyPath) -> tuple[int, str]:
        """The line of ``key`` or of its closest parent, 0 if unknown; and the place as a text."""
        lines = (self.line_of(key[:length]) for length in range(len(key), 0, -1))
        line = next((line for line in lines if line is not None), 0)
        where = f"{self.path}:{line}" if line else self.path
        return line, f"{where}: {dotted(key)}"

    def error(self, key: KeyPath, what: str, remedy: str) -> FileError:
        """The error at ``key``."""
        return FileError(what, remedy, self.place(key)[1])


def _statements(text: str) -> list[tuple[int, int]]:
    """The start and end index of each statement of a valid TOML text."""
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
    """The text of a key: ``kernel[1].params`` for ``("kernel", 1, "params")``."""
    text = ""
    for part in key:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            shown = part if part.isprintable() and part else json.dumps(part)
            text += f".{shown}" if text else shown
    return text or "the file"


Check = tuple[Sequence[str], Callable[[Any, Source], None]]
"""The top-level keys that a check reads, and the check: it takes the validated file and raises
FileError."""


def read_file(path: Path, model: type[Model], checks: Sequence[Check] = ()) -> tuple[Model, Source]:
    """Read a TOML file and check it against a model.

    Raises:
        FileError: the file cannot be read, or see :func:`parse`.
    """
    return parse(path, read_text(path, _called(model)), model, checks)


def _called(model: type[BaseModel]) -> str:
    """The name of a model's kind of file, with its article."""
    kind = FILE_KINDS.get(model.__name__)
    return "a file" if kind is None else kind.name


def read_text(path: Path, wanted: str = "") -> str:
    """The text of an input file. ``wanted``: the expected kind of TOML file, such as ``a site
    file``; empty for any text.

    Raises:
        FileError: it cannot be read, or is not UTF-8.
    """
    try:
        with readable(path, wanted):
            data = read_input(path, MAX_TOML_BYTES if wanted else MAX_BYTES)
            # Spreadsheets write a byte order mark; this reads every kind of line end.
            return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig").read()
    except UnicodeDecodeError:
        if wanted and path.suffix != ".toml":
            raise FileError("is not text", _name(wanted), str(path)) from None
        raise FileError("is not UTF-8 text", "save it as UTF-8", str(path)) from None


def _name(wanted: str) -> str:
    return f"name {wanted}, which ends in .toml"


@contextlib.contextmanager
def readable(path: Path, wanted: str = "") -> Iterator[None]:
    """Turn an OSError of code that reads an input file into :class:`FileError`. ``wanted``: see
    :func:`read_text`."""
    try:
        yield
    except FileNotFoundError:
        raise MissingFileError(
            "no such file", f"{_near_file(path)}check the path", str(path)
        ) from None
    except (IsADirectoryError, NotRegularError):
        if not path.is_dir():
            raise FileError("is a device, a pipe or a socket", "name a file", str(path)) from None
        what, remedy = "is a directory", "name a file in it"
        if (path / "store.json").exists():
            what, remedy = "is a store", f"campaign export {path} --csv F writes its table"
            if wanted:
                what, remedy = f"is a store, not {wanted}", _name(wanted)
        raise FileError(what, remedy, str(path)) from None
    except TooLargeError as error:
        raise FileError(str(error.strerror), "divide it, or name another file", str(path)) from None
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        raise FileError(what, "check its permissions", str(path)) from None


def _near_file(path: Path) -> str:
    """A suggestion from the folder of a missing file."""
    try:
        in_folder = [file for file in path.parent.iterdir() if file.is_file()]
    except OSError:
        return ""
    same_kind = [file.name for file in in_folder if file.suffix == path.suffix]
    same_name = [file.name for file in in_folder if file.stem == path.stem]
    return did_you_mean(path.name, same_kind) or did_you_mean(path.stem, same_name)


def parse(
    path: Path | str, text: str, model: type[Model], checks: Sequence[Check] = ()
) -> tuple[Model, Source]:
    """Validate the text of a TOML file against a model and further checks. If keys are wrong, only
    the checks that do not read them run.

    Raises:
        FileError: not TOML, another kind of file, or not valid; lists all errors.
    """
    source = Source(path, text)
    # The parser's time grows with the square of a key's parts.
    long_key = _LONG_KEY.search(text)
    if long_key:
        line = text.count("\n", 0, long_key.start()) + 1
        what = f"a key of more than {MAX_DEPTH} parts"
        raise FileError(what, "correct that line", f"{path}:{line}")
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        what, remedy = f"is not TOML: {error}", "correct that line"
        if not str(path).endswith(".toml"):
            what, remedy = "is not TOML", _name(_called(model))
        raise FileError(what, remedy, str(path)) from None
    except RecursionError:
        what = "lists or tables are nested too deeply"
        raise FileError(what, "use fewer levels", str(path)) from None
    except ValueError as error:  # a number with more digits than Python reads
        # Python's remedy, after the semicolon, is for programmers.
        what = f"is not TOML: {str(error).partition(';')[0]}"
        raise FileError(what, "correct it", str(path)) from None
    _check_values(source, table)
    try:
        read = model.model_validate(table)
    except ValidationError as errors:
        _check_kind(source, table, model)
        # Finding a line takes long in a large file.
        shown = errors.errors()[: MOST_ERRORS if len(text) < MOST_SEARCHED_CHARS else 1]
        located = [_error(source, details, model) for details in shown]
        located.sort(key=lambda entry: entry[0])
        wrong = {str(details["loc"][0]) if details["loc"] else "" for details in errors.errors()}
        others = _errors_elsewhere(source, table, model, wrong, checks)
        unlisted = errors.error_count() - len(located)
        raise _joined([error for _, error in located] + others, unlisted) from None
    raise_all(errors_of(partial(check, read, source) for _, check in checks))
    return read, source


def _errors_elsewhere(
    source: Source,
    table: dict[str, Any],
    model: type[BaseModel],
    wrong: set[str],
    checks: Sequence[Check],
) -> list[FileError]:
    """The errors of the checks that read none of the ``wrong`` keys."""
    right = [check for reads, check in checks if wrong.isdisjoint(reads)]
    fields: Any = dict.fromkeys(wrong & model.model_fields.keys(), (Any, None))
    if not right or "" in wrong:
        return []
    try:
        without = create_model("Without", __base__=model, **fields)
        read = without.model_validate({k: v for k, v in table.items() if k not in wrong})
    except Exception:
        return []
    return errors_of(partial(check, read, source) for check in right)


def _check_kind(source: Source, table: dict[str, Any], model: type[BaseModel]) -> None:
    """Raise one error for a file of another kind, instead of an error for each of its keys."""
    wanted = FILE_KINDS.get(model.__name__)
    kind = other_kind(wanted, table.keys()) if wanted is not None else None
    if wanted is not None and kind is not None:
        raise FileError(
            f"is {kind.name}, not {wanted.name}", kind.use.format(path=source.path), source.path
        )


def _check_values(source: Source, table: dict[str, Any]) -> None:
    """Raise FileError for integers beyond 64 bits and for nesting that is too deep."""
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


def _error(source: Source, details: ErrorDetails, model: type[BaseModel]) -> tuple[int, FileError]:
    """The line of an error (0 if unknown), and the error."""
    key = tuple(part for part in details["loc"] if not _is_tag(part, source))
    value = _short_repr(details["input"])
    match details["type"]:
        case "extra_forbidden":
            what, remedy = "unknown key", unknown_remedy(key, model)
        case "missing":
            what, remedy = "missing", missing_remedy(key, model)
        case "value_error":
            error = details["ctx"]["error"]
            what, remedy = getattr(error, "what", str(error)), getattr(error, "remedy", "")
            key = (*key, *getattr(error, "key", ()))
        case _:
            what, remedy = f"found {value}", value_remedy(details, model, key)
    line, place = source.place(key)
    return line, FileError(what, remedy.strip(), place)


def _is_tag(part: str | int, source: Source) -> bool:
    """Whether pydantic added this part of a location to name a member of a union."""
    return isinstance(part, str) and ("[" in part or part in _UNION_TAGS)


_UNION_TAGS = {"str", "int", "float", "bool", "constrained-str"}


def built_in_files(folder: str) -> dict[str, Path]:
    """Name -> path of the TOML files in a folder of this project, given as ``room/folder``."""
    room, _, below = folder.partition("/")
    return {path.stem: path for path in sorted(Path(str(files(room)), below).glob("*.toml"))}


def find_file(name: str, beside: Path, folder: str, what: str) -> Path:
    """The path of a file that another file names: a built-in of ``folder``, or relative to the
    folder ``beside`` of the other file.

    Raises:
        FileError: it is neither.
    """
    if name.endswith(".toml"):
        return beside / name
    built_in = built_in_files(folder)
    if name in built_in:
        return built_in[name]
    kind = what.rsplit(maxsplit=1)[-1]
    other = _other_than_toml(beside / name) if name else ""
    raise FileError(
        f"found {name!r}, which is {other}" if other else f"unknown {what} {name!r}",
        known_names(name, built_in, f"name a {kind} file (ending in .toml) or one of"),
    )


def _other_than_toml(path: Path) -> str:
    """The kind of thing at a path that does not end in .toml; empty if nothing is there."""
    with contextlib.suppress(OSError):  # a name that is too long
        if path.is_dir():
            return "a folder"
        if path.exists():
            return "a file whose name does not end in .toml"
    return ""


KeyPath = tuple[str | int, ...]


def value_remedy(error: ErrorDetails, model: type[BaseModel], key: KeyPath) -> str:
    """What a value at ``key`` of the model, without union tags, must be that pydantic rejects."""
    match error["type"]:
        case "tuple_type" | "list_type":
            items = [
                member
                for kind in _kinds_at(model, key)
                if get_origin(kind) in (list, tuple)
                for member in _members(get_args(kind)[0])
            ]
            noun = next((_noun(item) for item in items), "")
            value = error["input"]
            is_one_string = noun == " of strings" and isinstance(value, str)
            if is_one_string:
                return f"must be a list of words, such as {json.dumps(_words(value))}"
            if noun == " of tables" and isinstance(value, dict):
                name = ".".join(part for part in key if isinstance(part, str))
                return f"write [[{name}]] in place of [{name}]"
            return f"must be a list{noun}"
        case "too_short":
            least = error["ctx"]["min_length"]
            return f"must have at least {least} {'entry' if least == 1 else 'entries'}"
        case _:
            message = error["msg"].removeprefix("Input should be ")
            if isinstance(error["input"], str) and message in (
                "a valid number",
                "a valid number, unable to parse string as a number",
            ):
                return "must be a number, without quotes"
            message = {
                "a valid integer": "a whole number",
                "a valid number": "a number",
                "a valid string": "text in quotes",
                "a valid boolean": "true or false",
            }.get(message, message)
            return f"must be {message[:1].lower()}{message[1:]}"


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text) or [text]
    except ValueError:
        return [text]


def _noun(kind: Any) -> str:
    """The kind of a list's items, as a phrase after "a list"."""
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return " of tables"
    if get_origin(kind) in (list, tuple):
        return " of lists"
    return {str: " of strings", int: " of numbers", float: " of numbers"}.get(kind, "")


def unknown_remedy(key: KeyPath, model: type[BaseModel]) -> str:
    """The keys that are valid instead of the last part of ``key``."""
    valid = sorted(fields_at(model, key[:-1]))
    return known_names(str(key[-1]), valid, "known keys")


def missing_remedy(key: KeyPath, model: type[BaseModel]) -> str:
    """How to add the missing ``key``: a table, a table of a list, or a value."""
    name = ".".join(str(part) for part in key if isinstance(part, str))
    for kind in _kinds_at(model, key):
        if _noun(kind) == " of tables":
            return f"add a table [{name}]"
        if get_origin(kind) in (list, tuple) and _noun(get_args(kind)[0]) == " of tables":
            return f"add a table [[{name}]]"
        if get_origin(kind) in (dict, Mapping) and _noun(get_args(kind)[1]) == " of tables":
            return f"add a table [{name}.NAME]"
    return "give it a value"


def fields_at(model: type[BaseModel], key: Sequence[str | int]) -> set[str]:
    """The model's keys in the table at ``key``."""
    names: set[str] = set()
    for kind in _kinds_at(model, key):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            names |= {field.alias or name for name, field in kind.model_fields.items()}
    return names


def _kinds_at(model: type[BaseModel], key: Sequence[str | int]) -> list[Any]:
    """The model's types at ``key``."""
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


@dataclass(frozen=True)
class FileKind:
    """A kind of input file: its name with the article, its keys, the keys of which a file has at
    least one, and how to use such a file at ``{path}``."""

    name: str
    keys: frozenset[str]
    typical: frozenset[str]
    use: str


def _kind(name: str, typical: str, further: str, use: str) -> FileKind:
    keys = frozenset(typical.split())
    return FileKind(name, keys | frozenset(further.split()), keys, use)


FILE_KINDS = {
    "Campaign": _kind(
        "a campaign file",
        "sites kernels repeats protocol settings retries search part_of",
        "name seed",
        "measure its points: campaign run {path}",
    ),
    "Site": _kind(
        "a site file",
        "partitions domains meters clocks power_limit profiles legal slurm simulated counters",
        "name description classes device architecture energy metering nodes_per_point",
        "name it in a campaign file, under [[sites]], or examine it: campaign doctor {path}",
    ),
    "TableMap": _kind(
        "a map file of a table",
        "columns constants fields delimiter decimal thousands missing keep number_repeats",
        "voltage unknown layout clocks classes legal device params",
        "use it: campaign import TABLE --map {path} --store S",
    ),
    "Profile": _kind(
        "a profile file",
        "time_s counts",
        "kernel core_mhz mem_mhz",
        "use it: campaign predict S --profile {path}",
    ),
    "Study": _kind(
        "a study file of chips",
        "area machine tiles workload existing energy form",
        "name objective",
        "compute it: campaign codesign {path}",
    ),
    "PlatformFile": _kind(
        "a platform file",
        "operations gb_s eps_mem_pj constant_w tdp_w caches_pj",
        "name model source",
        "show it: campaign roofline --platform {path}",
    ),
    "Policy": _kind(
        "a policy file",
        "entries default against until control_pct opt_out origin",
        "site cluster device seed objective max_slowdown max_power_w",
        "check it: campaign policy check {path}",
    ),
    "CounterMap": _kind(
        "a counter map of a profiler",
        "layout",
        "description time_s counts",
        "use it: campaign profile FILE={path}",
    ),
    "CounterGroup": _kind(
        "a counter group",
        "events derived",
        "description",
        "name it in a site file, under [counters]",
    ),
}
"""The kinds by the name of their model."""


def other_kind(wanted: FileKind, keys: Collection[str]) -> FileKind | None:
    """The kind of file that these keys show, if it is not the wanted one: the kind with a typical
    key among them that matches the most, more than half and more than the wanted kind."""

    def matches(kind: FileKind) -> int:
        return len(kind.keys & set(keys))

    kinds = [kind for kind in FILE_KINDS.values() if kind.typical & set(keys)]
    best = max(kinds, key=matches, default=wanted)
    return best if matches(best) > max(len(keys) / 2, matches(wanted)) else None
