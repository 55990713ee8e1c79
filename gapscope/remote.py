"""Paths that are URLs (`s3://bucket/run`): listed, fetched and written through fsspec.

Credentials come from the environment of whoever runs; no URL with any in it is taken, and what a
storage service says in an error is never repeated, only its kind.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gapscope.errors import GapscopeError

# `Path` makes one slash of two. fsspec chains URLs with `::`.
_URL = re.compile(r"([a-z][a-z0-9+.:-]+):/+(.+)", re.DOTALL | re.IGNORECASE)
# What a run consists of, to the name: whatever else lies below a URL is not ours.
_OF_RUN = re.compile(
    r"(?:data|derived)/[a-z0-9_]+/rank=-?[0-9]+/data\.parquet"
    r"|run\.duckdb|manifest\.json|spec\.toml"
)


def url_of(path: str | Path) -> str | None:
    """The URL that was typed, or None when `path` is one of this machine."""
    match = _URL.fullmatch(str(path))
    if match is None or os.path.lexists(path):
        return None
    scheme, rest = match[1].lower(), match[2].rstrip("/")
    if ":" in scheme or "::" in rest:
        # Not repeated: any of them might hold credentials.
        raise GapscopeError("bad-url", "a chain of URLs (`::`) is not taken", "name one URL")
    if "?" in rest or "@" in rest.split("/")[0]:
        raise GapscopeError(
            "credentials-in-url",
            f"a `{scheme}://` URL with a user or a query in it is not taken",
            "put credentials into the environment",
        )
    return f"{scheme}:///{rest}" if scheme in ("file", "local") else f"{scheme}://{rest}"


@contextlib.contextmanager
def opened(url: str, doing: str) -> Iterator[tuple[Any, str]]:
    """The file system of a URL and its root there; whatever goes wrong names the URL alone."""
    try:
        import fsspec

        fsspec.get_filesystem_class(url.partition(":")[0])
    except (ImportError, ValueError) as error:
        raise GapscopeError(
            "no-fsspec",
            f"`{url}` needs fsspec and its package for this kind of URL",
            "`pip install 'gapscope[cluster]'` brings them for s3://",
        ) from error
    try:
        file_system, root = fsspec.url_to_fs(url)
        file_system.invalidate_cache()
        yield file_system, root.rstrip("/")
    except GapscopeError:
        raise
    except Exception as error:  # noqa: BLE001 -- every service has its own
        # From None: a chained text of the service might quote what it was given.
        raise GapscopeError(
            "remote",
            f"`{url}` cannot be {doing} ({type(error).__name__})",
            "check the URL, and credentials and endpoint in the environment",
        ) from None


def listed(url: str) -> dict[str, int]:
    """Files below a URL by relative name, with their size; one file has the empty name."""
    with opened(url, "listed") as (file_system, root):
        if file_system.isfile(root):
            return {"": file_system.size(root)}
        found = file_system.find(root, detail=True)
        return {name[len(root) + 1 :]: about["size"] or 0 for name, about in found.items()}


def is_plain(name: str) -> bool:
    """Whether a file of that name lies below its directory: keys of object stores may be `../x`."""
    return not {"", ".", ".."}.intersection(name.split("/"))


def fetch(url: str, names: list[str], target: Path) -> None:
    """Copy files below a URL to the same names below a directory, or one file to `target`."""
    with opened(url, "read") as (file_system, root):
        for name in names:
            if name and not is_plain(name):
                raise GapscopeError("bad-name", f"a name below `{url}` is no path", "rename it")
            file = target / name if name else target
            file.parent.mkdir(parents=True, exist_ok=True)
            file_system.get_file(f"{root}/{name}" if name else root, str(file))


def check_target(url: str, *, force: bool) -> None:
    """Refuse a URL below which something is that is not ours to replace."""
    present = listed(url)
    if not all(map(_OF_RUN.fullmatch, present)):
        raise GapscopeError(
            "not-a-run", f"`{url}` holds other files than a run's", "choose another with `-o`"
        )
    # Without its manifest it is what an upload that was cut off left.
    if "manifest.json" in present and not force:
        raise GapscopeError(
            "exists", f"`{url}` exists", "replace it with `-f`, or choose another with `-o`"
        )


def upload(run: Path, url: str, *, force: bool) -> None:
    """Write a run below a URL. Its manifest makes it one: that goes first and comes last."""
    files = {file.relative_to(run).as_posix(): file for file in run.rglob("*") if file.is_file()}
    sizes = {
        name: file.stat().st_size
        for name, file in sorted(files.items())
        if _OF_RUN.fullmatch(name) and name != "manifest.json"
    }
    with opened(url, "written") as (file_system, root):
        # Much may have come there since the ingest began.
        check_target(url, force=force)
        for name in sorted(listed(url), key=lambda name: name != "manifest.json"):
            file_system.rm_file(f"{root}/{name}")
        for name in sizes:
            _put(file_system, files[name], f"{root}/{name}")
        if listed(url) != sizes:
            raise GapscopeError(
                "remote-changed",
                f"another wrote to `{url}` at the same time: what is there is no run",
                "let one at a time write there",
            )
        _put(file_system, files["manifest.json"], f"{root}/manifest.json")


def _put(file_system: Any, file: Path, place: str) -> None:
    # Object stores have no directories; others do.
    file_system.makedirs(place.rpartition("/")[0], exist_ok=True)
    file_system.put_file(str(file), place)


def fetch_run(url: str, target: Path) -> None:
    """Copy a run from a URL; raises GapscopeError `no-run` where there is none."""
    names = listed(url)
    if not {"manifest.json", "run.duckdb"} <= names.keys():
        raise GapscopeError(
            "no-run", f"no run at `{url}`", f"make one: `gapscope ingest DIRECTORY -o {url}`"
        )
    fetch(url, [name for name in names if _OF_RUN.fullmatch(name)], target)
    if listed(url) != names:
        raise GapscopeError(
            "remote-changed", f"`{url}` was replaced while it was read", "the same command again"
        )
