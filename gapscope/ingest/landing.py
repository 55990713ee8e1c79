"""Where a run that goes to a URL is made on this machine, and who may make it there."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gapscope.errors import GapscopeError
from gapscope.ingest.workplace import held

_PRIVATE = 0o700


@contextlib.contextmanager
def landing(url: str) -> Iterator[Path]:
    """A place for the run, the same for one URL, so that a killed ingest can be gone on with.

    It lies in a directory of the user's own: others must not leave pieces there to go on from. One
    ingest at a time has it, or one would upload and remove what the other has made.
    """
    name = hashlib.blake2b(url.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    directory = _own_directory()
    try:
        with held(directory / f"{name}.lock") as is_ours:
            if not is_ours:
                raise GapscopeError(
                    "busy", f"another ingest writes to `{url}`", "wait for it, or stop it"
                )
            yield directory / f"{name}.run"
    finally:
        with contextlib.suppress(OSError):
            directory.rmdir()


def _own_directory() -> Path:
    user = getattr(os, "getuid", int)()
    directory = Path(tempfile.gettempdir()) / f"gapscope-{user}"
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=_PRIVATE)
    is_own = True
    if os.name == "posix":
        about = directory.lstat()
        is_own = stat.S_ISDIR(about.st_mode) and about.st_uid == user
        is_own = is_own and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not is_own:
        raise GapscopeError(
            "cannot-write",
            f"`{directory}` is not a directory that only you may write to",
            "remove it, or let TMPDIR name another place",
        )
    return directory
