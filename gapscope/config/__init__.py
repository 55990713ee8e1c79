"""`gapscope.toml`: what the user declares about a run, because no capture can tell it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gapscope.config import device, fsdp2, model, parts, run
from gapscope.errors import GapscopeError

DEFAULT = Path("gapscope.toml")

# Table -> what refuses its wrong values; a table of the file is what has an entry here.
CHECKS: dict[str, Callable[[dict[str, Any], str], None]] = {
    "device": device.check,
    "fsdp2": fsdp2.check,
    "model": model.check,
    "parts": parts.check,
    "run": run.check,
}


def read(path: Path | None) -> dict[str, dict[str, Any]]:
    """Tables of the file, checked; of `gapscope.toml` in the working directory when none is named.

    Raises GapscopeError `bad-config` for a file that is missing, no TOML, or holds unknown tables
    or values that mean nothing.
    """
    if path is None:
        if not DEFAULT.is_file():
            return {}
        path = DEFAULT
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no UTF-8"
        raise GapscopeError(
            "bad-config", f"`{path}` cannot be read: {reason}", "name a file with `--config FILE`"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise GapscopeError(
            "bad-config", f"`{path}` is no TOML: {error}", "a table looks like `[fsdp2]`"
        ) from error
    for name, table in found.items():
        if name not in CHECKS:
            raise GapscopeError(
                "bad-config", f"`{path}`: unknown `{name}`", f"known tables: {', '.join(CHECKS)}"
            )
        if not isinstance(table, dict):
            raise GapscopeError(
                "bad-config", f"`{path}`: `{name}` must be a table", f"begin it with `[{name}]`"
            )
        CHECKS[name](table, str(path))
    return found
