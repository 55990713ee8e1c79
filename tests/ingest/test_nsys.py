"""The Nsight Systems reader on small exports that the tests write themselves."""

from __future__ import annotations

import gzip
import os
import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gapscope.errors import GapscopeError
from gapscope.ingest import nsys_tables
from gapscope.ingest.ahead import read_ahead
from gapscope.ingest.nsys import NsysReader
from gapscope.ingest.nsys_privacy import (
    allowed_settings,
    capture_environment,
    clean_message,
    number_setting,
)
from gapscope.ingest.nsys_tables import ParquetSource, SqliteSource
from gapscope.ingest.writer import StagingSink, name_id_of

CANARY = "canary-do-not-leak-7f3a"
MACHINE = 1 << 48  # what Nsight puts above the process id
NO_ID = 4294967295

Rows = dict[str, list[dict[str, Any]]]


def global_pid(pid: int) -> int:
    return MACHINE | (pid << 24)


def kernel(start: Any, end: Any, name: int = 1, pid: int = 7, **more: Any) -> dict[str, Any]:
    row = {
        "start": start,
        "end": end,
        "deviceId": 0,
        "contextId": 1,
        "streamId": 7,
        "correlationId": 11,
        "globalPid": global_pid(pid),
        "demangledName": name,
        "shortName": name,
        "graphNodeId": None,
        "gridX": 1,
        "blockX": 32,
    }
    return {**row, **more}


def call(start: int, end: int, name: int = 2, pid: int = 7, **more: Any) -> dict[str, Any]:
    row = {
        "start": start,
        "end": end,
        "eventClass": 0,
        "globalTid": global_pid(pid) | 9,
        "correlationId": 11,
        "nameId": name,
        "returnValue": 0,
    }
    return {**row, **more}


STRINGS = {
    1: "void gemm<float>(float*)",
    2: "cudaLaunchKernel_v7000",
    3: "cuLaunchKernelEx",
    4: "ncclAllReduce",
    5: "CUPTI Buffer flush",
    90: f"HF_TOKEN={CANARY}",
    91: "/home/someone/secret/train.py",
}


