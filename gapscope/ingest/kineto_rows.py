"""Kineto events to canonical rows, one category at a time."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Raw

from gapscope.ingest.kineto_fields import (
    ApiArgs,
    CollectiveArgs,
    DeviceArgs,
    Event,
    RangeArgs,
    SyncArgs,
    collective_type,
    is_collective,
    to_ns,
    to_ns_column,
)
from gapscope.ingest.kineto_json import DECODE_ERRORS
from gapscope.ingest.kineto_repair import repair

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapscope.ingest.base import Sink

A = TypeVar("A")
Columns = dict[str, list[Any]]

# Category (lower case) -> how it is read. Capitalised forms come from Kineto before 2022.
RANGES = {
    "cpu_op": "cpu_op",
    "operator": "cpu_op",
    "user_annotation": "user_annotation",
    "gpu_user_annotation": "gpu_user_annotation",
}
DEVICE_OPS = {
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
}
API_CALLS = {
    "cuda_runtime": "runtime",
    "hip_runtime": "runtime",
    "runtime": "runtime",
    "cuda_driver": "driver",
    "hip_driver": "driver",
    "driver": "driver",
}
SYNC = "cuda_sync"
OVERHEAD = "overhead"

WAIT_KIND = "stream wait event"
SYNC_KINDS = {"event sync": "event", "stream sync": "stream", "context sync": "context"}
# Seconds from which a duration is suspicious enough to be compared with the capture's span.
LONG_NS = 1_000_000_000
_UNSIGNED_MINUS_ONE = 2**32 - 1

_VERSION_SUFFIX = re.compile(r"_v\d{4,}$")
_COPY_NAME = re.compile(r"Mem(?:cpy|set)\s+(?:(\w+)\s+)?\(([^)>]*?)(?:\s*->\s*([^)]*))?\)")
_COMMUNICATION = re.compile(r"nccl|rccl", re.IGNORECASE)


class _Names(dict[str | None, int | None]):
    """name_id by text, asked of the sink once per distinct text."""

    def __init__(self, intern: Callable[[str], int]) -> None:
        super().__init__()
        self._intern = intern

    def __missing__(self, text: str | None) -> int | None:
        known = self[text] = self._intern("" if text is None else text)
        return known


class _Decoder:
    """Arguments of one type, strict and fast or lenient and patient."""

    def __init__(self, type_: type[Any]) -> None:
        self.strict = msgspec.json.Decoder(type_).decode
        self._lax = msgspec.json.Decoder(type_, strict=False).decode
        self._empty = type_()

    def lenient(self, raw: Raw) -> Any:
        """Also accepts numbers in strings, no arguments at all and text that `repair` mends."""
        text = bytes(raw)
        if text in (b"null", b""):
            return self._empty
        try:
            return self._lax(text)
        except DECODE_ERRORS:
            return self._lax(repair(text)[0])


@dataclass
class Counts:
    """What quality rows are made of."""

    events: int = 0
    without_phase: int = 0
    unreadable: int = 0
    negative: int = 0
    without_duration: int = 0
    long_ops: list[int] = field(default_factory=list)
    first_start: int | None = None
    last_start: int | None = None
    skipped: Counter[str] = field(default_factory=Counter)
    device_ops: int = 0
    sync_rows: int = 0
    waits: int = 0
    resolved_waits: int = 0
    wait_calls: int = 0
    communication_kernels: int = 0
    collectives: int = 0
    collective_source: str = "none"
    host_pids: Counter[int] = field(default_factory=Counter)
    devices: set[int] = field(default_factory=set)


class KinetoRows:
    """Turns chunks of events into rows; `finish` writes what had to wait for the end."""

    def __init__(self, sink: Sink) -> None:
        self.counts = Counts()
        self._sink = sink
        self._names = _Names(sink.intern)
        self._api_names = _Names(lambda text: sink.intern(_VERSION_SUFFIX.sub("", text)))
        self._communication: dict[str | None, bool] = {}
        self._copies: dict[str | None, tuple[str | None, str | None, str | None]] = {}
        self._decoders: dict[type[Any], _Decoder] = {}
        # Device rows seen before the first host event says whose they are.
        self._waiting: list[tuple[str, Columns]] = []
        self._process_id: int | None = None
        self._op_id = 0
        self._kernel_collectives: list[tuple[CollectiveArgs, int, int | None]] = []
        self._host_collectives: list[tuple[CollectiveArgs, int | None, int, int | None]] = []
        self._records: dict[int, tuple[int | None, int | None, int | None, int | None]] = {}

    # --- entry points -------------------------------------------------------------------------

    def add(self, events: Sequence[Event]) -> None:
        """Read one chunk."""
        self.counts.events += len(events)
        buckets: dict[str | None, list[Event]] = {}
        for event in events:
            try:
                buckets[event.cat].append(event)
            except KeyError:
                buckets[event.cat] = [event]
        device_rows: list[tuple[str, Columns]] = []
        for category, bucket in buckets.items():
            key = (category or "").lower()
            if key not in _READ:
                self._skip(category, bucket)
                continue
            complete = [event for event in bucket if event.ph == "X"]
            if len(complete) < len(bucket):
                self._skip(category, [event for event in bucket if event.ph != "X"])
            if key in DEVICE_OPS:
                device_rows.append(("gpu_op", self._device_ops(complete, DEVICE_OPS[key])))
            elif key == SYNC:
                device_rows.extend(self._syncs(complete))
            elif key in API_CALLS:
                self._sink.write("api_call", self._api_calls(complete, API_CALLS[key]))
            elif key == OVERHEAD:
                self._sink.write("overhead", self._overheads(complete))
            elif RANGES[key] == "gpu_user_annotation":
                device_rows.append(("range", self._device_ranges(complete)))
            else:
                self._sink.write("range", self._host_ranges(complete, RANGES[key]))
        self._waiting.extend(rows for rows in device_rows if rows[1])
        if self._process_id is None and self.counts.host_pids:
            self._process_id = next(iter(self.counts.host_pids))
        if self._process_id is not None:
            self._write_waiting()

    def finish(self) -> None:
        """Write rows that needed the whole file."""
        self._write_waiting()
        self._write_collectives()
        if self._records:
            correlations = sorted(self._records)
            rows = [self._records[key] for key in correlations]
            self._sink.write(
                "event_record",
                {
                    "process_id": [self._process_id] * len(rows),
                    "device": [row[0] for row in rows],
                    "context": [row[1] for row in rows],
                    "stream": [row[2] for row in rows],
                    "event_id": [row[3] for row in rows],
                    "correlation_id": correlations,
                },
            )

    @property
    def process_id(self) -> int | None:
        """The process of the file's host events."""
        return self._process_id

    # --- one category each --------------------------------------------------------------------

    def _device_ops(self, events: list[Event], kind: str) -> Columns:
        columns, arguments = self._convert(events, DeviceArgs, self._device_columns)
        if not columns:
            return columns
        starts, ends = columns["start_ns"], columns["end_ns"]
        self._count_times(starts, ends, operations=True)
        first = self._op_id
        self._op_id += len(starts)
        self.counts.device_ops += len(starts)
        self.counts.devices.update(d for d in set(columns["device"]) if d is not None)
        columns["op_id"] = list(range(first, self._op_id))
        columns["kind"] = [kind] * len(starts)
        names = columns.pop("name")
        columns["name_id"] = [self._names[name] for name in names]
        if kind == "kernel":
            communication = self._communication
            for name in set(names) - communication.keys():
                communication[name] = bool(name and _COMMUNICATION.search(name))
            self.counts.communication_kernels += sum(communication[name] for name in names)
            for op_id, args, correlation in zip(
                columns["op_id"], arguments, columns["correlation_id"], strict=True
            ):
                if args.collective is not None:
                    self._kernel_collectives.append((args, op_id, correlation))
        else:
            parsed = [self._copy(name) for name in names]
            if kind == "memcpy":
                columns["copy_kind"] = [
                    args.kind or copy[0] for args, copy in zip(arguments, parsed, strict=True)
                ]
                columns["src_memory"] = [copy[1] for copy in parsed]
            columns["dst_memory"] = [copy[2] for copy in parsed]
        return columns

    def _device_columns(self, events: list[Event], arguments: list[DeviceArgs]) -> Columns:
        starts, ends = _times(events)
        grids = [_three(args.grid) for args in arguments]
        blocks = [_three(args.block) for args in arguments]
        return {
            "name": [event.name for event in events],
            "device": [
                args.device if args.device is not None else _device(event.pid)
                for event, args in zip(events, arguments, strict=True)
            ],
            "context": [_known(args.context) for args in arguments],
            "stream": [
                _known(args.stream if args.stream is not None else _number(event.tid))
                for event, args in zip(events, arguments, strict=True)
            ],
            "start_ns": starts,
            "end_ns": ends,
            "correlation_id": [_positive(args.correlation) for args in arguments],
            "graph_id": [_positive(args.graph_id) for args in arguments],
            "graph_node_id": [_positive(args.graph_node_id) for args in arguments],
            "bytes": [args.bytes for args in arguments],
            "grid_x": [grid[0] for grid in grids],
            "grid_y": [grid[1] for grid in grids],
            "grid_z": [grid[2] for grid in grids],
            "block_x": [block[0] for block in blocks],
            "block_y": [block[1] for block in blocks],
            "block_z": [block[2] for block in blocks],
            "queued_ns": [
                _queued(args.queued, start) if args.queued else None
                for args, start in zip(arguments, starts, strict=True)
            ],
        }

    def _copy(self, name: str | None) -> tuple[str | None, str | None, str | None]:
        """Copy kind, source memory and destination memory out of a copy's name."""
        known = self._copies.get(name)
        if known is None:
            match = _COPY_NAME.match(name or "")
            if match is None:
                known = (None, None, None)
            elif match[3] is None:  # Memset (Device)
                known = (match[1], None, _memory(match[2]))
            else:
                known = (match[1], _memory(match[2]), _memory(match[3]))
            self._copies[name] = known
        return known

    def _api_calls(self, events: list[Event], domain: str) -> Columns:
        def build(events: list[Event], arguments: list[ApiArgs]) -> Columns:
            starts, ends = _times(events)
            return {
                "name": [event.name for event in events],
                "process_id": _numbers([event.pid for event in events]),
                "tid": _numbers([event.tid for event in events]),
                "start_ns": starts,
                "end_ns": ends,
                "correlation_id": [_positive(args.correlation) for args in arguments],
            }

        columns, _ = self._convert(events, ApiArgs, build)
        if columns:
            self._count_times(columns["start_ns"], columns["end_ns"], operations=True)
            self.counts.host_pids.update(pid for pid in columns["process_id"] if pid is not None)
            names = columns.pop("name")
            columns["name_id"] = [self._api_names[name] for name in names]
            columns["domain"] = [domain] * len(names)
            self.counts.wait_calls += sum(
                name.startswith(("cudaStreamWaitEvent", "cuStreamWaitEvent", "hipStreamWaitEvent"))
                for name in names
                if name
            )
        return columns

    def _host_ranges(self, events: list[Event], kind: str) -> Columns:
        def build(events: list[Event], arguments: list[RangeArgs]) -> Columns:
            starts, ends = _times(events)
            return {
                "process_id": _numbers([event.pid for event in events]),
                "tid": _numbers([event.tid for event in events]),
                "name_id": [self._names[event.name] for event in events],
                "start_ns": starts,
                "end_ns": ends,
                "external_id": [args.external_id for args in arguments],
            }

        columns, _ = self._convert(events, RangeArgs, build)
        if columns:
            count = len(columns["start_ns"])
            self._count_times(columns["start_ns"], columns["end_ns"])
            self.counts.host_pids.update(pid for pid in columns["process_id"] if pid is not None)
            columns["domain"] = ["pytorch"] * count
            columns["kind"] = [kind] * count
        if kind == "cpu_op":
            self._param_comms([event for event in events if event.name == "record_param_comms"])
        return columns

    def _param_comms(self, events: list[Event]) -> None:
        def build(events: list[Event], arguments: list[CollectiveArgs]) -> Columns:
            starts, ends = _times(events)
            return {"tid": [_number(e.tid) for e in events], "start": starts, "end": ends}

        unreadable = self.counts.unreadable
        columns, arguments = self._convert(events, CollectiveArgs, build)
        # Events that cannot be read at all are counted by the range they also are.
        self.counts.unreadable = unreadable
        for index, args in enumerate(arguments):
            if args.collective is not None and is_collective(args.collective):
                self._host_collectives.append(
                    (args, columns["tid"][index], columns["start"][index], columns["end"][index])
                )

    def _device_ranges(self, events: list[Event]) -> Columns:
        def build(events: list[Event], arguments: list[RangeArgs]) -> Columns:
            starts, ends = _times(events)
            return {
                "name_id": [self._names[event.name] for event in events],
                "start_ns": starts,
                "end_ns": ends,
                "device": [_device(event.pid) for event in events],
                "stream": [_known(_number(event.tid)) for event in events],
                "external_id": [args.external_id for args in arguments],
            }

        columns, _ = self._convert(events, RangeArgs, build)
        if columns:
            count = len(columns["start_ns"])
            self._count_times(columns["start_ns"], columns["end_ns"])
            columns["domain"] = ["pytorch"] * count
            columns["kind"] = ["gpu_user_annotation"] * count
        return columns

    def _overheads(self, events: list[Event]) -> Columns:
        def build(events: list[Event], arguments: list[RangeArgs]) -> Columns:
            starts, ends = _times(events)
            pids = [_known(_number(event.pid)) for event in events]
            return {
                "process_id": pids,
                # Kineto writes pid -1, tid 0 for its own flushes: no thread is meant.
                "tid": [
                    None if pid is None else _number(event.tid)
                    for pid, event in zip(pids, events, strict=True)
                ],
                "name_id": [self._names[event.name] for event in events],
                "start_ns": starts,
                "end_ns": ends,
            }

        columns, _ = self._convert(events, RangeArgs, build)
        if columns:
            self._count_times(columns["start_ns"], columns["end_ns"])
        return columns

    def _syncs(self, events: list[Event]) -> list[tuple[str, Columns]]:
        def build(events: list[Event], arguments: list[SyncArgs]) -> Columns:
            starts, ends = _times(events)
            return {
                "device": [
                    args.device if args.device is not None else _device(event.pid)
                    for event, args in zip(events, arguments, strict=True)
                ],
                "context": [_known(args.context) for args in arguments],
                "stream": [_known(args.stream) for args in arguments],
                "event_id": [_known(args.event_id) for args in arguments],
                "correlation_id": [_positive(args.correlation) for args in arguments],
                "start_ns": starts,
                "end_ns": ends,
                "record_stream": [_known(args.record_stream) for args in arguments],
                "record_correlation_id": [_positive(args.record_correlation) for args in arguments],
                "kind": [
                    (args.kind or event.name or "").lower()
                    for event, args in zip(events, arguments, strict=True)
                ],
            }

        columns, _ = self._convert(events, SyncArgs, build)
        if not columns:
            return []
        self._count_times(columns["start_ns"], columns["end_ns"])
        self.counts.sync_rows += len(columns["kind"])
        for device, context, stream, event_id, correlation in zip(
            columns["device"],
            columns["context"],
            columns["record_stream"],
            columns["event_id"],
            columns["record_correlation_id"],
            strict=True,
        ):
            if correlation is not None:
                self._records.setdefault(correlation, (device, context, stream, event_id))
        is_wait = [kind == WAIT_KIND for kind in columns["kind"]]
        waits = {
            name: [value for value, wait in zip(column, is_wait, strict=True) if wait]
            for name, column in columns.items()
            if name != "kind"
        }
        syncs = {
            name: [value for value, wait in zip(column, is_wait, strict=True) if not wait]
            for name, column in columns.items()
            if name not in ("context", "record_stream", "record_correlation_id")
        }
        syncs["kind"] = [SYNC_KINDS.get(kind, "unknown") for kind in syncs["kind"]]
        self.counts.waits += len(waits["start_ns"])
        self.counts.resolved_waits += sum(
            correlation is not None for correlation in waits["record_correlation_id"]
        )
        return [("stream_wait", waits), ("host_sync", syncs)]

    # --- shared -------------------------------------------------------------------------------

    def _convert(
        self,
        events: list[Event],
        type_: type[A],
        build: Callable[[list[Event], list[A]], Columns],
    ) -> tuple[Columns, list[A]]:
        """Columns of the events; where one of them is wrong, of all the others, one by one."""
        if not events:
            return {}, []
        decoder = self._decoders.get(type_)
        if decoder is None:
            decoder = self._decoders[type_] = _Decoder(type_)
        strict = decoder.strict
        try:
            arguments = [strict(event.args) for event in events]
            return build(events, arguments), arguments
        except DECODE_ERRORS:
            pass
        columns: Columns = {}
        arguments = []
        for event in events:
            try:
                args = decoder.lenient(event.args)
                row = build([event], [args])
            except DECODE_ERRORS:
                self.counts.unreadable += 1
                continue
            arguments.append(args)
            for name, values in row.items():
                columns.setdefault(name, []).extend(values)
        return columns, arguments

    def _count_times(
        self, starts: list[int], ends: list[int | None], operations: bool = False
    ) -> None:
        counts = self.counts
        first, last = min(starts), max(starts)
        if counts.first_start is None or first < counts.first_start:
            counts.first_start = first
        if counts.last_start is None or last > counts.last_start:
            counts.last_start = last
        if None in ends:
            counts.without_duration += ends.count(None)
        lengths = [end - start for start, end in zip(starts, ends, strict=True) if end is not None]
        if lengths and min(lengths) < 0:
            counts.negative += sum(length < 0 for length in lengths)
        if operations and lengths and max(lengths) > LONG_NS:
            counts.long_ops.extend(length for length in lengths if length > LONG_NS)

    def _skip(self, category: str | None, events: list[Event]) -> None:
        if category is None:
            kinds = Counter(event.ph for event in events)
            for kind, count in kinds.items():
                if kind is None:
                    self.counts.without_phase += count
                self.counts.skipped[_SKIPPED_PHASES.get(kind or "", "uncategorised")] += count
        else:
            self.counts.skipped[category[:40]] += len(events)

    def _write_waiting(self) -> None:
        for table, columns in self._waiting:
            columns["process_id"] = [self._process_id] * len(columns["start_ns"])
            self._sink.write(table, columns)
        self._waiting.clear()

    def _write_collectives(self) -> None:
        """One row a collective: of the kernel that says so, else of the host call."""
        host: dict[
            tuple[int | None, str | None], tuple[CollectiveArgs, int | None, int, int | None]
        ]
        host = {
            (row[0].external_id, row[0].collective): row
            for row in self._host_collectives
            if row[0].external_id is not None
        }
        rows: list[
            tuple[CollectiveArgs, int | None, int | None, int | None, int | None, int | None]
        ] = []
        if self._kernel_collectives:
            self.counts.collective_source = "kernel arguments"
            seen: Counter[tuple[int | None, str | None]] = Counter(
                (args.external_id, args.collective) for args, _, _ in self._kernel_collectives
            )
            for args, op_id, correlation in self._kernel_collectives:
                key = (args.external_id, args.collective)
                call = host.get(key) if seen[key] == 1 else None
                tid, start, end = (None, None, None) if call is None else call[1:]
                rows.append((args, tid, start, end, correlation, op_id))
        elif self._host_collectives:
            self.counts.collective_source = "record_param_comms"
            rows = [
                (args, tid, start, end, None, None)
                for args, tid, start, end in self._host_collectives
            ]
        self.counts.collectives = len(rows)
        if not rows:
            return
        types = [collective_type(row[0].collective or "") for row in rows]
        self._sink.write(
            "collective",
            {
                "group_name": [row[0].group_name for row in rows],
                "group_desc": [row[0].group_desc for row in rows],
                "seq": [_known(row[0].seq) for row in rows],
                "type": types,
                "dtype": [row[0].dtype for row in rows],
                "elements_in": [row[0].elements_in for row in rows],
                "elements_out": [row[0].elements_out for row in rows],
                "group_size": [row[0].group_size for row in rows],
                "group_ranks": [row[0].group_ranks for row in rows],
                "peer_rank": [
                    _known(row[0].destination_rank)
                    if type_ == "send"
                    else _known(row[0].source_rank)
                    if type_ == "recv"
                    else None
                    for row, type_ in zip(rows, types, strict=True)
                ],
                "tid": [row[1] for row in rows],
                "start_ns": [row[2] for row in rows],
                "end_ns": [row[3] for row in rows],
                "correlation_id": [row[4] for row in rows],
                "op_id": [row[5] for row in rows],
            },
        )


