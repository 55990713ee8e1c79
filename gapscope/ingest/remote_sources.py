"""Captures named by URL: listed by name, and fetched one at a time by whoever reads them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from gapscope import remote
from gapscope.errors import GapscopeError
from gapscope.ingest.discover import READERS, Found, Ignored
from gapscope.ingest.resume import stage_once
from gapscope.ingest.stage import Staged
from gapscope.ingest.tracer import TracerReader, why_idle
from gapscope.ingest.tracer_streams import META, used_the_device

# What only its content tells apart from a capture; that shows when it is fetched.
NO_CAPTURE = "no-capture"
IDLE_PROCESS = "idle-process"
_FILES = (".json", ".json.gz", ".sqlite", ".sqlite.gz", ".nsys-rep")


def discover_remote(urls: Sequence[str]) -> tuple[list[Found], list[Ignored]]:
    """What may be a capture below the URLs, by name alone, and the files that are none."""
    found: dict[str, Found] = {}
    ignored: list[Ignored] = []
    for url in urls:
        names = remote.listed(url)
        if not names:
            raise GapscopeError("not-found", f"nothing is at `{url}`", "check the URL")
        runs = _directories(names, lambda file: file == "run.duckdb")
        whole = _directories(names, lambda file: file == META or file.endswith(".parquet"))
        for name in sorted(names):
            if name and not remote.is_plain(name):
                ignored.append(Ignored(name))
                continue
            path = PurePosixPath(name)
            if any(part.startswith(".") for part in path.parts) or runs & set(path.parents):
                continue
            if path.parent in whole and name:
                is_root = path.parent == PurePosixPath()
                label = PurePosixPath(url).name if is_root else str(path.parent)
                place = url if is_root else f"{url}/{path.parent}"
            elif not name or name.endswith(_FILES):
                label = name or PurePosixPath(url).name
                place = f"{url}/{name}" if name else url
            else:
                ignored.append(Ignored(name))
                continue
            found.setdefault(place, Found(Path(place), "", label, place))
    return list(found.values()), ignored


def _directories(names: dict[str, int], is_mark: Callable[[str], bool]) -> set[PurePosixPath]:
    paths = (PurePosixPath(name) for name in names if remote.is_plain(name))
    return {path.parent for path in paths if is_mark(path.name)}


def stage_remote(
    found: Found, home: Path, progress: Callable[[int, int], None] | None = None
) -> Staged:
    """Fetch one capture to this machine, stage it, and forget the copy."""
    assert found.url is not None  # noqa: S101 -- who calls has looked
    with tempfile.TemporaryDirectory(prefix="gapscope-") as scratch:
        local = Path(scratch) / found.path.name
        # Nothing in a directory below a capture belongs to it.
        names = [
            name
            for name in remote.listed(found.url)
            if not name or ("/" not in name and remote.is_plain(name))
        ]
        remote.fetch(found.url, names, local)
        format_ = next((name for name, one in READERS.items() if one.probe(local)), None)
        if format_ == TracerReader.format and not used_the_device(local):
            raise GapscopeError(IDLE_PROCESS, why_idle(local), "leave it out")
        if format_ is None:
            raise GapscopeError(
                NO_CAPTURE, f"`{found.label}` is no capture that GapScope reads", "leave it out"
            )
        staged = stage_once(Found(local, format_, found.label), home, progress)
    staged.found = found
    return staged
