"""The command line: ``campaign VERB``. Each verb is a module of :mod:`campaign.verbs`.

Another distribution may install a package ``dvfs``, ``kernels``, ``sites`` or ``analysis`` into the
same environment, and so hide this project's package or overwrite its files. The command line checks
this first, without an import of the package: the import could fail or take seconds.
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
"""The beginning of a line in the ``__init__.py`` of each of these packages."""
TYPES = {"int": "a whole number", "float": "a number"}
FRACTION = ("--max-slowdown", ", such as 0.05")
"""An option that people write in percent, and the end of the message that helps them."""
MOST_LISTED = 6
"""The most options of a verb that an error lists where none has a similar name."""
EXIT_CODES = """\
exit codes: 0 done; 1 not all of it could be done (the last line says what is left);
2 something that was given is wrong (the message says where, and how to fix it);
130 interrupted (run it again to continue)."""
HELP_WIDTH = 78
MEASURING_VERBS = ("run", "tune", "demo", "doctor", "plan", "exec")
"""Verbs that may start kernels, which use as many threads as they ask for."""


def foreign_package() -> str | None:
    """The problem and remedy where a package is missing or is another project's; else None."""
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
        """End with the error for words that a verb does not take."""
        parser_of_verb = verbs[verb]
        option = next((word for word in words if word.startswith("-")), None)
        if option is None:
            parser_of_verb.error(f"{words[0]!r} is one argument too many; leave it out")
        name = option.partition("=")[0]
        owners = [key for key, parser in verbs.items() if name in parser.option_names()]
        options = [listed for listed in parser_of_verb.option_names() if listed != "--help"]
        similar = _did_you_mean(name, options).strip()
        if not similar and len(options) <= MOST_LISTED:
            similar = f"its options: {', '.join(options)}"
        hint = f"of {', '.join(owners[:4])}" if owners else similar or "leave it out"
        hint = f"it is an option {hint}" if owners else hint
        parser_of_verb.error(f"{verb} has no option {name}; {hint}")

    def refuse_option(self, name: str, verbs: dict[str, Parser]) -> NoReturn:
        """End with the error for an unknown option before the verb."""
        if any(name in parser.option_names() for parser in verbs.values()):
            self.error(f"{name} stands before the verb; write it behind: campaign VERB ... {name}")
        similar = _did_you_mean(name, self.option_names()).strip()
        self.error(f"unknown option {name}; {similar or 'name a verb'}")

    def takes(self, word: str) -> bool:
        """Whether a word is no option, or an option of this parser, perhaps abbreviated."""
        name = word.partition("=")[0]
        return name[:1] != "-" or any(
            option.startswith(name) for option in self._option_string_actions
        )

    def option_names(self) -> list[str]:
        """Every option, in its long form."""
        return [name for name in self._option_string_actions if name.startswith("--")]


def _for_people(parser: Parser, message: str) -> str:
    """Return argparse's message with a remedy."""
    if match := re.match(r"argument (\S+?)(?:/\S+)?: invalid choice: '(.*)' \(", message):
        name, value = match.groups()
        choices = next(
            [str(choice) for choice in action.choices or ()]
            for action in parser._actions
            if _is(action, name)
        )
        hint = _did_you_mean(value, choices)
        if name == "VERB":
            return f"unknown verb {value!r}; {hint.strip() or 'known: ' + ', '.join(choices)}"
        intro = f"{hint}Choices" if hint else "must be one of"
        return f"{name}: found {value!r}; {intro}: {', '.join(choices)}"
    if match := re.match(r"argument (\S+?)(?:/\S+)?: invalid (\w+) value: (.*)", message):
        example = FRACTION[1] if match[1] == FRACTION[0] else ""
        return f"{match[1]}: found {match[3]}; must be {TYPES.get(match[2], match[2])}{example}"
    if match := re.match(r"argument (\S+?)(?:/\S+)?: expected (.*)", message):
        return f"{match[1]}: no value; write one after it"
    if missing := re.match(r"the following arguments are required: ([^,\s]+)", message):
        action = next(a for a in parser._actions if _is(a, missing[1].partition("/")[0]))
        help_text = f", {action.help}" if action.help else ""
        return f"missing: {missing[1]}{help_text}"
    return message


def _did_you_mean(name: str, names: Iterable[str]) -> str:
    # Imported only now: this module is imported before sites is known to be this project's.
    from dvfs.errors import did_you_mean  # noqa: PLC0415

    return did_you_mean(name, names)


def _is(action: argparse.Action, name: str) -> bool:
    return name in (*action.option_strings, action.metavar, action.dest)


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
    """The parser of all verbs, or of ``only``: then the other verbs' modules are not imported."""
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
    for name, module_name in VERBS.items():
        if only not in (None, name):
            continue
        module = import_module(module_name)
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
    """Run a verb and return its exit code. Bad input gives one message on standard error and 2;
    SIGINT gives one message and 130."""
    try:
        return _run(argv)
    except KeyboardInterrupt:
        ignore_further()
        print("campaign: interrupted; run it again", file=sys.stderr)
        return INTERRUPTED


def _run(argv: Sequence[str] | None) -> int:
    problem = foreign_package()
    if problem is not None:
        print(f"campaign: {problem}", file=sys.stderr)
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
        # Matrices are small: threads of the linear algebra cost more time than they save, most of
        # all on a busy machine. Set before NumPy is imported.
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
    """The option whose value, a file, begins the message, such as ``--map: ``; empty where there is
    none, or where a positional argument has the same value."""
    verb: Parser = arguments.verbs[arguments.verb]
    options: list[str] = []
    for action in verb._actions:
        value = getattr(arguments, action.dest, None)
        if isinstance(value, str) and value and message.startswith(_beginnings(value)):
            options.append(f"{action.option_strings[-1]}: " if action.option_strings else "")
    return options[0] if options and "" not in options else ""


def _beginnings(value: str) -> tuple[str, str]:
    """The possible beginnings of a message about the file with this path."""
    return f"{value}: ", f"{Path(value).absolute()}: "
