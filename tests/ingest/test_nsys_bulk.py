"""The Nsight Systems reader: the bulk reader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from gapscope.ingest import nsys_tables
from gapscope.ingest.ahead import read_ahead
from gapscope.ingest.nsys_tables import SqliteSource

from .nsys_export import full_export, write_sqlite


def test_bulk_and_salvage_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_sqlite(tmp_path / "e.sqlite", full_export(), typed=True)
    source = SqliteSource(path)
    columns: dict[str, nsys_tables.Kind] = {
        "start": "int",
        "text": "text",
        "textId": "int",
        "absent": "float",
    }
    fast = pa.Table.from_batches(source.batches("NVTX_EVENTS", columns))

    def refuse(*_: object) -> Iterator[pa.RecordBatch]:
        raise OSError
        yield

    monkeypatch.setattr(source, "_adbc_batches", refuse)
    slow = pa.Table.from_batches(source.batches("NVTX_EVENTS", columns))
    assert fast == slow
    assert not source.problems
    source.close()


def test_read_ahead_passes_errors_and_stops_early() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise KeyError("broken")

    steps = read_ahead(failing())
    assert next(steps) == 1
    with pytest.raises(KeyError):
        next(steps)

    fetched = []

    def endless() -> Iterator[int]:
        while True:
            fetched.append(1)
            yield 1

    steps = read_ahead(endless())
    next(steps)
    steps.close()
    assert len(fetched) == 2