def full_export() -> Rows:
    """One process, every table that the reader knows, one or a few rows each."""
    place = {"deviceId": 0, "contextId": 1, "globalPid": global_pid(7)}
    sync = {**place, "correlationId": 20, "start": 60, "end": 61}
    tid = global_pid(7) | 9
    nvtx = {"globalTid": tid, "domainId": 0, "text": None, "textId": None, "end": None}
    return {
        "StringIds": [{"id": key, "value": value} for key, value in STRINGS.items()],
        "META_DATA_EXPORT": [{"name": "EXPORT_PRODUCT_VERSION", "value": "2025.3.2.0"}],
        "META_DATA_CAPTURE": [
            {"name": "PROCESS_0:COMMAND", "value": "/home/someone/python"},
            {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": 'RANK="3"'},
            {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": 'WORLD_SIZE="8"'},
            {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": f'HF_TOKEN="{CANARY}"'},
            {
                "name": "PROCESS_0:ENVIRONMENT_VARIABLE",
                "value": f'NCCL_ALGO="{CANARY * 20}"',
            },
            {
                "name": "PROCESS_0:ENVIRONMENT_VARIABLE",
                "value": 'NCCL_PROTO="/home/someone"',
            },
            {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": 'NCCL_MAX_CTAS="16"'},
        ],
        "TARGET_INFO_SYSTEM_ENV": [
            {"name": "Hostname", "value": "node5"},
            {"name": "CudaDriverVersion", "value": "13000"},
            {"name": "DeviceEnvironment", "value": f"HF_TOKEN={CANARY};LANG=C"},
        ],
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 10**18, "systemClockNs": 5_000}],
        "TARGET_INFO_GPU": [{"id": 2, "name": "NVIDIA H200", "uuid": "aaaa-bbbb"}],
        "TARGET_INFO_CUDA_DEVICE": [{"gpuId": 2, "cudaId": 0, "pid": 7}],
        "TARGET_INFO_CUDA_CONTEXT_INFO": [
            {"nullStreamId": 7, "processId": 7, "deviceId": 0, "contextId": 1}
        ],
        "TARGET_INFO_CUDA_STREAM": [
            {"streamId": 7, "processId": 7, "contextId": 1, "priority": 0, "flag": 3},
            {
                "streamId": 17,
                "processId": 7,
                "contextId": 1,
                "priority": NO_ID,
                "flag": 2,
            },
        ],
        "CUPTI_ACTIVITY_KIND_KERNEL": [
            kernel(100, 200),
            kernel(200, 260, name=404, graphNodeId=(3 << 32) | 5),
        ],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [
            {
                **place,
                "start": 300,
                "end": 310,
                "streamId": NO_ID,
                "correlationId": 12,
                "bytes": 4096,
                "copyKind": 1,
                "srcKind": 1,
                "dstKind": 2,
            }
        ],
        "CUPTI_ACTIVITY_KIND_MEMSET": [
            {
                **place,
                "start": 320,
                "end": 321,
                "streamId": 7,
                "correlationId": 13,
                "bytes": 64,
                "memKind": 2,
            }
        ],
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [
            {
                **place,
                "start": 400,
                "end": 500,
                "streamId": 7,
                "correlationId": 14,
                "graphId": 4,
            }
        ],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [
            call(50, 60),
            call(52, 53, name=3, eventClass=1),
        ],
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT": [
            {
                **place,
                "timestamp": stamp,
                "streamId": 7,
                "correlationId": 19,
                "eventId": 5,
                "eventSyncId": key,
            }
            for key, stamp in ((1, 0), (2, 777))
        ],
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": [
            {**sync, "syncType": 2, "streamId": 17, "eventId": 5, "eventSyncId": 1},
            {**sync, "syncType": 1, "streamId": NO_ID, "eventId": 5, "eventSyncId": 0},
            {
                **sync,
                "syncType": 3,
                "streamId": 17,
                "eventId": NO_ID,
                "eventSyncId": NO_ID,
            },
            {
                **sync,
                "syncType": 4,
                "streamId": NO_ID,
                "eventId": NO_ID,
                "eventSyncId": NO_ID,
            },
            {
                **sync,
                "syncType": 2,
                "streamId": 17,
                "eventId": NO_ID,
                "eventSyncId": NO_ID,
            },
        ],
        "NVTX_EVENTS": [
            {**nvtx, "start": -5, "eventType": 75, "domainId": 1, "text": "NCCL"},
            {**nvtx, "start": 1, "eventType": 39, "text": "thread name"},
            {**nvtx, "start": 10, "end": 90, "eventType": 59, "text": "step 0"},
            {
                **nvtx,
                "start": 20,
                "end": 30,
                "eventType": 60,
                "textId": 4,
                "domainId": 1,
            },
            {**nvtx, "start": 40, "eventType": 34, "text": "mark", "domainId": 6},
            {**nvtx, "start": 45, "eventType": 59, "text": "still open"},
        ],
        "PROFILER_OVERHEAD": [{"start": 1, "end": 4, "globalTid": tid, "nameId": 5}],
        "CUPTI_ACTIVITY_KIND_OVERHEAD": [
            {"start": 5, "end": 9, "globalTid": tid, "nameId": 5, "overheadType": 8}
        ],
        "DIAGNOSTIC_EVENT": [
            {
                "timestamp": 3,
                "timestampType": 1,
                "source": 1,
                "severity": 2,
                "text": f"7 events were dropped, see /home/someone/x.log with TOKEN={CANARY}",
            },
            {
                "timestamp": 9,
                "timestampType": 2,
                "source": 3,
                "severity": 1,
                "text": f"environment said {CANARY}",
            },
        ],
        "TARGET_INFO_GPU_METRICS": [{"typeId": 0x1000002, "metricId": 0, "metricName": "SM [%]"}],
        "GPU_METRICS": [{"timestamp": 70, "typeId": 0x1000002, "metricId": 0, "value": 55}],
        "OSRT_API": [{"start": 1, "end": 2}],
    }


def write_sqlite(path: Path, tables: Rows, typed: bool = False) -> Path:
    connection = sqlite3.connect(path)
    for table, rows in tables.items():
        names = list(rows[0]) if rows else ["start"]
        kinds = [
            "TEXT" if name in ("name", "value", "text", "uuid") else "INTEGER" for name in names
        ]
        columns = [f'"{n}" {k}' if typed else f'"{n}"' for n, k in zip(names, kinds, strict=True)]
        connection.execute(f'CREATE TABLE "{table}" ({", ".join(columns)})')
        marks = ",".join("?" * len(names))
        connection.executemany(
            f'INSERT INTO "{table}" VALUES ({marks})',
            [list(row.values()) for row in rows],
        )
    connection.commit()
    connection.close()
    return path


