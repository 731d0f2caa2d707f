"""Columns and filters."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import mopqdb
import mopqdb._where
import numpy as np
import pytest

from conftest import random_vectors

ROWS: list[dict[str, Any]] = [
    {"key": "a", "year": 2020, "lang": "en", "tags": ["x", "y"], "score": 1.5, "draft": False},
    {"key": "b", "year": 2024, "lang": "de", "tags": ["y"], "at": datetime(2024, 5, 1, 12, tzinfo=timezone.utc)},
    {"key": "c", "lang": "it's", "draft": True, "at": datetime(2024, 5, 1, 12, 30)},
]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[mopqdb.Database]:
    with mopqdb.create(tmp_path / "db", dim=4, metric="cosine") as db:
        vectors = random_vectors(3, 4)
        assert db.insert([{**row, "vector": vector} for row, vector in zip(ROWS, vectors)]).new == 3
        yield db


def test_fields_become_columns_with_types(db: mopqdb.Database) -> None:
    kinds = {"year": "int", "lang": "string", "tags": "strings", "score": "float", "draft": "bool", "at": "timestamp"}
    assert db.columns() == kinds
    row = db.get("b")
    assert row is not None and row["year"] == 2024 and row["tags"] == ["y"]
    assert row["at"] == datetime(2024, 5, 1, 12, tzinfo=timezone.utc)
    assert "score" not in row.columns or row.columns["score"] is None
    with pytest.raises(KeyError):
        row["nothing"]
    assert pickle.loads(pickle.dumps(row)) == row
    with pytest.raises(mopqdb.InvalidError, match="year"):
        db.insert([{"key": "d", "vector": np.ones(4), "year": "a text"}])
    assert len(db) == 3


def test_hits_come_with_columns(db: mopqdb.Database) -> None:
    hits = db.query(np.ones(4))
    by_key = {hit.key: hit for hit in hits}
    assert by_key["a"]["lang"] == "en" and by_key["a"].columns["draft"] is False
    assert by_key["c"].columns["year"] is None
    assert pickle.loads(pickle.dumps(hits)) == hits
    some = db.query(np.ones(4), columns=["lang"])
    assert all(set(hit.columns) == {"lang"} for hit in some)
    assert db.query(np.ones(4), columns=[])[0].columns == {}
    assert set(hits.to_list()[0]) >= {"key", "score", "year", "lang"}
    assert hits.to_arrow().column("lang").to_pylist() == [hit["lang"] for hit in hits]


FILTERS: list[tuple[Any, list[str]]] = [
    ("year >= 2020 AND lang IN ('en', 'de')", ["a", "b"]),
    ({"year": {"$gte": 2020}, "lang": {"$in": ["en", "de"]}}, ["a", "b"]),
    ({"year": 2024}, ["b"]),
    ({"year": {"$gt": 2019, "$lt": 2024}}, ["a"]),
    ({"year": None}, ["c"]),
    ({"year": {"$ne": 2020}}, ["b", "c"]),
    ({"year": {"$nin": [2020]}}, ["b", "c"]),
    ({"year": {"$exists": True}}, ["a", "b"]),
    ({"year": {"$exists": False}}, ["c"]),
    ({"draft": True}, ["c"]),
    ({"draft": {"$ne": True}}, ["a", "b"]),
    ({"score": {"$lte": 1.5}}, ["a"]),
    ({"lang": "it's"}, ["c"]),
    ({"lang": {"$like": "%e%"}}, ["a", "b"]),
    ({"tags": {"$contains": "y"}}, ["a", "b"]),
    ({"$or": [{"year": 2020}, {"draft": True}]}, ["a", "c"]),
    ({"$and": [{"year": {"$gt": 2000}}, {"$not": {"lang": "en"}}]}, ["b"]),
    ({"at": {"$gt": datetime(2024, 5, 1, 12, 15)}}, ["c"]),
    ({"at": {"$gte": date(2024, 5, 1)}}, ["b", "c"]),
    ({"at": {"$lt": datetime(2024, 5, 1, 14, 15, tzinfo=timezone(timedelta(hours=2)))}}, ["b"]),
    ({"year": {"$gte": np.int64(2024)}}, ["b"]),
]


@pytest.mark.parametrize(("where", "keys"), FILTERS, ids=lambda part: str(part)[:40])
def test_filters_in_sql_and_as_dicts(db: mopqdb.Database, where: Any, keys: list[str]) -> None:
    assert sorted(db.query(np.ones(4), where=where).keys) == keys
    assert db.keys(where=where) == keys and db.count(where) == len(keys)
    assert [key for key in db.query_vectors(np.ones((1, 4)), k=3, where=where)[1][0] if key] == db.query(
        np.ones(4), where=where
    ).keys
    assert db.query(np.ones(4), where=where, keys=["a"]).keys == [key for key in keys if key == "a"]


def test_rows_are_changed_and_deleted_by_filter(db: mopqdb.Database) -> None:
    assert db.update("year IS NULL", {"year": 1999, "draft": None}) == 1
    row = db.get("c")
    assert row is not None and row["year"] == 1999 and row.columns.get("draft") is None
    assert db.update({"year": 1999}, {"year": 1999}) == 0
    assert db.delete_where({"year": {"$lt": 2021}}) == 2
    assert db.keys() == ["b"]
    # A row that is replaced has the columns that it is given.
    db.insert([{"key": "b", "vector": np.ones(4), "lang": "fr"}])
    row = db.get("b")
    assert row is not None and row.columns.get("year") is None and row["lang"] == "fr"


def test_arrow_comes_out_and_goes_in(db: mopqdb.Database, tmp_path: Path) -> None:
    import polars as pl
    import pyarrow as pa

    table = pa.table(db.scan())
    assert table.column("key").to_pylist() == ["a", "b", "c"]
    assert table.schema.field("at").type == pa.timestamp("us", tz="UTC")
    assert table.schema.field("vector").type.list_size == 4
    assert table.column("tags").to_pylist() == [["x", "y"], ["y"], None]
    frame = pl.DataFrame(db.scan(where="year IS NOT NULL"))
    assert frame["key"].to_list() == ["a", "b"] and frame["year"].to_list() == [2020, 2024]
    assert [pa.record_batch(batch).num_rows for batch in db.scan(2)] == [2, 1]
    for number, source in enumerate([table, frame, pl.DataFrame(table), db.scan(), table.to_batches()[0]]):
        with mopqdb.create(tmp_path / f"copy{number}", dim=4, metric="cosine") as copy:
            rows = 2 if source is frame else 3
            assert copy.insert(source).new == rows
            assert copy.columns() == db.columns()
            for key in copy.keys():
                assert copy.get(key)["at"] == db.get(key)["at"] if "at" in db.get(key).columns else True  # type: ignore[index,union-attr]
            assert copy.query(np.ones(4), where="year = 2020").keys == ["a"]


def test_arrow_types_fit_columns(db: mopqdb.Database) -> None:
    import pyarrow as pa

    vectors = pa.array(random_vectors(2, 4).astype(np.float64).tolist(), pa.list_(pa.float64()))
    columns: dict[str, Any] = {
        "key": pa.array(["p", "q"]).dictionary_encode(),
        "vector": vectors,
        "small": pa.array([1, None], pa.int8()),
        "big": pa.array([1, 2], pa.uint64()),
        "half": pa.array([0.5, 1.5], pa.float32()),
        "large": pa.array(["s", None], pa.large_string()),
        "view": pa.array(["s", "t"], pa.string_view()),
        "word": pa.array(["s", "s"]).dictionary_encode(),
        "day": pa.array([date(2024, 1, 2), None], pa.date32()),
        "nanos": pa.array([1_000, 2_000], pa.timestamp("ns")),
        "words": pa.array([["s"], None], pa.large_list(pa.string())),
        "none": pa.nulls(2),
    }
    assert db.insert(pa.table(columns)).new == 2
    row = db.get("p")
    assert row is not None and row["small"] == 1 and row["large"] == row["view"] == row["word"] == "s"
    assert row["day"] == datetime(2024, 1, 2, tzinfo=timezone.utc) and row["words"] == ["s"]
    assert row["nanos"] == datetime(1970, 1, 1, microsecond=1, tzinfo=timezone.utc)
    for wrong, message in [
        ({"key": ["r"]}, "no column \"vector\""),
        ({"vector": vectors[:1]}, "no column \"key\""),
        ({"key": [1], "vector": vectors[:1]}, "strings"),
        ({"key": [None], "vector": vectors[:1]}, "row 0"),
        ({"key": ["r"], "vector": ["text"]}, "lists of float32"),
        ({"key": ["r"], "vector": vectors[:1], "x": [{"a": 1}]}, "column \"x\""),
        ({"key": ["r"], "vector": vectors[:1], "big": pa.array([1 << 63], pa.uint64())}, "64 bits"),
        ({"key": ["r"], "vector": [[1.0, None, 1.0, 1.0]]}, "null"),
        ({"key": ["r"], "vector": [[1.0, 1.0]]}, "2 values"),
    ]:
        with pytest.raises(mopqdb.InvalidError, match=message):
            db.insert(pa.table(wrong))
    assert len(db) == 5


def test_data_frames_of_pandas_go_in(db: mopqdb.Database) -> None:
    import pandas as pd

    frame = pd.DataFrame(
        {
            "key": ["p", "q"],
            "vector": list(random_vectors(2, 4)),
            "year": [2000, 2001],
            "lang": ["en", None],
            "score": [float("nan"), 2.0],
            "at": [pd.Timestamp("2024-01-02"), pd.NaT],
        }
    )
    assert db.insert(frame).new == 2
    assert db.get("p")["at"] == datetime(2024, 1, 2, tzinfo=timezone.utc)  # type: ignore[index]
    assert db.keys(where={"score": None, "year": {"$lt": 2002}}) == ["p"]
    assert db.query(np.ones(4)).to_pandas().set_index("key").loc["q", "year"] == 2001


def test_names_and_values_are_quoted(db: mopqdb.Database) -> None:
    name = 'a "name"; DROP'
    db.insert([{"key": "d", "vector": np.ones(4), name: "x' OR '1'='1"}])
    assert db.keys(where={name: "x' OR '1'='1"}) == ["d"]
    assert db.keys(where={name: "x"}) == []
    assert mopqdb._where.sql("as it is") == "as it is"
