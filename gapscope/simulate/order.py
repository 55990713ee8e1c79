"""What each op of a program stands behind: its stream, events, hardware queue, communicator.

All of it is known before any time is: a start depends only on things issued before it.
"""

from __future__ import annotations

from dataclasses import dataclass

from gapscope.simulate.program import (
    COMPUTE,
    COPY_IN,
    GATHER,
    LAUNCH,
    ORDER,
    RECORD,
    SCATTER,
    WAIT,
    Op,
    Program,
)

STREAMS = (COMPUTE, COPY_IN, GATHER, SCATTER)

# Hardware queues that the streams share.
QUEUES: dict[str, tuple[frozenset[int], ...]] = {
    "none": (),
    "two": (frozenset({COMPUTE, GATHER}), frozenset({COPY_IN, SCATTER})),
    "one": (frozenset(STREAMS),),
}


@dataclass(frozen=True)
class Placement:
    """Which stream a role really uses, and which streams share a queue."""

    streams: tuple[int, ...]
    queues: str


OWN_STREAMS = STREAMS
MERGED_STREAMS = (COMPUTE, COPY_IN, COMPUTE, COMPUTE)


@dataclass(frozen=True)
class Segment:
    """Ops that follow each other on one stream with nothing between them.

    Numbers of ops; a negative one is `~stream`: what the step before left on that stream.
    `first` and `stop` index `Order.issued`.
    """

    first: int
    stop: int
    stream: int
    before: int
    events: tuple[int, ...]
    queued: tuple[int, ...]
    communicator: int | None


@dataclass(frozen=True)
class Order:
    """Segments in host order. An op's number is its place in host order."""

    segments: tuple[Segment, ...]
    # Per stream: the last op of the step, and its last kernel or memset; ~stream where it has none.
    last: dict[int, int]
    last_dispatch: dict[int, int]


def order(program: Program, placement: Placement, *, is_exact: bool = False) -> Order:
    """Work out the order of one step's program; `is_exact` leaves coarse waits out."""
    streams = placement.streams
    last = {stream: ~stream for stream in STREAMS}
    dispatched = dict(last)
    pending: dict[int, set[int]] = {stream: set() for stream in (*STREAMS, ORDER)}
    recorded: dict[int, set[int]] = {}
    neighbours = {
        stream: tuple(
            sorted(
                other
                for queue in QUEUES[placement.queues]
                if stream in queue
                for other in queue - {stream}
            )
        )
        for stream in STREAMS
    }
    collective: int | None = None
    segments: list[Segment] = []
    is_open = False
    for item in program.items:
        stream = streams[item.stream] if 0 <= item.stream < len(streams) else item.stream
        if item.what == RECORD:
            own = {last[stream]} if stream in last else set()
            recorded[item.number] = own | pending[stream]
        elif item.what == WAIT:
            # The order stream adds nothing to what `communicator` says.
            if stream != ORDER and not (is_exact and item.is_coarse):
                pending[stream] |= {one for one in recorded[item.number] if not _on(one, stream)}
                pending[stream] -= {last[stream]}
        elif item.what == LAUNCH:
            op = program.ops[item.number]
            is_collective = op.collective is not None
            events = _own(pending[stream], program.ops, streams, stream)
            joins = (
                is_open
                and segments[-1].stream == stream
                and segments[-1].stop == item.number
                and not events
                and not is_collective
            )
            if joins:
                head = segments[-1]
                segments[-1] = Segment(
                    *(head.first, item.number + 1, stream, head.before),
                    *(head.events, head.queued, head.communicator),
                )
            else:
                segments.append(
                    Segment(
                        *(item.number, item.number + 1, stream, last[stream], events),
                        tuple(dispatched[other] for other in neighbours[stream]),
                        collective if is_collective else None,
                    )
                )
            is_open = not is_collective
            pending[stream] = set()
            last[stream] = item.number
            if op.kind != "memcpy":
                dispatched[stream] = item.number
            if is_collective:
                collective = item.number
    return Order(tuple(segments), last, dispatched)


def _on(op: int, stream: int) -> bool:
    return op < 0 and ~op == stream


def _own(waited: set[int], ops: list[Op], streams: tuple[int, ...], stream: int) -> tuple[int, ...]:
    """Ops waited for that are not on the waiting stream itself: there the order says it already."""
    return tuple(sorted(one for one in waited if one < 0 or streams[ops[one].stream] != stream))
