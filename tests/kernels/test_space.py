"""Spaces of variants: against loops written apart, and what is refused."""

from __future__ import annotations

import math
import time
import tomllib
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dvfs.expression import ExpressionError, parse_expression
from kernels.space import MAX_VALUES, SpaceError, Variants, read_space, variants

LIMITS = [(1024, 65536, 49152), (512, 32768, 32768), (768, 65536, 98304)]
EXAMPLE = Path(__file__).parents[2] / "examples/k20x-dgemm.toml"


VALUES = st.lists(st.integers(-5, 5), min_size=1, max_size=4, unique=True)


def built(declaration: dict[str, Any], **device: float) -> Variants:
    return variants(read_space(declaration, [], list(device)), {}, device)


def example() -> dict[str, Any]:
    """The space of a matrix product on a GPU (Anzt et al. 2015, section 2.3)."""
    space: dict[str, Any] = tomllib.loads(EXAMPLE.read_text())["kernels"][0]["space"]
    return space


def by_loops(threads: int, registers: int, shared: int) -> list[tuple[int, ...]]:
    """The variants of the example, in order."""
    rows = []
    for dim_m, dim_n in product(range(16, threads + 1, 16), repeat=2):
        t = dim_m * dim_n
        if t > threads or t % 32:
            continue
        for blk_m in range(dim_m, registers // (2 * dim_n) + 1, dim_m):
            for blk_n in range(dim_n, registers // (2 * blk_m) + 1, dim_n):
                tile = 2 * blk_m * blk_n
                if tile > min(registers, 255 * t) or tile < 64 * (blk_m + blk_n):
                    continue
                if min(registers // tile, 2048 // t) * t < 512:
                    continue
                for blk_k in range(1, 65):
                    stripes = 8 * blk_k * (blk_m + blk_n)
                    if stripes > shared or min(shared // stripes, 2048 // t) * t < 512:
                        break
                    for m_a, m_b in product(shapes(t, blk_m, blk_k), shapes(t, blk_k, blk_n)):
                        row = (dim_m, dim_n, blk_m, blk_n, blk_k, m_a, t // m_a, m_b, t // m_b)
                        rows.append((*row, 0))
                        if blk_m % (2 * m_a) == blk_k % (2 * m_b) == 0:
                            rows.append((*row, 1))
    return rows


def shapes(threads: int, down: int, across: int) -> list[int]:
    """The rows m of all m x n threads that cover down x across evenly."""
    whole = [m for m in range(1, down + 1) if threads % m == 0 and down % m == 0]
    return [m for m in whole if across % (threads // m) == 0]


@pytest.mark.parametrize(("limits", "size"), list(zip(LIMITS, (1446, 234, 4877), strict=True)))
def test_the_example_is_what_loops_find(limits: tuple[int, int, int], size: int) -> None:
    device = dict(zip(("threads", "registers", "shared_bytes"), limits, strict=True))
    space = built(example(), **device, thread_registers=255, processor_threads=2048)
    assert [tuple(variant.values()) for variant in space] == by_loops(*limits)
    assert len(space) == size


@given(
    st.lists(
        st.lists(st.integers(-5, 5), min_size=1, max_size=4, unique=True), min_size=2, max_size=3
    ),
    st.integers(-20, 20),
)
def test_lists_with_a_condition_are_the_product_of_those_that_pass(
    lists: list[list[int]], limit: int
) -> None:
    names = "abc"[: len(lists)]
    condition = " + ".join(f"{i + 1} * {name}" for i, name in enumerate(names)) + f" <= {limit}"
    declaration = dict(zip(names, lists, strict=True)) | {"where": [condition]}
    wanted = [
        row for row in product(*lists) if sum((i + 1) * x for i, x in enumerate(row)) <= limit
    ]
    if not wanted:
        with pytest.raises(SpaceError, match="no variant is left"):
            built(declaration)
        return
    space = built(declaration)
    assert [tuple(variant.values()) for variant in space] == wanted
    assert space.refused == (math.prod(map(len, lists)) - len(wanted),)


RANGES = ["1 : 30", "a : 12 * a", "-9 : 9 : 2", "20 : a : -1", "b : 40", "1 : 25 : a"]
CONDITIONS = [
    "b % 5 != 0", "divides(b, 24 * a)", "c * b <= 90", "a != 2", "c > b or divides(c, a)",
    "c % 3 == 1", "d == 1 or divides(2 * b, a * c)", "b < 28", "1 > 0",
]  # fmt: skip


@settings(max_examples=50)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4, unique=True),
    st.sampled_from([text for text in RANGES if "b" not in text]),
    st.sampled_from(RANGES),
    st.lists(st.sampled_from(CONDITIONS), max_size=5, unique=True),
)
def test_long_ranges_with_conditions_are_what_loops_find(
    listed: list[int], b_range: str, c_range: str, where: list[str]
) -> None:
    """Also how many candidates each condition refuses: those that all before it let through."""
    declaration = {"a": listed, "b": b_range, "c": c_range, "d": [0, 1], "where": where}
    wanted: list[dict[str, int]] = [{}]
    refused = [0] * len(where)
    for name in "abcd":
        bound = [row | {name: value} for row in wanted for value in domain(declaration[name], row)]
        for i, text in enumerate(where):
            if max((n for n in "abcd" if n in text.replace("divides", "")), default="a") == name:
                left = [row for row in bound if holds(text, row)]
                refused[i] += len(bound) - len(left)
                bound = left
        wanted = bound
    if not wanted:
        with pytest.raises(SpaceError):
            built(declaration)
        return
    space = built(declaration)
    assert list(space) == wanted
    assert list(space.refused) == refused


def domain(declared: Any, row: dict[str, int]) -> list[int]:
    if not isinstance(declared, str):
        return declared
    first, last, step = [eval(part, {}, dict(row)) for part in (declared + " : 1").split(":")[:3]]
    return list(range(first, last + (1 if step > 0 else -1), step))


def holds(text: str, row: dict[str, int]) -> bool:
    return bool(eval(text, {"divides": lambda d, value: value % d == 0 if d else value == 0}, row))


def test_values_keep_their_types_and_ranges_include_their_end() -> None:
    space = built({"level": ["l1", "dram"], "x": [1, 2.5], "up": "4 : 8 : 2", "down": "2 : 1 : -1"})
    first = next(iter(space))
    assert first == {"level": "l1", "x": 1, "up": 4, "down": 2}
    assert [type(value) for value in first.values()] == [str, int, int, int]
    assert len(space) == 2 * 2 * 3 * 2
    assert {v["x"] for v in built({"x": "0.1 : 0.5 : 0.1"})} == {0.1 + i * 0.1 for i in range(5)}


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(1, 9))
def test_expressions_are_python_s_arithmetic(a: int, b: int, c: int) -> None:
    columns = {name: np.array([value]) for name, value in (("a", a), ("b", b), ("c", c))}
    for text in (
        "a + b * c - a // c % 7", "-a / c ** 2", "a < b <= c or not a == b and c != 3",
        "max(a, b, c) - min(a, b)", "ceil(a / c) * floor(b / c)", "a > 0 and 100 % a < b",
    ):  # fmt: skip
        wanted = eval(text, {"ceil": math.ceil, "floor": math.floor}, {"a": a, "b": b, "c": c})
        assert parse_expression(text).values(columns, 1)[0] == pytest.approx(wanted)
    divides = parse_expression("divides(c, a)").values(columns, 1)[0]
    assert divides == (a % c == 0)


WRONG = [
    ({"a": [1], "where": ["a < zz"]}, "where", 0, "unknown name 'zz'"),
    ({"a": "1 : b", "b": [2]}, "a", None, "'b' is used before it is declared"),
    ({"a": "1 : 9 : 0"}, "a", None, "step 0"),
    ({"a": [1], "where": ["open('x')"]}, "where", 0, "not allowed"),
    ({"a": [1], "where": ["a.real > 0"]}, "where", 0, "not allowed"),
    ({"a": [1], "where": ["[x for x in a]"]}, "where", 0, "not allowed"),
    ({"a": [1], "where": ["a if a else 2"]}, "where", 0, "not allowed"),
    ({"a": [1], "where": ["max(a)"]}, "where", 0, "max with 1 arguments"),
    ({"a": [1], "where": ["min(a, b=2)"]}, "where", 0, "not allowed"),
    ({"a": "9 ** 9 ** 9"}, "a", None, r"2\^62 or more"),
    ({"a": [1], "where": ["-" * 200 + "a > 0"]}, "where", 0, "nested more than"),
    ({"a": [1], "where": ["a > 0 " * 300]}, "where", 0, "characters long"),
    ({"a": [0], "b": "1 // a"}, "b", None, "division by zero"),
    ({"a": [1, 2], "where": ["a > 0", "a > 2"]}, "where", 1, "no variant is left"),
    ({"a": "5 : 1"}, "a", None, "range '5 : 1' has no value: its last, 1, is below its first, 5"),
    ({"a": "1 : 5 : -2"}, "a", None, "its last, 5, is above its first, 1, and its step is -2"),
    (
        {"a": [1, 2], "b": "4 : a"},
        "b",
        None,
        "'4 : a' has no value with a = 1: its last, 1, is below its first, 4",
    ),
    (
        {"a": [1, 2], "b": "4 : a", "where": ["a > 1"]},
        "b",
        None,
        "'4 : a' has no value with a = 2: its last, 2, is below its first, 4",
    ),
    (
        {"a": [1, 2], "b": "2 : a", "where": ["b > 5"]},
        "where",
        0,
        "no variant is left: 'b > 5' refused the last 1 candidates; relax this condition",
    ),
    ({"a": f"1 : {MAX_VALUES * 10}"}, "a", None, "a range of 10,000,000 values"),
    ({name: list(range(1000)) for name in "abcd"}, "", None, "more than 20,000,000 variants"),
    ({"a": [1, 1]}, "a", None, "stands twice"),
    ({"a": [1, "x"]}, "a", None, "numbers only, or texts only"),
    ({"a": []}, "a", None, "give a list of values"),
    ({"a": "1 : 2 : 3 : 4"}, "a", None, "a range is"),
    ({"a": [1], "where": "a > 0"}, "where", None, "list conditions"),
    ({"a": [1], "where": ["device.cores > a"]}, "where", 0, "the site has no number device.cores"),
    ({"level": ["l1"], "where": ["level > 1"]}, "where", 0, "compare texts with =="),
    ({"where": ["1 > 0"]}, "", None, "no parameter"),
]


@pytest.mark.parametrize(("declaration", "key", "condition", "message"), WRONG)
def test_wrong_spaces_are_refused_at_once(
    declaration: dict[str, Any], key: str, condition: int | None, message: str
) -> None:
    began_s = time.process_time()
    with pytest.raises(SpaceError, match=message) as caught:
        built(declaration)
    assert (caught.value.key, caught.value.condition) == (key, condition)
    assert time.process_time() - began_s < 1.0


def test_integers_do_not_wrap_around() -> None:
    large = {"a": np.array([1 << 40, 3])}
    with pytest.raises(ExpressionError, match=r"2\^62"):
        parse_expression("a * a").values(large, 2)
    assert parse_expression("a * a > 5").values({"a": large["a"][1:]}, 1)[0]
