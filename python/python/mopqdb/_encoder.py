"""Encoders that a program brings: functions from texts to vectors."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ._errors import InvalidError, InvalidTypeError
from ._options import Functions

Encoder = Callable[[list[str]], Any]
"""A function from texts to an array (texts, dim), or anything that numpy makes such an array of."""


def functions(encoder: Encoder | None, name: str | None, queries: Encoder | None, dim: int | None) -> Functions | None:
    """Checks an encoder. Queries are encoded as keys are unless they have a function of their own."""
    if encoder is None:
        for what, given in (("encoder_name", name), ("query_encoder", queries)):
            if given is not None:
                raise InvalidError(f"{what} without an encoder; give encoder=... too")
        return None
    for function in (encoder, queries):
        if function is not None and not callable(function):
            raise InvalidTypeError(f"{function!r} is not an encoder; give a function from a list of texts to an array")
    if name is None:
        name = getattr(encoder, "__name__", "<lambda>")
    if not isinstance(name, str):
        raise InvalidTypeError(f"{name!r} is not the name of an encoder; give a str")
    if not name or name == "<lambda>":
        raise InvalidError('the encoder has no name; give encoder_name="NAME-VERSION", which the database stores')
    if dim is None:
        raise InvalidError("the width of the encoder's vectors is not known; give dim=...")
    try:
        width = operator.index(dim)
    except TypeError:
        raise InvalidTypeError(f"{dim!r} is not a width of vectors; give a whole number") from None
    if width < 1:
        raise InvalidError(f"{width} is not a width of vectors")
    return Functions(name=name, dim=width, keys=encoder, queries=queries or encoder)
