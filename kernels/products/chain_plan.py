"""The order and the fusing of a chain of products that move the fewest words.

Algorithms 10 and 11 of Prajapati 2019, appendix D, and its equations D.18 to D.26, as one dynamic
program over sub-chains: the last product of a sub-chain can split it anywhere, and is fused with
the product of its left part, with the product of its right part, or not fused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dvfs.errors import UserError
from kernels.products.movement import (
    CORRECTED,
    FORMS,
    LEFT,
    OUTPUT,
    PRINTED,
    RIGHT,
    TILES,
    best_fused,
    best_kept,
    fused,
    printed_right,
    printed_right_tile,
    product,
)

OPS, WORDS, TIME = "ops", "words", "time"
PARENT = "parent"
LARGEST = 10**9
"""The largest size and capacity, so that products of three are sufficiently exact as floats."""


DRAWN = (320, 1024, 8)
"""The sizes of random chains: smallest, largest, and divisor. They reproduce the averages of
Prajapati 2019, Table D.1, which does not state its sizes."""


class ChainError(UserError, ValueError):
    """A chain that cannot be planned."""


@dataclass(frozen=True)
class Rates:
    """The rates of a machine per second: multiply-adds, and words to and from main memory."""

    ops_per_s: float
    words_per_s: float


@dataclass(frozen=True)
class Choice:
    """The last product of each sub-chain, int64 (n + 1, n + 1) by first and last matrix: ``split``,
    the matrix after which it splits; ``way``, 0 unfused, 1 and 2 fused with the product of its left
    and right part; ``inner``, the matrix after which this fused product splits."""

    split: np.ndarray
    way: np.ndarray
    inner: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Node:
    """The product of matrices ``first`` to ``last``, counted from 1, split after ``split``.

    ``fused``: ``left`` or ``right`` if the product of that part is fused into it, ``parent`` if it
    is fused into the product that uses it, else None. ``kept``: in an unfused product, the matrix
    whose tile stays on chip. ``tile_x``, ``tile_y``: rows and columns of the tile, integers in the
    form ``tiles``. With ``parent``, the tile is None, and ``words`` is 0 because the parent has
    them.
    """

    first: int
    last: int
    split: int
    fused: str | None = None
    kept: str | None = None
    tile_x: float | None = None
    tile_y: float | None = None
    words: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ChainPlan:
    """The plan of the product of a chain of matrices (P0, P1), (P1, P2), ....

    ``ops``: multiply-adds; ``words``: numbers moved to and from main memory if ``on_chip`` numbers
    fit on chip; ``unfused_words``: the same for this order without fusing; ``time_s``: with rates,
    the sum over the products of the longer time of operations and words, else None. ``nodes``: the
    products, each before the product that uses it.
    """

    sizes: tuple[int, ...]
    on_chip: int
    objective: str
    form: str
    ops: int
    words: float
    unfused_words: float
    time_s: float | None
    nodes: tuple[Node, ...]

    @property
    def reduction_pct(self) -> float:
        """The share of the words that fusing saves, in %."""
        return 100.0 * (1.0 - self.words / self.unfused_words) if self.unfused_words else 0.0

    @property
    def order(self) -> str:
        """The products in parentheses: ``(A1(A2A3))A4``."""
        splits = {(node.first, node.last): node.split for node in self.nodes}

        def text(first: int, last: int, outer: bool = False) -> str:
            if first == last:
                return f"A{first}"
            split = splits[first, last]
            inner = text(first, split) + text(split + 1, last)
            return inner if outer else f"({inner})"

        return text(1, len(self.sizes) - 1, outer=True)

    def as_dict(self) -> dict[str, Any]:
        """The plan as the output of ``campaign chain --json``."""
        own = {name: value for name, value in vars(self).items() if name != "nodes"}
        own |= {"sizes": list(self.sizes), "order": self.order, "reduction_pct": self.reduction_pct}
        return own | {"nodes": [dict(vars(node)) for node in self.nodes]}


def plan_chain(
    sizes: Sequence[int], on_chip: int, objective: str | Rates = OPS, form: str = CORRECTED
) -> ChainPlan:
    """Choose the order and the fusing of a chain.

    Args:
        sizes: P0, P1, ...: matrix i has P(i-1) rows and P(i) columns.
        on_chip: numbers that fit on chip.
        objective: ``ops``, the fewest operations and among these orders the fewest words;
            ``words``, the fewest words and among these the fewest operations; or rates, the least
            time, each product taking the longer of its operations and its words.
        form: ``corrected``, the closed forms, in which an unfused product keeps its output, and no
            tile is larger than its matrix; ``printed``, the forms as printed in the thesis, with
            its beta; ``tiles``, whole tiles with room for streams, which can keep any operand, and
            counted words.

    Raises:
        ChainError: fewer than two sizes, one below 1, ``on_chip`` below 1, an unknown objective or
            form.
    """
    sizes = checked_sizes(sizes, on_chip, objective, form)
    nodes: list[Node] = []
    seconds = 0.0
    if len(sizes) > 2:
        choice, _, seconds = best_choice(sizes, on_chip, objective, form)
        nodes = planned_nodes(sizes, on_chip, form, choice)
    triples = [(sizes[n.first - 1], sizes[n.split], sizes[n.last]) for n in nodes]
    return ChainPlan(
        sizes=sizes,
        on_chip=on_chip,
        objective=objective if isinstance(objective, str) else TIME,
        form=form,
        ops=sum(math.prod(triple) for triple in triples),
        words=sum(node.words for node in nodes),
        unfused_words=sum(_unfused(*triple, on_chip, form)[3] for triple in triples),
        time_s=seconds if isinstance(objective, Rates) else None,
        nodes=tuple(nodes),
    )


def best_choice(
    sizes: tuple[int, ...], on_chip: int, objective: str | Rates, form: str
) -> tuple[Choice, int, float]:
    """The best plan of a chain of two or more matrices (:func:`checked_sizes`), its multiply-adds,
    and its time in seconds."""
    from kernels.products.chain_search import best_plan  # noqa: PLC0415  (it needs Numba)

    goal, rates = _goal(objective)
    own = np.array(sizes, np.float64), float(on_chip), FORMS.index(form)
    *choice, ops, seconds = best_plan(*own, goal, rates)
    return Choice(*choice), int(ops), float(seconds)


def checked_sizes(
    sizes: Sequence[int], on_chip: int, objective: str | Rates, form: str
) -> tuple[int, ...]:
    """The sizes of a chain, checked for :func:`plan_chain`.

    Raises:
        ChainError: see :func:`plan_chain`.
    """
    if len(sizes) < 2:
        raise ChainError(
            f"sizes: found {len(sizes)}; a chain of n matrices has n + 1 sizes, n at least 1"
        )
    for name, number in (*(("SIZES", size) for size in sizes), ("--on-chip", on_chip)):
        if not 1 <= number <= LARGEST:
            raise ChainError(f"{name}: found {number}; must be from 1 to {LARGEST}")
    if isinstance(objective, str) and objective not in (OPS, WORDS):
        raise ChainError(
            f"--objective: unknown {objective!r}; use {OPS}, {WORDS}, or rates "
            f"(time:OPS_PER_S,WORDS_PER_S)"
        )
    if form not in FORMS:
        raise ChainError(f"form: unknown {form!r}; use {', '.join(FORMS)}")
    if isinstance(objective, Rates):
        rates = objective.ops_per_s, objective.words_per_s
        if not all(0 < rate < math.inf for rate in rates):
            raise ChainError(
                f"--objective: found rates {rates[0]:g},{rates[1]:g}; both must be above 0"
            )
    return tuple(int(size) for size in sizes)


def _goal(objective: str | Rates) -> tuple[int, tuple[float, float]]:
    if isinstance(objective, Rates):
        return 2, (objective.ops_per_s, objective.words_per_s)
    return (OPS, WORDS).index(objective), (1.0, 1.0)


def planned_nodes(sizes: tuple[int, ...], on_chip: int, form: str, choice: Choice) -> list[Node]:
    """The products of the whole chain, each before the product that uses it."""

    def below(first: int, last: int) -> list[Node]:
        if first == last:
            return []
        split, inside = int(choice.split[first, last]), int(choice.inner[first, last])
        side = (None, LEFT, RIGHT)[int(choice.way[first, last])]
        p0, p1, p2 = sizes[first - 1], sizes[split], sizes[last]
        cuts = sorted({first - 1, split, inside, last})
        parts = [node for a, b in pairwise(cuts) for node in below(a + 1, b)]
        kept: str | None = None
        if side is None:
            kept, tile_x, tile_y, words = _unfused(p0, p1, p2, on_chip, form)
        elif side == LEFT:
            parts.append(Node(first=first, last=split, split=inside, fused=PARENT))
            four = p0, sizes[inside], p1, p2
            tile_x, tile_y, words = _fused(four, side, on_chip, form)
        else:
            parts.append(Node(first=split + 1, last=last, split=inside, fused=PARENT))
            four = p0, p1, sizes[inside], p2
            tile_x, tile_y, words = _fused(four, side, on_chip, form)
        own = Node(
            first=first,
            last=last,
            split=split,
            fused=side,
            kept=kept,
            tile_x=tile_x,
            tile_y=tile_y,
            words=words,
        )
        return [*parts, own]

    return below(1, len(sizes) - 1)


def _unfused(p0: int, p1: int, p2: int, on_chip: int, form: str) -> tuple[str, float, float, float]:
    """The kept matrix, its tile, and the words of one product."""
    if form == TILES:
        return best_kept(p0, p1, p2, on_chip)
    own = product(p0, p1, p2)
    return OUTPUT, *own.best_tile(on_chip, form), own.least(on_chip, form)


def _fused(
    four: tuple[int, int, int, int], side: str, on_chip: int, form: str
) -> tuple[float, float, float]:
    """The tile and the words of two fused products."""
    if form == TILES:
        return best_fused(*four, side, on_chip)
    if form == PRINTED and side == RIGHT:
        tile = printed_right_tile(four[0], four[1], on_chip)
        return *tile, printed_right(*four, on_chip)
    assert form in (CORRECTED, PRINTED)  # noqa: S101
    own = fused(*four, side)
    return *own.best_tile(on_chip, form), own.least(on_chip, form)


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """The savings by fusing in random chains of ``matrices`` matrices, in % of the words without
    fusing; ``error_pct``: the standard error of the average."""

    matrices: int
    average_pct: float
    error_pct: float
    least_pct: float
    most_pct: float


def random_reductions(
    matrices: Sequence[int], chains: int, on_chip: int, form: str = CORRECTED, seed: int = 0
) -> list[Reduction]:
    """Prajapati 2019, Table D.1: a row for each number of matrices, from ``chains`` random chains
    with sizes as in :data:`DRAWN`, each in the order with the fewest operations.

    Raises:
        ChainError: see :func:`plan_chain`.
    """
    low, high, step = DRAWN
    rows = []
    for count in matrices:
        random = np.random.default_rng([seed, count])
        sizes = step * random.integers(low // step, high // step + 1, (chains, count + 1))
        pct = np.array(
            [plan_chain(own, on_chip, OPS, form).reduction_pct for own in sizes.tolist()]
        )
        rows.append(
            Reduction(
                matrices=count,
                average_pct=float(pct.mean()),
                error_pct=float(pct.std(ddof=1) / math.sqrt(chains)),
                least_pct=float(pct.min()),
                most_pct=float(pct.max()),
            )
        )
    return rows
