"""The reader of the tracer's streams, on small streams that the tests write themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gapscope.errors import GapscopeError
from gapscope.ingest import pipeline
from gapscope.ingest.base import SourceInfo
from gapscope.ingest.discover import Found, discover
from gapscope.ingest.notes import copies
from gapscope.ingest.stage import Staged
from gapscope.ingest.tracer import TracerReader
from gapscope.ingest.writer import StagingSink

CANARY = "canary-do-not-leak-7f3a"
I64, U64, U32, I32, U16, U8 = (
    pa.int64(),
    pa.uint64(),
    pa.uint32(),
    pa.int32(),
    pa.uint16(),
    pa.uint8(),
)
NONE32 = 0xFFFFFFFF

PLACE = {"correlation": U32, "context": U32, "stream": U32}
TIMES = {"start_ns": I64, "end_ns": I64}
# As tables.cc has them; tests/tracer holds the library to it.
SCHEMAS: dict[str, dict[str, pa.DataType]] = {
    "name": {"id": U32, "text": pa.string()},
    "call": {"id": U16, "domain": U8, "name": U32, "return_code": U32},
    "thread": {"id": U16, "tid": U32},
    "context": {"context": U32, "device": U32, "null_stream": U32},
    "device": {"device": U32, "name": U32, "uuid": U32},
    "stream": {"context": U32, "stream": U32, "priority": I32, "flag": U32},
    "clock": {"monotonic_ns": I64, "realtime_ns": I64, "uncertainty_ns": I64},
    "api": {**TIMES, "correlation": U32, "thread": U16, "call": U16},
    "kernel": {
        **TIMES,
        "name": U32,
        **PLACE,
        "graph_node": U64,
        "graph": U32,
        "grid_x": U32,
        "grid_y": U16,
        "grid_z": U16,
        "block_x": U16,
        "block_y": U16,
        "block_z": U16,
        "channel": U16,
        "device": U8,
    },
    "memcpy": {
        **TIMES,
        "bytes": U64,
        **PLACE,
        "graph_node": U64,
        "graph": U32,
        "device": U8,
        "copy_kind": U8,
        "src_kind": U8,
        "dst_kind": U8,
    },
    "event": {**PLACE, "event": U32, "sync_id": U64, "device_ns": I64},
    "sync": {**TIMES, "type": U8, **PLACE, "event": U32, "sync_id": U64},
    "range": {
        **TIMES,
        "name": U32,
        "domain": U32,
        "thread": U16,
        "kind": U8,
        "op_id": I64,
        "sequence": I64,
    },
    "overhead": {**TIMES, "kind": U32, "correlation": U32, "thread": U16},
}

Rows = dict[str, list[dict[str, Any]]]

META: dict[str, Any] = {
    "format": "gapscope-trace/1",
    "tracer_version": "0.1.0",
    "state": "finished",
    "pid": 77,
    "hostname": "node1",
    "rank": 3,
    "rank_variable": "SLURM_PROCID",
    "world_size": 8,
    "driver_version": 13000,
    "mps_enabled": True,
    "clock_start": {"monotonic_ns": 1_000, "realtime_ns": 5_000_001_000},
    "environment": {
        "CUDA_DEVICE_MAX_CONNECTIONS": "8",
        "SECRET": CANARY,
        "NCCL_ALGO": "/" + CANARY,
    },
    "loss": {"rows_unwritten": 0},
    "cost": {"rows": 10, "writer_cpu_ns": 12},
}

ROWS: Rows = {
    "name": [
        {"id": 1, "text": "gemm"},
        {"id": 2, "text": "cudaLaunchKernel_v7000"},
        {"id": 3, "text": "step 0"},
        {"id": 4, "text": "NVIDIA H200"},
        {"id": 5, "text": "00-11"},
        {"id": 6, "text": "NCCL"},
    ],
    "call": [
        {"id": 0, "domain": 0, "name": 2, "return_code": 0},
        {"id": 1, "domain": 0, "name": 2, "return_code": 719},
    ],
    "thread": [{"id": 0, "tid": 501}],
    "context": [{"context": 1, "device": 0, "null_stream": 7}],
    "device": [
        {"device": 0, "name": 4, "uuid": 5},
        {"device": 1, "name": 4, "uuid": 5},
    ],
    "stream": [{"context": 1, "stream": 13, "priority": -5, "flag": 0}],
    "clock": [{"monotonic_ns": 9_000, "realtime_ns": 5_000_009_001, "uncertainty_ns": 60}],
    "api": [
        {"start_ns": 10, "end_ns": 15, "correlation": 1, "thread": 0, "call": 0},
        {"start_ns": 20, "end_ns": 25, "correlation": 2, "thread": 0xFFFF, "call": 1},
    ],
    "kernel": [
        {
            "start_ns": 16,
            "end_ns": 30,
            "name": 1,
            "correlation": 1,
            "context": 1,
            "stream": 7,
            "grid_x": 70000,
            "device": 0,
        }
    ],
    "memcpy": [
        {
            "start_ns": 31,
            "end_ns": 40,
            "bytes": 4096,
            "correlation": 2,
            "context": 1,
            "stream": 13,
            "device": 0,
            "graph": 4,
            "graph_node": 9,
            "copy_kind": 1,
            "src_kind": 2,
            "dst_kind": 3,
        }
    ],
    "event": [
        {"correlation": 5, "context": 1, "stream": 7, "event": 42, "sync_id": 1001},
        {"correlation": 9, "context": 9, "stream": 7, "event": 43, "sync_id": 0, "device_ns": 8},
    ],
    "sync": [
        {"type": 2, "correlation": 6, "context": 1, "stream": 13, "event": 42, "sync_id": 1001},
        {"type": 2, "correlation": 7, "context": 1, "stream": 13, "event": NONE32},
        {"type": 4, "correlation": 8, "context": 1, "stream": NONE32, "event": NONE32},
    ],
    "range": [
        {"start_ns": 5, "end_ns": 45, "name": 3, "op_id": -1, "sequence": -1},
        {"start_ns": 6, "end_ns": -1, "name": 3, "domain": 6, "op_id": 34, "sequence": 12},
        {"start_ns": 7, "end_ns": 7, "name": 3, "kind": 2, "op_id": -1, "sequence": -1},
    ],
    "overhead": [
        {"start_ns": 0, "end_ns": 4000, "kind": 1 << 16, "thread": 0},
        {"start_ns": 0, "end_ns": 9, "kind": 6 << 16, "thread": 0},
    ],
}


def write_stream(file: Path, name: str, rows: list[dict[str, Any]], batches: int = 1) -> None:
    schema = pa.schema(list(SCHEMAS[name].items()))
    filled = [{column: row.get(column, 0) for column in SCHEMAS[name]} for row in rows]
    with pa.OSFile(str(file), "wb") as raw:
        sink = pa.CompressedOutputStream(raw, "lz4") if file.suffix == ".lz4" else raw
        with pa.ipc.new_stream(sink, schema) as stream:
            for _ in range(batches):
                stream.write_batch(pa.RecordBatch.from_pylist(filled, schema=schema))
        if sink is not raw:
            sink.close()


def write_trace(directory: Path, rows: Rows = ROWS, suffix: str = ".arrows", **meta: Any) -> Path:
    directory.mkdir(parents=True)
    (directory / "meta.json").write_text(json.dumps({**META, **meta}))
    for name, table in rows.items():
        write_stream(directory / f"{name}{suffix}", name, table)
    return directory


class Read:
    """The canonical rows of a trace."""

    def __init__(self, trace: Path, directory: Path) -> None:
        sink = StagingSink(directory)
        self.info = TracerReader().read(trace, sink)
        sink.close()
        self._directory = directory
        self.names = {row["name_id"]: row["name"] for row in self.rows("name")}
        self.quality = {row["check_name"]: row for row in self.rows("source_quality")}

    def rows(self, table: str) -> list[dict[str, Any]]:
        file = self._directory / f"{table}.parquet"
        return pq.read_table(file).to_pylist() if file.exists() else []


@pytest.fixture
def read(tmp_path: Path) -> Read:
    return Read(write_trace(tmp_path / "rank-3-77"), tmp_path / "staged")


def test_probe(tmp_path: Path):
    trace = write_trace(tmp_path / "trace")
    assert TracerReader.probe(trace)
    assert not TracerReader.probe(tmp_path)
    assert not TracerReader.probe(trace / "meta.json")


def test_device_ops(read: Read):
    kernel, copy = read.rows("gpu_op")
    assert read.names[kernel["name_id"]] == "gemm"
    assert (kernel["kind"], kernel["process_id"], kernel["device"], kernel["stream"]) == (
        *("kernel", 77, 0, 7),
    )
    assert (kernel["start_ns"], kernel["end_ns"], kernel["correlation_id"]) == (16, 30, 1)
    assert (kernel["grid_x"], kernel["graph_id"], kernel["graph_node_id"]) == (70000, None, None)
    assert read.names[copy["name_id"]] == "Memcpy HtoD (Pinned -> Device)"
    assert (copy["bytes"], copy["copy_kind"], copy["src_memory"], copy["dst_memory"]) == (
        *(4096, "HtoD", "pinned", "device"),
    )
    assert (copy["graph_id"], copy["graph_node_id"]) == (4, 9)


def test_calls(read: Read):
    first, second = read.rows("api_call")
    assert (first["domain"], first["tid"], first["return_code"]) == ("runtime", 501, 0)
    assert read.names[first["name_id"]] == "cudaLaunchKernel"
    # A thread that could not be numbered is unknown, the call is not.
    assert (second["tid"], second["return_code"]) == (None, 719)


def test_events_and_waits(read: Read):
    record, other = read.rows("event_record")
    assert (record["event_sync_id"], record["device"], record["record_ns"]) == (1001, 0, None)
    assert (other["event_sync_id"], other["device"], other["record_ns"]) == (None, None, 8)
    (wait,) = read.rows("stream_wait")
    assert (wait["event_sync_id"], wait["stream"], wait["correlation_id"]) == (1001, 13, 6)
    # A stream wait that names no event is the host's.
    assert [(row["kind"], row["stream"]) for row in read.rows("host_sync")] == [
        ("stream", 13),
        ("context", None),
    ]
    assert read.quality["event_edges"]["status"] == "ok"


def test_ranges(read: Read):
    step, still_open, mark = read.rows("range")
    assert (step["kind"], step["domain"], step["external_id"]) == ("push_pop", "default", None)
    assert (still_open["domain"], still_open["end_ns"]) == ("NCCL", None)
    assert (still_open["external_id"], still_open["sequence_number"]) == (34, 12)
    assert (mark["kind"], mark["start_ns"], mark["end_ns"]) == ("mark", 7, 7)


def test_process_clock_and_devices(read: Read):
    (process,) = read.info.processes
    assert (process.rank, process.rank_source, process.world_size) == (3, "SLURM_PROCID", 8)
    assert (process.hostname, process.cuda_driver) == ("node1", "13000")
    assert process.clock_base_ns == 5_000_000_000
    assert [row["value_ns"] for row in read.rows("clock_anchor")] == [5_000_001_000, 5_000_009_001]
    (device,) = read.info.devices
    assert (device.uuid, device.name) == ("GPU-00-11", "NVIDIA H200")
    (stream,) = read.rows("stream")
    assert (stream["priority"], stream["device"], stream["is_default"]) == (-5, 0, 0)


def test_overhead_is_the_tracers_or_cudas(read: Read):
    assert [read.names[row["name_id"]] for row in read.rows("overhead")] == [
        "Activity buffer flush",
        "Command buffer full (CUDA)",
    ]
    assert read.quality["tool_overhead"]["detail"].startswith("0.004 ms of CUPTI")


def test_only_allow_listed_plain_settings_enter(read: Read, tmp_path: Path):
    assert read.rows("environment") == [{"name": "CUDA_DEVICE_MAX_CONNECTIONS", "value": "8"}]
    assert "NCCL_ALGO" in read.quality["environment"]["detail"]
    for file in (tmp_path / "staged").iterdir():
        assert CANARY not in str(pq.read_table(file).to_pylist())


def test_lz4(tmp_path: Path):
    trace = write_trace(tmp_path / "trace", suffix=".arrows.lz4")
    assert len(Read(trace, tmp_path / "staged").rows("gpu_op")) == 2


@pytest.mark.parametrize("suffix", [".arrows", ".arrows.lz4"])
def test_torn_stream_keeps_whole_batches(tmp_path: Path, suffix: str):
    trace = write_trace(tmp_path / "trace", suffix=suffix, state="tracing")
    file = trace / f"kernel{suffix}"
    write_stream(file, "kernel", ROWS["kernel"] * 500, batches=3)
    if suffix == ".arrows":
        file.write_bytes(file.read_bytes()[:-3000])
    else:
        # The tracer makes a frame of each message; pyarrow one of all, so cut where it was one.
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) * 9 // 10])
    read = Read(trace, tmp_path / "staged")
    kernels = [row for row in read.rows("gpu_op") if row["kind"] == "kernel"]
    assert len(kernels) % 500 == 0
    assert len(kernels) < 1500
    if suffix == ".arrows":
        assert len(kernels) == 1000
        assert "kernel after 1000 rows" in read.quality["truncated"]["detail"]
    assert read.quality["truncated"]["status"] == "warn"
    assert read.quality["tracer_state"]["status"] == "warn"


@pytest.mark.parametrize("cut", [0, 10, 200])
def test_stream_without_a_whole_schema(tmp_path: Path, cut: int):
    trace = write_trace(tmp_path / "trace")
    file = trace / "range.arrows"
    file.write_bytes(file.read_bytes()[:cut])
    read = Read(trace, tmp_path / "staged")
    assert read.rows("range") == []
    assert "range after 0 rows" in read.quality["truncated"]["detail"]


def test_losses_are_told(tmp_path: Path):
    loss = {"records_dropped": 5, "rows_unwritten": 7}
    read = Read(write_trace(tmp_path / "trace", loss=loss), tmp_path / "staged")
    assert read.quality["dropped_events"]["status"] == "warn"
    assert "5 records dropped" in read.quality["dropped_events"]["detail"]
    assert "7 rows" in read.quality["dropped_events"]["detail"]


def test_missing_descriptions(tmp_path: Path):
    rows = {name: table for name, table in ROWS.items() if name not in ("name", "call", "thread")}
    read = Read(write_trace(tmp_path / "trace", rows), tmp_path / "staged")
    assert {read.names[row["name_id"]] for row in read.rows("gpu_op")} == {
        "[unknown kernel]",
        "Memcpy HtoD (Pinned -> Device)",
    }
    assert all(row["name_id"] is None for row in read.rows("api_call"))
    assert read.quality["missing_name"]["status"] == "warn"


def test_standing_back(tmp_path: Path):
    held = {"state": "standing back", "reason": "CUPTI is held by CUPTI for Kineto"}
    with pytest.raises(GapscopeError, match="held by CUPTI for Kineto"):
        Read(write_trace(tmp_path / "empty", {}, **held), tmp_path / "staged")
    ranges = {name: ROWS[name] for name in ("name", "thread", "range")}
    read = Read(write_trace(tmp_path / "host", ranges, **held), tmp_path / "staged2")
    assert read.quality["tracer_state"]["status"] == "fail"
    assert len(read.rows("range")) == 3


def test_unusable_metadata(tmp_path: Path):
    newer = write_trace(tmp_path / "newer", format="gapscope-trace/2")
    with pytest.raises(GapscopeError, match="trace-version"):
        Read(newer, tmp_path / "staged")
    torn = write_trace(tmp_path / "torn")
    text = (torn / "meta.json").read_text()
    (torn / "meta.json").write_text(text[: len(text) // 2])
    with pytest.raises(GapscopeError, match="corrupt-trace"):
        Read(torn, tmp_path / "staged")


def test_helpers_without_a_device_are_left_out(tmp_path: Path):
    write_trace(tmp_path / "t" / "rank-3-77")
    helper = {name: ROWS[name] for name in ("name", "call", "api")}
    write_trace(tmp_path / "t" / "rank-3-78", helper, pid=78)
    found, ignored = discover([tmp_path / "t"])
    assert [one.label for one in found] == ["rank-3-77"]
    assert ignored == [("rank-3-78", "the process used no device")]


def test_the_directory_of_one_process_may_be_named(tmp_path: Path):
    (found,), ignored = discover([write_trace(tmp_path / "t" / "rank-3-77")])
    assert (found.label, found.format, ignored) == ("rank-3-77", "gapscope", [])


def test_traced_processes_that_recorded_nothing_are_no_files(tmp_path: Path):
    helper = {name: ROWS[name] for name in ("name", "call", "api")}
    never = "its window never opened: no NVTX range named like `step 14` began"
    write_trace(tmp_path / "t" / "rank-3-77")
    write_trace(tmp_path / "t" / "rank-3-78", helper, reason=never)
    write_trace(tmp_path / "t" / "process-79", helper)
    (tmp_path / "t" / "notes.txt").write_text("of the run")
    pipeline.ingest([tmp_path / "t"], tmp_path / "run", workers=1)
    with duckdb.connect(str(tmp_path / "run" / "run.duckdb"), read_only=True) as con:
        notes = dict(con.execute("SELECT check_name, detail FROM v1.ingest_note").fetchall())
    assert notes == {
        "ignored_files": "1 file is no capture: notes.txt",
        "idle_processes": "2 traced processes recorded nothing, as launchers and helpers do: "
        f"process-79 (the process used no device); rank-3-78 ({never})",
    }


def test_ingest(tmp_path: Path):
    for rank in (0, 1):
        write_trace(tmp_path / "t" / f"rank-{rank}-7{rank}", rank=rank, pid=70 + rank)
    pipeline.ingest([tmp_path / "t"], tmp_path / "run", workers=1)
    with duckdb.connect(str(tmp_path / "run" / "run.duckdb"), read_only=True) as con:
        formats = con.execute("SELECT rank, source_format FROM rank ORDER BY rank").fetchall()
        launched = con.execute(
            "SELECT count(*) FROM gpu_op JOIN api_call USING (rank, correlation_id)"
        ).fetchone()
    assert formats == [(0, "gapscope"), (1, "gapscope")]
    assert launched == (4,)


def test_sizes_that_no_message_has_are_unknown(tmp_path: Path) -> None:
    """Products and sums of them would overflow in views that nobody asked about them."""
    sink = StagingSink(tmp_path)
    sink.write("collective", {"elements_in": [1 << 40, 1 << 62], "elements_out": [-(1 << 62), 7]})
    sink.write("gpu_op", {"bytes": [(1 << 63) - 1, 4]})
    sink.close()
    rows = pq.read_table(tmp_path / "collective.parquet").to_pylist()
    assert [row["elements_in"] for row in rows] == [1 << 40, None]
    assert [row["elements_out"] for row in rows] == [None, 7]
    assert pq.read_table(tmp_path / "gpu_op.parquet")["bytes"].to_pylist() == [None, 4]
    (said,) = pq.read_table(tmp_path / "source_quality.parquet").to_pylist()
    assert said["check_name"] == "values_out_of_range"
    assert "1 in gpu_op.bytes" in said["detail"]


def test_captures_of_one_name_that_are_one_file_are_said(tmp_path: Path) -> None:
    found = Found(tmp_path, "gapscope", "rank.trace")
    one = Staged(found, tmp_path, SourceInfo("gapscope", [], []), [], {}, 5, "same")
    (note,) = copies([one, one])
    assert note[2].endswith("stands for 2 ranks")


def test_a_stream_of_other_columns_loses_no_other_stream(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t")
    schema = pa.schema({"start_ns": I64, "surprise": U8})
    with pa.OSFile(str(trace / "sync.arrows"), "wb") as raw, pa.ipc.new_stream(raw, schema) as one:
        one.write_batch(pa.RecordBatch.from_pylist([{"start_ns": 1, "surprise": 2}], schema=schema))
    sink = StagingSink(tmp_path / "out")
    TracerReader().read(trace, sink)
    sink.close()
    assert sink.rows["gpu_op"] == 2
    said = pq.read_table(tmp_path / "out" / "source_quality.parquet").to_pylist()
    (broken,) = [row["detail"] for row in said if row["check_name"] == "truncated"]
    assert "sync after 0 rows" in broken


@pytest.mark.parametrize(
    ("table", "column"), [("call", "domain"), ("clock", "realtime_ns"), ("kernel", "start_ns")]
)
def test_a_value_that_is_missing_ends_its_stream_alone(
    tmp_path: Path, table: str, column: str
) -> None:
    rows = {**ROWS, table: [ROWS[table][0], {**ROWS[table][-1], column: None}]}
    trace = write_trace(tmp_path / "t", rows)
    sink = StagingSink(tmp_path / "out")
    TracerReader().read(trace, sink)
    sink.close()
    assert sink.rows["range"] == 3
    said = pq.read_table(tmp_path / "out" / "source_quality.parquet").to_pylist()
    assert [row["check_name"] for row in said].count("truncated") == 1


def test_a_number_beyond_its_column_is_unknown(tmp_path: Path) -> None:
    context = {**ROWS["context"][0], "device": 2**32 - 1}
    trace = write_trace(tmp_path / "t", {**ROWS, "context": [context]})
    sink = StagingSink(tmp_path / "out")
    TracerReader().read(trace, sink)
    sink.close()
    assert not any(pq.read_table(tmp_path / "out" / "event_record.parquet")["device"].to_pylist())
    said = pq.read_table(tmp_path / "out" / "source_quality.parquet").to_pylist()
    assert "values_out_of_range" in [row["check_name"] for row in said]


@pytest.mark.parametrize("boots", [("one", "one"), ("one", "another")], ids=["same", "two"])
def test_exchanges_of_two_jobs_relate_no_ranks(tmp_path: Path, boots: tuple[str, str]) -> None:
    """Each job has a rank 0, whose clock is its own: two of them are no one clock."""
    for rank, boot in enumerate(boots):
        trace = write_trace(tmp_path / "in" / f"job{rank}", rank=rank, hostname=f"node-{boot}")
        clock = {"rank": 0, "boot": boot, "reference_boot": boot, "samples": []}
        record = {"format": "gapscope-instrument/1", "clock": clock}
        (trace / "instrument.json").write_text(json.dumps(record))
    made = pipeline.ingest([tmp_path / "in"], tmp_path / "run", workers=1)
    with duckdb.connect(str(made.out / "run.duckdb"), read_only=True) as con:
        methods = con.execute("SELECT DISTINCT method FROM v1.rank_clock").fetchall()
    is_one = boots[0] == boots[1]
    assert methods == [("clock exchange" if is_one else "capture clock",)]
    assert ("several_exchanges" in {row["check_name"] for row in made.quality}) != is_one
