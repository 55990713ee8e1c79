"""Budgets of real captures against sums made by plain integer sweeps, to the nanosecond."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from gapscope.ingest.pipeline import ingest

from .sound import assert_sound, one

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
NO_SHARED = "the shared captures are not beside this checkout"


def _expected(name: str) -> dict[str, Any]:
    file = SHARED / "expected" / name
    return json.loads(file.read_text()) if file.exists() else {}


H200 = _expected("h200_budget.json")
PUBLIC = _expected("public_capture.json").get("files", {})


@pytest.fixture
def database(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[duckdb.DuckDBPyConnection]:
    out = tmp_path / "run"
    ingest([SHARED / request.param], out, workers=1)
    con = duckdb.connect(str(out / "run.duckdb"), read_only=True)
    yield con
    con.close()


@pytest.mark.skipif(not H200, reason=NO_SHARED)
@pytest.mark.parametrize("database", sorted(H200), indirect=True)
def test_h200_budget(database: duckdb.DuckDBPyConnection, request: pytest.FixtureRequest) -> None:
    """Every window and union of every capture; every audit; waits lead to producers."""
    name = request.node.callspec.params["database"]
    expected = H200[name]
    found = database.execute(
        "SELECT b.projection, b.step_id, w.label, w.start_ns, w.end_ns, b.step_ns, b.busy_ns, "
        "b.idle_ns, b.comm_ns, b.noncomm_ns AS kernel_not_comm_ns "
        "FROM step_budget AS b JOIN step_window AS w USING (rank, step_id, projection)"
    )
    names = [column[0] for column in found.description]
    rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    key = ("projection", "step_id")
    assert sorted(rows, key=lambda r: [r[k] for k in key]) == sorted(
        expected["budget"], key=lambda r: [r[k] for k in key]
    )
    assert one(database, "SELECT count(*) FROM op") == expected["device_ops"]
    recorded = "SELECT count(DISTINCT wait_id) FROM event_edge WHERE is_recorded"
    assert one(database, recorded) == expected["stream_waits_with_record"]
    assert_sound(database)
    if expected["stream_waits_with_record"]:
        resolved = one(
            database,
            "SELECT count(DISTINCT wait_id) FROM event_edge WHERE producer_op_id IS NOT NULL",
        )
        assert resolved >= 0.98 * expected["stream_waits_with_record"]
        if "/n_base" in name:
            assert resolved >= 0.99 * expected["stream_waits_with_record"]


# Whole-capture unions per device; the published exposure subtracts kernels only, copies overlap it.
_PUBLIC = """
WITH class_set AS (
    SELECT * FROM (VALUES
        ('all', ['compute', 'communication', 'packing', 'copy', 'memset', 'graph']),
        ('kernels', ['compute', 'communication', 'packing', 'graph']),
        ('memory', ['copy', 'memset'])) AS s (name, classes)),
ordered AS (
    SELECT o.rank, s.name, o.start_ns, o.end_ns,
        max(o.end_ns) OVER (PARTITION BY o.rank, s.name ORDER BY o.start_ns, o.end_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS until_ns
    FROM op AS o JOIN class_set AS s ON list_contains(s.classes, o.time_class)),
united AS (
    SELECT rank, name, sum(greatest(0, end_ns - greatest(start_ns, coalesce(until_ns, start_ns)))) AS ns,
        max(end_ns) - min(start_ns) AS span_ns FROM ordered GROUP BY ALL)
SELECT r.device, b.step_ns AS span_all_ms, b.busy_ns AS busy_all_ms, b.idle_ns AS idle_all_ms,
    b.noncomm_ns AS compute_union_ms, b.comm_ns AS nccl_union_ms, k.ns AS busy_kernels_ms,
    k.ns - b.noncomm_ns AS nccl_exposed_ms, k.span_ns AS span_kernels_ms,
    coalesce(m.ns, 0) AS mem_union_ms, b.busy_ns - k.ns AS mem_exposed_ms
FROM step_budget AS b JOIN rank AS r USING (rank)
JOIN united AS k ON k.rank = b.rank AND k.name = 'kernels'
LEFT JOIN united AS m ON m.rank = b.rank AND m.name = 'memory'
WHERE b.projection = 'capture'
"""


@pytest.mark.skipif(not PUBLIC, reason=NO_SHARED)
@pytest.mark.parametrize(
    "database", [f"data/public/{name}" for name in sorted(PUBLIC)], indirect=True
)
def test_public_capture(
    database: duckdb.DuckDBPyConnection, request: pytest.FixtureRequest
) -> None:
    """Unions of other people's captures, to the published 100 ns, per device."""
    name = Path(request.node.callspec.params["database"]).name
    found = database.execute(_PUBLIC)
    names = [column[0] for column in found.description]
    rows = {str(row[0]): dict(zip(names, row, strict=True)) for row in found.fetchall()}
    assert sorted(rows) == sorted(PUBLIC[name])
    for device, expected in PUBLIC[name].items():
        for measure, value in rows[device].items():
            if measure != "device":
                assert value / 1e6 == pytest.approx(expected[measure], abs=0.000051), measure
        counts = dict(
            database.execute(
                "SELECT CASE WHEN o.time_class IN ('copy', 'memset') THEN o.time_class "
                "WHEN o.time_class = 'communication' THEN 'nccl' ELSE 'compute' END, count(*) "
                "FROM op AS o JOIN rank AS r USING (rank) WHERE r.device = ? GROUP BY ALL",
                [int(device)],
            ).fetchall()
        )
        assert counts.get("compute", 0) == expected["n_compute"]
        assert counts.get("nccl", 0) == expected["n_nccl"]
        assert counts.get("copy", 0) == expected["n_memcpy"]
        assert counts.get("memset", 0) == expected["n_memset"]
    assert_sound(database)
