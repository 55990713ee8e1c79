"""Keys of a table with fixed names: which there are, and what their values must be."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gapscope.errors import GapscopeError

_SPAN = re.compile(r"(\d{1,9}):(\d{1,9})")


@dataclass(frozen=True)
class Kind:
    """What a value must be: in words, and as a test."""

    words: str
    fits: Callable[[Any], bool]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_positive(value: Any) -> bool:
    return (_is_whole(value) or isinstance(value, float)) and math.isfinite(value) and value > 0


def _is_span(value: Any) -> bool:
    match = _SPAN.fullmatch(value) if isinstance(value, str) else None
    return match is not None and int(match[1]) < int(match[2])


FLAG = Kind("true or false", lambda value: isinstance(value, bool))
WHOLE = Kind("a whole number", _is_whole)
COUNT = Kind("a whole number above 0", lambda value: _is_whole(value) and value > 0)
POSITIVE = Kind("a number above 0", _is_positive)
TEXT = Kind(
    "text in quotes, not empty", lambda value: isinstance(value, str) and value.strip() != ""
)
POSITIVES = Kind(
    "a list of numbers above 0, like [29390.0, 29410.0]",
    lambda value: isinstance(value, list) and bool(value) and all(map(_is_positive, value)),
)
SPAN = Kind('two step numbers, like "3:10" for 3 to 9', _is_span)


def one_of(*words: str) -> Kind:
    """One of a few words."""
    return Kind(f"one of {', '.join(words)}", lambda value: value in words)


def check_keys(name: str, keys: Mapping[str, Kind], table: dict[str, Any], source: str) -> None:
    """Refuse keys that the table `[name]` does not have, and values of the wrong kind.

    Raises GapscopeError `bad-config`.
    """
    for key, value in table.items():
        kind = keys.get(key)
        if kind is None:
            raise GapscopeError(
                "bad-config",
                f"`{source}`: [{name}] has no key `{key}`",
                f"known keys: {', '.join(keys)}",
            )
        if not kind.fits(value):
            raise GapscopeError(
                "bad-config",
                f"`{source}`: [{name}] `{key}` is {value!r}",
                f"it must be {kind.words}",
            )
