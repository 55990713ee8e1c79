"""Kineto events to canonical rows, chunk by chunk."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from gapscope.ingest.frames import without_directories
from gapscope.ingest.kineto_collectives import Collectives
from gapscope.ingest.kineto_convert import (
    Columns,
    Converter,
    Counts,
    device_of,
    known,
    number,
    numbers,
    positive,
    times,
)
from gapscope.ingest.kineto_device import DEVICE_OPS, DeviceOps
from gapscope.ingest.kineto_fields import ApiArgs, Event, FrameArgs, RangeArgs, SyncArgs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapscope.ingest.base import Sink

# Category (lower case) -> kind or domain. The short forms come from Kineto before 2022.
HOST_RANGES = {
    "cpu_op": "cpu_op",
    "operator": "cpu_op",
    "user_annotation": "user_annotation",
}
API_CALLS = {
    "cuda_runtime": "runtime",
    "hip_runtime": "runtime",
    "runtime": "runtime",
    "cuda_driver": "driver",
    "hip_driver": "driver",
    "driver": "driver",
}
DEVICE_RANGE = "gpu_user_annotation"
FRAME = "python_function"
SYNC = "cuda_sync"
OVERHEAD = "overhead"

WAIT_KIND = "stream wait event"
SYNC_KINDS = {"event sync": "event", "stream sync": "stream", "context sync": "context"}

_WAIT_CALLS = ("cudaStreamWaitEvent", "cuStreamWaitEvent", "hipStreamWaitEvent")
_VERSION_SUFFIX = re.compile(r"_v\d{4,}$")
_SKIPPED_PHASES = {
    "M": "metadata events",
    "i": "instant events",
    "I": "instant events",
    "C": "counters",
    "s": "flow events",
    "t": "flow events",
    "f": "flow events",
}


class _Names(dict["str | None", int]):
    """name_id by text, asked of the sink once per distinct text.

    An event without a name keeps an empty one, so that no join on names can lose it.
    """

    def __init__(self, intern: Callable[[str], int]) -> None:
        super().__init__()
        self._intern = intern

    def __missing__(self, text: str | None) -> int:
        name_id = self[text] = self._intern(text or "")
        return name_id


class _Buckets(dict["str | None", "list[Event]"]):
    """The list for events of a category: that of its group, or its own if it is skipped.

    One look-up an event: a trace has tens of categories and millions of events.
    """

    def __init__(
        self, groups: dict[str, list[Event]], skipped: dict[str | None, list[Event]]
    ) -> None:
        super().__init__()
        self._groups = groups
        self._skipped = skipped

    def __missing__(self, category: str | None) -> list[Event]:
        group = _GROUPS.get((category or "").lower())
        bucket = self[category] = (
            self._skipped.setdefault(category, [])
            if group is None
            else self._groups.setdefault(group, [])
        )
        return bucket


class KinetoRows:
    """Turns chunks of events into rows; `finish` writes what had to wait for the end."""

    def __init__(self, sink: Sink) -> None:
        self.counts = Counts()
        self._sink = sink
        self._names = _Names(sink.intern)
        self._api_names = _Names(lambda text: sink.intern(_VERSION_SUFFIX.sub("", text)))
        self._frame_names = _Names(lambda text: sink.intern(without_directories(text)))
        self._converter = Converter(self.counts)
        self._collectives = Collectives(self.counts)
        self._device_ops = DeviceOps(self.counts, self._converter, self._names, self._collectives)
        # Device rows seen before the first host event says whose they are.
        self._waiting: list[tuple[str, Columns]] = []
        # Event records that waits and syncs name: correlation id -> device, context, stream, event.
        self._records: dict[int, tuple[int | None, ...]] = {}
        self.process_id: int | None = None

    def add(self, events: Sequence[Event]) -> None:
        """Read one chunk."""
        self.counts.events += len(events)
        groups: dict[str, list[Event]] = {}
        skipped: dict[str | None, list[Event]] = {}
        buckets = _Buckets(groups, skipped)
        for event in events:
            buckets[event.cat].append(event)
        for category, bucket in skipped.items():
            self._skip(category, bucket)
        for group, bucket in groups.items():
            complete = [event for event in bucket if event.ph == "X"]
            if len(complete) < len(bucket):
                for event in bucket:
                    if event.ph != "X":
                        self._skip(event.cat, [event])
            self._write_group(group, complete)
        if self.process_id is None and self.counts.host_pids:
            self.process_id = next(iter(self.counts.host_pids))
        if self.process_id is not None:
            self._write_waiting()

    def finish(self) -> None:
        """Write rows that needed the whole file."""
        self._write_waiting()
        self._collectives.write(self._sink)
        if self._records:
            correlations = sorted(self._records)
            rows = [self._records[correlation] for correlation in correlations]
            self._sink.write(
                "event_record",
                {
                    "process_id": [self.process_id] * len(rows),
                    "device": [row[0] for row in rows],
                    "context": [row[1] for row in rows],
                    "stream": [row[2] for row in rows],
                    "event_id": [row[3] for row in rows],
                    "correlation_id": correlations,
                },
            )

    def _write_group(self, group: str, events: list[Event]) -> None:
        if group == "device":
            columns = self._device_ops.columns(events)
            self._count_times(columns, operations=True)
            self._waiting.append(("gpu_op", columns))
        elif group == "api":
            self._sink.write("api_call", self._api_calls(events))
        elif group == "range":
            self._sink.write("range", self._host_ranges(events))
        elif group == FRAME:
            self._sink.write("python_frame", self._frames(events))
        elif group == DEVICE_RANGE:
            self._waiting.append(("range", self._device_ranges(events)))
        elif group == SYNC:
            self._waiting.extend(self._syncs(events))
        else:
            self._sink.write("overhead", self._overheads(events))

    def _write_waiting(self) -> None:
        for table, columns in self._waiting:
            if columns:
                columns["process_id"] = [self.process_id] * len(columns["start_ns"])
                self._sink.write(table, columns)
        self._waiting.clear()

    # --- one group each -----------------------------------------------------------------------

    def _api_calls(self, events: list[Event]) -> Columns:
        def build(events: list[Event], arguments: list[ApiArgs]) -> Columns:
            starts, ends = times(events)
            return {
                "process_id": numbers([event.pid for event in events]),
                "tid": numbers([event.tid for event in events]),
                "domain": [API_CALLS[(event.cat or "").lower()] for event in events],
                "name_id": [self._api_names[event.name] for event in events],
                "start_ns": starts,
                "end_ns": ends,
                "correlation_id": [positive(args.correlation) for args in arguments],
            }

        columns, _ = self._converter.convert(events, ApiArgs, build)
        self._count_times(columns, operations=True)
        self._count_processes(columns)
        self.counts.wait_calls += sum(
            event.name is not None and event.name.startswith(_WAIT_CALLS) for event in events
        )
        return columns

    def _host_ranges(self, events: list[Event]) -> Columns:
        def build(events: list[Event], arguments: list[RangeArgs]) -> Columns:
            starts, ends = times(events)
            return {
                "process_id": numbers([event.pid for event in events]),
                "tid": numbers([event.tid for event in events]),
                "domain": ["pytorch"] * len(events),
                "kind": [HOST_RANGES[(event.cat or "").lower()] for event in events],
                "name_id": [self._names[event.name] for event in events],
                "start_ns": starts,
                "end_ns": ends,
                "external_id": [args.external_id for args in arguments],
                "sequence_number": [known(args.sequence_number) for args in arguments],
            }

        columns, _ = self._converter.convert(events, RangeArgs, build)
        self._count_times(columns)
        self._count_processes(columns)
        self._collectives.add_calls(
            [event for event in events if event.name == "record_param_comms"]
        )
        return columns

    def _frames(self, events: list[Event]) -> Columns:
        def build(events: list[Event], arguments: list[FrameArgs]) -> Columns:
            starts, ends = times(events)
            return {
                "process_id": numbers([event.pid for event in events]),
                "tid": numbers([event.tid for event in events]),
                "frame_id": [args.frame_id for args in arguments],
                "parent_id": [args.parent_id for args in arguments],
                "name_id": [self._frame_names[event.name] for event in events],
                "start_ns": starts,
                "end_ns": ends,
            }

        columns, _ = self._converter.convert(events, FrameArgs, build)
        return columns

    def _device_ranges(self, events: list[Event]) -> Columns:
        def build(events: list[Event], arguments: list[RangeArgs]) -> Columns:
            starts, ends = times(events)
            return {
                "domain": ["pytorch"] * len(events),
                "kind": [DEVICE_RANGE] * len(events),
                "name_id": [self._names[event.name] for event in events],
                "start_ns": starts,
                "end_ns": ends,
                "device": [device_of(event.pid) for event in events],
                "stream": [known(number(event.tid)) for event in events],
                "external_id": [args.external_id for args in arguments],
            }

        columns, _ = self._converter.convert(events, RangeArgs, build)
        self._count_times(columns)
        return columns

    def _overheads(self, events: list[Event]) -> Columns:
        def build(events: list[Event], _arguments: list[RangeArgs]) -> Columns:
            starts, ends = times(events)
            pids = [known(number(event.pid)) for event in events]
            return {
                "process_id": pids,
                # Kineto writes pid -1, tid 0 for its own flushes: no thread is meant.
                "tid": [
                    None if pid is None else number(event.tid)
                    for pid, event in zip(pids, events, strict=True)
                ],
                "name_id": [self._names[event.name] for event in events],
                "start_ns": starts,
                "end_ns": ends,
            }

        columns, _ = self._converter.convert(events, RangeArgs, build)
        self._count_times(columns)
        return columns

    def _syncs(self, events: list[Event]) -> list[tuple[str, Columns]]:
        def build(events: list[Event], arguments: list[SyncArgs]) -> Columns:
            starts, ends = times(events)
            return {
                "kind": [
                    (args.kind or event.name or "").lower()
                    for event, args in zip(events, arguments, strict=True)
                ],
                "device": [
                    args.device if args.device is not None else device_of(event.pid)
                    for event, args in zip(events, arguments, strict=True)
                ],
                "context": [known(args.context) for args in arguments],
                "stream": [known(args.stream) for args in arguments],
                "event_id": [known(args.event_id) for args in arguments],
                "correlation_id": [positive(args.correlation) for args in arguments],
                "start_ns": starts,
                "end_ns": ends,
                "record_stream": [known(args.record_stream) for args in arguments],
                "record_correlation_id": [positive(args.record_correlation) for args in arguments],
            }

        columns, _ = self._converter.convert(events, SyncArgs, build)
        if not columns:
            return []
        self._count_times(columns)
        names = ("device", "context", "record_stream", "event_id")
        for correlation, *record in zip(
            columns["record_correlation_id"], *(columns[name] for name in names), strict=True
        ):
            if correlation is not None:
                self._records.setdefault(correlation, tuple(record))
        is_wait = [kind == WAIT_KIND for kind in columns["kind"]]
        waits = _where(columns, is_wait, leave_out={"kind"})
        syncs = _where(
            columns,
            [not wait for wait in is_wait],
            leave_out={"context", "record_stream", "record_correlation_id"},
        )
        syncs["kind"] = [SYNC_KINDS.get(kind, "unknown") for kind in syncs["kind"]]
        self.counts.sync_rows += len(is_wait)
        self.counts.waits += len(waits["start_ns"])
        self.counts.resolved_waits += sum(
            correlation is not None for correlation in waits["record_correlation_id"]
        )
        return [("stream_wait", waits), ("host_sync", syncs)]

    # --- counting -----------------------------------------------------------------------------

    def _count_times(self, columns: Columns, operations: bool = False) -> None:
        if columns:
            self.counts.add_times(columns["start_ns"], columns["end_ns"], operations)

    def _count_processes(self, columns: Columns) -> None:
        self.counts.host_pids.update(
            pid for pid in columns.get("process_id", ()) if pid is not None
        )

    def _skip(self, category: str | None, events: list[Event]) -> None:
        if category is not None:
            self.counts.skipped[category[:40]] += len(events)
            return
        for phase, count in Counter(event.ph for event in events).items():
            if phase is None:
                self.counts.without_phase += count
            self.counts.skipped[_SKIPPED_PHASES.get(phase or "", "uncategorised")] += count


def _where(columns: Columns, mask: list[bool], leave_out: set[str]) -> Columns:
    return {
        name: [value for value, keep in zip(column, mask, strict=True) if keep]
        for name, column in columns.items()
        if name not in leave_out
    }


_GROUPS = {
    **dict.fromkeys(DEVICE_OPS, "device"),
    **dict.fromkeys(API_CALLS, "api"),
    **dict.fromkeys(HOST_RANGES, "range"),
    FRAME: FRAME,
    DEVICE_RANGE: DEVICE_RANGE,
    SYNC: SYNC,
    OVERHEAD: OVERHEAD,
}
