"""`instrument.json`, beside the tracer's streams of this process."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from pathlib import Path
from typing import Any

from .guard import faults

FORMAT = "gapscope-instrument/1"
FILE = "instrument.json"


def write_record(document: dict[str, Any]) -> None:
    """Write the document in place of an older one; nothing where this process is not traced."""
    directory = find_directory()
    if directory is None:
        return
    # The format comes first, like in the tracer's own file.
    text = json.dumps({"format": FORMAT, **document, "faults": faults})
    part = directory / (FILE + ".part")
    try:
        part.write_text(text + "\n", encoding="utf-8")
        part.replace(directory / FILE)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def find_directory() -> Path | None:
    """The directory that the tracer made for this process, once the process has used CUDA."""
    above = os.environ.get("GAPSCOPE_TRACE_DIR")
    if not above or not Path(above).is_dir():
        return None
    # A process that replaced itself by exec has several, the highest number is the last.
    own = re.compile(rf"(rank-\d+|process)-{os.getpid()}(?:-(\d+))?")
    found: dict[str, dict[int, Path]] = {}
    for entry in Path(above).iterdir():
        match = own.fullmatch(entry.name)
        if match and _is_of_this_host(entry):
            found.setdefault(match[1], {})[int(match[2] or 0)] = entry
    # Containers may share a host's name as well as numbers: better no record than another's.
    if len(found) != 1:
        return None
    (mine,) = found.values()
    return mine[max(mine)]


def _is_of_this_host(directory: Path) -> bool:
    """Processes of other hosts have the same numbers, and may write into one shared place."""
    try:
        meta = json.loads((directory / "meta.json").read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(meta, dict) and meta.get("hostname") == socket.gethostname()
