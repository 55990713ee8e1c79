"""Canonical rows of one simulated rank: what a capture of it would hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapscope.ingest.writer import StagingSink
from gapscope.simulate.clock import RankClock, Reading
from gapscope.simulate.order import Placement
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
    Program,
)
from gapscope.simulate.spec import Spec
from gapscope.simulate.times import Seen
from gapscope.simulate.truth import Setting

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

GROUP, GROUP_DESC = "0", "default_pg"
CONTEXT = 1
# Handles of events are reused; only the sync id tells two records apart.
EVENT_HANDLES = 64
AUTOGRAD_TID = 100_000
# Sources list no more ranks of a group than this.
_LISTED_RANKS = 30
_CALLS = {
    RECORD: "cudaEventRecordWithFlags",
    WAIT: "cudaStreamWaitEvent",
    SYNC: "cudaDeviceSynchronize",
}


class Rows:
    """Writes ranks of one training; what is equal on all of them is worked out once."""

    def __init__(self, common: Setting, ranks: int) -> None:
        import numpy as np

        self.program, self.placement = common.program, common.placement
        self.ranks = ranks
        items, self.ops = self.program.items, self.program.ops
        self.items = items
        self.api = [n for n, item in enumerate(items) if item.what not in (BEGIN, END)]
        self.ordinal = {item: number for number, item in enumerate(self.api)}
        self.launch = np.array([n for n, item in enumerate(items) if item.what == LAUNCH])
        self.collective = [n for n, op in enumerate(self.ops) if op.collective is not None]
        self.pairs = pairs(items)

    def write(
        self, rank: int, directory: Path, seen: list[Seen], clock: RankClock, told: list[Reading]
    ) -> dict[str, int]:
        """Stage all tables of a rank; returns rows by table."""
        sink = StagingSink(directory)
        self.process_id = process_id(rank)
        self.seen = seen
        self._ops(sink)
        self._calls(sink)
        self._events(sink)
        self._ranges(sink)
        self._collectives(sink)
        self._identity(sink, clock, told)
        sink.close()
        return sink.rows

    def _each(self, of: Callable[[int, Seen], Ints]) -> Ints:
        import numpy as np

        return np.concatenate([of(number, seen) for number, seen in enumerate(self.seen)])

    def _tiled(self, values: list[Any]) -> list[Any]:
        return values * len(self.seen)

    def _correlation(self, items: Any) -> Ints:
        import numpy as np

        own = np.array([self.ordinal[int(item)] + 1 for item in items], dtype=np.int64)
        return np.concatenate([own + n * len(self.api) for n in range(len(self.seen))])

    def _stream(self, role: int) -> int:
        return stream_id(self.placement, role)

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
                    ["driver" if is_driver(name) else "runtime" for name in names]
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

        events = self.program.event_count
        for table, what in (("event_record", RECORD), ("stream_wait", WAIT)):
            chosen = [number for number in self.api if self.items[number].what == what]
            numbers = np.array([self.items[one].number for one in chosen], dtype=np.int64)
            count = len(chosen) * len(self.seen)
            columns: dict[str, Any] = {
                "process_id": [self.process_id] * count,
                "device": [0] * count,
                "context": [CONTEXT] * count,
                "stream": self._tiled([self._stream(self.items[one].stream) for one in chosen]),
                "event_id": self._tiled([int(one) % EVENT_HANDLES + 1 for one in numbers]),
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

    def _identity(self, sink: StagingSink, clock: RankClock, told: list[Reading]) -> None:
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
        settings = connections(self.placement)
        sink.write("environment", {"name": list(settings), "value": list(settings.values())})
        if clock.base_ns is not None:
            sink.write(
                "clock_anchor", {"ts_ns": [0], "kind": ["unix"], "value_ns": [clock.base_ns]}
            )
        sink.write(
            "clock_anchor",
            {
                "ts_ns": [one.at_ns for one in told],
                "kind": ["rank0"] * len(told),
                "value_ns": [one.at_ns + one.offset_ns for one in told],
                "uncertainty_ns": [one.uncertainty_ns for one in told],
            },
        )
        sink.quality(
            "simulated",
            "info",
            "`gapscope simulate` made these rows; their truth is in `simulated_truth`",
            "anything about a real machine",
        )

    def _tid(self, item: Item) -> int:
        return self.process_id + (AUTOGRAD_TID if item.thread == AUTOGRAD else 0)

    def _call(self, item: Item) -> str:
        return call_name(self.program, item)


def _picked(name: str, chosen: Any) -> Callable[[int, Seen], Ints]:
    return lambda _, seen: getattr(seen, name)[chosen]


def process_id(rank: int) -> int:
    """The process of a rank, whose main thread has its number."""
    return 1_000 + rank


def host_name(spec: Spec, rank: int) -> str:
    """The host that a rank is on."""
    return f"host{rank // spec.clock.ranks_per_host}"


def device_uuid(rank: int) -> str:
    """The device of a rank, which it has for itself."""
    return f"simulated-{rank:04d}"


def connections(placement: Placement) -> dict[str, str]:
    """What the environment says of hardware queues."""
    value = {"none": "8", "one": "1"}.get(placement.queues)
    return {} if value is None else {"CUDA_DEVICE_MAX_CONNECTIONS": value}


def stream_id(placement: Placement, role: int) -> int:
    """The stream that a role's work goes to."""
    return ORDER_STREAM_ID if role == ORDER else STREAM_IDS[placement.streams[role]]


def call_name(program: Program, item: Item) -> str:
    """The function that an item calls."""
    return _launch(program.ops[item.number]) if item.what == LAUNCH else _CALLS[item.what]


def is_driver(name: str) -> bool:
    """Whether a function is the driver's, not the runtime's."""
    return name.startswith("cu") and name[2].isupper()


def pairs(items: list[Item]) -> list[tuple[int, int]]:
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
