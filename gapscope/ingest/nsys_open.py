"""Finding and opening Nsight Systems captures: what a path is, and a source that reads it.

Inputs stay untouched: SQLite files are opened immutable, everything that has to be unpacked,
recovered or exported goes to a temporary directory of ours.
"""

from __future__ import annotations

import gzip
import shlex
import shutil
import sqlite3
import subprocess
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gapscope.errors import GapscopeError
from gapscope.ingest.nsys_tables import (
    SQLITE_ERRORS,
    ParquetSource,
    SqliteSource,
    TableSource,
    open_sqlite,
)

SQLITE_MAGIC = b"SQLite format 3\0"
GZIP_MAGIC = b"\x1f\x8b"
REPORT_SUFFIXES = (".nsys-rep", ".qdrep")
# One of these makes a database an Nsight Systems export.
MARKERS = ("StringIds", "META_DATA_EXPORT", "NVTX_EVENTS", "GPU_METRICS")
ACTIVITY_PREFIX = "CUPTI_ACTIVITY_KIND_"
COPY_BYTES = 1 << 20


@dataclass
class Opened:
    """An open export and what opening it had to note: (check, status, detail, forbids)."""

    source: TableSource
    notes: list[tuple[str, str, str, str | None]] = field(default_factory=list)


def looks_like_nsys(path: Path) -> bool:
    """Whether a path is a report, an SQLite export (gzip or not) or a parquetdir export."""
    try:
        if path.is_dir():
            names = {file.stem for file in path.glob("*.parquet")}
            return _has_marker(names)
        if path.name.endswith(REPORT_SUFFIXES):
            return True
        with path.open("rb") as file:
            head = file.read(len(SQLITE_MAGIC))
        if head.startswith(GZIP_MAGIC):
            with gzip.open(path, "rb") as unpacked:
                return unpacked.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
        return head == SQLITE_MAGIC and _sqlite_has_marker(path)
    except (OSError, EOFError, zlib.error):
        return False


@contextmanager
def open_export(path: Path, place: Path) -> Iterator[Opened]:
    """Open whatever `looks_like_nsys` recognised; closes and cleans up at the end.

    What must be unpacked goes below `place`, which even a killed ingest does not leave behind
    for long.
    """
    with tempfile.TemporaryDirectory(prefix=".nsys-", dir=place) as scratch:
        if path.is_dir():
            folder = ParquetSource(path)
            try:
                yield Opened(folder)
            finally:
                folder.close()
            return
        notes: list[tuple[str, str, str, str | None]] = []
        database = _database_of(path, Path(scratch), notes)
        try:
            source = SqliteSource(database)
        except (*SQLITE_ERRORS, OSError) as error:
            raise _unreadable(path, error) from None
        try:
            yield Opened(source, notes)
        finally:
            source.close()


def _database_of(path: Path, scratch: Path, notes: list[tuple[str, str, str, str | None]]) -> Path:
    """An immutable-readable SQLite file for a report, a gzip file or a database."""
    if path.name.endswith(REPORT_SUFFIXES):
        return _export_report(path, scratch)
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(100)
    except OSError as error:
        raise GapscopeError(
            "cannot-read",
            f"{path.name}: {error.strerror}",
            "check the path and its permissions",
        ) from None
    if size == 0:
        raise GapscopeError("empty-file", f"{path.name}: the file is empty", _re_export(path))
    if head.startswith(GZIP_MAGIC):
        database = _unpack(path, scratch, notes)
        with database.open("rb") as file:
            head = file.read(100)
        size = database.stat().st_size
    else:
        database = _recovered(path, scratch, notes)
    if not head.startswith(SQLITE_MAGIC):
        raise GapscopeError(
            "not-a-database",
            f"{path.name}: not an SQLite database (offset 0)",
            _re_export(path),
        )
    expected = _stated_size(head)
    if size < expected:
        notes.append(
            (
                "truncated_file",
                "fail",
                f"{path.name} is cut at byte {size} of {expected}: what lies behind is lost",
                "anything that needs the whole capture",
            )
        )
    return database


