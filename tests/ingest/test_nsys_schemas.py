"""The Nsight Systems reader: tables and columns that a version lacks."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from .nsys_export import CANARY, Read, Rows, call, full_export, global_pid, kernel, write_sqlite


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
