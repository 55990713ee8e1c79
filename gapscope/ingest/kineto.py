"""Reader of Chrome-trace JSON as written by torch.profiler (Kineto), plain or gzip."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from gapscope.errors import GapscopeError
from gapscope.ingest.base import DeviceInfo, ProcessInfo, SourceInfo
from gapscope.ingest.kineto_fields import (
    DeviceProperties,
    DistributedInfo,
    Event,
    Metadata,
    decode_member,
)
from gapscope.ingest.kineto_json import (
    CHUNK_BYTES,
    GZIP_MAGIC,
    LIMIT_BYTES,
    ByteSource,
    EventStream,
    looks_like_kineto,
)
from gapscope.ingest.kineto_repair import repair
from gapscope.ingest.kineto_rows import Counts, KinetoRows

if TYPE_CHECKING:
    from pathlib import Path

    from gapscope.ingest.base import Sink

_PROBE_BYTES = 16 << 10
_PROBE_TEXT_BYTES = 256 << 10
_SUFFIXES = (".json", ".json.gz")
_TRACE_SUFFIXES = (".pt.trace.json", ".pt.trace.json.gz")


class KinetoReader:
    """Reads one Kineto trace: a process, its host events and its device events."""

    format = "kineto"

    def __init__(self, chunk_bytes: int = CHUNK_BYTES, limit_bytes: int = LIMIT_BYTES) -> None:
        self._chunk_bytes = chunk_bytes
        self._limit_bytes = limit_bytes

    @staticmethod
    def probe(path: Path) -> bool:
        """Whether the path looks like a Kineto trace, by content; reads at most 16 KiB."""
        try:
            if not path.is_file():
                return False
            with path.open("rb") as file:
                start = file.read(_PROBE_BYTES)
        except OSError:
            return False
        name = path.name.lower()
        if not start:  # an empty trace is an error to report, not a file to pass over
            return name.endswith(_SUFFIXES)
        text = start
        if start.startswith(GZIP_MAGIC):
            try:
                text = zlib.decompressobj(wbits=31).decompress(start, _PROBE_TEXT_BYTES)
            except zlib.error:
                return name.endswith(_SUFFIXES)
        return looks_like_kineto(text) or (
            name.endswith(_TRACE_SUFFIXES) and text.lstrip()[:1] in (b"{", b"[")
        )

    def read(self, path: Path, sink: Sink) -> SourceInfo:
        """Read the whole trace. Raises GapscopeError when nothing of it can be used."""
        try:
            source = ByteSource(path, min(self._chunk_bytes, 1 << 20), sink.progress)
            stream = EventStream(source, Event, self._chunk_bytes, self._limit_bytes)
            rows = KinetoRows(sink)
            for events in stream:
                rows.add(events)
        except OSError as error:
            raise GapscopeError(
                "unreadable-input",
                f"{path.name}: {error.strerror or 'cannot be read'}",
                "check that the file exists and that you may read it",
            ) from error
        counts = rows.counts
        if counts.events == 0:
            raise _nothing_usable(path.name, stream)
        if counts.without_phase == counts.events:
            raise GapscopeError(
                "not-a-kineto-trace",
                f"{path.name}: no element of its list has a `ph`",
                "give a file written by torch.profiler's export_chrome_trace",
            )
        rows.finish()
        metadata = _Metadata(stream)
        _write_quality(sink, counts, stream, metadata)
        metadata.write_process_groups(sink)
        process = metadata.process(rows.process_id)
        return SourceInfo(
            format=self.format,
            processes=[process],
            devices=metadata.devices(counts.devices, rows.process_id),
        )


class _Metadata:
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
        self.second_list = "traceEvents" in self._members
        self.distributed = (
            decode_member(self._raw("distributedInfo"), DistributedInfo) or DistributedInfo()
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
            clock_base_ns=decode_member(self._raw("baseTimeNanoseconds"), int),
        )

    def devices(self, used: set[int], process_id: int | None) -> list[DeviceInfo]:
        """The devices that ran something; the trace also lists those that did not."""
        known = decode_member(self._raw("deviceProperties"), list[DeviceProperties]) or []
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


def _nothing_usable(name: str, stream: EventStream[Event]) -> GapscopeError:
    if stream.truncated is not None:
        cut = stream.truncated
        return GapscopeError(
            "truncated-input",
            f"{name}: {cut.reason} (byte {cut.offset} of the JSON text); no event is complete",
            "capture the rank again, or leave the file out",
        )
    if stream.unreadable:
        return GapscopeError(
            "not-a-kineto-trace",
            f"{name}: none of its {stream.unreadable} list elements is a trace event",
            "give a file written by torch.profiler's export_chrome_trace",
        )
    return GapscopeError(
        "empty-input",
        f"{name}: the trace holds no events",
        "check that the profiler was active when the trace was exported",
    )


def _write_quality(
    sink: Sink, counts: Counts, stream: EventStream[Event], metadata: _Metadata
) -> None:
    if stream.truncated is not None:
        sink.quality(
            "truncated",
            "warn",
            f"{stream.truncated.reason}: byte {stream.truncated.offset} of the JSON text; "
            f"{counts.events} complete events are kept, later events and metadata are lost",
            "whole-capture figures",
        )
    elif stream.source.problem is not None:
        sink.quality("truncated", "warn", f"{stream.source.problem}; the JSON text is complete")
    elif stream.unclosed_array:
        sink.quality("truncated", "info", "the event list is not closed; every event is complete")
    if stream.repaired:
        sink.quality(
            "json_repaired",
            "warn",
            f"{stream.repaired} places that are not valid JSON (NaN, control characters, "
            "invalid escapes or UTF-8) were replaced",
        )
    unreadable = counts.unreadable + stream.unreadable
    if unreadable:
        sink.quality(
            "unreadable_events",
            "warn",
            f"{unreadable} of {counts.events + stream.unreadable} events have fields that "
            "cannot be read and are left out",
            "exact event counts",
        )
    if metadata.unreadable:
        places = " and ".join(metadata.unreadable)
        sink.quality("metadata", "warn", f"the metadata {places} the events cannot be read")
    if metadata.second_list:
        sink.quality(
            "duplicate_events_list",
            "warn",
            "the trace has a second traceEvents list; only the first is read",
        )
    if counts.negative or counts.without_duration:
        sink.quality(
            "negative_durations",
            "warn",
            f"{counts.negative} events end before they start, {counts.without_duration} have no "
            "duration; they are kept and not used in unions",
        )
    _overlong_quality(sink, counts)
    skipped = sum(counts.skipped.values())
    if skipped:
        kinds = ", ".join(f"{count} {kind}" for kind, count in counts.skipped.most_common(12))
        sink.quality(
            "skipped_events", "info", f"{skipped} of {counts.events} events are not used: {kinds}"
        )
    if len(counts.host_pids) > 1:
        sink.quality(
            "several_processes",
            "warn",
            f"host events come from {len(counts.host_pids)} processes; device events are given "
            "to the first",
            "launch join",
        )
    if metadata.distributed.rank is None:
        sink.quality("rank_identity", "info", "the trace has no distributedInfo.rank")
    if counts.device_ops == 0:
        sink.quality(
            "no_device_ops",
            "warn",
            "the trace has no kernel, memcpy or memset events",
            "device budget",
        )
    else:
        _edge_quality(sink, counts)
    _collective_quality(sink, counts)


def _overlong_quality(sink: Sink, counts: Counts) -> None:
    if counts.first_start is None or counts.last_start is None:
        return
    span = counts.last_start - counts.first_start
    overlong = [length for length in counts.long_ops if length > span]
    if overlong:
        sink.quality(
            "overlong_durations",
            "warn",
            f"{len(overlong)} device ops or API calls last longer than the capture "
            f"(longest {max(overlong)} ns); they are kept",
            "device budget",
        )


def _edge_quality(sink: Sink, counts: Counts) -> None:
    # Kineto leaves out waits on streams that carried no device op so far.
    dropped = counts.wait_calls - counts.waits
    missing = (
        f"; {dropped} of {counts.wait_calls} stream-wait calls have no wait row"
        if dropped > 0
        else ""
    )
    if counts.waits:
        share = 100.0 * counts.resolved_waits / counts.waits
        detail = (
            f"{counts.resolved_waits} of {counts.waits} stream waits ({share:.0f} %) say which "
            f"event record they wait for{missing}"
        )
        if counts.resolved_waits == counts.waits and not missing:
            sink.quality("event_edges", "ok", detail)
        else:
            sink.quality("event_edges", "warn", detail, "exact blocking time")
    elif counts.sync_rows:
        sink.quality(
            "event_edges",
            "warn" if missing else "ok",
            f"{counts.sync_rows} cuda_sync events, no stream wait among them{missing}",
            "exact blocking time" if missing else None,
        )
    else:
        sink.quality(
            "event_edges",
            "info",
            f"no cuda_sync events: blocking is a lower bound{missing}",
            "exact blocking time",
        )


def _collective_quality(sink: Sink, counts: Counts) -> None:
    kernels = counts.communication_kernels
    if not kernels and not counts.collectives:
        sink.quality("collectives", "info", "no communication kernels, no collectives")
    elif not counts.collectives:
        sink.quality(
            "collectives",
            "warn",
            f"{kernels} communication kernels carry no collective arguments and no "
            "record_param_comms ops exist",
            "collective matching",
        )
    else:
        incomplete = counts.collective_source == "kernel arguments" and counts.collectives < kernels
        sink.quality(
            "collectives",
            "warn" if incomplete else "ok",
            f"{counts.collectives} collectives from {counts.collective_source}, "
            f"{kernels} communication kernels",
            "collective matching" if incomplete else None,
        )
