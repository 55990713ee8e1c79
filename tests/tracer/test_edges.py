"""From the tracer's streams to event edges, on libcuptis with and without event sync ids."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from gapscope.ingest import pipeline
from tests.tracer.conftest import Play

# Lengths of (producer, consumer) kernels: the scenario gives each kernel one of its own.
EDGES = [(101, 201), (103, 202), (103, 203), (104, 204), (None, 205)]


@pytest.mark.parametrize("version", ["12.1", "12.4", "12.6", "12.8", "13.0"])
def test_waits_lead_to_the_same_ops(play: Play, tmp_path: Path, version: str):
    """The event object is reused, and recorded in another thread: sync ids say what is right."""
    played = play("events", version=version)
    assert played.code == 0
    run = tmp_path / f"{version}.run"
    pipeline.ingest([played.directory], run, workers=1)
    with duckdb.connect(str(run / "run.duckdb"), read_only=True) as con:
        edges = con.sql(
            "SELECT p.dur_ns, c.dur_ns FROM v1.event_edge AS e"
            " JOIN v1.device_op AS c ON e.consumer_op_id = c.op_id"
            " LEFT JOIN v1.device_op AS p ON e.producer_op_id = p.op_id ORDER BY c.dur_ns"
        ).fetchall()
        by_event_id = con.sql(
            "SELECT is_by_event_id FROM v1.wait_record ORDER BY wait_id"
        ).fetchall()
        quality = con.sql(
            "SELECT status, detail FROM v1.capture_quality WHERE check_name = 'event_edges'"
        ).fetchall()
    assert edges == EDGES
    has_sync_ids = version in ("12.8", "13.0")
    assert [row[0] for row in by_event_id] == [not has_sync_ids] * 4 + [False]
    ((status, detail),) = quality
    assert status == "warn"
    assert ("latest record of its event id" in detail) is not has_sync_ids
