"""A comparison as JSON, first key `schema`; field names as in `compare/document.py`."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from gapscope.compare.document import COMPARE_VERSION

if TYPE_CHECKING:
    from gapscope.compare.document import Comparison

SCHEMA = f"gapscope.compare/{COMPARE_VERSION}"


def render(document: Comparison) -> str:
    """One JSON object, keys in the order of the dataclass fields, UTF-8, ending in a newline."""
    body = {"schema": SCHEMA, **_plain(document)}
    return json.dumps(body, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(part: Any) -> Any:
    if is_dataclass(part) and not isinstance(part, type):
        return {field.name: _plain(getattr(part, field.name)) for field in fields(part)}
    if isinstance(part, Enum):
        return part.value
    if isinstance(part, tuple):
        return [_plain(item) for item in part]
    return part
