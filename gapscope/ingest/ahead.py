"""Read the next piece of an input while the caller works on this one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def read_ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items, the next one fetched by a thread; at most one waits in memory.

    Worth it where fetching releases the interpreter lock, as inflating and ADBC do.
    """
    with ThreadPoolExecutor(1, "read-ahead") as pool:
        upcoming = pool.submit(next, items, None)
        while (item := upcoming.result()) is not None:
            upcoming = pool.submit(next, items, None)
            yield item
