"""Options as the engine takes them: tuples, in the order of its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class Functions(NamedTuple):
    """An encoder that a program brings."""

    name: str
    dim: int
    keys: Callable[[list[str]], Any]
    queries: Callable[[list[str]], Any]


class Opening(NamedTuple):
    """How a database is opened."""

    threads: int
    memory_limit: int
    encoder: Functions | None


class NewRows(NamedTuple):
    """What a new database holds."""

    dim: int | None
    metric: str | None
    bundle: str | None
    precision: str | None
    language: str | None


class Learning(NamedTuple):
    """What is learned from rows alone."""

    rotate: bool
    subspaces: int | None
    codewords: int | None
    iterations: int | None
    seed: int | None


class Measured(NamedTuple):
    """What an evaluation measures."""

    k: list[int]
    model: str | None
    search: str
    by_key: bool
    skip_missing: bool
    candidates: int | None


# k, search, candidates, offset, least score, least similarity, fusion, keys, prefix, filter, columns. A plain tuple, which is made faster.
Options = tuple[
    int,
    "str | None",
    "int | None",
    "int | None",
    "float | None",
    "float | None",
    "str | None",
    "Iterable[str] | None",
    "str | None",
    "str | None",
    "Iterable[str] | None",
]
