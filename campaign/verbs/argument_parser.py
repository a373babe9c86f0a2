"""The parser of the command line: what is wrong with the arguments, in one line with a remedy."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

TYPES = {"int": "a whole number", "float": "a number"}
FRACTION = ("--max-slowdown", ", such as 0.05")
"""The option that people write in percent, and what helps them."""
MOST_LISTED = 6
"""Options of a verb that are listed where none is near."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        """End with exit code 2 and one line that names the argument and the remedy."""
        print(f"{self.prog}: {_for_people(self, message)} ({self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)

    def refuse_unknown(self, words: list[str], verb: str, verbs: dict[str, Parser]) -> NoReturn:
        """The error for words that a verb does not take."""
        own = verbs[verb]
        option = next((word for word in words if word.startswith("-")), None)
        if option is None:
            own.error(f"{words[0]!r} is one argument too many; leave it out")
        name = option.partition("=")[0]
        others = [other for other, parser in verbs.items() if name in parser.option_names()]
        options = [known for known in own.option_names() if known != "--help"]
        near = _did_you_mean(name, options).strip()
        if not near and len(options) <= MOST_LISTED:
            near = f"its options: {', '.join(options)}"
        hint = f"of {', '.join(others[:4])}" if others else near or "leave it out"
        hint = f"it is an option {hint}" if others else hint
        own.error(f"{verb} has no option {name}; {hint}")

    def refuse_option(self, name: str, verbs: dict[str, Parser]) -> NoReturn:
        """The error for an option before the verb that is none of the program's."""
        if any(name in parser.option_names() for parser in verbs.values()):
            self.error(f"{name} stands before the verb; write it behind: campaign VERB ... {name}")
        near = _did_you_mean(name, self.option_names()).strip()
        self.error(f"unknown option {name}; {near or 'name a verb'}")

    def takes(self, word: str) -> bool:
        """Whether a word is no option, or one that this parser knows, perhaps shortened."""
        name = word.partition("=")[0]
        return name[:1] != "-" or any(own.startswith(name) for own in self._option_string_actions)

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
    from dvfs.names import did_you_mean  # noqa: PLC0415

    return did_you_mean(name, names)


def _is(action: argparse.Action, name: str) -> bool:
    return name in (*action.option_strings, action.metavar, action.dest)


def _strings(choices: Any) -> list[str]:
    return [str(choice) for choice in choices or ()]
