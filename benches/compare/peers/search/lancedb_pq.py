"""lancedb with its IVF_PQ index, without re-ranking."""

import lancedb
import numpy as np
import pyarrow as pa

# Codes of four bits find more than codes of eight bits among a million synthetic rows (.157 and .145 of the exact top), and less in
# the other cases where both were tried: `quora`, `wiki` and ten million rows.
FOUR_BITS = range(500_000, 5_000_000)


def about(name="lancedb IVF_PQ"):
    return {"name": name, "version": lancedb.__version__, "durable": "yes", "distribution": "lancedb"}


def settings(rows, dim, bytes, refine=None):
    if dim % bytes != 0:
        return []
    partitions = max(1, int(rows**0.5))
    probes = sorted({max(1, partitions // 20), max(1, partitions // 5), partitions})
    search = [{"probes": p, **({"refine": refine} if refine else {})} for p in probes]
    codes = [(4, 2 * bytes), (8, bytes)] if rows in FOUR_BITS else [(8, bytes)]
    codes = [(bits, subspaces) for bits, subspaces in codes if dim % subspaces == 0]
    return [
        {"build": {"partitions": partitions, "subspaces": subspaces, "bits": bits}, "bytes": bytes, "search": search}
        for bits, subspaces in codes
    ]


def batch(rows, ids):
    dim = rows.shape[1]
    flat = pa.array(np.ascontiguousarray(rows, dtype=np.float32).reshape(-1))
    return pa.table({"id": pa.array(ids.astype(np.int64)), "vector": pa.FixedSizeListArray.from_arrays(flat, dim)})


def metric(about):
    """For vectors of length 1 both metrics give the same order, but with distances lancedb finds far more. With inner products it finds
    as much as plain PQ, so it seems to encode the residual of a row from its cell's centre only with distances."""
    return "cosine" if about["normalised"] else "dot"


def build(rows, about, folder, setting):
    table = None
    for start in range(0, len(rows), 200_000):
        some = batch(rows[start : start + 200_000], np.arange(start, min(start + 200_000, len(rows))))
        if table is None:
            table = lancedb.connect(str(folder)).create_table("rows", some, mode="overwrite")
        else:
            table.add(some)
    table.create_index(
        metric=metric(about),
        vector_column_name="vector",
        index_type="IVF_PQ",
        num_partitions=setting["partitions"],
        num_sub_vectors=setting["subspaces"],
        num_bits=setting["bits"],
    )


def open(folder, about, _setting, _threads):
    return lancedb.connect(str(folder)).open_table("rows"), metric(about)


def search(index, queries, k, setting, _threads):
    out = np.full((len(queries), k), -1, dtype=np.int64)
    table, distance = index
    asked = table.search(queries[0] if len(queries) == 1 else list(queries), vector_column_name="vector")
    asked = asked.distance_type(distance).nprobes(setting["probes"]).limit(k)
    if "refine" in setting:
        asked = asked.refine_factor(setting["refine"])
    found = asked.select(["id", "_distance"]).to_arrow()
    ids = found.column("id").to_numpy()
    if len(queries) == 1:
        out[0, : len(ids)] = ids
        return out
    which = found.column("query_index").to_numpy()
    for query in range(len(queries)):
        own = ids[which == query]
        out[query, : len(own)] = own
    return out


def insert(index, rows, ids, _setting):
    table, _ = index
    table.add(batch(rows, ids))
