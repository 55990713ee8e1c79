"""How the user can type `gapscope` here: a virtual environment may not be activated."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def typable() -> str:
    """`gapscope` where PATH has it, or else the path that started this process."""
    if shutil.which("gapscope") is not None:
        return "gapscope"
    started = Path(sys.argv[0])
    if started.stem == "gapscope" and started.is_file():
        return shlex.quote(str(started))
    return f"{shlex.quote(sys.executable)} -m gapscope"
