"""usearch: a graph over 16-bit vectors, which find as much as full-precision vectors and are faster."""

import numpy as np
from usearch.index import Index


def about():
    from importlib.metadata import version

    return {"name": "usearch", "version": version("usearch"), "durable": "no (save is manual)"}


def settings(_rows, dim, _bytes):
    search = [{"expansion": e} for e in [16, 32, 64, 128]]
    return [{"build": {"kind": "f16", "connectivity": 16}, "bytes": 2 * dim, "search": search}]


def build(rows, about, folder, setting):
    index = Index(
        ndim=about["dim"], metric="ip", dtype=setting["kind"], connectivity=setting["connectivity"], expansion_add=128
    )
    for start in range(0, len(rows), 100_000):
        some = np.ascontiguousarray(rows[start : start + 100_000])
        index.add(np.arange(start, start + len(some)), some)
    index.save(str(folder / "index.usearch"))


def open(folder, _about, setting, _threads):
    index = Index.restore(str(folder / "index.usearch"))
    if "expansion" in setting:
        index.expansion_search = setting["expansion"]
    return index


def search(index, queries, k, _setting, threads):
    keys = index.search(queries if len(queries) > 1 else queries[0], k, threads=threads).keys
    return np.asarray(keys).astype(np.int64).reshape(len(queries), -1)


def insert(index, rows, ids, _setting):
    index.add(ids, rows)
