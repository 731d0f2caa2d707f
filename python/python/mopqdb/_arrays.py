"""What callers give as vectors, as arrays of float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._errors import InvalidError, InvalidTypeError, ModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def _numbers(given: Any, what: str) -> NDArray[Any]:
    """Returns an array of real numbers."""
    import numpy as np

    if isinstance(given, (str, bytes)) or given is None:
        raise InvalidTypeError(f"{type(given).__name__} instead of {what}")
    try:
        array = np.asarray(given)
    except (ValueError, TypeError) as why:
        raise InvalidError(f"this is not {what}: {why}") from None
    if array.dtype.kind not in "fiu":
        raise InvalidTypeError(f"an array of {array.dtype} instead of {what}; convert it to float32")
    return array


def vector(given: Any) -> NDArray[np.float32]:
    """Returns one vector."""
    import numpy as np

    array = _numbers(given, "a vector")
    if array.ndim != 1:
        raise InvalidError(f"an array of shape {array.shape} instead of a vector; give one with one axis, (dim,)")
    # What is too large becomes infinite, which the engine refuses by name.
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, dtype=np.float32)


def vectors(given: Any) -> NDArray[np.float32]:
    """Returns vectors, one per row."""
    import numpy as np

    array = _numbers(given, "vectors")
    if array.ndim != 2:
        raise InvalidError(f"an array of shape {array.shape} instead of vectors; give one with two axes, (n, dim)")
    # What is too large becomes infinite, which the engine refuses by name.
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, dtype=np.float32)


def encoded(given: Any, shape: tuple[int, int], name: str) -> NDArray[np.float32]:
    """Returns what an encoder made of texts, in the order of the texts."""
    try:
        array = vectors(given)
    except InvalidError as why:
        raise ModelError(f"the encoder {name!r} returned no array of vectors: {why}") from None
    if array.shape != shape:
        raise ModelError(
            f"the encoder {name!r} returned an array of shape {array.shape} for {shape[0]} texts; expected {shape}"
        )
    return array
