"""lancedb with vectors of a plain Python encoder."""

import lancedb
import numpy as np
import pyarrow as pa


def about():
    note = "IVF_PQ of 8 bytes from 65,536 texts on, as mopqdb gets codes from there on; below, full-precision vectors"
    return {"name": "lancedb + Python encoder", "version": f"lancedb {lancedb.__version__}", "note": note}


def insert(folder, encode, batches, count):
    table = None
    for keys, texts in batches:
        vectors = encode(list(texts))
        flat = pa.array(vectors.reshape(-1))
        some = pa.table(
            {
                "key": pa.array(keys),
                "text": pa.array(texts),
                "vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
            }
        )
        if table is None:
            table = lancedb.connect(folder).create_table("rows", some)
        else:
            table.add(some)
    if count >= 65_536:
        table.create_index(
            metric="cosine", vector_column_name="vector", index_type="IVF_PQ",
            num_partitions=int(count**0.5), num_sub_vectors=8,
        )  # fmt: skip


def opened(folder, encode):
    table = lancedb.connect(folder).open_table("rows")
    probes = max(1, int(table.count_rows() ** 0.5) // 5)

    def ask(text):
        found = table.search(np.asarray(encode([text])[0]), vector_column_name="vector")
        found = found.distance_type("cosine").nprobes(probes).limit(11).select(["key", "text", "_distance"]).to_arrow()
        return found.column("key").to_pylist()

    return ask
