"""The document as JSON: versioned, first key `schema`, field names as in `report/document.py`."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from gapscope.report.document import REPORT_VERSION

if TYPE_CHECKING:
    from gapscope.report.document import Document

SCHEMA = f"gapscope.report/{REPORT_VERSION}"


def render(document: Document) -> str:
    """One JSON object, keys in the order of the dataclass fields, UTF-8, ending in a newline."""
    body = {"schema": SCHEMA, **_plain(document)}
    return json.dumps(body, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(part: Any) -> Any:
    if is_dataclass(part) and not isinstance(part, type):
        body = {field.name: _plain(getattr(part, field.name)) for field in fields(part)}
        # Figures of several kinds share one list.
        name = type(part).__name__
        return {"kind": name.lower(), **body} if name in ("Waterfall", "Gantt", "HeatMap") else body
    if isinstance(part, Enum):
        return part.value
    if isinstance(part, tuple):
        return [_plain(item) for item in part]
    return part
