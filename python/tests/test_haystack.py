"""The store for Haystack: its own conformance tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from haystack import Pipeline
from haystack.dataclasses import Document
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.testing.document_store import DocumentStoreBaseTests
from mopqdb.haystack import MopqdbDocumentStore, MopqdbEmbeddingRetriever


class TestConformance(DocumentStoreBaseTests):
    """All of Haystack's tests; what they leave to the store is below."""

    @pytest.fixture
    def document_store(self, tmp_path: Path) -> Iterator[MopqdbDocumentStore]:
        store = MopqdbDocumentStore(tmp_path / "haystack.db")
        yield store
        store.close()

    @staticmethod
    def assert_documents_are_equal(received: list[Document], expected: list[Document]) -> None:
        """Embeddings are stored as float32; all else is equal."""
        assert [document.id for document in received] == [document.id for document in expected]
        for ours, theirs in zip(received, expected):
            kept, given = ours.to_dict(flatten=False), theirs.to_dict(flatten=False)
            embedding, wanted = kept.pop("embedding"), given.pop("embedding")
            assert kept == given
            assert embedding == (None if wanted is None else pytest.approx(wanted, rel=1e-5, abs=1e-6))

    def test_write_documents(self, document_store: MopqdbDocumentStore) -> None:  # type: ignore[override]
        """Without a policy, a known id is an error."""
        document = Document(content="test doc")
        assert document_store.write_documents([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            document_store.write_documents([document])
        assert document_store.write_documents([document], DuplicatePolicy.OVERWRITE) == 1
        self.assert_documents_are_equal(document_store.filter_documents(), [document])


def test_documents_are_found_by_embedding_in_a_pipeline(tmp_path: Path) -> None:
    store = MopqdbDocumentStore(tmp_path / "db", embedding_dim=3)
    store.write_documents(
        [
            Document(id="x", content="x", embedding=[3.0, 0.0, 0.0], meta={"year": 2020}),
            Document(id="y", content="y", embedding=[0.0, 1.0, 0.0], meta={"year": 2024}),
            Document(id="none", content="none", meta={"year": 2024}),
        ]
    )
    pipeline = Pipeline()
    pipeline.add_component("retriever", MopqdbEmbeddingRetriever(store, top_k=5))
    found = pipeline.run({"retriever": {"query_embedding": [2.0, 1.0, 0.0]}})["retriever"]["documents"]
    assert [document.id for document in found] == ["x", "y"]
    assert found[0].score == pytest.approx(2 / 5**0.5, rel=1e-5) and found[0].embedding == pytest.approx([3.0, 0.0, 0.0])
    recent = {"field": "meta.year", "operator": ">", "value": 2021}
    assert [document.id for document in store.embedding_retrieval([1.0, 0.0, 0.0], filters=recent)] == ["y"]
    saved = store.to_dict()
    store.close()
    again = MopqdbDocumentStore.from_dict(saved)
    assert again.count_documents() == 3
    again.close()
