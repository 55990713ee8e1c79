"""Outputs that appear whole or not at all, and never on top of something else."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from gapscope.errors import GapscopeError


def check_no_directory(path: Path) -> None:
    """Refuse a directory where a file is to be written."""
    if path.is_dir() and not path.is_symlink():
        raise GapscopeError("exists", f"`{path}` is a directory", "choose a file with `-o`")


def check_free(path: Path, *, force: bool, is_ours: bool = False) -> None:
    """Refuse to replace an existing output, unless forced or it is `is_ours` to replace."""
    check_no_directory(path)
    if (path.exists() or path.is_symlink()) and not force and not is_ours:
        raise GapscopeError(
            "exists", f"`{path}` exists", "replace it with `-f`, or choose another with `-o`"
        )
    if not path.absolute().parent.is_dir():
        raise GapscopeError(
            "no-directory", f"`{path.parent}` is no directory", f"`mkdir -p {path.parent}`"
        )


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its name when the block succeeds."""
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a whole text file at once."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
