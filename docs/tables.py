"""The lists in these pages that come from the registries and the file models of the code.

python -m docs.tables           # writes them into the pages
python -m docs.tables --check   # ends with 1 where a page has another table
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from campaign.codesign.study_file import Study
from campaign.plan.campaign_file import Campaign
from campaign.plan.profile_file import Profile
from campaign.policy.policy_file import Policy
from campaign.profiles.profile import BUILT_IN_MAPS, CounterMap, read_counter_map
from campaign.results.rooflines import PlatformFile
from campaign.table.formats import FORMATS
from campaign.table.map_file import TableMap
from campaign.table.power_logs import POWER_LOGS
from campaign.table.units import STANDARD, UNITS
from docs.file_keys import in_short, key_lists
from dvfs.dataset import CLASS_UNITS, MEMORY_CLASSES
from dvfs.input_files import FileModel, built_in_files
from kernels.classes import CLASSES
from kernels.parameters import ParameterDescription, parameters_of
from kernels.registry import OURS, find_kernel
from sites.clocks import CONTROLS, describe_controls
from sites.counters.group_file import BUILT_IN_GROUPS, read_group
from sites.meters import METERS, describe_meters
from sites.site_file import Site

DOCS = Path(__file__).parent


def _options(options: Mapping[str, str]) -> str:
    return "".join(f" `{name}`: {text}." for name, text in options.items())


def meters() -> str:
    """One item a meter."""
    return "\n".join(
        f"- `{entry.kind}` ({entry.domains}): {entry.reads}. Needs {entry.needs}."
        f"{_options(entry.options)}"
        for entry in describe_meters()
        if entry.kind not in METERS.packages
    )


def controls() -> str:
    """One item a clock control."""
    return "\n".join(
        f"- `{entry.control}`: {entry.writes}. Needs {entry.needs}.{_options(entry.options)}"
        for entry in describe_controls()
        if entry.control not in CONTROLS.packages
    )


def kernels() -> str:
    """One item a kernel."""
    return "\n".join(
        f"- `{kernel.name}`: {kernel.summary}. Counts {kernel.counted}."
        for kernel in map(find_kernel, OURS)
    )


def _values(parameter: ParameterDescription) -> str:
    """The values of a parameter, and its default: in bold where it is one of several named."""
    values = in_short(parameter.values.removeprefix("integer "))
    if parameter.required:
        return values
    if parameter.default is None:
        return f"{values}; optional"
    named = values.split(", ")
    if str(parameter.default) in named:
        return ", ".join(f"**{n}**" if n == str(parameter.default) else n for n in named)
    return f"{values}; `{json.dumps(parameter.default)}`"


def parameters() -> str:
    """One item for the kernels that have the same parameters, values and defaults."""
    kernels_of: dict[str, list[str]] = {}
    for kernel in map(find_kernel, OURS):
        listed = ", ".join(f"`{p.name}` ({_values(p)})" for p in parameters_of(kernel))
        kernels_of.setdefault(listed, []).append(f"`{kernel.name}`")
    return "\n".join(f"- {', '.join(names)}: {listed}" for listed, names in kernels_of.items())


def classes() -> str:
    """One item a class of operations."""
    return "\n".join(
        f"- `{name}` ({unit}, {'memory' if name in MEMORY_CLASSES else 'core'}): "
        f"{CLASSES.get(name, 'as a site file defines it')}"
        for name, unit in CLASS_UNITS.items()
    )


def counter_groups() -> str:
    """One item a built-in group of hardware counters."""
    items = []
    for name, path in built_in_files(BUILT_IN_GROUPS).items():
        group = read_group(path)
        derived = ", ".join(f"`{derived}`" for derived in group.derived)
        items.append(f"- `{name}` ({derived}): {group.description}")
    return "\n".join(items)


def counter_maps() -> str:
    """One item a built-in map of a profiler's counters."""
    items = []
    for name in built_in_files(BUILT_IN_MAPS):
        read = read_counter_map(name)
        counts = ", ".join(f"`{count}`" for count in read.counts)
        items.append(f"- `{name}`{f' ({counts})' if counts else ''}: {read.description}")
    return "\n".join(items)


def units() -> str:
    """One item a quantity with its factors, and one for each way of writing numbers."""
    items = []
    for quantity, standard in STANDARD.items():
        names = [n for n, unit in UNITS.items() if not unit.read and quantity in unit.factors]
        items.append(f"- {quantity} (`{standard}`): {', '.join(f'`{n}`' for n in names)}")
    for name, unit in UNITS.items():
        if unit.read:
            items.append(f"- `{name}` ({', '.join(unit.factors)}): {unit.reads}")
    return "\n".join(items)


def formats() -> str:
    """One item a format of another tool."""
    items = []
    for name in sorted(FORMATS):
        if name in FORMATS.packages:
            continue
        about = FORMATS.load(name).ABOUT
        needs = f" Needs {', '.join(about.needs)}." if about.needs else ""
        traps = f" {about.traps[0].upper()}{about.traps[1:]}." if about.traps else ""
        items.append(f"- `{name}` ({about.tool}, {about.versions}): {about.reads}.{needs}{traps}")
    return "\n".join(items)


def power_logs() -> str:
    """One item a kind of power log."""
    items = []
    for name in sorted(POWER_LOGS):
        if name in POWER_LOGS.packages:
            continue
        about = POWER_LOGS.load(name).ABOUT
        by = f"`{about.made_by}`" if " -" in about.made_by else about.made_by
        items.append(f"- {about.tool}, {about.versions}: {by}; {about.traps}")
    return "\n".join(items)


def file_keys(model: type[FileModel]) -> str:
    """One list for each table of a file, one item a key."""
    parts = []
    for header, items in key_lists(model):
        parts += [f"### `{header}`"] if header else []
        parts.append("\n".join(items))
    return "\n" + "\n\n".join(parts) + "\n"


TABLES: dict[str, Callable[[], str]] = {
    "meters": meters,
    "controls": controls,
    "kernels": kernels,
    "parameters": parameters,
    "classes": classes,
    "campaign_file": lambda: file_keys(Campaign),
    "site_file": lambda: file_keys(Site),
    "map_file": lambda: file_keys(TableMap),
    "profile_file": lambda: file_keys(Profile),
    "study_file": lambda: file_keys(Study),
    "platform_file": lambda: file_keys(PlatformFile),
    "policy_file": lambda: file_keys(Policy),
    "counter_map": lambda: file_keys(CounterMap),
    "counter_groups": counter_groups,
    "counter_maps": counter_maps,
    "units": units,
    "formats": formats,
    "power_logs": power_logs,
}
GENERATED = re.compile(r"(<!-- begin generated: (\w+) -->\n).*?(<!-- end generated: \2 -->)", re.S)


def with_tables(text: str) -> str:
    """A page's text with its tables as the code has them now."""
    return GENERATED.sub(lambda part: f"{part[1]}{TABLES[part[2]]()}\n{part[3]}", text)


def main(check: bool) -> int:
    """Write the tables, or check them; the exit code."""
    old = []
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        if with_tables(text) != text:
            old.append(page.name)
            if not check:
                page.write_text(with_tables(text), encoding="utf-8")
    if check and old:
        print(f"{', '.join(old)}: tables are not those of the code; run: python -m docs.tables")
    return 1 if check and old else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