def _export_report(path: Path, scratch: Path) -> Path:
    if not path.is_file():
        raise GapscopeError("cannot-read", f"{path.name}: no such file", "check the path")
    manual = shlex.join(["nsys", *_export_arguments(path, path.with_suffix(".sqlite"))])
    tool = shutil.which("nsys")
    if tool is None:
        raise GapscopeError(
            "nsys-not-found",
            f"{path.name}: a report needs `nsys` to be exported, and it is not on PATH",
            f"run `{manual}` where Nsight Systems is installed and ingest the .sqlite file",
        )
    target = scratch / "export.sqlite"
    run = subprocess.run(
        [tool, *_export_arguments(path, target)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if run.returncode != 0 or not target.is_file():
        raise GapscopeError(
            "nsys-export-failed",
            f"{path.name}: `nsys export` ended with code {run.returncode}",
            f"run `{manual}` to see why; a report opens with the nsys version that wrote it",
        )
    return target


def _export_arguments(report: Path, target: Path) -> list[str]:
    options = ["--type", "sqlite", "--force-overwrite", "true", "--output", str(target)]
    return ["export", *options, str(report)]


def _unpack(path: Path, scratch: Path, notes: list[tuple[str, str, str, str | None]]) -> Path:
    target = scratch / "unpacked.sqlite"
    with target.open("wb") as out:
        try:
            with gzip.open(path, "rb") as packed:
                while block := packed.read(COPY_BYTES):
                    out.write(block)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            notes.append(
                (
                    "truncated_gzip",
                    "fail",
                    f"{path.name}: the gzip stream is broken after {out.tell()} unpacked bytes",
                    "anything that needs the whole capture",
                )
            )
    return target


def _recovered(path: Path, scratch: Path, notes: list[tuple[str, str, str, str | None]]) -> Path:
    """The file itself, or a recovered copy where an unfinished writer left its log beside it."""
    logs = [path.with_name(path.name + suffix) for suffix in ("-wal", "-journal")]
    logs = [log for log in logs if log.is_file() and log.stat().st_size > 0]
    if not logs:
        return path
    copy = scratch / "copy.sqlite"
    shutil.copyfile(path, copy)
    for log in logs:
        shutil.copyfile(log, scratch / (copy.name + log.name[len(path.name) :]))
    kinds = " and ".join(log.name[len(path.name) :] for log in logs)
    try:
        with sqlite3.connect(copy) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute("PRAGMA journal_mode=DELETE")
        connection.close()
    except SQLITE_ERRORS as error:
        raise _unreadable(path, error) from None
    notes.append(
        (
            "unfinished_database",
            "warn",
            f"{path.name} was left unfinished (a {kinds} file beside it): read from a copy",
            None,
        )
    )
    return copy


def _stated_size(head: bytes) -> int:
    """Size in bytes that an SQLite header claims; 0 when it does not say."""
    page = int.from_bytes(head[16:18], "big")
    pages = int.from_bytes(head[28:32], "big")
    # The page count only holds when its change counter is the file's.
    if len(head) < 100 or head[24:28] != head[92:96]:
        return 0
    return (65_536 if page == 1 else page) * pages


def _sqlite_has_marker(path: Path) -> bool:
    try:
        connection = open_sqlite(path)
        try:
            names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        finally:
            connection.close()
    except SQLITE_ERRORS:
        # The magic is right: let the reader say what is wrong with the file.
        return True
    return _has_marker(names)


def _has_marker(names: set[str]) -> bool:
    return any(name in names for name in MARKERS) or any(
        name.startswith(ACTIVITY_PREFIX) for name in names
    )


def _unreadable(path: Path, error: Exception) -> GapscopeError:
    return GapscopeError(
        "corrupt-export", f"{path.name}: table sqlite_master: {error}", _re_export(path)
    )


def _re_export(path: Path) -> str:
    stem = path.name.removesuffix(".gz").removesuffix(".sqlite")
    report = shlex.quote(f"{stem}.nsys-rep")
    return f"export it again: `nsys export --type sqlite --force-overwrite true {report}`"
