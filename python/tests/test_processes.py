"""Signals, forks, pickles, threads, and other processes."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mopqdb
import numpy as np
import pytest

from conftest import letters, random_vectors

Python = Callable[..., subprocess.CompletedProcess[str]]

INTERRUPTED = """
import os, signal, sys, threading, time
import mopqdb, numpy as np

path, work = sys.argv[1:3]
sent = [0.0]

def slow(texts):
    time.sleep(0.05)
    return np.ones((len(texts), 3))

def interrupt():
    time.sleep(0.7)
    sent[0] = time.monotonic()
    os.kill(os.getpid(), signal.SIGINT)

if work == "insert":
    db = mopqdb.create(path, encoder=slow, dim=3)
    call = lambda: db.insert(({"key": str(n), "text": str(n)} for n in range(100_000)), batch=256)
else:
    db = mopqdb.create(path, dim=16, metric="ip")
    vectors = np.random.default_rng(1).standard_normal((3_000, 16)).astype(np.float32)
    db.insert_vectors([str(n) for n in range(len(vectors))], vectors)
    if work == "train":
        call = lambda: [db.train(method="opq", epochs=10_000, codewords=16, seed=seed) for seed in range(1000)]
    elif work == "rebuild":
        db.train(method="pq", subspaces=4, epochs=1)
        call = lambda: [db.rebuild(model) for _ in range(1000) for model in (None, "exact")]
    else:
        pairs = [(vector, str(n)) for n, vector in enumerate(vectors)]
        call = lambda: [db.eval(pairs) for _ in range(1000)]
threading.Thread(target=interrupt, daemon=True).start()
try:
    call()
except KeyboardInterrupt:
    print(f"{time.monotonic() - sent[0]:.3f}", len(db))
    # What was acknowledged is there, and the database can be used.
    assert db.verify()
    db.close()
    with mopqdb.open(path, encoder=slow if work == "insert" else None, dim=3) as again:
        assert again.warnings == [] and again.verify(deep=True)
"""


@pytest.mark.parametrize("work", ["insert", "train", "rebuild", "eval"])
def test_ctrl_c_stops_long_work_within_a_second(python: Python, tmp_path: Path, work: str) -> None:
    run = python(INTERRUPTED, tmp_path / "db", work)
    assert run.returncode == 0, run.stderr
    seconds, rows = run.stdout.split()
    assert float(seconds) < 1.0
    if work == "insert":
        # Whole batches.
        assert int(rows) % 256 == 0
    else:
        assert int(rows) == 3_000


FORKED = """
import os, sys
import mopqdb, numpy as np

db = mopqdb.open(sys.argv[1])
reader = mopqdb.open(sys.argv[1], read_only=True)
child = os.fork()
if child == 0:
    for handle in (db, reader):
        try:
            handle.query(np.ones(8))
        except mopqdb.InvalidError as why:
            assert "spawn" in str(why), why
        else:
            raise AssertionError("a forked handle was used")
    db.close()
    del db, reader
    with mopqdb.open(sys.argv[1], read_only=True) as own:
        assert len(own) == 200
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
# The child has not released the lock of its parent.
import subprocess
held = subprocess.run([sys.executable, "-c", "import mopqdb, sys; mopqdb.open(sys.argv[1])", sys.argv[1]], capture_output=True)
assert b"LockedError" in held.stderr
assert len(db) == 200 and db.delete("k1") == 1
"""


@pytest.mark.skipif(not hasattr(sys, "getswitchinterval") or sys.platform == "win32", reason="no fork")
def test_a_forked_child_that_drops_a_handle_exits_cleanly(vectors: mopqdb.Database, python: Python) -> None:
    vectors.close()
    run = python(FORKED, vectors.path)
    assert run.returncode == 0, run.stderr


def test_a_program_may_end_without_closing(python: Python, tmp_path: Path) -> None:
    script = (
        "import mopqdb, numpy as np, sys\n"
        "def encode(texts): return np.ones((len(texts), 3))\n"
        "db = mopqdb.create(sys.argv[1], encoder=encode, dim=3)\n"
        "db.insert([{'key': 'a', 'text': 'b'}])\n"
        "print('done')\n"
    )
    run = python(script, tmp_path / "db")
    assert (run.returncode, run.stdout.strip(), run.stderr) == (0, "done", "")
    # The log was closed: there was nothing to recover.
    with mopqdb.open(tmp_path / "db") as db:
        assert len(db) == 1 and db.warnings == []


def test_readers_are_pickled_by_path_and_writers_are_not(vectors: mopqdb.Database) -> None:
    with mopqdb.open(vectors.path, read_only=True, threads=1) as reader:
        again = pickle.loads(pickle.dumps(reader))
        assert again.query(np.ones(8)) == reader.query(np.ones(8))
        again.close()
    with pytest.raises(mopqdb.InvalidError, match="read_only=True"):
        pickle.dumps(vectors)


def _answer(reader: mopqdb.Reader) -> list[str]:
    return reader.query(np.ones(8)).keys


def test_workers_take_readers(vectors: mopqdb.Database) -> None:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with (
        mopqdb.open(vectors.path, read_only=True) as reader,
        ProcessPoolExecutor(2, mp_context=get_context("spawn")) as workers,
    ):
        expected = vectors.query(np.ones(8)).keys
        assert list(workers.map(_answer, [reader] * 4)) == [expected] * 4


WRITER = """
import mopqdb, numpy as np, sys, time
with mopqdb.open(sys.argv[1]) as db:
    for n in range(20):
        db.insert_vectors([f"w{n}-{at}" for at in range(50)], np.random.default_rng(n).standard_normal((50, 8)))
        print(n, flush=True)
