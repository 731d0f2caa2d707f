"""A vector store for LlamaIndex: ``pip install mopqdb[llama-index]``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

try:
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.schema import BaseNode
    from llama_index.core.vector_stores.types import (
        BasePydanticVectorStore,
        FilterCondition,
        FilterOperator,
        MetadataFilter,
        MetadataFilters,
        VectorStoreQuery,
        VectorStoreQueryMode,
        VectorStoreQueryResult,
    )
    from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict
except ImportError as why:
    raise ImportError("mopqdb.llama_index needs llama-index-core: pip install mopqdb[llama-index]") from why

import mopqdb
from mopqdb._metadata import METADATA, columns_of, metadata_of
from mopqdb._where import literal, quoted

__all__ = ["MopqdbVectorStore"]

_COMPARISONS = {
    FilterOperator.EQ: "=",
    FilterOperator.GT: ">",
    FilterOperator.GTE: ">=",
    FilterOperator.LT: "<",
    FilterOperator.LTE: "<=",
}


class MopqdbVectorStore(BasePydanticVectorStore):
    """Nodes in a database of vectors. The width is that of the first embedding; metadata become columns."""

    stores_text: bool = True
    flat_metadata: bool = False
    path: str
    metric: str = "cosine"
    _db: mopqdb.Database | None = PrivateAttr(default=None)

    def __init__(self, path: str | os.PathLike[str], **kwargs: Any) -> None:
        """Opens the database at ``path``; it is created with the first nodes."""
        super().__init__(path=os.fspath(path), **kwargs)  # type: ignore[call-arg]
        place = Path(self.path)
        if place.is_dir() and any(place.iterdir()):
            self._db = mopqdb.open(place)

    @classmethod
    def class_name(cls) -> str:
        """The name in saved configurations."""
        return "MopqdbVectorStore"

    @property
    def client(self) -> mopqdb.Database | None:
        """The database, if there are nodes."""
        return self._db

    def close(self) -> None:
        """Closes the database."""
        if self._db is not None:
            self._db.close()

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Adds nodes with their embeddings, and returns their ids. Nodes with known ids are replaced."""
        if not nodes:
            return []
        if self._db is None:
            metric: Any = self.metric
            self._db = mopqdb.create(self.path, dim=len(nodes[0].get_embedding()), metric=metric)
        self._db.insert([self._row(node) for node in nodes])
        return [node.node_id for node in nodes]

    def _row(self, node: BaseNode) -> dict[str, Any]:
        metadata = node_to_metadata_dict(node, remove_text=False, flat_metadata=self.flat_metadata)
        return {**columns_of(metadata), "key": node.node_id, "vector": node.get_embedding()}

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Deletes the nodes of a document."""
        self._delete(f"{quoted('ref_doc_id')} = {literal(ref_doc_id)}", "ref_doc_id")

    def delete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: Any,
    ) -> None:
        """Deletes nodes by id, and by what their metadata say."""
        if self._db is not None:
            self._db.delete([node.node_id for node in self.get_nodes(node_ids, filters)])

    def _delete(self, where: str, column: str) -> None:
        if self._db is not None and column in self._db.columns():
            self._db.delete_where(where)

    def clear(self) -> None:
        """Deletes all nodes."""
        if self._db is not None:
            self._db.delete_prefix("")

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Returns nodes by id, and by what their metadata say, in the order in which they were added."""
        if self._db is None:
            return []
        keys = self._db.keys(where=_sql(filters))
        if node_ids is not None:
            wanted = set(node_ids)
            keys = [key for key in keys if key in wanted]
        return [metadata_dict_to_node(metadata_of(row)) for row in self._db.get_many(keys) if row]

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Returns the nodes that are most similar to an embedding."""
        if query.mode != VectorStoreQueryMode.DEFAULT:
            raise mopqdb.InvalidError(f"the query mode {query.mode.value} is not served; use {VectorStoreQueryMode.DEFAULT.value}")
        if self._db is None:
            return VectorStoreQueryResult(nodes=[], similarities=[], ids=[])
        if query.query_embedding is None:
            raise mopqdb.InvalidError("the query has no embedding")
        where = _sql(query.filters)
        if query.doc_ids:
            documents = f"{quoted('ref_doc_id')} IN ({', '.join(map(literal, query.doc_ids))})"
            where = documents if where is None else f"({where}) AND {documents}"
        hits = self._db.query(
            query.query_embedding, query.similarity_top_k, where=where, keys=query.node_ids, columns=[METADATA]
        )
        return VectorStoreQueryResult(
            nodes=[metadata_dict_to_node(metadata_of(hit)) for hit in hits],
            similarities=[hit.score for hit in hits],
            ids=hits.keys,
        )


def _sql(filters: MetadataFilters | None) -> str | None:
    """Returns filters of LlamaIndex as SQL."""
    if filters is None or not filters.filters:
        return None
    parts = [
        f"({_sql(part)})" if isinstance(part, MetadataFilters) else _condition(part)
        for part in filters.filters
        if not isinstance(part, MetadataFilters) or part.filters
    ]
    if filters.condition == FilterCondition.NOT:
        return " AND ".join(f"NOT ({part})" for part in parts)
    return f" {(filters.condition or FilterCondition.AND).value.upper()} ".join(parts)


def _condition(part: MetadataFilter) -> str:
    column, value = quoted(part.key), part.value
    if part.operator in _COMPARISONS:
        return f"{column} {_COMPARISONS[part.operator]} {literal(value)}"
    if part.operator == FilterOperator.NE:
        return f"({column} <> {literal(value)} OR {column} IS NULL)"
    if part.operator == FilterOperator.IS_EMPTY:
        return f"{column} IS NULL"
    values = value if isinstance(value, list) else [value]
    listed = ", ".join(map(literal, values))
    if part.operator == FilterOperator.IN:
        return f"{column} IN ({listed})"
    if part.operator == FilterOperator.NIN:
        return f"({column} NOT IN ({listed}) OR {column} IS NULL)"
    if part.operator == FilterOperator.CONTAINS:
        return f"{column} HAS {literal(value)}"
    if part.operator in (FilterOperator.ANY, FilterOperator.ALL):
        joined = " OR " if part.operator == FilterOperator.ANY else " AND "
        return "(" + joined.join(f"{column} HAS {literal(item)}" for item in values) + ")"
    raise mopqdb.InvalidError(f"the filter {part.operator.value!r} is not served")
