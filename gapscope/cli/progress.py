"""A progress bar on stderr, only where a person is watching."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator

# Bars of their own; whatever else is named is a file that is read.
_PHASES = ("views", "simulating", "writing")


def wanted(*, quiet: bool, no_progress: bool) -> bool:
    """On a terminal, unless switched off or run by a CI."""
    off = quiet or no_progress or bool(os.environ.get("GAPSCOPE_NO_PROGRESS"))
    return not off and not os.environ.get("CI") and sys.stderr.isatty()


@contextlib.contextmanager
def bar(*, quiet: bool, no_progress: bool) -> Iterator[Callable[[str, int, int], None] | None]:
    """A callback `(what, done, total)` for the pipeline, or None when nothing is to be shown."""
    if not wanted(quiet=quiet, no_progress=no_progress):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        tasks: dict[str, TaskID] = {}

        def update(what: str, done: int, total: int) -> None:
            # Parallel reads count files and name the last one: one bar for all of them.
            key = what if what in _PHASES else "reading"
            if key not in tasks:
                tasks[key] = progress.add_task(key, total=total)
            text = key if key == what else f"{key} {what}"
            progress.update(tasks[key], completed=done, total=total, description=text)

        yield update
