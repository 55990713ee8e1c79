"""When everything happens: one pass over a step in host order, on all ranks at once.

A start is the latest of what the op stands behind plus what starting costs, so in host order
everything it needs is known. Only the stretch of compute that runs beside communication depends on
ops issued later: it is found by passing again until nothing moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapscope.simulate.draw import Draw
from gapscope.simulate.order import STREAMS, Order
from gapscope.simulate.program import LAUNCH, SYNC, Program

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

# Each pass settles one more stretch of time; steps of many blocks need some ten.
_PASSES = 100
_SYNC_RETURN_NS = 5_000.0
_FOREVER_AGO = -1e18


@dataclass
class State:
    """What a step leaves to the next: per rank the host's time and the ends of the streams."""

    host: Floats
    end: dict[int, Floats]
    dispatch: dict[int, Floats]
    communicator: Floats

    @classmethod
    def begin(cls, ranks: int) -> State:
        """All idle at time 0."""
        import numpy as np

        idle = np.zeros(ranks)
        streams = dict.fromkeys(STREAMS, idle)
        return cls(idle, dict(streams), dict(streams), idle)


@dataclass
class Timing:
    """Times of one step in true ns; items or ops first, ranks second."""

    call_start: Floats
    call_end: Floats
    host_end: Floats
    start: Floats
    end: Floats
    length: Floats
    # Why an op waited: when each reason let go of it, without what starting costs.
    issued: Floats
    on_stream: Floats
    on_event: Floats
    on_queue: Floats
    on_communicator: Floats
    last_arrival: Floats


def run_step(
    program: Program, order: Order, draw: Draw, state: State, stretch: float
) -> tuple[Timing, State]:
    """Time one step; `stretch` is the factor on compute beside communication."""
    import numpy as np

    from gapscope.simulate import contention

    host_ends = state.host + np.cumsum(draw.gap + draw.call, axis=0)
    # The wait for the device is timed once the device is.
    launches = np.array([item.what == LAUNCH for item in program.items])
    issued = host_ends[launches]
    length = draw.length
    beside = contention.Beside(program, stretch)
    timing = _device(program, order, draw, state, issued, length)
    for _ in range(_PASSES if stretch > 1 else 0):
        stretched = beside.stretched(draw.length, timing.start, timing.end)
        if np.array_equal(stretched, length):
            break
        length = stretched
        timing = _device(program, order, draw, state, issued, length)
    timing.call_end = host_ends
    timing.call_start = host_ends - draw.call
    timing.host_end = host_ends[-1]
    if program.items[-1].what == SYNC:
        idle = np.maximum(timing.end.max(axis=0), timing.host_end) + _SYNC_RETURN_NS
        timing.call_end[-1] = idle
        timing.host_end = idle
    after = State(
        timing.host_end,
        {stream: _pick(timing.end, state.end, order.last[stream]) for stream in STREAMS},
        {
            stream: _pick(timing.start, state.dispatch, order.last_dispatch[stream])
            for stream in STREAMS
        },
        _last_collective(program, timing, state),
    )
    return timing, after


def ideal_ends(program: Program, order: Order, length: Floats, early: Floats) -> Floats:
    """End of each op if all ranks start at 0 with everything issued and starting costs nothing."""
    import numpy as np

    ops, ranks = length.shape
    free = np.zeros((ops, ranks))
    draw = Draw(free, free, length, early, free, free, free, free, free)
    start = State.begin(ranks)
    return _device(program, order, draw, start, free, length).end


def _pick(times: Floats, before: dict[int, Floats], op: int) -> Floats:
    return before[~op] if op < 0 else times[op]


def _last_collective(program: Program, timing: Timing, state: State) -> Floats:
    found = [number for number, op in enumerate(program.ops) if op.collective is not None]
    return timing.end[found[-1]] if found else state.communicator


def _device(
    program: Program, order: Order, draw: Draw, state: State, issued: Floats, length: Floats
) -> Timing:
    import numpy as np

    shape = length.shape
    start, end = np.empty(shape), np.empty(shape)
    never = np.full(shape, _FOREVER_AGO)
    on_stream, on_event, on_queue = never.copy(), never.copy(), never.copy()
    on_communicator, last_arrival = never.copy(), never
    is_copy = [op.kind == "memcpy" for op in program.ops]
    # What the op before costs the next one on its stream.
    after = np.array(
        [
            draw.copy_floor[n] if n and is_copy[n - 1] else draw.stream_floor[n]
            for n in range(len(is_copy))
        ]
    )
    communicator = state.communicator
    for segment in order.segments:
        first, stop = segment.first, segment.stop
        ready = issued[first:stop] + draw.launch_floor[first:stop]
        if segment.queued:
            held = _pick(start, state.dispatch, segment.queued[0])
            for other in segment.queued[1:]:
                held = np.maximum(held, _pick(start, state.dispatch, other))
            for number in range(first, stop):
                # Copies have a queue of their own.
                if not is_copy[number]:
                    on_queue[number] = held
                    ready[number - first] = np.maximum(
                        ready[number - first], held + draw.queue_floor[number]
                    )
        before = _pick(end, state.end, segment.before)
        was_copy = segment.before >= 0 and is_copy[segment.before]
        floor = (draw.copy_floor if was_copy else draw.stream_floor)[first]
        ready[0] = np.maximum(ready[0], before + floor)
        on_stream[first] = before
        for event in segment.events:
            produced = _pick(end, state.end, event)
            on_event[first] = np.maximum(on_event[first], produced)
        if segment.events:
            ready[0] = np.maximum(ready[0], on_event[first] + draw.event_floor[first])
        if program.ops[first].collective is not None:
            on_communicator[first] = communicator
            ready[0] = np.maximum(ready[0], communicator + draw.event_floor[first])
            start[first] = ready[0]
            last_arrival[first] = ready[0].max()
            end[first] = np.maximum(
                last_arrival[first] + length[first] - draw.end_early[first], start[first] + 500
            )
            communicator = end[first]
            continue
        # start[i] = max(ready[i], end[i - 1] + after[i]), for the whole segment at once.
        steps = length[first:stop].copy()
        steps[:-1] += after[first + 1 : stop]
        offset = np.zeros_like(steps)
        np.cumsum(steps[:-1], axis=0, out=offset[1:])
        start[first:stop] = np.maximum.accumulate(ready - offset, axis=0) + offset
        end[first:stop] = start[first:stop] + length[first:stop]
        on_stream[first + 1 : stop] = end[first : stop - 1]
    return Timing(
        *(issued, issued, issued[-1], start, end, length),
        *(issued, on_stream, on_event, on_queue, on_communicator, last_arrival),
    )
