"""The Arrow IPC streams of one traced process, read as far as they are whole."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

META = "meta.json"
FORMAT = "gapscope-trace/1"
# What meta.json starts with, of whatever version.
FORMAT_START = b'{"format": "gapscope-trace/'
# Streams whose rows are device activities: a process without any of them never used the device.
DEVICE_STREAMS = ("kernel", "memcpy", "memset", "graph")

# About what the tracer writes at once where there is much to write.
_ROWS_AT_ONCE = 32_768


def looks_like_trace(path: Path) -> bool:
    """Whether a directory is one traced process; reads a few bytes."""
    try:
        with (path / META).open("rb") as file:
            return file.read(len(FORMAT_START)) == FORMAT_START
    except OSError:
        return False


def used_the_device(path: Path) -> bool:
    """Whether the process of this directory ran anything on a device."""
    return any(_stream_file(path, name) is not None for name in DEVICE_STREAMS)


def read_meta(path: Path) -> dict[str, Any]:
    """meta.json; empty when it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        meta = json.loads((path / META).read_bytes())
        if isinstance(meta, dict):
            return meta
    return {}


class Streams:
    """Record batches by table. A stream that breaks off is read up to there, and remembered."""

    def __init__(self, path: Path) -> None:
        self.broken: dict[str, int] = {}
        self._path = path

    def __contains__(self, table: str) -> bool:
        return _stream_file(self._path, table) is not None

    def batches(self, table: str) -> Iterator[pa.RecordBatch]:
        """The rows of a table, up to where it is whole; none when the process wrote none.

        The tracer writes every second. Small batches come together: each costs the same, however
        few rows it has.
        """
        kept: list[pa.RecordBatch] = []
        for batch in self._written(table):
            kept.append(batch)
            if sum(one.num_rows for one in kept) >= _ROWS_AT_ONCE:
                yield _together(kept)
                kept = []
        if kept:
            yield _together(kept)

    def _written(self, table: str) -> Iterator[pa.RecordBatch]:
        """The batches as they were written."""
        import pyarrow as pa

        file = _stream_file(self._path, table)
        if file is None:
            return
        rows = 0
        with contextlib.ExitStack() as stack:
            try:
                raw = stack.enter_context(pa.OSFile(str(file), "rb"))
                source = pa.CompressedInputStream(raw, "lz4") if file.suffix == ".lz4" else raw
                reader = pa.ipc.open_stream(source)
                _ = reader.schema.names
            except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError):
                self.broken[table] = rows
                return
            while True:
                try:
                    batch = reader.read_next_batch()
                    # Lengths and offsets of a damaged batch may point anywhere.
                    batch.validate(full=True)
                except StopIteration:
                    return
                except (pa.ArrowException, OSError, EOFError):
                    self.broken[table] = rows
                    return
                # The tracer leaves no value out: where one is missing, bytes have changed.
                if any(column.null_count for column in batch.columns):
                    self.broken[table] = rows
                    return
                rows += batch.num_rows
                yield batch

    def table(self, name: str) -> list[dict[str, Any]]:
        """All rows of a small table."""
        return [row for batch in self.batches(name) for row in batch.to_pylist()]


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    if len(batches) == 1:
        return batches[0]
    (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole


def _stream_file(path: Path, table: str) -> Path | None:
    for suffix in (".arrows", ".arrows.lz4"):
        file = path / f"{table}{suffix}"
        if file.is_file():
            return file
    return None
