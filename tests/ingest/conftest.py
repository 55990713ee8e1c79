"""What the tests of the readers write and read."""

from __future__ import annotations

from pathlib import Path

import pytest

from .nsys_export import Read, Result, full_export, write_sqlite


@pytest.fixture
def read(tmp_path: Path) -> Read:
    count = 0

    def run(path: Path) -> Result:
        nonlocal count
        count += 1
        return Result(path, tmp_path / f"staging{count}")

    return run


@pytest.fixture
def full(tmp_path: Path, read: Read) -> Result:
    return read(write_sqlite(tmp_path / "full.sqlite", full_export()))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "some_user_trace.json"
