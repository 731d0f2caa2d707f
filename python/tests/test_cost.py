"""What the package costs: time to import, threads, memory, time per call. Bounds leave room for a busy machine;
`measure.py` prints the figures."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import mopqdb
import numpy as np
import pytest

from conftest import random_vectors

Python = Callable[..., subprocess.CompletedProcess[str]]


def test_importing_starts_no_thread_and_loads_no_other_package(python: Python) -> None:
    script = (
        "import os, sys, threading, mopqdb\n"
        "tasks = len(os.listdir('/proc/self/task')) if os.path.isdir('/proc/self/task') else 1\n"
        "loaded = [name for name in ('numpy', 'pandas', 'pyarrow', 'onnxruntime', 'torch') if name in sys.modules]\n"
        "print(threading.active_count(), tasks, loaded)\n"
    )
    run = python(script)
    assert run.stdout.strip() == "1 1 []", run.stderr


def test_memory_is_flat_over_ten_thousand_batches(tmp_path: Path) -> None:
    with mopqdb.create(tmp_path / "db", dim=8, metric="ip", threads=1) as db:
        db.insert_vectors([f"k{at}" for at in range(100)], random_vectors(100, 8))
        asked = random_vectors(4, 8)
        row = random_vectors(1, 8, seed=3)

        def batches(count: int) -> None:
            for at in range(count):
                db.query_vectors(asked, k=5)
                if at % 10 == 0:
                    db.query(asked[0], k=5)
                    db.get("k3")
                    # An identical row is recognised, and not written.
                    db.insert_vectors(["same"], row)

        batches(1_000)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        batches(10_000)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 4_096, f"{grown} KiB"


def test_a_call_costs_little_more_than_the_engine(tmp_path: Path) -> None:
    import measure

    with mopqdb.create(tmp_path / "db", dim=128, metric="ip", threads=1) as db:
        db.insert_vectors([f"k{at}" for at in range(100)], random_vectors(100, 128))
        overhead = measure.overhead(db, random_vectors(1, 128)[0])
    # The specification is 5; a debug build on a busy machine takes more.
    assert overhead * 1e6 < 50


@pytest.mark.parametrize("k", [1, 10])
def test_what_is_measured_is_what_is_answered(tmp_path: Path, k: int) -> None:
    with mopqdb.create(tmp_path / "db", dim=4, metric="ip") as db:
        db.insert_vectors(["a", "b"], np.eye(2, 4))
        assert mopqdb._native._time_queries(db._native, np.ones(4), k, 10) > 0
