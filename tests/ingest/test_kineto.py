"""Kineto traces become canonical rows: mapping, exact times, odd files, real captures."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapscope.errors import GapscopeError
from gapscope.ingest.base import SourceInfo
from gapscope.ingest.kineto import KinetoReader
from gapscope.ingest.kineto_fields import collective_type, to_ns
from gapscope.ingest.writer import StagingSink, name_id_of
from gapscope.schema.tables import TABLES

SHARED = Path(__file__).parents[2].parent / "shared"
H200 = sorted((SHARED / "data/h200/kineto").glob("*.json.gz"))
PUBLIC = sorted((SHARED / "data/public").glob("*.json.gz"))
no_captures = pytest.mark.skipif(
    not H200 or not PUBLIC, reason="the captures in ../shared are not here"
)


class Rows:
    """A sink that keeps rows in memory and puts names back in place of their ids."""

    def __init__(self) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
        self.names: dict[int, str] = {}
        self.done = (0, 0)

    def write(self, table: str, columns: Mapping[str, Any]) -> None:
        known = {column.name for column in TABLES[table].columns}
        assert set(columns) <= known, set(columns) - known
        if columns:
            for row in zip(*columns.values(), strict=True):
                self.tables[table].append(dict(zip(columns, row, strict=True)))

    def intern(self, text: str) -> int:
        self.names[name_id_of(text)] = text
        return name_id_of(text)

    def intern_many(self, texts: Sequence[str | None]) -> list[int | None]:
        return [None if text is None else self.intern(text) for text in texts]

    def quality(
        self, check_name: str, status: str, detail: str, forbids: str | None = None
    ) -> None:
        self.tables["source_quality"].append(
            {"check_name": check_name, "status": status, "detail": detail, "forbids": forbids}
        )

    def progress(self, done_bytes: int, total_bytes: int) -> None:
        self.done = (done_bytes, total_bytes)

    def __getitem__(self, table: str) -> list[dict[str, Any]]:
        return self.tables[table]

    def named(self, table: str) -> list[str]:
        return [self.names[row["name_id"]] for row in self.tables[table]]

    def checks(self) -> dict[str, dict[str, Any]]:
        checks = {row["check_name"]: row for row in self.tables["source_quality"]}
        assert len(checks) == len(self.tables["source_quality"])
        return checks


def read(path: Path, content: Any, **sizes: int) -> tuple[Rows, SourceInfo]:
    """Write the content (a trace, JSON text or bytes) and read it."""
    if not isinstance(content, bytes):
        content = (content if isinstance(content, str) else json.dumps(content)).encode()
    path.write_bytes(content)
    rows = Rows()
    return rows, KinetoReader(**sizes).read(path, rows)


def event(category: str, name: str, ts: Any = 1, dur: Any = 1, **fields: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 42,
        "tid": 43,
        "ts": ts,
        "dur": dur,
    }
    return {**base, **fields}


def kernel(name: str = "k", ts: Any = 1, dur: Any = 1, **args: Any) -> dict[str, Any]:
    base = {"device": 0, "context": 1, "stream": 7, "correlation": 9}
    return event("kernel", name, ts, dur, pid=0, tid=7, args={**base, **args})


LAUNCH = event("cuda_runtime", "cudaLaunchKernel", args={"External id": 5, "correlation": 9})


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "some_user_trace.json"


# --- times ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5105139832105.565", 5105139832105565),
        ("1661203462598738", 1661203462598738000),
        ("9007199254740993.125", 9007199254740993125),  # beyond what a double holds
        ("168.35", 168350),
        ("0.0005", 0),
        ("0.0015", 2),
        ("2.00049999999999999999", 2000),
        ("-0.5", -500),
        ("-0", 0),
        ("1e3", 1_000_000),
        ("1.5E-2", 15),
        ('"12.25"', 12250),
        ('" 7 "', 7000),
        ("1e-2000", 0),
    ],
)
def test_times_are_exact(text: str, expected: int) -> None:
    assert to_ns(text.encode()) == expected


@pytest.mark.parametrize(
    "text", ["1e400", "1" + "0" * 40, "null", "", '""', '"abc"', "true", "[1]", '"1_0"', "1" * 999]
)
def test_what_is_no_time_raises(text: str) -> None:
    with pytest.raises(ValueError):
        to_ns(text.encode())


@given(st.decimals(-(10**12), 10**12, places=6), st.integers(-3, 3))
def test_times_round_half_even(value: Any, exponent: int) -> None:
    exact = Fraction(value) * 1000 * Fraction(10) ** exponent
    assert to_ns(f"{value:f}e{exponent}".encode()) == round(exact)


# --- mapping ----------------------------------------------------------------------------------


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
    assert skipped["detail"].startswith("5 of 9 events")
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


# --- files in the wild ------------------------------------------------------------------------


def test_truncated_plain_and_gzip(trace: Path) -> None:
    text = json.dumps({"traceEvents": [LAUNCH, kernel(), kernel("cut")], "traceName": "x"})
    cut = text.index('"cut"')
    packed = gzip.compress(text.encode())
    for content in (text[:cut].encode(), packed[: len(packed) * 3 // 4]):
        rows, _ = read(trace, content)
        check = rows.checks()["truncated"]
        assert check["status"] == "warn"
        assert "byte" in check["detail"]
        assert len(rows["api_call"]) == 1
    rows, _ = read(trace, text[:cut].encode())
    assert f"byte {cut} " in rows.checks()["truncated"]["detail"]
    assert len(rows["gpu_op"]) == 1


def test_truncated_after_the_events_and_in_the_gzip_trailer(trace: Path) -> None:
    text = json.dumps({"traceEvents": [LAUNCH, kernel()], "traceName": "x"})
    rows, _ = read(trace, text[:-4])
    assert "metadata after the events" in rows.checks()["truncated"]["detail"]
    rows, _ = read(trace, gzip.compress(text.encode())[:-3])
    assert "JSON text is complete" in rows.checks()["truncated"]["detail"]
    assert len(rows["gpu_op"]) == 1


def test_bare_array_without_its_bracket(trace: Path) -> None:
    rows, _ = read(trace, json.dumps([LAUNCH, kernel()])[:-1] + ",\n")
    assert rows.checks()["truncated"]["status"] == "info"
    assert len(rows["gpu_op"]) == 1


def test_nan_control_characters_and_bad_utf8_are_repaired(trace: Path) -> None:
    text = json.dumps({"traceEvents": [LAUNCH, kernel("a|b"), kernel("nan \u00e9", bw=0.125)]})
    text = text.replace("0.125", "-Infinity").replace("a|b", "a\x01b").replace("\\u00e9", "@")
    rows, _ = read(trace, text.encode().replace(b"@", b"\xff"))
    assert rows.named("gpu_op") == ["a b", "nan \ufffd"]
    check = rows.checks()["json_repaired"]
    assert check["status"] == "warn"
    assert check["detail"].startswith("3 places")
    assert "unreadable_events" not in rows.checks()


def test_wrong_types_are_coerced_or_counted(trace: Path) -> None:
    rows, _ = read(
        trace,
        [
            LAUNCH,
            kernel(device="0", stream="7", correlation="12"),
            event("kernel", "no args", pid="0", tid="7", args=None),
            kernel(device="first"),
            kernel(grid={"x": 1}),
            kernel(correlation=10**40),
            kernel(ts="3.5"),
            kernel(ts=None),
            kernel(ts="soon"),
            kernel(dur=10**40),
            {**event("cpu_op", ""), "name": 5},
            event("cpu_op", "x", tid=[1]),
            event("cuda_runtime", "y", tid="main"),
        ],
    )
    assert [row["correlation_id"] for row in rows["gpu_op"]] == [12, None, 9]
    assert [row["start_ns"] for row in rows["gpu_op"]] == [1000, 1000, 3500]
    check = rows.checks()["unreadable_events"]
    assert check["detail"].startswith("9 of 13 events")


def test_huge_numbers_and_duplicate_keys(trace: Path) -> None:
    text = (
        '[{"ph":"X","cat":"kernel","name":"a","ts":1e400,"dur":1,"args":{"device":0}},'
        '{"ph":"M","ph":"X","cat":"kernel","name":"b","ts":1,"ts":2,"dur":1,"args":{"device":0}},'
        '{"ph":"X","cat":"kernel","name":"c","ts":1,"dur":1,"args":{"device":0,"x":1e999}}]'
    )
    rows, _ = read(trace, text)
    assert rows.named("gpu_op") == ["b", "c"]
    assert rows["gpu_op"][0]["start_ns"] == 2000
    assert "1 of 3" in rows.checks()["unreadable_events"]["detail"]


def test_negative_missing_and_overlong_durations_are_kept_and_counted(trace: Path) -> None:
    missing = kernel()
    del missing["dur"]
    rows, _ = read(trace, [LAUNCH, kernel(dur=-2), missing, kernel(ts=5, dur=7_200_000_000)])
    assert [row["end_ns"] for row in rows["gpu_op"]] == [-1000, None, 7_200_000_005_000]
    check = rows.checks()["negative_durations"]
    assert "1 events end before they start, 1 have no duration" in check["detail"]
    assert rows.checks()["overlong_durations"]["detail"].startswith("1 device ops")


def test_no_device_ops(trace: Path) -> None:
    rows, info = read(trace, {"deviceProperties": [], "traceEvents": [event("cpu_op", "x")]})
    assert rows.checks()["no_device_ops"]["forbids"] == "device budget"
    assert info.devices == []


def test_edges_absent(trace: Path) -> None:
    wait = event("cuda_runtime", "cudaStreamWaitEvent", args={"correlation": 8})
    rows, _ = read(trace, [LAUNCH, wait, kernel()])
    edges = rows.checks()["event_edges"]
    assert edges["status"] == "info"
    assert "lower bound" in edges["detail"]
    assert "1 of 1 stream-wait calls have no wait row" in edges["detail"]


@pytest.mark.parametrize(
    ("content", "slug"),
    [
        (b"", "empty-input"),
        (b"[]", "empty-input"),
        (b'{"traceEvents": []}', "empty-input"),
        (b"SQLite format 3\0", "not-a-kineto-trace"),
        (b"[1, 2, 3]", "empty-input"),
        (b'[{"a": 1}]', "not-a-kineto-trace"),
        (b'[["a"], ["b"]]', "not-a-kineto-trace"),
        (b'{"traceEvents": null}', "not-a-kineto-trace"),
        (b'{"traceEvents": [{"ph": "X"', "truncated-input"),
        (b"[" * 100_000, "truncated-input"),
    ],
)
def test_nothing_usable(trace: Path, content: bytes, slug: str) -> None:
    with pytest.raises(GapscopeError) as caught:
        read(trace, content)
    assert caught.value.slug == slug
    assert caught.value.hint


def test_missing_file(trace: Path) -> None:
    with pytest.raises(GapscopeError, match="No such file"):
        KinetoReader().read(trace, Rows())


def test_probe(tmp_path: Path) -> None:
    def probe(name: str, content: bytes) -> bool:
        path = tmp_path / name
        path.write_bytes(content)
        return KinetoReader.probe(path)

    text = json.dumps({"schemaVersion": 1, "traceEvents": [LAUNCH]}).encode()
    assert probe("a.json", text)
    assert probe("no_suffix", gzip.compress(text))
    assert probe("array.json", json.dumps([LAUNCH]).encode())
    assert probe("cut.json.gz", gzip.compress(text)[:-9])
    assert probe("empty.json", b"")
    assert not probe("empty.txt", b"")
    assert not probe("config.json", b'{"lr": 0.1}')
    assert not probe("a.sqlite", b"SQLite format 3\0")
    assert not probe("list.json", b"[1, 2]")
    assert not KinetoReader.probe(tmp_path)
    assert not KinetoReader.probe(tmp_path / "absent.json")


# --- real captures ----------------------------------------------------------------------------


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
