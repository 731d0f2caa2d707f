"""Fixtures of the tests, which run against the installed package, never against the source tree."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mopqdb
import numpy as np
import pytest
from numpy.typing import NDArray

CHECKOUT = Path(__file__).parents[2]


def letters(texts: list[str]) -> NDArray[np.float32]:
    """Counts letters: an encoder that needs no runtime."""
    return np.array([[text.count(chr(97 + at)) for at in range(26)] for text in texts], dtype=np.float32)


def random_vectors(rows: int, dim: int, seed: int = 7) -> NDArray[np.float32]:
    """Returns vectors that are the same in every run."""
    return np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)


@pytest.fixture
def vectors(tmp_path: Path) -> Iterator[mopqdb.Database]:
    """A database of 200 vectors of 8 values, with keys k0 to k199."""
    with mopqdb.create(tmp_path / "vectors.db", dim=8, metric="cosine") as db:
        db.insert_vectors([f"k{at}" for at in range(200)], random_vectors(200, 8))
        yield db


@pytest.fixture
def texts(tmp_path: Path) -> Iterator[mopqdb.Database]:
    """A database of texts with an encoder of its own."""
    with mopqdb.create(tmp_path / "texts.db", encoder=letters, dim=26) as db:
        db.insert([{"key": "a", "text": "banana"}, {"key": "b", "text": "cherry"}, {"key": "c", "text": "fig"}])
        yield db


@pytest.fixture
def python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a script in another interpreter, with the package but without this process' state."""

    def run(script: str, *arguments: Any, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", script, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, **(env or {})},
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def program() -> Path:
    """The program, as `cargo build` makes it."""
    path = CHECKOUT / "target" / "debug" / "mopqdb"
    assert path.is_file(), "build the program first: cargo build --bin mopqdb"
    return path
