"""Finished pieces of an ingest, sealed one by one: what a killed one has done is not done again.

Pieces are made in directories that nobody else writes to, so that a worker that was given up but
still runs disturbs nothing. The last file written into one is its record.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapscope.ingest.base import DeviceInfo, ProcessInfo, SourceInfo
from gapscope.ingest.discover import Found
from gapscope.ingest.stage import Partition, Staged, digest, stage

if TYPE_CHECKING:
    from gapscope.schema.derive import AuditResult

_RECORD = "finished.json"
# Where pieces lie in an unfinished run; a directory a source or rank, one a try below it.
STAGING, DERIVING = "staging", "deriving"


@functools.cache
def fingerprint() -> str:
    """Of what decides what a piece contains, beside its input: our code and SQL, and DuckDB."""
    import duckdb
    import pyarrow as pa

    from gapscope._version import __version__
    from gapscope.schema.views import all_views

    hasher = hashlib.blake2b(digest_size=16)
    for text in (__version__, duckdb.__version__, pa.__version__):
        hasher.update(text.encode())
    package = Path(__file__).parents[1]
    for file in sorted(package.glob("ingest/*.py")) + sorted(package.glob("schema/*.py")):
        hasher.update(file.read_bytes())
    for view in all_views():
        hasher.update(view.query.encode())
    return hasher.hexdigest()


def staging_home(work: Path, found: Found) -> Path:
    """The directory of one source's tries."""
    name = hashlib.blake2b(found.label.encode("utf-8", "surrogateescape"), digest_size=12)
    return work / STAGING / name.hexdigest()


def stage_once(
    found: Found, home: Path, progress: Callable[[int, int], None] | None = None
) -> Staged:
    """`stage`, unless a source of this very content was staged below `home` before."""
    key = [fingerprint(), found.format, found.label]
    earlier = dict(_sealed(home, key))
    if earlier:
        size, hashed = _digest_or_none(found.path)
        for directory, content in earlier.items():
            if (content["bytes"], content["digest"]) == (size, hashed):
                return _restored(found, directory, content)
    staged = stage(found, _new_try(home), progress)
    content = asdict(staged)
    del content["found"], content["directory"]
    _seal(staged.directory, key, content)
    return staged


def derive_once(
    work: Path,
    inputs: dict[int, list[Any]],
    options: dict[str, str],
    threads: int,
    memory_limit: str | None,
) -> list[tuple[int, Path, list[AuditResult]]]:
    """`derive_ranks` for those for which it was not done with these inputs.

    Returns of each rank where its Parquet lies, and its audits.
    """
    from gapscope.schema.derive import derive_ranks

    done: list[tuple[int, Path, list[AuditResult]]] = []
    targets: dict[int, Path] = {}
    for rank, own in inputs.items():
        home = work / DERIVING / f"rank={rank}"
        earlier = next(_sealed(home, [fingerprint(), rank, own, options]), None)
        if earlier is None:
            targets[rank] = _new_try(home)
        else:
            directory, audits = earlier
            done.append((rank, directory, [(a, b, c, d) for a, b, c, d in audits]))
    results = derive_ranks(work, targets, options, threads, memory_limit)
    for rank, target in targets.items():
        audits = [one for one in results if one[0] == rank]
        _seal(target, [fingerprint(), rank, inputs[rank], options], audits)
        done.append((rank, target, audits))
    return done


def finished(work: Path) -> set[Path]:
    """Where an unfinished run has sources that were read whole."""
    return {file.parent for file in (work / STAGING).glob(f"*/*/{_RECORD}")}


def strip(work: Path) -> None:
    """Leave nothing of a killed ingest's directory but its pieces."""
    _remove_all(work, keep=(STAGING, DERIVING))


def drop_pieces(work: Path) -> None:
    """Remove the pieces of a run that is complete."""
    for name in (STAGING, DERIVING):
        shutil.rmtree(work / name, ignore_errors=True)


def link(source: Path, target: Path) -> None:
    """The file under a second name, so that its piece stays whole; a copy where links fail."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _new_try(home: Path) -> Path:
    directory = home / secrets.token_hex(4)
    directory.mkdir(parents=True)
    return directory


def _seal(directory: Path, key: Any, content: Any) -> None:
    files = {file.name: file.stat().st_size for file in directory.iterdir() if file.is_file()}
    text = json.dumps({"key": key, "files": files, "content": content})
    unfinished = directory / f"{_RECORD}.tmp"
    unfinished.write_text(text, encoding="utf-8", errors="surrogateescape")
    unfinished.rename(directory / _RECORD)


def _sealed(home: Path, key: Any) -> Iterator[tuple[Path, Any]]:
    """Whole pieces below `home` that were made with this key, and what their records say."""
    for file in sorted(home.glob(f"*/{_RECORD}")):
        try:
            record = json.loads(file.read_text(encoding="utf-8", errors="surrogateescape"))
            # A machine that lost power may have lost the end of what was written.
            sizes = {name: (file.parent / name).stat().st_size for name in record["files"]}
        except (OSError, ValueError, KeyError):
            continue
        if sizes == record["files"] and record["key"] == json.loads(json.dumps(key)):
            yield file.parent, record["content"]


def _restored(found: Found, directory: Path, content: dict[str, Any]) -> Staged:
    info = SourceInfo(
        content["info"]["format"],
        [ProcessInfo(**process) for process in content["info"]["processes"]],
        [DeviceInfo(**device) for device in content["info"]["devices"]],
    )
    partitions = [Partition(**partition) for partition in content["partitions"]]
    rest = {name: content[name] for name in ("rows", "bytes", "digest")}
    return Staged(found, directory, info, partitions, **rest)


def _digest_or_none(path: Path) -> tuple[int, str | None]:
    try:
        return digest(path)
    except OSError:
        # Whoever reads the source says what is wrong with it.
        return -1, None


def _remove_all(directory: Path, keep: tuple[str, ...]) -> None:
    for entry in directory.iterdir():
        if entry.name in keep or entry.name == ".lock":
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
