"""Filters: SQL as it is, and dicts in the manner of MongoDB translated to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, timezone
from typing import Any, Union

from ._errors import InvalidError, InvalidTypeError

Where = Union[str, Mapping[str, Any]]
"""A condition in SQL, ``"year >= 2020 AND lang = 'en'"``, or as a dict, ``{"year": {"$gte": 2020}, "lang": "en"}``."""

_COMPARISONS = {"$eq": "=", "$ne": "<>", "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


def sql(where: Where | None) -> str | None:
    """Returns a filter as SQL.

    >>> sql({"year": {"$gte": 2020, "$lt": 2024}, "lang": {"$in": ["en", "de"]}})
    '("year" >= 2020 AND "year" < 2024) AND "lang" IN (\\'en\\', \\'de\\')'
    >>> sql({"$or": [{"draft": True}, {"author": None}]})
    '("draft" IS TRUE) OR ("author" IS NULL)'
    """
    if where is None or isinstance(where, str):
        return where
    if not isinstance(where, Mapping):
        raise InvalidTypeError(f"a {type(where).__name__} instead of a filter; give SQL as a str, or a dict")
    return _all(where)


def _all(where: Mapping[str, Any]) -> str:
    if not where:
        raise InvalidError("the filter is an empty dict; leave it out, or name a column")
    return " AND ".join(_part(name, value) for name, value in where.items())


def _part(name: Any, value: Any) -> str:
    if not isinstance(name, str):
        raise InvalidTypeError(f"{name!r} is not the name of a column; give a str")
    if name in ("$and", "$or"):
        if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
            raise InvalidTypeError(f"{name} takes a list of filters")
        parts = [f"({sql(part)})" for part in value]
        if not parts:
            raise InvalidError(f"{name} has no filters")
        joined = f" {name[1:].upper()} ".join(parts)
        return joined if len(parts) == 1 or name == "$or" else f"({joined})"
    if name == "$not":
        return f"NOT ({sql(value)})"
    if name.startswith("$"):
        raise InvalidError(f"{name} is not known; filters join by $and, $or and $not")
    column = quoted(name)
    if not isinstance(value, Mapping):
        return _comparison(column, "$eq", value)
    if not value:
        raise InvalidError(f"the condition on {name!r} is an empty dict")
    parts = [_comparison(column, operator, operand) for operator, operand in value.items()]
    return parts[0] if len(parts) == 1 else "(" + " AND ".join(parts) + ")"


def _comparison(column: str, operator: Any, operand: Any) -> str:
    if operator in ("$eq", "$ne") and (operand is None or isinstance(operand, bool)):
        said = {None: "NULL", True: "TRUE", False: "FALSE"}[operand]
        return f"{column} IS {'NOT ' if operator == '$ne' else ''}{said}"
    if operator == "$ne":
        # Of a row without a value it is true that the value is another.
        return f"({column} <> {literal(operand)} OR {column} IS NULL)"
    if operator in _COMPARISONS:
        return f"{column} {_COMPARISONS[operator]} {literal(operand)}"
    others: dict[str, Callable[[], str]] = {
        "$in": lambda: f"{column} IN ({_list(operand, '$in')})",
        "$nin": lambda: f"({column} NOT IN ({_list(operand, '$nin')}) OR {column} IS NULL)",
        "$exists": lambda: f"{column} IS {'NOT ' if operand else ''}NULL",
        "$like": lambda: f"{column} LIKE {literal(operand)}",
        "$contains": lambda: f"{column} HAS {literal(operand)}",
    }
    if operator not in others:
        known = ", ".join([*_COMPARISONS, *others])
        raise InvalidError(f"{operator!r} is not a comparison of filters; use one of {known}")
    return others[operator]()


def _list(values: Any, operator: str) -> str:
    if isinstance(values, (str, Mapping)) or not isinstance(values, Iterable):
        raise InvalidTypeError(f"{operator} takes a list of values")
    listed = ", ".join(literal(value) for value in values)
    if not listed:
        raise InvalidError(f"{operator} has no values")
    return listed


def quoted(name: str) -> str:
    """Returns the name of a column as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: Any) -> str:
    """Returns a value as SQL has it."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, datetime):
        value = (value if value.tzinfo else value.replace(tzinfo=timezone.utc)).isoformat()
    elif isinstance(value, date):
        value = value.isoformat()
    elif hasattr(value, "item"):
        # A scalar of numpy.
        return literal(value.item())
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    raise InvalidTypeError(f"{value!r} can't be compared with; give a str, number, bool or datetime")
