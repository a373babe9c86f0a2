"""What a model of an input file allows at a key, for a person whose value it refuses."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from sites.near_names import known_names

KeyPath = tuple[str | int, ...]


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
            if is_one_string:
                return f"must be a list of words, such as {json.dumps(_words(value))}"
            if noun == " of tables" and isinstance(value, dict):
                path = error["loc"] if key is None else key
                name = ".".join(part for part in path if isinstance(part, str))
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
    """What the items of a list are, as a phrase after "a list"."""
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return " of tables"
    if get_origin(kind) in (list, tuple):
        return " of lists"
    return {str: " of strings", int: " of numbers", float: " of numbers"}.get(kind, "")


def unknown_remedy(key: KeyPath, model: type[BaseModel]) -> str:
    """What may stand in place of the last part of ``key``."""
    known = sorted(fields_at(model, key[:-1]))
    listed = known_names(str(key[-1]), known, "known keys")
    if key[-1] in ("core_mhz", "mem_mhz") and "pairs" in known:
        return f'give clocks with choose = "pairs", pairs = [[core MHz, memory MHz]]; {listed}'
    return listed


def missing_remedy(key: KeyPath, model: type[BaseModel]) -> str:
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


def fields_at(model: type[BaseModel], key: Sequence[str | int]) -> set[str]:
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
