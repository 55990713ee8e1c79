"""Sums per kernel, API function and copy operation, worked out once more from the raw export.

What `nsys stats` defines for its reports, with sqlite3 and `statistics` and none of our reader.
"""

from __future__ import annotations

import gzip
import re
import shutil
import sqlite3
import statistics
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from gapscope.ingest.nsys import NsysReader
from gapscope.ingest.writer import StagingSink
from gapscope.schema.tables import TABLES
from gapscope.schema.views import install, view_named

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
CAPTURES = sorted((*DATA.glob("h200/nsys/*.sqlite.gz"), *DATA.glob("public/*.sqlite")))

KERNELS = """\
SELECT s.value, k.end - k.start FROM CUPTI_ACTIVITY_KIND_KERNEL AS k
INNER JOIN StringIds AS s ON s.id = k.demangledName"""
CALLS = """\
SELECT s.value, r.end - r.start FROM CUPTI_ACTIVITY_KIND_RUNTIME AS r
INNER JOIN StringIds AS s ON s.id = r.nameId"""
COPIES = """\
SELECT '[CUDA memcpy ' || e.label || ']', m.end - m.start FROM CUPTI_ACTIVITY_KIND_MEMCPY AS m
INNER JOIN ENUM_CUDA_MEMCPY_OPER AS e ON e.id = m.copyKind"""
MEMSETS = "SELECT '[CUDA memset]', \"end\" - start FROM CUPTI_ACTIVITY_KIND_MEMSET"

Sums = dict[str, tuple[float, ...]]


def _ids(paths: list[Path]) -> list[str]:
    return [path.name.split(".")[0] for path in paths]


@pytest.mark.parametrize("capture", CAPTURES, ids=_ids(CAPTURES))
def test_sums_equal_those_of_the_export(capture: Path, tmp_path: Path) -> None:
    export = tmp_path / "export.sqlite"
    if capture.suffix == ".gz":
        with gzip.open(capture) as packed, export.open("wb") as plain:
            shutil.copyfileobj(packed, plain)
    else:
        shutil.copy(capture, export)
    raw = sqlite3.connect(export)
    con = _views(export, tmp_path / "staged")
    for view, label, queries in (
        ("cuda_gpu_kern_sum", "name", [KERNELS]),
        ("cuda_api_sum", "name", [CALLS]),
        ("cuda_gpu_mem_time_sum", "operation", [COPIES, MEMSETS]),
    ):
        wanted = _sums(row for query in queries for row in _rows(raw, query))
        got = {
            name: tuple(numbers)
            for name, *numbers in con.execute(
                f"SELECT {label}, * EXCLUDE (rank, {label}) REPLACE (time_percent / 100 AS time_percent) "
                f"FROM v1.{view}"
            ).fetchall()
        }
        assert got.keys() == wanted.keys(), view
        for name, numbers in wanted.items():
            assert got[name] == pytest.approx(numbers, rel=1e-9), (view, name)


def _views(export: Path, staged: Path) -> duckdb.DuckDBPyConnection:
    """The views over what the reader makes of the whole file, whatever ranks it holds."""
    sink = StagingSink(staged)
    NsysReader().read(export, sink)
    sink.close()
    con = duckdb.connect()
    con.execute("CREATE SCHEMA v1")
    for name in ("gpu_op", "api_call", "name"):
        file = staged / f"{name}.parquet"
        columns = ", ".join(f'"{column.name}"' for column in TABLES[name].columns)
        con.execute(f"CREATE TABLE v1.{name} AS SELECT 0 AS rank, {columns} FROM '{file}'")
    for name in ("cuda_gpu_kern_sum", "cuda_api_sum", "cuda_gpu_mem_time_sum"):
        install(con, view_named(name))
    return con


def _rows(raw: sqlite3.Connection, query: str) -> list[tuple[str, int]]:
    needed = re.findall(r"(?:CUPTI_ACTIVITY_KIND|ENUM)_\w+", query)
    present = {name for (name,) in raw.execute("SELECT name FROM sqlite_master")}
    return raw.execute(query).fetchall() if present.issuperset(needed) else []


def _sums(rows: Iterable[tuple[str, int]]) -> Sums:
    """Share, total, count, mean, median, least, most and deviation by name, as the reports list them."""
    durations = defaultdict(list)
    for name, length in rows:
        # nsys leaves suffixes of five digits (`_v10000`), the reader none.
        durations[re.sub(r"_v\d{4,}$", "", name)].append(length)
    whole = sum(map(sum, durations.values()))
    return {
        name: (
            sum(found) / whole,
            sum(found),
            len(found),
            statistics.fmean(found),
            statistics.median(found),
            min(found),
            max(found),
            statistics.stdev(found) if len(found) > 1 else 0.0,
        )
        for name, found in durations.items()
    }