def write_parquetdir(path: Path, tables: Rows) -> Path:
    path.mkdir()
    for table, rows in tables.items():
        pq.write_table(pa.Table.from_pylist(rows), path / f"{table}.parquet")
    return path


class Result:
    """What a read wrote, by canonical table."""

    def __init__(self, path: Path, directory: Path) -> None:
        self.progress: list[tuple[int, int]] = []
        sink = StagingSink(directory, lambda done, total: self.progress.append((done, total)))
        self.info = NsysReader().read(path, sink)
        sink.close()
        self.directory = directory

    def rows(self, table: str) -> list[dict[str, Any]]:
        file = self.directory / f"{table}.parquet"
        return pq.read_table(file).to_pylist() if file.exists() else []

    def all_rows(self) -> dict[str, list[dict[str, Any]]]:
        return {file.stem: self.rows(file.stem) for file in sorted(self.directory.iterdir())}

    def column(self, table: str, name: str) -> list[Any]:
        return [row[name] for row in self.rows(table)]

    def names(self, table: str) -> list[str | None]:
        texts = {row["name_id"]: row["name"] for row in self.rows("name")}
        return [texts.get(key) for key in self.column(table, "name_id")]

    def quality(self) -> dict[str, tuple[str, str]]:
        return {
            row["check_name"]: (row["status"], row["detail"]) for row in self.rows("source_quality")
        }

    def raw_text(self) -> str:
        return repr(self.info) + repr(self.all_rows())


Read = Callable[[Path], Result]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    count = 0

    def run(path: Path) -> Result:
        nonlocal count
        count += 1
        return Result(path, tmp_path / f"staging{count}")

    return run


@pytest.fixture
def full(tmp_path: Path, read: Read) -> Result:
    return read(write_sqlite(tmp_path / "full.sqlite", full_export()))


# --- mapping ------------------------------------------------------------------------------------


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
    assert quality["tool_overhead"][1].startswith("3 ns")
    assert quality["cuda_overhead"][1].startswith("4 ns")


def test_progress_ends_complete_and_never_runs_back(full: Result) -> None:
    done = [step for step, _ in full.progress]
    assert done == sorted(done)
    assert full.progress[-1][0] == full.progress[-1][1] > 0


# --- secrets ------------------------------------------------------------------------------------


def test_no_secret_and_no_path_enters(full: Result) -> None:
    text = full.raw_text()
    assert CANARY not in text
    assert "someone" not in text
    assert "HF_TOKEN" not in text
    for file in full.directory.iterdir():
        assert CANARY.encode() not in file.read_bytes()
    settings = {row["name"]: row["value"] for row in full.rows("environment")}
    assert settings == {"RANK": "3", "WORLD_SIZE": "8", "NCCL_MAX_CTAS": "16"}
    assert full.column("diagnostic", "text") == [
        "7 events were dropped, see <path> with <setting>",
        "environment said <removed>",
    ]
    assert full.column("diagnostic", "ts_ns") == [3, None]


def test_only_referenced_strings_are_named(full: Result) -> None:
    names = {row["name"] for row in full.rows("name")}
    assert not names & {STRINGS[90], STRINGS[91]}
    assert all(row["name_id"] == name_id_of(row["name"]) for row in full.rows("name"))


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("8", True),
        ("Ring,Tree", True),
        ("expandable_segments:True", True),
        ("GPU-1234abcd,GPU-99", True),
        ("MIG-GPU-1234/1/0", True),
        ("x" * 256, True),
        ("x" * 257, False),
        ("/home/someone/file", False),
        ("a:/home/someone", False),
        ("~/file", False),
        ("C:\\Users\\someone", False),
        ("two\nlines", False),
        ("<script>", False),
    ],
)
def test_values_of_allowed_variables(value: str, kept: bool) -> None:
    settings, dropped = allowed_settings({0: {"CUDA_VISIBLE_DEVICES": value, "HOME": "/root"}})
    assert settings == ({"CUDA_VISIBLE_DEVICES": value} if kept else {})
    assert dropped == ([] if kept else ["CUDA_VISIBLE_DEVICES"])


