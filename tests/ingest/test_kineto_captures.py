"""The Kineto reader: real captures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gapscope.ingest.base import SourceInfo
from gapscope.ingest.kineto import KinetoReader
from gapscope.ingest.writer import StagingSink

from .kineto_trace import Rows

SHARED = Path(__file__).parents[2].parent / "shared"
H200 = sorted((SHARED / "data/h200/kineto").glob("*.json.gz"))
PUBLIC = sorted((SHARED / "data/public").glob("*.json.gz"))
no_captures = pytest.mark.skipif(
    not H200 or not PUBLIC, reason="the captures in ../shared are not here"
)


def union_ns(intervals: list[tuple[int, int]]) -> int:
    total, end = 0, -(2**63)
    for start, stop in sorted(intervals):
        if stop > max(start, end):
            total += stop - max(start, end)
            end = stop
    return total


def clip(rows: list[dict[str, Any]], start: int, end: int) -> list[tuple[int, int]]:
    return [(max(row["start_ns"], start), min(row["end_ns"], end)) for row in rows]


def read_capture(path: Path) -> tuple[Rows, SourceInfo]:
    rows = Rows()
    info = KinetoReader().read(path, rows)
    size = path.stat().st_size
    assert rows.done == (size, size)
    return rows, info


@no_captures
@pytest.mark.parametrize("path", H200, ids=lambda path: path.name)
def test_h200_captures_match_expected_unions(path: Path) -> None:
    expected = json.loads((SHARED / "expected/h200_budget.json").read_text())
    key = f"data/h200/kineto/{path.name}"
    if key not in expected:
        pytest.skip("../shared/expected has no figures for this capture")
    rows, info = read_capture(path)
    ops = rows["gpu_op"]
    assert len(ops) == expected[key]["device_ops"]
    resolved = sum(row["record_correlation_id"] is not None for row in rows["stream_wait"])
    assert resolved == expected[key]["stream_waits_with_record"]
    for op, name in zip(ops, rows.named("gpu_op"), strict=True):
        op["comm"] = "nccl" in name.lower()
    for step in expected[key]["budget"]:
        window = step["start_ns"], step["end_ns"]
        comm = [op for op in ops if op["comm"]]
        other = [op for op in ops if op["kind"] == "kernel" and not op["comm"]]
        assert union_ns(clip(ops, *window)) == step["busy_ns"]
        assert union_ns(clip(comm, *window)) == step["comm_ns"]
        assert union_ns(clip(other, *window)) == step["kernel_not_comm_ns"]
    comm_kernels = [op["op_id"] for op in ops if op["comm"]]
    assert [row["op_id"] for row in rows["collective"]] == comm_kernels
    assert all(row["tid"] is not None for row in rows["collective"])
    assert info.processes[0].rank_source == "distributedInfo"
    assert "unreadable_events" not in rows.checks()


@no_captures
@pytest.mark.parametrize("path", PUBLIC, ids=lambda path: path.name)
def test_public_captures_match_expected_unions(path: Path) -> None:
    expected = json.loads((SHARED / "expected/public_capture.json").read_text())["files"]
    rows, _ = read_capture(path)
    assert "unreadable_events" not in rows.checks()
    assert "json_repaired" not in rows.checks()
    ops = rows["gpu_op"]
    for op, name in zip(ops, rows.named("gpu_op"), strict=True):
        op["class"] = op["kind"] if op["kind"] != "kernel" else (
            "nccl" if "nccl" in name.lower() else "compute"
        )  # fmt: skip
    for device, figures in expected.get(path.name, {}).items():
        assert {op["device"] for op in ops} == {int(device)}
        by_class = {
            kind: [op for op in ops if op["class"] == kind]
            for kind in ("compute", "nccl", "memcpy", "memset")
        }
        for kind, members in by_class.items():
            assert len(members) == figures[f"n_{kind}"]
        assert len({op["stream"] for op in ops}) == figures["streams"]
        pairs = [(op["start_ns"], op["end_ns"]) for op in ops]
        assert union_ns(pairs) / 1e6 == pytest.approx(figures["busy_all_ms"], abs=6e-5)
        for key in ("compute", "nccl"):
            pairs = [(op["start_ns"], op["end_ns"]) for op in by_class[key]]
            assert union_ns(pairs) / 1e6 == pytest.approx(figures[f"{key}_union_ms"], abs=6e-5)


@no_captures
def test_hand_checkable_waits() -> None:
    """A100: the one wait waits for stream 20's record 1385; queries are event syncs as well."""
    path = SHARED / "data/public/hta_cuda_event_sync_multi_stream.json.gz"
    rows, _ = read_capture(path)
    (wait,) = rows["stream_wait"]
    assert (wait["stream"], wait["record_stream"], wait["record_correlation_id"]) == (24, 20, 1385)
    assert rows.checks()["event_edges"]["status"] == "ok"
    assert {row["correlation_id"] for row in rows["event_record"]} == {32, 62, 1385}


@no_captures
def test_small_chunks_and_staging_give_the_same_rows(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    path = SHARED / "data/h200/kineto/p_base_rank0.json.gz"
    rows, _ = read_capture(path)
    small = Rows()
    KinetoReader(chunk_bytes=40_000).read(path, small)
    for table in ("gpu_op", "stream_wait", "host_sync", "collective", "event_record"):
        assert small[table] == rows[table], table
    sink = StagingSink(tmp_path)
    KinetoReader().read(path, sink)
    sink.close()
    for table in ("gpu_op", "api_call", "range", "collective", "stream_wait"):
        stored = pq.read_table(tmp_path / f"{table}.parquet").to_pylist()
        assert len(stored) == len(rows[table])
        for row, expected in zip(stored, rows[table], strict=True):
            assert {key: row[key] for key in expected} == expected