_READ = frozenset({*RANGES, *DEVICE_OPS, *API_CALLS, SYNC, OVERHEAD})
_SKIPPED_PHASES = {
    "M": "metadata events",
    "i": "instant events",
    "I": "instant events",
    "C": "counters",
    "s": "flow events",
    "t": "flow events",
    "f": "flow events",
}
_MISSING = (b"", b"null")


def _times(events: list[Event]) -> tuple[list[int], list[int | None]]:
    """Exact starts and ends; an end is None where the event has no duration."""
    starts = to_ns_column([event.ts for event in events])
    try:
        lengths = to_ns_column([event.dur for event in events])
    except ValueError:
        return starts, [
            None if bytes(event.dur) in _MISSING else start + to_ns(event.dur)
            for start, event in zip(starts, events, strict=True)
        ]
    return starts, [start + length for start, length in zip(starts, lengths, strict=True)]


def _number(value: int | str | None) -> int | None:
    """A pid or tid; text that is no number raises ValueError."""
    if value is None or isinstance(value, int):
        return value
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise ValueError("id out of range")
    return number


def _numbers(values: list[int | str | None]) -> list[int | None]:
    if set(map(type, values)) == {int}:
        return values  # type: ignore[return-value]
    return [_number(value) for value in values]


def _device(pid: int | str | None) -> int | None:
    """The device ordinal that Kineto writes as the pid of device events."""
    number = _number(pid)
    return number if number is not None and 0 <= number < 2**31 else None


def _known(value: int | None) -> int | None:
    """None for Kineto's spellings of unknown: -1, also as an unsigned 32-bit number."""
    return None if value is None or value < 0 or value == _UNSIGNED_MINUS_ONE else value


def _positive(value: int | None) -> int | None:
    """None for ids of which 0 means unknown."""
    return None if value is None or value <= 0 else value


def _three(sizes: list[int] | None) -> list[int | None]:
    return [*(sizes or ()), None, None, None][:3]


def _queued(queued: float, start_ns: int) -> int | None:
    """Queue time in ns, if it lies on the trace's clock: some versions write another origin."""
    queued_ns = round(queued * 1000) if abs(queued) < 2**53 else 0
    return queued_ns if 0 < queued_ns <= start_ns else None


def _memory(text: str) -> str | None:
    word = text.strip().lower()
    return None if word in ("", "unknown", "invalid") else word
