"""Rows as callers give them, as the columns of batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ._errors import InvalidError, InvalidTypeError

BATCH_BYTES = 32 << 20
"""Texts of a batch, from which the next one begins."""


class Columns(NamedTuple):
    """Rows of a batch: a key, a text or vector, and columns for each."""

    keys: list[Any]
    values: list[Any]
    fields: list[dict[str, Any]]


def batches(rows: Any, value: str, size: int) -> Iterator[Columns]:
    """Splits rows into batches; ``value`` is the field that holds the text or vector."""
    keys: list[Any] = []
    values: list[Any] = []
    fields: list[dict[str, Any]] = []
    filled = 0
    for at, row in enumerate(_mappings(rows)):
        if not isinstance(row, Mapping):
            raise InvalidTypeError(f"row {at} is a {type(row).__name__}; give a dict with \"key\" and \"{value}\"")
        for name in ("key", value):
            if name not in row:
                raise InvalidError(f"row {at} has no \"{name}\"; give a dict with \"key\" and \"{value}\"")
        keys.append(row["key"])
        values.append(row[value])
        fields.append({name: other for name, other in row.items() if name not in ("key", value)})
        filled += len(row[value]) if isinstance(row[value], str) else 0
        if len(keys) >= size or filled >= BATCH_BYTES:
            yield Columns(keys, values, fields)
            keys, values, fields, filled = [], [], [], 0
    if keys:
        yield Columns(keys, values, fields)


def _mappings(rows: Any) -> Iterable[Any]:
    if isinstance(rows, (Mapping, str, bytes)):
        raise InvalidTypeError(f"one {type(rows).__name__} instead of rows; give a list of dicts")
    if hasattr(rows, "to_dict") and hasattr(rows, "columns"):
        # A DataFrame of pandas.
        names = [str(name) for name in rows.columns]
        return (
            {name: None if _is_missing(field) else field for name, field in zip(names, row)}
            for row in rows.itertuples(index=False, name=None)
        )
    if not isinstance(rows, Iterable):
        raise InvalidTypeError(f"a {type(rows).__name__} instead of rows; give a list of dicts")
    return rows


def _is_missing(field: Any) -> bool:
    """Whether pandas means that there is no value: NaN, NaT, NA."""
    return type(field).__name__ in ("NaTType", "NAType") or (isinstance(field, float) and field != field)
