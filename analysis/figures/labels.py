"""How figures and tables name kernels, families of kernels, settings and units."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

from analysis.measurements.observations import setting_text
from dvfs.dataset import class_unit, moves_data
from dvfs.kernel_instance import KernelInstance
from dvfs.setting import AS_FOUND, Setting

OTHERS = "others"
MOST_FAMILIES = 16
"""Up to so many families, each keeps its name in figures, also where it is of one kernel."""


def kernel_families(kernels: Sequence[KernelInstance]) -> dict[str, str]:
    """Label -> the kernel's family: its name without parameters.

    Where most kernels have a name of their own, the family is the first word of it, up to an
    underscore or a space; where that is the same in all, further words are added. Where there are
    many families, those of a single kernel are joined.
    """
    first = {kernel.label: kernel.name for kernel in kernels}
    if len(set(first.values())) > max(len(kernels) // 2, 8):
        n_words = 1
        first = _first_words(kernels, n_words)
        while len(set(first.values())) == 1:
            n_words += 1
            longer = _first_words(kernels, n_words)
            if len(set(longer.values())) > MOST_FAMILIES or longer == first:
                break
            first = longer
    sizes = {name: list(first.values()).count(name) for name in set(first.values())}
    alone = [name for name, size in sizes.items() if size == 1]
    if len(alone) > 3 and len(sizes) > MOST_FAMILIES:
        return {k: OTHERS if name in alone else name for k, name in first.items()}
    return first


def _first_words(kernels: Sequence[KernelInstance], n_words: int) -> dict[str, str]:
    """Label -> the first words of the kernel's name."""
    return {
        kernel.label: "".join(re.split(r"([ _])", kernel.name)[: 2 * n_words - 1]) or kernel.name
        for kernel in kernels
    }


def family_order(names: Iterable[str]) -> list[str]:
    """Families by name, the others last."""
    return sorted(names, key=lambda name: (name == OTHERS, natural(name)))


def natural(text: str) -> list[tuple[int, float, str]]:
    """A key that sorts ``x=8`` before ``x=16``."""
    return [
        (0, float(part), "") if part.isdecimal() else (1, 0.0, part)
        for part in re.split(r"(\d+)", text)
    ]


def shortened(text: str, characters: int) -> str:
    """A text cut to a number of characters, with an ellipsis where it is cut."""
    return text if len(text) <= characters else f"{text[: max(characters, 2) - 1].rstrip()}…"


def some_of(shown: int, there: int, what: str) -> str:
    """``8 of 116 kernels``; ``8 kernels`` where all are shown."""
    return f"{shown} of {there} {what}" if shown < there else f"{shown} {what}"


def told_apart(texts: Sequence[str], characters: int) -> list[str]:
    """Texts cut to a number of characters so that different ones stay different.

    Those that would be the same are cut at their beginning instead, as far as they agree.
    """
    short = {text: shortened(text, characters) for text in texts}
    for cut in set(short.values()):
        alike = [text for text in short if short[text] == cut]
        if len(alike) > 1:
            ends = zip(min(alike), max(alike), strict=False)
            same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], ends))
            begin = max(alike[0].rfind(mark, 0, same) for mark in " /_=-.") + 1 or same
            rests = told_apart([text[begin:] for text in alike], characters - 1)
            short |= {text: f"…{rest}" for text, rest in zip(alike, rests, strict=True)}
    return [short[text] for text in texts]


def setting_label(setting: Setting) -> str:
    """A setting as the report writes it: ``852/924 MHz``; ``clocks as found`` without any."""
    return "clocks as found" if setting == AS_FOUND else setting_text(setting)


def unit_name(name: str) -> str:
    """What a class counts: ``flop``, ``op`` or ``B`` (bytes)."""
    return "B" if moves_data(name) else class_unit(name)


def file_stem(text: str) -> str:
    """A text as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")
