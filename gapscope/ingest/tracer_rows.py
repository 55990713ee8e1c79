"""Mapping of the tracer's streams to canonical rows, batch by batch, on whole columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gapscope.ingest.base import Sink
from gapscope.ingest.instrument import DOMAIN, collective_columns
from gapscope.ingest.literals import none, number, string
from gapscope.ingest.nsys_columns import (
    CODE_NONE,
    NO_ID,
    NO_SYNC_ID,
    copy_kind,
    count_true,
    distinct,
    enum_code,
    filtered,
    graph_name,
    mapped,
    memcpy_name,
    memory_kind,
    memset_name,
    without_none,
    without_version,
)
from gapscope.ingest.nsys_rows import SYNC_KINDS, SYNC_STREAM_WAIT
from gapscope.ingest.tracer_streams import Streams

if TYPE_CHECKING:
    import pyarrow as pa

NO_DEVICE = 0xFF
API_DOMAINS = ("runtime", "driver")
RANGE_KINDS = ("push_pop", "start_end", "mark")

# CUpti_ActivityOverheadKind; "(CUDA)" marks what is CUDA's own work and not the tracer's.
OVERHEADS = {
    1: "Driver JIT compiler (CUDA)",
    1 << 16: "Activity buffer flush",
    2 << 16: "CUPTI instrumentation",
    3 << 16: "CUPTI resources",
    4 << 16: "Runtime module loading (CUDA)",
    5 << 16: "Lazy function loading (CUDA)",
    6 << 16: "Command buffer full (CUDA)",
    7 << 16: "Activity buffer request",
    8 << 16: "UVM activity",
    1 << 31: "Recording begins",
}


class Names:
    """name_ids of the stream `name`; only strings that rows refer to enter the run."""

    def __init__(self, streams: Streams, sink: Sink) -> None:
        self.texts = {row["id"]: row["text"] for row in streams.table("name")}
        self.unresolved = 0
        self._sink = sink

    def ids(self, references: pa.Array, unknown: str | None = None) -> pa.Array:
        """name_id column; 0 refers to nothing."""
        found = mapped(references, self._id, "int")
        if not found.null_count:
            return found
        import pyarrow.compute as pc

        missing = pc.and_(pc.is_null(found), pc.not_equal(references, number(0)))
        self.unresolved += count_true(missing)
        return found if unknown is None else pc.fill_null(found, number(self._sink.intern(unknown)))

    def _id(self, reference: int) -> int | None:
        text = self.texts.get(reference)
        return None if text is None else self._sink.intern(text)


class TracerRows:
    """Writes the canonical rows of one process and remembers what it saw."""

    def __init__(
        self, streams: Streams, sink: Sink, process_id: int, advance: Callable[[], None]
    ) -> None:
        self.written: Counter[str] = Counter()
        self.waits_with_id = 0
        self.records_with_id = 0
        self.timed_events = 0
        self.devices: set[int] = set()
        self.tool_overhead_ns = 0
        self.names = Names(streams, sink)
        self.contexts = {row["context"]: row for row in streams.table("context")}
        self._streams = streams
        self._sink = sink
        self._process_id = process_id
        self._advance = advance

    def write(self) -> None:
        """All tables."""
        import pyarrow as pa

        self._api_calls()
        for table, write in (
            ("kernel", self._kernels),
            ("memcpy", self._copies),
            ("memset", self._sets),
            ("graph", self._graphs),
            ("event", self._events),
            ("sync", self._syncs),
            ("range", self._ranges),
            ("overhead", self._overheads),
        ):
            rows = 0
            for batch in self._streams.batches(table):
                try:
                    write(batch)
                except (KeyError, ValueError, pa.ArrowException):
                    # Columns that are missing or of another type: one stream is lost, not all.
                    self._streams.broken[table] = rows
                    break
                rows += batch.num_rows
                self._advance()
        self._cuda_streams()

    def _api_calls(self) -> None:
        import pyarrow as pa

        calls = self._streams.table("call")
        names = pa.array([row["name"] for row in calls], pa.int64())
        texts = {key: without_version(text) for key, text in self.names.texts.items()}
        name_ids = mapped(names, lambda key: self._sink.intern(texts.get(key) or "?"), "int")
        domains = pa.array([API_DOMAINS[row["domain"] & 1] for row in calls], pa.string())
        codes = pa.array([row["return_code"] for row in calls], pa.int64())
        self._tids = pa.array([row["tid"] for row in self._streams.table("thread")], pa.int64())
        for batch in self._streams.batches("api"):
            call = _within(batch["call"], len(calls))
            self._put(
                "api_call",
                {
                    "tid": self._tid(batch),
                    "domain": domains.take(call),
                    "name_id": name_ids.take(call),
                    **_times(batch),
                    "correlation_id": _wide(batch["correlation"]),
                    "return_code": codes.take(call),
                },
            )
            self._advance()

    def _kernels(self, batch: pa.RecordBatch) -> None:
        sizes = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
        self._device_ops(
            "kernel",
            batch,
            {
                "name_id": self.names.ids(_wide(batch["name"]), "[unknown kernel]"),
                **_graph(batch),
                **{name: _wide(batch[name]) for name in sizes},
            },
        )

    def _copies(self, batch: pa.RecordBatch) -> None:
        import pyarrow.compute as pc

        kind = enum_code(_wide(batch["copy_kind"]))
        src, dst = (_memory(batch[name]) for name in ("src_kind", "dst_kind"))
        combined = pc.add(pc.multiply(kind, number(256)), pc.add(pc.multiply(src, number(16)), dst))
        self._device_ops(
            "memcpy",
            batch,
            {
                "name_id": mapped(combined, lambda c: self._sink.intern(memcpy_name(c)), "int"),
                **_graph(batch),
                "bytes": _wide(batch["bytes"]),
                "copy_kind": mapped(kind, copy_kind),
                "src_memory": mapped(src, memory_kind),
                "dst_memory": mapped(dst, memory_kind),
            },
        )

    def _sets(self, batch: pa.RecordBatch) -> None:
        memory = _memory(batch["memory_kind"])
        self._device_ops(
            "memset",
            batch,
            {
                "name_id": mapped(memory, lambda c: self._sink.intern(memset_name(c)), "int"),
                **_graph(batch),
                "bytes": _wide(batch["bytes"]),
                "dst_memory": mapped(memory, memory_kind),
            },
        )

    def _graphs(self, batch: pa.RecordBatch) -> None:
        graph = _wide(batch["graph"])
        name_id = mapped(graph, lambda g: self._sink.intern(graph_name(g)), "int")
        self._device_ops("graph", batch, {"name_id": name_id, "graph_id": graph})

    def _events(self, batch: pa.RecordBatch) -> None:
        import pyarrow.compute as pc

        # Zero: events are not timed on the device.
        stamp = batch["device_ns"]
        stamp = pc.if_else(pc.equal(stamp, number(0)), none(), stamp)
        self.timed_events += len(stamp) - stamp.null_count
        columns = {**self._sync_place(batch), "record_ns": stamp}
        self.records_with_id += len(stamp) - columns["event_sync_id"].null_count
        self._put("event_record", columns)

    def _syncs(self, batch: pa.RecordBatch) -> None:
        import pyarrow.compute as pc

        shared = {**self._sync_place(batch), **_times(batch)}
        kind = _wide(batch["type"])
        named = pc.or_(pc.is_valid(shared["event_id"]), pc.is_valid(shared["event_sync_id"]))
        waits = pc.and_(pc.equal(kind, number(SYNC_STREAM_WAIT)), named)
        wait_rows = filtered(shared, waits)
        sync_ids = wait_rows["event_sync_id"]
        self.waits_with_id += len(sync_ids) - sync_ids.null_count
        self._put("stream_wait", wait_rows)
        labels = mapped(kind, lambda code: SYNC_KINDS.get(code, "unknown"))
        host = {name: shared[name] for name in shared if name != "context"}
        self._put("host_sync", filtered({**host, "kind": labels}, pc.invert(waits)))

    def _ranges(self, batch: pa.RecordBatch) -> None:
        import pyarrow.compute as pc

        end = batch["end_ns"]
        domain = mapped(_wide(batch["domain"]), lambda d: self.names.texts.get(d) or "default")
        kind = mapped(
            _wide(batch["kind"]), lambda k: RANGE_KINDS[k] if k < len(RANGE_KINDS) else None
        )
        texts = _wide(batch["name"])
        where = {
            "tid": self._tid(batch),
            "start_ns": batch["start_ns"],
            "end_ns": pc.if_else(pc.equal(end, number(-1)), none(), end),
        }
        sequence = without_none(batch["sequence"])
        self._put(
            "range",
            {
                **where,
                "domain": domain,
                "kind": kind,
                "name_id": self.names.ids(texts),
                "external_id": without_none(batch["op_id"]),
                "sequence_number": sequence,
            },
        )
        ours = pc.if_else(pc.equal(domain, string(DOMAIN)), texts, none())
        said = collective_columns(ours, self.names.texts.get, where | {"seq": sequence})
        if said is not None:
            self._sink.write("collective", said)

    def _overheads(self, batch: pa.RecordBatch) -> None:
        import pyarrow.compute as pc

        kind = _wide(batch["kind"])
        name = mapped(
            kind, lambda k: self._sink.intern(OVERHEADS.get(k, f"CUPTI overhead {k}")), "int"
        )
        is_cuda = mapped(kind, lambda k: int("(CUDA)" in OVERHEADS.get(k, "")), "int")
        length = pc.subtract(batch["end_ns"], batch["start_ns"])
        self.tool_overhead_ns += pc.sum(length.filter(pc.equal(is_cuda, number(0)))).as_py() or 0
        self._put("overhead", {"tid": self._tid(batch), "name_id": name, **_times(batch)})

    def _cuda_streams(self) -> None:
        rows = {(row["context"], row["stream"]): row for row in self._streams.table("stream")}
        columns: dict[str, list[int | None]] = {
            name: [] for name in ("device", "context", "stream", "priority", "is_default")
        }
        for (context, stream), row in rows.items():
            home = self.contexts.get(context, {})
            values = (
                home.get("device"),
                context,
                stream,
                row["priority"],
                int(stream == home.get("null_stream")),
            )
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
        self._sink.write("stream", columns)

    def _device_ops(self, kind: str, batch: pa.RecordBatch, extra: Mapping[str, Any]) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        device = _wide(batch["device"])
        device = pc.if_else(pc.equal(device, number(NO_DEVICE)), none(), device)
        self.devices.update(distinct(device))
        self.written[kind] += batch.num_rows
        self._put(
            "gpu_op",
            {
                "kind": pa.repeat(kind, batch.num_rows),
                "device": device,
                "context": without_none(_wide(batch["context"])),
                "stream": without_none(_wide(batch["stream"])),
                **_times(batch),
                "correlation_id": _wide(batch["correlation"]),
                **extra,
            },
        )

    def _sync_place(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        context = without_none(_wide(batch["context"]))
        return {
            "device": mapped(context, lambda c: self.contexts.get(c, {}).get("device"), "int"),
            "context": context,
            "stream": without_none(_wide(batch["stream"])),
            "event_id": without_none(_wide(batch["event"])),
            "event_sync_id": without_none(_wide(batch["sync_id"]), NO_SYNC_ID),
            "correlation_id": _wide(batch["correlation"]),
        }

    def _tid(self, batch: pa.RecordBatch) -> pa.Array:
        return self._tids.take(_within(batch["thread"], len(self._tids)))

    def _put(self, table: str, columns: Mapping[str, Any]) -> None:
        import pyarrow as pa

        count = len(next(iter(columns.values())))
        self.written[table] += count
        process = pa.repeat(pa.scalar(self._process_id, pa.int64()), count)
        self._sink.write(table, {"process_id": process, **columns})


def _wide(array: pa.Array) -> pa.Array:
    """A narrow or unsigned column as 64-bit numbers; what does not fit is NULL."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if array.type == pa.uint64():
        array = pc.if_else(pc.less(array, pa.scalar(1 << 63, pa.uint64())), array, none())
    return array.cast(pa.int64())


def _times(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return {"start_ns": batch["start_ns"], "end_ns": batch["end_ns"]}


def _graph(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """Graph columns; CUPTI's 0 is no graph."""
    none = (*NO_ID, 0)
    return {
        "graph_id": without_none(_wide(batch["graph"]), none),
        "graph_node_id": without_none(_wide(batch["graph_node"]), none),
    }


def _memory(kinds: pa.Array) -> pa.Array:
    """CUPTI's memory kinds count from 1, 0 is unknown."""
    import pyarrow.compute as pc

    code = pc.subtract(_wide(kinds), number(1))
    return pc.if_else(pc.less(code, number(0)), number(CODE_NONE), enum_code(code))


def _within(indices: pa.Array, count: int) -> pa.Array:
    """Indices into a table of `count` rows; others are NULL."""
    import pyarrow.compute as pc

    if not count:
        return _nulls(indices)
    return pc.if_else(pc.less(indices, number(count)), indices, none())


def _nulls(indices: pa.Array) -> pa.Array:
    import pyarrow as pa

    return pa.nulls(len(indices), indices.type)
