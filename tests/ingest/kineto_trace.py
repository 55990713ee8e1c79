"""Small Kineto traces that the tests write themselves, and the rows that reading one gives."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gapscope.ingest.base import SourceInfo
from gapscope.ingest.kineto import KinetoReader
from gapscope.ingest.writer import name_id_of
from gapscope.schema.tables import TABLES


class Rows:
    """A sink that keeps rows in memory and puts names back in place of their ids."""

    def __init__(self) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
        self.names: dict[int, str] = {}
        self.done = (0, 0)

    def write(self, table: str, columns: Mapping[str, Any]) -> None:
        known = {column.name for column in TABLES[table].columns}
        assert set(columns) <= known, set(columns) - known
        if columns:
            for row in zip(*columns.values(), strict=True):
                self.tables[table].append(dict(zip(columns, row, strict=True)))

    def intern(self, text: str) -> int:
        self.names[name_id_of(text)] = text
        return name_id_of(text)

    def intern_many(self, texts: Sequence[str | None]) -> list[int | None]:
        return [None if text is None else self.intern(text) for text in texts]

    def quality(
        self, check_name: str, status: str, detail: str, forbids: str | None = None
    ) -> None:
        self.tables["source_quality"].append(
            {"check_name": check_name, "status": status, "detail": detail, "forbids": forbids}
        )

    def progress(self, done_bytes: int, total_bytes: int) -> None:
        self.done = (done_bytes, total_bytes)

    def __getitem__(self, table: str) -> list[dict[str, Any]]:
        return self.tables[table]

    def named(self, table: str) -> list[str]:
        return [self.names[row["name_id"]] for row in self.tables[table]]

    def checks(self) -> dict[str, dict[str, Any]]:
        checks = {row["check_name"]: row for row in self.tables["source_quality"]}
        assert len(checks) == len(self.tables["source_quality"])
        return checks


def read(path: Path, content: Any, **sizes: int) -> tuple[Rows, SourceInfo]:
    """Write the content (a trace, JSON text or bytes) and read it."""
    if not isinstance(content, bytes):
        content = (content if isinstance(content, str) else json.dumps(content)).encode()
    path.write_bytes(content)
    rows = Rows()
    return rows, KinetoReader(**sizes).read(path, rows)


def event(category: str, name: str, ts: Any = 1, dur: Any = 1, **fields: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 42,
        "tid": 43,
        "ts": ts,
        "dur": dur,
    }
    return {**base, **fields}


def kernel(name: str = "k", ts: Any = 1, dur: Any = 1, **args: Any) -> dict[str, Any]:
    base = {"device": 0, "context": 1, "stream": 7, "correlation": 9}
    return event("kernel", name, ts, dur, pid=0, tid=7, args={**base, **args})


LAUNCH = event("cuda_runtime", "cudaLaunchKernel", args={"External id": 5, "correlation": 9})
