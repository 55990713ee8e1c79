"""Reader of Nsight Systems captures: `.sqlite` (gzip too), `parquetdir` exports, `.nsys-rep`."""

from __future__ import annotations

import re
from pathlib import Path

from gapscope.errors import GapscopeError
from gapscope.ingest.base import Sink, SourceInfo
from gapscope.ingest.event_edges import joined_by_event_id
from gapscope.ingest.nsys_columns import NVTX
from gapscope.ingest.nsys_meta import (
    devices,
    processes,
    read_metadata,
    write_clock,
    write_diagnostics,
    write_streams,
)
from gapscope.ingest.nsys_open import ACTIVITY_PREFIX, looks_like_nsys, open_export
from gapscope.ingest.nsys_rows import (
    EVENT,
    GRAPH,
    KERNEL,
    MEMCPY,
    MEMSET,
    METRICS,
    OVERHEADS,
    RUNTIME,
    SYNC,
    RowMapper,
    map_rows,
)
from gapscope.ingest.nsys_tables import TableSource

DEVICE_TABLES = (KERNEL, MEMCPY, MEMSET, GRAPH)
READ_TABLES = (*DEVICE_TABLES, RUNTIME, SYNC, EVENT, NVTX, METRICS, *OVERHEADS)
# At least one of these makes an export worth reading.
USEFUL_TABLES = frozenset({*DEVICE_TABLES, RUNTIME, NVTX, METRICS})
CAPTURE_COMMAND = "nsys profile -t cuda,nvtx --cuda-event-trace=false"

_LOST = re.compile(
    r"\b(?:drop\w*|lost|discard\w*|overflow\w*|truncat\w*|missing|out of memory|exceed\w*)\b",
    re.IGNORECASE,
)
# Printed for every capture that ends before the process does.
_MAYBE_LOST = re.compile(r"\bNot all .* events might have been collected", re.IGNORECASE)


