"""A chain of products with a given order, fusing and tiles."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from kernels.products.chain_plan import PARENT, ChainError, Choice, Node, planned_nodes
from kernels.products.movement import LEFT, OUTPUT, RIGHT, TILES, fused, product

TOKEN = re.compile(r"\s*(?:A(\d+)|([()]))")
Splits = dict[tuple[int, int], int]


def read_order(text: str, matrices: int) -> Splits:
    """The split of each product, by first and last matrix, in an order such as ``(A1A2)A3``.

    Raises:
        ChainError: the order does not multiply all matrices, in sequence, two at a time.
    """
    tokens = TOKEN.findall(text)
    if TOKEN.sub("", text).strip() or not tokens:
        raise ChainError(f"order: found {text!r}; write it as (A1A2)A3")
    splits: Splits = {}
    place = 0

    def wrong() -> ChainError:
        return ChainError(
            f"order: found {text!r}; must multiply A1 to A{matrices} in this order, two at a time, "
            f"such as (A1A2)A3"
        )

    def part() -> tuple[int, int]:
        nonlocal place
        if place == len(tokens):
            raise wrong()
        number, bracket = tokens[place]
        place += 1
        if number:
            return int(number), int(number)
        if bracket == ")":
            raise wrong()
        inside = pair()
        if place == len(tokens) or tokens[place][1] != ")":
            raise wrong()
        place += 1
        return inside

    def pair() -> tuple[int, int]:
        left, right = part(), part()
        if left[1] + 1 != right[0]:
            raise wrong()
        splits[left[0], right[1]] = left[1]
        return left[0], right[1]

    if pair() != (1, matrices) or place != len(tokens):
        raise wrong()
    return splits


def read_fused(text: str, splits: Splits) -> dict[tuple[int, int], str]:
    """The side on which a product is fused into each outer product, from the names of the inner
    products, such as ``1-2,4-5``.

    Raises:
        ChainError: a product is not in the order, is the whole chain, or is in two fusings.
    """
    sides: dict[tuple[int, int], str] = {}
    inner = set()
    for name in filter(None, text.split(",")):
        first, _, last = name.strip().partition("-")
        if not (first.isdigit() and last.isdigit()) or (int(first), int(last)) not in splits:
            known = ", ".join(f"{a}-{b}" for a, b in sorted(splits))
            raise ChainError(f"fused: found {name!r}; the products of this order are {known}")
        part = int(first), int(last)
        outer = [
            (whole, LEFT if whole[0] == part[0] else RIGHT)
            for whole, split in splits.items()
            if part in ((whole[0], split), (split + 1, whole[1]))
        ]
        if not outer:
            raise ChainError(f"fused: {name} is the whole chain; nothing follows that it can join")
        whole, side = outer[0]
        if whole in sides or whole in inner or part in inner or part in sides:
            raise ChainError(f"fused: {name} takes part in another fusing; at most two are fused")
        sides[whole] = side
        inner.add(part)
    return sides


def nodes_in_order(
    sizes: tuple[int, ...], splits: Splits, sides: dict[tuple[int, int], str], on_chip: int
) -> list[Node]:
    """The products of an order, each before the product that uses it, with the whole tiles that
    move the fewest words with ``on_chip`` numbers."""
    choice = Choice(*np.zeros((3, len(sizes), len(sizes)), np.int64))
    for whole, split in splits.items():
        side = sides.get(whole)
        choice.split[whole] = choice.inner[whole] = split
        if side is not None:
            part = (whole[0], split) if side == LEFT else (split + 1, whole[1])
            choice.way[whole] = (None, LEFT, RIGHT).index(side)
            choice.inner[whole] = splits[part]
    return planned_nodes(sizes, on_chip, TILES, choice)


def with_tile(sizes: tuple[int, ...], node: Node, tile: tuple[int, int], inner: int) -> Node:
    """A product that keeps ``tile``, clipped, of its result or of the product fused into it.

    ``inner``: the matrix after which the product fused into it splits; unused without one.
    """
    if node.fused == PARENT:
        return node
    p = sizes[node.first - 1], sizes[node.split], sizes[node.last]
    if node.fused is None:
        own = product(*p)
    else:
        p0, p1, p2, p3 = (
            sizes[cut] for cut in sorted((node.first - 1, node.split, inner, node.last))
        )
        own = fused(p0, p1, p2, p3, node.fused)
    tile_x, tile_y = min(tile[0], own.rows), min(tile[1], own.columns)
    kept = OUTPUT if node.fused is None else None
    words = own.counted(tile_x, tile_y)
    return replace(node, kept=kept, tile_x=tile_x, tile_y=tile_y, words=words)
