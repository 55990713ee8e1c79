"""Rule Q1: streams that the driver put on one in-order hardware queue.

How streams map onto queues is not recorded anywhere. It is found in the capture from ops that
start late, without a known reason, just when an op issued earlier on another stream starts (or
ends). A pair of streams is kept only if replaying the *rule* brings the replay closer to the run
and never takes longer than it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapscope.model.replay import Queue, Scenario, Segments, replay
from gapscope.model.rules.book import Edge
from gapscope.model.rules.fsdp2 import COLLECTIVES, stream_waits

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gapscope.model.load import Batch, Ops

    Int = NDArray[np.int64]

LATE_NS = 25_000
# Starts coincide within this: earlier by the clock's own noise, later by one dispatch.
COINCIDE_NS = (-2_000, 25_000)
INSTANCES_A_STEP = 4
OVERSHOOT = 0.02
# Below this share of the step a better replay is no evidence.
MATERIAL = 0.003


@dataclass(frozen=True)
class Evidence:
    """How often ops of one stream pair started late and with the other, and how often not."""

    streams: frozenset[int]
    until: str
    count: int
    counter_examples: int

    @property
    def is_obeyed(self) -> bool:
        """Ops hardly ever passed the one that should have held them."""
        return self.counter_examples <= self.count / 4

    @property
    def needed_a_step(self) -> float:
        """Late starts a rank and step that make a queue: half as many where nothing passes it."""
        return INSTANCES_A_STEP / 2 if self.is_obeyed else INSTANCES_A_STEP


@dataclass(frozen=True)
class Found:
    queues: tuple[Queue, ...]
    evidence: tuple[Evidence, ...]


def known_reasons(batch: Batch, edges: Sequence[Edge], s: int, r: int) -> Int:
    """For each op the latest that may hold it: issue, stream, rules, communicator; aligned ns."""
    import numpy as np

    ops = batch.ops[s, r]
    # What was issued ahead waits for the step before to end.
    reason: Int = np.maximum(ops.issued, batch.window_start[s, r])
    for stream in np.unique(ops.stream):
        mine = np.flatnonzero(ops.stream == stream)
        reason[mine[1:]] = np.maximum(reason[mine[1:]], ops.end[mine[:-1]])
    _, first = np.unique(ops.node, return_index=True)
    first_of = dict(zip(np.unique(ops.node).tolist(), first.tolist(), strict=True))
    for edge in [*edges, *stream_waits(batch.program)]:
        i = first_of[edge.after]
        reason[i] = max(int(reason[i]), int(batch.node_end[edge.before, s, r]))
    last: dict[str, int] = {}
    for node, found in enumerate(batch.program):
        if found.kind in COLLECTIVES:
            if found.group in last:
                i = first_of[node]
                reason[i] = max(int(reason[i]), int(batch.node_end[last[found.group], s, r]))
            last[found.group] = node
    return reason


def previous_kernel(ops: Ops, stream: int) -> Int:
    """For each op the position of the last kernel or memset issued before it on `stream`, or -1."""
    import numpy as np

    position = np.where((ops.stream == stream) & ~ops.is_copy, np.arange(len(ops)), -1)
    upto = np.maximum.accumulate(position)
    return np.concatenate(([-1], upto[:-1]))


def coincidences(
    batch: Batch, edges: Sequence[Edge]
) -> dict[tuple[int, int, str], dict[tuple[int, int], int]]:
    """(stream, other stream, start | end) -> (step, rank) -> late ops that start with it."""
    import numpy as np

    found: dict[tuple[int, int, str], dict[tuple[int, int], int]] = {}
    for s, r in batch.cells:
        ops = batch.ops[s, r]
        late = (ops.start - known_reasons(batch, edges, s, r) > LATE_NS) & ~ops.is_copy
        streams = np.unique(ops.stream).tolist()
        for other in streams:
            before = previous_kernel(ops, other)
            usable = late & (before >= 0) & (ops.stream != other)
            for until in ("start", "end"):
                moment = (ops.start if until == "start" else ops.end)[before]
                lag = ops.start - moment
                hit = usable & (lag >= COINCIDE_NS[0]) & (lag <= COINCIDE_NS[1])
                for stream in streams:
                    count = int((hit & (ops.stream == stream)).sum())
                    if count:
                        of = found.setdefault((min(stream, other), max(stream, other), until), {})
                        of[s, r] = of.get((s, r), 0) + count
    return found


def detect(batch: Batch, cuts: Segments, edges: Sequence[Edge], transfer: Int) -> Found:
    """Queues that explain the capture; none where streams do not alias or the rule fails."""
    import numpy as np

    usable = ~batch.is_boundary if not batch.is_boundary.all() else np.ones(len(batch.steps), bool)
    observed = batch.observed[usable]

    def error(queues: Sequence[Queue]) -> tuple[float, float]:
        played = replay(batch, cuts, edges, transfer, Scenario(queues=tuple(queues)))
        off = (played.step[usable] - observed) / observed
        return float(np.abs(off).mean()), float(off.max())

    counts = coincidences(batch, edges)
    seen = {pair: _evidence(batch, pair, of) for pair, of in counts.items()}
    alone, _ = error(())
    best = alone
    queues: tuple[Queue, ...] = ()
    kept: list[_Pair] = []
    # One capture is of one kind: event timestamps make every queue wait for ends.
    for until in ("start", "end"):
        off, found, pairs = _grown(until, seen, len(batch.cells), alone, error)
        if until == "start":
            off, found, pairs = _one_queue(batch, seen, (off, found, pairs), error)
        # A queue that is hardly ever jumped needs no better replay as evidence, only no worse one.
        is_sure = bool(pairs) and all(seen[pair].is_obeyed for pair in pairs)
        if off < (best if is_sure else best - MATERIAL):
            best, queues, kept = off, found, pairs
    return Found(queues, tuple(seen[pair] for pair in kept))


_Pair = tuple[int, int, str]
_Error = Callable[[Sequence[Queue]], tuple[float, float]]


def _grown(
    until: str, seen: dict[_Pair, Evidence], columns: int, alone: float, error: _Error
) -> tuple[float, tuple[Queue, ...], list[_Pair]]:
    """Pairs of one kind, most frequent first, while their rule takes no longer than the run."""
    kept: list[_Pair] = []
    best = alone
    for pair, evidence in sorted(seen.items(), key=lambda item: (-item[1].count, item[0])):
        if pair[2] != until or evidence.count < evidence.needed_a_step * columns:
            continue
        # Ends coincide by chance where copies follow each other; a true queue is never jumped.
        if until == "end" and not evidence.is_obeyed:
            continue
        off, overshoot = error(merged([*kept, pair]))
        if overshoot <= OVERSHOOT and off <= best + MATERIAL:
            kept.append(pair)
            best = min(best, off)
    return (error(merged(kept))[0] if kept else alone), merged(kept), kept


_Grown = tuple[float, tuple[Queue, ...], list[_Pair]]


def _one_queue(batch: Batch, seen: dict[_Pair, Evidence], grown: _Grown, error: _Error) -> _Grown:
    """Three streams on one queue: then perhaps all, which CUDA_DEVICE_MAX_CONNECTIONS=1 does.

    Its late starts spread over all pairs of streams, so that each pair may have too few of its own;
    then ops must not pass each other more often than they wait.
    """
    off, found, kept = grown
    spread = [pair for pair in seen if pair[2] == "start"]
    is_wide = any(len(queue.streams) > 2 for queue in found)
    if not is_wide:
        count = sum(seen[pair].count for pair in spread)
        passed = sum(seen[pair].counter_examples for pair in spread)
        touched = {stream for pair in spread for stream in pair[:2]}
        if len(touched) < 3 or count < max(passed, INSTANCES_A_STEP * len(batch.cells)):
            return grown
    streams = frozenset(int(stream) for cell in batch.cells for stream in batch.ops[cell].stream)
    single = (Queue(streams, "start"),)
    alone, overshoot = error(single)
    if overshoot > OVERSHOOT or alone >= off - (0 if is_wide else MATERIAL):
        return grown
    return alone, single, kept if is_wide else spread


def merged(pairs: Sequence[tuple[int, int, str]]) -> tuple[Queue, ...]:
    """Pairs that share a stream are one queue."""
    queues: list[tuple[set[int], str]] = []
    for a, b, until in pairs:
        touching = [q for q in queues if q[1] == until and q[0] & {a, b}]
        streams = {a, b}.union(*(q[0] for q in touching))
        queues = [q for q in queues if q not in touching] + [(streams, until)]
    return tuple(Queue(frozenset(streams), until) for streams, until in queues)


def _evidence(batch: Batch, pair: _Pair, counts: dict[tuple[int, int], int]) -> Evidence:
    """Counter-examples: ops that started before the op that should have held them did."""
    a, b, until = pair
    against = 0
    for s, r in batch.cells:
        ops = batch.ops[s, r]
        for stream, other in ((a, b), (b, a)):
            before = previous_kernel(ops, other)
            usable = (ops.stream == stream) & ~ops.is_copy & (before >= 0)
            moment = (ops.start if until == "start" else ops.end)[before]
            against += int((usable & (ops.start < moment + COINCIDE_NS[0])).sum())
    return Evidence(frozenset((a, b)), until, sum(counts.values()), against)
