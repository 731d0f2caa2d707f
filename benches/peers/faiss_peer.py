"""Measures faiss-cpu on the codes, codebooks and queries that `versus_faiss` wrote: one thread, CPU time, the fastest SIMD level
of this machine. Prints one JSON object.

usage: faiss_peer.py search|train DIR     (DIR contains meta.json and raw little-endian arrays)
"""

import json
import sys
import time
from pathlib import Path

import faiss
import numpy as np

LEVELS = ["NONE", "AVX2", "AVX512", "AVX512_SPR"]


def fastest(work, seconds=0.0):
    """Returns the CPU seconds of the fastest call, of at least three and of as many as fit into `seconds`."""
    best, calls, until = float("inf"), 0, time.perf_counter() + seconds
    while calls < 3 or time.perf_counter() < until:
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
        calls += 1
    return best


def levels():
    """Returns the names of the levels that can be set on this machine. The default is always tried."""
    found = [None]
    for name in LEVELS:
        value = getattr(faiss, "SIMDLevel_" + name, None)
        if value is None or not hasattr(faiss, "SIMDConfig"):
            continue
        try:
            faiss.SIMDConfig.set_level(value)
            found.append(name)
        except Exception:  # noqa: BLE001 - the level is not supported; faiss has its own exception types
            pass
    return found


DEFAULT = faiss.SIMDConfig.get_level() if hasattr(faiss, "SIMDConfig") else None


def set_level(name):
    if hasattr(faiss, "SIMDConfig"):
        faiss.SIMDConfig.set_level(DEFAULT if name is None else getattr(faiss, "SIMDLevel_" + name))


def at_best_level(work, seconds=0.0):
    """Returns the CPU seconds of the work at its fastest level, and the name of that level."""
    tried = []
    for name in levels():
        set_level(name)
        tried.append((fastest(work), name))
    _, name = min(tried, key=lambda level: level[0])
    set_level(name)
    best = min(fastest(work, seconds), *(time for time, of in tried if of == name))
    set_level(None)
    return {"seconds": best, "level": name or "default"}


def index_pq(meta, folder, which, bits):
    index = faiss.IndexPQ(meta["dim"], meta[which], bits, faiss.METRIC_INNER_PRODUCT)
    centroids = np.fromfile(folder / f"{which}.codebook.f32", dtype="<f4")
    faiss.copy_array_to_vector(np.ascontiguousarray(centroids), index.pq.centroids)
    index.is_trained = True
    codes = np.fromfile(folder / f"{which}.codes.u8", dtype=np.uint8).reshape(meta["rows"], meta[which])
    if bits == 4:
        codes = codes[:, 0::2] | codes[:, 1::2] << 4
    index.add_sa_codes(np.ascontiguousarray(codes))
    return index


def search(meta, folder):
    queries = np.fromfile(folder / "queries.f32", dtype="<f4").reshape(-1, meta["dim"])
    seconds, out = meta["seconds"], {}
    plain = index_pq(meta, folder, "eight", 8)
    for k in meta["k"]:
        expected = np.fromfile(folder / f"scores.{k}.f32", dtype="<f4").reshape(len(queries), k)
        # The scores must be equal up to the order of f32 sums; otherwise the work is not the same.
        assert np.allclose(plain.search(queries, k)[0], expected, rtol=1e-4, atol=1e-3), "faiss finds other scores"
    for name, index in [("IndexPQ", plain), ("FastScan", faiss.IndexPQFastScan(index_pq(meta, folder, "four", 4)))]:
        # A few of the queries, one after another, because 16 queries over millions of rows take seconds.
        some = [queries[q : q + 1] for q in range(4)]
        for k in meta["k"]:
            measured = at_best_level(lambda: [index.search(query, k) for query in some], seconds)
            out[f"{name} k={k}"] = {**measured, "seconds": measured["seconds"] / len(some)}
        measured = at_best_level(lambda: index.search(queries, 10), seconds)
        out[f"{name} batch"] = {**measured, "seconds": measured["seconds"] / len(queries)}
    return out


def trained(train):
    """Runs once at each level, because a training takes seconds."""
    best = (float("inf"), None, None)
    for name in levels():
        set_level(name)
        start = time.process_time()
        result = train()
        best = min(best, (time.process_time() - start, name, result), key=lambda run: run[0])
    set_level(None)
    return {"seconds": best[0], "level": best[1] or "default"}, best[2]


def train(meta, folder):
    rows = np.fromfile(folder / "rows.f32", dtype="<f4").reshape(-1, meta["dim"])

    def quantizer(rows):
        pq = faiss.ProductQuantizer(meta["dim"], meta["subspaces"], 8)
        pq.cp.niter = meta["iterations"]
        pq.train(rows)
        return pq

    def rotated():
        opq = faiss.OPQMatrix(meta["dim"], meta["subspaces"])
        opq.niter = meta["iterations"]
        opq.train(rows)
        turned = opq.apply(rows)
        return turned, quantizer(turned)

    def distortion(rows, pq):
        return float(((rows - pq.decode(pq.compute_codes(rows))) ** 2).sum(1).mean())

    out = {}
    out["PQ"], pq = trained(lambda: quantizer(rows))
    out["PQ"]["distortion"] = distortion(rows, pq)
    out["encode"] = at_best_level(lambda: pq.compute_codes(rows[:20000]), 1.0)
    out["OPQ"], found = trained(rotated)
    out["OPQ"]["distortion"] = distortion(*found)
    return out


def main():
    faiss.omp_set_num_threads(1)
    folder = Path(sys.argv[2])
    meta = json.loads((folder / "meta.json").read_text())
    out = {"search": search, "train": train}[sys.argv[1]](meta, folder)
    print(json.dumps({"faiss": faiss.__version__, **out}))


main()
