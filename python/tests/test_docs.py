"""Every example in the documentation runs: docstrings, and the page of the package."""

from __future__ import annotations

import doctest
from pathlib import Path

import mopqdb
import mopqdb._database
import pytest

from conftest import letters

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def test_the_page_of_the_package_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[1] / "README.md"
    failed, tried = doctest.testfile(str(page), module_relative=False, optionflags=OPTIONS)
    assert tried > 8 and failed == 0


def test_the_docstring_of_the_package_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testmod(mopqdb, optionflags=OPTIONS)
    assert tried > 3 and failed == 0


def _examples() -> list[doctest.DocTest]:
    found = doctest.DocTestFinder().find(mopqdb._database, "mopqdb._database")
    return [test for test in found if test.examples]


@pytest.mark.parametrize("test", _examples(), ids=lambda test: test.name.removeprefix("mopqdb._database."))
def test_the_examples_of_a_docstring_run(
    test: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with mopqdb.create("colours.db", dim=3, metric="cosine") as db:
        db.insert_vectors(["red", "blue"], [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
        if test.name.endswith(".train"):
            db.insert_vectors(["x", "y", "z"], [[1.0, 0.2, 0.0], [0.0, 0.3, 1.0], [1.0, 0.0, 0.9]])
        test.globs.update(db=db, count_letters=letters)
        runner = doctest.DocTestRunner(optionflags=OPTIONS)
        assert runner.run(test).failed == 0


def test_everything_public_is_documented() -> None:
    classes = [value for name in mopqdb.__all__ if isinstance(value := getattr(mopqdb, name), type)]
    for kind in classes:
        assert kind.__doc__, kind
        for name, member in vars(kind).items():
            if not name.startswith("_") and (callable(member) or isinstance(member, property)):
                assert member.__doc__, f"{kind.__name__}.{name}"
    assert mopqdb.open.__doc__ and mopqdb.create.__doc__
