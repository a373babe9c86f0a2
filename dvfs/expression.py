"""Arithmetic over columns of numbers: the ranges and conditions of a space of variants.

Numbers, names, ``+ - * / // % **``, comparisons, ``and``, ``or``, ``not``, and the functions of
:data:`FUNCTIONS`. :mod:`ast` parses a text, only these nodes are allowed, and this module evaluates
the tree on whole columns; it never runs as Python. Integers are exact: a result that does not fit
into 64 bits is an error.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MAX_CHARS = 1000
MAX_DEPTH = 50
DEVICE = "device"
"""``device.NAME`` is a number of the site's ``[device]`` table."""

ColumnValues = Mapping[str, np.ndarray]
"""Name -> values (N,)."""


class ExpressionError(Exception):
    """An expression or its values are wrong: ``what``, and the ``remedy``."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")
        self.what, self.remedy = what, remedy


@dataclass(frozen=True)
class Expression:
    """A parsed expression, and the names that it uses: ``a`` or ``device.a``."""

    text: str
    tree: ast.expr
    names: frozenset[str]

    def values(self, columns: ColumnValues, size: int) -> np.ndarray:
        """The values (size,) for columns (size,): int64, float64 or bool; text only if the
        expression is one name.

        Raises:
            ExpressionError: a division by zero, or a value that is too large.
        """
        return _Evaluation(columns, size).of(self.tree)


def parse_expression(text: str) -> Expression:
    """Parse and check a text.

    Raises:
        ExpressionError: the text holds something that is not allowed; names what is.
    """
    if len(text) > MAX_CHARS:
        raise ExpressionError(f"{len(text)} characters long", f"use at most {MAX_CHARS}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"{text!r} is not an expression", ALLOWED) from None
    names: set[str] = set()
    _check(tree, names, MAX_DEPTH)
    return Expression(text, tree, frozenset(names))


def _check(node: ast.expr, names: set[str], depth: int) -> None:
    """Raise ExpressionError for a node that is not allowed, and collect the names."""
    if not depth:
        raise ExpressionError(
            f"nested more than {MAX_DEPTH} deep", "write it in several conditions"
        )
    for part in _parts(node, names):
        _check(part, names, depth - 1)


def _parts(node: ast.expr, names: set[str]) -> Sequence[ast.expr]:
    """The parts of an allowed node; adds a name to ``names``."""
    parts: Sequence[ast.expr] = ()
    match node:
        case ast.Constant(value=bool() | int() | float()):
            _small(np.asarray(node.value))
        case ast.Constant(value=str()):
            pass
        case ast.Name(id=name):
            names.add(name)
        case ast.Attribute(value=ast.Name(id="device"), attr=name):
            names.add(f"{DEVICE}.{name}")
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            parts = (left, right)
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.UAdd(), operand=operand):
            parts = (operand,)
        case ast.BoolOp(values=values):
            parts = values
        case ast.Compare(left=left, ops=ops, comparators=others) if COMPARISONS.keys() >= {
            type(op) for op in ops
        }:
            parts = (left, *others)
        case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]) if name in FUNCTIONS:
            least, most, _ = FUNCTIONS[name]
            if not least <= len(parts) <= most:
                number = f"{least}" if least == most else f"{least} or more"
                raise ExpressionError(f"{name} with {len(parts)} arguments", f"it takes {number}")
        case _:
            raise ExpressionError(f"{ast.unparse(node)!r} is not allowed here", ALLOWED)
    return parts


class _Evaluation:
    """Evaluates a tree on columns of one length."""

    def __init__(self, columns: ColumnValues, size: int) -> None:
        self.columns, self.size = columns, size

    def of(self, node: ast.expr) -> np.ndarray:
        return np.broadcast_to(self._value(node), (self.size,))

    def _value(self, node: ast.expr) -> np.ndarray:
        result: np.ndarray
        match node:
            case ast.Constant(value=constant):
                result = np.asarray(constant)
            case ast.Name(id=name):
                result = self.columns[name]
            case ast.Attribute(attr=name):
                result = self.columns[f"{DEVICE}.{name}"]
            case ast.BinOp(left=left, op=op, right=right):
                operands = _number(self._value(left)), _number(self._value(right))
                result = OPERATORS[type(op)](*operands)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                result = np.logical_not(_truth(self._value(operand)))
            case ast.UnaryOp(op=op, operand=operand):
                number = _number(self._value(operand))
                result = -number if isinstance(op, ast.USub) else number
            case ast.BoolOp(op=op, values=parts):
                result = self._shortened(parts, isinstance(op, ast.And))
            case ast.Compare(left=left, ops=ops, comparators=others):
                values = [self._value(part) for part in (left, *others)]
                pairs = zip(ops, values[:-1], values[1:], strict=True)
                truths = [_compared(COMPARISONS[type(op)], a, b) for op, a, b in pairs]
                result = np.logical_and.reduce(np.broadcast_arrays(*truths))
            case ast.Call(func=ast.Name(id=name), args=arguments):
                result = FUNCTIONS[name][2](*(_number(self._value(part)) for part in arguments))
            case _:
                raise AssertionError(ast.dump(node))
        return result

    def _shortened(self, parts: list[ast.expr], is_and: bool) -> np.ndarray:
        """``and`` (``is_and``) or ``or``: evaluate a part only where the earlier ones leave the
        result open, so that ``k > 0 and 8 % k == 0`` never divides by zero."""
        result = np.full(self.size, is_and)
        undecided = np.arange(self.size)
        for part in parts:
            columns = {name: values[undecided] for name, values in self.columns.items()}
            truth = _truth(_Evaluation(columns, len(undecided)).of(part))
            result[undecided[truth != is_and]] = not is_and
            undecided = undecided[truth == is_and]
        return result


def _number(value: np.ndarray) -> np.ndarray:
    if value.dtype.kind not in "bif":
        raise ExpressionError("arithmetic with a text", "compare texts with == or != only")
    return value.astype(np.int64) if value.dtype.kind == "b" else value


def _truth(value: np.ndarray) -> np.ndarray:
    return _number(value) != 0 if value.dtype.kind != "b" else value


def _compared(
    compare: Callable[[Any, Any], Any], left: np.ndarray, right: np.ndarray
) -> np.ndarray:
    texts = [value.dtype.kind not in "bif" for value in (left, right)]
    if any(texts) and compare not in (operator.eq, operator.ne):
        raise ExpressionError("a text in a comparison by size", "compare texts with == or != only")
    if texts[0] != texts[1]:
        return np.asarray(compare is operator.ne)
    return np.asarray(compare(left, right))


def _small(value: np.ndarray) -> np.ndarray:
    """Return the value if it is finite and below 2^62; else raise ExpressionError."""
    try:
        fits = bool(np.all(np.isfinite(value)) and np.all(np.abs(value) < MOST))
    except TypeError:  # an integer that needs more than 64 bits
        fits = False
    if not fits:
        raise ExpressionError("a value of 2^62 or more", "use smaller numbers")
    return value


def _exact(
    compute: Callable[[Any, Any], Any], bound: Callable[[float, float], float]
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """An operator that checks integers for overflow, which NumPy ignores. ``bound``: an upper bound
    of the result, from the largest operands."""

    def operate(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        if not bound(_largest(left), _largest(right)) < MOST:
            with np.errstate(over="ignore", invalid="ignore"):
                _small(compute(left.astype(float), right.astype(float)))
        return np.asarray(compute(left, right))

    return operate


def _largest(value: np.ndarray) -> float:
    return max(float(np.max(value, initial=0)), -float(np.min(value, initial=0)))


def _power(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        estimate = _small(left.astype(float) ** right.astype(float))
    if left.dtype.kind == right.dtype.kind == "i" and np.all(right >= 0):
        return np.asarray(left**right)
    return np.asarray(estimate)


def _divided(
    compute: Callable[[Any, Any], Any],
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def operate(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        if np.any(right == 0):
            raise ExpressionError(
                "a division by zero", "leave 0 out, or test it before: `k > 0 and 8 % k == 0`"
            )
        return np.asarray(compute(left, right))

    return operate


def _divides(divisor: np.ndarray, value: np.ndarray) -> np.ndarray:
    is_zero = divisor == 0
    return np.asarray(np.where(is_zero, value == 0, value % np.where(is_zero, 1, divisor) == 0))


def _rounded(compute: Callable[[Any], Any]) -> Callable[[np.ndarray], np.ndarray]:
    def operate(value: np.ndarray) -> np.ndarray:
        return value if value.dtype.kind == "i" else _small(compute(value)).astype(np.int64)

    return operate


def _of_all(compute: Callable[[Any, Any], Any]) -> Callable[..., np.ndarray]:
    return lambda *values: functools.reduce(compute, values)


MOST = 1 << 62
OPERATORS: dict[type[ast.operator], Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    ast.Add: _exact(operator.add, operator.add),
    ast.Sub: _exact(operator.sub, operator.add),
    ast.Mult: _exact(operator.mul, operator.mul),
    ast.Div: _divided(operator.truediv),
    ast.FloorDiv: _divided(operator.floordiv),
    ast.Mod: _divided(operator.mod),
    ast.Pow: _power,
}
COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
FUNCTIONS: dict[str, tuple[int, int, Callable[..., np.ndarray]]] = {
    "min": (2, 99, _of_all(np.minimum)),
    "max": (2, 99, _of_all(np.maximum)),
    "ceil": (1, 1, _rounded(np.ceil)),
    "floor": (1, 1, _rounded(np.floor)),
    "divides": (2, 2, _divides),
}
"""Name -> the least and the greatest number of arguments, and the function. ``divides(a, b)``:
whether b is a multiple of a."""
ALLOWED = (
    "use numbers, names, + - * / // % **, comparisons, and, or, not, "
    + ", ".join(FUNCTIONS)
    + ", device.NAME"
)
