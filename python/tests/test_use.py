"""What the package does."""

from __future__ import annotations

import json
import logging
import pickle
import subprocess
from pathlib import Path

import mopqdb
import numpy as np
import pytest

from conftest import letters, random_vectors


def test_a_query_by_a_vector_finds_the_nearest_rows(vectors: mopqdb.Database) -> None:
    stored = random_vectors(200, 8)
    hits = vectors.query(stored[17], k=3)
    assert isinstance(hits, mopqdb.Hits) and len(hits) == 3
    assert hits[0].key == "k17" and hits[0].score == pytest.approx(1.0)
    unit = stored / np.linalg.norm(stored, axis=1, keepdims=True)
    best = np.argsort(-(unit @ unit[17]), kind="stable")[:3]
    assert hits.keys == [f"k{at}" for at in best]


def test_a_text_is_found_by_its_encoder_and_its_words(texts: mopqdb.Database) -> None:
    assert texts.kind == "text" and texts.dim == 26
    hit = texts.query("nab", k=1)[0]
    assert (hit.key, hit.text) == ("a", "banana")
    assert texts.query("cherry", search="words").keys == ["b"]
    assert texts.query("cherry", search="words")[0].found_by == "words"


def test_options_of_a_query_restrict_its_hits(vectors: mopqdb.Database) -> None:
    asked = random_vectors(1, 8, seed=3)[0]
    all_hits = vectors.query(asked, k=200)
    assert len(all_hits) == 200
    assert vectors.query(asked, k=5, offset=5) == all_hits[5:10]
    assert vectors.query(asked, prefix="k19").keys == [h.key for h in all_hits if h.key.startswith("k19")][:10]
    assert vectors.query(asked, keys=["k3", "k5", "nothing"]).keys == [
        h.key for h in all_hits if h.key in ("k3", "k5")
    ]
    least = all_hits[4].score
    assert len(vectors.query(asked, min_score=least)) == 5
    assert len(vectors.query(asked, min_similarity=least)) == 5


def test_arrays_and_lists_give_the_same_answers(vectors: mopqdb.Database) -> None:
    asked = random_vectors(20, 8, seed=4)
    scores, keys = vectors.query_vectors(asked, k=7)
    assert scores.shape == keys.shape == (20, 7)
    assert scores.dtype == np.float32
    batch = vectors.query_batch(asked, k=7)
    for row, query in enumerate(asked):
        hits = vectors.query(query, k=7)
        assert hits == batch[row]
        assert list(keys[row]) == hits.keys
        assert [hit.score for hit in hits] == [float(score) for score in scores[row]]


def test_missing_hits_are_nan_and_none(vectors: mopqdb.Database) -> None:
    scores, keys = vectors.query_vectors(random_vectors(2, 8), k=3, keys=["k1"])
    assert list(keys[0]) == ["k1", None, None]
    assert np.isnan(scores[:, 1:]).all() and not np.isnan(scores[:, 0]).any()


@pytest.mark.parametrize(
    "convert",
    [
        lambda array: array.astype(np.float64),
        lambda array: array.astype(np.float16).astype(np.float32)[::1],
        np.asfortranarray,
        lambda array: np.repeat(array, 2, axis=1)[:, ::2],
        lambda array: array.tolist(),
        lambda array: array.astype(">f4"),
    ],
)
def test_any_array_of_numbers_is_converted(tmp_path: Path, convert) -> None:  # type: ignore[no-untyped-def]
    array = random_vectors(10, 4).astype(np.float16).astype(np.float32)
    with mopqdb.create(tmp_path / "db", dim=4, metric="ip") as db:
        assert db.insert_vectors([str(at) for at in range(10)], convert(array)).new == 10
        for at, row in enumerate(db.get_many([str(at) for at in range(10)])):
            assert row is not None and row.vector is not None
            np.testing.assert_array_equal(row.vector, array[at])
        assert db.query(convert(array)[3], k=1) == db.query(array[3], k=1)


def test_rows_are_replaced_kept_and_deleted(texts: mopqdb.Database) -> None:
    done = texts.insert([{"key": "a", "text": "banana"}, {"key": "b", "text": "berry"}, {"key": "d", "text": "date"}])
    assert done == (1, 1, 1) and done.rows == 3
    assert len(texts) == 4 and "d" in texts and "z" not in texts and 3 not in texts
    row = texts.get("b")
    assert row is not None and row.text == "berry" and row.vector is None
    assert texts.get("z") is None
    assert texts.delete("a") == 1 and texts.delete(["a", "b", "b"]) == 1
    assert texts.delete_prefix("") == 2 and len(texts) == 0 and bool(texts)


def test_batches_are_as_long_as_asked(texts: mopqdb.Database) -> None:
    rows = ({"key": f"n{at}", "text": f"text {at}"} for at in range(25))
    assert texts.insert(rows, batch=10).new == 25


def test_snapshots_and_readers_see_what_was_there(vectors: mopqdb.Database) -> None:
    snapshot = vectors.snapshot()
    with mopqdb.open(vectors.path, read_only=True) as reader:
        vectors.delete(["k1"])
        assert len(snapshot) == len(reader) == 200 and len(vectors) == 199
        assert reader.refresh() and not reader.refresh()
        assert len(reader) == 199 and "k1" in snapshot


