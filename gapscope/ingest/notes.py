"""Quality rows of the whole ingest, which belong to no rank: what was left out, and what is odd."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapscope.ingest.ranks import clock_references
from gapscope.units import plural

if TYPE_CHECKING:
    from gapscope.errors import GapscopeError
    from gapscope.ingest.discover import Found, Ignored
    from gapscope.ingest.stage import Staged
    from gapscope.schema.catalog import IngestNote


def notes_of(
    failures: list[tuple[Found, GapscopeError]], ignored: list[Ignored], staged: list[Staged]
) -> list[IngestNote]:
    """Of captures that could not be read, of what is no capture, and of those that were read."""
    return [
        *_failures(failures),
        *_ignored(ignored),
        *copies(staged),
        *_several_clocks(staged),
    ]


def _failures(failures: list[tuple[Found, GapscopeError]]) -> list[IngestNote]:
    return [
        (
            f"source_failed:{found.label}",
            "fail",
            f"{error}; {error.hint}",
            "anything about the rank in that file",
        )
        for found, error in failures
    ]


def _ignored(ignored: list[Ignored]) -> list[IngestNote]:
    notes: list[IngestNote] = []
    files = [one.label for one in ignored if one.why_idle is None]
    if files:
        are = "file is no capture" if len(files) == 1 else "files are no captures"
        notes.append(("ignored_files", "info", f"{len(files)} {are}: {_few(files)}", None))
    idle: dict[str, list[str]] = {}
    for one in ignored:
        if one.why_idle is not None:
            idle.setdefault(one.why_idle, []).append(one.label)
    if idle:
        count = plural(sum(map(len, idle.values())), "traced process", "traced processes")
        each = "; ".join(f"{_few(labels)} ({why})" for why, labels in idle.items())
        said = f"{count} recorded nothing, as launchers and helpers do: {each}"
        notes.append(("idle_processes", "info", said, None))
    return notes


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def copies(staged: list[Staged]) -> list[IngestNote]:
    """Files that are the same to the byte: two ranks never record the same capture."""
    # Captures of two directories may have one name.
    labels: dict[str, list[str]] = {}
    for one in staged:
        labels.setdefault(one.digest, []).append(one.found.label)
    return [
        (
            f"same_source:{min(same)}",
            "warn",
            f"{' and '.join(sorted(same))} are one file: it stands for {len(same)} ranks",
            "anything that compares these ranks",
        )
        for same in labels.values()
        if len(same) > 1
    ]


def _several_clocks(staged: list[Staged]) -> list[IngestNote]:
    several = len(clock_references(staged))
    if several < 2:
        return []
    detail = f"captures of {several} clock exchanges: each has a rank 0 of its own, so none counts"
    return [("several_exchanges", "warn", detail, "skew below the residual of matched ends")]
