"""Training from pairs, by the program `mopqdb-train`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import mopqdb
import mopqdb._train
import numpy as np
import pytest

from conftest import random_vectors


@pytest.fixture(autouse=True)
def trainer() -> None:
    assert mopqdb._train.find() is not None, "build it first: cargo build --bin mopqdb-train"


def pairs_of(vectors: np.ndarray) -> list[tuple[np.ndarray, str]]:  # type: ignore[type-arg]
    noise = random_vectors(*vectors.shape, seed=8)
    return [(vector + 0.1 * other, f"k{at}") for at, (vector, other) in enumerate(zip(vectors, noise))]


OPTIONS = {"subspaces": 2, "codewords": 8, "dim": 8, "epochs": 2, "batch": 32, "threads": 1}


def test_a_model_is_learned_from_pairs_switched_to_and_measured(vectors: mopqdb.Database) -> None:
    pairs = pairs_of(random_vectors(200, 8))
    model = vectors.train(pairs[:150], valid=pairs[150:], **OPTIONS)  # type: ignore[arg-type]
    learned = vectors.models()[-1]
    assert learned.id == model and learned.method == "mopq" and not learned.active
    assert vectors.rebuild(model).model == vectors.model == model
    found = vectors.eval(pairs, k=10, search="codes")
    assert found.model == model and 0.0 < found[10] <= 1.0
    # The same run is not done twice.
    assert vectors.train(pairs[:150], valid=pairs[150:], **OPTIONS) == model  # type: ignore[arg-type]


def test_pairs_of_texts_may_come_in_tables(texts: mopqdb.Database) -> None:
    import pandas as pd

    texts.insert([{"key": f"t{at}", "text": f"{chr(97 + at % 26) * 3} {chr(97 + at // 26) * 2}"} for at in range(100)])
    table = pd.DataFrame({"query": [f"{chr(97 + at % 26)}\tline\nbreak" for at in range(100)], "key": [f"t{at}" for at in range(100)]})
    model = texts.train(method="opq", subspaces=2, codewords=8)
    assert texts.models()[-1].id == model
    with pytest.raises(mopqdb.Error):
        # mopqdb-train has no encoder of this program's own.
        texts.train(table, **OPTIONS)  # type: ignore[arg-type]


def test_what_the_trainer_refuses_is_told(vectors: mopqdb.Database) -> None:
    pairs = pairs_of(random_vectors(200, 8))
    with pytest.raises(mopqdb.Error, match="gone"):
        vectors.train([*pairs, (np.ones(8), "gone")], **OPTIONS)  # type: ignore[arg-type]
    with pytest.raises(mopqdb.Error, match="method"):
        vectors.train(pairs, method="magic")
    with pytest.raises(mopqdb.InvalidError, match="one kind"):
        vectors.train([*pairs, ("a text", "k1")])
    with pytest.raises(mopqdb.InvalidTypeError, match="right answer"):
        vectors.train([(np.ones(8), [3])])
    assert len(vectors.models()) == 1


INTERRUPTED = """
import os, signal, sys, threading, time
import mopqdb, numpy as np

rng = np.random.default_rng(1)
rows = rng.standard_normal((2_000, 16)).astype(np.float32)
db = mopqdb.create(sys.argv[1], dim=16)
db.insert_vectors([str(n) for n in range(len(rows))], rows)
sent = [0.0]

def interrupt():
    time.sleep(4)
    sent[0] = time.monotonic()
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    # Without patience it would end by itself.
    pairs = [(row, str(n)) for n, row in enumerate(rows)]
    db.train(pairs, epochs=100_000, subspaces=2, dim=16, threads=1, more=["--patience", "100000"])
except KeyboardInterrupt:
    print(f"{time.monotonic() - sent[0]:.3f}")
assert len(db.models()) == 1
"""


def test_ctrl_c_stops_the_trainer_within_a_second(
    python: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    run = python(INTERRUPTED, tmp_path / "db")
    assert run.returncode == 0, run.stderr
    assert float(run.stdout) < 1.0
