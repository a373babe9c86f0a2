"""A column of texts that holds each distinct text once, so that work on texts is done once each,
not once a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, overload

import numpy as np


class Column(Protocol):
    """A column that ``numpy.asarray`` accepts and whose rows can be indexed: an array,
    :class:`Texts` or :class:`EqualLengths`."""

    def __len__(self) -> int: ...
    def __getitem__(self, rows: Any, /) -> Any: ...


@dataclass(frozen=True)
class Texts(Sequence[Any]):
    """A column of texts, other plain values or None: ``codes``, int (rows,), are indices into
    ``values``, which are distinct."""

    codes: np.ndarray
    values: list[Any]

    @classmethod
    def of(cls, values: Any) -> Self:
        """The column of these values, one a row: a list, or anything for ``numpy.asarray``."""
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
        """One value in all rows, without memory for each row."""
        return cls(np.broadcast_to(np.int32(0), rows), [value])

    @classmethod
    def coded(cls, codes: np.ndarray, values: list[Any]) -> Self:
        """The column of these codes; by :meth:`same` if all codes are equal."""
        if len(codes) and (codes == codes[0]).all():
            return cls.same(values[codes[0]], len(codes))
        return cls(codes.astype(np.int32), values)

    @classmethod
    def joined(cls, columns: Iterable[Texts]) -> Self:
        """The columns one below the other. They may share values."""
        code: dict[Any, int] = {}
        codes = [np.empty(0, np.int32)]
        for column in columns:
            new_codes = [code.setdefault(value, len(code)) for value in column.values]
            codes.append(np.array(new_codes, np.int32)[column.codes])
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
        """The values that at least one row has, in the order of ``values``."""
        if self.codes.strides == (0,):
            return self.values[:1] if len(self.codes) else []
        is_used = np.bincount(self.codes, minlength=len(self.values)) > 0
        return [self.values[i] for i in np.flatnonzero(is_used).tolist()]

    def mapped(self, new: Iterable[Any] | Callable[[Any], Any]) -> Self:
        """The column with each value replaced: by the new value at its index, or by ``new`` of
        it."""
        values = [new(value) for value in self.values] if callable(new) else list(new)
        code = {value: i for i, value in enumerate(dict.fromkeys(values))}
        if len(code) == len(values):
            return type(self)(self.codes, values)
        return type(self)(self.array(np.int32, [code[value] for value in values]), list(code))

    def otherwise(self, fallback: Self) -> Self:
        """The column with the value of ``fallback`` in rows of the empty text."""
        code = {v: i for i, v in enumerate(dict.fromkeys((*fallback.values, *self.values)))}
        codes = self.array(np.int32, [code[value] for value in self.values])
        fallback_codes = fallback.array(np.int32, [code[value] for value in fallback.values])
        is_empty = self.array(bool, [value == "" for value in self.values])
        return type(self).coded(np.where(is_empty, fallback_codes, codes), list(code))

    def array(self, dtype: Any = object, values: Sequence[Any] | None = None) -> np.ndarray:
        """The value of each row, (rows,). ``values``: used instead of the column's values, not
        necessarily distinct."""
        distinct = np.array(self.values if values is None else values, dtype)
        if self.codes.strides == (0,) and len(distinct) == 1:
            return np.broadcast_to(distinct, len(self.codes))
        return np.asarray(distinct[self.codes])


@dataclass(frozen=True)
class EqualLengths:
    """A column of ASCII texts of one length: ``bytes_``, S (rows,)."""

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
    """int64 (rows,): two rows have the same code if they are equal in all columns; NaN equals
    NaN."""
    code: Any = np.int64(0)
    most, rows = 1, 0
    for column in columns:
        rows = len(column)
        codes = column.codes if isinstance(column, Texts) else np.asarray(column)
        if codes.strides == (0,):
            continue
        if not isinstance(column, Texts) and not (
            codes.dtype.kind == "i" and codes.min() >= 0 and codes.max() <= rows
        ):
            _, codes = np.unique(codes, return_inverse=True)
        size = int(codes.max(initial=0)) + 1
        if most * size >= 1 << 62:
            _, code = np.unique(code, return_inverse=True)
            most = int(np.max(code, initial=0)) + 1
        code, most = code * size + codes, most * size
    return np.broadcast_to(code, rows).astype(np.int64)
