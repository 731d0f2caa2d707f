"""A document store for Haystack: ``pip install mopqdb[haystack]``."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

try:
    from haystack import component, default_from_dict, default_to_dict
    from haystack.dataclasses import Document
    from haystack.document_stores.errors import DuplicateDocumentError
    from haystack.document_stores.types import DuplicatePolicy
    from haystack.errors import FilterError
except ImportError as why:
    raise ImportError("mopqdb.haystack needs haystack-ai: pip install mopqdb[haystack]") from why

import mopqdb
from mopqdb._metadata import columns_of
from mopqdb._where import literal, quoted

__all__ = ["MopqdbDocumentStore", "MopqdbEmbeddingRetriever"]

_DOCUMENT = "_document"
_CONTENT = "_content"
_EMBEDDED = "_embedded"
_NORM = "_norm"

_ALL = "key LIKE '%'"
_NONE = f"NOT ({_ALL})"


class MopqdbDocumentStore:
    """Documents in a database of vectors. Metadata become columns, by which documents are filtered.

    Documents without an embedding are kept too; no search by embedding finds them.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        embedding_dim: int = 768,
        similarity: Literal["cosine", "dot_product"] = "cosine",
    ) -> None:
        """Opens the database at ``path``, or creates it for embeddings of this width."""
        if similarity not in ("cosine", "dot_product"):
            raise mopqdb.InvalidError(f"similarity is {similarity!r}; use cosine or dot_product")
        self.path, self.embedding_dim, self.similarity = os.fspath(path), embedding_dim, similarity
        place = Path(self.path)
        if place.is_dir() and any(place.iterdir()):
            self._db = mopqdb.open(place)
        else:
            # Cosines are inner products of vectors of length one; zeros stand for no embedding.
            self._db = mopqdb.create(place, dim=embedding_dim, metric="ip")

    @property
    def database(self) -> mopqdb.Database:
        """The database, for training, statistics and copies."""
        return self._db

    def close(self) -> None:
        """Closes the database."""
        self._db.close()

    def to_dict(self) -> dict[str, Any]:
        """Returns what a pipeline saves."""
        return default_to_dict(
            self, path=self.path, embedding_dim=self.embedding_dim, similarity=self.similarity
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> MopqdbDocumentStore:
        """Opens what a pipeline saved."""
        store = default_from_dict(cls, data)
        assert isinstance(store, cls)
        return store

    def count_documents(self) -> int:
        """Returns the number of documents."""
        return len(self._db)

    def filter_documents(self, filters: dict[str, Any] | None = None) -> list[Document]:
        """Returns the documents that match, in the order in which they were written."""
        where = self._sql(filters) if filters else None
        return [_document(row.columns, row.vector) for row in self._db.get_many(self._db.keys(where=where)) if row]

    def write_documents(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """Writes documents, and returns how many; those with known ids as the policy says (``NONE`` is ``FAIL``)."""
        if not isinstance(documents, Iterable) or not all(isinstance(item, Document) for item in documents):
            raise ValueError("write_documents takes a list of Documents")
        chosen: dict[str, Document] = {}
        for document in documents:
            if policy != DuplicatePolicy.OVERWRITE and (document.id in chosen or document.id in self._db):
                if policy == DuplicatePolicy.SKIP:
                    continue
                raise DuplicateDocumentError(f"a document with the id {document.id!r} is there already")
            chosen[document.id] = document
        self._db.insert([self._row(document) for document in chosen.values()])
        return len(chosen)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Deletes documents by id; ids that are not there are left out."""
        self._db.delete(document_ids)

    def embedding_retrieval(
        self,
        query_embedding: list[float],
        *,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
    ) -> list[Document]:
        """Returns the documents whose embeddings are most similar, best first, with their scores."""
        if _EMBEDDED not in self._db.columns():
            return []
        where = f"{_EMBEDDED} IS TRUE"
        if filters:
            where += f" AND ({self._sql(filters)})"
        asked = self._vector(query_embedding)[0]
        names = [name for name in (_DOCUMENT, _NORM) if name in self._db.columns()]
        hits = self._db.query(asked, top_k, where=where, columns=names)
        rows = self._db.get_many(hits.keys)
        return [
            _document(hit.columns, row.vector if row else None, score=hit.score) for hit, row in zip(hits, rows)
        ]

    def _vector(self, embedding: Sequence[float]) -> tuple[list[float], float | None]:
        if self.similarity == "dot_product":
            return list(embedding), None
        norm = math.sqrt(sum(value * value for value in embedding))
        return [value / norm for value in embedding] if norm else list(embedding), norm

    def _row(self, document: Document) -> dict[str, Any]:
        kept = document.to_dict(flatten=False)
        embedding = kept.pop("embedding", None)
        kept.pop("score", None)
        row = {name: value for name, value in columns_of(document.meta).items() if not name.startswith("_")}
        row[_DOCUMENT] = json.dumps(kept, ensure_ascii=False, default=str)
        row[_EMBEDDED] = embedding is not None
        if document.content is not None:
            row[_CONTENT] = document.content
        vector, norm = self._vector(embedding) if embedding is not None else ([0.0] * self.embedding_dim, None)
        if norm is not None:
            row[_NORM] = norm
        return {**row, "key": document.id, "vector": vector}

    def _sql(self, filters: Mapping[str, Any]) -> str:
        return _Filters(self._db.columns()).sql(filters)


def _document(columns: Mapping[str, Any], vector: Any, score: float | None = None) -> Document:
    """Returns a document as it was written; its embedding up to the rounding of float32."""
    kept = json.loads(columns[_DOCUMENT])
    if columns.get(_EMBEDDED, True) and vector is not None:
        kept["embedding"] = [float(value) for value in vector * (columns.get(_NORM) or 1.0)]
    return Document.from_dict({**kept, "score": score})


class _Filters:
    """Filters of Haystack as SQL. There a comparison is true or false, also of what a document does not have."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._columns = columns

    def sql(self, filters: Any) -> str:
        """Translates one filter."""
        if not isinstance(filters, Mapping):
            raise FilterError("a filter is a dict")
        if "field" in filters:
            return self._comparison(filters)
        for name in ("operator", "conditions"):
            if name not in filters:
                raise FilterError(f"a filter has no {name!r}: {filters}")
        parts = [f"({self.sql(part)})" for part in filters["conditions"]]
        operator = filters["operator"]
        if operator in ("AND", "OR") and parts:
            return f" {operator} ".join(parts)
        if operator == "NOT" and parts:
            return f"NOT ({' AND '.join(parts)})"
        raise FilterError(f"{operator!r} does not join conditions; use AND, OR or NOT")

    def _comparison(self, part: Mapping[str, Any]) -> str:
        for name in ("operator", "value"):
            if name not in part:
                raise FilterError(f"a condition has no {name!r}: {dict(part)}")
        field, operator, value = str(part["field"]), part["operator"], part["value"]
        name = {"id": "key", "content": _CONTENT}.get(field, field.removeprefix("meta."))
        translate: dict[str, Callable[[str, Any], str]] = {
            "==": self._equal,
            "!=": lambda name, value: f"NOT ({self._equal(name, value)})",
            "in": self._in,
            "not in": lambda name, value: f"NOT ({self._in(name, value)})",
        }
        if operator in translate:
            return translate[operator](name, value)
        if operator in (">", ">=", "<", "<="):
            return self._order(name, operator, value)
        raise FilterError(f"{operator!r} is not a comparison")

    def _has(self, name: str, value: Any) -> bool:
        """Whether some document may have such a value."""
        if name == "key":
            return isinstance(value, str)
        kinds = {bool: ("bool",), int: ("int", "float"), float: ("int", "float"), str: ("string",)}
        return self._columns.get(name) in kinds.get(type(value), ())

    def _column(self, name: str) -> str:
        return "key" if name == "key" else quoted(name)

    def _equal(self, name: str, value: Any) -> str:
        if value is None:
            return f"{quoted(name)} IS NULL" if name in self._columns else (_NONE if name == "key" else _ALL)
        if not self._has(name, value):
            return _NONE
        if isinstance(value, bool):
            return f"{quoted(name)} IS {str(value).upper()}"
        return self._present(name, f"{self._column(name)} = {literal(value)}")

    def _in(self, name: str, values: Any) -> str:
        if not isinstance(values, list):
            raise FilterError("in and not in take a list of values")
        return " OR ".join(f"({self._equal(name, value)})" for value in values) or _NONE

    def _order(self, name: str, operator: str, value: Any) -> str:
        if value is None:
            return _NONE
        if isinstance(value, str):
            try:
                datetime.fromisoformat(value)
            except ValueError:
                raise FilterError(f"{operator} compares numbers and dates, not {value!r}") from None
        elif isinstance(value, bool) or not isinstance(value, (int, float)):
            raise FilterError(f"{operator} compares numbers and dates, not a {type(value).__name__}")
        if not self._has(name, value):
            return _NONE
        return self._present(name, f"{self._column(name)} {operator} {literal(value)}")

    def _present(self, name: str, condition: str) -> str:
        return condition if name == "key" else f"({condition} AND {quoted(name)} IS NOT NULL)"


@component
class MopqdbEmbeddingRetriever:
    """Finds documents by the embedding of a query, in a pipeline."""

    def __init__(
        self, document_store: MopqdbDocumentStore, filters: dict[str, Any] | None = None, top_k: int = 10
    ) -> None:
        """Takes the store, and the defaults of `run`."""
        self.document_store, self.filters, self.top_k = document_store, filters, top_k

    def to_dict(self) -> dict[str, Any]:
        """Returns what a pipeline saves."""
        return default_to_dict(
            self, document_store=self.document_store.to_dict(), filters=self.filters, top_k=self.top_k
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> MopqdbEmbeddingRetriever:
        """Makes what a pipeline saved."""
        parameters = data["init_parameters"]
        parameters["document_store"] = MopqdbDocumentStore.from_dict(parameters["document_store"])
        retriever: MopqdbEmbeddingRetriever = default_from_dict(cls, data)
        return retriever

    @component.output_types(documents=list[Document])
    def run(
        self, query_embedding: list[float], filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Returns the best documents."""
        found = self.document_store.embedding_retrieval(
            query_embedding, filters=filters or self.filters, top_k=top_k or self.top_k
        )
        return {"documents": found}
