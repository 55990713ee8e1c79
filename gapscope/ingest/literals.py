"""Constants in Arrow's computations, with their type said.

An untyped one makes pyarrow look for `dateutil` each time, all along the path if there is none: ten
times what the computation itself takes on a small batch.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@lru_cache(maxsize=1024)
def number(value: int) -> pa.Int64Scalar:
    """A whole number."""
    import pyarrow as pa

    return pa.scalar(value, pa.int64())


@lru_cache(maxsize=64)
def string(value: str) -> pa.StringScalar:
    """A text."""
    import pyarrow as pa

    return pa.scalar(value, pa.string())


def no() -> pa.BooleanScalar:
    """False."""
    import pyarrow as pa

    return pa.scalar(False, pa.bool_())


def none() -> pa.NullScalar:
    """NULL, of whatever type is asked for."""
    import pyarrow as pa

    return pa.NULL
