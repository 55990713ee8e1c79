"""Find the captures in files and directories, and the reader of each."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gapscope.errors import GapscopeError
from gapscope.ingest.base import Reader
from gapscope.ingest.kineto import KinetoReader
from gapscope.ingest.nsys import NsysReader
from gapscope.ingest.tracer import TracerReader, why_idle
from gapscope.ingest.tracer_streams import used_the_device
from gapscope.remote import url_of

READERS: dict[str, type[Reader]] = {
    "gapscope": TracerReader,
    "nsys": NsysReader,
    "kineto": KinetoReader,
}
_EXPECTED = (
    "expected a directory of `gapscope trace`, Kineto .json(.gz), or Nsight Systems .sqlite, "
    "parquetdir or .nsys-rep"
)


@dataclass(frozen=True)
class Found:
    """One capture: where it is, what reads it, and its path relative to what the user named."""

    path: Path
    format: str
    label: str
    # Where it is not on this machine; `path` then only names it.
    url: str | None = None


class Ignored(NamedTuple):
    """What holds no capture; of a traced process that recorded nothing also why it did not."""

    label: str
    why_idle: str | None = None


def discover(sources: Sequence[Path]) -> tuple[list[Found], list[Ignored]]:
    """Captures in the order of their labels, and what is none.

    Raises GapscopeError when a named file is no capture, or nothing is found.
    """
    found: dict[Path, Found] = {}
    ignored: list[Ignored] = []
    for source in sources:
        if not os.path.lexists(source):
            raise GapscopeError("not-found", f"`{source}` does not exist", "check the path")
        if _is_directory(source) and _format_of(source) is None:
            for path in _walk(source):
                label = path.relative_to(source).as_posix()
                format_ = _format_of(path) or _unreadable_format(path)
                if format_ is None:
                    ignored.append(Ignored(label))
                else:
                    found.setdefault(path.resolve(), Found(path, format_, label))
        else:
            format_ = _format_of_named(source)
            found.setdefault(source.resolve(), Found(source, format_, source.name))
    captures = _without_exported_twins(sorted(found.values(), key=lambda one: one.label))
    captures = _without_idle_processes(captures, ignored)
    if not captures:
        raise no_captures(sources, len(ignored))
    return captures, ignored


def no_captures(sources: Sequence[Path], others: int) -> GapscopeError:
    named = ", ".join(f"`{url_of(source) or source}`" for source in sources)
    more = f" ({others} other files)" if others else ""
    return GapscopeError("no-captures", f"no capture in {named}{more}", _EXPECTED)


def _walk(directory: Path) -> Iterator[Path]:
    """Files and capture directories below, sorted; hidden ones and our own runs left out."""
    try:
        entries = sorted(directory.iterdir())
    except OSError as error:
        raise GapscopeError(
            "cannot-read",
            f"`{directory}` cannot be read: {error.strerror}",
            "check its permissions",
        ) from error
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if _is_directory(entry):
            if (entry / "run.duckdb").exists() and (entry / "manifest.json").exists():
                continue
            if _format_of(entry) is not None:
                yield entry
            elif not entry.is_symlink():
                yield from _walk(entry)
        else:
            yield entry


def _format_of(path: Path) -> str | None:
    if path.is_dir() or _is_regular(path):
        for name, reader in READERS.items():
            if reader.probe(path):
                return name
    return None


def _format_of_named(path: Path) -> str:
    """The reader of a file that the user named; says why there is none."""
    if path.is_symlink() and not path.exists():
        raise GapscopeError(
            "not-a-file", f"`{path}` is a link that leads nowhere", "check where it should lead"
        )
    if not path.is_dir() and not _is_regular(path):
        raise GapscopeError(
            "not-a-file", f"`{path}` is not a regular file", "name a file or a directory"
        )
    if not path.is_dir():
        _check_content(path)
    format_ = _format_of(path)
    if format_ is None:
        raise GapscopeError(
            "unknown-format",
            f"`{path}` is no capture that GapScope reads",
            _EXPECTED,
        )
    return format_


def _check_content(path: Path) -> None:
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise GapscopeError(
            "cannot-read", f"`{path}` cannot be read: {error.strerror}", "check its permissions"
        ) from error
    if not head:
        raise GapscopeError("empty-input", f"`{path}` is empty", "capture again, or leave it out")


def _unreadable_format(path: Path) -> str | None:
    """The reader of a capture by its name, where its content may not be looked at.

    The reader then fails, and the file is named among what is lost instead of ignored.
    """
    if not _is_regular(path) or os.access(path, os.R_OK):
        return None
    name = path.name.removesuffix(".gz")
    if name.endswith((".sqlite", ".nsys-rep")):
        return "nsys"
    return "kineto" if name.endswith(".json") else None


def _is_directory(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except PermissionError as error:
        raise GapscopeError(
            "cannot-read", f"`{path}` cannot be read: {error.strerror}", "check its permissions"
        ) from error
    except OSError:
        # A link that leads nowhere or in circles.
        return False


def _is_regular(path: Path) -> bool:
    # Opening a FIFO would block; sockets and devices are no captures.
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def _without_exported_twins(found: list[Found]) -> list[Found]:
    """Leave out a .nsys-rep whose export lies beside it: one capture, not two."""
    exported = {
        (one.path.parent, one.path.name.removesuffix(".gz").removesuffix(".sqlite"))
        for one in found
        if one.path.name.removesuffix(".gz").endswith(".sqlite")
    }
    return [
        one
        for one in found
        if not (
            one.path.suffix == ".nsys-rep"
            and (one.path.parent, one.path.name.removesuffix(".nsys-rep")) in exported
        )
    ]


def _without_idle_processes(found: list[Found], ignored: list[Ignored]) -> list[Found]:
    """Leave out traced helpers (compilers, data loaders) that ran nothing on a device.

    They inherit their parent's rank and would claim it too. Without any other capture they stay,
    so that the reader can say what is wrong.
    """
    idle = [
        one for one in found if one.format == TracerReader.format and not used_the_device(one.path)
    ]
    if len(idle) == len(found):
        return found
    ignored.extend(Ignored(one.label, why_idle(one.path)) for one in idle)
    return [one for one in found if one not in idle]
