"""The Kineto reader: what each event becomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gapscope.ingest.kineto_fields import collective_type

from .kineto_trace import LAUNCH, event, kernel, read


def test_kernel(trace: Path) -> None:
    rows, info = read(
        trace,
        {
            "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}, {"id": 1, "name": "other"}],
            "baseTimeNanoseconds": 1790857026000000000,
            "cuda_driver_version": 13000,
            "cupti_version": 130001,
            "traceEvents": [
                LAUNCH,
                kernel(
                    "gemm", 10.5, 2.25, queued=0, grid=[2, 3, 4], block=[128, 1, 1],
                    **{"graph node id": 77},
                ),
            ],
            "traceName": "/home/someone/secret.json",
        },
    )  # fmt: skip
    (row,) = rows["gpu_op"]
    expected = {
        "op_id": 0, "kind": "kernel", "process_id": 42, "device": 0, "context": 1, "stream": 7,
        "start_ns": 10500, "end_ns": 12750, "correlation_id": 9, "grid_x": 2, "grid_y": 3,
        "grid_z": 4, "block_x": 128, "graph_node_id": 77, "graph_id": None, "queued_ns": None,
    }  # fmt: skip
    assert {key: row[key] for key in expected} == expected
    assert rows.named("gpu_op") == ["gemm"]
    (process,) = info.processes
    assert process.process_id == 42
    assert process.rank is None
    assert process.rank_source is None
    assert process.cuda_driver == "13000"
    assert process.tool_version == "CUPTI 130001"
    assert process.clock_base_ns == 1790857026000000000
    assert [(device.device, device.name) for device in info.devices] == [(0, "NVIDIA H200")]
    assert "secret" not in repr(rows.tables) + repr(rows.names) + repr(info)


def test_api_calls(trace: Path) -> None:
    rows, _ = read(
        trace,
        [
            LAUNCH,
            event("cuda_driver", "cuLaunchKernelEx_v12000", args={"correlation": 10}),
            event("cuda_runtime", "cudaMemcpy_v2", args={"correlation": 0}),
            event("cuda_runtime", "hipLaunchKernel", args={"correlation": 11, "kernel": "k"}),
        ],
    )
    assert rows.named("api_call") == [
        "cudaLaunchKernel", "cuLaunchKernelEx", "cudaMemcpy_v2", "hipLaunchKernel",
    ]  # fmt: skip
    calls = sorted(rows["api_call"], key=lambda row: row["correlation_id"] or 0)
    assert [row["correlation_id"] for row in calls] == [None, 9, 10, 11]
    assert [row["domain"] for row in calls] == ["runtime", "runtime", "driver", "runtime"]
    assert {(row["process_id"], row["tid"]) for row in calls} == {(42, 43)}


def test_copies(trace: Path) -> None:
    names = [
        "Memcpy HtoD (Pinned -> Device)",
        "Memcpy PtoP (Device -> Device)",
        "Memcpy DtoH (Device -> Unknown)",
        "CopyHostToDevice",
    ]
    args = {"device": 2, "stream": 0, "correlation": 4, "bytes": 64}
    rows, _ = read(
        trace,
        [event("gpu_memcpy", name, pid=2, tid=0, args=args) for name in names]
        + [event("gpu_memcpy", "x", pid=2, tid=0, args={**args, "kind": "HtoD"})]
        + [event("gpu_memset", "Memset (Device)", pid=2, tid=0, args=args), LAUNCH],
    )
    found = [
        (row["kind"], row.get("copy_kind"), row.get("src_memory"), row["dst_memory"])
        for row in rows["gpu_op"]
    ]
    assert found == [
        ("memcpy", "HtoD", "pinned", "device"),
        ("memcpy", "PtoP", "device", "device"),
        ("memcpy", "DtoH", "device", None),
        ("memcpy", None, None, None),
        ("memcpy", "HtoD", None, None),
        ("memset", None, None, "device"),
    ]
    assert {row["stream"] for row in rows["gpu_op"]} == {0}  # ROCm: stream 0 is a stream
    assert {row["context"] for row in rows["gpu_op"]} == {None}
    assert {row["bytes"] for row in rows["gpu_op"]} == {64}


def sync(kind: str, stream: int, **args: int) -> dict[str, Any]:
    base = {"cuda_sync_kind": kind, "stream": stream, "correlation": 20, "device": 0, "context": 1}
    return event("cuda_sync", kind, pid=0, tid=stream, args={**base, **args})


def test_syncs_are_waits_and_host_syncs_and_never_device_work(trace: Path) -> None:
    unknown = {"wait_on_stream": -1, "wait_on_cuda_event_record_corr_id": -1}
    known = {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 15}
    rows, _ = read(
        trace,
        [
            LAUNCH,
            kernel(),
            sync("Stream Wait Event", 17, wait_on_cuda_event_id=3, **unknown),
            sync("Stream Wait Event", 17, wait_on_cuda_event_id=4, **known),
            sync("Event Sync", -1, wait_on_cuda_event_id=4, **known),
            sync("Stream Sync", 7),
            sync("Context Sync", 4294967295),
            sync("Something New", 7),
        ],
    )
    assert len(rows["gpu_op"]) == 1
    waits = [
        (row["stream"], row["event_id"], row["record_stream"], row["record_correlation_id"])
        for row in rows["stream_wait"]
    ]
    assert waits == [(17, 3, None, None), (17, 4, 7, 15)]
    syncs = [(row["kind"], row["stream"], row["event_id"]) for row in rows["host_sync"]]
    assert syncs == [
        ("event", None, 4), ("stream", 7, None), ("context", None, None), ("unknown", 7, None),
    ]  # fmt: skip
    (record,) = rows["event_record"]
    assert (record["stream"], record["correlation_id"], record["event_id"]) == (7, 15, 4)
    edges = rows.checks()["event_edges"]
    assert edges["status"] == "warn"
    assert "1 of 2 stream waits (50 %)" in edges["detail"]


def test_ranges_and_overhead(trace: Path) -> None:
    rows, _ = read(
        trace,
        [
            event("cpu_op", "aten::mm", args={"External id": 3, "Input Dims": [[1], {"x": [2]}]}),
            event("user_annotation", "ProfilerStep#1", args={}),
            event("gpu_user_annotation", "FSDP::x", pid=1, tid=17, args={"External id": 4}),
            event("overhead", "Buffer Flush", pid=-1, tid=0),
            {"ph": "X", "cat": "Trace", "name": "t", "pid": "Spans", "tid": "P", "ts": 1, "dur": 2},
            {"ph": "M", "name": "process_name", "pid": 42, "tid": 0, "args": {"name": "python"}},
            event("python_function", "/home/someone/train.py(3): main"),
            {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 1, "pid": 42, "tid": 43, "ts": 1},
            event("cpu_instant_event", "[memory]", ph="i"),
        ],
    )
    found = [
        (row["kind"], row.get("tid"), row.get("device"), row.get("stream"), row["external_id"])
        for row in rows["range"]
    ]
    assert found == [
        ("cpu_op", 43, None, None, 3),
        ("user_annotation", 43, None, None, None),
        ("gpu_user_annotation", None, 1, 17, 4),
    ]
    assert {(row["domain"], row["process_id"]) for row in rows["range"]} == {("pytorch", 42)}
    (overhead,) = rows["overhead"]
    assert overhead["process_id"] is None
    assert overhead["tid"] is None
    skipped = rows.checks()["skipped_events"]
    assert skipped["status"] == "info"
    assert skipped["detail"].startswith("4 of 9 events")
    assert "someone" not in repr(rows.tables) + repr(rows.names)


COLLECTIVE = {
    "External id": 23, "Collective name": "_allgather_base", "In msg nelems": 8,
    "Out msg nelems": 16, "Group size": 2, "dtype": "BFloat16", "Process Group Name": "0",
    "Process Group Description": "default_pg", "Process Group Ranks": "[0, 1]",
}  # fmt: skip


def test_collective_comes_once_from_kernel_and_host_call(trace: Path) -> None:
    rows, _ = read(
        trace,
        [
            event("cpu_op", "record_param_comms", 5, 2, args={**COLLECTIVE, "Rank": 0}),
            event("cpu_op", "record_param_comms", 8, 2, args={"Collective name": "wait"}),
            kernel("other"),
            kernel("ncclDevKernel_AllGather_RING_LL(args)", **COLLECTIVE, Seq=6),
        ],
    )
    (row,) = rows["collective"]
    assert row == {
        "group_name": "0", "group_desc": "default_pg", "seq": 6, "type": "all_gather",
        "dtype": "BFloat16", "elements_in": 8, "elements_out": 16, "group_size": 2,
        "group_ranks": "[0, 1]", "peer_rank": None, "tid": 43, "start_ns": 5000, "end_ns": 7000,
        "correlation_id": 9, "op_id": 1,
    }  # fmt: skip
    assert rows.checks()["collectives"]["status"] == "ok"


def test_collective_from_the_host_call_alone(trace: Path) -> None:
    send = {**COLLECTIVE, "Collective name": "send", "Dst Rank": 3, "External id": 24}
    rows, _ = read(
        trace,
        [
            event("cpu_op", "record_param_comms", 5, 2, args=COLLECTIVE),
            event("cpu_op", "record_param_comms", 8, 2, args=send),
            event("cpu_op", "record_param_comms", 9, 2, args={"Collective name": "wait"}),
            kernel("ncclDevKernel_Generic"),
        ],
    )
    found = [(row["type"], row["peer_rank"], row["op_id"]) for row in rows["collective"]]
    assert found == [("all_gather", None, None), ("send", 3, None)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("_allgather_base", "all_gather"),
        ("allgather_into_tensor_coalesced", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("allreduce", "all_reduce"),
        ("nccl:all_reduce", "all_reduce"),
        ("all_to_allv", "all_to_all"),
        ("_broadcast_oop", "broadcast"),
        ("Mystery", "mystery"),
    ],
)
def test_collective_types(name: str, expected: str) -> None:
    assert collective_type(name) == expected


def test_distributed_info_before_or_after_the_events(trace: Path) -> None:
    info = {
        "backend": "nccl", "rank": 3, "world_size": 8, "nccl_version": "2.28.9",
        "pg_config": [
            {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": 2,
             "ranks": [0, 1]},
        ],
    }  # fmt: skip
    for members in (
        {"distributedInfo": info, "traceEvents": [LAUNCH, kernel()]},
        {"traceEvents": [LAUNCH, kernel()], "username": "someone", "distributedInfo": info},
    ):
        rows, source = read(trace, members)
        (process,) = source.processes
        assert (process.rank, process.rank_source) == (3, "distributedInfo")
        assert (process.world_size, process.nccl_version) == (8, "2.28.9")
        (group,) = rows["process_group"]
        assert group == {
            "group_name": "0", "group_desc": "default_pg", "backend": "cuda:nccl",
            "group_size": 2, "group_ranks": "[0, 1]",
        }  # fmt: skip
        assert "rank_identity" not in rows.checks()


def test_device_events_before_any_host_event_get_its_process(trace: Path) -> None:
    rows, _ = read(trace, [kernel(), *[kernel()] * 50, LAUNCH], chunk_bytes=256)
    assert [row["process_id"] for row in rows["gpu_op"]] == [42] * 51
    assert [row["op_id"] for row in rows["gpu_op"]] == list(range(51))


def test_python_calls_keep_their_nesting_and_no_directory(trace: Path) -> None:
    rows, _ = read(
        trace,
        [
            event("cpu_op", "aten::mm", args={}),
            event(
                "python_function", "/home/someone/train.py(3): main",
                args={"Python id": 1, "Python parent id": None},
            ),
            event(
                "python_function", "torch/nn/modules/module.py(9): f",
                args={"Python id": 2, "Python parent id": 1},
            ),
        ],
    )  # fmt: skip
    assert [
        (rows.names[row["name_id"]], row["frame_id"], row["parent_id"])
        for row in rows["python_frame"]
    ] == [("train.py(3): main", 1, None), ("torch/nn/modules/module.py(9): f", 2, 1)]
