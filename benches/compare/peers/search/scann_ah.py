"""ScaNN: four-bit codes with its anisotropic loss, over all rows or in a tree. Nothing is re-ranked, because the full-precision
vectors would have to stay in memory."""

import numpy as np
import scann


def about():
    from importlib.metadata import version

    return {"name": "ScaNN", "version": version("scann"), "durable": "no (save is manual)"}


def settings(rows, dim, bytes):
    blocks = 2 * bytes
    if dim % blocks != 0:
        return []
    flat = [{"dims": dim // blocks, "threshold": t, "leaves": 0} for t in [0.1, 0.2]]
    leaves = int(rows**0.5)
    tree = {"dims": dim // blocks, "threshold": 0.2, "leaves": leaves}
    some = [{"search_leaves": max(1, leaves // part)} for part in [20, 5, 2]]
    return [{"build": b, "bytes": bytes, "search": [{}]} for b in flat] + [{"build": tree, "bytes": bytes, "search": some}]


def build(rows, about, folder, setting):
    rows = np.ascontiguousarray(rows)
    builder = scann.scann_ops_pybind.builder(rows, about["fetch"], "dot_product")
    if setting["leaves"]:
        builder = builder.tree(setting["leaves"], max(1, setting["leaves"] // 10), training_sample_size=100_000)
    builder = builder.score_ah(setting["dims"], anisotropic_quantization_threshold=setting["threshold"])
    builder.build().serialize(str(folder))


def open(folder, _about, _setting, threads):
    searcher = scann.scann_ops_pybind.load_searcher(str(folder))
    if threads > 1:
        searcher.set_num_threads(threads)
    return searcher


def search(index, queries, k, setting, threads):
    more = {"leaves_to_search": setting["search_leaves"]} if "search_leaves" in setting else {}
    if len(queries) == 1:
        found = [index.search(queries[0], final_num_neighbors=k, **more)[0]]
    elif threads > 1:
        found = index.search_batched_parallel(queries, final_num_neighbors=k, **more)[0]
    else:
        found = index.search_batched(queries, final_num_neighbors=k, **more)[0]
    out = np.full((len(queries), k), -1, dtype=np.int64)
    for row, ids in zip(out, found):
        row[: len(ids)] = ids
    return out


def insert(index, rows, _ids, _setting):
    # Like the searcher's own `upsert`, without its table of the caller's ids, because rows are numbered in order.
    index.searcher.upsert([None] * len(rows), rows, len(rows))
