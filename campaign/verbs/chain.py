"""chain: the order and the fusion of a chain of matrix products."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING

from campaign.verbs import options
from campaign.verbs.printing import answer, explain, print_json, print_table
from dvfs.errors import ArgumentError

if TYPE_CHECKING:
    from kernels.products.chain_plan import ChainPlan, Node, Rates

SUMMARY = "plan a chain of matrix products so that the least moves to and from memory"
EXAMPLE = "campaign chain 936,1008,552,368,1016,616,544 --on-chip 65536"
MORE = (
    "Matrix i has P(i-1) rows and P(i) columns. Two products that follow each other can be fused: "
    "the matrix between them is made tile by tile, stays on chip, and is never written. Nothing is "
    "measured."
)
OBJECTIVES = (
    "ops (default: fewest operations, then fewest words), words, or time:OPS_PER_S,WORDS_PER_S "
    "(multiply-adds, and numbers to and from memory, in a second)"
)
KEPT_TEXTS = {
    "output": "its result",
    "left operand": "left matrix",
    "right operand": "right matrix",
}
COLUMNS = ("product", "result", "of", "kept on chip", "tile", "words")
FORM_TEXTS = {
    "tiles": "whole tiles, words counted",
    "corrected": "closed forms",
    "printed": "closed forms as printed",
}


MATRICES = range(2, 21)
"""The numbers of matrices in random chains (Prajapati 2019, Table D.1)."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "sizes",
        metavar="SIZES",
        nargs="?",
        help="P0,P1,...,Pn with commas: matrix i has P(i-1) rows and P(i) columns, so that 4,5,6 "
        "is a 4 x 5 matrix times a 5 x 6 matrix",
    )
    parser.add_argument(
        "--on-chip",
        metavar="M",
        default="65536",
        help="numbers, not bytes, that the on-chip memory holds, a cache or shared memory "
        "(default: 65536)",
    )
    parser.add_argument("--objective", metavar="O", default="ops", help=OBJECTIVES)
    parser.add_argument(
        "--form",
        choices=tuple(FORM_TEXTS),
        default="corrected",
        help="corrected (default): closed forms, an unfused product keeps its result on chip; "
        "printed: those of Prajapati 2019, appendix D, with the thesis's slip in D.11; tiles: "
        "whole tiles with room for what streams by, any matrix kept, words counted",
    )
    parser.add_argument(
        "--random",
        metavar="CHAINS",
        help="without SIZES: what fusing saves in so many random chains of 2 to 20 matrices, with "
        "sizes from 320 to 1,024 (Prajapati 2019, Table D.1)",
    )
    options.add_json(parser)


def run(arguments: Namespace) -> int:
    """Print the plan."""
    from kernels.products.chain_plan import plan_chain  # noqa: PLC0415

    if (arguments.sizes is None) == (arguments.random is None):
        raise ArgumentError("chain: give SIZES, such as 936,1008,552, or --random CHAINS")
    if arguments.random is not None:
        return _random(arguments)
    sizes = [_whole(text, "SIZES") for text in arguments.sizes.split(",")]
    if len(sizes) < 2:
        raise ArgumentError(
            f"SIZES: found one number; give at least two, such as {sizes[0]},1008 for one matrix"
        )
    on_chip = _whole(arguments.on_chip, "--on-chip")
    plan = plan_chain(sizes, on_chip, _objective(arguments.objective), arguments.form)
    return answer(arguments.json, plan.as_dict, lambda: _print(plan))


def _random(arguments: Namespace) -> int:
    from kernels.products.chain_plan import OPS, random_reductions  # noqa: PLC0415

    chains = _whole(arguments.random, "--random")
    if chains < 2:
        raise ArgumentError(f"--random: found {chains}; must be 2 or more")
    if arguments.objective != OPS:
        raise ArgumentError(f"--objective: --random takes {OPS} only")
    on_chip = _whole(arguments.on_chip, "--on-chip")
    rows = random_reductions(MATRICES, chains, on_chip, arguments.form)
    if arguments.json:
        print_json([asdict(row) for row in rows])
        return 0
    explain(
        f"words that fusing saves, in %, over {chains} random chains for each number of matrices, "
        f"{on_chip:,} on chip ({FORM_TEXTS[arguments.form]})"
    )
    header = ["matrices", "average", "its error", "least", "most"]
    print_table(header, [list(asdict(row).values()) for row in rows])
    average = sum(row.average_pct for row in rows[1:]) / len(rows[1:])
    explain(f"average of 3 to {MATRICES[-1]} matrices: {average:.2f} %")
    return 0


def _whole(text: str, option: str) -> int:
    try:
        return int(text)
    except ValueError:
        remedy = "; separate the sizes with commas" if option == "SIZES" and "x" in text else ""
        raise ArgumentError(f"{option}: found {text!r}; must be a whole number{remedy}") from None


def _objective(text: str) -> str | Rates:
    from kernels.products.chain_plan import Rates  # noqa: PLC0415

    if not text.startswith("time"):
        return text
    try:
        ops_per_s, words_per_s = map(float, text.removeprefix("time:").split(","))
    except ValueError:
        raise ArgumentError(
            f"--objective: found {text!r}; write time:OPS_PER_S,WORDS_PER_S, such as time:2e10,1e9"
        ) from None
    return Rates(ops_per_s, words_per_s)


def _print(plan: ChainPlan) -> None:
    explain(f"order: {plan.order}")
    explain(f"operations: {plan.ops:,} multiply-adds")
    explain(
        f"words: {round(plan.words):,} to and from memory with {plan.on_chip:,} on chip "
        f"({FORM_TEXTS[plan.form]}); without fusing {round(plan.unfused_words):,}; "
        f"{plan.reduction_pct:.1f} % less"
    )
    if plan.time_s is not None:
        explain(f"time: {plan.time_s:.3g} s at these rates")
    if plan.nodes:
        print_table(COLUMNS, [_row(plan, node) for node in plan.nodes])


def _row(plan: ChainPlan, node: Node) -> list[str]:
    result = f"{plan.sizes[node.first - 1]} x {plan.sizes[node.last]}"
    left, right = _name(node.first, node.split), _name(node.split + 1, node.last)
    row = [_name(node.first, node.last), result, f"{left} times {right}"]
    if node.tile_x is None or node.tile_y is None:
        return [*row, "fused into the next", "", ""]
    on_chip = {"left": left, "right": right, None: KEPT_TEXTS.get(node.kept or "")}[node.fused]
    tile = f"{round(node.tile_x)} x {round(node.tile_y)}"
    return [*row, f"{on_chip}", tile, f"{round(node.words):,}"]


def _name(first: int, last: int) -> str:
    return f"A{first}" if first == last else f"A{first}..A{last}"
