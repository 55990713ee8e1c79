"""Run the command as a user types it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Gapscope = Callable[..., "subprocess.CompletedProcess[str]"]

# What would change the output on the machine of whoever runs the tests.
_CLEARED = ("NO_COLOR", "FORCE_COLOR", "CI", "GAPSCOPE_DEBUG", "GAPSCOPE_NO_PROGRESS")


@pytest.fixture(scope="session")
def gapscope() -> Gapscope:
    """`gapscope("steps", run, cwd=...)`: exit code, stdout and stderr of one command."""

    def run(
        *arguments: str | Path,
        cwd: Path | None = None,
        stdin: str = "",
        path: str | None = None,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if name not in _CLEARED}
        kept |= {"COLUMNS": "80"}
        if path is not None:
            kept["PATH"] = path
        return subprocess.run(
            [sys.executable, "-m", "gapscope", *map(str, arguments)],
            cwd=cwd,
            input=stdin,
            env=kept | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return run
