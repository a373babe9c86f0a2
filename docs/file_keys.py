"""The keys of the files that a user writes, as tables, from the pydantic models that read them."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from dvfs.input_files import FileModel
from kernels.parameters import field_texts
from sites.site_file import NAME_CHECK, PARTITION_NAME_CHECK

WORDS: Mapping[Any, str] = {
    Any: "any value",
    bool: "boolean",
    datetime.date: "date",
    datetime.datetime: "date and time",
    float: "number",
    int: "integer",
    str: "text",
}
LIMITS = (("ge", ">="), ("gt", ">"), ("le", "<="))


def key_lists(model: type[FileModel]) -> list[tuple[str, list[str]]]:
    """(the TOML header of a table, an item for each of its keys) of a file; the first header is
    empty.

    Where two keys hold tables of one model, its keys are listed once, at the key that is nearest to
    the top of the file.
    """
    headers = _headers(model)
    return [
        (
            header,
            [
                f"- {_key(name, field, header, headers)}: {texts[name]}"
                for name, field in table.model_fields.items()
            ],
        )
        for table, header in _depth_first(model, headers)
        for texts in [field_texts(table)]
    ]


def _headers(model: type[FileModel]) -> dict[type[FileModel], str]:
    """Each model -> the TOML header under which its keys are listed."""
    headers = {model: ""}
    waiting = [model]
    for table in waiting:
        for name, field in table.model_fields.items():
            inner = _inner(field.annotation)
            if inner is not None and inner not in headers:
                headers[inner] = _header(name, field, headers[table])
                waiting.append(inner)
    return headers


def _depth_first(
    model: type[FileModel], headers: Mapping[type[FileModel], str]
) -> Iterator[tuple[type[FileModel], str]]:
    yield model, headers[model]
    for name, field in model.model_fields.items():
        inner = _inner(field.annotation)
        if inner is not None and _header(name, field, headers[model]) == headers[inner]:
            yield from _depth_first(inner, headers)


def _header(name: str, field: FieldInfo, above: str) -> str:
    """The TOML header of the tables that a field holds, below the header ``above``."""
    path = f"{above.strip('[]')}.{name}" if above else name
    kind = get_origin(field.annotation)
    path = f"{path}.NAME" if kind is dict else path
    return f"[[{path}]]" if kind is list else f"[{path}]"


def _inner(annotation: Any) -> type[FileModel] | None:
    """The model of the tables that a field holds, or None."""
    if isinstance(annotation, type) and issubclass(annotation, FileModel):
        return annotation
    inner = (_inner(argument) for argument in get_args(annotation))
    return next((model for model in inner if model is not None), None)


def _key(name: str, field: FieldInfo, header: str, headers: Mapping[type[FileModel], str]) -> str:
    """The key, its values and its default."""
    inner = _inner(field.annotation)
    if inner is None:
        values = _values(field.annotation, field.metadata).removeprefix("list of ")
        values = re.sub(r"^number (?![a-z])", "", values)
    else:
        own, listed = _header(name, field, header), headers[inner]
        values = f"`{own}`" if own == listed else f"`{own}`, as `{listed}`"
        if _holds_text(field.annotation):
            values = f"table of texts, or {values}"
    default = _default(field)
    named = values.split(", ")
    if default in named:
        values = ", ".join(f"**{value}**" if value == default else value for value in named)
    elif default:
        values = f"{values}; {default}"
    return f"`{name}` ({values})"


def _holds_text(annotation: Any) -> bool:
    """Whether a field holds a text in place of a table: ``dict[str, str | Table]``."""
    if get_origin(annotation) in (Union, UnionType):
        return str in get_args(annotation)
    return get_origin(annotation) is dict and _holds_text(get_args(annotation)[1])


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or value in ("", [], {}) or isinstance(value, FileModel):
        return ""
    return f"`{value:g}`" if isinstance(value, float) else f"`{json.dumps(value)}`"


def _values(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """The values that an annotation and its limits allow, in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _values(arguments[0], [*arguments[1:], *metadata])
    if origin in (Union, UnionType):
        options = [
            a for a in arguments if a is not NoneType and not (a is int and float in arguments)
        ]
        return " or ".join(_values(option, metadata) for option in options)
    if origin is Literal:
        return ", ".join(f"`{json.dumps(option)}`" for option in arguments)
    if origin is not None:
        return _container(origin, arguments)
    if NAME_CHECK in metadata or PARTITION_NAME_CHECK in metadata:
        return "name"
    return " ".join([WORDS[annotation], *_limits(metadata)])


def in_short(limits: str) -> str:
    """Limits of a number as tables show them: ``>= 1 and <= 8`` as ``1–8``, ``>= 1`` as ``≥1``."""
    both = re.sub(r">= (\S+) and <= (\S+)", "\\1\N{EN DASH}\\2", limits)
    for sign, short in (
        ("<= ", "\N{LESS-THAN OR EQUAL TO}"),
        ("> ", ">"),
        (">= ", "\N{GREATER-THAN OR EQUAL TO}"),
    ):
        both = both.replace(sign, short)
    return both


def _container(origin: Any, arguments: Sequence[Any]) -> str:
    word = {list: "list", tuple: "pair", dict: "table"}[origin]
    if origin is dict and arguments[1] is Any:
        return word
    return f"{word} of {_plural(_values(arguments[1 if origin is dict else 0]))}"


def _plural(words: str) -> str:
    if words.startswith(("`", WORDS[Any])):
        return words.replace(WORDS[Any], "any values")
    return " or ".join(re.sub(r"^\w+", r"\g<0>s", option) for option in words.split(" or "))


def _limits(metadata: Sequence[Any]) -> list[str]:
    """The limits of a number; pydantic puts an Annotated's Field among the metadata."""
    parts = [p for m in metadata for p in (m.metadata if isinstance(m, FieldInfo) else [m])]
    limits = [
        f"{sign} {getattr(part, name):,}"
        for name, sign in LIMITS
        for part in parts
        if getattr(part, name, None) is not None
    ]
    words = " and ".join(limits)
    return [in_short(words)] if limits else []