"""


def test_a_reader_follows_a_writer_in_another_process(vectors: mopqdb.Database) -> None:
    vectors.close()
    with (
        mopqdb.open(vectors.path, read_only=True) as reader,
        subprocess.Popen([sys.executable, "-c", WRITER, vectors.path], stdout=subprocess.PIPE, text=True) as writer,
    ):
        assert writer.stdout is not None
        for line in writer.stdout:
            reader.refresh()
            # Batches appear as a whole.
            assert len(reader) >= 200 + 50 * (int(line) + 1) and len(reader) % 50 == 0
            assert len(reader.query(np.ones(8), k=20)) == 20
        assert writer.wait() == 0
        assert len(reader) == 1200


def test_threads_share_a_handle(tmp_path: Path) -> None:
    with mopqdb.create(tmp_path / "db", encoder=letters, dim=26) as db:
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for at in range(20):
                    db.insert([{"key": f"{number}-{at}", "text": "banana " * (at + 1)}])
                    assert db.query("nab")[0].text is not None
                    assert db.get(f"{number}-{at}") is not None
            except BaseException as why:
                failures.append(why)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == [] and len(db) == 120


def test_close_waits_for_calls_of_other_threads(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def encoder(texts: list[str]) -> Any:
        begun.set()
        assert go_on.wait(10)
        return np.ones((len(texts), 3))

    db = mopqdb.create(tmp_path / "db", encoder=encoder, dim=3)
    done: list[Any] = []
    insert = threading.Thread(target=lambda: done.append(db.insert([{"key": "a", "text": "b"}])))
    insert.start()
    assert begun.wait(10)
    threading.Timer(0.2, go_on.set).start()
    db.close()
    insert.join()
    assert done == [(1, 0, 0)]
    # The lock is free at once.
    mopqdb.open(tmp_path / "db").close()


def test_the_gil_is_free_while_the_engine_works(tmp_path: Path) -> None:
    with mopqdb.create(tmp_path / "db", dim=128, metric="ip", threads=1) as db:
        rows = random_vectors(20_000, 128)
        db.insert_vectors([str(at) for at in range(len(rows))], rows)
        asked = random_vectors(64, 128, seed=2)
        ended = threading.Event()

        def scan() -> None:
            db.query_vectors(asked, search="exact")
            ended.set()

        thread = threading.Thread(target=scan)
        thread.start()
        turns, longest, before = 0, 0.0, time.perf_counter()
        while not ended.is_set():
            turns += 1
            now = time.perf_counter()
            longest, before = max(longest, now - before), now
        thread.join()
        assert turns > 1_000, "Python stood still while the engine worked"