def test_models_are_learned_switched_and_rolled_back(vectors: mopqdb.Database) -> None:
    asked = random_vectors(1, 8, seed=5)[0]
    exact = vectors.query(asked)
    model = vectors.train(method="opq", subspaces=4, codewords=16)
    seen: list[tuple[int, int]] = []
    rebuilt = vectors.rebuild(progress=lambda done, total: seen.append((done, total)))
    assert rebuilt.model == model == vectors.model and rebuilt.rows == 200
    assert seen and seen[-1] == (200, 200)
    assert [info.active for info in vectors.models()] == [False, True]
    assert vectors.query(asked, search="codes") != exact
    assert vectors.query(asked, candidates=200).keys == exact.keys
    assert vectors.rebuild("exact").model == vectors.models()[0].id
    assert vectors.query(asked) == exact
    assert vectors.rebuild(model[:6]).reused == 200
    assert vectors.stats().method == "opq"


def test_recall_is_measured_on_pairs(vectors: mopqdb.Database) -> None:
    stored = random_vectors(200, 8)
    pairs = [(stored[at], f"k{at}") for at in range(50)]
    evaluation = vectors.eval(pairs, k=(1, 10))
    assert evaluation[1] == evaluation[10] == 1.0 and evaluation.queries == 50
    assert [recall.k for recall in evaluation] == [1, 10]
    with pytest.raises(mopqdb.InvalidError, match="no row has the key 'gone'|no row has the key \"gone\""):
        vectors.eval([*pairs, (stored[0], "gone")])
    assert vectors.eval([*pairs, (stored[0], "gone")], skip_missing=True).queries == 50


def test_pairs_may_be_lists_and_tables(vectors: mopqdb.Database, texts: mopqdb.Database) -> None:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    lists = [("banana", "a"), ("cherry", "b"), ("cherry", "c")]
    columns = {"query": [pair[0] for pair in lists], "key": [pair[1] for pair in lists]}
    expected = texts.eval(lists, k=1)
    assert expected.queries == 2
    for table in (pd.DataFrame(columns), pa.table(columns), pl.DataFrame(columns)):
        assert texts.eval(table, k=1) == expected
    assert texts.eval([("banana", "banana")], by="text", k=1)[1] == 1.0


def test_a_copy_is_a_database(vectors: mopqdb.Database, tmp_path: Path) -> None:
    assert vectors.backup(tmp_path / "copy.db").files > 0
    with mopqdb.open(tmp_path / "copy.db") as copy:
        assert len(copy) == 200
        assert copy.verify(deep=True) and copy.verify().problems == []


def test_hits_and_rows_can_be_pickled_and_compared(texts: mopqdb.Database) -> None:
    hits = texts.query("banana")
    assert pickle.loads(pickle.dumps(hits)) == hits
    assert isinstance(pickle.loads(pickle.dumps(hits)), mopqdb.Hits)
    row = texts.get("a")
    assert pickle.loads(pickle.dumps(row)) == row
    assert repr(row) == "Row(key='a', text='banana')"
    assert len({*hits, *texts.query("banana")}) == len(hits)


def test_hits_become_tables(texts: mopqdb.Database) -> None:
    hits = texts.query("banana", k=2)
    assert hits.to_list()[0]["key"] == "a" and set(hits.to_list()[0]) >= {"key", "score", "similarity", "text"}
    assert hits.to_arrow().column("key").to_pylist() == hits.keys
    assert list(hits.to_pandas()["score"]) == [hit.score for hit in hits]


def test_the_encoder_is_stored_by_name(tmp_path: Path) -> None:
    def queries(asked: list[str]) -> object:
        return letters([text.lower() for text in asked])

    path = tmp_path / "own.db"
    with mopqdb.create(path, encoder=letters, encoder_name="letters-1", query_encoder=queries, dim=26) as db:
        db.insert([{"key": "a", "text": "banana"}])
        assert db.query("BANANA")[0].similarity == pytest.approx(1.0, abs=1e-3)
    with pytest.raises(mopqdb.ModelError, match="letters-1"):
        mopqdb.open(path, encoder=letters, encoder_name="letters-2", dim=26)
    with mopqdb.open(path, encoder=letters, encoder_name="letters-1", dim=26) as db:
        assert db.query("banana")[0].key == "a"
    with mopqdb.open(path, read_only=True) as reader:
        # Words need no encoder.
        assert reader.query("banana", search="words").keys == ["a"]
        with pytest.raises(mopqdb.Error, match="letters-1"):
            reader.query("banana")


def test_warnings_of_the_engine_are_logged_once_asked_for(
    vectors: mopqdb.Database, caplog: pytest.LogCaptureFixture
) -> None:
    path = vectors.path
    vectors.close()
    newest = max(path.glob("MANIFEST-*"))
    newest.write_bytes(newest.read_bytes()[:10])
    with caplog.at_level(logging.WARNING, logger="mopqdb"), mopqdb.open(path) as db:
        assert len(db) == 200
        assert db.warnings
    assert [record.message for record in caplog.records if record.name == "mopqdb"]


def test_answers_equal_those_of_the_program(vectors: mopqdb.Database, program: Path, tmp_path: Path) -> None:
    vectors.train(method="opq", subspaces=4, codewords=16)
    vectors.rebuild()
    asked = random_vectors(5, 8, seed=9)
    np.save(tmp_path / "asked.npy", asked)
    for search in ("auto", "codes", "exact"):
        command = [program, "query", vectors.path, "--vectors", tmp_path / "asked.npy", "--search", search, "--json"]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        said = [hit for line in run.stdout.splitlines() for hit in json.loads(line)["hits"]]
        hits = [hit for query in asked for hit in vectors.query(query, search=search)]  # type: ignore[arg-type]
        assert [(hit["key"], np.float32(hit["score"])) for hit in said] == [
            (hit.key, np.float32(hit.score)) for hit in hits
        ]
