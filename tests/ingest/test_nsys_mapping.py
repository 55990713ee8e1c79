"""The Nsight Systems reader: what each table of an export becomes."""

from __future__ import annotations

from pathlib import Path

from .nsys_export import Read, Result, Rows, global_pid, write_sqlite


def test_device_ops(full: Result) -> None:
    rows = full.rows("gpu_op")
    assert [row["kind"] for row in rows] == [
        "kernel",
        "kernel",
        "memcpy",
        "memset",
        "graph",
    ]
    assert full.names("gpu_op") == [
        "void gemm<float>(float*)",
        "[unknown kernel]",
        "Memcpy HtoD (Pinned -> Device)",
        "Memset (Device)",
        "CUDA graph 4",
    ]
    assert rows[1]["graph_node_id"] == (3 << 32) | 5
    copy = rows[2]
    assert (
        copy["copy_kind"],
        copy["src_memory"],
        copy["dst_memory"],
        copy["bytes"],
    ) == (
        "HtoD",
        "pinned",
        "device",
        4096,
    )
    assert copy["stream"] is None
    assert rows[4]["graph_id"] == 4
    assert {row["process_id"] for row in rows} == {global_pid(7)}
    assert [row["op_id"] for row in rows] == [0, 1, 2, 3, 4]


def test_api_calls(full: Result) -> None:
    rows = full.rows("api_call")
    assert full.names("api_call") == ["cudaLaunchKernel", "cuLaunchKernelEx"]
    assert [row["domain"] for row in rows] == ["runtime", "driver"]
    assert {(row["process_id"], row["tid"]) for row in rows} == {(global_pid(7), 9)}


def test_synchronization(full: Result) -> None:
    assert full.column("stream_wait", "event_sync_id") == [1]
    assert full.column("event_record", "record_ns") == [None, 777]
    syncs = full.rows("host_sync")
    assert [row["kind"] for row in syncs] == ["event", "stream", "context", "stream"]
    assert [row["stream"] for row in syncs] == [None, 17, None, 17]
    assert [row["event_sync_id"] for row in syncs] == [None] * 4


def test_ranges(full: Result) -> None:
    rows = full.rows("range")
    assert full.names("range") == ["step 0", "ncclAllReduce", "mark", "still open"]
    assert [row["kind"] for row in rows] == [
        "push_pop",
        "start_end",
        "mark",
        "push_pop",
    ]
    assert [row["domain"] for row in rows] == ["default", "NCCL", "domain 6", "default"]
    assert [row["end_ns"] for row in rows] == [90, 30, 40, None]


def test_what_emit_nvtx_appends_leaves_the_name(tmp_path: Path, read: Read) -> None:
    texts: dict[str, tuple[str, int | None, int | None]] = {
        "aten::mm, seq = 16, op_id = 23": ("aten::mm", 16, 23),
        "aten::mm, seq = 17, op_id = 24": ("aten::mm", 17, 24),
        "aten::add, op_id = 5, sizes = [[2]]": ("aten::add, op_id = 5, sizes = [[2]]", None, None),
        "line\nbreak, op_id = 6": ("line\nbreak", None, 6),
        "op_id = 7": ("op_id = 7", None, None),
        "a, op_id = x": ("a, op_id = x", None, None),
        f"a, op_id = {'9' * 30}": (f"a, op_id = {'9' * 30}", None, None),
    }
    nvtx = {"end": 2, "eventType": 59, "globalTid": 1, "domainId": 0}
    tables: Rows = {"NVTX_EVENTS": [{"start": 1, **nvtx, "text": text} for text in texts]}
    result = read(write_sqlite(tmp_path / "ops.sqlite", tables))
    found = zip(
        result.names("range"),
        result.column("range", "sequence_number"),
        result.column("range", "external_id"),
        strict=True,
    )
    assert list(found) == list(texts.values())


def test_collectives_that_the_instrument_said(tmp_path: Path, read: Read) -> None:
    said = 'collective {"type": "all_gather", "group": "0", "size": 2, "ranks": "[0, 1]", "in": 4}'
    place = {"start": 10, "end": 20, "eventType": 60, "globalTid": global_pid(7) | 5, "domainId": 3}
    place |= {"text": None, "textId": None, "int64Value": None}
    tables: Rows = {
        "StringIds": [{"id": 1, "value": said}],
        "NVTX_EVENTS": [
            {**place, "end": None, "eventType": 75, "text": "gapscope"},
            {**place, "textId": 1, "int64Value": 41},
            # Whoever else says so is not the instrument.
            {**place, "domainId": 0, "textId": 1, "int64Value": 42},
            {**place, "text": "step 0"},
        ],
    }
    result = read(write_sqlite(tmp_path / "said.sqlite", tables))
    names = ("tid", "start_ns", "end_ns", "seq", "type", "group_name", "group_ranks", "elements_in")
    assert [result.column("collective", name) for name in names] == [
        *([5], [10], [20], [41], ["all_gather"], ["0"], ["[0, 1]"], [4]),
    ]


def test_small_tables(full: Result) -> None:
    assert full.names("overhead") == [
        "CUPTI Buffer flush",
        "Command buffer full (CUDA)",
    ]
    assert full.column("stream", "priority") == [0, -1]
    assert full.column("stream", "is_default") == [1, 0]
    assert full.rows("metric_sample")[0]["value"] == 55.0
    assert full.column("metric_sample", "device") == [0]
    assert full.names("metric_sample") == ["SM [%]"]
    anchors = {row["kind"]: row["value_ns"] for row in full.rows("clock_anchor")}
    assert anchors == {"unix": 10**18, "system_monotonic": 5_000}


def test_identity(full: Result) -> None:
    (process,) = full.info.processes
    assert (process.rank, process.rank_source, process.world_size) == (3, "RANK", 8)
    assert (process.hostname, process.cuda_driver) == ("node5", "13000")
    assert (process.tool_version, process.clock_base_ns) == ("2025.3.2.0", 10**18)
    (device,) = full.info.devices
    assert (device.device, device.name, device.uuid) == (0, "NVIDIA H200", "aaaa-bbbb")
    assert device.process_id == process.process_id == global_pid(7)


def test_quality(full: Result) -> None:
    quality = full.quality()
    assert {name: status for name, (status, _) in quality.items()} == {
        "environment": "info",
        "missing_name": "warn",
        "osrt_api": "info",
        "thread_scheduling": "info",
        "call_stack_link": "info",
        "event_edges": "ok",
        "sync_type": "info",
        "event_timestamps": "warn",
        "graph_opaque": "warn",
        "tool_overhead": "info",
        "cuda_overhead": "info",
        "diagnostics": "info",
        "dropped_events": "warn",
    }
    assert "--cuda-graph-trace=node" in quality["graph_opaque"][1]
    assert quality["tool_overhead"][1].startswith("0.003 ms of profiler overhead")
    assert quality["cuda_overhead"][1].startswith("0.004 ms inside CUDA")


def test_progress_ends_complete_and_never_runs_back(full: Result) -> None:
    done = [step for step, _ in full.progress]
    assert done == sorted(done)
    assert full.progress[-1][0] == full.progress[-1][1] > 0
