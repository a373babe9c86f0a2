"""The parameter sets of a kernel entry: crossed and zipped lists, and the variants of its space."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from campaign.plan.campaign_file import KernelEntry
from campaign.plan.point import canonical_json
from dvfs.errors import known_names
from dvfs.input_files import FileError, KeyPath, Source, raise_all, value_remedy
from kernels.kernel import Kernel, KernelError
from kernels.registry import find_kernel
from kernels.space import WHERE, SpaceError, read_space
from sites.site_file import Site

if TYPE_CHECKING:
    from kernels.space import Variants

MAX_POINTS = 20_000_000


@dataclass(frozen=True)
class Sweep:
    """The parameter sets of a kernel entry as canonical JSON. For a space, which may use the site's
    numbers: ``site``; ``refused``, condition -> the number of candidates that it refused; and
    ``left_out``, variant that GPUs of the site's architecture cannot run -> the reason."""

    entry: KernelEntry
    params: list[str]
    site: str = ""
    refused: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)


def swept(entry: KernelEntry, index: int, source: Source, site: Site | None = None) -> Sweep:
    """The parameter sets of a kernel entry, checked by the kernel. ``site``: its space may use the
    numbers of this site; not needed without a space.

    Raises:
        FileError: with the place and a remedy.
    """
    kernel = find_kernel(entry.kernel)
    sets = []
    excluded = 0
    refused: Counter[str] = Counter()
    for raw in _with_variants(entry, index, source, site, refused):
        if any(_matches(raw, pattern) for pattern in entry.exclude):
            excluded += 1
            continue
        try:
            params = kernel.params.model_validate(raw)
        except ValidationError as errors:
            raise_all([_params_error(entry, kernel, index, e, source) for e in errors.errors()])
        sets.append(canonical_json(params.model_dump(mode="json")))
    if not sets:
        raise source.error(
            ("kernels", index),
            f"the sweep of {entry.kernel} is empty",
            "exclude removes every combination; exclude fewer"
            if excluded
            else "list at least one value for each parameter",
        )
    if site is None or entry.space is None:
        return Sweep(entry, sets)
    left_out = _left_out(kernel, sets, site, ("kernels", index, "space"), source)
    runnable = [text for text in sets if text not in left_out]
    return Sweep(entry, runnable, site.name, refused, left_out)


def _left_out(
    kernel: Kernel, sets: list[str], site: Site, key: KeyPath, source: Source
) -> dict[str, str]:
    """The variants that GPUs of the site's architecture cannot run -> the reason."""
    if site.architecture is None or kernel.refused_on is None:
        return {}
    left_out = {}
    for text in sets:
        params = kernel.params.model_validate_json(text)
        try:
            reason = kernel.refused_on(params, site.architecture)
        except KernelError as error:
            raise source.error(
                key,
                f"cannot determine which variants {site.architecture}, the architecture of "
                f"{site.name}, can run: {error}",
                "or name no architecture: the node then records what it cannot run as failed",
            ) from None
        if reason:
            left_out[text] = reason
    if len(left_out) == len(sets):
        raise source.error(
            key,
            f"{site.architecture}, the architecture of {site.name}, can run none of the "
            f"{len(sets):,} variants; the first: {reason}",
            "let smaller variants into the space",
        )
    return left_out


def _with_variants(
    entry: KernelEntry, index: int, source: Source, site: Site | None, refused: Counter[str]
) -> Iterator[dict[str, Any]]:
    """All combinations of the parameters with the variants of the entry's space."""
    if entry.space is None or site is None:
        yield from _combinations(entry, index, source)
        return
    for raw, site_variants in space_variants(entry, index, source, site):
        refused.update(dict(zip(entry.space.get(WHERE, []), site_variants.refused, strict=True)))
        for variant in site_variants:
            yield raw | variant


def space_variants(
    entry: KernelEntry, index: int, source: Source, site: Site
) -> Iterator[tuple[dict[str, Any], Variants]]:
    """Each combination of an entry's parameters outside its space, and the variants of the space
    for it, which the kernel has not checked.

    Raises:
        FileError: with the place and a remedy.
    """
    from kernels.space import variants  # noqa: PLC0415

    assert entry.space is not None  # noqa: S101

    fields = find_kernel(entry.kernel).params.model_fields
    key: KeyPath = ("kernels", index, "space")
    for name in entry.space:
        if name not in fields and name != WHERE:
            raise source.error(
                (*key, name),
                f"unknown parameter of {entry.kernel}",
                known_names(name, sorted(fields)),
            )
    for raw in _combinations(entry, index, source):
        try:
            space = read_space(entry.space, list(raw), list(site.device))
            site_variants = variants(space, raw, site.device)
        except SpaceError as error:
            place = [part for part in (error.key, error.condition) if part not in ("", None)]
            raise source.error((*key, *place), error.what, error.remedy) from None
        yield raw, site_variants


