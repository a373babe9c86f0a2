"""kernels: the list of kernels, and how to put one into a campaign file."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from campaign.verbs.options import add_json
from campaign.verbs.printing import answer, explain, print_json, say

if TYPE_CHECKING:
    from campaign.verbs.kernel_guide import KernelGuide

SUMMARY = "list the kernels, or show one's parameters, counts and an example"
EXAMPLE = "campaign kernels dp_fma"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="one kernel (default: list all)")
    add_json(parser)


def run(arguments: Namespace) -> int:
    """Print all kernels, or one."""
    from campaign.verbs.kernel_guide import kernel_guide, kernel_guides  # noqa: PLC0415

    if arguments.name is not None:
        guide = kernel_guide(arguments.name)
        return answer(arguments.json, guide.as_dict, lambda: _print(guide))
    guides = kernel_guides()
    if arguments.json:
        print_json([guide.as_dict() for guide in guides])
        return 0
    for guide in guides:
        explain(f"{guide.name:8} {guide.summary}{_package(guide)}")
    return 0


def _print(guide: KernelGuide) -> None:
    say(f"{guide.name}: {guide.summary}{_package(guide)}")
    say()
    say("parameters:")
    for parameter in guide.parameters:
        default = "none" if parameter.default is None else json.dumps(parameter.default)
        default = "required" if parameter.required else f"default: {default}"
        explain(f"  {parameter.name}: {parameter.description} ({parameter.values}; {default})")
    say()
    explain(f"counts in an iteration: {guide.counted}")
    for name, (meaning, unit) in guide.classes.items():
        explain(f"  {name} ({unit}): {meaning}")
    say()
    say("needs:")
    for need in guide.needs:
        explain(f"  {need}")
    say()
    say("example, a part of a campaign file:")
    for line in guide.example.splitlines():
        say(f"  {line}")


def _package(guide: KernelGuide) -> str:
    return "" if guide.package is None else f" (package {guide.package})"
