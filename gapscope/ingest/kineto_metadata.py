"""The members of a Kineto trace beside its events: rank, versions, devices, process groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from gapscope.ingest.base import DeviceInfo, ProcessInfo
from gapscope.ingest.kineto_fields import (
    DeviceProperties,
    DistributedInfo,
    Event,
    Metadata,
    decode_member,
)
from gapscope.ingest.kineto_repair import repair

if TYPE_CHECKING:
    from gapscope.ingest.base import Sink
    from gapscope.ingest.kineto_json import EventStream


class TraceMetadata:
    """The trace object's own members, from before and after the events."""

    def __init__(self, stream: EventStream[Event]) -> None:
        self.unreadable: list[str] = []
        self.second_list = False
        self._members: dict[str, Raw] = {}
        for part, text in (("before", stream.head), ("after", stream.tail)):
            try:
                found = msgspec.json.decode(text, type=Metadata)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                try:
                    found = msgspec.json.decode(repair(text)[0], type=Metadata)
                except (msgspec.MsgspecError, ValueError, RecursionError):
                    self.unreadable.append(part)
                    continue
            for name in Metadata.__struct_fields__:
                raw = getattr(found, name)
                if bytes(raw) not in (b"", b"{}", b"null"):
                    self._members[name] = raw
        self.second_list = "trace_events" in self._members
        self.distributed = (
            decode_member(self._raw("distributed_info"), DistributedInfo) or DistributedInfo()
        )

    def process(self, process_id: int | None) -> ProcessInfo:
        """The process with what the trace says about it."""
        rank, nccl = self.distributed.rank, self.distributed.nccl_version
        return ProcessInfo(
            process_id=process_id,
            rank=rank,
            rank_source=None if rank is None else "distributedInfo",
            world_size=self.distributed.world_size,
            tool_version=self._tool(),
            cuda_driver=self._version("cuda_driver_version", "hip_driver_version"),
            cuda_runtime=self._version("cuda_runtime_version", "hip_runtime_version"),
            nccl_version=None if nccl is None else str(nccl),
            clock_base_ns=decode_member(self._raw("base_time_ns"), int),
        )

    def devices(self, used: set[int], process_id: int | None) -> list[DeviceInfo]:
        """The devices that ran something; the trace also lists those that did not."""
        known = decode_member(self._raw("device_properties"), list[DeviceProperties]) or []
        by_id = {entry.id: entry for entry in known if entry.id is not None}
        models = {entry.name for entry in known}
        # ROCm numbers devices in events by agent, not by ordinal: only the model is certain then.
        model = models.pop() if len(models) == 1 else None
        infos = []
        for device in sorted(used):
            entry = by_id.get(device)
            infos.append(
                DeviceInfo(
                    device=device,
                    process_id=process_id,
                    uuid=None if entry is None else entry.uuid,
                    name=model if entry is None else entry.name,
                )
            )
        return infos

    def write_process_groups(self, sink: Sink) -> None:
        """Rows of the process groups that this rank belongs to."""
        groups = self.distributed.pg_config or []
        if groups:
            sink.write(
                "process_group",
                {
                    "group_name": [group.pg_name for group in groups],
                    "group_desc": [group.pg_desc for group in groups],
                    "backend": [group.backend_config for group in groups],
                    "group_size": [group.pg_size for group in groups],
                    # Spelled as c10d spells it in a collective's arguments.
                    "group_ranks": [
                        group.ranks
                        if group.ranks is None or isinstance(group.ranks, str)
                        else str(group.ranks)
                        for group in groups
                    ],
                },
            )

    def _raw(self, name: str) -> Raw:
        return self._members.get(name, Raw(b"null"))

    def _text(self, name: str) -> str | None:
        # msgspec takes unions as types; its stub of `type` does not.
        value = decode_member(self._raw(name), str | int | float)  # type: ignore[arg-type]
        return None if value is None else str(value)[:64]

    def _version(self, cuda: str, hip: str) -> str | None:
        found = self._text(cuda)
        if found is not None:
            return found
        found = self._text(hip)
        return None if found is None else f"HIP {found}"

    def _tool(self) -> str | None:
        parts = []
        for label, names in (
            ("torch", ("torch_version", "pytorch_version")),
            ("CUPTI", ("cupti_version",)),
            ("roctracer", ("roctracer_version",)),
            ("rocprofiler-sdk", ("rocprofiler_sdk_version",)),
        ):
            found = next((text for name in names if (text := self._text(name))), None)
            if found is not None:
                parts.append(f"{label} {found}")
        return ", ".join(parts) or None
