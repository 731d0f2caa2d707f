"""The store for LangChain: its own conformance tests, unmodified, and what is ours."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import mopqdb
import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import VectorStore
from langchain_tests.integration_tests import VectorStoreIntegrationTests
from mopqdb.langchain import MopqdbVectorStore


class TestConformance(VectorStoreIntegrationTests):
    """Sync and async."""

    @pytest.fixture
    def vectorstore(self, tmp_path: Path) -> Generator[VectorStore, None, None]:
        store = MopqdbVectorStore(self.get_embeddings(), tmp_path / "langchain.db")
        try:
            yield store
        finally:
            store.close()


@pytest.fixture
def store(tmp_path: Path) -> Generator[MopqdbVectorStore, None, None]:
    embedding = DeterministicFakeEmbedding(size=8)
    store = MopqdbVectorStore.from_texts(
        ["red apple", "green pear", "red cherry"],
        embedding,
        [{"year": 2020, "tags": ["a", "b"]}, {"year": 2024, "nested": {"x": [1, None]}}, {}],
        ids=["1", "2", "3"],
        path=tmp_path / "store.db",
    )
    yield store
    store.close()


def test_metadata_are_kept_exactly_and_filter(store: MopqdbVectorStore) -> None:
    found = store.get_by_ids(["2", "1"])
    assert [document.metadata for document in found] == [
        {"year": 2024, "nested": {"x": [1, None]}},
        {"year": 2020, "tags": ["a", "b"]},
    ]
    for where in ("year > 2021", {"year": {"$gt": 2021}}):
        assert [document.id for document in store.similarity_search("red apple", filter=where)] == ["2"]
    assert [d.id for d in store.similarity_search("x", filter={"tags": {"$contains": "b"}})] == ["1"]


def test_a_store_is_opened_again(store: MopqdbVectorStore) -> None:
    path = store.database.path
    best = store.similarity_search_with_score("red apple", k=1)
    store.close()
    again = MopqdbVectorStore(DeterministicFakeEmbedding(size=8), path)
    assert again.similarity_search_with_score("red apple", k=1) == best
    again.close()
    with pytest.raises(mopqdb.ModelError):
        MopqdbVectorStore(DeterministicFakeEmbedding(size=8), path, encoder_name="another")


def test_it_serves_retrievers(store: MopqdbVectorStore) -> None:
    retriever = store.as_retriever(search_type="mmr", search_kwargs={"k": 2, "fetch_k": 3})
    assert len(retriever.invoke("red")) == 2
    scored = store.similarity_search_with_relevance_scores("red apple", k=3)
    assert all(0.0 <= score <= 1.0 for _, score in scored)
    vector = store.embeddings.embed_query("green pear")
    assert store.similarity_search_by_vector(vector, k=1)[0].id == "2"
