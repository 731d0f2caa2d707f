"""How far long work has come: on a terminal, in a notebook, or by a function of the program's own."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Union

from ._errors import InvalidTypeError

Progress = Union[bool, Callable[[int, int], object], None]
"""``None``: a line on a terminal or in a notebook. ``True``, ``False``: always, never. A function is called with the units
done and in total, and cancels the work by returning ``False``."""


def in_notebook() -> bool:
    """Returns ``True`` in a kernel of Jupyter."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def is_shown(progress: Progress) -> bool:
    """Returns ``True`` if a person is to see how far the work has come."""
    if progress is None:
        return in_notebook() or bool(getattr(sys.stderr, "isatty", bool)())
    return progress is True


class Line:
    """A line that is written over and over."""

    def __init__(self, doing: str, unit: str) -> None:
        self._doing, self._unit = doing, unit
        self._begin, self._width = time.monotonic(), 0

    def __call__(self, done: int, total: int) -> None:
        pace = done / max(time.monotonic() - self._begin, 1e-9)
        left = (total - done) / pace if pace > 0 else 0.0
        words = f"{self._doing}: {done:,} of {total:,} {self._unit}, {pace:,.0f} per second, {left:.0f} s left"
        self._write(words)

    def clear(self) -> None:
        """Takes the line away."""
        if self._width:
            self._write("")
            sys.stderr.write("\r")
            sys.stderr.flush()

    def _write(self, words: str) -> None:
        sys.stderr.write("\r" + words.ljust(self._width))
        sys.stderr.flush()
        self._width = max(self._width, len(words))


class Shown:
    """What the engine calls during a ``with`` block, if anything."""

    def __init__(self, progress: Progress, doing: str, unit: str) -> None:
        self._line = Line(doing, unit) if is_shown(progress) else None
        if progress is not None and not isinstance(progress, bool) and not callable(progress):
            raise InvalidTypeError(f"progress is {progress!r}; give True, False or a function of (done, total)")
        self._own = progress if callable(progress) else None

    def __enter__(self) -> Callable[[int, int], object] | None:
        return self._own or self._line

    def __exit__(self, *_: object) -> None:
        if self._line is not None:
            self._line.clear()
