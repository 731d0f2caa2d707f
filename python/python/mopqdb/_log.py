"""Warnings of the engine, in ``logging.getLogger("mopqdb")``."""

from __future__ import annotations


def forward(level: str, message: str) -> None:
    """Logs a message. A program that does not ask for the messages sees none."""
    # Imported here: most programs that import the package never get here.
    import logging

    logger = logging.getLogger("mopqdb")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    getattr(logger, level)("%s", message)
