"""Table access for Nsight Systems exports: one interface over SQLite and a Parquet directory.

Export schemas differ by version, and files arrive cut or odd. Callers ask for columns by kind; a
column that the export lacks comes back as NULL, a value of the wrong type becomes NULL and is
counted, and a table that breaks off keeps the rows before the break.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol
from urllib.parse import quote

from gapscope.ingest.nsys_privacy import clean_message

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

Kind = Literal["int", "float", "text"]

BATCH_ROWS = 65_536
# Rows a batch of the salvage path: few, so that little is lost where a file breaks off.
SALVAGE_ROWS = 4_096
INT64_MAX = 2**63 - 1
# SQLite's default limit of bound values is 999 in old builds.
LOOKUP_CHUNK = 900

# What reading a broken database raises; names of tables and columns may be no UTF-8.
SQLITE_ERRORS = (sqlite3.DatabaseError, UnicodeDecodeError)

_INTEGER_TEXT = re.compile(r"-?\d{1,19}")


@dataclass(frozen=True)
class Problem:
    """A table that could not be read to its end."""

    table: str
    rows_read: int
    message: str


class TableSource(Protocol):
    """What the mapping needs from an export, whatever file format holds it."""

    tables: frozenset[str]
    problems: list[Problem]
    bad_values: dict[str, int]

    def columns(self, table: str) -> frozenset[str]:
        """Column names of a table; empty when there is no such table."""

    def estimate(self, table: str) -> int:
        """About how many rows a table has, without scanning it."""

    def count(self, table: str) -> int:
        """How many rows a table has."""

    def batches(
        self,
        table: str,
        columns: Mapping[str, Kind],
        where: tuple[str, int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Rows in stored order, exactly the asked columns as int64, float64 or string.

        `where` keeps the rows with one value in an existing column. Empty text is NULL: SQLite
        exports use both for 'no text'.
        """

    def strings(self, ids: Sequence[int]) -> dict[int, str]:
        """Texts of the given StringIds; unknown ids are left out."""


def quoted(name: str) -> str:
    """A SQLite identifier."""
    return '"' + name.replace('"', '""') + '"'


def sqlite_uri(path: Path) -> str:
    """URI that reads a file without locks and without a -wal, -shm or -journal beside it."""
    return f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"


def open_sqlite(path: Path) -> sqlite3.Connection:
    """Plain connection that leaves file and directory untouched."""
    connection = sqlite3.connect(sqlite_uri(path), uri=True, check_same_thread=False)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return connection


