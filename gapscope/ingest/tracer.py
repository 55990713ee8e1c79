"""Reader of GapScope's own tracer: one directory of Arrow IPC streams a traced process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gapscope.errors import GapscopeError
from gapscope.ingest.base import DeviceInfo, ProcessInfo, Sink, SourceInfo
from gapscope.ingest.event_edges import joined_by_event_id
from gapscope.ingest.instrument import write_record
from gapscope.ingest.nsys_privacy import allowed_settings
from gapscope.ingest.tracer_rows import TracerRows
from gapscope.ingest.tracer_streams import FORMAT, Streams, looks_like_trace, read_meta

# Counters of meta.json whose records are missing from the streams.
_LOST = {
    "records_dropped": "records dropped by CUPTI",
    "buffers_refused": "requests for a buffer refused",
    "buffers_discarded": "buffers discarded",
    "buffers_taken_over": "buffers gone to another client that took over CUPTI's callbacks",
    "ops_without_time": "device ops without times",
    "nvtx_dropped": "NVTX calls dropped",
    "rows_unwritten": "rows that could not be written",
}


class TracerReader:
    """Implements `ingest.base.Reader` for what `gapscope trace` writes."""

    format = "gapscope"

    @staticmethod
    def probe(path: Path) -> bool:
        """Whether the path is the directory of one traced process."""
        return looks_like_trace(path)

    def read(self, path: Path, sink: Sink) -> SourceInfo:
        """Read all streams. Raises GapscopeError when nothing of them can be used."""
        meta = read_meta(path)
        _check(path, meta)
        total = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
        expected = max(_count(meta, "cost", "rows"), 1)
        streams = Streams(path)

        def advance() -> None:
            done = sum(rows.written.values())
            sink.progress(min(total, total * done // expected), total)

        process_id = _number(meta, "pid") or 0
        rows = TracerRows(streams, sink, process_id, advance)
        rows.write()
        if not any(rows.written.values()):
            raise GapscopeError(
                "no-cuda-trace",
                f"{path.name}: the tracer recorded nothing: {_reason(meta)}"[:300],
                "see to that, or leave the directory out",
            )
        anchors = _write_clock(meta, streams, sink)
        reference = write_record(path, sink)
        _quality(meta, streams, rows, sink)
        devices = [
            DeviceInfo(
                row["device"],
                process_id,
                _prefixed(rows.names.texts.get(row["uuid"])),
                rows.names.texts.get(row["name"]),
            )
            for row in streams.table("device")
            if row["device"] in rows.devices
        ]
        sink.progress(total, total)
        process = _process(meta, process_id, anchors, sink)
        process.clock_reference = reference
        return SourceInfo(self.format, [process], devices)


def why_idle(path: Path) -> str:
    """Why the process of this directory recorded nothing, as the tracer says it."""
    return _reason(read_meta(path))[:200]


def _reason(meta: dict[str, Any]) -> str:
    return str(meta.get("reason") or "") or "the process used no device"


def _check(path: Path, meta: dict[str, Any]) -> None:
    if not meta:
        raise GapscopeError(
            "corrupt-trace", f"{path.name}: meta.json cannot be read", "trace the program again"
        )
    if meta.get("format") != FORMAT:
        raise GapscopeError(
            "trace-version",
            f"{path.name}: written in format {str(meta.get('format'))[:40]}, this reads {FORMAT}",
            "use the gapscope that belongs to the tracer",
        )


def _process(
    meta: dict[str, Any], process_id: int, clock_base_ns: int | None, sink: Sink
) -> ProcessInfo:
    environment = meta.get("environment")
    pairs = environment.items() if isinstance(environment, dict) else ()
    texts = {name: value for name, value in pairs if isinstance(value, str)}
    settings, dropped = allowed_settings({process_id: texts})
    if dropped:
        sink.quality(
            "environment",
            "info",
            f"settings left out because of their value: {', '.join(dropped)}",
        )
    sink.write("environment", {"name": list(settings), "value": list(settings.values())})
    rank = _number(meta, "rank")
    if rank is None:
        sink.quality("rank_identity", "info", "the environment of the process names no rank")
    driver = _number(meta, "driver_version")
    return ProcessInfo(
        process_id=process_id,
        hostname=_label(meta.get("hostname")),
        rank=rank,
        rank_source=_label(meta.get("rank_variable")) if rank is not None else None,
        world_size=_number(meta, "world_size"),
        tool_version=_label(meta.get("tracer_version")),
        cuda_driver=str(driver) if driver else None,
        clock_base_ns=clock_base_ns,
    )


def _write_clock(meta: dict[str, Any], streams: Streams, sink: Sink) -> int | None:
    """Clock anchors; returns the Unix time of trace time 0, which is that of CLOCK_MONOTONIC."""
    start = meta.get("clock_start")
    pairs = []
    if isinstance(start, dict):
        first = _number(start, "monotonic_ns"), _number(start, "realtime_ns")
        if first[0] is not None and first[1] is not None:
            pairs.append((first[0], first[1]))
    pairs += [(row["monotonic_ns"], row["realtime_ns"]) for row in streams.table("clock")]
    if not pairs:
        return None
    sink.write(
        "clock_anchor",
        {
            "ts_ns": [monotonic for monotonic, _ in pairs],
            "kind": ["unix"] * len(pairs),
            "value_ns": [realtime for _, realtime in pairs],
        },
    )
    monotonic, realtime = pairs[0]
    return realtime - monotonic


def _quality(meta: dict[str, Any], streams: Streams, rows: TracerRows, sink: Sink) -> None:
    written = rows.written
    state = str(meta.get("state") or "unknown")
    if state in ("standing back", "no cupti"):
        sink.quality(
            "tracer_state",
            "fail",
            f"the tracer recorded no device: {str(meta.get('reason') or state)[:200]}",
            "everything about the device",
        )
    elif state != "finished":
        sink.quality(
            "tracer_state",
            "warn",
            "the process ended without a word (killed, or by _exit): what it recorded in its last "
            "moments is not in the streams",
            "the end of the capture",
        )
    if streams.broken:
        detail = ", ".join(f"{table} after {count} rows" for table, count in streams.broken.items())
        sink.quality(
            "truncated",
            "warn",
            f"streams that break off: {detail}; every whole batch is kept",
            "whole-capture figures",
        )
    lost = {text: _count(meta, "loss", key) for key, text in _LOST.items()}
    lost = {text: count for text, count in lost.items() if count}
    if lost:
        detail = ", ".join(f"{count} {text}" for text, count in lost.items())
        sink.quality("dropped_events", "warn", detail, "counts and idle time, as far as lost")
    else:
        sink.quality("dropped_events", "ok", "the tracer counted no loss")
    if rows.names.unresolved:
        sink.quality("missing_name", "warn", f"no name for {rows.names.unresolved} rows")
    if not written["gpu_op"] and state not in ("standing back", "no cupti"):
        sink.quality(
            "missing_gpu_op", "fail", "no device activity in the capture", "all about the device"
        )
    if not written["range"]:
        sink.quality(
            "missing_range",
            "info",
            "no NVTX ranges in the capture; annotations in the program add them",
            "steps and modules from ranges",
        )
    waits, records = written["stream_wait"], written["event_record"]
    without_id = waits - rows.waits_with_id
    if waits and records and not rows.waits_with_id and not rows.records_with_id:
        joined_by_event_id(waits, records, sink)
    elif without_id:
        sink.quality(
            "event_edges",
            "warn",
            f"{without_id} of {waits} stream waits carry no event sync id; blocking is a lower "
            "bound",
            "event edges of these waits",
        )
    else:
        sink.quality("event_edges", "ok", f"{waits} stream waits, {records} records")
    if written["graph"]:
        sink.quality(
            "graph_opaque",
            "warn",
            f"{written['graph']} CUDA graph launches are one record each; trace with "
            "`--graphs node` for their kernels",
            "kernels, classes and edges inside graphs",
        )
    if meta.get("simulated") is True:
        sink.quality(
            "simulated",
            "info",
            "`gapscope simulate` made this trace; its truth lies beside it",
            "anything about a real machine",
        )
    if meta.get("mps_enabled") is True:
        sink.quality("mps", "info", "the device was shared through MPS")
    sink.quality(
        "tool_overhead",
        "info",
        f"{rows.tool_overhead_ns / 1e6:.3f} ms of CUPTI overhead recorded (sum over threads); the "
        f"thread that writes took {_count(meta, 'cost', 'writer_cpu_ns') / 1e6:.3f} ms of CPU",
    )


def _number(values: dict[str, Any], key: str) -> int | None:
    value = values.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _count(meta: dict[str, Any], group: str, key: str) -> int:
    values = meta.get(group)
    return (_number(values, key) or 0) if isinstance(values, dict) else 0


def _label(value: Any) -> str | None:
    """A short name; anything with a path in it is not one."""
    if not isinstance(value, str) or not 0 < len(value) <= 128 or "/" in value:
        return None
    return " ".join(value.split())


def _prefixed(uuid: str | None) -> str | None:
    return None if uuid is None else f"GPU-{uuid}"
