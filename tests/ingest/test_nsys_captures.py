"""The Nsight Systems reader on real captures, where the shared data lies beside the repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from gapscope.ingest.base import ENVIRONMENT_ALLOW_LIST
from gapscope.ingest.nsys import NsysReader
from gapscope.ingest.writer import StagingSink

SHARED = Path(__file__).resolve().parents[3] / "shared"
H200 = sorted(SHARED.glob("data/h200/nsys/*.sqlite.gz"))
PUBLIC = sorted(SHARED.glob("data/public/*.sqlite"))
CANARY = b"canary-do-not-leak-7f3a"

pytestmark = pytest.mark.skipif(not H200, reason="no shared/ folder beside the repository")


def read(path: Path, directory: Path) -> Any:
    sink = StagingSink(directory)
    info = NsysReader().read(path, sink)
    sink.close()
    return info


def table(directory: Path, name: str) -> Any:
    return pq.read_table(directory / f"{name}.parquet")


def expected(name: str) -> dict[str, Any]:
    entries: dict[str, Any] = json.loads((SHARED / "expected" / name).read_text())
    return entries


@pytest.mark.parametrize("path", [*H200, *PUBLIC], ids=lambda path: path.name)
def test_no_secret_is_written(path: Path, tmp_path: Path) -> None:
    assert NsysReader.probe(path)
    info = read(path, tmp_path)
    assert CANARY.decode() not in repr(info)
    for file in tmp_path.iterdir():
        assert CANARY not in file.read_bytes()
        # Compressed pages hide text: look at every string as well.
        for column in pq.read_table(file).columns:
            for value in column.unique().to_pylist():
                text = str(value)
                assert CANARY.decode() not in text
                assert "/home/" not in text
                assert "/tmp/" not in text
    if (tmp_path / "environment.parquet").exists():
        names = table(tmp_path, "environment")["name"].to_pylist()
        assert set(names) <= ENVIRONMENT_ALLOW_LIST


@pytest.mark.parametrize("path", H200, ids=lambda path: path.name)
def test_counts_of_own_captures(path: Path, tmp_path: Path) -> None:
    entry = expected("h200_budget.json").get(f"data/h200/nsys/{path.name}")
    if entry is None:
        pytest.skip("no expected numbers for this capture")
    info = read(path, tmp_path)
    ops = table(tmp_path, "gpu_op")
    assert ops.num_rows == entry["device_ops"]
    waits = table(tmp_path, "stream_wait")
    records = table(tmp_path, "event_record")
    resolved = pc.is_in(waits["event_sync_id"], value_set=records["event_sync_id"].combine_chunks())
    assert pc.sum(resolved).as_py() == entry["stream_waits_with_record"]
    capture = next(row for row in entry["budget"] if row["projection"] == "capture")
    assert pc.min(ops["start_ns"]).as_py() == capture["start_ns"]
    assert pc.max(ops["end_ns"]).as_py() == capture["end_ns"]
    (process,) = info.processes
    assert process.rank == int(path.name.removesuffix(".sqlite.gz")[-1])
    assert (process.rank_source, process.world_size) == ("RANK", 2)
    device = pc.unique(ops["device"]).to_pylist()
    uuids = [entry.uuid for entry in info.devices if entry.device in device]
    assert len(uuids) == 1
    assert uuids[0]


@pytest.mark.parametrize("path", H200, ids=lambda path: path.name)
def test_every_device_op_joins_its_call(path: Path, tmp_path: Path) -> None:
    read(path, tmp_path)
    keys = ["process_id", "correlation_id"]
    ops = table(tmp_path, "gpu_op").select([*keys, "start_ns"])
    calls = table(tmp_path, "api_call").select(keys)
    assert ops.join(calls, keys, join_type="left anti").num_rows == 0


@pytest.mark.parametrize("path", PUBLIC, ids=lambda path: path.name)
def test_counts_of_public_captures(path: Path, tmp_path: Path) -> None:
    entry = expected("public_capture.json")["files"].get(path.name)
    if entry is None:
        pytest.skip("no expected numbers for this capture")
    info = read(path, tmp_path)
    ops = table(tmp_path, "gpu_op").to_pylist()
    for device, numbers in entry.items():
        mine = [op for op in ops if op["device"] == int(device)]
        kinds = [op["kind"] for op in mine]
        assert kinds.count("kernel") == numbers["n_compute"] + numbers["n_nccl"]
        assert kinds.count("memcpy") == numbers["n_memcpy"]
        assert kinds.count("memset") == numbers["n_memset"]
        span = max(op["end_ns"] for op in mine) - min(op["start_ns"] for op in mine)
        assert round(span / 1e6, 4) == numbers["span_all_ms"]
    assert [process.rank for process in info.processes] == [None] * len(info.processes)


def quality(directory: Path) -> dict[str, tuple[str, str]]:
    rows = table(directory, "source_quality").to_pylist()
    return {row["check_name"]: (row["status"], row["detail"]) for row in rows}


def test_odd_public_captures(tmp_path: Path) -> None:
    if not PUBLIC:
        pytest.skip("no public captures")
    folder = PUBLIC[0].parent
    two = read(folder / "h100_2gpu_1s.sqlite", tmp_path / "two")
    assert len(two.processes) == 2
    status, detail = quality(tmp_path / "two")["event_edges"]
    assert (status, detail.split(":")[0]) == ("warn", "236 stream waits, 0 records")
    read(folder / "mock.sqlite", tmp_path / "mock")
    # Its one 'stream wait' is a cudaStreamSynchronize.
    assert not (tmp_path / "mock" / "stream_wait.parquet").exists()
    assert table(tmp_path / "mock", "host_sync")["kind"].to_pylist() == ["stream"]


def test_graph_and_metric_captures(tmp_path: Path) -> None:
    folder = H200[0].parent
    read(folder / "cg_graph.sqlite.gz", tmp_path / "graph")
    kinds = table(tmp_path / "graph", "gpu_op")["kind"].to_pylist()
    assert kinds.count("graph") == 10
    assert "--cuda-graph-trace=node" in quality(tmp_path / "graph")["graph_opaque"][1]
    read(folder / "metrics.sqlite.gz", tmp_path / "metrics")
    samples = table(tmp_path / "metrics", "metric_sample")
    assert samples.num_rows == 16_104
    assert len(pc.unique(samples["name_id"])) == 22
    assert pc.unique(samples["device"]).to_pylist() == [0]
