"""Read one source into its staging directory; runs in a worker process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gapscope.errors import GapscopeError
from gapscope.ingest.base import SourceInfo
from gapscope.ingest.discover import READERS, Found
from gapscope.ingest.writer import StagingSink


@dataclass(frozen=True)
class Partition:
    """Device ops of one process on one device: what becomes a rank."""

    process_id: int | None
    device: int | None
    op_count: int
    first_ns: int | None
    last_ns: int | None


@dataclass
class Staged:
    """A source that was read."""

    found: Found
    directory: Path
    info: SourceInfo
    partitions: list[Partition]
    rows: dict[str, int]
    bytes: int
    digest: str


def stage(
    found: Found, directory: Path, progress: Callable[[int, int], None] | None = None
) -> Staged:
    """Run the reader of `found`; raises GapscopeError naming the file."""
    sink = StagingSink(directory, progress)
    try:
        info = READERS[found.format]().read(found.path, sink)
        sink.close()
        size, digest = _digest(found.path)
    except PermissionError as error:
        sink.abort()
        raise GapscopeError(
            "cannot-read", f"`{found.label}` cannot be read: {error.strerror}", "check permissions"
        ) from error
    except BaseException:
        sink.abort()
        raise
    return Staged(found, directory, info, _partitions(directory), sink.rows, size, digest)


def _partitions(directory: Path) -> list[Partition]:
    """(process, device) pairs with device ops, most ops first; one empty pair without any."""
    import duckdb

    file = directory / "gpu_op.parquet"
    if not file.exists():
        return [Partition(None, None, 0, None, None)]
    with duckdb.connect() as con:
        rows = con.execute(
            "SELECT process_id, device, count(*), min(start_ns), max(end_ns) FROM read_parquet(?) "
            "GROUP BY ALL ORDER BY count(*) DESC, process_id, device",
            [str(file)],
        ).fetchall()
    return [Partition(*row) for row in rows]


def _digest(path: Path) -> tuple[int, str]:
    """Size and blake2b-128 of a file, or of the files of a directory in name order."""
    hasher = hashlib.blake2b(digest_size=16)
    size = 0
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        if not file.is_file():
            continue
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                size += len(block)
                hasher.update(block)
    return size, hasher.hexdigest()
