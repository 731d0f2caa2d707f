"""faiss IndexFlatIP: full-precision vectors, every row scanned."""

import os
from concurrent.futures import ThreadPoolExecutor

# A second thread of OpenMP or OpenBLAS gains almost nothing for a batch of 64 (at worst it was a ninth as fast as one thread, for
# unknown reasons). Threads that share out the queries, each with one OpenBLAS thread, are 1.3 to 1.6 times as fast.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import faiss  # noqa: E402
import numpy as np  # noqa: E402

from . import faiss_common as common  # noqa: E402

NAME = "faiss IndexFlat"
# The number of queries per call from which matrix products are used. The default excludes a batch of 64, which is then three to five
# times as slow. With a small number a single query is half as fast, because it uses matrix products too.
SINGLE = faiss.cvar.distance_compute_blas_threshold
BATCH = 20


def about():
    return common.about(NAME)


def settings(_rows, dim, _bytes):
    return [{"build": {}, "bytes": 4 * dim, "search": common.levels()}]


def build(rows, about, folder, _setting):
    common.fill(faiss.IndexFlatIP(about["dim"]), rows, folder)


def open(folder, about, setting, threads):
    return common.open(folder, about, setting, 1), ThreadPoolExecutor(threads)


def search(index, queries, k, setting, threads):
    flat, pool = index
    parts = np.array_split(queries, min(threads, len(queries)))
    faiss.cvar.distance_compute_blas_threshold = BATCH if len(parts[0]) >= BATCH else SINGLE
    if len(parts) == 1:
        return common.search(flat, queries, k, setting, 1)
    return np.concatenate(list(pool.map(lambda part: common.search(flat, part, k, setting, 1), parts)))


def insert(index, rows, ids, setting):
    common.insert(index[0], rows, ids, setting)
