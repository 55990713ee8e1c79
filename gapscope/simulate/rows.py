"""Canonical rows of one simulated rank: what a capture of it would hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapscope.ingest.writer import StagingSink
from gapscope.simulate.clock import RankClock
from gapscope.simulate.engine import Timing
from gapscope.simulate.program import (
    AUTOGRAD,
    BEGIN,
    END,
    LAUNCH,
    ORDER,
    ORDER_STREAM_ID,
    RECORD,
    STREAM_IDS,
    SYNC,
    WAIT,
    Item,
    Op,
)
from gapscope.simulate.truth import Training

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

GROUP, GROUP_DESC = "0", "default_pg"
CONTEXT = 1
# Handles of events are reused; only the sync id tells two records apart.
_EVENT_HANDLES = 64
# Sources list no more ranks of a group than this.
_LISTED_RANKS = 30
_CALLS = {
    RECORD: "cudaEventRecordWithFlags",
    WAIT: "cudaStreamWaitEvent",
    SYNC: "cudaDeviceSynchronize",
}


class Rows:
    """Writes ranks of one training; what is equal on all of them is worked out once."""

    def __init__(self, training: Training, ranks: int) -> None:
        import numpy as np

        self.training = training
        self.ranks = ranks
        items, self.ops = training.program.items, training.program.ops
        self.items = items
        self.api = [n for n, item in enumerate(items) if item.what not in (BEGIN, END)]
        self.ordinal = {item: number for number, item in enumerate(self.api)}
        self.launch = np.array([n for n, item in enumerate(items) if item.what == LAUNCH])
        self.collective = [n for n, op in enumerate(self.ops) if op.collective is not None]
        self.pairs = _pairs(items)

    def write(self, rank: int, directory: Path, clock: RankClock) -> dict[str, int]:
        """Stage all tables of a rank; returns rows by table."""
        sink = StagingSink(directory)
        self.process_id = 1_000 + rank
        steps = self.training.steps
        self.seen = [
            _Seen(timing, rank, clock, self.training.opened[number][rank])
            for number, timing in enumerate(steps)
        ]
        self._ops(sink)
        self._calls(sink)
        self._events(sink)
        self._ranges(sink)
        self._collectives(sink)
        self._identity(sink, clock)
        sink.close()
        return sink.rows

    def _each(self, of: Callable[[int, _Seen], Ints]) -> Ints:
        import numpy as np

        return np.concatenate([of(number, seen) for number, seen in enumerate(self.seen)])

    def _tiled(self, values: list[Any]) -> list[Any]:
        return values * len(self.seen)

    def _correlation(self, items: Any) -> Ints:
        import numpy as np

        own = np.array([self.ordinal[int(item)] + 1 for item in items], dtype=np.int64)
        return np.concatenate([own + n * len(self.api) for n in range(len(self.seen))])

    def _stream(self, role: int) -> int:
        if role == ORDER:
            return ORDER_STREAM_ID
        return STREAM_IDS[self.training.placement.streams[role]]

    def _ops(self, sink: StagingSink) -> None:
        ops = self.ops
        is_copy = [op.kind == "memcpy" for op in ops]

        def of_copies(value: str) -> list[str | None]:
            return self._tiled([value if copy else None for copy in is_copy])

        count = len(ops) * len(self.seen)
        sink.write(
            "gpu_op",
            {
                "kind": self._tiled([op.kind for op in ops]),
                "name_id": self._tiled([sink.intern(op.name) for op in ops]),
                "process_id": [self.process_id] * count,
                "device": [0] * count,
                "context": [CONTEXT] * count,
                "stream": self._tiled([self._stream(op.stream) for op in ops]),
                "start_ns": self._each(lambda _, seen: seen.start),
                "end_ns": self._each(lambda _, seen: seen.end),
                "correlation_id": self._correlation(self.launch),
                "bytes": self._tiled([op.bytes for op in ops]),
                "copy_kind": of_copies("HtoD"),
                "src_memory": of_copies("pinned"),
                "dst_memory": of_copies("device"),
            },
        )

    def _calls(self, sink: StagingSink) -> None:
        items = [self.items[number] for number in self.api]
        names = [self._call(item) for item in items]
        count = len(items) * len(self.seen)
        sink.write(
            "api_call",
            {
                "process_id": [self.process_id] * count,
                "tid": self._tiled([self._tid(item) for item in items]),
                "domain": self._tiled(
                    [
                        "driver" if name.startswith("cu") and name[2].isupper() else "runtime"
                        for name in names
                    ]
                ),
                "name_id": self._tiled([sink.intern(name) for name in names]),
                "start_ns": self._each(lambda _, seen: seen.call_start[self.api]),
                "end_ns": self._each(lambda _, seen: seen.call_end[self.api]),
                "correlation_id": self._correlation(self.api),
                "return_code": [0] * count,
            },
        )
        self._syncs(sink)

    def _syncs(self, sink: StagingSink) -> None:
        chosen = [number for number in self.api if self.items[number].what == SYNC]
        count = len(chosen) * len(self.seen)
        sink.write(
            "host_sync",
            {
                "process_id": [self.process_id] * count,
                "device": [0] * count,
                "kind": ["context"] * count,
                "correlation_id": self._correlation(chosen),
                "start_ns": self._each(lambda _, seen: seen.call_start[chosen]),
                "end_ns": self._each(lambda _, seen: seen.call_end[chosen]),
            },
        )

    def _events(self, sink: StagingSink) -> None:
        import numpy as np

        events = self.training.program.event_count
        for table, what in (("event_record", RECORD), ("stream_wait", WAIT)):
            chosen = [number for number in self.api if self.items[number].what == what]
            numbers = np.array([self.items[one].number for one in chosen], dtype=np.int64)
            count = len(chosen) * len(self.seen)
            columns: dict[str, Any] = {
                "process_id": [self.process_id] * count,
                "device": [0] * count,
                "context": [CONTEXT] * count,
                "stream": self._tiled([self._stream(self.items[one].stream) for one in chosen]),
                "event_id": self._tiled([int(one) % _EVENT_HANDLES + 1 for one in numbers]),
                "event_sync_id": np.concatenate(
                    [numbers + 1 + step * events for step in range(len(self.seen))]
                ),
                "correlation_id": self._correlation(chosen),
            }
            if what == WAIT:
                columns["start_ns"] = self._each(_picked("call_start", chosen))
                columns["end_ns"] = self._each(_picked("call_end", chosen))
            sink.write(table, columns)

    def _ranges(self, sink: StagingSink) -> None:
        begins = [begin for begin, _ in self.pairs]
        ends = [end for _, end in self.pairs]
        texts = [self.items[begin].text for begin in begins]
        for step, seen in enumerate(self.seen):
            names = [f"ProfilerStep#{step}", *texts]
            count = len(names)
            sink.write(
                "range",
                {
                    "process_id": [self.process_id] * count,
                    "tid": [self.process_id, *(self._tid(self.items[one]) for one in begins)],
                    "domain": ["pytorch"] * count,
                    "kind": ["user_annotation"] * count,
                    "name_id": sink.intern_many(names),
                    "start_ns": [seen.opened, *seen.call_start[begins]],
                    "end_ns": [seen.closed, *seen.call_end[ends]],
                },
            )

    def _collectives(self, sink: StagingSink) -> None:
        import numpy as np

        ops = [self.ops[number] for number in self.collective]
        chosen = self.launch[self.collective]
        count = len(ops) * len(self.seen)
        number = np.array(self.collective, dtype=np.int64)
        sink.write(
            "collective",
            {
                "group_name": [GROUP] * count,
                "group_desc": [GROUP_DESC] * count,
                "seq": np.arange(1, count + 1),
                "type": self._tiled([op.collective for op in ops]),
                "dtype": ["BFloat16"] * count,
                "elements_in": self._tiled([op.elements_in for op in ops]),
                "elements_out": self._tiled([op.elements_out for op in ops]),
                "group_size": [self.ranks] * count,
                "group_ranks": [_listed(self.ranks)] * count,
                "tid": self._tiled([self._tid(self.items[one]) for one in chosen]),
                "start_ns": self._each(_picked("call_start", chosen)),
                "end_ns": self._each(_picked("call_end", chosen)),
                "correlation_id": self._correlation(chosen),
                "op_id": np.concatenate(
                    [number + step * len(self.ops) for step in range(len(self.seen))]
                ),
            },
        )

    def _identity(self, sink: StagingSink, clock: RankClock) -> None:
        sink.write(
            "process_group",
            {
                "group_name": [GROUP],
                "group_desc": [GROUP_DESC],
                "backend": ["cuda:nccl"],
                "group_size": [self.ranks],
                "group_ranks": [_listed(self.ranks)],
            },
        )
        count = len(STREAM_IDS)
        sink.write(
            "stream",
            {
                "device": [0] * count,
                "context": [CONTEXT] * count,
                "stream": list(STREAM_IDS),
                "priority": [0, *[-1] * (count - 1)],
                "is_default": [1, *[0] * (count - 1)],
            },
        )
        connections = {"none": "8", "one": "1"}.get(self.training.placement.queues)
        if connections is not None:
            sink.write(
                "environment",
                {"name": ["CUDA_DEVICE_MAX_CONNECTIONS"], "value": [connections]},
            )
        if clock.base_ns is not None:
            sink.write(
                "clock_anchor", {"ts_ns": [0], "kind": ["unix"], "value_ns": [clock.base_ns]}
            )
        sink.quality(
            "simulated",
            "info",
            "`gapscope simulate` made these rows; their truth is in `simulated_truth`",
            "anything about a real machine",
        )

    def _tid(self, item: Item) -> int:
        return self.process_id + (100_000 if item.thread == AUTOGRAD else 0)

    def _call(self, item: Item) -> str:
        return _launch(self.ops[item.number]) if item.what == LAUNCH else _CALLS[item.what]


class _Seen:
    """One step of one rank on the rank's clock."""

    def __init__(self, timing: Timing, rank: int, clock: RankClock, opened: float) -> None:
        self.start = clock.local(timing.start[:, rank])
        self.end = clock.local(timing.end[:, rank])
        self.call_start = clock.local(timing.call_start[:, rank])
        self.call_end = clock.local(timing.call_end[:, rank])
        self.opened = int(clock.local(opened))
        self.closed = int(clock.local(float(timing.host_end[rank])))


def _picked(name: str, chosen: Any) -> Callable[[int, _Seen], Ints]:
    return lambda _, seen: getattr(seen, name)[chosen]


def _pairs(items: list[Item]) -> list[tuple[int, int]]:
    """Where each range opens and closes, in the order of opening."""
    open_: list[int] = []
    found = []
    for number, item in enumerate(items):
        if item.what == BEGIN:
            open_.append(number)
        elif item.what == END:
            found.append((open_.pop(), number))
    return sorted(found)


def _launch(op: Op) -> str:
    if op.kind == "memcpy":
        return "cudaMemcpyAsync"
    if op.kind == "memset":
        return "cudaMemsetAsync"
    is_library = op.name.startswith(("nvjet", "nccl", "cudnn"))
    return "cuLaunchKernelEx" if is_library else "cudaLaunchKernel"


def _listed(ranks: int) -> str:
    listed = ", ".join(map(str, range(min(ranks, _LISTED_RANKS))))
    return f"[{listed}]" if ranks <= _LISTED_RANKS else f"[{listed}, ...]"
