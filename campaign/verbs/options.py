"""Options that several verbs take."""

from __future__ import annotations

from argparse import Action, ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dvfs.errors import ArgumentError
from dvfs.setting import AS_FOUND, Setting

if TYPE_CHECKING:
    from campaign.results import Results


class Once(Action):
    """An option that may be given only once; argparse alone would keep the last value."""

    def __call__(
        self,
        parser: ArgumentParser,
        namespace: Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Keep the value, or refuse a second one."""
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{option_string}: given twice; give it once")
        setattr(namespace, self.dest, values)


def add_store(parser: ArgumentParser, needed: bool = True) -> None:
    """The store, as the first argument."""
    parser.add_argument(
        "store",
        nargs=None if needed else "?",
        metavar="S",
        help="the store: a folder that campaign run or import created",
    )


def add_site(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--site",
        action=Once,
        metavar="X",
        help="the site's name, as status prints it (default: the only one of the store)",
    )


def store_and_site(arguments: Namespace) -> tuple[Results, str]:
    """The results of the store, and the site that ``--site`` names, or the store's only one."""
    from campaign.results import open_store  # noqa: PLC0415

    store = open_store(arguments.store)
    return store, store.only_site(arguments.site)


def add_json(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_all(parser: ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="print every row, not the first 20 only")


def add_model(parser: ArgumentParser, otherwise: str = "") -> None:
    """``--model``, ``--voltage`` and ``--robust``. ``otherwise``: the help's text for what is used
    where none is given; their defaults are then None or False, else ``auto``."""
    from analysis.energy.models import (  # noqa: PLC0415
        AUTO,
        MODEL_HELP,
        MODEL_NAMES,
        VOLTAGE_HELP,
        VOLTAGE_NAMES,
    )

    default, shown = (None, f"{otherwise}, or {AUTO}") if otherwise else (AUTO, AUTO)
    parser.add_argument(
        "--model", choices=MODEL_NAMES, default=default, help=f"{MODEL_HELP} (default: {shown})"
    )
    parser.add_argument(
        "--voltage",
        choices=VOLTAGE_NAMES,
        default=default,
        help=f"{VOLTAGE_HELP} (default: {shown})",
    )
    parser.add_argument(
        "--robust",
        action="store_true",
        help="measurements far from the model count less (Huber)",
    )


def add_accept_unproven(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--accept-unproven",
        action="store_true",
        help="accept clocks that could not be verified as the requested ones, and estimated "
        "energies; results will say so",
    )


def add_fit(parser: ArgumentParser, default: str | None = "default") -> None:
    parser.add_argument(
        "--fit",
        default=default,
        metavar="NAME",
        help="the fit to use, as campaign coefficients lists them (default: the default fit)",
    )


def add_objective(parser: ArgumentParser) -> None:
    from analysis.choice.objectives import ENERGY, OBJECTIVE_HELP  # noqa: PLC0415

    parser.add_argument(
        "--objective",
        default=ENERGY.name,
        metavar="O",
        help=f"what the picks minimise: {OBJECTIVE_HELP} (default: {ENERGY.name})",
    )


def add_limits(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--max-slowdown",
        type=float,
        metavar="F",
        help="at most this fraction slower than the fastest setting",
    )
    parser.add_argument(
        "--max-power-w", type=float, metavar="W", help="at most this mean power in watts"
    )


def read_setting(text: str, option: str) -> Setting:
    """Parse the setting in an option's text: CORE,MEM in MHz, CORE where there is no memory clock,
    CORE,MEM,W or CORE,,W with a power limit, further uncore=MHZ and profile=NAME, or as-found
    (:attr:`dvfs.setting.Setting.option_text`).

    Raises:
        ArgumentError: the text has none of these forms.
    """
    if text == AS_FOUND.option_text:
        return AS_FOUND
    parts = text.split(",")
    named = dict(part.split("=", 1) for part in parts if "=" in part)
    axes = ("core_mhz", "mem_mhz", "power_limit_w")
    plain = [part for part in parts if "=" not in part]
    try:
        if len(plain) > len(axes) or not named.keys() <= {"uncore", "profile"}:
            raise ValueError
        numbers = dict(zip(axes, plain, strict=False)) | {"uncore_mhz": named.get("uncore", "")}
        values = {name: float(value) for name, value in numbers.items() if value.strip()}
        setting = Setting(**values, profile=named.get("profile"))
        if setting == AS_FOUND:
            raise ValueError
        return setting
    except ValueError:
        raise ArgumentError(
            f"{option}: found {text!r}; must be CORE,MEM in MHz, such as 852,924, or CORE alone "
            f"where there is no memory clock"
        ) from None
