"""Pairs of a query and its right answer: a list, a DataFrame or an Arrow table."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ._errors import InvalidError, InvalidTypeError


def listed(pairs: Any) -> list[tuple[Any, Any]]:
    """Returns pairs as a list of (query, right answer); of a table the first two columns."""
    if hasattr(pairs, "itertuples") and hasattr(pairs, "columns"):
        pairs = pairs.itertuples(index=False, name=None)
    elif hasattr(pairs, "to_pylist") and hasattr(pairs, "column_names"):
        pairs = zip(*(pairs.column(at).to_pylist() for at in range(len(pairs.column_names))))
    elif hasattr(pairs, "iter_rows"):
        pairs = pairs.iter_rows()
    if isinstance(pairs, (str, bytes)) or not isinstance(pairs, Iterable):
        raise InvalidTypeError(f"a {type(pairs).__name__} instead of pairs; give a list of (query, key)")
    found = []
    for at, pair in enumerate(pairs):
        if isinstance(pair, (str, bytes)) or not isinstance(pair, Iterable):
            raise InvalidTypeError(f"pair {at} is a {type(pair).__name__}; give (query, key)")
        both = tuple(pair)
        if len(both) < 2:
            raise InvalidError(f"pair {at} has {len(both)} parts; give (query, key)")
        found.append((both[0], both[1]))
    if not found:
        raise InvalidError("there are no pairs; give at least one (query, key)")
    return found


def write(pairs: list[tuple[Any, Any]], folder: Path, name: str) -> list[str]:
    """Writes pairs as the trainer reads them, and returns its arguments: a line per pair, and the queries in a file of
    their own where they are vectors."""
    import numpy as np

    lines: list[str] = []
    vectors: list[Any] = []
    for at, (query, right) in enumerate(pairs):
        for answer in [right] if isinstance(right, str) else right:
            if not isinstance(answer, str):
                raise InvalidTypeError(f"the right answer of pair {at} is a {type(answer).__name__}; give a str")
            if "\n" in answer or "\r" in answer:
                raise InvalidError(f"the right answer of pair {at} has a line break, which a file of pairs can't hold")
            if isinstance(query, str):
                # Encoders take all white space for the same.
                lines.append(" ".join(query.split()) + "\t" + answer)
            else:
                lines.append(f"{len(vectors)}\t{answer}")
        if not isinstance(query, str):
            vectors.append(np.asarray(query, dtype=np.float32))
    if vectors and len(vectors) < len(pairs):
        raise InvalidError("some queries are texts and some are vectors; give one kind")
    path = folder / f"{name}.tsv"
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    arguments = ["--pairs" if name == "train" else "--valid", str(path)]
    if vectors:
        array = folder / f"{name}.npy"
        np.save(array, np.stack(vectors))
        arguments += ["--queries" if name == "train" else "--valid-queries", str(array)]
    return arguments