def test_rank_must_be_a_number() -> None:
    rows: list[tuple[str | None, str | None]] = [
        ("PROCESS_0:ENVIRONMENT_VARIABLE", 'RANK="secret words"'),
        ("PROCESS_0:ENVIRONMENT_VARIABLE", 'SLURM_PROCID="12"'),
        ("PROCESS_0:ENVIRONMENT_VARIABLE", "no separator"),
        (None, None),
    ]
    settings, dropped = allowed_settings(capture_environment(rows))
    assert dropped == ["RANK"]
    assert number_setting(settings, ("RANK", "SLURM_PROCID")) == (12, "SLURM_PROCID")


@pytest.mark.parametrize(
    "text",
    [
        "see '/home/some one/log file.txt' now",
        "see /home/someone/log, and ~/someone",
        r"C:\Users\someone\x failed",
        "PATH=/usr/bin:/home/someone set",
        "A_KEY='someone else' given",
        "KEY = someone",
        "http://someone.example/x?q=1",
        "started with LD_PRELOAD=someone.so",
    ],
)
def test_messages_lose_paths_and_settings(text: str) -> None:
    cleaned = clean_message(text, frozenset())
    assert "someone" not in cleaned
    assert "some one" not in cleaned


def test_messages_keep_their_meaning() -> None:
    text = "CUDA tracing: 3 of 5 buffers lost. See --cuda-graph-trace=node to control this."
    assert clean_message(text, frozenset()) == text


# --- schemas that differ ------------------------------------------------------------------------


def test_minimal_schema(tmp_path: Path, read: Read) -> None:
    tables: Rows = {
        "StringIds": [
            {"id": 1, "value": "gemm"},
            {"id": 2, "value": "cudaLaunchKernel"},
        ],
        "CUPTI_ACTIVITY_KIND_KERNEL": [
            {
                "start": 0,
                "end": 10,
                "deviceId": 0,
                "streamId": 7,
                "correlationId": 1,
                "shortName": 1,
            }
        ],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [
            {"start": -5, "end": -1, "correlationId": 1, "globalTid": 1, "nameId": 2}
        ],
    }
    result = read(write_sqlite(tmp_path / "minimal.sqlite", tables))
    (op,) = result.rows("gpu_op")
    (api,) = result.rows("api_call")
    assert op["process_id"] == api["process_id"] == 0
    assert (op["context"], op["grid_x"]) == (None, None)
    assert (result.names("gpu_op"), result.names("api_call")) == (
        ["gemm"],
        ["cudaLaunchKernel"],
    )
    assert api["domain"] == "runtime"
    assert {"missing_clock", "missing_range", "event_edges"} <= set(result.quality())


def test_sync_records_belong_to_the_device_of_their_context(tmp_path: Path, read: Read) -> None:
    """Nsight Systems 2025.3 writes device 0 into the sync records of every process."""
    sync = {"start": 5, "end": 6, "deviceId": 0, "streamId": 7, "syncType": 2, "eventId": 1}
    record = {"deviceId": 0, "streamId": 7, "eventId": 1, "eventSyncId": 9, "correlationId": 3}
    second = {"contextId": 2, "globalPid": global_pid(8)}
    tables = full_export()
    tables["CUPTI_ACTIVITY_KIND_KERNEL"] = [
        kernel(1, 2, pid=7),
        kernel(1, 2, pid=8, deviceId=1, contextId=2),
    ]
    tables["CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"] = [
        {**sync, "correlationId": 4, "eventSyncId": 9, "contextId": 1, "globalPid": global_pid(7)},
        {**sync, "correlationId": 4, "eventSyncId": 9, **second},
    ]
    tables["CUPTI_ACTIVITY_KIND_CUDA_EVENT"] = [{**record, **second}]
    result = read(write_sqlite(tmp_path / "two.sqlite", tables))
    assert result.column("stream_wait", "device") == [0, 1]
    assert result.column("event_record", "device") == [1]


