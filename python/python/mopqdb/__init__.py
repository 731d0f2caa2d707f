"""An embedded vector and text search database that learns what its users search for.

>>> import mopqdb
>>> db = mopqdb.create("colours.db", dim=3, metric="cosine")
>>> db.insert_vectors(["red", "blue"], [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
Inserted(new=2, replaced=0, unchanged=0)
>>> db.query([0.9, 0.1, 0.0], k=1)
[Hit(key='red', score=0.9939)]
>>> db.close()
"""

from __future__ import annotations

from ._database import Database, Reader, Snapshot, create, open
from ._encoder import Encoder
from ._errors import (
    Cancelled,
    CorruptError,
    Error,
    IncompatibleError,
    InvalidError,
    InvalidTypeError,
    IoError,
    LockedError,
    MissingPartError,
    ModelError,
    NotFoundError,
    OutcomeUnknownError,
)
from ._native import Batch, Hit, Row, Scan, __version__
from ._results import (
    Backup,
    Compacted,
    Evaluation,
    Hits,
    Inserted,
    ModelInfo,
    Rebuilt,
    Recall,
    Stats,
    Verified,
)

__all__ = [
    "Backup",
    "Batch",
    "Cancelled",
    "Compacted",
    "CorruptError",
    "Database",
    "Encoder",
    "Error",
    "Evaluation",
    "Hit",
    "Hits",
    "IncompatibleError",
    "Inserted",
    "InvalidError",
    "InvalidTypeError",
    "IoError",
    "LockedError",
    "MissingPartError",
    "ModelError",
    "ModelInfo",
    "NotFoundError",
    "OutcomeUnknownError",
    "Reader",
    "Rebuilt",
    "Recall",
    "Row",
    "Scan",
    "Snapshot",
    "Stats",
    "Verified",
    "__version__",
    "create",
    "open",
]
