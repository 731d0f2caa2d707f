"""What the faiss peers share: SIMD levels, filling, saving, searching."""

import faiss
import numpy as np

# Slowest first is of no matter: the fastest is kept.
LEVELS = ["NONE", "AVX2", "AVX512", "AVX512_SPR", "ARM_NEON"]
# As many rows and rounds as ours are trained with.
TRAINING_ROWS = 65_536
ROUNDS = 25


def about(name):
    return {
        "name": name,
        "version": faiss.__version__,
        "durable": "no: the whole index is written by hand",
        "distribution": "faiss-cpu",
    }


def levels():
    """Every SIMD level that can be set here; {} is the default, which for 8-bit codes is not the fastest."""
    found = [{}]
    if hasattr(faiss, "SIMDConfig"):
        default = faiss.SIMDConfig.get_level()
        for name in LEVELS:
            value = getattr(faiss, f"SIMDLevel_{name}", None)
            try:
                if value is not None and value != default:
                    faiss.SIMDConfig.set_level(value)
                    found.append({"level": name})
            except Exception:  # noqa: BLE001 - this machine has not got it
                pass
        faiss.SIMDConfig.set_level(default)
    return found


def factory(dim, text):
    """`np` in the text: no polysemous training, which takes most of the time and is for another search."""
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
    # Queries are what its threads share: a second one only slows a single query down, to half its speed at times.
    faiss.omp_set_num_threads(min(threads, len(queries)))
    return index.search(queries, k)[1]


def insert(index, rows, _ids, _setting):
    index.add(rows)
