"""Replay of the device ops of a step under chosen rules: what-if on the run's own work.

Every op starts at the latest of its release by the host, the op before it on its stream, the rule
edges into its node's first op, the hardware queue, and the collective before it of the same
communicator, plus one constant launch floor. No op replays its own measured lag, so that the
as-executed replay can fail, and then says that the rules do not explain the run.

The ops of one node on one stream that are issued one after another make a *segment*. In max-plus
algebra a segment is two numbers, D (the work in it) and C (where its own releases put its end):
`end = max(entry + D, C)`. That is exact, and lets all steps and ranks advance at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapscope.model.rules.book import Edge
from gapscope.model.rules.fsdp2 import COLLECTIVES, ENGINE, stream_waits

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gapscope.model.load import Batch, Ops

    Int = NDArray[np.int64]

# Further away than any time of a step, and far enough from overflow to add to.
NEVER = -(1 << 60)


@dataclass(frozen=True)
class Queue:
    """Streams that the driver put on one in-order hardware queue.

    `until` tells what frees the queue: the `start` of the last op issued earlier on another of its
    streams, or that op's `end` (event timestamps make the queue wait for it).
    """

    streams: frozenset[int]
    until: str


@dataclass(frozen=True)
class Segment:
    """Consecutive ops of one node and stream; `is_held`: its first op is no copy, queues apply."""

    node: int
    stream: int
    is_held: bool
    has_kernel: bool


@dataclass(frozen=True)
class Segments:
    """Segments of a batch and their numbers [segment, step, rank], ns."""

    items: tuple[Segment, ...]
    work: Int  # D
    until_last: Int  # from entry to the start of the last kernel
    last_length: Int  # of that kernel
    released: Int  # C
    last_released: Int  # where releases put the start of the last kernel
    first_released: Int
    floor: int


@dataclass(frozen=True)
class Scenario:
    """What a replay keeps of the run: everything, unless said otherwise."""

    late_launch: bool = True
    stream_order: bool = True
    skew: bool = True
    queues: tuple[Queue, ...] = ()
    # Communicators of collectives by node; None: as they were.
    links: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Replayed:
    """End of each segment [segment, step, rank] and length of the step [step, rank], ns."""

    start: Int
    end: Int
    step: Int


class DifferentSegmentsError(Exception):
    """Ranks issued the ops of one program in different orders."""


def cut(ops: Ops) -> tuple[Int, Int]:
    """Where in `ops` each segment begins, and for each its node, stream, is_held, has_kernel.

    A node's ops on one stream that are issued one after another are a segment; copies before its
    first kernel are one of their own, for no hardware queue holds them.
    """
    import numpy as np

    if not len(ops):
        return np.empty(0, np.int64), np.empty((0, 4), np.int64)
    at = np.arange(len(ops))
    is_new = np.ones(len(ops), bool)
    is_new[1:] = (np.diff(ops.node) != 0) | (np.diff(ops.stream) != 0)
    run = np.maximum.accumulate(np.where(is_new, at, 0))
    last_kernel = np.maximum.accumulate(np.where(ops.is_copy, -1, at))
    before = np.concatenate(([-1], last_kernel[:-1]))
    is_new |= ops.is_copy[run] & ~ops.is_copy & (before < run)
    begin = np.flatnonzero(is_new)
    has_kernel = np.logical_or.reduceat(~ops.is_copy, begin)
    described = (ops.node[begin], ops.stream[begin], ~ops.is_copy[begin], has_kernel)
    return begin, np.stack(described, axis=1).astype(np.int64)


def alike(batch: Batch) -> list[Batch]:
    """The batch in parts: steps that issued the program's ops in one order, on like streams.

    One such step among many would forbid the replay of all. A step whose ranks differ among
    themselves is a part of its own with others of its kind, and has none.
    """
    parts: dict[bytes, list[int]] = {}
    for s in range(len(batch.steps)):
        orders = {cut(batch.ops[s, r])[1].tobytes() for r in range(len(batch.ranks))}
        parts.setdefault(orders.pop() if len(orders) == 1 else b"ranks differ", []).append(s)
    return [batch] if len(parts) == 1 else [batch.part(steps) for steps in parts.values()]


def segments(batch: Batch, floor: int) -> Segments:
    """Cut every rank and step alike; raises DifferentSegmentsError when ranks do not match."""
    import numpy as np

    columns = sorted(batch.ops)
    _, wanted = cut(batch.ops[columns[0]])
    items = tuple(
        Segment(node, stream, bool(is_held), bool(has_kernel))
        for node, stream, is_held, has_kernel in wanted.tolist()
    )
    shape = (len(items), len(batch.steps), len(batch.ranks))
    work, until_last, last_length = (np.zeros(shape, np.int64) for _ in range(3))
    released, last_released, first_released = (np.zeros(shape, np.int64) for _ in range(3))
    for s, r in columns:
        ops = batch.ops[s, r]
        begin, described = cut(ops)
        if not np.array_equal(described, wanted):
            raise DifferentSegmentsError
        stop = np.append(begin[1:], len(ops))
        length = ops.end - ops.start
        after = np.cumsum(length + floor)
        before = after - (length + floor)
        # Where each op's release alone would put the end of everything, less the work before it.
        pushed = ops.issued - before
        work[:, s, r] = after[stop - 1] - before[begin]
        released[:, s, r] = np.maximum.reduceat(pushed, begin) + after[stop - 1]
        first_released[:, s, r] = ops.issued[begin]
        last = _last_kernels(ops, begin, stop)
        until_last[:, s, r] = after[last] - length[last] - before[begin]
        last_length[:, s, r] = length[last]
        upto_last = _most_upto(pushed, begin, last)
        last_released[:, s, r] = upto_last + after[last] - length[last]
    return Segments(
        items, work, until_last, last_length, released, last_released, first_released, floor
    )


def _most_upto(values: Int, begin: Int, last: Int) -> Int:
    """Largest value of each [begin, last]; the segments follow each other."""
    import numpy as np

    # What lies behind a segment's last kernel becomes a group of its own, which is not asked for.
    stop = np.append(begin[1:], len(values))
    has_rest = last + 1 < stop
    cuts = np.sort(np.concatenate([begin, (last + 1)[has_rest]]))
    most: Int = np.maximum.reduceat(values, cuts)
    return most[np.searchsorted(cuts, begin)]


def _last_kernels(ops: Ops, begin: Int, stop: Int) -> Int:
    """Position of each segment's last op that is no copy; of its last op where all are copies."""
    import numpy as np

    position = np.where(ops.is_copy, -1, np.arange(len(ops)))
    last: Int = np.maximum.reduceat(position, begin)
    return np.where(last < begin, stop - 1, last)


