"""Chroma, persistent, with its default graph. Its default embedding function downloads the same model from its own host on
first use. To avoid that download, and to have the same encoder in all systems, it gets the plain Python encoder."""

import chromadb
from chromadb import EmbeddingFunction


def about():
    note = "its default graph; its default embedding function would download the model, so it has the same Python encoder"
    return {"name": "Chroma + Python encoder", "version": f"chromadb {chromadb.__version__}", "note": note}


class Function(EmbeddingFunction):
    def __init__(self, encode):
        self.encode = encode

    def __call__(self, input):
        return list(self.encode(list(input)))

    @staticmethod
    def name():
        return "plain"

    def get_config(self):
        return {}

    @staticmethod
    def build_from_config(_config):
        raise NotImplementedError


def collection(folder, encode):
    from chromadb.config import Settings

    client = chromadb.PersistentClient(folder, settings=Settings(anonymized_telemetry=False))
    space = {"hnsw:space": "cosine"}
    return client.get_or_create_collection("rows", metadata=space, embedding_function=Function(encode))


def insert(folder, encode, batches, _count):
    rows = collection(folder, encode)
    for keys, texts in batches:
        rows.add(ids=list(keys), documents=list(texts))


def opened(folder, encode):
    rows = collection(folder, encode)

    def ask(text):
        return rows.query(query_texts=[text], n_results=11, include=["documents", "distances"])["ids"][0]

    return ask
