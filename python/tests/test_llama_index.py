"""The store for LlamaIndex, which ships no reusable tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import mopqdb
import pytest
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)
from mopqdb.llama_index import MopqdbVectorStore


def nodes() -> list[TextNode]:
    made = []
    for name, vector, meta in [
        ("a", [1.0, 0.0, 0.0], {"theme": "war", "year": 1972}),
        ("b", [0.0, 1.0, 0.0], {"theme": "family", "year": 1994, "tags": ["x", "y"]}),
        ("c", [0.7, 0.7, 0.0], {"theme": "war", "year": 2010}),
    ]:
        document = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"doc-{name}")}
        made.append(TextNode(id_=name, text=f"text {name}", embedding=vector, metadata=meta, relationships=document))
    return made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MopqdbVectorStore]:
    store = MopqdbVectorStore(tmp_path / "db")
    assert store.query(VectorStoreQuery(query_embedding=[1.0, 0.0, 0.0])).ids == []
    assert store.add(nodes()) == ["a", "b", "c"]
    yield store
    store.close()


def ask(store: MopqdbVectorStore, *filters: MetadataFilter, **more: object) -> list[str] | None:
    condition = more.pop("condition", FilterCondition.AND)
    chosen = MetadataFilters(filters=list(filters), condition=condition) if filters else None  # type: ignore[arg-type]
    query = VectorStoreQuery(query_embedding=[1.0, 0.1, 0.0], similarity_top_k=3, filters=chosen, **more)  # type: ignore[arg-type]
    return store.query(query).ids


def test_nodes_are_found_with_their_texts_and_metadata(store: MopqdbVectorStore) -> None:
    found = store.query(VectorStoreQuery(query_embedding=[1.0, 0.1, 0.0], similarity_top_k=2))
    assert found.ids == ["a", "c"] and found.nodes is not None and found.similarities is not None
    node = found.nodes[0]
    assert node.get_content() == "text a" and node.metadata == {"theme": "war", "year": 1972}
    assert node.ref_doc_id == "doc-a" and found.similarities[0] > found.similarities[1]


def test_filters_are_those_of_llama_index(store: MopqdbVectorStore) -> None:
    war = MetadataFilter(key="theme", value="war")
    late = MetadataFilter(key="year", value=1990, operator=FilterOperator.GT)
    assert ask(store, war) == ["a", "c"]
    assert ask(store, war, late) == ["c"]
    assert ask(store, war, late, condition=FilterCondition.OR) == ["a", "c", "b"]
    assert ask(store, war, condition=FilterCondition.NOT) == ["b"]
    assert ask(store, MetadataFilter(key="theme", value=["family"], operator=FilterOperator.IN)) == ["b"]
    assert ask(store, MetadataFilter(key="theme", value=["family"], operator=FilterOperator.NIN)) == ["a", "c"]
    assert ask(store, MetadataFilter(key="tags", value="x", operator=FilterOperator.CONTAINS)) == ["b"]
    assert ask(store, MetadataFilter(key="tags", value=None, operator=FilterOperator.IS_EMPTY)) == ["a", "c"]
    assert ask(store, doc_ids=["doc-b"]) == ["b"]
    assert ask(store, node_ids=["c", "b"]) == ["c", "b"]
    with pytest.raises(mopqdb.InvalidError, match="text_match"):
        ask(store, MetadataFilter(key="theme", value="w", operator=FilterOperator.TEXT_MATCH))
    with pytest.raises(mopqdb.InvalidError, match="sparse"):
        ask(store, mode=VectorStoreQueryMode.SPARSE)


def test_nodes_are_deleted_by_document_and_by_filter(store: MopqdbVectorStore) -> None:
    store.delete("doc-a")
    assert [node.node_id for node in store.get_nodes()] == ["b", "c"]
    store.delete_nodes(filters=MetadataFilters(filters=[MetadataFilter(key="theme", value="war")]))
    assert [node.node_id for node in store.get_nodes()] == ["b"]
    store.clear()
    assert store.get_nodes() == []


def test_a_store_is_opened_again(store: MopqdbVectorStore, tmp_path: Path) -> None:
    store.close()
    again = MopqdbVectorStore(tmp_path / "db")
    assert ask(again) == ["a", "c", "b"]
    again.close()