def test_two_processes_get_no_rank_from_the_launcher(tmp_path: Path, read: Read) -> None:
    tables = full_export()
    tables["CUPTI_ACTIVITY_KIND_KERNEL"] = [
        kernel(1, 2, pid=7),
        kernel(1, 2, pid=8, deviceId=1),
    ]
    tables["CUPTI_ACTIVITY_KIND_RUNTIME"] = [call(0, 1, pid=7), call(0, 1, pid=8)]
    tables["TARGET_INFO_CUDA_DEVICE"] = [
        {"gpuId": 2, "cudaId": 0, "pid": 7},
        {"gpuId": 2, "cudaId": 1, "pid": 8},
    ]
    tables["NVTX_EVENTS"] = [
        {
            "start": 1,
            "end": 2 if kind == 59 else None,
            "eventType": kind,
            "globalTid": global_pid(pid) | 1,
            "domainId": 1,
            "text": text,
        }
        for pid, kind, text in (
            (7, 59, "a"),
            (7, 75, "NCCL"),
            (8, 75, "CCCL"),
            (8, 59, "b"),
        )
    ]
    result = read(write_sqlite(tmp_path / "two.sqlite", tables))
    assert [p.process_id for p in result.info.processes] == [
        global_pid(7),
        global_pid(8),
    ]
    assert [(p.rank, p.world_size) for p in result.info.processes] == [(None, None)] * 2
    assert result.quality()["rank_identity"][0] == "warn"
    assert not {"RANK", "WORLD_SIZE"} & set(result.column("environment", "name"))
    assert {(d.process_id, d.device) for d in result.info.devices} == {
        (global_pid(7), 0),
        (global_pid(8), 1),
    }
    # Domain ids are per process.
    assert result.column("range", "domain") == ["NCCL", "CCCL"]


def test_missing_names_keep_intervals(tmp_path: Path, read: Read) -> None:
    tables = full_export()
    del tables["StringIds"]
    result = read(write_sqlite(tmp_path / "nameless.sqlite", tables))
    assert result.names("gpu_op")[:2] == ["[unknown kernel]"] * 2
    assert result.column("gpu_op", "end_ns")[:2] == [200, 260]
    assert result.names("range") == ["step 0", None, "mark", "still open"]
    assert result.quality()["missing_name"][0] == "warn"


@pytest.mark.parametrize("missing", sorted(full_export()))
def test_any_table_may_be_missing(missing: str, tmp_path: Path, read: Read) -> None:
    tables = full_export()
    del tables[missing]
    result = read(write_sqlite(tmp_path / "export.sqlite", tables))
    assert result.info.processes
    assert CANARY not in result.raw_text()


@pytest.mark.parametrize("seed", range(12))
def test_any_columns_may_be_missing(seed: int, tmp_path: Path, read: Read) -> None:
    chance = random.Random(seed)
    tables = full_export()
    # A bare value in a message is only recognised while the environment can be read.
    del tables["DIAGNOSTIC_EVENT"][1]
    for table, rows in tables.items():
        kept = [name for name in rows[0] if chance.random() < 0.6] or ["end"]
        tables[table] = [{name: row.get(name) for name in kept} for row in rows]
    result = read(write_sqlite(tmp_path / "export.sqlite", tables))
    assert CANARY not in result.raw_text()


def test_waits_without_records(tmp_path: Path, read: Read) -> None:
    tables = full_export()
    del tables["CUPTI_ACTIVITY_KIND_CUDA_EVENT"]
    status, detail = read(write_sqlite(tmp_path / "e.sqlite", tables)).quality()["event_edges"]
    assert status == "warn"
    assert detail == "1 stream waits, 0 records: blocking is a lower bound"


