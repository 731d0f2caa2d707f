"""What calls return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ._native import Hit


class Inserted(NamedTuple):
    """Rows of an insert, by what happened to them."""

    new: int
    replaced: int
    unchanged: int

    @property
    def rows(self) -> int:
        """All rows of the call."""
        return self.new + self.replaced + self.unchanged


class Hits(list[Hit]):
    """The rows that a query found, best first: a list of `Hit`."""

    __slots__ = ()

    @property
    def keys(self) -> list[str]:
        """The keys, best first."""
        return [hit.key for hit in self]

    def to_list(self) -> list[dict[str, Any]]:
        """Returns the hits as dicts, without what is `None` in all of them."""
        return _rows(self._columns())

    def to_arrow(self) -> Any:
        """Returns a ``pyarrow.Table``. Needs pyarrow."""
        import pyarrow as pa  # type: ignore[import-untyped]

        return pa.table(self._columns())

    def to_pandas(self) -> Any:
        """Returns a ``pandas.DataFrame``. Needs pandas."""
        import pandas as pd  # type: ignore[import-untyped]

        return pd.DataFrame(self._columns())

    def _columns(self) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {"key": [hit.key for hit in self], "score": [hit.score for hit in self]}
        for name in ("similarity", "words", "found_by", "text"):
            values = [getattr(hit, name) for hit in self]
            if any(value is not None for value in values):
                columns[name] = values
        for name in dict.fromkeys(name for hit in self for name in hit.columns):
            columns.setdefault(name, [hit.columns.get(name) for hit in self])
        return columns


def _rows(columns: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, values)) for values in zip(*columns.values())]


class _Facts:
    """Facts that the engine gives as JSON."""

    def __init__(self, facts: str | Mapping[str, Any]) -> None:
        import json

        self._facts: Mapping[str, Any] = json.loads(facts) if isinstance(facts, str) else facts

    def to_dict(self) -> dict[str, Any]:
        """Returns all facts as a dict of plain values."""
        return dict(self._facts)

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={value!r}" for name, value in self._facts.items())
        return f"{type(self).__name__}({facts})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, _Facts) and self._facts == other._facts

    __hash__ = None  # type: ignore[assignment]


class Stats(_Facts):
    """Statistics of a database."""

    @property
    def rows(self) -> int:
        """Live rows."""
        return int(self._facts["rows"])

    @property
    def dead_rows(self) -> int:
        """Deleted and replaced rows that still take space; compaction frees it."""
        return int(self._facts["dead_rows"])

    @property
    def segments(self) -> int:
        """The number of segments."""
        return int(self._facts["segments"])

    @property
    def dim(self) -> int:
        """The width of the stored vectors."""
        return int(self._facts["dim"])

    @property
    def model(self) -> str:
        """The id of the active model."""
        return str(self._facts["model"])

    @property
    def method(self) -> str:
        """How the active model was trained; ``"exact"`` if rows are searched without codes."""
        return str(self._facts["method"])

    @property
    def bytes(self) -> dict[str, int]:
        """Bytes on disk, by kind."""
        return dict(self._facts["bytes"])


class ModelInfo(_Facts):
    """A model of a database."""

    @property
    def id(self) -> str:
        """The id: a hash of what the model does."""
        return str(self._facts["id"])

    @property
    def active(self) -> bool:
        """Whether queries are answered by it."""
        return bool(self._facts["active"])

    @property
    def exact(self) -> bool:
        """Whether it is the model without codes, which every database has."""
        return bool(self._facts["exact"])

    @property
    def method(self) -> str:
        """How it was trained: ``"mopq"``, ``"opq"``, ...; ``"exact"`` without codes."""
        return str(self._facts["method"])

    @property
    def training(self) -> Any:
        """The configuration of its training."""
        return self._facts["training"]

    @property
    def evaluation(self) -> Any:
        """What was measured when it was trained."""
        return self._facts["evaluation"]


class Rebuilt(_Facts):
    """What a rebuild did."""

    @property
    def model(self) -> str:
        """The id of the model that is active now."""
        return str(self._facts["model"])

    @property
    def rows(self) -> int:
        """Rows that got new codes."""
        return int(self._facts["rows"])

    @property
    def reused(self) -> int:
        """Rows whose codes under this model were there already."""
        return int(self._facts["reused"])


class Verified(_Facts):
    """What a check of a database found."""

    @property
    def problems(self) -> list[str]:
        """What is damaged or missing; empty if the database is sound."""
        return list(self._facts["problems"])

    @property
    def notes(self) -> list[str]:
        """Notes that are not damage."""
        return list(self._facts["notes"])

    def __bool__(self) -> bool:
        return not self.problems


class Compacted(_Facts):
    """What a compaction did."""

    @property
    def dropped(self) -> int:
        """Dead rows that were dropped."""
        return int(self._facts["dropped"])


class Backup(_Facts):
    """A copy of a database."""

    @property
    def files(self) -> int:
        """Files of the copy."""
        return int(self._facts["files"])

    @property
    def bytes(self) -> int:
        """Bytes that were written for them."""
        return int(self._facts["bytes"])


class Recall(NamedTuple):
    """The mean share of right rows among the first k, with its interval of 95%."""

    k: int
    recall: float
    low: float
    high: float


class Evaluation(_Facts):
    """What a model finds of the right answers to queries. ``evaluation[10]`` is recall@10."""

    @property
    def model(self) -> str:
        """The id of the model."""
        return str(self._facts["model"])

    @property
    def method(self) -> str:
        """How it was trained."""
        return str(self._facts["method"])

    @property
    def search(self) -> str:
        """How rows were searched."""
        return str(self._facts["search"])

    @property
    def queries(self) -> int:
        """Queries that were measured."""
        return int(self._facts["queries"])

    @property
    def skipped(self) -> int:
        """Queries without a right row in the database."""
        return int(self._facts["skipped"])

    @property
    def recalls(self) -> list[Recall]:
        """Recall at each k."""
        return [Recall(**recall) for recall in self._facts["recall"]]

    def __getitem__(self, k: int) -> float:
        for recall in self.recalls:
            if recall.k == k:
                return recall.recall
        raise KeyError(k)

    def __iter__(self) -> Iterator[Recall]:
        return iter(self.recalls)

    def __str__(self) -> str:
        recalls = ", ".join(f"recall@{at.k} {at.recall:.3f} [{at.low:.3f}, {at.high:.3f}]" for at in self)
        return f"{self.method} by {self.search}, {self.queries} queries: {recalls}"
