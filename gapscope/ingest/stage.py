"""Read one source into its staging directory; runs in a worker process."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gapscope.errors import GapscopeError
from gapscope.ingest.base import MAX_RANK, TIME_LIMIT_NS, SourceInfo
from gapscope.ingest.discover import READERS, Found
from gapscope.ingest.writer import StagingSink

# These come from writing the staged rows, not from reading the source.
_OUT_OF_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


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
        with _digesting(found.path) as digested:
            info = READERS[found.format]().read(found.path, sink)
            _check_identity(info, sink)
            sink.close()
            size, hashed = digested.result()
    except (GapscopeError, MemoryError):
        sink.abort()
        raise
    except OSError as error:
        sink.abort()
        if error.errno in _OUT_OF_SPACE:
            raise
        raise GapscopeError(
            "cannot-read",
            f"`{found.label}` cannot be read: {error.strerror or error}",
            "check its permissions",
        ) from error
    except Exception as error:
        sink.abort()
        if os.environ.get("GAPSCOPE_DEBUG"):
            raise
        # One odd file must not lose the others. Only the kind is named: the text of an exception
        # may quote the file.
        raise GapscopeError(
            "unreadable-capture",
            f"`{found.label}` could not be read ({type(error).__name__})",
            "this is a bug in gapscope; see the traceback with `GAPSCOPE_DEBUG=1`",
        ) from error
    except BaseException:
        sink.abort()
        raise
    return Staged(found, directory, info, _partitions(directory), sink.rows, size, hashed)


def _check_identity(info: SourceInfo, sink: StagingSink) -> None:
    """Forget numbers that no process can have; a rank out of range is none."""
    refused = []
    for process in info.processes:
        if process.rank is not None and not 0 <= process.rank <= MAX_RANK:
            refused.append(f"rank {process.rank}")
            process.rank = process.rank_source = None
        if process.world_size is not None and not 0 < process.world_size <= MAX_RANK:
            refused.append(f"world size {process.world_size}")
            process.world_size = None
        if process.clock_base_ns is not None and abs(process.clock_base_ns) > TIME_LIMIT_NS:
            refused.append("session start time")
            process.clock_base_ns = None
    if refused:
        sink.quality(
            "impossible_identity",
            "warn",
            f"the source states an impossible {' and '.join(refused)[:200]}: read as unknown",
            "what needs the identity of the rank",
        )


def _partitions(directory: Path) -> list[Partition]:
    """(process, device) pairs with device ops, most ops first; one empty pair without any."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    file = directory / "gpu_op.parquet"
    if not file.exists():
        return [Partition(None, None, 0, None, None)]
    keys = ["process_id", "device"]
    figures = [("start_ns", "count", pc.CountOptions("all"))]
    figures += [("start_ns", "min", None), ("end_ns", "max", None)]
    groups = [
        pa.table(batch).group_by(keys).aggregate(figures)
        for batch in pq.ParquetFile(file).iter_batches(columns=[*keys, "start_ns", "end_ns"])
    ]
    merged = [("start_ns_count", "sum"), ("start_ns_min", "min"), ("end_ns_max", "max")]
    found = pa.concat_tables(groups).group_by(keys).aggregate(merged)
    names = [*keys, *("_".join(one) for one in merged)]
    rows = [tuple(row[name] for name in names) for row in found.to_pylist()]
    return sorted((Partition(*row) for row in rows), key=_most_first)


def _most_first(one: Partition) -> tuple[int, int, int]:
    # What has no number comes last.
    process, device = (2**63 if n is None else n for n in (one.process_id, one.device))
    return -one.op_count, process, device


@contextmanager
def _digesting(path: Path) -> Iterator[Future[tuple[int, str]]]:
    """The digest of a source, made by a thread while the block reads the source."""
    stop = threading.Event()
    with ThreadPoolExecutor(1, "digest") as pool:
        try:
            yield pool.submit(digest, path, stop)
        finally:
            stop.set()


def digest(path: Path, stop: threading.Event | None = None) -> tuple[int, str]:
    """Size and blake2b-128 of a file, or of the files of a directory in name order."""
    hasher = hashlib.blake2b(digest_size=16)
    size = 0
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        if not file.is_file():
            continue
        with file.open("rb") as stream:
            while not (stop and stop.is_set()) and (block := stream.read(1 << 20)):
                size += len(block)
                hasher.update(block)
    return size, hasher.hexdigest()
