"""Prints what the package costs. Run it on a quiet machine, with a wheel that was built with `--release`:

    python python/tests/measure.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import mopqdb
import mopqdb._native as native
import numpy as np


def best(runs: int, work) -> float:  # type: ignore[no-untyped-def]
    """Returns the shortest of some runs, in seconds."""
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def overhead(db: mopqdb.Database, asked: np.ndarray, runs: int = 100) -> float:  # type: ignore[type-arg]
    """Returns the seconds by which a query takes longer from Python than in the engine: the best of short runs by turns, so
    that other work on the machine hardly counts."""
    times = 50
    whole, own = [], []
    for _ in range(runs):
        begin = time.perf_counter()
        for _ in range(times):
            db.query(asked, 10)
        whole.append((time.perf_counter() - begin) / times)
        own.append(native._time_queries(db._native, asked, 10, times))
    return min(whole) - min(own)


def main() -> None:
    """Measures."""
    package = Path(mopqdb.__file__).parent
    size = sum(file.stat().st_size for file in package.rglob("*") if file.is_file())
    print(f"installed: {size / 1e6:.1f} MB")
    empty = best(7, lambda: subprocess.run([sys.executable, "-c", ""], check=True))
    whole = best(7, lambda: subprocess.run([sys.executable, "-c", "import mopqdb"], check=True))
    print(f"import: {(whole - empty) * 1e3:.0f} ms")
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(1)
        rows = rng.standard_normal((100_000, 128)).astype(np.float32)
        with mopqdb.create(Path(folder) / "db", dim=128, metric="ip", threads=1) as db:
            db.insert_vectors([str(at) for at in range(100)], rows[:100])
            print(f"a vector query takes {overhead(db, rows[0]) * 1e6:.1f} us longer than in the engine")
            db.insert_vectors([str(at) for at in range(len(rows))], rows)
            db.seal()
            asked = rows[:32]

            def scans() -> None:
                for _ in range(4):
                    db.query_vectors(asked, search="exact")

            def together() -> None:
                threads = [threading.Thread(target=scans) for _ in range(2)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()

            one, two = best(5, scans), best(5, together)
            print(f"two threads scan {2 * one / two:.2f} times as much as one")


if __name__ == "__main__":
    main()
