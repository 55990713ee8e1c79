"""A second, slow simulator: streams that work off their commands one at a time.

It reads the program's records and waits itself, as a device does, and shares with the engine only
the program and the random numbers.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from gapscope.simulate.draw import Draw
from gapscope.simulate.program import LAUNCH, RECORD, WAIT, Program

ORDER = 4


@dataclass
class Stream:
    """Commands in order of issue; what a wait added stays until the next op."""

    commands: deque = field(default_factory=deque)
    ended: float = 0.0
    was_copy: bool = False
    waited: float = float("-inf")


def run(
    program: Program,
    draw: Draw,
    ranks: int,
    streams: tuple[int, ...],
    queues: tuple[frozenset[int], ...],
) -> tuple[list[list[float]], list[list[float]]]:
    """Start and end by op and rank, of one step on an idle device."""
    start = [[None] * ranks for _ in program.ops]
    end = [[None] * ranks for _ in program.ops]
    resident = [[None] * ranks for _ in program.ops]
    lanes = [{stream: Stream() for stream in range(5)} for _ in range(ranks)]
    events: list[dict[int, float]] = [{} for _ in range(ranks)]
    held_by = _held_by(program, streams, queues)
    earlier = _collective_before(program)
    issued = [[0.0] * ranks for _ in program.ops]
    for rank in range(ranks):
        host = 0.0
        for number, item in enumerate(program.items):
            host += draw.gap[number, rank] + draw.call[number, rank]
            if item.what in (LAUNCH, RECORD, WAIT):
                stream = item.stream if item.stream == ORDER else streams[item.stream]
                lanes[rank][stream].commands.append(item)
            if item.what == LAUNCH:
                issued[item.number][rank] = host

    def begin(rank: int, op: int, lane: Stream) -> float | None:
        """When the op starts on the rank; None while something it stands behind has not."""
        ready = [issued[op][rank] + draw.launch_floor[op, rank]]
        floor = draw.copy_floor if lane.was_copy else draw.stream_floor
        ready.append(lane.ended + floor[op, rank])
        if lane.waited > float("-inf"):
            ready.append(lane.waited + draw.event_floor[op, rank])
        if program.ops[op].kind != "memcpy":
            for other in held_by[op]:
                if start[other][rank] is None:
                    return None
                ready.append(start[other][rank] + draw.queue_floor[op, rank])
        if program.ops[op].collective:
            before = earlier[op]
            if before is not None and end[before][rank] is None:
                return None
            ended = 0.0 if before is None else end[before][rank]
            ready.append(ended + draw.event_floor[op, rank])
        return max(ready)

    def step(rank: int, stream: int) -> bool:
        """Work off the head of one stream, if it can be."""
        lane = lanes[rank][stream]
        if not lane.commands:
            return False
        item = lane.commands[0]
        if item.what == RECORD:
            events[rank][item.number] = max(lane.ended, lane.waited)
        elif item.what == WAIT:
            if item.number not in events[rank]:
                return False
            # An event of NCCL's order stream says what the communicator says already.
            recorded_on = recorder[item.number]
            if ORDER not in (recorded_on, stream) and recorded_on != stream:
                lane.waited = max(lane.waited, events[rank][item.number])
        else:
            op = item.number
            if start[op][rank] is None:
                start[op][rank] = begin(rank, op, lane)
                if start[op][rank] is None:
                    return False
                resident[op][rank] = start[op][rank]
            if program.ops[op].collective:
                if any(time is None for time in resident[op]):
                    return False
                last = max(resident[op])
                length = draw.length[op, 0] - draw.end_early[op, rank]
                end[op][rank] = max(last + length, start[op][rank] + 500)
            else:
                end[op][rank] = start[op][rank] + draw.length[op, rank]
            lane.ended = end[op][rank]
            lane.was_copy = program.ops[op].kind == "memcpy"
            lane.waited = float("-inf")
        lane.commands.popleft()
        return True

    recorder = {
        item.number: item.stream if item.stream == ORDER else streams[item.stream]
        for item in program.items
        if item.what == RECORD
    }
    moved = True
    while moved:
        moved = False
        for rank in range(ranks):
            for stream in range(5):
                while step(rank, stream):
                    moved = True
    assert all(not lane.commands for rank in lanes for lane in rank.values()), "a deadlock"
    return start, end


def _held_by(
    program: Program, streams: tuple[int, ...], queues: tuple[frozenset[int], ...]
) -> list[list[int]]:
    """Per op: the last kernel or memset issued before it on each other stream of its queue."""
    found = []
    for number, op in enumerate(program.ops):
        shared = {s for queue in queues if streams[op.stream] in queue for s in queue}
        shared -= {streams[op.stream]}
        found.append(
            [
                max(before)
                for stream in shared
                if (
                    before := [
                        n
                        for n, other in enumerate(program.ops[:number])
                        if streams[other.stream] == stream and other.kind != "memcpy"
                    ]
                )
            ]
        )
    return found


def _collective_before(program: Program) -> dict[int, int | None]:
    found: dict[int, int | None] = {}
    last = None
    for number, op in enumerate(program.ops):
        if op.collective:
            found[number] = last
            last = number
    return found
