"""Small exports of Nsight Systems that the tests write themselves, and what reading one gives."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gapscope.ingest.nsys import NsysReader
from gapscope.ingest.writer import StagingSink

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
        "PROFILER_OVERHEAD": [{"start": 1, "end": 3001, "globalTid": tid, "nameId": 5}],
        "CUPTI_ACTIVITY_KIND_OVERHEAD": [
            {"start": 5, "end": 4005, "globalTid": tid, "nameId": 5, "overheadType": 8}
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


def big_export() -> Rows:
    tables = full_export()
    tables["CUPTI_ACTIVITY_KIND_KERNEL"] = [kernel(k, k + 1) for k in range(20_000)]
    return tables


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
