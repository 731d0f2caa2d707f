"""sqlite-vec: full-precision vectors in SQLite, every row compared. It has no inner product, so vectors that are not normalised
get one more value that makes all of them equally long. Distances then give the order of inner products."""

from concurrent.futures import ThreadPoolExecutor

import apsw
import numpy as np
import sqlite_vec


def about():
    from importlib.metadata import version

    name = f"{version('sqlite-vec')} (SQLite {apsw.sqlite_lib_version()})"
    return {"name": "sqlite-vec", "version": name, "durable": "yes", "batches": False}


def settings(_rows, dim, _bytes):
    return [{"build": {}, "bytes": 4 * dim, "search": [{}]}]


def connect(folder):
    base = apsw.Connection(str(folder / "rows.db"))
    base.enable_load_extension(True)
    base.load_extension(sqlite_vec.loadable_path())
    base.execute("pragma journal_mode = wal; pragma synchronous = full; pragma mmap_size = 17179869184; pragma cache_size = -65536")
    return base


def longer(rows, about, most):
    rows = np.ascontiguousarray(rows, dtype=np.float32)
    if about["normalised"]:
        return rows
    rest = np.sqrt(np.maximum(0, most - (rows * rows).sum(1)))
    return np.hstack([rows, rest[:, None]]).astype(np.float32)


def build(rows, about, folder, _setting):
    base = connect(folder)
    dim = about["dim"] + (not about["normalised"])
    base.execute(f"create virtual table v using vec0(id integer primary key, vector float[{dim}])")
    most = 0.0
    for start in range(0, len(rows), 10_000):
        some = np.asarray(rows[start : start + 10_000])
        most = max(most, float((some * some).sum(1).max()))
    base.execute("create table most (value real)")
    base.execute("insert into most values (?)", (most,))
    for start in range(0, len(rows), 10_000):
        with base:
            write(base, longer(rows[start : start + 10_000], about, most), range(start, len(rows)))


def write(base, rows, ids):
    base.executemany("insert into v (id, vector) values (?, ?)", ((id, row.tobytes()) for id, row in zip(ids, rows)))


def open(folder, about, _setting, threads):
    bases = [connect(folder) for _ in range(threads)]
    return bases, about, bases[0].execute("select value from most").fetchone()[0]


def search(index, queries, k, _setting, _threads):
    """A connection searches on one thread. With several threads, each takes a part of the queries."""
    bases, about, _ = index
    out = np.full((len(queries), k), -1, dtype=np.int64)
    if not about["normalised"]:
        queries = np.hstack([queries, np.zeros((len(queries), 1), dtype=np.float32)])

    def part(first):
        for row, query in zip(out[first :: len(bases)], queries[first :: len(bases)]):
            asked = bases[first].execute("select id from v where vector match ? and k = ?", (query.tobytes(), k))
            found = asked.fetchall()
            row[: len(found)] = [id for (id,) in found]

    with ThreadPoolExecutor(len(bases)) as pool:
        list(pool.map(part, range(min(len(bases), len(queries)))))
    return out


def insert(index, rows, ids, _setting):
    bases, about, most = index
    base = bases[0]
    with base:
        write(base, longer(rows, about, most), map(int, ids))
