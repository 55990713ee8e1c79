"""The truth of captures as somebody wrote it down: TOML or CSV, one entry a run."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

from gapscope.errors import GapscopeError
from gapscope.model.validate import CLASSES, NOTHING, Expected

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_NUMBERS = ("expected_ns", "tolerance_ns", "rank")
_KEYS = ("run", "expected_class", *_NUMBERS)
_HINT = (
    "CSV with the columns `run,expected_class,expected_ns,tolerance_ns,rank`, or TOML with these "
    "keys in `[[run]]`; the last three may be left out"
)


def read_truth(path: Path) -> dict[str, Expected]:
    """Run, by the name of its directory -> what it contains."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise _bad(path, "is no text") from error
    except OSError as error:
        hint = "look at the path and its permissions"
        text = f"`{path}` cannot be read: {error.strerror}"
        raise GapscopeError("not-found", text, hint) from error
    rows = _toml(path, text) if path.suffix.lower() == ".toml" else _csv(text)
    truth: dict[str, Expected] = {}
    for number, row in enumerate(rows, 1):
        where = f"entry {number}"
        unknown = [key for key in row if key not in _KEYS]
        if unknown:
            raise _bad(path, f"{where} has `{unknown[0]}`, which is no key")
        name = row.get("run")
        if not isinstance(name, str) or not name:
            raise _bad(path, f"{where} names no `run`")
        if name in truth:
            raise _bad(path, f"{where} repeats run `{name}`")
        truth[name] = _expected(path, where, row)
    if not truth:
        raise _bad(path, "has no entry")
    return truth


def truth_of(truth: dict[str, Expected], run: Path, source: Path) -> Expected:
    """The entry of one run: the name of its directory, with or without `.run`."""
    directory = run.parent if run.name == "run.duckdb" else run
    name = directory.resolve().name
    for known in (name, name.removesuffix(".run")):
        if known in truth:
            return truth[known]
    raise GapscopeError(
        "no-truth",
        f"`{source}` has no entry for run `{name}`",
        f"it has: {', '.join(list(truth)[:8])}",
    )


def _toml(path: Path, text: str) -> list[dict[str, Any]]:
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _bad(path, f"is no TOML: {error}") from error
    rows = content.get("run")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise _bad(path, "has no `[[run]]`")
    return rows


def _csv(text: str) -> list[dict[str, Any]]:
    reader = csv.DictReader(
        text.splitlines(), restkey="more than the header", skipinitialspace=True
    )
    rows = []
    for row in reader:
        kept = {key.strip(): value for key, value in row.items() if value}
        rows.append({key: _value(key, value) for key, value in kept.items()})
    return rows


def _value(key: str, value: str | list[str]) -> Any:
    # Fields beyond the header come as a list, under a name that is no key.
    if isinstance(value, list):
        return value
    return _number(value.strip()) if key in _NUMBERS else value.strip()


def _number(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:
        return text


def _expected(path: Path, where: str, row: dict[str, Any]) -> Expected:
    expected_class = row.get("expected_class")
    if expected_class not in (*CLASSES, NOTHING):
        listed = ", ".join((*CLASSES, NOTHING))
        raise _bad(path, f"{where}: `expected_class` is not one of {listed}")
    numbers = {key: row[key] for key in _NUMBERS if key in row}
    for key, value in numbers.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise _bad(path, f"{where}: `{key}` is no whole number from 0 on")
    if "tolerance_ns" in numbers and "expected_ns" not in numbers:
        raise _bad(path, f"{where}: `tolerance_ns` needs `expected_ns`")
    return Expected(expected_class, **numbers)


def _bad(path: Path, what: str) -> GapscopeError:
    return GapscopeError("bad-truth", f"`{path}` {what}", _HINT)
