"""Captures of the lab, each ingested once a session."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

Capture = Callable[[str], duckdb.DuckDBPyConnection]


@pytest.fixture(scope="session")
def capture(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Capture]:
    """`capture("p_base")`: the run of that Kineto capture; `nsys/n_base`: of Nsight Systems."""
    from gapscope.ingest.pipeline import ingest

    opened: dict[str, Any] = {}
    home = tmp_path_factory.mktemp("h200")

    def open_(name: str) -> duckdb.DuckDBPyConnection:
        if name not in opened:
            tool, _, short = name.rpartition("/")
            pattern = f"{short}_rank*.sqlite.gz" if tool else f"{short}_rank*.json.gz"
            files = sorted((shared_data / "data" / "h200" / (tool or "kineto")).glob(pattern))
            if not files:
                pytest.skip(f"no capture {name} in ../shared")
            if tool:
                files = [_unpacked(file, home) for file in files]
            out = ingest(files, home / f"{short}.run", workers=1).out
            opened[name] = duckdb.connect(
                str(out / "run.duckdb"), read_only=True, config={"threads": 2}
            )
        return opened[name]

    yield open_
    for con in opened.values():
        con.close()


def _unpacked(file: Path, home: Path) -> Path:
    to = home / file.stem
    with gzip.open(file) as packed, to.open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    return to
