"""Each exception raised on purpose, and what is refused."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mopqdb
import numpy as np
import pytest

from conftest import letters, random_vectors


def test_the_exceptions_form_a_tree() -> None:
    kinds = [getattr(mopqdb, name) for name in mopqdb.__all__ if isinstance(getattr(mopqdb, name), type)]
    kinds = [kind for kind in kinds if issubclass(kind, BaseException)]
    assert len(kinds) == 12 and all(issubclass(kind, mopqdb.Error) for kind in kinds)
    assert issubclass(mopqdb.InvalidError, ValueError) and issubclass(mopqdb.InvalidTypeError, TypeError)
    assert issubclass(mopqdb.IoError, OSError)
    assert not issubclass(KeyboardInterrupt, mopqdb.Error)


WRONG: list[tuple[type[mopqdb.Error], str, Callable[[mopqdb.Database], Any]]] = [
    # Types.
    (mopqdb.InvalidTypeError, "vector", lambda db: db.query(None)),
    (mopqdb.InvalidTypeError, "vector", lambda db: db.query(b"bytes")),
    (mopqdb.InvalidTypeError, "vector", lambda db: db.query({"a": 1})),
    (mopqdb.InvalidTypeError, "complex", lambda db: db.query(np.zeros(8, dtype=complex))),
    (mopqdb.InvalidTypeError, "bool", lambda db: db.query(np.zeros(8, dtype=bool))),
    (mopqdb.InvalidTypeError, "whole number", lambda db: db.query(np.ones(8), k="ten")),
    (mopqdb.InvalidTypeError, "whole number", lambda db: db.query(np.ones(8), k=1.5)),
    (mopqdb.InvalidTypeError, "str", lambda db: db.query(np.ones(8), search=3)),
    (mopqdb.InvalidTypeError, "str", lambda db: db.query(np.ones(8), prefix=3)),
    (mopqdb.InvalidTypeError, "number", lambda db: db.query(np.ones(8), min_score="high")),
    (mopqdb.InvalidTypeError, "list of keys", lambda db: db.query(np.ones(8), keys="k1")),
    (mopqdb.InvalidTypeError, "key 1", lambda db: db.query(np.ones(8), keys=["k1", 2])),
    (mopqdb.InvalidTypeError, "list of queries", lambda db: db.query_batch("text")),
    (mopqdb.InvalidTypeError, "list of queries", lambda db: db.query_batch(3)),
    (mopqdb.InvalidTypeError, "key 0", lambda db: db.insert_vectors([1], np.ones((1, 8)))),
    (mopqdb.InvalidTypeError, "list of keys", lambda db: db.insert_vectors("k", np.ones((1, 8)))),
    (mopqdb.InvalidTypeError, "list of keys", lambda db: db.insert_vectors(3, np.ones((1, 8)))),
    (mopqdb.InvalidTypeError, "vectors", lambda db: db.insert_vectors(["k"], "vectors")),
    (mopqdb.InvalidTypeError, "dict", lambda db: db.insert(["row"])),
    (mopqdb.InvalidTypeError, "list of dicts", lambda db: db.insert({"key": "a", "vector": np.ones(8)})),
    (mopqdb.InvalidTypeError, "list of dicts", lambda db: db.insert(3)),
    (mopqdb.InvalidTypeError, "whole number", lambda db: db.insert([], batch="all")),
    (mopqdb.InvalidTypeError, "str", lambda db: db.get(3)),
    (mopqdb.InvalidTypeError, "list of keys", lambda db: db.get_many(3)),
    (mopqdb.InvalidTypeError, "list of keys", lambda db: db.delete(3)),
    (mopqdb.InvalidTypeError, "str", lambda db: db.delete_prefix(3)),
    (mopqdb.InvalidTypeError, "whole number", lambda db: db.scan("all")),
    (mopqdb.InvalidTypeError, "path", lambda db: db.backup(3)),
    (mopqdb.InvalidTypeError, "str", lambda db: db.rebuild(3)),
    (mopqdb.InvalidTypeError, "progress", lambda db: db.rebuild(progress="bar")),
    (mopqdb.InvalidTypeError, "pairs", lambda db: db.eval("pairs")),
    (mopqdb.InvalidTypeError, "pairs", lambda db: db.eval(3)),
    (mopqdb.InvalidTypeError, "pair 0", lambda db: db.eval(["pair"])),
    (mopqdb.InvalidTypeError, "whole number", lambda db: db.eval([(np.ones(8), "k1")], k="ten")),
    (mopqdb.InvalidTypeError, "whole number", lambda db: db.train(method="pq", subspaces="two")),
    # Shapes and lengths.
    (mopqdb.InvalidError, "axis", lambda db: db.query(np.ones((1, 8)))),
    (mopqdb.InvalidError, "axis", lambda db: db.query(3.0)),
    (mopqdb.InvalidError, "8", lambda db: db.query(np.ones(7))),
    (mopqdb.InvalidError, "8", lambda db: db.query([])),
    (mopqdb.InvalidError, "axes", lambda db: db.query_vectors(np.ones(8))),
    (mopqdb.InvalidError, "8", lambda db: db.query_vectors(np.ones((2, 9)))),
    (mopqdb.InvalidError, "axes", lambda db: db.insert_vectors(["k"], np.ones(8))),
    (mopqdb.InvalidError, "8", lambda db: db.insert_vectors(["k"], np.ones((1, 9)))),
    (mopqdb.InvalidError, "1 vectors for 2 keys", lambda db: db.insert_vectors(["k", "l"], np.ones((1, 8)))),
    (mopqdb.InvalidError, "vector", lambda db: db.insert_vectors(["k"], [[1.0], [1.0, 2.0]])),
    # Values.
    (mopqdb.InvalidError, "finite|NaN|nan", lambda db: db.query(np.full(8, np.nan))),
    (mopqdb.InvalidError, "zero", lambda db: db.query(np.zeros(8))),
    (mopqdb.InvalidError, "row 0", lambda db: db.insert_vectors(["k"], np.full((1, 8), np.inf))),
    (mopqdb.InvalidError, "row 0", lambda db: db.insert_vectors(["k"], np.full((1, 8), 1e300))),
    (mopqdb.InvalidError, "key is empty", lambda db: db.insert_vectors([""], np.ones((1, 8)))),
    (mopqdb.InvalidError, "Unicode", lambda db: db.insert_vectors(["\ud800"], np.ones((1, 8)))),
    (mopqdb.InvalidError, "Unicode", lambda db: db.query("\udfff")),
    (mopqdb.InvalidError, "bytes", lambda db: db.insert_vectors(["k" * 70_000], np.ones((1, 8)))),
    (mopqdb.InvalidError, "encoder", lambda db: db.query("a text")),
    (mopqdb.InvalidError, "k is 0", lambda db: db.query(np.ones(8), k=0)),
    (mopqdb.InvalidError, "-1", lambda db: db.query(np.ones(8), k=-1)),
    (mopqdb.InvalidError, "10000", lambda db: db.query(np.ones(8), k=10_001)),
    (mopqdb.InvalidError, "number of things", lambda db: db.query(np.ones(8), k=1 << 70)),
    (mopqdb.InvalidError, "auto, codes", lambda db: db.query(np.ones(8), search="best")),
    (mopqdb.InvalidError, "codes", lambda db: db.query(np.ones(8), search="codes")),
    (mopqdb.InvalidError, "words", lambda db: db.query(np.ones(8), search="words")),
    (mopqdb.InvalidError, "year", lambda db: db.query(np.ones(8), where="year >= 2020")),
    (mopqdb.InvalidError, "filter", lambda db: db.query(np.ones(8), where="key >=")),
    (mopqdb.InvalidError, "empty", lambda db: db.query(np.ones(8), where="")),
    (mopqdb.InvalidError, "empty dict", lambda db: db.query(np.ones(8), where={})),
    (mopqdb.InvalidError, "comparison", lambda db: db.query(np.ones(8), where={"key": {"$near": 1}})),
    (mopqdb.InvalidError, "year", lambda db: db.query(np.ones(8), columns=["year"])),
    (mopqdb.InvalidTypeError, "filter", lambda db: db.query(np.ones(8), where=3)),
    (mopqdb.InvalidTypeError, "compared", lambda db: db.count({"key": {"$gt": object()}})),
    (mopqdb.InvalidTypeError, "list of columns", lambda db: db.query(np.ones(8), columns="year")),
    (mopqdb.InvalidTypeError, "no filter", lambda db: db.delete_where(None)),
    (mopqdb.InvalidTypeError, "values", lambda db: db.update("key = 'k1'", 3)),
    (mopqdb.InvalidTypeError, "column \"x\": a object", lambda db: db.update("key = 'k1'", {"x": object()})),
    (mopqdb.InvalidTypeError, "item 0", lambda db: db.insert([{"key": "a", "vector": np.ones(8), "x": [1]}])),
    (mopqdb.InvalidError, "64 bits", lambda db: db.insert([{"key": "a", "vector": np.ones(8), "x": 1 << 70}])),
    (mopqdb.InvalidError, "x", lambda db: db.insert([{"key": "a", "vector": np.ones(8), "x": float("inf")}])),
    (mopqdb.InvalidError, "text", lambda db: db.insert([{"key": "a", "vector": np.ones(8), "text": "b"}])),
    (mopqdb.InvalidError, "at least one row", lambda db: db.scan(0)),
    (mopqdb.InvalidError, "batch", lambda db: db.insert([], batch=0)),
    (mopqdb.InvalidError, "vector", lambda db: db.insert([{"key": "a"}])),
    (mopqdb.InvalidError, "key", lambda db: db.insert([{"vector": np.ones(8)}])),
    (mopqdb.InvalidError, "pairs", lambda db: db.eval([])),
    (mopqdb.InvalidError, "1 parts", lambda db: db.eval([("a",)])),
    (mopqdb.InvalidError, "by", lambda db: db.eval([(np.ones(8), "k1")], by="row")),
    (mopqdb.InvalidError, "meaning", lambda db: db.train(method="pq", lr=0.1)),
    (mopqdb.InvalidError, "cut into", lambda db: db.train(method="pq", subspaces=3)),
    (mopqdb.InvalidError, "inside", lambda db: db.backup(db.path / "copy")),
    (mopqdb.NotFoundError, "no model", lambda db: db.rebuild("ffff")),
    (mopqdb.NotFoundError, "no model", lambda db: db.eval([(np.ones(8), "k1")], model="ffff")),
]


@pytest.mark.parametrize(("kind", "message", "call"), WRONG)
def test_bad_input_is_refused_and_changes_nothing(
    vectors: mopqdb.Database, kind: type[mopqdb.Error], message: str, call: Callable[[mopqdb.Database], Any]
) -> None:
    before = vectors.query(np.ones(8), k=200)
    with pytest.raises(kind, match=message):
        call(vectors)
    assert vectors.query(np.ones(8), k=200) == before


@pytest.mark.parametrize(
    ("kind", "message", "options"),
    [
        (mopqdb.InvalidTypeError, "whole number", {"dim": "8"}),
        (mopqdb.InvalidError, "0|dim", {"dim": 0}),
        (mopqdb.InvalidError, "number of things", {"dim": -1}),
        (mopqdb.InvalidError, "ip, cosine, l2", {"dim": 8, "metric": "hamming"}),
        (mopqdb.InvalidError, "f32, f16, i8", {"dim": 8, "precision": "f64"}),
        (mopqdb.InvalidError, "english", {"dim": 8, "language": "elvish"}),
        (mopqdb.InvalidTypeError, "function", {"dim": 8, "encoder": "fn"}),
        (mopqdb.InvalidError, "encoder_name", {"dim": 8, "encoder": lambda texts: texts}),
        (mopqdb.InvalidError, "dim", {"encoder": letters}),
        (mopqdb.InvalidError, "without an encoder", {"dim": 8, "encoder_name": "letters"}),
        (mopqdb.InvalidError, "threads", {"dim": 8, "threads": 5_000}),
        (mopqdb.InvalidTypeError, "path", {"bundle": 3}),
        (mopqdb.Error, "nowhere", {"bundle": "/nowhere"}),
    ],
)
def test_what_can_not_be_created_leaves_nothing(
    tmp_path: Path, kind: type[mopqdb.Error], message: str, options: dict[str, Any]
) -> None:
    with pytest.raises(kind, match=message):
        mopqdb.create(tmp_path / "new.db", **options)
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize("path", [3, None, "", "a\0b", ["x"]])
def test_what_is_no_path_is_refused(path: Any) -> None:
    with pytest.raises(mopqdb.InvalidError, match="path"):
        mopqdb.open(path)


def test_paths_may_be_bytes_and_path_like(vectors: mopqdb.Database) -> None:
    for path in (str(vectors.path), os.fsencode(vectors.path), vectors.path):
        mopqdb.open(path, read_only=True).close()


def test_a_folder_without_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(mopqdb.IncompatibleError, match="not a mopqdb database"):
        mopqdb.open(tmp_path)
    with pytest.raises(mopqdb.NotFoundError, match="not found"):
        mopqdb.open(tmp_path / "nowhere", read_only=True)
    with pytest.raises(mopqdb.Error):
        mopqdb.open(tmp_path / "file")


def test_encoders_that_fail_are_told(tmp_path: Path) -> None:
    answer: list[Any] = [None]

    def encoder(texts: list[str]) -> Any:
        if isinstance(answer[0], BaseException):
            raise answer[0]
        return answer[0]

    with mopqdb.create(tmp_path / "db", encoder=encoder, dim=3) as db:
        for wrong, message in [
            (None, "no array"),
            ("text", "no array"),
            (np.ones(3), "no array"),
            (np.ones((1, 4)), r"shape \(1, 4\)"),
            (np.ones((2, 3)), r"shape \(2, 3\)"),
            (np.full((1, 3), np.nan), "finite"),
            (np.zeros((1, 3)), "zeros"),
        ]:
            answer[0] = wrong
            with pytest.raises(mopqdb.ModelError, match=message):
                db.insert([{"key": "a", "text": "b"}])
        answer[0] = ZeroDivisionError("of the program's own")
        with pytest.raises(ZeroDivisionError, match="of the program's own"):
            db.insert([{"key": "a", "text": "b"}])
        with pytest.raises(ZeroDivisionError):
            db.query("b", search="exact")
        assert len(db) == 0
        answer[0] = np.ones((1, 3))
        assert db.insert([{"key": "a", "text": "b"}]).new == 1


def test_an_encoder_may_not_close_its_database(tmp_path: Path) -> None:
    def encoder(texts: list[str]) -> Any:
        db.close()

    with mopqdb.create(tmp_path / "db", encoder=encoder, dim=3) as db:
        with pytest.raises(mopqdb.InvalidError, match="from within"):
            db.insert([{"key": "a", "text": "b"}])
        assert len(db) == 0


CLOSED: list[Callable[[Any], Any]] = [
    len,
    lambda db: db.query(np.ones(8)),
    lambda db: db.query_batch([np.ones(8)]),
    lambda db: db.query_vectors(np.ones((1, 8))),
    lambda db: db.get("a"),
    lambda db: "a" in db,
    lambda db: db.kind,
    lambda db: db.model,
    lambda db: db.scan(),
    lambda db: db.stats(),
    lambda db: db.models(),
    lambda db: db.verify(),
    lambda db: db.backup("/tmp/never"),
    lambda db: db.eval([(np.ones(8), "a")]),
    lambda db: db.snapshot(),
    lambda db: db.insert([{"key": "a", "vector": np.ones(8)}]),
    lambda db: db.insert_vectors(["a"], np.ones((1, 8))),
    lambda db: db.delete("a"),
    lambda db: db.delete_prefix("a"),
    lambda db: db.seal(),
    lambda db: db.compact(),
    lambda db: db.rebuild(),
    lambda db: db.train(method="pq"),
    lambda db: db.train([(np.ones(8), "a")]),
    lambda db: db.warnings,
]


@pytest.mark.parametrize("call", CLOSED)
def test_a_closed_handle_says_so(vectors: mopqdb.Database, call: Callable[[Any], Any]) -> None:
    vectors.close()
    vectors.close()
    assert vectors.closed and "closed" in repr(vectors)
    with pytest.raises(mopqdb.InvalidError, match="is closed; open the database again"):
        call(vectors)


def test_what_a_handle_made_outlives_it(vectors: mopqdb.Database) -> None:
    snapshot, scan = vectors.snapshot(), vectors.scan(50)
    vectors.close()
    assert len(snapshot) == 200 and sum(map(len, scan)) == 200


def test_a_reader_does_not_write(vectors: mopqdb.Database) -> None:
    with mopqdb.open(vectors.path, read_only=True) as reader:
        for handle in (reader, reader.snapshot()):
            with pytest.raises(mopqdb.InvalidError, match="open for reading"):
                handle._native.delete(["k1"])


def test_a_database_that_another_process_writes_is_locked(
    vectors: mopqdb.Database, python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    run = python("import mopqdb, sys; mopqdb.open(sys.argv[1])", vectors.path)
    assert run.returncode == 1 and "LockedError" in run.stderr and str(os.getpid()) in run.stderr
    with pytest.raises(mopqdb.LockedError) as locked:
        mopqdb.open(vectors.path)
    assert str(os.getpid()) in locked.value.holder
    run = python("import mopqdb, sys; print(len(mopqdb.open(sys.argv[1], read_only=True)))", vectors.path)
    assert run.stdout.strip() == "200"


def test_damage_is_found_and_told(vectors: mopqdb.Database) -> None:
    vectors.seal()
    path = vectors.path
    vectors.close()
    rows = next((path / "segments").glob("*.rows"))
    content = bytearray(rows.read_bytes())
    content[len(content) // 2] ^= 1
    rows.write_bytes(content)
    with mopqdb.open(path, read_only=True) as reader:
        found = reader.verify()
        assert not found and rows.name in found.problems[0]
        with pytest.raises(mopqdb.CorruptError) as damage:
            for at in range(200):
                reader.query(random_vectors(200, 8)[at], k=200)
                reader.get(f"k{at}")
    assert rows.name in str(damage.value.file) and damage.value.section and damage.value.offset >= 0


def test_files_removed_under_an_open_handle_are_told(vectors: mopqdb.Database) -> None:
    vectors.seal()
    with mopqdb.open(vectors.path, read_only=True) as reader:
        shutil.rmtree(vectors.path)
        # What is open stays readable.
        assert len(reader.query(np.ones(8), k=200)) == 200
        with pytest.raises(mopqdb.Error):
            reader.refresh()
    with pytest.raises(mopqdb.Error):
        for at in range(100):
            vectors.insert_vectors([f"new{at}"], np.ones((1, 8)) + at)
            vectors.seal()


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is of Linux")
def test_what_the_system_refuses_is_an_os_error(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        path = Path("/proc/mopqdb.db")
    else:
        path = Path("/mopqdb.db")
    with pytest.raises(mopqdb.IoError) as refused:
        mopqdb.create(path, dim=3)
    assert refused.value.errno in (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS)
    assert str(path) in str(refused.value) and str(path) in str(refused.value.filename)


def test_a_program_may_cancel(vectors: mopqdb.Database) -> None:
    with pytest.raises(mopqdb.Cancelled):
        vectors.insert(
            [{"key": f"n{at}", "vector": np.ones(8)} for at in range(20)], batch=10, progress=lambda *_: False
        )
    assert len(vectors) == 210

    def fails(done: int, total: int) -> None:
        raise ZeroDivisionError

    many = random_vectors(20_000, 8, seed=6)
    vectors.insert_vectors([f"m{at}" for at in range(len(many))], many)
    with pytest.raises(ZeroDivisionError):
        vectors.train(method="opq", progress=fails)
    with pytest.raises(mopqdb.Cancelled):
        vectors.train(method="opq", progress=lambda *_: False)
    assert len(vectors.models()) == 1


def test_the_trainer_may_be_missing(vectors: mopqdb.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mopqdb._train.find", lambda: None)
    with pytest.raises(mopqdb.MissingPartError, match="mopqdb-train"):
        vectors.train([(np.ones(8), "k1")])


def test_a_panic_of_the_engine_is_an_error(vectors: mopqdb.Database) -> None:
    # The name of every class of the tree is looked up by the engine's part.
    import mopqdb._native as native

    with pytest.raises(mopqdb.Error, match="a bug in mopqdb: on purpose; please report it") as error:
        native._panic()
    assert type(error.value) is mopqdb.Error