class SqliteSource:
    """A `.sqlite` export: ADBC for bulk, plain sqlite3 for metadata and for salvage."""

    def __init__(self, path: Path) -> None:
        import adbc_driver_sqlite.dbapi as adbc

        self.problems: list[Problem] = []
        self.bad_values: dict[str, int] = {}
        self._path = path
        self._columns: dict[str, frozenset[str]] = {}
        self._plain = open_sqlite(path)
        try:
            # No views: exports have none, and a query that never ends can hide in one.
            names = self._plain.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            self.tables = frozenset(name for (name,) in names)
            self._bulk = adbc.connect(sqlite_uri(path))
        except Exception:
            self._plain.close()
            raise

    def close(self) -> None:
        """Close both connections."""
        self._bulk.close()
        self._plain.close()

    def columns(self, table: str) -> frozenset[str]:
        """See `TableSource.columns`."""
        if table not in self.tables:
            return frozenset()
        known = self._columns.get(table)
        if known is None:
            try:
                rows = self._plain.execute(f"PRAGMA table_info({quoted(table)})").fetchall()
            except SQLITE_ERRORS as error:
                self.problems.append(Problem(table, 0, str(error)))
                rows = []
            known = self._columns[table] = frozenset(row[1] for row in rows)
        return known

    def estimate(self, table: str) -> int:
        """See `TableSource.estimate`; exports only append, so the last rowid is the count."""
        return self._number(f"SELECT max(_rowid_) FROM {quoted(table)}", table)

    def count(self, table: str) -> int:
        """See `TableSource.count`."""
        return self._number(f"SELECT count(*) FROM {quoted(table)}", table)

    def batches(
        self,
        table: str,
        columns: Mapping[str, Kind],
        where: tuple[str, int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """See `TableSource.batches`."""
        present = {name: kind for name, kind in columns.items() if name in self.columns(table)}
        if not present:
            return
        scope = f" FROM {quoted(table)}"
        if where is not None:
            scope += f" WHERE {quoted(where[0])} = {where[1]:d}"
        done = 0
        # ADBC infers types from the first batch and fails on a later mismatch; whatever goes wrong
        # (odd types or a broken page), the plain reader goes on from the row that was reached.
        try:
            for batch in self._adbc_batches(scope, present):
                done += batch.num_rows
                yield _complete(batch, columns)
            return
        except (OSError, _UnexpectedTypeError, self._bulk.Error):
            pass
        yield from self._salvage(table, scope, columns, present, done)

    def strings(self, ids: Sequence[int]) -> dict[int, str]:
        """See `TableSource.strings`."""
        if not {"id", "value"} <= self.columns("StringIds"):
            return {}
        found: dict[int, str] = {}
        for first in range(0, len(ids), LOOKUP_CHUNK):
            chunk = ids[first : first + LOOKUP_CHUNK]
            marks = ",".join("?" * len(chunk))
            try:
                rows = self._plain.execute(
                    f"SELECT id, value FROM StringIds WHERE id IN ({marks})", chunk
                ).fetchall()
            except SQLITE_ERRORS as error:
                self._lookup_failed(str(error))
                return found
            found.update((key, str(value)) for key, value in rows if value is not None)
        return found

    def _lookup_failed(self, message: str) -> None:
        if not any(problem.table == "StringIds" for problem in self.problems):
            self.problems.append(Problem("StringIds", 0, message))

    def _number(self, sql: str, table: str) -> int:
        if table not in self.tables:
            return 0
        try:
            return int(self._plain.execute(sql).fetchone()[0] or 0)
        except (*SQLITE_ERRORS, TypeError, ValueError):
            return 0

    def _adbc_batches(self, scope: str, present: Mapping[str, Kind]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        # A text column that starts with NULLs would be inferred as integer; '' keeps it text.
        # Integers are left alone (all NULL infers as integer) and so keep their validity bits.
        wrapped = {
            "int": "{0}",
            "float": "CAST({0} AS REAL) AS {0}",
            "text": "ifnull(CAST({0} AS TEXT), '') AS {0}",
        }
        select = ", ".join(wrapped[kind].format(quoted(name)) for name, kind in present.items())
        kinds = list(present.values())
        cursor = self._bulk.cursor()
        try:
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(BATCH_ROWS)})
            cursor.execute(f"SELECT {select}{scope}")
            reader = cursor.fetch_record_batch()
            types = [field.type for field in reader.schema]
            for kind, type_ in zip(kinds, types, strict=True):
                if kind == "int" and type_ != pa.int64():
                    raise _UnexpectedTypeError
            for batch in reader:
                if batch.num_rows:
                    yield batch
        finally:
            cursor.close()

    def _salvage(
        self,
        table: str,
        scope: str,
        columns: Mapping[str, Kind],
        present: Mapping[str, Kind],
        done: int,
    ) -> Iterator[pa.RecordBatch]:
        select = ", ".join(quoted(name) for name in present)
        rows: list[tuple[Any, ...]] = []
        failure = None
        # A connection of its own: this may run in the thread that reads ahead.
        connection = open_sqlite(self._path)
        try:
            for row in connection.execute(f"SELECT {select}{scope} LIMIT -1 OFFSET {done:d}"):
                rows.append(row)
                if len(rows) == SALVAGE_ROWS:
                    done += len(rows)
                    yield self._converted(table, columns, present, rows)
                    rows = []
        except SQLITE_ERRORS as error:
            failure = str(error)
        finally:
            connection.close()
        if rows:
            done += len(rows)
            yield self._converted(table, columns, present, rows)
        if failure is not None:
            self.problems.append(Problem(table, done, failure))

    def _converted(
        self,
        table: str,
        columns: Mapping[str, Kind],
        present: Mapping[str, Kind],
        rows: list[tuple[Any, ...]],
    ) -> pa.RecordBatch:
        import pyarrow as pa

        values = list(zip(*rows, strict=True))
        arrays = []
        for (_, kind), column in zip(present.items(), values, strict=True):
            array, bad = converted(column, kind)
            arrays.append(array)
            _count(self.bad_values, table, bad)
        batch = pa.RecordBatch.from_arrays(arrays, names=list(present))
        return _complete(batch, columns)


class ParquetSource:
    """A `parquetdir` export: one Parquet file a table, named after the table."""

    def __init__(self, path: Path) -> None:
        self.problems: list[Problem] = []
        self.bad_values: dict[str, int] = {}
        self._paths = {file.stem: file for file in sorted(path.glob("*.parquet"))}
        self.tables = frozenset(self._paths)
        self._files: dict[str, pq.ParquetFile | None] = {}
        self._strings: pa.Table | None = None

    def close(self) -> None:
        """Close every file."""
        for file in self._files.values():
            if file is not None:
                file.close()
        self._files = {}

    def columns(self, table: str) -> frozenset[str]:
        """See `TableSource.columns`."""
        file = self._file(table)
        return frozenset() if file is None else frozenset(file.schema_arrow.names)

    def estimate(self, table: str) -> int:
        """See `TableSource.estimate`."""
        return self.count(table)

    def count(self, table: str) -> int:
        """See `TableSource.count`."""
        file = self._file(table)
        return 0 if file is None else int(file.metadata.num_rows)

    def batches(
        self,
        table: str,
        columns: Mapping[str, Kind],
        where: tuple[str, int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """See `TableSource.batches`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        file = self._file(table)
        present = {name: kind for name, kind in columns.items() if name in self.columns(table)}
        if file is None or not present:
            return
        done = 0
        try:
            asked = list(dict.fromkeys([*present, *([where[0]] if where else [])]))
            for batch in file.iter_batches(BATCH_ROWS, columns=asked):
                if where is not None:
                    batch = batch.filter(pc.equal(batch.column(where[0]), where[1]))
                arrays = []
                for name, kind in present.items():
                    array, bad = _cast(batch.column(name), kind)
                    arrays.append(array)
                    _count(self.bad_values, table, bad)
                done += batch.num_rows
                yield _complete(pa.RecordBatch.from_arrays(arrays, names=list(present)), columns)
        except (OSError, pa.ArrowException) as error:
            self.problems.append(Problem(table, done, _one_line(error)))

    def strings(self, ids: Sequence[int]) -> dict[int, str]:
        """See `TableSource.strings`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self._strings is None:
            batches = list(self.batches("StringIds", {"id": "int", "value": "text"}))
            schema = pa.schema([("id", pa.int64()), ("value", pa.string())])
            self._strings = pa.Table.from_batches(batches, schema=schema)
        hits = self._strings.filter(
            pc.is_in(self._strings["id"], value_set=pa.array(ids, pa.int64()))
        )
        texts = texts_of(hits["value"].combine_chunks())
        pairs = zip(hits["id"].to_pylist(), texts, strict=True)
        return {key: text for key, text in pairs if key is not None and text is not None}

    def _file(self, table: str) -> pq.ParquetFile | None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if table not in self._paths:
            return None
        if table not in self._files:
            try:
                self._files[table] = pq.ParquetFile(self._paths[table])
            except (OSError, pa.ArrowException) as error:
                self.problems.append(Problem(table, 0, _one_line(error)))
                self._files[table] = None
        return self._files[table]


class _UnexpectedTypeError(Exception):
    """ADBC inferred a type that the caller cannot use."""


def converted(values: Iterable[Any], kind: Kind) -> tuple[pa.Array, int]:
    """Python values as an Arrow column of a kind, and how many did not fit (now NULL)."""
    import pyarrow as pa

    convert = {"int": _as_int, "float": _as_float, "text": _as_text}[kind]
    result = []
    bad = 0
    for value in values:
        clean = None if value is None else convert(value)
        if clean is None and value is not None and value != "":
            bad += 1
        result.append(clean)
    return pa.array(result, _arrow_type(kind)), bad


def texts_of(array: pa.Array) -> list[str | None]:
    """Strings of an Arrow column; bytes that are not UTF-8 are replaced instead of raising."""
    import pyarrow as pa

    raw = array.cast(pa.binary()).to_pylist()
    return [None if value is None else value.decode("utf-8", "replace") for value in raw]


def _cast(array: pa.Array, kind: Kind) -> tuple[pa.Array, int]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    type_ = _arrow_type(kind)
    if kind == "text":
        if pa.types.is_string(array.type):
            return array, 0
        if pa.types.is_large_string(array.type) or pa.types.is_null(array.type):
            return array.cast(type_), 0
    elif pa.types.is_uint64(array.type) and kind == "int":
        # All ones means 'none' in the export; it does not fit into a signed column.
        big = pc.greater(array, pa.scalar(INT64_MAX, pa.uint64()))
        return pc.if_else(big, pa.scalar(None, pa.uint64()), array).cast(type_), 0
    elif (
        pa.types.is_integer(array.type)
        or pa.types.is_null(array.type)
        or (pa.types.is_floating(array.type) and kind == "float")
    ):
        return array.cast(type_), 0
    return converted(array.to_pylist(), kind)


def _complete(batch: pa.RecordBatch, columns: Mapping[str, Kind]) -> pa.RecordBatch:
    """The asked columns in order: missing ones NULL, kinds enforced, empty text NULL."""
    import pyarrow as pa
    import pyarrow.compute as pc

    present = set(batch.schema.names)
    arrays = []
    for name, kind in columns.items():
        type_ = _arrow_type(kind)
        if name not in present:
            arrays.append(pa.nulls(batch.num_rows, type_))
            continue
        array = batch.column(name)
        if array.type != type_:
            array = array.cast(type_)
        if kind == "text":
            array = pc.if_else(pc.equal(pc.binary_length(array), 0), None, array)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _arrow_type(kind: Kind) -> pa.DataType:
    import pyarrow as pa

    return {"int": pa.int64(), "float": pa.float64(), "text": pa.string()}[kind]


def _as_int(value: Any) -> int | None:
    if isinstance(value, str):
        value = int(value) if _INTEGER_TEXT.fullmatch(value) else None
    elif isinstance(value, float):
        value = int(value) if value.is_integer() else None
    return value if isinstance(value, int) and abs(value) <= INT64_MAX else None


def _as_float(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _as_text(value: Any) -> str | None:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return str(value).encode("utf-8", "replace").decode("utf-8") or None


def _count(counts: dict[str, int], table: str, number: int) -> None:
    if number:
        counts[table] = counts.get(table, 0) + number


def _one_line(error: BaseException) -> str:
    # Arrow's messages may name the file with its whole path.
    return clean_message(str(error), frozenset())[:200]
