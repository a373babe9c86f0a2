"""profile: a profile file from what a profiler counted."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from campaign.verbs.printing import say

SUMMARY = "turn the counters of perf, LIKWID, ncu, nsys or nvprof into a profile file"
MORE = (
    "A profile has an application's operation counts and its time at one setting; predict "
    "--profile picks clocks for it. A map says which counters make a class of operations. "
    "Several files make one profile: app.ncu.csv=ncu app.nsys.csv=nsys has the counts of one and "
    "the times of the other."
)
EXAMPLE = "campaign profile --maps"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE=MAP",
        help="a profiler's CSV file, and the name of a built-in map or the path of a map file",
    )
    parser.add_argument("--name", help="the application's name (default: the first file's)")
    parser.add_argument(
        "--kernel", metavar="R", help="only GPU kernels whose name matches this regular expression"
    )
    parser.add_argument("--region", metavar="R", help="only this marker region (LIKWID)")
    parser.add_argument(
        "--time-s", type=float, metavar="T", help="the time of the run in s, as measured otherwise"
    )
    parser.add_argument("--core-mhz", type=float, metavar="F", help="the core clock of the run")
    parser.add_argument("--mem-mhz", type=float, metavar="F", help="the memory clock of the run")
    parser.add_argument("-o", "--output", metavar="F", help="write to this file (default: print)")
    parser.add_argument("--maps", action="store_true", help="list the built-in maps, and end")


def run(arguments: Namespace) -> int:
    """Print or write the profile file."""
    from campaign.profiles.profile import (  # noqa: PLC0415
        BUILT_IN_MAPS,
        read_application,
        read_counter_map,
    )
    from dvfs.errors import ArgumentError, UnsupportedError  # noqa: PLC0415
    from dvfs.files import write_output  # noqa: PLC0415
    from dvfs.input_files import built_in_files  # noqa: PLC0415

    if arguments.maps:
        for name in built_in_files(BUILT_IN_MAPS):
            say(f"{name:16} {read_counter_map(name).description}")
        return 0
    if not arguments.files:
        raise ArgumentError(
            "FILE=MAP: give at least one, such as app.csv=ncu; --maps lists the maps"
        )
    sources = []
    for text in arguments.files:
        path, equals, map_name = text.rpartition("=")
        if not equals or not path:
            maps = ", ".join(built_in_files(BUILT_IN_MAPS))
            raise ArgumentError(f"found {text!r}; must be FILE=MAP with a map of: {maps}")
        sources.append((Path(path), map_name))
    profile = read_application(
        sources,
        arguments.name or sources[0][0].name.split(".")[0],
        kernel=arguments.kernel,
        region=arguments.region,
        time_s=arguments.time_s,
        core_mhz=arguments.core_mhz,
        mem_mhz=arguments.mem_mhz,
    )
    if arguments.output is None:
        say(profile.as_toml())
    else:
        try:
            write_output(Path(arguments.output), profile.as_toml() + "\n")
        except OSError as error:
            raise UnsupportedError(f"{arguments.output}: {error.strerror}") from None
    for note in profile.notes:
        say(f"warning: {note}", sys.stderr)
    if profile.time_s is None:
        say("time_s is missing: the counters have no time; give --time-s", sys.stderr)
    return 0
