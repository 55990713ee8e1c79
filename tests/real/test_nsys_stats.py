"""Sums per kernel, API function and copy operation: those of `nsys stats`, and once more from the export.

`nsys stats` rounds to a tenth; sqlite3 and `statistics`, without our reader, give the rest.
"""

from __future__ import annotations

import csv
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
PRINTED = ROOT / "tests" / "data" / "nsys_stats"
CAPTURES = sorted(
    (
        *PRINTED.glob("*.sqlite.gz"),
        *DATA.glob("h200/nsys/*.sqlite.gz"),
        *DATA.glob("public/*.sqlite"),
    )
)
LABELS = {
    "cuda_gpu_kern_sum": "name",
    "cuda_api_sum": "name",
    "cuda_gpu_mem_time_sum": "operation",
}

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


@pytest.fixture
def export(capture: Path, tmp_path: Path) -> Path:
    place = tmp_path / "export.sqlite"
    if capture.suffix == ".gz":
        with gzip.open(capture) as packed, place.open("wb") as plain:
            shutil.copyfileobj(packed, plain)
    else:
        shutil.copy(capture, place)
    return place


@pytest.mark.parametrize("capture", CAPTURES, ids=_ids(CAPTURES))
def test_sums_equal_those_of_the_export(export: Path, tmp_path: Path) -> None:
    raw = sqlite3.connect(export)
    con = _views(export, tmp_path / "staged")
    for view, queries in (
        ("cuda_gpu_kern_sum", [KERNELS]),
        ("cuda_api_sum", [CALLS]),
        ("cuda_gpu_mem_time_sum", [COPIES, MEMSETS]),
    ):
        wanted = _sums(row for query in queries for row in _rows(raw, query))
        got = _got(con, view)
        assert got.keys() == wanted.keys(), view
        for name, numbers in wanted.items():
            assert got[name] == pytest.approx(numbers, rel=1e-9), (view, name)


@pytest.mark.parametrize("capture", CAPTURES, ids=_ids(CAPTURES))
def test_sums_equal_those_that_nsys_prints(capture: Path, export: Path, tmp_path: Path) -> None:
    name = capture.name.removesuffix(".sqlite.gz")
    if not (PRINTED / f"{name}_cuda_api_sum.csv").exists():
        pytest.skip("`nsys stats` was not run on this capture")
    con = _views(export, tmp_path / "staged")
    for view in LABELS:
        with (PRINTED / f"{name}_{view}.csv").open(newline="") as file:
            printed = list(csv.reader(file))[1:]
        got = _got(con, view)
        assert printed
        assert len(got) == len(printed), view
        for *cells, label in printed:
            share, total, count, mean, median, least, most, deviation = map(float, cells)
            mine = got[_plain(label)]
            assert (mine[1], mine[2], mine[5], mine[6]) == (total, count, least, most), (
                view,
                label,
            )
            assert (100 * mine[0], mine[3], mine[4], mine[7]) == pytest.approx(
                (share, mean, median, deviation), abs=0.0501
            ), (view, label)


def _got(con: duckdb.DuckDBPyConnection, view: str) -> Sums:
    label = LABELS[view]
    return {
        name: tuple(numbers)
        for name, *numbers in con.execute(
            f"SELECT {label}, * EXCLUDE (rank, {label}) REPLACE (time_percent / 100 AS time_percent) "
            f"FROM v1.{view}"
        ).fetchall()
    }


def _plain(name: str) -> str:
    """nsys leaves suffixes of five digits (`_v10000`), the reader none."""
    return re.sub(r"_v\d{4,}$", "", name)


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
    for name in LABELS:
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
        durations[_plain(name)].append(length)
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
