"""Reader of Chrome-trace JSON as written by torch.profiler (Kineto), plain or gzip."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from gapscope.errors import GapscopeError
from gapscope.ingest.base import SourceInfo
from gapscope.ingest.kineto_fields import Event
from gapscope.ingest.kineto_json import (
    CHUNK_BYTES,
    GZIP_MAGIC,
    LIMIT_BYTES,
    ByteSource,
    EventStream,
    looks_like_kineto,
)
from gapscope.ingest.kineto_metadata import TraceMetadata
from gapscope.ingest.kineto_quality import write_quality
from gapscope.ingest.kineto_rows import KinetoRows

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
        metadata = TraceMetadata(stream)
        write_quality(sink, counts, stream, metadata)
        metadata.write_process_groups(sink)
        process = metadata.process(rows.process_id)
        return SourceInfo(
            format=self.format,
            processes=[process],
            devices=metadata.devices(counts.devices, rows.process_id),
        )


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