def test_waits_and_records_without_sync_ids(tmp_path: Path, read: Read) -> None:
    tables = full_export()
    for table in ("CUPTI_ACTIVITY_KIND_CUDA_EVENT", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"):
        for row in tables[table]:
            row.pop("eventSyncId", None)
    status, detail = read(write_sqlite(tmp_path / "e.sqlite", tables)).quality()["event_edges"]
    assert status == "warn"
    assert "latest record of its event id" in detail


def test_shifted_times(tmp_path: Path, read: Read) -> None:
    tables = full_export()
    tables["META_DATA_EXPORT"].append({"name": "EXPORT_CONFIG_TIME_SHIFT", "value": "1000"})
    result = read(write_sqlite(tmp_path / "shifted.sqlite", tables))
    assert result.info.processes[0].clock_base_ns == 10**18 - 1000
    assert "time_shift" in result.quality()


# --- odd and broken content ---------------------------------------------------------------------


def test_wrong_types_are_counted(tmp_path: Path, read: Read) -> None:
    tables = full_export()
    tables["CUPTI_ACTIVITY_KIND_KERNEL"] = [
        kernel(100, 200),
        kernel("soon", 200),
        kernel(None, 300),
        kernel(300, 400.0, deviceId="zero"),
        kernel("500", 600, streamId=b"\xff"),
    ]
    result = read(write_sqlite(tmp_path / "odd.sqlite", tables))
    kernels = [row for row in result.rows("gpu_op") if row["kind"] == "kernel"]
    assert [(row["start_ns"], row["end_ns"]) for row in kernels] == [
        (100, 200),
        (300, 400),
        (500, 600),
    ]
    assert [row["device"] for row in kernels] == [0, None, 0]
    assert "2 of CUPTI_ACTIVITY_KIND_KERNEL" in result.quality()["unreadable_rows"][1]
    assert "3 in CUPTI_ACTIVITY_KIND_KERNEL" in result.quality()["unreadable_values"][1]


def test_late_type_changes_and_late_values(
    tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The bulk reader infers types from its first batch: what follows must not surprise it.
    monkeypatch.setattr(nsys_tables, "BATCH_ROWS", 8)
    monkeypatch.setattr(nsys_tables, "SALVAGE_ROWS", 5)
    tables = full_export()
    tables["CUPTI_ACTIVITY_KIND_KERNEL"] = [kernel(k, k + 1) for k in range(50)]
    tables["CUPTI_ACTIVITY_KIND_KERNEL"][20]["start"] = "broken"
    tables["CUPTI_ACTIVITY_KIND_KERNEL"][30]["graphNodeId"] = 77
    nvtx = {"eventType": 59, "globalTid": global_pid(7) | 9, "domainId": 0}
    tables["NVTX_EVENTS"] = [
        {"start": k, "end": k + 1, **nvtx, "text": None, "textId": 4} for k in range(40)
    ] + [
        {
            "start": 40,
            "end": 41,
            **nvtx,
            "text": "late \N{GREEK SMALL LETTER MU}",
            "textId": None,
        }
    ]
    result = read(write_sqlite(tmp_path / "late.sqlite", tables))
    kernels = [row for row in result.rows("gpu_op") if row["kind"] == "kernel"]
    assert [row["start_ns"] for row in kernels] == [k for k in range(50) if k != 20]
    assert [row["graph_node_id"] for row in kernels if row["graph_node_id"]] == [77]
    assert result.names("range") == ["ncclAllReduce"] * 40 + ["late \N{GREEK SMALL LETTER MU}"]


def test_text_that_is_not_utf8(tmp_path: Path, read: Read) -> None:
    path = write_sqlite(tmp_path / "bytes.sqlite", full_export())
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE NVTX_EVENTS SET text = CAST(x'61ff62' AS TEXT) WHERE start = 10")
        connection.execute("UPDATE StringIds SET value = CAST(x'61ff63' AS TEXT) WHERE id = 1")
    connection.close()
    result = read(path)
    assert result.names("range")[0] == "a\ufffdb"
    assert result.names("gpu_op")[0] == "a\ufffdc"


def test_unknown_nvtx_types_are_counted(tmp_path: Path, read: Read) -> None:
    tables = full_export()
    tables["NVTX_EVENTS"].append({**tables["NVTX_EVENTS"][2], "eventType": 12345})
    result = read(write_sqlite(tmp_path / "e.sqlite", tables))
    assert result.quality()["nvtx_other"][1] == "1 NVTX events of type 12345 not kept"


def big_export() -> Rows:
    tables = full_export()
    tables["CUPTI_ACTIVITY_KIND_KERNEL"] = [kernel(k, k + 1) for k in range(20_000)]
    return tables


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.99])
def test_cut_file(share: float, tmp_path: Path, read: Read) -> None:
    path = write_sqlite(tmp_path / "cut.sqlite", big_export())
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    try:
        result = read(path)
    except GapscopeError as error:
        assert error.slug in ("corrupt-export", "not-an-nsys-export", "no-cuda-trace")
        assert "cut.sqlite" in error.message
        assert error.hint
        return
    quality = result.quality()
    assert quality["truncated_file"][0] == "fail"
    assert quality["corrupt_table"][0] == "fail"
    assert 0 < len(result.rows("gpu_op")) < 20_000 + 4


