"""faiss IndexFlatIP: every row whole."""

import faiss

from . import faiss_common as common

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


def search(index, queries, k, setting, threads):
    faiss.cvar.distance_compute_blas_threshold = BATCH if len(queries) >= BATCH else SINGLE
    return common.search(index, queries, k, setting, threads)


open, insert = common.open, common.insert
