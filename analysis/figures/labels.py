"""The names of kernels, families of kernels, settings and units in figures and tables."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from analysis.measurements.observations import setting_text
from dvfs.dataset import class_unit, moves_data
from dvfs.kernel_instance import KernelInstance
from dvfs.setting import AS_FOUND, Setting

Row = TypeVar("Row")
OTHERS = "others"
MOST_FAMILIES = 16
"""The most families that all keep their names in figures, even with a single kernel."""


def kernel_families(kernels: Sequence[KernelInstance]) -> dict[str, str]:
    """Label -> the kernel's family: its name without parameters.

    If most kernels have different names, the family is the first word, up to an underscore or a
    space; if that is the same in all, further words are added. If there are many families, those of
    a single kernel become one.
    """
    families = {kernel.label: kernel.name for kernel in kernels}
    if len(set(families.values())) > max(len(kernels) // 2, 8):
        n_words = 1
        families = _first_words(kernels, n_words)
        while len(set(families.values())) == 1:
            n_words += 1
            longer = _first_words(kernels, n_words)
            if len(set(longer.values())) > MOST_FAMILIES or longer == families:
                break
            families = longer
    sizes = Counter(families.values())
    if [*sizes.values()].count(1) > 3 and len(sizes) > MOST_FAMILIES:
        return {k: OTHERS if sizes[name] == 1 else name for k, name in families.items()}
    return families


def _first_words(kernels: Sequence[KernelInstance], n_words: int) -> dict[str, str]:
    """Label -> the first words of the kernel's name."""
    return {
        kernel.label: "".join(re.split(r"([ _])", kernel.name)[: 2 * n_words - 1]) or kernel.name
        for kernel in kernels
    }


def marked(text: str, simulated: bool) -> str:
    """A text with a mark if it is about a simulated machine."""
    return f"{text}, simulated" if simulated else text


def by_family(rows: Mapping[str, Row], families: Mapping[str, str]) -> dict[str, list[Row]]:
    """Family -> the rows of its kernels, from label -> row: families in the order of
    :func:`family_order`, kernels in that of :func:`natural`."""
    groups: dict[str, list[Row]] = {}
    for kernel in sorted(rows, key=natural):
        groups.setdefault(families[kernel], []).append(rows[kernel])
    return {name: groups[name] for name in family_order(groups)}


def family_order(names: Iterable[str]) -> list[str]:
    """The families sorted by name, :data:`OTHERS` last."""
    return sorted(names, key=lambda name: (name == OTHERS, natural(name)))


def natural(text: str) -> list[tuple[int, float, str]]:
    """A key that sorts ``x=8`` before ``x=16``."""
    return [
        (0, float(part), "") if part.isdecimal() else (1, 0.0, part)
        for part in re.split(r"(\d+)", text)
    ]


def shortened(text: str, characters: int) -> str:
    """The text, cut to a number of characters with an ellipsis if it is longer."""
    return text if len(text) <= characters else f"{text[: max(characters, 2) - 1].rstrip()}…"


def some_of(shown: int, total: int, noun: str) -> str:
    """``8 of 116 kernels``, or ``8 kernels`` if all are shown."""
    return f"{shown} of {total} {noun}" if shown < total else f"{shown} {noun}"


def told_apart(texts: Sequence[str], characters: int) -> list[str]:
    """The texts, cut to a number of characters so that different texts stay different.

    Texts that would become the same lose their common beginning instead.
    """
    short = {text: shortened(text, characters) for text in texts}
    for cut in set(short.values()):
        alike = [text for text in short if short[text] == cut]
        if len(alike) > 1:
            ends = zip(min(alike), max(alike), strict=False)
            n_common = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], ends))
            start = max(alike[0].rfind(mark, 0, n_common) for mark in " /_=-.") + 1 or n_common
            tails = told_apart([text[start:] for text in alike], characters - 1)
            short |= {text: f"…{tail}" for text, tail in zip(alike, tails, strict=True)}
    return [short[text] for text in texts]


def setting_label(setting: Setting) -> str:
    """The text of a setting in reports: ``852/924 MHz``, or ``clocks as found`` without any."""
    return "clocks as found" if setting == AS_FOUND else setting_text(setting)


def unit_name(name: str) -> str:
    """The unit of a class's counts: ``flop``, ``op`` or ``B`` (bytes)."""
    return "B" if moves_data(name) else class_unit(name)


def file_stem(text: str) -> str:
    """A text as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")