@pytest.mark.parametrize("seed", range(10))
def test_damaged_pages(seed: int, tmp_path: Path, read: Read) -> None:
    path = write_sqlite(tmp_path / "damaged.sqlite", big_export())
    data = bytearray(path.read_bytes())
    chance = random.Random(seed)
    for _ in range(5):
        at = chance.randrange(4096, len(data) - 512)
        data[at : at + 512] = chance.randbytes(512)
    path.write_bytes(data)
    try:
        read(path)
    except GapscopeError as error:
        assert "damaged.sqlite" in error.message
        assert error.hint


# --- files --------------------------------------------------------------------------------------


def test_parquetdir_gives_the_same_rows(tmp_path: Path, read: Read, full: Result) -> None:
    folder = write_parquetdir(tmp_path / "export", full_export())
    assert NsysReader.probe(folder)
    result = read(folder)
    assert result.all_rows() == full.all_rows()
    assert result.info == full.info


def test_parquetdir_types(tmp_path: Path) -> None:
    folder = tmp_path / "types"
    folder.mkdir()
    table = pa.table(
        {
            "a": pa.array([1, 2**64 - 1], pa.uint64()),
            "b": pa.array([1, None], pa.uint32()),
            "c": pa.array(["x", ""]).dictionary_encode(),
            "d": pa.array(["12", "no"]),
            "e": pa.array([1, 2], pa.int32()),
        }
    )
    pq.write_table(table, folder / "T.parquet")
    source = ParquetSource(folder)
    (batch,) = source.batches("T", {**dict.fromkeys("abd", "int"), "c": "text", "e": "float"})
    assert batch.to_pydict() == {
        "a": [1, None],
        "b": [1, None],
        "d": [12, None],
        "c": ["x", None],
        "e": [1.0, 2.0],
    }
    assert source.bad_values == {"T": 1}
    source.close()


def test_broken_parquet_file_is_a_quality_row(tmp_path: Path, read: Read) -> None:
    folder = write_parquetdir(tmp_path / "export", full_export())
    (folder / "NVTX_EVENTS.parquet").write_bytes(b"PAR1 not really")
    result = read(folder)
    assert "NVTX_EVENTS" in result.quality()["corrupt_table"][1]
    assert str(tmp_path) not in result.raw_text()
    assert len(result.rows("gpu_op")) == 5


def test_gzip(tmp_path: Path, read: Read, full: Result) -> None:
    packed = tmp_path / "full.sqlite.gz"
    packed.write_bytes(gzip.compress((tmp_path / "full.sqlite").read_bytes()))
    assert NsysReader.probe(packed)
    assert read(packed).all_rows() == full.all_rows()


