"""faiss IndexFlatIP: every row whole."""

import os
from concurrent.futures import ThreadPoolExecutor

# A second thread of OpenMP or OpenBLAS gains next to nothing for a batch of 64 (at worst it was a ninth as fast as one thread, why is not known).
# Threads that share the queries, with one of OpenBLAS's each, gain 1.3 to 1.6 times.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import faiss  # noqa: E402
import numpy as np  # noqa: E402

from . import faiss_common as common  # noqa: E402

NAME = "faiss IndexFlat"
# From so many queries a call on matrix products are used. The default never does for a batch of 64, which is then three to five times as slow;
# with a small number a single query is half as fast, for it takes another way too.
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
