"""Training: runs ``mopqdb-train``, a program of its own, so that the package links no torch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

from . import _native
from ._errors import Error, InvalidError, MissingPartError
from ._progress import Progress, in_notebook, is_shown

PROGRAM = "mopqdb-train.exe" if sys.platform == "win32" else "mopqdb-train"

PATIENCE = 0.8
"""Seconds in which the trainer may end its step after Ctrl-C."""


def find() -> Path | None:
    """Returns the trainer: next to the interpreter, in the checkout of a debug build, or on ``PATH``."""
    places = [Path(sys.executable).parent]
    if _native.CHECKOUT is not None:
        places += [Path(_native.CHECKOUT) / "target" / profile for profile in ("debug", "release")]
    for place in places:
        if (place / PROGRAM).is_file():
            return place / PROGRAM
    found = shutil.which(PROGRAM)
    return Path(found) if found else None


def missing() -> MissingPartError:
    """Returns the error for a trainer that is not there."""
    return MissingPartError(
        f"{PROGRAM} is not installed, which learns from pairs; build it in a checkout of mopqdb (`make setup`, then "
        "`cargo install --locked --path trainer`), or learn from the rows alone: db.train(method=\"opq\")"
    )


def run(arguments: list[str], progress: Progress) -> str:
    """Runs the trainer to its end and returns the id of the model."""
    program = find()
    if program is None:
        raise missing()
    shown = is_shown(progress)
    # On a terminal it draws a bar by itself; a notebook does not see what a child writes.
    inherits = shown and not in_notebook()
    child = subprocess.Popen(
        [str(program), *arguments, "--json", *([] if shown else ["--quiet"])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if inherits else subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "MOPQDB_TRAIN_STOP_AT_EOF": "1"},
        # Ctrl-C on a terminal is ours to hand on.
        start_new_session=True,
    )
    said: list[str] = []
    pipes = [_Pipe(child.stdout, None), _Pipe(child.stderr, said if not shown else None, shown)]
    try:
        while child.poll() is None:
            time.sleep(0.02)
    except BaseException:
        _stop(child)
        raise
    finally:
        for pipe in pipes:
            pipe.join(timeout=5)
    if child.returncode != 0:
        errors = [line for line in said if line.startswith("error: ")] or [line for line in said if line][-1:]
        message = errors[0].removeprefix("error: ") if errors else "its message is on stderr"
        kind = InvalidError if child.returncode == 2 else Error
        raise kind(f"training failed: {message}")
    return str(json.loads(pipes[0].text)["model"])


def _stop(child: subprocess.Popen[str]) -> None:
    """Asks the trainer to keep what it has learned and to end; ends it if it takes longer than a person waits."""
    if child.stdin is not None:
        child.stdin.close()
    try:
        child.wait(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        # Whole epochs are kept on disk already.
        child.kill()
        child.wait()


class _Pipe(threading.Thread):
    """Reads what the trainer writes, so that it never waits for us."""

    def __init__(self, pipe: IO[str] | None, lines: list[str] | None, shown: bool = False) -> None:
        super().__init__(name="mopqdb-train", daemon=True)
        self._pipe, self._lines, self._shown = pipe, lines, shown
        self.text = ""
        self.start()

    def run(self) -> None:
        """Reads to the end."""
        for line in self._pipe or ():
            self.text += line
            if self._lines is not None:
                self._lines.append(line.strip())
            if self._shown:
                print(line, end="", file=sys.stderr, flush=True)
