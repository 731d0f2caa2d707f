"""hnswlib: a graph over full-precision vectors."""

import hnswlib
import numpy as np


def about():
    from importlib.metadata import version

    return {"name": "hnswlib", "version": version("hnswlib"), "durable": "no (save is manual)"}


def settings(_rows, dim, _bytes):
    search = [{"ef": e} for e in [16, 32, 64, 128]]
    return [{"build": {"links": 16, "ef_construction": 200}, "bytes": 4 * dim, "search": search}]


def build(rows, about, folder, setting):
    index = hnswlib.Index(space="ip", dim=about["dim"])
    index.init_index(max_elements=len(rows), M=setting["links"], ef_construction=setting["ef_construction"])
    for start in range(0, len(rows), 100_000):
        some = np.ascontiguousarray(rows[start : start + 100_000])
        index.add_items(some, np.arange(start, start + len(some)))
    index.save_index(str(folder / "index.hnsw"))


def open(folder, about, setting, threads):
    index = hnswlib.Index(space="ip", dim=about["dim"])
    index.load_index(str(folder / "index.hnsw"), max_elements=about["rows"] + 10_000)
    index.set_ef(max(setting.get("ef", 16), about["fetch"]))
    index.set_num_threads(threads)
    return index


def search(index, queries, k, _setting, threads):
    return index.knn_query(queries, k=k, num_threads=threads)[0].astype(np.int64)


def insert(index, rows, ids, _setting):
    index.add_items(rows, ids)
