"""The command line: ``campaign VERB``. Each verb is a module of :mod:`campaign.verbs`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from textwrap import fill
from typing import Any

from campaign.launch.interrupts import INTERRUPTED, ignore_further
from campaign.verbs import VERBS
from campaign.verbs.argument_parser import Parser
from campaign.verbs.own_packages import foreign_package

EXIT_CODES = """\
exit codes: 0 done; 1 not all of it could be done (the last line says what is left);
2 something that was given is wrong (the message says where, and how to fix it);
130 interrupted (run it again to continue)."""
HELP_WIDTH = 78
MEASURING_VERBS = ("run", "tune", "demo", "doctor", "plan", "exec")
"""Verbs that may start kernels, which use as many threads as they ask for."""


class _Version(argparse.Action):
    def __call__(self, *_: Any) -> None:
        from importlib.metadata import version  # noqa: PLC0415

        print(f"campaign {version('dvfs-campaign')}")
        raise SystemExit(0)


class _Completion(argparse.Action):
    """Print a completion script for a shell; shtab makes it from the parser."""

    def __call__(self, parser: argparse.ArgumentParser, _: Any, shell: Any, *__: Any) -> None:
        import shtab  # noqa: PLC0415

        print(shtab.complete(parser, shell))
        raise SystemExit(0)


def parser(only: str | None = None) -> Parser:
    """All verbs with their help, or one alone: the modules of the others are not imported."""
    top = Parser(
        prog="campaign",
        description=fill(
            "Measure kernels over sites and DVFS settings; fit an energy model; pick the clocks "
            "that cost the least energy.",
            HELP_WIDTH,
        ),
        epilog="example:\n  campaign demo\n\n" + EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action=_Version, nargs=0, help="print the version")
    top.add_argument(
        "--print-completion",
        action=_Completion,
        choices=("bash", "zsh", "tcsh"),
        help="print a completion script for this shell",
    )
    verbs = top.add_subparsers(metavar="VERB", parser_class=Parser)
    top.set_defaults(verb=None, verbs=verbs.choices)
    for name, where in VERBS.items():
        if only not in (None, name):
            continue
        module = import_module(where)
        summary = f"{module.SUMMARY[0].upper()}{module.SUMMARY[1:]}."
        verb = verbs.add_parser(
            name,
            help=module.SUMMARY,
            description=fill(f"{summary} {getattr(module, 'MORE', '')}", HELP_WIDTH),
            epilog=f"example:\n  {module.EXAMPLE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(verb)
        verb.set_defaults(verb=name)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb; its exit code. Bad input is one message on standard error and 2; after SIGINT
    it is one message and 130."""
    try:
        return _run(argv)
    except KeyboardInterrupt:
        ignore_further()
        print("campaign: interrupted; run it again", file=sys.stderr)
        return INTERRUPTED


def _run(argv: Sequence[str] | None) -> int:
    wrong = foreign_package()
    if wrong is not None:
        print(f"campaign: {wrong}", file=sys.stderr)
        return 2
    from dvfs.errors import exit_code  # noqa: PLC0415  (dvfs may have been another project's)
    from dvfs.extras import explain_missing  # noqa: PLC0415

    words = list(sys.argv[1:] if argv is None else argv)
    top = parser(words[0] if words and words[0] in VERBS else None)
    if words and not top.takes(words[0]):
        top.refuse_option(words[0].partition("=")[0], top.get_default("verbs"))
    arguments, unknown = top.parse_known_args(words)
    if arguments.verb is None and not unknown:
        top.print_help()  # as git does without a command, with an exit code that scripts see
        return 2
    if arguments.verb is None:
        top.refuse_option(unknown[0], arguments.verbs)
    if unknown:
        top.refuse_unknown(unknown, arguments.verb, parser().get_default("verbs"))
    if arguments.verb not in MEASURING_VERBS:
        # Matrices are small: threads of the linear algebra cost more than they bring, and much
        # more on a busy machine. Set before NumPy is imported.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        with explain_missing():
            return int(import_module(VERBS[arguments.verb]).run(arguments))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # see campaign.__main__
            raise KeyboardInterrupt from None
        from campaign.verbs.printing import say  # noqa: PLC0415

        code = exit_code(error)
        if code is None:
            raise
        message = str(error) or type(error).__name__
        if isinstance(error, MemoryError):
            message = f"there is not enough memory ({message}); use a machine with more"
        say(f"campaign: {_option_of(message, arguments)}{message}", sys.stderr)
        return code


def _option_of(message: str, arguments: argparse.Namespace) -> str:
    """The option whose value, a file, a message begins with, such as ``--map: ``; empty where
    none is, or where an argument without a name has the same value."""
    verb: Parser = arguments.verbs[arguments.verb]
    named: list[str] = []
    for action in verb.actions():
        value = getattr(arguments, action.dest, None)
        if isinstance(value, str) and value and message.startswith(_beginnings(value)):
            named.append(f"{action.option_strings[-1]}: " if action.option_strings else "")
    return named[0] if named and "" not in named else ""


def _beginnings(value: str) -> tuple[str, str]:
    """How a message about a file begins, whose path was given."""
    return f"{value}: ", f"{Path(value).absolute()}: "
