"""What goes wrong in a hook stays in the hook."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

# What went wrong, by kind: written into `instrument.json`.
faults: dict[str, int] = {}


def note(error: Exception) -> None:
    """Count an error of ours."""
    kind = type(error).__name__
    faults[kind] = faults.get(kind, 0) + 1


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose errors are counted; it returns None then."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is not the program's
            note(error)
            return None

    return call
