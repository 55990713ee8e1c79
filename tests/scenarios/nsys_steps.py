"""Exports of Nsight Systems with steps of known length, as a rank of a large job would leave them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.ingest.nsys_export import Rows, global_pid, write_sqlite

MS = 1_000_000
_STRINGS = {
    1: "sm90_xmma_gemm_bf16",
    2: "cudaLaunchKernel_v7000",
    3: "ncclDevKernel_SendRecv",
    4: "CUPTI Buffer flush",
    5: "multi_tensor_apply_kernel_adam",
}


class Capture:
    """One process of one rank; times are ns of its own clock."""

    def __init__(self, rank: int | None, world: int | None, pid: int = 7) -> None:
        self.pid = pid
        self.tid = global_pid(pid) | 9
        settings = {"RANK": rank, "WORLD_SIZE": world}
        self.tables: Rows = {
            "StringIds": [{"id": key, "value": value} for key, value in _STRINGS.items()],
            "META_DATA_EXPORT": [{"name": "EXPORT_PRODUCT_VERSION", "value": "2025.3.2.0"}],
            "META_DATA_CAPTURE": [
                {"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": f'{name}="{value}"'}
                for name, value in settings.items()
                if value is not None
            ]
            or [{"name": "DEVICE_TYPE", "value": "Unix"}],
            "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 10**18, "systemClockNs": 5}],
            "TARGET_INFO_GPU": [{"id": 0, "name": "NVIDIA H100", "uuid": f"uuid-{rank}"}],
            "TARGET_INFO_CUDA_DEVICE": [{"gpuId": 0, "cudaId": 0, "pid": pid}],
            "CUPTI_ACTIVITY_KIND_KERNEL": [],
            "CUPTI_ACTIVITY_KIND_RUNTIME": [],
            "NVTX_EVENTS": [],
        }
        self._calls = 0

    def launch(self, name: int, stream: int, called: int, start: int, end: int) -> None:
        """A kernel and the call that launches it."""
        self._calls += 1
        self.tables["CUPTI_ACTIVITY_KIND_KERNEL"].append(
            {
                "start": start,
                "end": end,
                "deviceId": 0,
                "contextId": 1,
                "streamId": stream,
                "correlationId": self._calls,
                "globalPid": global_pid(self.pid),
                "demangledName": name,
                "shortName": name,
            }
        )
        self.tables["CUPTI_ACTIVITY_KIND_RUNTIME"].append(
            {
                "start": called,
                "end": called + 1000,
                "globalTid": self.tid,
                "correlationId": self._calls,
                "nameId": 2,
                "returnValue": 0,
            }
        )

    def range(self, text: str, start: int, end: int) -> None:
        """An NVTX push/pop range."""
        self.tables["NVTX_EVENTS"].append(
            {
                "start": start,
                "end": end,
                "eventType": 59,
                "globalTid": self.tid,
                "domainId": 0,
                "text": text,
                "textId": None,
            }
        )

    def overhead(self, start: int, end: int) -> None:
        """What the tool records of its own work."""
        row: dict[str, Any] = {"start": start, "end": end, "globalTid": self.tid, "nameId": 4}
        self.tables.setdefault("PROFILER_OVERHEAD", []).append(row)

    def step(self, number: int, at: int, length: int, compute: int, label: str = "step") -> int:
        """Compute, then a transfer to the end of the step; returns where it ends."""
        self.range(f"{label} {number}", at, at + length - 1)
        self.launch(1, 7, at + 1000, at + 5000, at + compute)
        self.launch(3, 20, at + 3000, at + compute, at + length)
        return at + length

    def write(self, path: Path) -> Path:
        """The export as a file."""
        return write_sqlite(path, self.tables, typed=True)
