"""What the faiss peers share: SIMD levels, filling, saving, searching."""

import faiss
import numpy as np

# The fastest level is kept, whatever the order.
LEVELS = ["NONE", "AVX2", "AVX512", "AVX512_SPR", "ARM_NEON"]
# The number of rows and rounds with which mopqdb's codes are trained.
TRAINING_ROWS = 65_536
ROUNDS = 25


def about(name):
    return {
        "name": name,
        "version": faiss.__version__,
        "durable": "no (save is manual)",
        "distribution": "faiss-cpu",
    }


def levels():
    """Returns every SIMD level that can be set on this machine. {} is the default, which is not the fastest for 8-bit codes."""
    found = [{}]
    if hasattr(faiss, "SIMDConfig"):
        default = faiss.SIMDConfig.get_level()
        for name in LEVELS:
            value = getattr(faiss, f"SIMDLevel_{name}", None)
            try:
                if value is not None and value != default:
                    faiss.SIMDConfig.set_level(value)
                    found.append({"level": name})
            except Exception:  # noqa: BLE001 - this machine does not support it
                pass
        faiss.SIMDConfig.set_level(default)
    return found


def factory(dim, text):
    """Adds `np` to the description: no polysemous training, which takes most of the time and serves another kind of search."""
    index = faiss.index_factory(dim, text, faiss.METRIC_INNER_PRODUCT)
    if text.startswith("OPQ"):
        faiss.downcast_VectorTransform(index.chain.at(0)).niter = ROUNDS
    return index


def sample(rows):
    step = max(1, len(rows) // TRAINING_ROWS)
    return np.ascontiguousarray(rows[::step][:TRAINING_ROWS])


def fill(index, rows, folder, train=False):
    if train:
        index.train(sample(rows))
    for start in range(0, len(rows), 100_000):
        index.add(np.ascontiguousarray(rows[start : start + 100_000]))
    faiss.write_index(index, str(folder / "index.faiss"))


def open(folder, _about, setting, _threads):
    if "level" in setting:
        faiss.SIMDConfig.set_level(getattr(faiss, "SIMDLevel_" + setting["level"]))
    return faiss.read_index(str(folder / "index.faiss"))


def search(index, queries, k, _setting, threads):
    # Its threads share out queries, so a second thread only slows down a single query, sometimes to half its speed.
    faiss.omp_set_num_threads(min(threads, len(queries)))
    return index.search(queries, k)[1]


def insert(index, rows, _ids, _setting):
    index.add(rows)
