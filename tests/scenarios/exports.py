"""Captures of a made-up rank, written as Nsight Systems exports, so that all of the reader takes part."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.ingest.nsys_export import NO_ID, call, global_pid, kernel, write_sqlite

MS = 1_000_000
PID = 7


@dataclass
class Capture:
    """Rows of one rank's export. Times are ns on the rank's own clock."""

    rank: int
    world: int
    host: str = "node0"
    utc_ns: int = 10**18
    device: str = "NVIDIA H200"
    uuid: str = "aaaa-bbbb"
    kernels: list[dict[str, Any]] = field(default_factory=list)
    copies: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    syncs: list[dict[str, Any]] = field(default_factory=list)
    ranges: list[dict[str, Any]] = field(default_factory=list)
    graphs: list[dict[str, Any]] = field(default_factory=list)
    _names: dict[str, int] = field(default_factory=dict)
    _correlation: int = 0

    def name(self, text: str) -> int:
        return self._names.setdefault(text, 100 + len(self._names))

    def called(self, function: str, at: int, until: int, tid: int = 9) -> int:
        """A call of CUDA; its correlation id."""
        self._correlation += 1
        made = call(
            at,
            until,
            self.name(function),
            PID,
            correlationId=self._correlation,
            globalTid=global_pid(PID) | tid,
        )
        self.calls.append(made)
        return self._correlation

    def kernel(self, name: str, stream: int, start: int, end: int, *, issued: int) -> None:
        correlation = self.called("cudaLaunchKernel_v7000", issued - 5_000, issued)
        made = kernel(start, end, self.name(name), PID, streamId=stream, correlationId=correlation)
        self.kernels.append(made)

    def nodes(self, launch: int, start: int, end: int, *, name: str, node: int) -> None:
        """A kernel that a graph launch started, in a capture of its nodes."""
        made = kernel(start, end, self.name(name), PID, correlationId=launch)
        self.kernels.append({**made, "graphNodeId": (4 << 32) | node})

    def copy(
        self,
        stream: int,
        start: int,
        end: int,
        *,
        issued: int,
        size: int,
        kind: int = 1,
        src: int = 1,
        dst: int = 2,
    ) -> None:
        """By default from pinned memory to the device."""
        correlation = self.called("cudaMemcpyAsync_v3020", issued - 5_000, issued)
        place = {"deviceId": 0, "contextId": 1, "globalPid": global_pid(PID)}
        self.copies.append(
            {
                **place, "start": start, "end": end, "streamId": stream,
                "correlationId": correlation, "bytes": size, "copyKind": kind, "srcKind": src,
                "dstKind": dst,
            }
        )  # fmt: skip

    def wait(self, waiting: int, recording: int, at: int) -> None:
        """An event recorded on one stream, waited for by another."""
        place = {"deviceId": 0, "contextId": 1, "globalPid": global_pid(PID)}
        key = len(self.records) + 1
        shared = {**place, "eventId": 5, "eventSyncId": key}
        recorded = self.called("cudaEventRecord_v3020", at, at + 1_000)
        self.records.append(
            {**shared, "streamId": recording, "correlationId": recorded, "timestamp": 0}
        )
        waited = self.called("cudaStreamWaitEvent_v3020", at + 1_000, at + 2_000)
        self.syncs.append(
            {
                **shared, "streamId": waiting, "correlationId": waited, "syncType": 2,
                "start": at + 1_000, "end": at + 2_000,
            }
        )  # fmt: skip

    def synchronize(self, start: int, end: int) -> None:
        """The host waits for the device."""
        correlation = self.called("cudaDeviceSynchronize_v3020", start, end)
        place = {"deviceId": 0, "contextId": 1, "globalPid": global_pid(PID)}
        self.syncs.append(
            {
                **place, "eventId": NO_ID, "eventSyncId": NO_ID, "streamId": NO_ID,
                "correlationId": correlation, "syncType": 4, "start": start, "end": end,
            }
        )  # fmt: skip

    def range(
        self, text: str, start: int, end: int | None, domain: int = 0, kind: int = 59
    ) -> None:
        """A range of NVTX; kind 75 names a domain."""
        self.ranges.append(
            {
                "globalTid": global_pid(PID) | 9, "domainId": domain, "text": text, "textId": None,
                "start": start, "end": end, "eventType": kind,
            }
        )  # fmt: skip

    def write(self, path: Path) -> Path:
        tables = {
            "StringIds": [{"id": key, "value": text} for text, key in self._names.items()],
            "META_DATA_EXPORT": [{"name": "EXPORT_PRODUCT_VERSION", "value": "2025.3.2.0"}],
            "META_DATA_CAPTURE": [
                {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": f'RANK="{self.rank}"'},
                {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": f'WORLD_SIZE="{self.world}"'},
            ],
            "TARGET_INFO_SYSTEM_ENV": [{"name": "Hostname", "value": self.host}],
            "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": self.utc_ns, "systemClockNs": 0}],
            "TARGET_INFO_GPU": [{"id": 2, "name": self.device, "uuid": self.uuid}],
            "TARGET_INFO_CUDA_DEVICE": [{"gpuId": 2, "cudaId": 0, "pid": PID}],
            "CUPTI_ACTIVITY_KIND_KERNEL": self.kernels,
            "CUPTI_ACTIVITY_KIND_MEMCPY": self.copies,
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": self.graphs,
            "CUPTI_ACTIVITY_KIND_RUNTIME": self.calls,
            "CUPTI_ACTIVITY_KIND_CUDA_EVENT": self.records,
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": self.syncs,
            "NVTX_EVENTS": self.ranges,
        }
        return write_sqlite(path, {name: rows for name, rows in tables.items() if rows})
