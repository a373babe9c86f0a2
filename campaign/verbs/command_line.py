"""The command line: ``campaign VERB``. Each verb is a module of :mod:`campaign.verbs`.

Another distribution that installs a package ``dvfs``, ``kernels``, ``sites`` or ``analysis`` into
the same environment hides ours or overwrites files of it. That is looked at first, and nothing
foreign is imported for it: it could fail, or take seconds.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill
from typing import Any, NoReturn

from campaign.launch.interrupts import INTERRUPTED, ignore_further
from campaign.verbs import VERBS

PACKAGES = ("dvfs", "kernels", "sites", "analysis")
MARK = 'OWNER = "dvfs-campaign"'
"""What a line of each of these packages' ``__init__.py`` begins with."""
TYPES = {"int": "a whole number", "float": "a number"}
FRACTION = ("--max-slowdown", ", such as 0.05")
"""The option that people write in percent, and what helps them."""
MOST_LISTED = 6
"""Options of a verb that are listed where none is near."""
EXIT_CODES = """\
exit codes: 0 done; 1 not all of it could be done (the last line says what is left);
2 something that was given is wrong (the message says where, and how to fix it);
130 interrupted (run it again to continue)."""
HELP_WIDTH = 78
MEASURING_VERBS = ("run", "tune", "demo", "doctor", "plan", "exec")
"""Verbs that may start kernels, which use as many threads as they ask for."""


def foreign_package() -> str | None:
    """What is wrong, and what to do, where a package is missing or another project's; else None."""
    ours = Path(__file__).parents[2]
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is None:
            return (
                f"the package {name!r} is missing beside {ours / 'campaign'}; install "
                f"dvfs-campaign again"
            )
        folder = Path(next(iter(spec.submodule_search_locations or [spec.origin or "?"])))
        lines = _text(folder / "__init__.py").splitlines()
        if folder.parent.samefile(ours) and any(line.startswith(MARK) for line in lines):
            continue
        return (
            f"the package {name!r} in {folder} belongs to another project, and hides or overwrites "
            f"the one of dvfs-campaign; install dvfs-campaign in an environment of its own: "
            f"python -m venv ENV && ENV/bin/pip install dvfs-campaign"
        )
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2 and one line that names the argument and the remedy."""
        print(f"{self.prog}: {_for_people(self, message)} ({self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)

    def refuse_unknown(self, words: list[str], verb: str, verbs: dict[str, Parser]) -> NoReturn:
        """The error for words that a verb does not take."""
        parser_of_verb = verbs[verb]
        option = next((word for word in words if word.startswith("-")), None)
        if option is None:
            parser_of_verb.error(f"{words[0]!r} is one argument too many; leave it out")
        name = option.partition("=")[0]
        others = [other for other, parser in verbs.items() if name in parser.option_names()]
        options = [known for known in parser_of_verb.option_names() if known != "--help"]
        near = _did_you_mean(name, options).strip()
        if not near and len(options) <= MOST_LISTED:
            near = f"its options: {', '.join(options)}"
        hint = f"of {', '.join(others[:4])}" if others else near or "leave it out"
        hint = f"it is an option {hint}" if others else hint
        parser_of_verb.error(f"{verb} has no option {name}; {hint}")

    def refuse_option(self, name: str, verbs: dict[str, Parser]) -> NoReturn:
        """The error for an option before the verb that is none of the program's."""
        if any(name in parser.option_names() for parser in verbs.values()):
            self.error(f"{name} stands before the verb; write it behind: campaign VERB ... {name}")
        near = _did_you_mean(name, self.option_names()).strip()
        self.error(f"unknown option {name}; {near or 'name a verb'}")

    def takes(self, word: str) -> bool:
        """Whether a word is no option, or one that this parser knows, perhaps shortened."""
        name = word.partition("=")[0]
        return name[:1] != "-" or any(
            option.startswith(name) for option in self._option_string_actions
        )

    def actions(self) -> list[argparse.Action]:
        """Every argument."""
        return list(self._actions)

    def option_names(self) -> list[str]:
        """Every option as it is written in full."""
        return [name for name in self._option_string_actions if name.startswith("--")]


def _for_people(parser: Parser, message: str) -> str:
    """argparse's message with a remedy."""
    if wrong := re.match(r"argument (\S+?)(?:/\S+)?: invalid choice: '(.*)' \(", message):
        name, value = wrong.groups()
        choices = next(_strings(action.choices) for action in parser._actions if _is(action, name))
        hint = _did_you_mean(value, choices)
        if name == "VERB":
            return f"unknown verb {value!r}; {hint.strip() or 'known: ' + ', '.join(choices)}"
        intro = f"{hint}Choices" if hint else "must be one of"
        return f"{name}: found {value!r}; {intro}: {', '.join(choices)}"
    if wrong := re.match(r"argument (\S+?)(?:/\S+)?: invalid (\w+) value: (.*)", message):
        example = FRACTION[1] if wrong[1] == FRACTION[0] else ""
        return f"{wrong[1]}: found {wrong[3]}; must be {TYPES.get(wrong[2], wrong[2])}{example}"
    if wrong := re.match(r"argument (\S+?)(?:/\S+)?: expected (.*)", message):
        return f"{wrong[1]}: no value; write one after it"
    if missing := re.match(r"the following arguments are required: ([^,\s]+)", message):
        action = next(a for a in parser._actions if _is(a, missing[1].partition("/")[0]))
        about = f", {action.help}" if action.help else ""
        return f"missing: {missing[1]}{about}"
    return message


def _did_you_mean(name: str, names: Iterable[str]) -> str:
    # Imported only now: this module is imported before sites is known to be this project's.
    from dvfs.errors import did_you_mean  # noqa: PLC0415

    return did_you_mean(name, names)


def _is(action: argparse.Action, name: str) -> bool:
    return name in (*action.option_strings, action.metavar, action.dest)


def _strings(choices: Any) -> list[str]:
    return [str(choice) for choice in choices or ()]


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
