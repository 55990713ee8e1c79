"""Small captures that tests write, break and poison."""

from __future__ import annotations

import copy
import gzip
import json
import sqlite3
from functools import cache
from pathlib import Path
from typing import Any

SAMPLE = Path(__file__).resolve().parents[2] / "gapscope" / "sample" / "rank0.json.gz"

Json = dict[str, Any]
Rows = dict[str, list[dict[str, Any]]]

_MACHINE = 1 << 48  # what Nsight puts above the process id


@cache
def sample_text() -> bytes:
    """The start of the shipped sample, closed: real text of a real profiler, but small."""
    text = gzip.decompress(SAMPLE.read_bytes())
    end = text.index(b"\n  },\n", 150_000)
    return text[:end] + b"\n  }\n]\n}\n"


def kineto(rank: int | None = 0, steps: int = 2) -> Json:
    """One process, one stream: steps with an op, a launch and its kernel each."""
    events: list[Json] = [
        {"ph": "M", "name": "process_labels", "pid": 0, "args": {"labels": "GPU 0"}}
    ]
    for step in range(steps):
        at = 1_000.0 + 100 * step
        host = {"pid": 7, "tid": 8, "ph": "X"}
        events += [
            {**host, "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at, "dur": 90},
            {**host, "cat": "cpu_op", "name": "aten::mm", "ts": at + 5, "dur": 20, "args": {"External id": step + 1}},
            {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 6, "dur": 4,
             "args": {"correlation": step + 1, "External id": step + 1}},
            {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": at + 20, "dur": 30,
             "args": {"correlation": step + 1, "device": 0, "stream": 7, "context": 1, "External id": step + 1,
                      "grid": [1, 1, 1], "block": [32, 1, 1]}},
        ]  # fmt: skip
    trace: Json = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],
        "baseTimeNanoseconds": 10**18,
        "traceEvents": events,
    }
    if rank is not None:
        trace["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 2}
    return trace


def with_kernels(**fields: Any) -> Json:
    """`kineto` whose kernels carry other values; fields of `args` by name too."""
    trace = copy.deepcopy(kineto())
    for event in trace["traceEvents"]:
        if event.get("cat") == "kernel":
            for name, value in fields.items():
                (event["args"] if name in event["args"] else event)[name] = value
    return trace


def write_kineto(path: Path, trace: Json | None = None) -> Path:
    text = json.dumps(kineto() if trace is None else trace).encode()
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    return path


def nsys(rank: int | None = 0, steps: int = 2) -> Rows:
    """The same shape as `kineto`, as tables of an export."""
    pid = _MACHINE | (7 << 24)
    place = {"deviceId": 0, "contextId": 1, "globalPid": pid}
    kernels: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    ranges: list[dict[str, Any]] = []
    for step in range(steps):
        at = 1_000_000 + 100_000 * step
        ranges.append({"start": at, "end": at + 90_000, "eventType": 59, "text": f"step {step}",
                       "textId": None, "domainId": 0, "globalTid": pid | 9})  # fmt: skip
        calls.append({"start": at + 6_000, "end": at + 10_000, "eventClass": 0, "globalTid": pid | 9,
                      "correlationId": step + 1, "nameId": 2, "returnValue": 0})  # fmt: skip
        kernels.append({"start": at + 20_000, "end": at + 50_000, **place, "streamId": 7,
                        "correlationId": step + 1, "demangledName": 1, "shortName": 1,
                        "graphNodeId": None, "gridX": 1, "blockX": 32})  # fmt: skip
    tables: Rows = {
        "StringIds": [
            {"id": 1, "value": "gemm"},
            {"id": 2, "value": "cudaLaunchKernel_v7000"},
        ],
        "META_DATA_EXPORT": [{"name": "EXPORT_PRODUCT_VERSION", "value": "2025.3.2.0"}],
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 10**18, "systemClockNs": 5_000}],
        "CUPTI_ACTIVITY_KIND_KERNEL": kernels,
        "CUPTI_ACTIVITY_KIND_RUNTIME": calls,
        "NVTX_EVENTS": ranges,
    }
    if rank is not None:
        tables["META_DATA_CAPTURE"] = [
            {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": f'RANK="{rank}"'}
        ]
    return tables


def write_nsys(path: Path, tables: Rows | None = None) -> Path:
    connection = sqlite3.connect(path)
    for table, rows in (nsys() if tables is None else tables).items():
        names = list(rows[0]) if rows else ["start"]
        columns = ", ".join(f'"{name}"' for name in names)
        connection.execute(f'CREATE TABLE "{table}" ({columns})')
        marks = ",".join("?" * len(names))
        connection.executemany(
            f'INSERT INTO "{table}" VALUES ({marks})', [list(row.values()) for row in rows]
        )
    connection.commit()
    connection.close()
    return path
