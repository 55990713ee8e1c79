"""Mapping of the bulk tables of an Nsight Systems export to canonical rows, batch by batch.

Everything here works on whole Arrow columns: strings are looked up once per distinct id, and no
Python code runs per row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from gapscope.ingest.ahead import read_ahead
from gapscope.ingest.base import Sink
from gapscope.ingest.instrument import DOMAIN, collective_columns
from gapscope.ingest.nsys_columns import (
    NO_SYNC_ID,
    NVTX,
    NVTX_DOMAIN,
    DomainNames,
    Names,
    api_domain,
    copy_kind,
    count_true,
    distinct,
    enum_code,
    filtered,
    graph_name,
    int_columns,
    interned,
    mapped,
    memcpy_name,
    memory_kind,
    memset_name,
    split_op_ids,
    split_thread,
    with_sane_times,
    without_none,
    without_version,
)
from gapscope.ingest.nsys_meta import Observed, metric_devices, rows
from gapscope.ingest.nsys_tables import Kind, TableSource, texts_of

if TYPE_CHECKING:
    import pyarrow as pa

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
SYNC = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
EVENT = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
METRICS = "GPU_METRICS"
# In order of preference.
KERNEL_NAMES = ("demangledName", "shortName", "mangledName")
OVERHEADS = ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")

SYNC_EVENT, SYNC_STREAM_WAIT, SYNC_STREAM, SYNC_CONTEXT = 1, 2, 3, 4
SYNC_KINDS = {
    SYNC_EVENT: "event", SYNC_STREAM_WAIT: "stream", SYNC_STREAM: "stream", SYNC_CONTEXT: "context",
}  # fmt: skip

# ENUM_NSYS_EVENT_TYPE: joined ranges, marks, and begins whose end was not captured. The second of
# each group is the imported (nvtxt) variant.
NVTX_PUSH_POP = (59, 70, 35, 66)
NVTX_START_END = (60, 71, 37, 68)
NVTX_MARK = (34, 65)
# Category, ends without a begin, thread, domain and resource names: no ranges of their own.
NVTX_NO_RANGE = (33, 36, 38, 39, 64, 67, 69, 72, 73, 74, NVTX_DOMAIN, 76, 97, 98, 99)

# ENUM_CUPTI_OVERHEAD_TYPE values that are CUDA's own work and not the profiler's.
CUDA_OVERHEADS = {
    2: "Driver JIT compiler (CUDA)",
    6: "Runtime module loading (CUDA)",
    7: "Lazy function loading (CUDA)",
    8: "Command buffer full (CUDA)",
}


class RowMapper:
    """Writes the canonical rows of one export and remembers what it saw."""

    def __init__(self, source: TableSource, sink: Sink, advance: Callable[[int], None]) -> None:
        self.observed = Observed()
        self.written: Counter[str] = Counter()
        self.unreadable: Counter[str] = Counter()
        self.unknown_names: Counter[str] = Counter()
        self.waits_with_id = 0
        self.records_with_id = 0
        self.waits_without_event = 0
        self.timed_events = 0
        self.calls_with_stack = 0
        self.unnamed_ranges = 0
        self.unnamed_overheads = 0
        self.other_nvtx: Counter[int] = Counter()
        self.tool_overhead_ns = 0
        self.cuda_overhead_ns = 0
        self._source = source
        self._sink = sink
        self._advance = advance
        self._default_process: int | None = None

    def api_calls(self) -> None:
        """RUNTIME: runtime and driver calls. First of all, so that processes are known."""
        import pyarrow.compute as pc

        names = Names(self._source, self._sink, "[unknown call]", without_version)
        columns = int_columns(
            "start end eventClass globalTid correlationId nameId returnValue callchainId"
        )
        for batch in self._timed(RUNTIME, columns):
            process, tid = split_thread(batch["globalTid"])
            self.observed.api_processes.update(distinct(process))
            stacks = without_none(batch["callchainId"], NO_SYNC_ID)
            self.calls_with_stack += len(stacks) - stacks.null_count
            name_id = names.ids(batch["nameId"])
            code = pc.fill_null(batch["eventClass"], -1)
            domain = mapped(code, {0: "runtime", 1: "driver"}.get)
            by_name = mapped(batch["nameId"], lambda key: api_domain(names.texts.get(key)))
            self._put(
                "api_call",
                {
                    "process_id": process,
                    "tid": tid,
                    "domain": pc.coalesce(by_name, domain),
                    "name_id": name_id,
                    "start_ns": batch["start"],
                    "end_ns": batch["end"],
                    "correlation_id": batch["correlationId"],
                    "return_code": batch["returnValue"],
                },
            )
        self.unknown_names[RUNTIME] += names.unresolved
        if len(self.observed.api_processes) == 1:
            # Minimal schemas lack globalPid; one calling process leaves no doubt.
            (self._default_process,) = self.observed.api_processes

    def kernels(self) -> None:
        """KERNEL -> gpu_op."""
        import pyarrow as pa
        import pyarrow.compute as pc

        names = Names(self._source, self._sink, "[unknown kernel]")
        columns = int_columns(
            "start end deviceId contextId streamId correlationId globalPid graphId "
            "graphNodeId gridX gridY gridZ blockX blockY blockZ"
        )
        present = self._source.columns(KERNEL)
        labels = [name for name in KERNEL_NAMES if name in present]
        # A third name is never reached: the first two are not both NULL.
        columns |= int_columns(" ".join(labels[:2]))
        for batch in self._timed(KERNEL, columns):
            references = [batch[name] for name in labels[:2]]
            references = references or [pa.nulls(batch.num_rows, pa.int64())]
            name_id = names.ids(pc.coalesce(*references))
            self._device_ops(
                "kernel",
                batch,
                {
                    "name_id": name_id,
                    "graph_id": without_none(batch["graphId"]),
                    "graph_node_id": batch["graphNodeId"],
                    "grid_x": batch["gridX"],
                    "grid_y": batch["gridY"],
                    "grid_z": batch["gridZ"],
                    "block_x": batch["blockX"],
                    "block_y": batch["blockY"],
                    "block_z": batch["blockZ"],
                },
            )
        self.unknown_names[KERNEL] += names.unresolved

    def copies(self) -> None:
        """MEMCPY and MEMSET -> gpu_op, named as PyTorch's profiler names them."""
        import pyarrow.compute as pc

        columns = int_columns(
            "start end deviceId contextId streamId correlationId globalPid bytes graphNodeId "
            "copyKind srcKind dstKind"
        )
        for batch in self._timed(MEMCPY, columns):
            kind, src, dst = (enum_code(batch[name]) for name in ("copyKind", "srcKind", "dstKind"))
            combined = pc.add(pc.multiply(kind, 256), pc.add(pc.multiply(src, 16), dst))
            self._device_ops(
                "memcpy",
                batch,
                {
                    "name_id": mapped(combined, lambda c: self._sink.intern(memcpy_name(c)), "int"),
                    "bytes": batch["bytes"],
                    "graph_node_id": batch["graphNodeId"],
                    "copy_kind": mapped(kind, copy_kind),
                    "src_memory": mapped(src, memory_kind),
                    "dst_memory": mapped(dst, memory_kind),
                },
            )
        columns = int_columns(
            "start end deviceId contextId streamId correlationId globalPid bytes graphNodeId "
            "memKind"
        )
        for batch in self._timed(MEMSET, columns):
            memory = enum_code(batch["memKind"])
            self._device_ops(
                "memset",
                batch,
                {
                    "name_id": mapped(memory, lambda c: self._sink.intern(memset_name(c)), "int"),
                    "bytes": batch["bytes"],
                    "graph_node_id": batch["graphNodeId"],
                    "dst_memory": mapped(memory, memory_kind),
                },
            )

    def graphs(self) -> None:
        """GRAPH_TRACE -> gpu_op of kind graph: a whole graph launch as one opaque record."""
        import pyarrow.compute as pc

        columns = int_columns(
            "start end deviceId contextId streamId correlationId globalPid graphId"
        )
        for batch in self._timed(GRAPH, columns):
            graph = pc.fill_null(batch["graphId"], -1)
            self._device_ops(
                "graph",
                batch,
                {
                    "name_id": mapped(graph, lambda g: self._sink.intern(graph_name(g)), "int"),
                    "graph_id": batch["graphId"],
                },
            )

    def events(self) -> None:
        """CUDA_EVENT -> event_record."""
        import pyarrow.compute as pc

        columns = int_columns(
            "timestamp deviceId contextId streamId correlationId globalPid eventId eventSyncId"
        )
        for batch in self._batches(EVENT, columns):
            stamp = batch["timestamp"]
            # Zero: the event was traced without a device timestamp.
            stamp = pc.if_else(pc.equal(stamp, 0), None, stamp)
            self.timed_events += len(stamp) - stamp.null_count
            sync_ids = without_none(batch["eventSyncId"], NO_SYNC_ID)
            self.records_with_id += len(sync_ids) - sync_ids.null_count
            self._put(
                "event_record",
                {
                    **self._sync_place(batch),
                    "event_id": without_none(batch["eventId"]),
                    "event_sync_id": sync_ids,
                    "correlation_id": batch["correlationId"],
                    "record_ns": stamp,
                },
            )

    def syncs(self) -> None:
        """SYNCHRONIZATION -> stream_wait (the device waits) and host_sync (the host waits)."""
        import pyarrow.compute as pc

        columns = int_columns(
            "start end deviceId contextId streamId correlationId globalPid syncType eventId "
            "eventSyncId"
        )
        for batch in self._timed(SYNC, columns):
            shared = {
                **self._sync_place(batch),
                "event_id": without_none(batch["eventId"]),
                "event_sync_id": without_none(batch["eventSyncId"], NO_SYNC_ID),
                "correlation_id": batch["correlationId"],
                "start_ns": batch["start"],
                "end_ns": batch["end"],
            }
            waits = pc.fill_null(pc.equal(batch["syncType"], SYNC_STREAM_WAIT), False)
            named = pc.or_(pc.is_valid(shared["event_id"]), pc.is_valid(shared["event_sync_id"]))
            if "eventId" in self._source.columns(SYNC):
                # nsys 2026.1 marks cudaStreamSynchronize as a stream wait, but with no event.
                self.waits_without_event += count_true(pc.and_(waits, pc.invert(named)))
                waits = pc.and_(waits, named)
            wait_rows = filtered(shared, waits)
            self._put("stream_wait", wait_rows)
            sync_ids = wait_rows["event_sync_id"]
            self.waits_with_id += len(sync_ids) - sync_ids.null_count
            kind = mapped(
                pc.fill_null(batch["syncType"], 0),
                lambda t: SYNC_KINDS.get(t, "unknown"),
            )
            host = {name: shared[name] for name in shared if name != "context"}
            self._put("host_sync", filtered({**host, "kind": kind}, pc.invert(waits)))

    def ranges(self) -> None:
        """NVTX_EVENTS -> range."""
        import pyarrow as pa
        import pyarrow.compute as pc

        names = Names(self._source, self._sink, None)
        domains = DomainNames(self._source)
        columns = int_columns("start end eventType globalTid domainId textId int64Value") | {
            "text": "text"
        }
        kinds = (
            dict.fromkeys(NVTX_PUSH_POP, "push_pop")
            | dict.fromkeys(NVTX_START_END, "start_end")
            | dict.fromkeys(NVTX_MARK, "mark")
        )
        typed = "eventType" in self._source.columns(NVTX)
        for batch in self._batches(NVTX, columns):
            kind = mapped(batch["eventType"], kinds.get)
            if not typed:
                kind = pc.if_else(pc.is_valid(batch["end"]), "push_pop", "mark")
            keep = pc.is_valid(kind)
            if keep.false_count:
                others = batch["eventType"].filter(pc.invert(keep)).value_counts().to_pylist()
                for other in others:
                    if other["values"] not in NVTX_NO_RANGE:
                        self.other_nvtx[other["values"] or -1] += other["counts"]
            readable = pc.and_(keep, pc.is_valid(batch["start"]))
            self.unreadable[NVTX] += count_true(keep) - count_true(readable)
            if readable.false_count:
                batch = batch.filter(readable)
                kind = kind.filter(readable)
            process, tid = split_thread(batch["globalTid"])
            self.observed.range_processes.update(distinct(process))
            text = batch["text"]
            numbers = {}
            if text.null_count == len(text):
                name_id = names.ids(batch["textId"])
            else:
                encoded = text.dictionary_encode()
                labels, sequence, op_ids = split_op_ids(encoded.dictionary)
                known = self._sink.intern_many(texts_of(labels))
                name_id = pa.array(known, pa.int64()).take(encoded.indices)
                numbers = {
                    "external_id": op_ids.take(encoded.indices),
                    "sequence_number": sequence.take(encoded.indices),
                }
                if name_id.null_count:
                    name_id = pc.coalesce(name_id, names.ids(batch["textId"]))
            self.unnamed_ranges += name_id.null_count
            domain = domains.names(process, batch["domainId"])
            self._put(
                "range",
                {
                    "process_id": process,
                    "tid": tid,
                    "domain": domain,
                    "kind": kind,
                    "name_id": name_id,
                    "start_ns": batch["start"],
                    "end_ns": pc.if_else(pc.equal(kind, "mark"), batch["start"], batch["end"]),
                    **numbers,
                },
            )
            ours = pc.if_else(pc.equal(domain, DOMAIN), batch["textId"], None)
            where = {"tid": tid, "start_ns": batch["start"], "end_ns": batch["end"]}
            where["seq"] = batch["int64Value"]
            said = collective_columns(ours, names.texts.get, where)
            if said is not None:
                self._sink.write("collective", said)

    def overheads(self) -> None:
        """Profiler overhead, and with CUPTI's table also stalls inside CUDA, under their names."""
        import pyarrow.compute as pc

        columns = int_columns("start end globalTid nameId overheadType")
        for table in OVERHEADS:
            names = Names(self._source, self._sink, "[unknown overhead]")
            cupti = table != "PROFILER_OVERHEAD"
            for batch in self._timed(table, columns):
                process, tid = split_thread(batch["globalTid"])
                name_id = names.ids(batch["nameId"])
                length = pc.subtract(batch["end"], batch["start"])
                if cupti:
                    own = pc.fill_null(batch["overheadType"], 0)
                    cuda = mapped(
                        own,
                        lambda t: interned(self._sink, CUDA_OVERHEADS.get(t)),
                        "int",
                    )
                    name_id = pc.coalesce(cuda, name_id)
                    stalls = pc.sum(length.filter(pc.is_valid(cuda))).as_py() or 0
                    self.cuda_overhead_ns += stalls
                    length = length.filter(pc.is_null(cuda))
                self.tool_overhead_ns += pc.sum(length).as_py() or 0
                self._put(
                    "overhead",
                    {
                        "process_id": process,
                        "tid": tid,
                        "name_id": name_id,
                        "start_ns": batch["start"],
                        "end_ns": batch["end"],
                    },
                )
            if not cupti:
                # CUPTI's table tells by type what it is.
                self.unnamed_overheads += names.unresolved

    def metrics(self) -> None:
        """GPU_METRICS -> metric_sample."""
        import pyarrow.compute as pc

        if METRICS not in self._source.tables:
            return
        labels = {
            (type_id, metric): name
            for type_id, metric, name in rows(
                self._source,
                "TARGET_INFO_GPU_METRICS",
                {"typeId": "int", "metricId": "int", "metricName": "text"},
            )
        }
        ordinals, uuids = metric_devices(self._source, self._sink)
        columns: dict[str, Kind] = {
            **int_columns("timestamp typeId metricId"),
            "value": "float",
        }
        for batch in self._batches(METRICS, columns):
            ok = pc.is_valid(batch["timestamp"])
            self.unreadable[METRICS] += ok.false_count
            batch = batch.filter(ok)
            if batch.num_rows == 0:
                continue
            name_id = None
            for type_id in distinct(batch["typeId"]) or [0]:
                # One type a board, so this loop runs once or a few times.
                found = mapped(batch["metricId"], partial(self._metric, labels, type_id), "int")
                here = pc.equal(batch["typeId"], type_id)
                name_id = found if name_id is None else pc.if_else(here, found, name_id)
            # The low byte of typeId is the board id.
            board = pc.bit_wise_and(batch["typeId"], 0xFF)
            device = mapped(board, lambda b: ordinals.get(b) if ordinals else b, "int")
            uuid = mapped(board, uuids.get, "text")
            self._put(
                "metric_sample",
                {
                    "device": device,
                    "ts_ns": batch["timestamp"],
                    "name_id": name_id,
                    "value": batch["value"],
                    "device_uuid": uuid,
                },
            )

    def _metric(self, labels: Mapping[Any, str], type_id: int, metric: int) -> int:
        return self._sink.intern(labels.get((type_id, metric)) or f"metric {metric}")

    def _device_ops(self, kind: str, batch: pa.RecordBatch, extra: Mapping[str, Any]) -> None:
        import pyarrow as pa

        place = self._place(batch)
        self.observed.device_processes.update(distinct(place["process_id"]))
        combos = (
            pa.table({name: place[name] for name in ("process_id", "device", "context")})
            .group_by(["process_id", "device", "context"])
            .aggregate([])
        )
        for row in combos.to_pylist():
            self.observed.context_device[row["process_id"], row["context"]] = row["device"]
            if row["device"] is not None:
                self.observed.devices.add((row["process_id"], row["device"]))
        self.written[kind] += batch.num_rows
        self._put(
            "gpu_op",
            {
                "kind": pa.repeat(kind, batch.num_rows),
                **place,
                "start_ns": batch["start"],
                "end_ns": batch["end"],
                "correlation_id": batch["correlationId"],
                **extra,
            },
        )

    def _place(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        import pyarrow.compute as pc

        process = batch["globalPid"]
        if process.null_count and self._default_process is not None:
            process = pc.fill_null(process, self._default_process)
        device = batch["deviceId"]
        fits = pc.and_(pc.greater_equal(device, 0), pc.less(device, 2**31))
        return {
            "process_id": process,
            "device": pc.if_else(fits, device, None),
            "context": without_none(batch["contextId"]),
            "stream": without_none(batch["streamId"]),
        }

    def _sync_place(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """`_place`, the device taken from the context where device ops tell: nsys 2025.3 writes
        device 0 into the synchronization records of every process.
        """
        import pyarrow.compute as pc

        place = self._place(batch)
        for (process, context), device in self.observed.context_device.items():
            if process is not None and context is not None and device is not None:
                here = pc.and_(
                    pc.equal(place["process_id"], process), pc.equal(place["context"], context)
                )
                place["device"] = pc.if_else(pc.fill_null(here, False), device, place["device"])
        return place

    def _put(self, table: str, columns: Mapping[str, Any]) -> None:
        self.written[table] += len(next(iter(columns.values())))
        self._sink.write(table, columns)

    def _batches(self, table: str, columns: Mapping[str, Kind]) -> Iterator[pa.RecordBatch]:
        if table not in self._source.tables:
            return
        for batch in read_ahead(self._source.batches(table, columns)):
            yield with_sane_times(batch)
            self._advance(batch.num_rows)

    def _timed(self, table: str, columns: Mapping[str, Kind]) -> Iterator[pa.RecordBatch]:
        """Batches without the rows whose start or end cannot be read; those are counted."""
        import pyarrow.compute as pc

        for batch in self._batches(table, columns):
            if batch["start"].null_count or batch["end"].null_count:
                ok = pc.and_(pc.is_valid(batch["start"]), pc.is_valid(batch["end"]))
                self.unreadable[table] += ok.false_count
                batch = batch.filter(ok)
            if batch.num_rows:
                yield batch


def map_rows(source: TableSource, sink: Sink, advance: Callable[[int], None]) -> RowMapper:
    """Write all bulk tables of an export."""
    mapper = RowMapper(source, sink, advance)
    mapper.api_calls()
    mapper.kernels()
    mapper.copies()
    mapper.graphs()
    mapper.events()
    mapper.syncs()
    mapper.ranges()
    mapper.overheads()
    mapper.metrics()
    return mapper
