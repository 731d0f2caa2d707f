"""The exceptions of mopqdb, grouped by what a caller can do about them."""

from __future__ import annotations

__all__ = [
    "Cancelled",
    "CorruptError",
    "Error",
    "IncompatibleError",
    "InvalidError",
    "InvalidTypeError",
    "IoError",
    "LockedError",
    "MissingPartError",
    "ModelError",
    "NotFoundError",
    "OutcomeUnknownError",
]


class Error(Exception):
    """The base of all exceptions of mopqdb."""


class InvalidError(Error, ValueError):
    """An argument can't be accepted; nothing was changed. The message says what to do instead."""


class InvalidTypeError(InvalidError, TypeError):
    """An argument has a wrong type; nothing was changed."""


class NotFoundError(Error):
    """There is no database at the path, or no such model in the database."""


class LockedError(Error):
    """Another process has the database open for writing, or rebuilds it. A reader needs no lock."""

    holder: str
    """Who has it: program and process id."""


class CorruptError(Error):
    """Bytes on disk are not what was written. ``mopqdb verify`` and ``mopqdb repair`` of the program help."""

    file: str
    section: str
    offset: int


class IncompatibleError(Error):
    """A file is of a kind or version that this version of mopqdb does not read."""


class ModelError(Error):
    """A model, its encoder or its files can't be used for what was asked."""


class MissingPartError(Error):
    """A part that is installed separately is missing; the message says how to get it."""


class OutcomeUnknownError(Error):
    """A commit was written in one of two places only. Reopen the database before writing to it again."""


class Cancelled(Error):
    """The program stopped the work, through a ``progress`` function that returned ``False``."""


class IoError(Error, OSError):
    """The operating system refused: no space, no permission, a failing disk."""

    def __str__(self) -> str:
        # OSError would write its number and path instead of the message, which names them already.
        return str(self.args[0]) if self.args else ""