def replay(
    batch: Batch, cuts: Segments, edges: Sequence[Edge], transfer: Int, scenario: Scenario
) -> Replayed:
    """Run the program once for all steps and ranks. `transfer` is T(c), [node, step, rank] ns."""
    import numpy as np

    plan = _Plan(batch, cuts, edges, scenario)
    start, end = np.empty_like(cuts.work), np.empty_like(cuts.work)
    # When the last kernel of each segment started and ended: a copy behind it holds no queue.
    dispatched, finished = np.empty_like(cuts.work), np.empty_like(cuts.work)
    node_end = np.full((len(batch.program), *batch.observed.shape), NEVER, np.int64)
    for i, segment in enumerate(cuts.items):
        # Whatever the host issued ahead waits for the step before to end: rule F1.
        entry = np.array(batch.window_start)
        for before in plan.nodes_before[i]:
            np.maximum(entry, node_end[before], out=entry)
        for before in plan.segments_before[i]:
            np.maximum(entry, end[before], out=entry)
        for before in plan.dispatched_before[i]:
            np.maximum(entry, dispatched[before], out=entry)
        for before in plan.finished_before[i]:
            np.maximum(entry, finished[before], out=entry)
        groups = batch.joins.get(segment.node)
        if groups is not None:
            if scenario.late_launch:
                np.maximum(entry, cuts.first_released[i], out=entry)
            start[i] = entry + cuts.floor
            dispatched[i] = start[i]
            end[i] = start[i] + transfer[segment.node]
            if scenario.skew:
                for group in groups:
                    last = start[i][:, group].max(axis=1)
                    end[i][:, group] = last[:, None] + transfer[segment.node][:, group]
            finished[i] = end[i]
        else:
            end[i] = entry + cuts.work[i]
            dispatched[i] = entry + cuts.until_last[i]
            start[i] = entry + cuts.floor
            if scenario.late_launch:
                np.maximum(end[i], cuts.released[i], out=end[i])
                np.maximum(dispatched[i], cuts.last_released[i], out=dispatched[i])
                np.maximum(start[i], cuts.first_released[i] + cuts.floor, out=start[i])
            finished[i] = dispatched[i] + cuts.last_length[i]
        np.maximum(node_end[segment.node], end[i], out=node_end[segment.node])
    return Replayed(start, end, end.max(axis=0) - batch.window_start)


class _Plan:
    """For each segment: which nodes, segments and kernels it waits for."""

    def __init__(
        self, batch: Batch, cuts: Segments, edges: Sequence[Edge], scenario: Scenario
    ) -> None:
        into: dict[int, list[int]] = {}
        waits = stream_waits(batch.program) if scenario.stream_order else []
        for edge in [*edges, *waits]:
            into.setdefault(edge.after, []).append(edge.before)
        self.nodes_before: list[list[int]] = []
        self.segments_before: list[list[int]] = []
        self.dispatched_before: list[list[int]] = []
        self.finished_before: list[list[int]] = []
        last_of_node: dict[int, int] = {}
        last_on: dict[object, int] = {}
        last_kernel_on: dict[int, int] = {}
        for i, segment in enumerate(cuts.items):
            kind = batch.program[segment.node].kind
            is_first = segment.node not in last_of_node
            self.nodes_before.append(into.get(segment.node, []) if is_first else [])
            lanes: list[object] = []
            if scenario.stream_order:
                lanes.append(("stream", segment.stream))
            if kind in ENGINE:
                lanes.append("engine")
            if kind in COLLECTIVES:
                link = (
                    batch.program[segment.node].group
                    if scenario.links is None
                    else scenario.links[segment.node]
                )
                lanes.append(("link", link))
            before = {last_on[lane] for lane in lanes if lane in last_on}
            if not is_first:
                before.add(last_of_node[segment.node])
            self.segments_before.append(sorted(before))
            held, ended = _queue_heads(segment, scenario.queues, last_kernel_on)
            self.dispatched_before.append(held)
            self.finished_before.append(ended)
            last_of_node[segment.node] = i
            for lane in lanes:
                last_on[lane] = i
            if segment.has_kernel:
                last_kernel_on[segment.stream] = i


def _queue_heads(
    segment: Segment, queues: Sequence[Queue], last_kernel_on: dict[int, int]
) -> tuple[list[int], list[int]]:
    """The last kernel issued earlier on the queue's other streams, by what frees the queue."""
    held: list[int] = []
    ended: list[int] = []
    if segment.is_held:
        for queue in queues:
            if segment.stream not in queue.streams:
                continue
            others = [
                last_kernel_on[stream]
                for stream in queue.streams
                if stream != segment.stream and stream in last_kernel_on
            ]
            if others:
                (held if queue.until == "start" else ended).append(max(others))
    return held, ended
