"""Metadata of documents, as frameworks have them: dicts of any values, kept exactly, and as columns where they can be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Protocol

METADATA = "_metadata"
"""The column that has all metadata of a document, as JSON."""

RESERVED = ("key", "text", "vector", METADATA)


class HasColumns(Protocol):
    """A row or a hit."""

    @property
    def columns(self) -> dict[str, Any]:
        """Values by name."""
        ...


def columns_of(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Returns metadata as columns: each value that a column can hold, and all of them as JSON."""
    columns = {name: value for name, value in metadata.items() if name not in RESERVED and _fits(value)}
    if metadata:
        columns[METADATA] = json.dumps(metadata, ensure_ascii=False, default=_plain)
    return columns


def metadata_of(row: HasColumns) -> dict[str, Any]:
    """Returns the metadata that were given."""
    kept = row.columns.get(METADATA)
    return dict(json.loads(kept)) if kept else {}


def _fits(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, str) for item in value)
    return isinstance(value, (str, bool, int, float, datetime, date))


def _plain(value: Any) -> Any:
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)
