"""Staging of one source's rows as Parquet, one file a canonical table."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapscope.ingest.base import TIME_LIMIT_NS
from gapscope.ingest.literals import none, number
from gapscope.schema.tables import TABLES

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ROW_GROUP_ROWS = 122_880

# Row numbers that the sink gives when the reader does not.
NUMBERED = {
    "gpu_op": "op_id",
    "api_call": "call_id",
    "stream_wait": "wait_id",
    "range": "range_id",
    "collective": "collective_id",
    "diagnostic": "diagnostic_id",
}

# Of bytes and elements: a hundred thousand of the largest still fit into one sum.
_SIZES = frozenset(("bytes", "elements_in", "elements_out"))
_SIZE_LIMIT = 1 << 46

_REPETITIVE = frozenset(
    (
        *("name_id", "process_id", "tid", "context", "stream", "return_code", "graph_id"),
        *("is_default", "priority", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"),
    )
)


def name_id_of(text: str) -> int:
    """63-bit hash of a string: equal strings get equal ids on every rank, without coordination."""
    digest = hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


class StagingSink:
    """Implements `ingest.base.Sink`: buffers rows and writes them as Parquet row groups."""

    def __init__(self, directory: Path, progress: Callable[[int, int], None] | None = None) -> None:
        self.directory = directory
        self.rows = dict.fromkeys(TABLES, 0)
        self._progress = progress
        self._pending: dict[str, list[pa.RecordBatch]] = {}
        self._pending_rows: dict[str, int] = {}
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._names: dict[str, int] = {}
        self._lost: dict[str, int] = {}

    def write(self, table: str, columns: Mapping[str, Any]) -> None:
        """Append rows; see `ingest.base.Sink.write`."""
        import pyarrow as pa

        if not columns:
            return
        count = len(next(iter(columns.values())))
        if count == 0:
            return
        schema = TABLES[table].arrow_schema()
        unknown = set(columns) - set(schema.names)
        if unknown:
            raise ValueError(f"{table} has no column {sorted(unknown)}")
        numbered = NUMBERED.get(table)
        arrays = []
        for field in schema:
            if field.name in columns:
                array = _as_array(columns[field.name], field.type)
                if field.name.endswith("_ns"):
                    array = _sane(array, TIME_LIMIT_NS)
                elif field.name in _SIZES:
                    array = _sane(array, _SIZE_LIMIT)
                self._note_lost(f"{table}.{field.name}", columns[field.name], array)
                arrays.append(array)
            elif field.name == numbered:
                first = self.rows[table]
                arrays.append(_numbers_from(first, count))
            else:
                arrays.append(pa.nulls(count, field.type))
        self.rows[table] += count
        self._pending.setdefault(table, []).append(
            pa.RecordBatch.from_arrays(arrays, schema=schema)
        )
        self._pending_rows[table] = self._pending_rows.get(table, 0) + count
        if self._pending_rows[table] >= ROW_GROUP_ROWS:
            self._flush(table)

    def intern(self, text: str) -> int:
        """The name_id of a string; the string enters the `name` table."""
        known = self._names.get(text)
        if known is None:
            clean = text.encode("utf-8", "replace").decode("utf-8")
            known = self._names[text] = name_id_of(clean)
        return known

    def intern_many(self, texts: Sequence[str | None]) -> list[int | None]:
        """`intern` for a sequence; None stays None."""
        intern = self.intern
        return [None if text is None else intern(text) for text in texts]

    def quality(
        self, check_name: str, status: str, detail: str, forbids: str | None = None
    ) -> None:
        """Add a row to `source_quality`."""
        self.write(
            "source_quality",
            {
                "check_name": [check_name],
                "status": [status],
                "detail": [detail],
                "forbids": [forbids],
            },
        )

    def scratch(self) -> Path:
        """See `ingest.base.Sink.scratch`."""
        self.directory.mkdir(parents=True, exist_ok=True)
        return self.directory

    def progress(self, done_bytes: int, total_bytes: int) -> None:
        """Tell the progress bar how much of the input is consumed."""
        if self._progress is not None:
            self._progress(done_bytes, total_bytes)

    def close(self) -> None:
        """Write what is pending and close every file; tables without rows get no file here."""
        import pyarrow as pa

        texts = {
            name_id: text.encode("utf-8", "replace").decode("utf-8")
            for text, name_id in self._names.items()
        }
        self._names = {}
        lost, self._lost = self._lost, {}
        if lost:
            detail = ", ".join(f"{count} in {column}" for column, count in lost.items())
            self.quality(
                "values_out_of_range", "warn", f"values too large to be real read as NULL: {detail}"
            )
        if texts:
            self.write("name", {"name_id": list(texts), "name": list(texts.values())})
        for table in list(self._pending):
            self._flush(table)
        for writer in self._writers.values():
            writer.close()
        self._writers = {}
        # What comes next is DuckDB's: it has an allocator of its own.
        pa.default_memory_pool().release_unused()

    def abort(self) -> None:
        """Close files without finishing them; the caller removes the directory."""
        for writer in self._writers.values():
            try:
                writer.close()
            except OSError:
                # Or its finaliser tries again and complains on stderr.
                writer.is_open = False
        self._writers = {}

    def _note_lost(self, column: str, given: Any, kept: pa.Array) -> None:
        if not kept.null_count:
            return
        nulls = given.null_count if hasattr(given, "null_count") else _count_none(given)
        if kept.null_count > nulls:
            self._lost[column] = self._lost.get(column, 0) + kept.null_count - nulls

    def _flush(self, table: str) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        batches = self._pending.pop(table, [])
        self._pending_rows[table] = 0
        if not batches:
            return
        writer = self._writers.get(table)
        if writer is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            writer = self._writers[table] = pq.ParquetWriter(
                self.directory / f"{table}.parquet",
                TABLES[table].arrow_schema(),
                compression="zstd",
                compression_level=1,
                use_dictionary=_repetitive(table),
            )
        writer.write_table(pa.Table.from_batches(batches), row_group_size=ROW_GROUP_ROWS)


def _repetitive(table: str) -> list[str]:
    """Columns worth a dictionary: few distinct values. Times and row numbers have none."""
    return [
        column.name
        for column in TABLES[table].columns
        if column.type in ("VARCHAR", "INTEGER") or column.name in _REPETITIVE
    ]


def _as_array(values: Any, type_: pa.DataType) -> pa.Array:
    """The column; where the values of a broken source do not fit its type, NULL."""
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        try:
            return values if values.type == type_ else values.cast(type_)
        except pa.ArrowInvalid:
            values = values.to_pylist()
    try:
        return pa.array(values, type=type_)
    except (OverflowError, UnicodeEncodeError, pa.ArrowInvalid):
        return pa.array([_fitting(value, type_) for value in values], type=type_)


def _numbers_from(first: int, count: int) -> pa.Array:
    """first, first + 1, ...; not by NumPy, whose arrays make Arrow import the whole of numpy.ma."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ones = pa.repeat(pa.scalar(1, pa.int64()), count)
    return pc.cumulative_sum(ones, start=pa.scalar(first - 1, pa.int64()))


def _fitting(value: Any, type_: pa.DataType) -> Any:
    from pyarrow import types

    if isinstance(value, int) and types.is_integer(type_):
        bits = type_.bit_width - 1
        return value if -(2**bits) <= value < 2**bits else None
    if isinstance(value, str):
        # File names may hold bytes that are no UTF-8.
        return value.encode("utf-8", "replace").decode("utf-8")
    return value


def _sane(values: pa.Array, limit: int) -> pa.Array:
    """Numbers that no capture can hold become NULL: no sum or difference of some may overflow."""
    import pyarrow.compute as pc

    ends = pc.min_max(values).as_py()
    if ends["min"] is None or (ends["min"] >= -limit and ends["max"] <= limit):
        return values
    is_sane = pc.and_(
        pc.greater_equal(values, number(-limit)), pc.less_equal(values, number(limit))
    )
    return pc.if_else(is_sane, values, none())


def _count_none(values: Sequence[Any]) -> int:
    return sum(value is None for value in values)