def _combinations(entry: KernelEntry, index: int, source: Source) -> Iterator[dict[str, Any]]:
    fields = set(find_kernel(entry.kernel).params.model_fields)
    axes: list[list[dict[str, Any]]] = []
    for name, value in entry.params.items():
        values = value if isinstance(value, list) and not _takes_list(entry, name) else [value]
        axes.append([{name: item} for item in values])
    for z, table in enumerate(entry.zip):
        lengths = {len(values) for values in table.values()}
        if len(lengths) > 1:
            raise source.error(
                ("kernels", index, "zip", z),
                f"lists of different lengths ({', '.join(map(str, sorted(lengths)))})",
                "lists that go together must be equally long",
            )
        twice = set(table) & (set(entry.params) | {n for t in entry.zip[:z] for n in t})
        if twice:
            raise source.error(
                ("kernels", index, "zip", z),
                f"parameter {min(twice)!r} is given twice",
                "give it once, in params or in one zip table",
            )
        rows = zip(*table.values(), strict=True)
        axes.append([dict(zip(table, row, strict=True)) for row in rows])
    count = math.prod(map(len, axes))
    if count > MAX_POINTS:
        raise source.error(
            ("kernels", index),
            f"the sweep of {entry.kernel} has {count} parameter sets",
            f"a campaign may have at most {MAX_POINTS} points: list fewer values",
        )
    for x, pattern in enumerate(entry.exclude):
        stray = sorted(set(pattern) - fields)
        if stray:
            raise source.error(
                ("kernels", index, "exclude", x, stray[0]),
                f"unknown parameter of {entry.kernel}",
                known_names(stray[0], sorted(fields), "known here"),
            )
    for chosen in itertools.product(*axes):
        yield {name: value for part in chosen for name, value in part.items()}


def _takes_list(entry: KernelEntry, name: str) -> bool:
    """Whether this parameter has a list as its value, such as a command's argv, and is not swept. A
    sweep over such a parameter is a list of lists."""
    field = find_kernel(entry.kernel).params.model_fields.get(name)
    value = entry.params[name]
    is_tuple = field is not None and "tuple" in str(field.annotation)
    return is_tuple and not all(isinstance(item, list) for item in value)


def _matches(raw: Mapping[str, Any], pattern: Mapping[str, Any]) -> bool:
    return all(
        name in raw and (raw[name] in value if isinstance(value, list) else raw[name] == value)
        for name, value in pattern.items()
    )


def place_of(name: str, entry: KernelEntry, index: int) -> KeyPath:
    """The key of a parameter in a kernel entry's space, or else in its params."""
    return ("kernels", index, "space" if name in (entry.space or {}) else "params", name)


def _params_error(
    entry: KernelEntry, kernel: Kernel, index: int, first: ErrorDetails, source: Source
) -> FileError:
    error = first.get("ctx", {}).get("error")
    name = str(first["loc"][0]) if first["loc"] else getattr(error, "parameter", "")
    in_zip = next((z for z, table in enumerate(entry.zip) if name in table), None)
    key = (
        place_of(name, entry, index) if in_zip is None else ("kernels", index, "zip", in_zip, name)
    )
    match first["type"]:
        case "extra_forbidden":
            return source.error(
                key,
                f"unknown parameter of {entry.kernel}",
                known_names(name, sorted(kernel.params.model_fields)),
            )
        case "missing":
            return source.error(
                key, f"{entry.kernel} needs this parameter", f"add {name} = VALUE to params"
            )
        case "value_error":
            key = key if name else ("kernels", index, "params")
            what, remedy = getattr(error, "what", str(error)), getattr(error, "remedy", "")
            return source.error(key, what, remedy)
        case _:
            problem = f"found {first['input']!r}"
            return source.error(key, problem, value_remedy(first, kernel.params, first["loc"]))
