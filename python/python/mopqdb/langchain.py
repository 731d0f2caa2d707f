"""A vector store for LangChain: ``pip install mopqdb[langchain]``."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

try:
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import VectorStore
    from langchain_core.vectorstores.utils import maximal_marginal_relevance
except ImportError as why:
    raise ImportError("mopqdb.langchain needs langchain-core: pip install mopqdb[langchain]") from why

import mopqdb
from mopqdb._database import Search
from mopqdb._metadata import METADATA, columns_of, metadata_of
from mopqdb._where import Where

__all__ = ["MopqdbVectorStore"]


class MopqdbVectorStore(VectorStore):
    """Documents in a database of texts, with LangChain's embeddings as its encoder.

    The width of the vectors is that of the first embedding. Metadata become columns, by which searches are filtered: SQL,
    ``"year >= 2020"``, or a dict, ``{"year": {"$gte": 2020}}``. Words of the texts are searched too.

    >>> store = MopqdbVectorStore(embedding, path="notes.db")
    >>> store.add_texts(["a note", "another"], [{"year": 2020}, {"year": 2024}], ids=["1", "2"])
    ['1', '2']
    >>> [found.metadata for found in store.similarity_search("a note", filter={"year": {"$gt": 2021}})]
    [{'year': 2024}]
    >>> store.close()
    """

    def __init__(
        self,
        embedding: Embeddings,
        path: str | os.PathLike[str],
        *,
        encoder_name: str | None = None,
        search: Search = "auto",
    ) -> None:
        """Opens the database at ``path``, or creates it.

        :param encoder_name: a name for the embeddings and their version, which the database stores; default: the class
            and its model.
        :param search: how rows are found: ``"auto"``, ``"exact"``, ``"codes"`` or ``"words"``.
        """
        self._embedding = embedding
        self._search: Search = search
        model = getattr(embedding, "model", None) or getattr(embedding, "model_name", None)
        name = encoder_name or ":".join(filter(None, [type(embedding).__name__, model if isinstance(model, str) else None]))
        place = Path(path)
        if place.is_dir() and any(place.iterdir()):
            with mopqdb.open(place, read_only=True) as reader:
                dim = reader.dim
            opens: Callable[..., mopqdb.Database] = mopqdb.open
        else:
            dim = len(embedding.embed_query("width"))
            opens = mopqdb.create
        self._db = opens(
            place, encoder=embedding.embed_documents, encoder_name=name, query_encoder=self._embed_queries, dim=dim
        )

    def _embed_queries(self, texts: list[str]) -> list[list[float]]:
        return [self._embedding.embed_query(text) for text in texts]

    @property
    def database(self) -> mopqdb.Database:
        """The database, for training, statistics and copies."""
        return self._db

    @property
    def embeddings(self) -> Embeddings:
        """The embeddings."""
        return self._embedding

    def close(self) -> None:
        """Closes the database."""
        self._db.close()

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Adds texts; those whose id is there already are replaced. Returns the ids."""
        listed = list(texts)
        given: Sequence[str | None] = ids or [None] * len(listed)
        meta = metadatas or [{} for _ in listed]
        for what, other in (("ids", given), ("metadatas", meta)):
            if len(other) != len(listed):
                raise mopqdb.InvalidError(f"{len(other)} {what} for {len(listed)} texts")
        keys = [key or str(uuid.uuid4()) for key in given]
        self._db.insert(
            {**columns_of(metadata), "key": key, "text": text} for key, text, metadata in zip(keys, listed, meta)
        )
        return keys

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool | None:
        """Deletes documents by id; without ids, all of them."""
        if ids is None:
            self._db.delete_prefix("")
        else:
            self._db.delete(ids)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Returns the documents with these ids; those that are missing are left out."""
        rows = self._db.get_many(ids)
        return [Document(id=row.key, page_content=row.text or "", metadata=metadata_of(row)) for row in rows if row]

    def similarity_search(self, query: str, k: int = 4, filter: Where | None = None, **kwargs: Any) -> list[Document]:
        """Returns the k best documents for a text."""
        return [found for found, _ in self.similarity_search_with_score(query, k, filter, **kwargs)]

    def similarity_search_with_score(
        self, query: str, k: int = 4, filter: Where | None = None, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Returns the k best documents for a text with their scores; larger is better."""
        return self._found(query, k, filter, self._search)

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = 4, filter: Where | None = None, **kwargs: Any
    ) -> list[Document]:
        """Returns the k best documents for a vector."""
        search = "auto" if self._search == "words" else self._search
        return [found for found, _ in self._found(embedding, k, filter, search)]

    def max_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        filter: Where | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Returns k documents for a text that differ from each other, among the ``fetch_k`` best."""
        vector = self._embedding.embed_query(query)
        return self.max_marginal_relevance_search_by_vector(vector, k, fetch_k, lambda_mult, filter, **kwargs)

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        filter: Where | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Does the same for a vector."""
        import numpy as np

        found = self.similarity_search_by_vector(embedding, fetch_k, filter)
        if not found:
            return []
        vectors = self._embedding.embed_documents([document.page_content for document in found])
        chosen = maximal_marginal_relevance(np.array(embedding, dtype=np.float32), vectors, lambda_mult, k)
        return [found[at] for at in chosen]

    def _found(
        self, query: str | list[float], k: int, where: Where | None, search: Search
    ) -> list[tuple[Document, float]]:
        known = {METADATA} & set(self._db.columns())
        hits = self._db.query(query, k, search=search, where=where, columns=known)
        return [
            (Document(id=hit.key, page_content=hit.text or "", metadata=metadata_of(hit)), hit.score) for hit in hits
        ]

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        # The cosine, and the weighted score of words, which is never negative.
        return lambda score: min(max(score, 0.0), 1.0)

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        path: str | os.PathLike[str] = "langchain.db",
        **kwargs: Any,
    ) -> MopqdbVectorStore:
        """Opens or creates the database at ``path`` and adds texts."""
        store = cls(embedding, path, **kwargs)
        store.add_texts(texts, metadatas, ids=ids)
        return store
