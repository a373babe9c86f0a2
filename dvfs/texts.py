"""A column of texts, each distinct one once: what is true of a text is found once, not by row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, overload

import numpy as np


class Column(Protocol):
    """A column that ``numpy.asarray`` makes an array of, and whose rows can be taken: an array, or
    texts that are kept otherwise."""

    def __len__(self) -> int: ...
    def __getitem__(self, rows: Any, /) -> Any: ...


@dataclass(frozen=True)
class Texts(Sequence[Any]):
    """A column of texts or of other plain values, or None: ``codes``, int (rows,), are indices into
    ``values``, in which no two are the same."""

    codes: np.ndarray
    values: list[Any]

    @classmethod
    def of(cls, values: Any) -> Self:
        """The column of these values, one a row: a list, or what ``numpy.asarray`` takes."""
        if isinstance(values, cls):
            return values
        if not isinstance(values, list | tuple):
            values = np.asarray(values)
            if values.strides == (0,) and len(values):
                return cls.same(values[0], len(values))
            values = values.tolist()
        keys = values
        if {*map(type, values)} - {str}:  # 1, 1.0 and True are different values
            keys = [value if type(value) is str else (type(value), repr(value)) for value in values]
        code = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        codes = np.fromiter(map(code.__getitem__, keys), np.int32, len(values))
        if keys is values:
            return cls(codes, list(code))
        first: dict[Any, Any] = {}
        for key, value in zip(keys, values, strict=True):
            first.setdefault(key, value)
        return cls(codes, list(first.values()))

    @classmethod
    def same(cls, value: Any, rows: int) -> Self:
        """One value in all rows; it takes no memory by row."""
        return cls(np.broadcast_to(np.int32(0), rows), [value])

    @classmethod
    def coded(cls, codes: np.ndarray, values: list[Any]) -> Self:
        """The column of these codes; as :meth:`same` where they are all one."""
        if len(codes) and (codes == codes[0]).all():
            return cls.same(values[codes[0]], len(codes))
        return cls(codes.astype(np.int32), values)

    @classmethod
    def joined(cls, columns: Iterable[Texts]) -> Self:
        """Columns one below the other; of their values some may be equal."""
        code: dict[Any, int] = {}
        codes = [np.empty(0, np.int32)]
        for column in columns:
            place = [code.setdefault(value, len(code)) for value in column.values]
            codes.append(np.array(place, np.int32)[column.codes])
        return cls.coded(np.concatenate(codes), list(code))

    def __len__(self) -> int:
        return len(self.codes)

    @overload
    def __getitem__(self, row: int) -> Any: ...
    @overload
    def __getitem__(self, row: slice | np.ndarray) -> Self: ...
    def __getitem__(self, row: int | slice | np.ndarray) -> Any:
        if isinstance(row, slice | np.ndarray):
            return type(self)(self.codes[row], self.values)
        return self.values[self.codes[row]]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.array(object if dtype is None else dtype)

    def present(self) -> list[Any]:
        """The values that a row has, in their order."""
        if self.codes.strides == (0,):
            return self.values[:1] if len(self.codes) else []
        there = np.bincount(self.codes, minlength=len(self.values)) > 0
        return [self.values[i] for i in np.flatnonzero(there).tolist()]

    def mapped(self, made: Iterable[Any] | Callable[[Any], Any]) -> Self:
        """The column with other values in place of its own: in their order, or made of each."""
        values = [made(value) for value in self.values] if callable(made) else list(made)
        code = {value: i for i, value in enumerate(dict.fromkeys(values))}
        if len(code) == len(values):
            return type(self)(self.codes, values)
        return type(self)(self.array(np.int32, [code[value] for value in values]), list(code))

    def otherwise(self, other: Self) -> Self:
        """The column with the other's value in rows whose own is the empty text."""
        code = {value: i for i, value in enumerate(dict.fromkeys((*other.values, *self.values)))}
        mine = self.array(np.int32, [code[value] for value in self.values])
        theirs = other.array(np.int32, [code[value] for value in other.values])
        is_empty = self.array(bool, [value == "" for value in self.values])
        return type(self).coded(np.where(is_empty, theirs, mine), list(code))

    def array(self, dtype: Any = object, values: Sequence[Any] | None = None) -> np.ndarray:
        """One value a row; ``values``: in place of its own, of which some may be equal."""
        made = np.array(self.values if values is None else values, dtype)
        if self.codes.strides == (0,) and len(made) == 1:
            return np.broadcast_to(made, len(self.codes))
        return np.asarray(made[self.codes])


@dataclass(frozen=True)
class EqualLengths:
    """A column of ASCII texts that are equally long: ``bytes_``, S (rows,)."""

    bytes_: np.ndarray

    def __len__(self) -> int:
        return len(self.bytes_)

    def __getitem__(self, rows: slice | np.ndarray) -> Self:
        return type(self)(self.bytes_[rows])

    def __iter__(self) -> Iterator[str]:
        return iter(np.asarray(self).tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.bytes_.astype(np.dtypes.StringDType() if dtype is None else dtype)


def group_codes(columns: Iterable[Column]) -> np.ndarray:
    """int64 (rows,): rows are equal in all columns where their codes are. NaN equals NaN."""
    code: Any = np.int64(0)
    most, rows = 1, 0
    for column in columns:
        rows = len(column)
        own = column.codes if isinstance(column, Texts) else np.asarray(column)
        if own.strides == (0,):
            continue
        if not isinstance(column, Texts) and not (
            own.dtype.kind == "i" and own.min() >= 0 and own.max() <= rows
        ):
            _, own = np.unique(own, return_inverse=True)
        size = int(own.max(initial=0)) + 1
        if most * size >= 1 << 62:
            _, code = np.unique(code, return_inverse=True)
            most = int(np.max(code, initial=0)) + 1
        code, most = code * size + own, most * size
    return np.broadcast_to(code, rows).astype(np.int64)