def test_cut_gzip(tmp_path: Path, read: Read) -> None:
    data = gzip.compress(write_sqlite(tmp_path / "big.sqlite", big_export()).read_bytes())
    packed = tmp_path / "cut.sqlite.gz"
    packed.write_bytes(data[: len(data) * 9 // 10])
    try:
        assert read(packed).quality()["truncated_gzip"][0] == "fail"
    except GapscopeError as error:
        assert "cut.sqlite.gz" in error.message


def test_input_and_its_folder_stay_untouched(tmp_path: Path, read: Read) -> None:
    folder = tmp_path / "in # put?100%"
    folder.mkdir()
    path = write_sqlite(folder / "a b.sqlite", full_export())
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    before = (path.read_bytes(), path.stat().st_mtime_ns, sorted(folder.iterdir()))
    folder.chmod(0o555)
    path.chmod(0o444)
    try:
        assert NsysReader.probe(path)
        assert len(read(path).rows("gpu_op")) == 5
        assert (
            path.read_bytes(),
            path.stat().st_mtime_ns,
            sorted(folder.iterdir()),
        ) == before
    finally:
        folder.chmod(0o755)


def test_unfinished_log_beside_the_file(tmp_path: Path, read: Read) -> None:
    path = write_sqlite(tmp_path / "live.sqlite", full_export())
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("UPDATE StringIds SET value = 'late name' WHERE id = 1")
    writer.commit()
    wal = path.with_name("live.sqlite-wal")
    before = (path.read_bytes(), wal.read_bytes())
    result = read(path)
    assert result.names("gpu_op")[0] == "late name"
    assert "-wal" in result.quality()["unfinished_database"][1]
    assert (path.read_bytes(), wal.read_bytes()) == before
    writer.close()


def test_temporary_files_are_removed(
    tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    packed = tmp_path / "full.sqlite.gz"
    source = write_sqlite(tmp_path / "source.sqlite", full_export())
    packed.write_bytes(gzip.compress(source.read_bytes()))
    read(packed)
    assert list(scratch.iterdir()) == []


def fails(path: Path, tmp_path: Path) -> GapscopeError:
    with pytest.raises(GapscopeError) as caught:
        Result(path, tmp_path / "unused")
    assert path.name in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value


def test_files_that_are_no_export(tmp_path: Path) -> None:
    empty = tmp_path / "empty.sqlite"
    empty.touch()
    assert not NsysReader.probe(empty)
    assert fails(empty, tmp_path).slug == "empty-file"

    text = tmp_path / "text.sqlite"
    text.write_text("hello")
    assert not NsysReader.probe(text)
    assert fails(text, tmp_path).slug == "not-a-database"

    other = write_sqlite(tmp_path / "other.sqlite", {"users": [{"name": "x"}]})
    assert not NsysReader.probe(other)
    assert fails(other, tmp_path).slug == "not-an-nsys-export"

    bare = write_sqlite(tmp_path / "bare.sqlite", {"META_DATA_EXPORT": [{"name": "x"}]})
    assert NsysReader.probe(bare)
    assert fails(bare, tmp_path).slug == "no-cuda-trace"

    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"SQLite format 3\0" + bytes(84) + b"\xff" * 1000)
    assert fails(broken, tmp_path).slug == "corrupt-export"

    folder = write_parquetdir(tmp_path / "folder", {"users": [{"name": "x"}]})
    assert not NsysReader.probe(folder)
    assert fails(folder, tmp_path).slug == "not-an-nsys-export"

    missing = tmp_path / "missing.sqlite"
    assert not NsysReader.probe(missing)
    assert fails(missing, tmp_path).slug == "cannot-read"


def test_report_without_the_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "run 1.nsys-rep"
    report.write_bytes(b"report")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert NsysReader.probe(report)
    error = fails(report, tmp_path)
    assert error.slug == "nsys-not-found"
    assert f"nsys export --type sqlite --force-overwrite true --output '{tmp_path}" in error.hint


def fake_nsys(tmp_path: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    tool = tools / "nsys"
    tool.write_text(f"#!/bin/sh\n{body}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")


def test_report_is_exported_away_from_the_input(
    tmp_path: Path, read: Read, full: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = tmp_path / "full.sqlite"
    # Arguments: export --type sqlite --force-overwrite true --output TARGET REPORT
    fake_nsys(tmp_path, f'cp "{export}" "$7"', monkeypatch)
    folder = tmp_path / "reports"
    folder.mkdir()
    report = folder / "run.nsys-rep"
    report.write_bytes(b"report")
    assert read(report).all_rows() == full.all_rows()
    assert list(folder.iterdir()) == [report]


def test_report_that_does_not_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nsys(tmp_path, "exit 3", monkeypatch)
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"report")
    error = fails(report, tmp_path)
    assert error.slug == "nsys-export-failed"
    assert "code 3" in error.message


# --- the bulk reader ----------------------------------------------------------------------------


def test_bulk_and_salvage_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_sqlite(tmp_path / "e.sqlite", full_export(), typed=True)
    source = SqliteSource(path)
    columns: dict[str, nsys_tables.Kind] = {
        "start": "int",
        "text": "text",
        "textId": "int",
        "absent": "float",
    }
    fast = pa.Table.from_batches(source.batches("NVTX_EVENTS", columns))

    def refuse(*_: object) -> Iterator[pa.RecordBatch]:
        raise OSError
        yield

    monkeypatch.setattr(source, "_adbc_batches", refuse)
    slow = pa.Table.from_batches(source.batches("NVTX_EVENTS", columns))
    assert fast == slow
    assert not source.problems
    source.close()


def test_read_ahead_passes_errors_and_stops_early() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise KeyError("broken")

    steps = read_ahead(failing())
    assert next(steps) == 1
    with pytest.raises(KeyError):
        next(steps)

    fetched = []

    def endless() -> Iterator[int]:
        while True:
            fetched.append(1)
            yield 1

    steps = read_ahead(endless())
    next(steps)
    steps.close()
    assert len(fetched) == 2
