"""faiss-cpu on the very codes, codebook and queries that `compare` wrote: one thread, CPU time, every SIMD level
that the machine has, the fastest counts. Prints one JSON object.

usage: faiss_peer.py DIR [--train]     (DIR holds meta.json and the raw little-endian arrays it names)
"""

import json
import sys
import time
from pathlib import Path

import faiss
import numpy as np

LEVELS = ["NONE", "AVX2", "AVX512", "AVX512_SPR"]


def fastest(repeats, work):
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def levels():
    """Names of the levels that can be set here; the default is always tried."""
    found = [None]
    for name in LEVELS:
        value = getattr(faiss, "SIMDLevel_" + name, None)
        if value is None or not hasattr(faiss, "SIMDConfig"):
            continue
        try:
            faiss.SIMDConfig.set_level(value)
            found.append(name)
        except Exception:  # noqa: BLE001 - the level is not there: faiss says so by its own exception types
            pass
    return found


DEFAULT = faiss.SIMDConfig.get_level() if hasattr(faiss, "SIMDConfig") else None


def set_level(name):
    if hasattr(faiss, "SIMDConfig"):
        faiss.SIMDConfig.set_level(DEFAULT if name is None else getattr(faiss, "SIMDLevel_" + name))


def at_best_level(measure):
    """The least of measure() over all levels, and the level's name."""
    best = (float("inf"), None)
    for name in levels():
        set_level(name)
        seconds = measure()
        if seconds < best[0]:
            best = (seconds, name or "default")
    set_level(None)
    return {"seconds": best[0], "level": best[1]}


def index_pq(meta, folder):
    bits = (meta["codewords"] - 1).bit_length()
    index = faiss.IndexPQ(meta["dim"], meta["subspaces"], bits, faiss.METRIC_INNER_PRODUCT)
    centroids = np.fromfile(folder / "codebook.f32", dtype="<f4")
    faiss.copy_array_to_vector(np.ascontiguousarray(centroids), index.pq.centroids)
    index.is_trained = True
    codes = np.fromfile(folder / "codes.u8", dtype=np.uint8).reshape(meta["rows"], meta["subspaces"])
    if bits == 4:
        codes = codes[:, 0::2] | codes[:, 1::2] << 4
    index.add_sa_codes(np.ascontiguousarray(codes))
    return index


def search(meta, folder):
    index = index_pq(meta, folder)
    queries = np.fromfile(folder / "queries.f32", dtype="<f4").reshape(-1, meta["dim"])
    out = {}
    for k in meta["k"]:
        expected = np.fromfile(folder / f"scores.{k}.f32", dtype="<f4").reshape(len(queries), k)
        scores, _ = index.search(queries, k)
        # The same scores up to the order of f32 sums, or it is not the same work.
        assert np.allclose(scores, expected, rtol=1e-4, atol=1e-3), "faiss finds other scores"
        one = queries[:1]
        out[f"pq k={k}"] = at_best_level(lambda: fastest(meta["repeats"], lambda: index.search(one, k)))
        if k == 10:
            several = np.ascontiguousarray(queries[:16])
            out["pq 16 queries"] = at_best_level(lambda: fastest(3, lambda: index.search(several, k)))
    if meta["codewords"] == 16:
        fast = faiss.IndexPQFastScan(index)
        for k in meta["k"]:
            out[f"fastscan k={k}"] = at_best_level(lambda: fastest(meta["repeats"], lambda: fast.search(one, k)))
            if k == 10:
                several = np.ascontiguousarray(queries[:16])
                out["fastscan 16 queries"] = at_best_level(lambda: fastest(3, lambda: fast.search(several, k)))
    return out


def train(meta, folder):
    rows = np.fromfile(folder / "rows.f32", dtype="<f4").reshape(-1, meta["dim"])
    out = {}
    pq = faiss.ProductQuantizer(meta["dim"], meta["subspaces"], 8)
    pq.cp.niter = meta["iterations"]
    start = time.process_time()
    pq.train(rows)
    out["train"] = {"seconds": time.process_time() - start}
    codes = pq.compute_codes(rows)
    out["train"]["distortion"] = float(((rows - pq.decode(codes)) ** 2).sum(1).mean())
    out["encode"] = at_best_level(lambda: fastest(2, lambda: pq.compute_codes(rows[:20000])))
    opq = faiss.OPQMatrix(meta["dim"], meta["subspaces"])
    opq.niter = meta["iterations"]
    start = time.process_time()
    opq.train(rows)
    rotated = opq.apply(rows)
    pq = faiss.ProductQuantizer(meta["dim"], meta["subspaces"], 8)
    pq.cp.niter = meta["iterations"]
    pq.train(rotated)
    out["opq"] = {"seconds": time.process_time() - start}
    out["opq"]["distortion"] = float(((rotated - pq.decode(pq.compute_codes(rotated))) ** 2).sum(1).mean())
    return out


def main():
    faiss.omp_set_num_threads(1)
    folder = Path(sys.argv[1])
    meta = json.loads((folder / "meta.json").read_text())
    out = train(meta, folder) if "--train" in sys.argv else search(meta, folder)
    print(json.dumps({"faiss": faiss.__version__, **out}))


main()