class NsysReader:
    """Implements `ingest.base.Reader` for Nsight Systems."""

    format = "nsys"

    @staticmethod
    def probe(path: Path) -> bool:
        """Whether the path is a capture or an export of Nsight Systems."""
        return looks_like_nsys(path)

    def read(self, path: Path, sink: Sink) -> SourceInfo:
        """Read the whole capture. Raises GapscopeError when nothing of it can be used."""
        total = _size(path)
        with open_export(path, sink.scratch()) as opened:
            source = opened.source
            _check_tables(path, source)
            for note in opened.notes:
                sink.quality(*note)
            meta = read_metadata(source)
            write_clock(meta, sink)
            expected = sum(source.estimate(table) for table in READ_TABLES)
            done = 0

            def advance(count: int) -> None:
                nonlocal done
                done += count
                sink.progress(min(total, total * done // max(expected, 1)), total)

            mapper = map_rows(source, sink, advance)
            _check_rows(path, source, mapper)
            write_streams(source, mapper.observed, sink)
            messages = write_diagnostics(source, meta, sink)
            info = SourceInfo(
                self.format,
                processes(meta, mapper.observed, sink),
                devices(source, mapper.observed),
            )
            _missing_tables(mapper, source, sink)
            _call_stacks(mapper, sink)
            _event_edges(mapper, source, sink)
            _losses(mapper, source, sink)
            _overhead(mapper, sink)
            _messages(messages, sink)
            sink.progress(total, total)
        return info


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(file.stat().st_size for file in path.glob("*.parquet"))
    return path.stat().st_size if path.exists() else 0


def _check_tables(path: Path, source: TableSource) -> None:
    if source.tables & USEFUL_TABLES:
        return
    if "META_DATA_EXPORT" in source.tables or any(
        table.startswith(ACTIVITY_PREFIX) for table in source.tables
    ):
        raise GapscopeError(
            "no-cuda-trace",
            f"{path.name}: an Nsight Systems export without kernels, API calls, NVTX or metrics",
            f"capture again with `{CAPTURE_COMMAND}`",
        )
    raise GapscopeError(
        "not-an-nsys-export",
        f"{path.name}: no {ACTIVITY_PREFIX}* table among its {len(source.tables)} tables",
        "export with `nsys export --type sqlite` and ingest that file",
    )


def _check_rows(path: Path, source: TableSource, mapper: RowMapper) -> None:
    """Refuse a broken file of which no activity at all could be read."""
    if source.problems and not any(mapper.written.values()):
        problem = source.problems[0]
        raise GapscopeError(
            "corrupt-export",
            f"{path.name}: table {problem.table}: {problem.message}",
            "export it again with `nsys export --type sqlite --force-overwrite true`",
        )


def _missing_tables(mapper: RowMapper, source: TableSource, sink: Sink) -> None:
    written = mapper.written
    if not written["gpu_op"]:
        sink.quality(
            "missing_gpu_op",
            "fail",
            f"no device activity in the capture; capture with `{CAPTURE_COMMAND}`",
            "everything about the device",
        )
    if not written["api_call"]:
        sink.quality(
            "missing_api_call",
            "warn",
            "no CUDA API calls in the capture: when a device op was issued is unknown",
            "launch-starved time, R1",
        )
    if not written["range"]:
        sink.quality(
            "missing_range",
            "info",
            "no NVTX ranges in the capture; `-t nvtx` and annotations in the program add them",
            "steps and modules from ranges",
        )
    unknown = {table: count for table, count in mapper.unknown_names.items() if count}
    if unknown:
        why = "" if "StringIds" in source.tables else "table StringIds is missing: "
        detail = ", ".join(f"{count} rows of {table}" for table, count in unknown.items())
        sink.quality("missing_name", "warn", f"{why}no name for {detail}", "kernel classes")
    if "StringIds" not in source.tables and not unknown and written["gpu_op"]:
        sink.quality("missing_name", "info", "table StringIds is missing")
    _short_names(mapper, source, sink)
    _operating_system(source, sink)
    others = sorted(
        table
        for table in source.tables
        if re.fullmatch(ACTIVITY_PREFIX + r"[A-Z0-9_]{1,40}", table) and table not in READ_TABLES
    )
    if others:
        sink.quality("tables_not_read", "info", f"not kept: {', '.join(others)}")


def _short_names(mapper: RowMapper, source: TableSource, sink: Sink) -> None:
    """What has no text, or not all of it, that other versions of the export have."""
    if mapper.written["kernel"] and "demangledName" not in source.columns(KERNEL):
        sink.quality(
            "kernel_names",
            "info",
            "kernels have short names only, without template arguments",
            "kernel classes that a template argument tells, such as optimizer",
        )
    if mapper.unnamed_ranges:
        sink.quality(
            "range_names",
            "info",
            f"{mapper.unnamed_ranges} of {mapper.written['range']} NVTX ranges have no text",
            "steps and modules from these ranges",
        )
    if mapper.unnamed_overheads:
        sink.quality(
            "overhead_names",
            "info",
            f"{mapper.unnamed_overheads} of {mapper.written['overhead']} records of profiler "
            "activity do not say what it did",
            "which steps the profiler began or emptied its buffers in",
        )


def _operating_system(source: TableSource, sink: Sink) -> None:
    """What would tell why a launching thread did not run; nothing of it is kept."""
    calls = source.count("OSRT_API")
    sink.quality(
        "osrt_api",
        "info",
        f"{calls} OS runtime calls are in the capture and not kept"
        if calls
        else "no OS runtime calls in the capture (`-t osrt`)",
        "what a thread outside of CUDA calls waited for",
    )
    switches = source.count("SCHED_EVENTS")
    sink.quality(
        "thread_scheduling",
        "info",
        f"{switches} scheduling events are in the capture and not kept"
        if switches
        else "no scheduling events in the capture (`--cpuctxsw=process-tree`)",
        "whether a launching thread waited for a processor",
    )


def _call_stacks(mapper: RowMapper, sink: Sink) -> None:
    """How many calls carry a stack: another rate than that of launches found for device ops."""
    calls = mapper.written["api_call"]
    if not calls:
        return
    linked = mapper.calls_with_stack
    sink.quality(
        "call_stack_link",
        "info",
        f"{linked} of {calls} CUDA API calls ({100 * linked / calls:.1f} %) carry a call stack",
        None if linked else "where in the source a launch comes from",
    )


def _event_edges(mapper: RowMapper, source: TableSource, sink: Sink) -> None:
    waits, records = mapper.written["stream_wait"], mapper.written["event_record"]
    if SYNC not in source.tables:
        sink.quality(
            "event_edges",
            "info",
            "no synchronization records in the capture: stream waits are unknown",
            "event edges; blocking is a lower bound",
        )
    elif "syncType" not in source.columns(SYNC):
        sink.quality(
            "event_edges",
            "warn",
            "synchronization records do not say of which type they are: stream waits are unknown",
            "event edges; blocking is a lower bound",
        )
    elif waits and not records:
        sink.quality(
            "event_edges",
            "warn",
            f"{waits} stream waits, 0 records: blocking is a lower bound",
            "event edges",
        )
    elif waits and not mapper.waits_with_id and not mapper.records_with_id:
        joined_by_event_id(waits, records, sink)
    elif mapper.waits_with_id < waits:
        sink.quality(
            "event_edges",
            "warn",
            f"{waits - mapper.waits_with_id} of {waits} stream waits carry no event sync id: "
            "blocking is a lower bound",
            "event edges of these waits",
        )
    else:
        sink.quality("event_edges", "ok", f"{waits} stream waits, {records} records")
    if mapper.waits_without_event:
        sink.quality(
            "sync_type",
            "info",
            f"{mapper.waits_without_event} synchronizations typed as stream wait name no event: "
            "kept as host stream synchronization",
        )
    if mapper.timed_events:
        sink.quality(
            "event_timestamps",
            "warn",
            f"{mapper.timed_events} of {records} event records carry device timestamps: tracing "
            "them adds false dependencies; capture with `--cuda-event-trace=false`",
            "waiting times free of the profiler's influence",
        )
    elif records:
        sink.quality(
            "event_timestamps",
            "info",
            f"{records} event records without device timestamps; whether they were traced is not "
            "stated, `--cuda-event-trace=false` rules out false dependencies",
        )
    graphs = mapper.written["graph"]
    if graphs:
        sink.quality(
            "graph_opaque",
            "warn",
            f"{graphs} CUDA graph launches are one record each; capture with "
            "`--cuda-graph-trace=node` for their kernels",
            "kernels, classes and edges inside graphs",
        )


def _losses(mapper: RowMapper, source: TableSource, sink: Sink) -> None:
    unreadable = {table: count for table, count in mapper.unreadable.items() if count}
    if unreadable:
        detail = ", ".join(f"{count} of {table}" for table, count in unreadable.items())
        sink.quality("unreadable_rows", "warn", f"rows without readable times left out: {detail}")
    if source.bad_values:
        detail = ", ".join(f"{count} in {table}" for table, count in source.bad_values.items())
        sink.quality(
            "unreadable_values",
            "warn",
            f"values of the wrong type read as NULL: {detail}",
        )
    if source.problems:
        detail = "; ".join(
            f"{problem.table} after {problem.rows_read} rows ({problem.message})"
            for problem in source.problems
        )
        sink.quality(
            "corrupt_table",
            "fail",
            f"tables that break off: {detail}",
            "anything that needs the whole capture",
        )
    if mapper.other_nvtx:
        count = sum(mapper.other_nvtx.values())
        kinds = ", ".join(str(kind) for kind in sorted(mapper.other_nvtx))
        sink.quality("nvtx_other", "info", f"{count} NVTX events of type {kinds} not kept")


def _overhead(mapper: RowMapper, sink: Sink) -> None:
    sink.quality(
        "tool_overhead",
        "info",
        f"{mapper.tool_overhead_ns / 1e6:.3f} ms of profiler overhead recorded (sum over threads)",
    )
    if mapper.cuda_overhead_ns:
        sink.quality(
            "cuda_overhead",
            "info",
            f"{mapper.cuda_overhead_ns / 1e6:.3f} ms inside CUDA itself: full command buffer, "
            "compiler or module loading (sum over threads), in table overhead under these names",
        )


def _first_error(messages: list[tuple[str, str]]) -> str:
    return next((text for severity, text in messages if severity == "error"), "")


def _messages(messages: list[tuple[str, str]], sink: Sink) -> None:
    serious = [text for severity, text in messages if severity in ("warning", "error")]
    errors = sum(severity == "error" for severity, _ in messages)
    lost = [text for text in serious if _LOST.search(text)]
    maybe = sum(bool(_MAYBE_LOST.search(text)) for text in serious)
    sink.quality(
        "diagnostics",
        "warn" if errors else "info",
        f"{len(messages)} messages of the tool: {errors} errors, {len(serious) - errors} warnings"
        + (f", {maybe} of them 'not all events might have been collected'" if maybe else "")
        + (f"; first error: {first[:200]}" if (first := _first_error(messages)) else ""),
    )
    if lost:
        sink.quality(
            "dropped_events",
            "warn",
            f"{len(lost)} messages about lost records, first: {lost[0][:200]}",
            "counts and idle time, as far as records are lost",
        )
