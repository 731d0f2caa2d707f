"""Handles to a database: one that writes, many that read, and snapshots of either."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from . import _native, _pairs, _rows
from ._encoder import Encoder, functions
from ._errors import Cancelled, InvalidError, InvalidTypeError
from ._log import forward
from ._options import Learning, Measured, NewRows, Opening
from ._progress import Progress, Shown
from ._results import (
    Backup,
    Compacted,
    Evaluation,
    Hits,
    Inserted,
    ModelInfo,
    Rebuilt,
    Stats,
    Verified,
)
from ._setup import ensure_default_encoder, find_runtime
from ._where import Where, sql

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

Search = Literal["auto", "codes", "exact", "words"]
"""How rows are found: by codes and then stored vectors, by codes alone, by stored vectors alone, by words."""
Metric = Literal["ip", "cosine", "l2"]
Precision = Literal["f32", "f16", "i8"]
Path_ = str | bytes | os.PathLike[str] | os.PathLike[bytes]
Rows = Any
"""Dicts, or a table of pandas or Arrow."""
Self = TypeVar("Self", bound="_Handle")

_MEMORY = 512 << 20
_HANDLES: weakref.WeakSet[_Handle] = weakref.WeakSet()


class _Handle:
    """What every handle can do. Handles can be used from several threads at once."""

    def __init__(self, native: _native.Handle) -> None:
        self._native = native
        _HANDLES.add(self)

    @property
    def path(self) -> Path:
        """The directory of the database."""
        return Path(self._native.path)

    @property
    def closed(self) -> bool:
        """Whether the handle is closed."""
        return self._native.closed

    def close(self) -> None:
        """Closes the handle, once calls in other threads have ended. A closed handle can be closed again."""
        self._native.close()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self)} rows"
        return f"{type(self).__name__}({str(self.path)!r}, {state})"

    def __len__(self) -> int:
        return len(self._native)

    def __bool__(self) -> bool:
        # A handle is not false because its database is empty.
        return True

    @property
    def kind(self) -> str:
        """``"text"`` or ``"vector"``: what rows hold."""
        return self._native.shape()[0]

    @property
    def metric(self) -> str:
        """``"ip"``, ``"cosine"`` or ``"l2"``."""
        return self._native.shape()[1]

    @property
    def dim(self) -> int:
        """The width of the stored vectors."""
        return self._native.shape()[2]

    @property
    def precision(self) -> str:
        """``"f32"``, ``"f16"`` or ``"i8"``: how vectors are stored."""
        return self._native.shape()[3]

    @property
    def model(self) -> str:
        """The id of the active model."""
        return self._native.shape()[4]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._native.contains(key)

    def get(self, key: str) -> _native.Row | None:
        """Returns the row with this key, or ``None``.

        >>> db.get("red").vector
        array([1., 0., 0.], dtype=float32)
        """
        return self._native.get([key])[0]

    def get_many(self, keys: Iterable[str]) -> list[_native.Row | None]:
        """Returns the rows with these keys, in their order, all as of one moment; ``None`` where there is no such row.

        >>> db.get_many(["blue", "mauve"])
        [Row(key='blue', vector of 3), None]
        """
        return self._native.get(keys)

    def query(
        self,
        query: str | ArrayLike,
        k: int = 10,
        *,
        search: Search | None = None,
        candidates: int | None = None,
        offset: int | None = None,
        min_score: float | None = None,
        min_similarity: float | None = None,
        fusion: Literal["weighted", "rrf"] | None = None,
        keys: Iterable[str] | None = None,
        prefix: str | None = None,
        where: Where | None = None,
        columns: Iterable[str] | None = None,
    ) -> Hits:
        """Returns the best rows for a text or a vector, best first.

        :param k: how many hits, up to 10,000.
        :param search: how rows are found: ``"auto"`` (by codes, then by stored vectors and words), ``"codes"``,
            ``"exact"`` or ``"words"``.
        :param candidates: how many rows ``"auto"`` scores by their stored vectors; more find more, and take longer.
        :param offset: how many of the best hits to leave out, for a second page.
        :param min_score: leaves out hits with a lower score; ``min_similarity`` those with a lower similarity.
        :param fusion: how ``"auto"`` uses words.
        :param keys: only rows with these keys.
        :param prefix: only rows whose key begins so.
        :param where: only rows for which this is true: SQL, ``"year >= 2020"``, or a dict, ``{"year": {"$gte": 2020}}``.
        :param columns: the columns that hits come with; default: all.

        >>> hits = db.query([0.0, 0.1, 1.0], k=2)
        >>> hits[0].key, round(hits[0].score, 3)
        ('blue', 0.995)
        >>> db.query([0.0, 0.1, 1.0], prefix="r").keys
        ['red']
        """
        options = (k, search, candidates, offset, min_score, min_similarity, fusion, keys, prefix, sql(where), columns)
        return Hits(self._native.query(query, options))

    def query_batch(
        self,
        queries: Iterable[str | ArrayLike],
        k: int = 10,
        *,
        search: Search | None = None,
        candidates: int | None = None,
        offset: int | None = None,
        min_score: float | None = None,
        min_similarity: float | None = None,
        fusion: Literal["weighted", "rrf"] | None = None,
        keys: Iterable[str] | None = None,
        prefix: str | None = None,
        where: Where | None = None,
        columns: Iterable[str] | None = None,
    ) -> list[Hits]:
        """Answers several texts or vectors, which share one pass over the rows. Options are those of `query`.

        >>> [hits[0].key for hits in db.query_batch([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])]
        ['red', 'blue']
        """
        if isinstance(queries, (str, bytes)):
            raise InvalidTypeError("one text instead of a list of queries; use query for one")
        try:
            asked = list(queries)
        except TypeError:
            raise InvalidTypeError(f"a {type(queries).__name__} instead of a list of queries") from None
        options = (k, search, candidates, offset, min_score, min_similarity, fusion, keys, prefix, sql(where), columns)
        return [Hits(hits) for hits in self._native.query_batch(asked, options)]

    def query_vectors(
        self,
        queries: ArrayLike,
        k: int = 10,
        *,
        search: Search | None = None,
        candidates: int | None = None,
        min_score: float | None = None,
        keys: Iterable[str] | None = None,
        prefix: str | None = None,
        where: Where | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.object_]]:
        """Answers vectors (n, dim) by arrays (n, k): scores, and keys. Where there are fewer hits, scores are NaN and keys
        are ``None``.

        >>> scores, keys = db.query_vectors([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], k=1)
        >>> keys
        array([['red'],
               ['blue']], dtype=object)
        """
        options = (k, search, candidates, None, min_score, None, None, keys, prefix, sql(where), None)
        return self._native.query_vectors(queries, options)

    def columns(self) -> dict[str, str]:
        """Returns the names of columns and of their types: bool, int, float, string, strings, timestamp.

        >>> db.columns()
        {}
        """
        return dict(self._native.columns())

    def keys(self, *, prefix: str | None = None, where: Where | None = None) -> list[str]:
        """Returns the keys of all rows, or of those that pass a filter, in the order in which they were accepted.

        >>> db.keys(prefix="b")
        ['blue']
        """
        return self._native.keys(prefix, sql(where))

    def count(self, where: Where | None = None) -> int:
        """Returns the number of rows, or of those that pass a filter.

        >>> db.count("key LIKE 'r%'")
        1
        """
        condition = sql(where)
        return len(self) if condition is None else self._native.count(condition)

    def scan(self, batch: int = 8192, *, vectors: bool = True, where: Where | None = None) -> _native.Scan:
        """Returns all rows as record batches, as they are now, in the order in which they were accepted.

        Each batch, and the whole scan, can be given to what takes Arrow data: ``pyarrow.table(db.scan())``,
        ``polars.DataFrame(db.scan())``, DuckDB.

        :param batch: rows per batch, at most.
        :param vectors: whether a database of vectors gives them, or keys and columns alone.
        :param where: only rows that pass this filter, as in `query`.

        >>> [len(batch) for batch in db.scan()]
        [2]
        """
        return self._native.scan(batch, vectors, sql(where))

    def verify(self, *, deep: bool = False, encode: int = 0) -> Verified:
        """Reads every byte of the database and compares it with its checksum.

        :param deep: also computes every code again.
        :param encode: also encodes this many texts again.

        >>> bool(db.verify())
        True
        """
        return Verified(self._native.verify(deep, encode))

    def backup(self, path: Path_, *, active_only: bool = False, link: bool = False) -> Backup:
        """Copies the database, as it is now, to a folder that is missing or empty. Others may write it meanwhile.

        :param active_only: leaves out models that are not active, with their codes.
        :param link: shares files with the database by hard links, where the file system can.
        """
        return Backup(self._native.backup(_path(path), active_only, link))

    def stats(self) -> Stats:
        """Returns counts of rows and bytes, and whether rows have drifted from those that codes were learned from.

        >>> db.stats().rows
        2
        """
        return Stats(self._native.stats())

    def models(self) -> list[ModelInfo]:
        """Returns the models of the database, the oldest first. The one without codes is always among them.

        >>> [model.method for model in db.models()]
        ['exact']
        """
        import json

        return [ModelInfo(facts) for facts in json.loads(self._native.models())]

    def eval(
        self,
        pairs: Any,
        k: int | Iterable[int] = (10, 50, 100),
        *,
        by: Literal["key", "text"] = "key",
        model: str | None = None,
        search: Search = "auto",
        candidates: int | None = None,
        skip_missing: bool = False,
        progress: Progress = None,
    ) -> Evaluation:
        """Measures recall@k on pairs of a query and its right answer: the mean share of right rows among the first k.

        :param pairs: a list of (query, key), a DataFrame or an Arrow table; a query is a text or a vector. Pairs with the
            same query are one query with several right rows.
        :param by: whether right answers are keys or texts.
        :param model: a model of the database, by the first digits of its id, or ``"exact"``; default: the active one.
        :param skip_missing: leaves out pairs whose right answer is not in the database; otherwise they are an error.

        >>> print(db.eval([([1.0, 0.0, 0.0], "red"), ([0.0, 1.0, 1.0], "blue")], k=1))
        exact by auto, 2 queries: recall@1 1.000 [1.000, 1.000]
        """
        cuts = [k] if not isinstance(k, Iterable) else list(k)
        measured = Measured(cuts, model, search, _by(by), bool(skip_missing), candidates)
        with Shown(progress, "evaluating", "steps") as told:
            return Evaluation(self._native.eval(_pairs.listed(pairs), measured, told))


class Snapshot(_Handle):
    """A database as it was at one moment. Its answers never change."""


class Reader(_Handle):
    """A handle for reading, in any process. It sees the database as it was when it was opened or last refreshed.

    Readers can be pickled: they open the same path again.
    """

    def __init__(self, native: _native.Handle, again: tuple[Any, ...]) -> None:
        super().__init__(native)
        self._again = again

    def refresh(self) -> bool:
        """Shows what was written since. Returns ``True`` if there was anything new."""
        return self._native.refresh()

    def snapshot(self) -> Snapshot:
        """Returns the database as this reader sees it now."""
        return Snapshot(self._native.snapshot())

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (str(self.path), *self._again)


class Database(_Handle):
    """A handle for reading and writing. One process at a time has it; others read with ``open(path, read_only=True)``."""

    def __reduce__(self) -> tuple[Any, ...]:
        raise InvalidError(
            "a database that is open for writing can't be pickled: one process at a time writes it. Give the path to the "
            "other process, which opens it with read_only=True"
        )

    @property
    def warnings(self) -> list[str]:
        """What opening had to repair, in words; empty if all was in order."""
        return self._native.warnings()

    def snapshot(self) -> Snapshot:
        """Returns the database as it is now. Later writes do not change it.

        >>> before = db.snapshot()
        >>> db.insert_vectors(["green"], [[0.0, 1.0, 0.0]]).new
        1
        >>> len(before), len(db)
        (2, 3)
        """
        return Snapshot(self._native.snapshot())

    def insert(self, rows: Rows, *, batch: int = 10_000, progress: Progress = None) -> Inserted:
        """Inserts rows: dicts with ``"key"`` and ``"text"`` (or ``"vector"``), or a table with these columns, of pandas or of
        what hands over Arrow data (pyarrow, polars, DuckDB, a `scan`).

        Other fields become columns, by which queries can be filtered: bool, int, float, str, list of str, datetime. A
        column has the type of its first value. A row with an existing key replaces the old row, columns included; an
        identical row changes nothing. Rows are written in batches. Each batch is durable and atomic: after an error,
        Ctrl-C or a crash it is there as a whole or not at all, and the batches before it stay.

        :param batch: rows per batch, at most.

        >>> db.insert([{"key": "grey", "vector": [1.0, 1.0, 1.0], "warm": False}])
        Inserted(new=1, replaced=0, unchanged=0)
        >>> db.query([1.0, 1.0, 0.9], where="warm IS NOT TRUE", k=1)[0].columns
        {'warm': False}
        """
        size = _count(batch, "batch")
        counts = [0, 0, 0]
        total = len(rows) if isinstance(rows, Sized) else 0
        with Shown(progress if total else False, "inserting", "rows") as told:
            for done in self._batches(rows, size):
                counts = [sum(both) for both in zip(counts, done)]
                if told is not None and told(sum(counts), total) is False:
                    raise Cancelled(f"stopped: the first {sum(counts)} rows are in the database")
        return Inserted(*counts)

    def _batches(self, rows: Any, size: int) -> Iterator[tuple[int, int, int]]:
        """Inserts batch after batch, and tells of each what was done."""
        if hasattr(rows, "__arrow_c_stream__") and not hasattr(rows, "itertuples"):
            table = _native.Table(rows, size)
            while (done := table.insert(self._native)) is not None:
                yield done
            return
        for columns in _rows.batches(rows, self.kind, size):
            yield self._native.insert(columns.keys, columns.values, columns.fields)

    def insert_vectors(self, keys: Iterable[str], vectors: ArrayLike) -> Inserted:
        """Inserts vectors (n, dim) with their keys, as one batch, as `insert` does. float32 arrays are taken as they are;
        others are converted.

        >>> import numpy as np
        >>> db.insert_vectors(["white", "black"], np.array([[1, 1, 1], [-1, -1, -1]]))
        Inserted(new=2, replaced=0, unchanged=0)
        """
        return Inserted(*self._native.insert_vectors(keys, vectors))

    def delete(self, keys: str | Iterable[str]) -> int:
        """Deletes the rows with these keys and returns how many there were. Durable and atomic.

        >>> db.delete(["red", "mauve"])
        1
        """
        return self._native.delete([keys] if isinstance(keys, str) else keys)

    def delete_prefix(self, prefix: str) -> int:
        """Deletes the rows whose key begins so, in batches, and returns how many there were."""
        return self._native.delete_prefix(prefix)

    def delete_where(self, where: Where) -> int:
        """Deletes the rows that pass a filter, in batches, and returns how many there were."""
        return self._native.delete_where(_condition(where))

    def update(self, where: Where, values: Mapping[str, Any]) -> int:
        """Sets columns of the rows that pass a filter, in batches, and returns how many rows had other values. Texts and
        vectors stay; ``None`` takes a value away.

        >>> db.update("key = 'red'", {"warm": True})
        1
        >>> db.get("red")["warm"]
        True
        """
        if not isinstance(values, Mapping):
            raise InvalidTypeError(f"a {type(values).__name__} instead of values; give a dict of columns")
        return self._native.update_where(_condition(where), dict(values))

    def seal(self) -> bool:
        """Writes the rows that are only in the log into a segment; returns ``True`` if there were any. Happens by itself as
        the log grows."""
        return self._native.seal()

    def compact(self) -> Compacted:
        """Merges segments and frees the space of deleted and replaced rows."""
        return Compacted(self._native.compact())

    def rebuild(self, model: str | None = None, *, progress: Progress = None) -> Rebuilt:
        """Switches to another model while others query and insert. If it is interrupted, the next call continues.

        :param model: by the first digits of its id, or ``"exact"`` for no codes; default: the newest. An older one rolls
            back.

        >>> db.rebuild("exact").model == db.model
        True
        """
        with Shown(progress, "rebuilding", "rows") as told:
            return Rebuilt(self._native.rebuild(model, told))

    def train(
        self,
        pairs: Any = None,
        *,
        valid: Any = None,
        by: Literal["key", "text"] = "key",
        method: str | None = None,
        skip_missing: bool = False,
        subspaces: int | None = None,
        codewords: int | None = None,
        dim: int | None = None,
        epochs: int | None = None,
        batch: int | None = None,
        lr: float | None = None,
        seed: int | None = None,
        threads: int | None = None,
        fresh: bool = False,
        more: Sequence[str] = (),
        progress: Progress = None,
    ) -> str:
        """Learns a new model and returns its id. Queries are answered by it after `rebuild`.

        With pairs it learns what answers what; without, from the rows alone. Everything but ``"pq"`` and ``"opq"`` needs
        the program ``mopqdb-train``. Ctrl-C keeps whole epochs: the same call continues from them.

        :param pairs: a list of (query, key), a DataFrame or an Arrow table; a query is a text or a vector.
        :param valid: pairs to choose the best epoch by; default: some of the pairs.
        :param by: whether right answers are keys or texts.
        :param method: ``"mopq"`` (the default with pairs), ``"distill"`` (the default without), ``"opq"``, ``"pq"``, ...
        :param skip_missing: leaves out pairs whose right answer is not in the database; otherwise they are an error.
        :param subspaces: bytes per row, with 256 codewords.
        :param more: further flags of ``mopqdb-train``.

        >>> model = db.train(method="pq", subspaces=1, codewords=2)
        >>> db.rebuild(model).rows
        5
        """
        if method in ("pq", "opq") and pairs is None:
            given = {"valid": valid, "dim": dim, "batch": batch, "lr": lr, "more": more or None, "fresh": fresh or None}
            for name, value in given.items():
                if value is not None:
                    raise InvalidError(f"{name} has no meaning for method={method!r}")
            learning = Learning(method == "opq", subspaces, codewords, epochs, seed)
            with Shown(progress, "learning", "steps") as told:
                return self._native.learn(learning, told)
        from tempfile import TemporaryDirectory

        from . import _train

        if self.closed:
            self._native.shape()
        flags = {
            "--method": method,
            "--subspaces": subspaces,
            "--codewords": codewords,
            "--dim": dim,
            "--epochs": epochs,
            "--batch": batch,
            "--lr": lr,
            "--seed": seed,
            "--threads": threads,
        }
        arguments = [str(self.path)]
        for flag, value in flags.items():
            if value is not None:
                arguments += [flag, str(value)]
        arguments += ["--fresh"] if fresh else []
        with TemporaryDirectory(prefix="mopqdb-") as folder:
            if pairs is not None:
                arguments += _pairs.write(_pairs.listed(pairs), Path(folder), "train")
            if valid is not None:
                arguments += _pairs.write(_pairs.listed(valid), Path(folder), "valid")
            if pairs is not None or valid is not None:
                arguments += ["--key-ids"] if _by(by) and "--queries" not in arguments else []
                arguments += ["--skip-missing"] if skip_missing else []
            return _train.run([*arguments, *more], progress)


@overload
def open(
    path: Path_,
    *,
    read_only: Literal[False] = False,
    encoder: Encoder | None = None,
    encoder_name: str | None = None,
    query_encoder: Encoder | None = None,
    dim: int | None = None,
    threads: int = 0,
    memory_limit: int = _MEMORY,
) -> Database: ...
@overload
def open(
    path: Path_,
    *,
    read_only: Literal[True],
    encoder: Encoder | None = None,
    encoder_name: str | None = None,
    query_encoder: Encoder | None = None,
    dim: int | None = None,
    threads: int = 0,
    memory_limit: int = _MEMORY,
) -> Reader: ...
def open(
    path: Path_,
    *,
    read_only: bool = False,
    encoder: Encoder | None = None,
    encoder_name: str | None = None,
    query_encoder: Encoder | None = None,
    dim: int | None = None,
    threads: int = 0,
    memory_limit: int = _MEMORY,
) -> Database | Reader:
    """Opens a database. If there is none, one of texts with the default encoder is made; `create` makes others.

    :param read_only: opens for reading, in any process, while another one may write. Returns a `Reader`.
    :param encoder: the encoder of a database that was created with one, with its name and width as in `create`.
    :param threads: for scans and encoding; 0: one per core.
    :param memory_limit: bytes for the buffers of rebuild, compact and training.
    """
    place = _path(path)
    if not read_only and _native.is_vacant(place):
        return create(
            place,
            encoder=encoder,
            encoder_name=encoder_name,
            query_encoder=query_encoder,
            dim=dim,
            threads=threads,
            memory_limit=memory_limit,
        )
    find_runtime()
    own = functions(encoder, encoder_name, query_encoder, dim)
    opening = Opening(threads, memory_limit, own)
    native = _native.open(place, bool(read_only), opening)
    if read_only:
        return Reader(native, (encoder, encoder_name, query_encoder, dim, threads))
    db = Database(native)
    for warning in db.warnings:
        forward("warning", warning)
    return db


def create(
    path: Path_,
    *,
    dim: int | None = None,
    metric: Metric | None = None,
    encoder: Encoder | None = None,
    encoder_name: str | None = None,
    query_encoder: Encoder | None = None,
    bundle: Path_ | None = None,
    precision: Precision | None = None,
    language: str | None = "english",
    threads: int = 0,
    memory_limit: int = _MEMORY,
) -> Database:
    """Creates a database in a directory that is missing or empty: of texts with the default encoder, of texts with another
    encoder, or, where only ``dim`` is given, of vectors.

    :param dim: the width of vectors.
    :param metric: ``"cosine"`` (the default), ``"ip"`` or ``"l2"``.
    :param encoder: a function from a list of texts to an array (texts, dim). The database stores its name, and who opens
        the database gives it again.
    :param encoder_name: a name for the encoder and its version; default: that of the function.
    :param query_encoder: encodes queries; default: as the texts of rows.
    :param bundle: a model in a folder, which has its own encoder, width and metric.
    :param precision: of stored vectors; default: ``"f32"`` for vectors, ``"f16"`` for what an encoder makes of texts.
    :param language: of the words of texts, by which they can be searched too; ``"none"`` for no stemming, ``None`` for no
        search by words.

    >>> words = create("words.db", encoder=count_letters, dim=26)
    >>> words.insert([{"key": "a", "text": "banana"}, {"key": "b", "text": "cherry"}]).new
    2
    >>> words.query("nab", k=1)[0].text
    'banana'
    >>> words.close()
    """
    find_runtime()
    own = functions(encoder, encoder_name, query_encoder, dim)
    if own is None and bundle is None and dim is None:
        ensure_default_encoder()
    rows = NewRows(dim, metric, None if bundle is None else _path(bundle), precision, language)
    opening = Opening(threads, memory_limit, own)
    return Database(_native.create(_path(path), rows, opening))


def _reopen(
    path: str,
    encoder: Encoder | None,
    encoder_name: str | None,
    query_encoder: Encoder | None,
    dim: int | None,
    threads: int,
) -> Reader:
    return open(
        path,
        read_only=True,
        encoder=encoder,
        encoder_name=encoder_name,
        query_encoder=query_encoder,
        dim=dim,
        threads=threads,
    )


def _path(path: Path_) -> str:
    try:
        place = os.fsdecode(path)
    except TypeError:
        raise InvalidTypeError(f"{path!r} is not a path; give a str or a pathlib.Path") from None
    if not place or "\0" in place:
        raise InvalidError(f"{place!r} is not a path")
    return place


def _condition(where: Where) -> str:
    condition = sql(where)
    if condition is None:
        raise InvalidTypeError("there is no filter; give SQL as a str, or a dict")
    return condition


def _by(by: str) -> bool:
    if by not in ("key", "text"):
        raise InvalidError(f'by is {by!r}; right answers are given by "key" or by "text"')
    return by == "key"


def _count(number: Any, name: str) -> int:
    if isinstance(number, bool) or not isinstance(number, int):
        raise InvalidTypeError(f"{name} is {number!r}; give a whole number")
    if number < 1:
        raise InvalidError(f"{name} is {number}; give a number from 1")
    return number


def _close_all() -> None:
    """Closes logs and ends threads while there is an interpreter for them to end in."""
    handles: Iterator[_Handle] = iter(list(_HANDLES))
    for handle in handles:
        handle.close()


atexit.register(_close_all)
